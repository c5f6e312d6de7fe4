/*
 * See wire.h. A message on the wire is a header and the struct of its type, as it is in memory.
 * Bytes of the struct that carry no value (after the end of a string, padding) are zero on the
 * wire, so that no memory of the sender leaks and equal messages have equal bytes. A table gives
 * for each type its size, the positions of such bytes, the number of files, and the range check.
 */
#include "agent/wire.h"

#include "base/error.h"
#include "base/files.h"
#include "base/machine.h"
#include "base/memory.h"
#include "recipe/tensor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH_SIZE_MAX (1 << 24)
#define AHEAD_MAX      (1 << 16) /* batches */
#define WINDOW_MAX     (1 << 20)
#define THREADS_MAX    (1 << 16)
#define ERRNO_MAX      4095
#define TRACE_S_MAX    600.0
#define SEALS          (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)
#define BODY           offsetof(struct hr__wire_message, hello)

struct wire_header {
    uint32_t magic, version, type, length; /* of the struct that follows, bytes */
};

_Static_assert(sizeof(struct wire_header) <= 64, "HR__WIRE_BYTES_MAX leaves 64 bytes for it");

/* A part of a message's struct: a string, or padding between members. */
struct wire_part {
    uint16_t offset, bytes;
};

struct kind {
    const char *name;
    size_t bytes; /* of the struct */
    /* Returns the name of a member that is out of range, or NULL. */
    const char *(*check)(const struct hr__wire_message *message);
    struct wire_part text[3];
    struct wire_part gap;
    int files; /* number of files with the message; of PLACED: if is_new */
};

#define PART(type, member)                                                                         \
    {                                                                                              \
        offsetof(struct type, member), sizeof((struct type *)0)->member                            \
    }
/* The padding from the end of one member to the next, or to the end of the struct. */
#define GAP(type, member, next)                                                                    \
    {                                                                                              \
        offsetof(struct type, member) + sizeof((struct type *)0)->member,                          \
            (next) - (offsetof(struct type, member) + sizeof((struct type *)0)->member)            \
    }

static const char *check_hello(const struct hr__wire_message *m)
{
    return m->hello.pid <= 0 ? "pid" : m->hello.is_viewer > 1 ? "is_viewer" : NULL;
}

static const char *check_welcome(const struct hr__wire_message *m)
{
    return m->welcome.pid <= 0 ? "pid" : m->welcome.threads > THREADS_MAX ? "threads" : NULL;
}

static int is_errno(int code)
{
    return code < 0 && code >= -ERRNO_MAX;
}

static const char *check_refused(const struct hr__wire_message *m)
{
    return is_errno(m->refused.code) ? NULL : "code";
}

static int within(int64_t value, int64_t low, int64_t high)
{
    return value >= low && value <= high;
}

static const char *check_attach(const struct hr__wire_message *m)
{
    const struct hr__wire_attach *a = &m->attach;
    if (!a->text_bytes || a->text_bytes > HR__WIRE_TEXT_BYTES_MAX)
        return "text_bytes";
    if (a->rows_bytes > HR__WIRE_ROWS_BYTES_MAX)
        return "rows_bytes";
    if (!within(a->batch_size, 1, BATCH_SIZE_MAX))
        return "batch_size";
    if (!within(a->batches_ahead, 1, AHEAD_MAX))
        return "batches_ahead";
    if (!within(a->window, 1, WINDOW_MAX))
        return "window";
    if (a->world_size < 1)
        return "world_size";
    if (!within(a->rank, 0, a->world_size - 1))
        return "rank";
    if (!within(a->shuffle, 0, 1))
        return "shuffle";
    if (!within(a->on_error, HR_ON_ERROR_RAISE, HR_ON_ERROR_SKIP))
        return "on_error";
    if (!within(a->join, HR_JOIN_EPOCH, HR_JOIN_NOW))
        return "join";
    if (!within(a->lag, HR_LAG_ALONE, HR_LAG_WAIT))
        return "lag";
    if (!within(a->cache_form, HR_FORM_AUTO, HR_FORMS - 1))
        return "cache_form";
    if (!within(a->direct_io, 0, 1))
        return "direct_io";
    if (!within(a->no_io_uring, 0, 1))
        return "no_io_uring";
    if (!within(a->node, -1, HR__NODES_MAX - 1))
        return "node";
    /* An external order cannot be shared. */
    int may_be_own = a->world_size == 1 && !a->stream[0];
    return within(a->external_order, 0, may_be_own) ? NULL : "external_order";
}

/* Checks a number or position of samples: it must fit a signed 64-bit integer, so that code that
 * adds to it or uses it as an index need not check. */
static int is_count(uint64_t value)
{
    return value <= INT64_MAX;
}

static const char *check_attached(const struct hr__wire_message *m)
{
    return is_count(m->attached.samples) ? hr__tensor_wrong(&m->attached.spec) : "samples";
}

static const char *check_seek(const struct hr__wire_message *m)
{
    return !is_count(m->seek.position) ? "position" : m->seek.is_first > 1 ? "is_first" : NULL;
}

static const char *check_waiting(const struct hr__wire_message *m)
{
    return is_count(m->waiting.position) ? NULL : "position";
}

static const char *check_placed(const struct hr__wire_message *m)
{
    const struct hr__wire_placed *s = &m->placed;
    if (s->is_new > 1)
        return "is_new";
    if (s->is_alone > 1)
        return "is_alone";
    if (!is_count(s->position))
        return "position";
    if (!is_count(s->sequence))
        return "sequence";
    if (!is_count(s->samples))
        return "samples";
    return is_count(s->missed) ? NULL : "missed";
}

static const char *check_bad(const struct hr__wire_message *m)
{
    return !is_count(m->bad.sequence) ? "sequence" : !is_count(m->bad.index) ? "index" : NULL;
}

static const char *check_halt(const struct hr__wire_message *m)
{
    const struct hr__wire_halt *h = &m->halt;
    if (h->has_sample > 1)
        return "has_sample";
    if (!is_count(h->sequence))
        return "sequence";
    if (!is_count(h->index))
        return "index";
    return is_errno(h->error.code) ? NULL : "error.code";
}

static const char *check_trace(const struct hr__wire_message *m)
{
    double s = m->trace.seconds;
    return s > 0 && s <= TRACE_S_MAX ? NULL : "seconds";
}

static const char *check_text(const struct hr__wire_message *m)
{
    return m->text.bytes <= HR__WIRE_TEXT_BYTES_MAX ? NULL : "bytes";
}

static const char *check_produce(const struct hr__wire_message *m)
{
    const struct hr__wire_produce *p = &m->produce;
    if (!p->text_bytes || p->text_bytes > HR__WIRE_TEXT_BYTES_MAX)
        return "text_bytes";
    return !within(p->slots, HR__WIRE_SLOTS_MIN, HR__WIRE_SLOTS_MAX) ? "slots"
           : p->job <= 0                                             ? "job"
                                                                     : NULL;
}

static const char *check_make(const struct hr__wire_message *m)
{
    if (!is_count(m->make.index))
        return "index";
    return m->make.slot < HR__WIRE_SLOTS_MAX ? NULL : "slot";
}

static const char *check_made(const struct hr__wire_message *m)
{
    return m->made.slot >= HR__WIRE_SLOTS_MAX ? "slot" : m->made.is_bad > 1 ? "is_bad" : NULL;
}

static const struct kind kinds[HR__WIRE_TYPES] = {
    [HR__WIRE_HELLO] = {.name = "HELLO",
                        .bytes = sizeof(struct hr__wire_hello),
                        .check = check_hello,
                        .text = {PART(hr__wire_hello, program)}},
    [HR__WIRE_WELCOME] = {.name = "WELCOME",
                          .bytes = sizeof(struct hr__wire_welcome),
                          .check = check_welcome},
    [HR__WIRE_REFUSED] = {.name = "REFUSED",
                          .bytes = sizeof(struct hr__wire_refused),
                          .check = check_refused,
                          .text = {PART(hr__wire_refused, message)}},
    [HR__WIRE_ATTACH] = {.name = "ATTACH",
                         .bytes = sizeof(struct hr__wire_attach),
                         .check = check_attach,
                         .text = {PART(hr__wire_attach, stream), PART(hr__wire_attach, cache)},
                         .gap = GAP(hr__wire_attach, cache, sizeof(struct hr__wire_attach)),
                         .files = 1},
    [HR__WIRE_ATTACHED] = {.name = "ATTACHED",
                           .bytes = sizeof(struct hr__wire_attached),
                           .check = check_attached,
                           .text = {PART(hr__wire_attached, notice)},
                           .gap = GAP(hr__wire_attached, spec.width,
                                      offsetof(struct hr__wire_attached, spec.bytes))},
    [HR__WIRE_SEEK] = {.name = "SEEK", .bytes = sizeof(struct hr__wire_seek), .check = check_seek},
    [HR__WIRE_WAITING] = {.name = "WAITING",
                          .bytes = sizeof(struct hr__wire_waiting),
                          .check = check_waiting},
    [HR__WIRE_PLACED] = {.name = "PLACED",
                         .bytes = sizeof(struct hr__wire_placed),
                         .check = check_placed,
                         .files = 4},
    [HR__WIRE_EXPELLED] = {.name = "EXPELLED", .bytes = sizeof(struct hr__wire_expelled)},
    [HR__WIRE_LEAVE] = {.name = "LEAVE", .bytes = sizeof(struct hr__wire_leave)},
    [HR__WIRE_BAD] = {.name = "BAD",
                      .bytes = sizeof(struct hr__wire_bad),
                      .check = check_bad,
                      .text = {PART(hr__wire_bad, reason)},
                      .gap = GAP(hr__wire_bad, cursor, offsetof(struct hr__wire_bad, sequence))},
    [HR__WIRE_HALT] = {.name = "HALT",
                       .bytes = sizeof(struct hr__wire_halt),
                       .check = check_halt,
                       .text = {PART(hr__wire_halt, error.message), PART(hr__wire_halt, path),
                                PART(hr__wire_halt, reason)},
                       .gap = GAP(hr__wire_halt, reason, sizeof(struct hr__wire_halt))},
    [HR__WIRE_STATUS] = {.name = "STATUS"},
    [HR__WIRE_TRACE] = {.name = "TRACE",
                        .bytes = sizeof(struct hr__wire_trace),
                        .check = check_trace},
    [HR__WIRE_END] = {.name = "END"},
    [HR__WIRE_TEXT] = {.name = "TEXT",
                       .bytes = sizeof(struct hr__wire_text),
                       .check = check_text,
                       .files = 1},
    [HR__WIRE_PRODUCE] = {.name = "PRODUCE",
                          .bytes = sizeof(struct hr__wire_produce),
                          .check = check_produce,
                          .files = 2},
    [HR__WIRE_PRODUCING] = {.name = "PRODUCING"},
    [HR__WIRE_MAKE] = {.name = "MAKE",
                       .bytes = sizeof(struct hr__wire_make),
                       .check = check_make,
                       .gap = GAP(hr__wire_make, slot, sizeof(struct hr__wire_make))},
    [HR__WIRE_MADE] = {.name = "MADE",
                       .bytes = sizeof(struct hr__wire_made),
                       .check = check_made,
                       .text = {PART(hr__wire_made, reason)}},
};

static const struct kind *kind_of(uint32_t type)
{
    return type >= HR__WIRE_HELLO && type < HR__WIRE_TYPES ? &kinds[type] : NULL;
}

static int files_of(const struct hr__wire_message *m)
{
    if (m->type == HR__WIRE_ATTACH)
        return m->attach.rows_bytes ? 2 : 1;
    return m->type == HR__WIRE_PLACED && !m->placed.is_new ? 0 : kinds[m->type].files;
}

/* Zeroes the bytes after the ends of strings and in padding, and terminates all strings. */
static void clean(const struct kind *kind, char *body)
{
    for (size_t i = 0; i < sizeof kind->text / sizeof *kind->text && kind->text[i].bytes; i++) {
        char *text = body + kind->text[i].offset;
        size_t length = strnlen(text, kind->text[i].bytes - 1u);
        memset(text + length, 0, kind->text[i].bytes - length);
    }
    memset(body + kind->gap.offset, 0, kind->gap.bytes);
}

size_t hr__wire_pack(const struct hr__wire_message *message, void *bytes)
{
    const struct kind *kind = &kinds[message->type];
    const struct wire_header header = {HR__WIRE_MAGIC, HR__WIRE_VERSION, (uint32_t)message->type,
                                       (uint32_t)kind->bytes};
    char *body = (char *)bytes + sizeof header;
    memcpy(bytes, &header, sizeof header);
    memcpy(body, (const char *)message + BODY, kind->bytes);
    clean(kind, body);
    if (message->type == HR__WIRE_ATTACH) {
        const struct hr__wire_attach *a = &message->attach;
        /* Callers may set a flag to any non-zero number; the wire has 0 or 1. */
        const int32_t flags[4] = {a->shuffle != 0, a->direct_io != 0, a->no_io_uring != 0,
                                  a->external_order != 0};
        memcpy(body + offsetof(struct hr__wire_attach, shuffle), &flags[0], sizeof *flags);
        memcpy(body + offsetof(struct hr__wire_attach, direct_io), &flags[1], sizeof *flags);
        memcpy(body + offsetof(struct hr__wire_attach, no_io_uring), &flags[2], sizeof *flags);
        memcpy(body + offsetof(struct hr__wire_attach, external_order), &flags[3], sizeof *flags);
    }
    return sizeof header + kind->bytes;
}

int hr__wire_unpack(struct hr__wire_message *message, const void *bytes, size_t length,
                    struct hr_error *error)
{
    struct wire_header header;
    struct hr__wire_message clear;
    memset(message, 0, sizeof *message);
    for (int i = 0; i < HR__WIRE_FILES; i++)
        message->files[i] = -1;
    if (length < sizeof header)
        return hr__fail(error, -EPROTO, "a message of %zu bytes is too short to be one", length);
    memcpy(&header, bytes, sizeof header);
    if (header.magic != HR__WIRE_MAGIC)
        return hr__fail(error, -EPROTO, "a message begins with %08x, which is not Headrace's",
                        header.magic);
    if (header.version != HR__WIRE_VERSION)
        return hr__fail(error, -EPROTONOSUPPORT,
                        "the other end uses version %u of the agent's messages, this one %u: "
                        "use the same version of Headrace for the agent and its jobs (headrace "
                        "agent --stop ends the old one), or name another socket by HEADRACE_AGENT",
                        header.version, HR__WIRE_VERSION);
    const struct kind *kind = kind_of(header.type);
    if (!kind)
        return hr__fail(error, -EPROTO, "a message has the unknown type %u", header.type);
    if (header.length != kind->bytes || length != sizeof header + kind->bytes)
        return hr__fail(error, -EPROTO, "a message %s has %zu bytes, where it needs %zu",
                        kind->name, length, sizeof header + kind->bytes);
    message->type = (enum hr__wire_type)header.type;
    char *body = (char *)message + BODY;
    memcpy(body, (const char *)bytes + sizeof header, kind->bytes);
    clear = *message;
    clean(kind, (char *)&clear + BODY);
    if (memcmp(body, (char *)&clear + BODY, kind->bytes))
        return hr__fail(error, -EPROTO,
                        "a message %s holds a string without an end, or bytes where it has none",
                        kind->name);
    const char *wrong = kind->check ? kind->check(message) : NULL;
    return wrong ? hr__fail(error, -EPROTO, "%s is out of range in a message %s", wrong, kind->name)
                 : 0;
}

/* Space for the control data that carries files, aligned as the kernel requires. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * HR__WIRE_FILES)];
};

int hr__wire_send(int socket, const struct hr__wire_message *message)
{
    char bytes[HR__WIRE_BYTES_MAX];
    union control control = {.bytes = {0}};
    struct iovec part = {bytes, hr__wire_pack(message, bytes)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    size_t file_bytes = sizeof(int) * (size_t)files_of(message);
    ssize_t sent;
    if (message->file_count != files_of(message))
        return -EINVAL;
    if (file_bytes) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(file_bytes);
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(file_bytes);
        memcpy(CMSG_DATA(c), message->files, file_bytes);
    }
    do
        sent = sendmsg(socket, &header, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

/* Takes the files from a received message's control data. */
static void take_files(struct msghdr *header, struct hr__wire_message *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int file;
            memcpy(&file, CMSG_DATA(c) + i * sizeof file, sizeof file);
            if (message->file_count < HR__WIRE_FILES)
                message->files[message->file_count++] = file;
            else
                close(file);
        }
    }
}

int hr__wire_receive(int socket, int flags, struct hr__wire_message *message,
                     struct hr_error *error)
{
    char bytes[HR__WIRE_BYTES_MAX];
    union control control;
    struct hr__wire_message files = {.file_count = 0};
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr header;
    ssize_t length;
    message->file_count = 0;
    /* If the other end closed with messages unread, one receive fails with ECONNRESET before its
     * last messages can be received. These may say why it closed, so receive again. */
    do {
        header = (struct msghdr){.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof control.bytes};
        length = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
    } while (length < 0 && errno == ECONNRESET);
    if (length < 0)
        return -errno;
    take_files(&header, &files);
    int r = 0;
    if (header.msg_flags & MSG_TRUNC)
        r = hr__fail(error, -EPROTO, "a message is longer than the longest that there is");
    else if (length)
        r = hr__wire_unpack(message, bytes, (size_t)length, error);
    if (!r && length && (header.msg_flags & MSG_CTRUNC) && files.file_count < files_of(message))
        r = hr__fail(error, -EMFILE,
                     "files of a message %s did not come: too many are open here; raise ulimit -n",
                     kinds[message->type].name);
    else if (!r && length &&
             (header.msg_flags & MSG_CTRUNC || files.file_count != files_of(message)))
        r = hr__fail(error, -EPROTO, "a message %s came with %s%d files, where it needs %d",
                     kinds[message->type].name, header.msg_flags & MSG_CTRUNC ? "more than " : "",
                     files.file_count, files_of(message));
    if (r || !length) {
        hr__wire_close_files(&files);
        return r;
    }
    message->file_count = files.file_count;
    memcpy(message->files, files.files, sizeof(int) * (size_t)files.file_count);
    return 1;
}

void hr__wire_close_files(struct hr__wire_message *message)
{
    for (int i = 0; i < message->file_count; i++) {
        if (message->files[i] >= 0)
            close(message->files[i]);
        message->files[i] = -1;
    }
    message->file_count = 0;
}

int hr__wire_text_file(const char *text, size_t length)
{
    int file = memfd_create("headrace-text", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return -errno;
    int r = hr__write_all(file, text, length);
    if (!r && fcntl(file, F_ADD_SEALS, SEALS))
        r = -errno;
    if (r) {
        close(file);
        return r;
    }
    return file;
}

/* Returns non-zero if the file has this many bytes and can no longer be changed. */
static int is_sealed(int file, uint64_t bytes)
{
    struct stat st;
    /* Only anonymous files have seals, so reading it cannot block on another process. */
    int seals = fcntl(file, F_GET_SEALS);
    return seals >= 0 && (seals & (SEALS & ~F_SEAL_SEAL)) == (SEALS & ~F_SEAL_SEAL) &&
           !fstat(file, &st) && S_ISREG(st.st_mode) && st.st_size >= 0 &&
           (uint64_t)st.st_size == bytes;
}

int hr__wire_text_read(int file, uint64_t bytes, char **text, struct hr_error *error)
{
    *text = NULL;
    if (!is_sealed(file, bytes))
        return hr__fail(error, -EPROTO,
                        "the file of a text is no sealed anonymous file of %llu bytes",
                        (unsigned long long)bytes);
    char *out = hr__alloc(HR__TAG_AGENT, bytes + 1, 1);
    if (!out)
        return hr__fail(error, -ENOMEM, "out of memory for a text of %llu bytes",
                        (unsigned long long)bytes);
    int code = hr__read_exactly(file, out, bytes, 0);
    if (code) {
        hr__free(out);
        return code == -ENODATA ? hr__fail(error, -EPROTO, "reading a text: its file ends before")
                                : hr__fail(error, code, "reading a text: %s", hr__errno_text(code));
    }
    *text = out;
    return 0;
}
