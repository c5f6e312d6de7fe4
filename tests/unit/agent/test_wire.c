/*
 * Messages between an agent and its jobs: every type is sent and received over a real socket with
 * its files. Messages that are truncated, too long, of another type, version or number of files, or
 * out of range are refused, and refused messages leave no file open.
 */
#include "../test.h"

#include "agent/wire.h"
#include "base/memory.h"
#include "recipe/tensor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns the number of open descriptors. */
static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(d);
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

static void pair(int ends[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

static void part(int ends[2])
{
    close(ends[0]);
    close(ends[1]);
}

/* A valid message of each type; all bytes outside its values are set to garbage. */
static struct hr__wire_message valid(enum hr__wire_type type)
{
    struct hr__wire_message m;
    memset(&m, 0xa5, sizeof m);
    m.type = type;
    m.file_count = 0;
    switch (type) {
    case HR__WIRE_HELLO:
        m.hello.pid = 4711;
        m.hello.is_viewer = 1;
        strcpy(m.hello.program, "train.py");
        break;
    case HR__WIRE_WELCOME:
        m.welcome = (struct hr__wire_welcome){.pid = 12, .threads = 3};
        break;
    case HR__WIRE_REFUSED:
        m.refused.code = -EACCES;
        strcpy(m.refused.message, "no");
        break;
    case HR__WIRE_ATTACH:
        m.attach.text_bytes = 77;
        m.attach.rows_bytes = 78;
        m.attach.seed = UINT64_MAX;
        m.attach.epochs = 90;
        m.attach.staging_bytes = 1 << 24;
        m.attach.batch_size = 1 << 24;
        m.attach.batches_ahead = 2;
        m.attach.window = 8;
        m.attach.rank = 3;
        m.attach.world_size = 4;
        m.attach.shuffle = 1;
        m.attach.on_error = HR_ON_ERROR_SKIP;
        m.attach.join = HR_JOIN_NOW;
        m.attach.lag = HR_LAG_WAIT;
        m.attach.cache_form = HR_FORM_AUTO;
        m.attach.direct_io = 0;
        m.attach.no_io_uring = 1;
        m.attach.node = 1;
        m.attach.external_order = 0;
        strcpy(m.attach.stream, "search");
        strcpy(m.attach.cache, "4GiB");
        break;
    case HR__WIRE_ATTACHED:
        m.attached.samples = 1281167;
        m.attached.spec.dtype = HR_FLOAT32;
        m.attached.spec.layout = HR_NHWC;
        hr__tensor_image(&m.attached.spec, 3, 224, 192);
        strcpy(m.attached.notice, "its priority is low");
        break;
    case HR__WIRE_SEEK:
        m.seek = (struct hr__wire_seek){.epoch = 2, .position = 640, .is_first = 1, .number = 9};
        break;
    case HR__WIRE_WAITING:
        m.waiting = (struct hr__wire_waiting){.epoch = 2, .position = 641};
        break;
    case HR__WIRE_PLACED:
        m.placed = (struct hr__wire_placed){.number = 9,
                                            .cursor = 1,
                                            .is_new = 1,
                                            .epoch = 2,
                                            .position = 640,
                                            .sequence = 1280,
                                            .samples = 5000,
                                            .missed = 640};
        break;
    case HR__WIRE_EXPELLED:
        m.expelled.cursor = 5;
        break;
    case HR__WIRE_LEAVE:
        m.leave.cursor = 6;
        break;
    case HR__WIRE_BAD:
        m.bad.cursor = 1;
        m.bad.sequence = 99;
        m.bad.index = 1000;
        strcpy(m.bad.reason, "cut off");
        break;
    case HR__WIRE_HALT:
        m.halt.cursor = 1;
        m.halt.has_sample = 1;
        m.halt.sequence = 100;
        m.halt.index = 1001;
        m.halt.error.code = -EBADMSG;
        strcpy(m.halt.error.message, "a sample is damaged");
        memset(m.halt.path, 'p', sizeof m.halt.path - 1);
        m.halt.path[sizeof m.halt.path - 1] = 0;
        strcpy(m.halt.reason, "");
        break;
    case HR__WIRE_TRACE:
        m.trace.seconds = 2.5;
        break;
    case HR__WIRE_TEXT:
        m.text.bytes = 0;
        break;
    case HR__WIRE_PRODUCE:
        m.produce = (struct hr__wire_produce){.text_bytes = 78, .slots = 4, .job = 4712};
        break;
    case HR__WIRE_MAKE:
        m.make.request = 1;
        m.make.index = 2;
        m.make.epoch = UINT64_MAX;
        m.make.seed = 4;
        m.make.slot = 3;
        break;
    case HR__WIRE_MADE:
        m.made.request = 1;
        m.made.label = -1;
        m.made.slot = 3;
        m.made.is_bad = 1;
        strcpy(m.made.reason, "ValueError");
        break;
    case HR__WIRE_STATUS:
    case HR__WIRE_PRODUCING:
    case HR__WIRE_END:
    case HR__WIRE_TYPES:
        break;
    }
    return m;
}

static size_t packed(enum hr__wire_type type, char bytes[HR__WIRE_BYTES_MAX])
{
    struct hr__wire_message m = valid(type);
    memset(bytes, 0x5a, HR__WIRE_BYTES_MAX);
    return hr__wire_pack(&m, bytes);
}

/* Every type in both directions. Packing removes the garbage around the values, so a message has
 * only one form. */
static void test_every_type(void **state)
{
    char bytes[HR__WIRE_BYTES_MAX], again[HR__WIRE_BYTES_MAX];
    for (int type = HR__WIRE_HELLO; type < HR__WIRE_TYPES; type++) {
        struct hr__wire_message out;
        struct hr_error error = {0};
        size_t length = packed((enum hr__wire_type)type, bytes);
        assert_true(length <= HR__WIRE_BYTES_MAX);
        if (hr__wire_unpack(&out, bytes, length, &error))
            fail_msg("type %d: %s", type, error.message);
        assert_int_equal(out.type, type);
        assert_int_equal(out.file_count, 0);
        assert_int_equal(hr__wire_pack(&out, again), length);
        assert_memory_equal(again, bytes, length);
        assert_null(memmem(bytes, length, "\xa5\xa5\xa5\xa5", 4));
    }
}

static void test_values_arrive(void **state)
{
    char bytes[HR__WIRE_BYTES_MAX];
    struct hr__wire_message m;
    assert_int_equal(hr__wire_unpack(&m, bytes, packed(HR__WIRE_ATTACH, bytes), NULL), 0);
    assert_int_equal(m.attach.seed, UINT64_MAX);
    assert_int_equal(m.attach.batch_size, 1 << 24);
    assert_int_equal(m.attach.rank, 3);
    assert_int_equal(m.attach.cache_form, HR_FORM_AUTO);
    assert_string_equal(m.attach.stream, "search");
    assert_string_equal(m.attach.cache, "4GiB");
    assert_int_equal(hr__wire_unpack(&m, bytes, packed(HR__WIRE_HALT, bytes), NULL), 0);
    assert_int_equal(m.halt.error.code, -EBADMSG);
    assert_string_equal(m.halt.error.message, "a sample is damaged");
    assert_int_equal(strlen(m.halt.path), 1023);
    assert_int_equal(hr__wire_unpack(&m, bytes, packed(HR__WIRE_PLACED, bytes), NULL), 0);
    assert_int_equal(m.placed.sequence, 1280);
    assert_int_equal(m.placed.missed, 640);
    m = valid(HR__WIRE_ATTACH);
    m.attach.shuffle = 2;
    m.attach.direct_io = -1;
    assert_int_equal(hr__wire_unpack(&m, bytes, hr__wire_pack(&m, bytes), NULL), 0);
    assert_int_equal(m.attach.shuffle, 1);
    assert_int_equal(m.attach.direct_io, 1);
}

/* A node that no machine has would be used as the number of a bit. */
static void test_nodes(void **state)
{
    char bytes[HR__WIRE_BYTES_MAX];
    struct hr__wire_message m = valid(HR__WIRE_ATTACH);
    struct hr_error error;
    for (int node = -2; node <= 64; node += node == 0 ? 63 : 1) {
        m.attach.node = node;
        int r = hr__wire_unpack(&m, bytes, hr__wire_pack(&m, bytes), &error);
        assert_int_equal(r, node < -1 || node > 63 ? -EPROTO : 0);
        if (r)
            assert_non_null(strstr(error.message, "node"));
    }
}

/* A string without an end is truncated. */
static void test_strings_are_cut(void **state)
{
    char bytes[HR__WIRE_BYTES_MAX];
    struct hr__wire_message m = valid(HR__WIRE_HELLO);
    memset(m.hello.program, 'x', sizeof m.hello.program);
    assert_int_equal(hr__wire_unpack(&m, bytes, hr__wire_pack(&m, bytes), NULL), 0);
    assert_int_equal(strlen(m.hello.program), sizeof m.hello.program - 1);
}

static void refuse(const char *bytes, size_t length, int code, const char *words)
{
    struct hr__wire_message m;
    struct hr_error error = {0};
    assert_int_equal(hr__wire_unpack(&m, bytes, length, &error), code);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
}

static void test_other_lengths(void **state)
{
    char bytes[HR__WIRE_BYTES_MAX + 8];
    for (int type = HR__WIRE_HELLO; type < HR__WIRE_TYPES; type++) {
        size_t length = packed((enum hr__wire_type)type, bytes);
        for (size_t cut = 0; cut < length; cut++)
            refuse(bytes, cut, -EPROTO, "bytes");
        refuse(bytes, length + 1, -EPROTO, "bytes");
        /* the length in the header must be right, too */
        bytes[12] ^= 1;
        refuse(bytes, length, -EPROTO, "bytes");
    }
    refuse("", 0, -EPROTO, "too short");
}

static void test_other_headers(void **state)
{
    char bytes[HR__WIRE_BYTES_MAX];
    size_t length = packed(HR__WIRE_SEEK, bytes);
    bytes[0] ^= 1;
    refuse(bytes, length, -EPROTO, "not Headrace's");
    bytes[0] ^= 1;
    bytes[4] = HR__WIRE_VERSION + 1;
    refuse(bytes, length, -EPROTONOSUPPORT, "same version of Headrace");
    bytes[4] = HR__WIRE_VERSION;
    bytes[8] = 0;
    refuse(bytes, length, -EPROTO, "unknown type 0");
    bytes[8] = HR__WIRE_TYPES;
    refuse(bytes, length, -EPROTO, "unknown type 21");
    memset(bytes + 8, 0xff, 4);
    refuse(bytes, length, -EPROTO, "unknown type 4294967295");
}

/* Bytes that belong to no value must be 0. */
static void test_one_form_only(void **state)
{
    char bytes[HR__WIRE_BYTES_MAX];
    size_t length = packed(HR__WIRE_HELLO, bytes);
    bytes[length - 1] = 'x';
    refuse(bytes, length, -EPROTO, "string");
    memset(bytes + 16 + offsetof(struct hr__wire_hello, program), 'x', 64);
    refuse(bytes, length, -EPROTO, "string");
    length = packed(HR__WIRE_BAD, bytes);
    bytes[16 + 4] = 1;
    refuse(bytes, length, -EPROTO, "bytes where it has none");
    length = packed(HR__WIRE_ATTACH, bytes);
    bytes[length - 1] = 1;
    refuse(bytes, length, -EPROTO, "bytes where it has none");
    length = packed(HR__WIRE_ATTACHED, bytes);
    bytes[16 + offsetof(struct hr__wire_attached, spec.bytes) - 1] = 1;
    refuse(bytes, length, -EPROTO, "bytes where it has none");
    length = packed(HR__WIRE_HALT, bytes);
    bytes[length - 1] = 1;
    refuse(bytes, length, -EPROTO, "bytes where it has none");
}

#define REFUSE(TYPE, member, value, words)                                                         \
    do {                                                                                           \
        char bytes_[HR__WIRE_BYTES_MAX];                                                           \
        struct hr__wire_message m_ = valid(TYPE);                                                  \
        m_.member = (value);                                                                       \
        refuse(bytes_, hr__wire_pack(&m_, bytes_), -EPROTO, words);                                \
    } while (0)

static void test_out_of_range(void **state)
{
    REFUSE(HR__WIRE_HELLO, hello.pid, 0, "pid");
    REFUSE(HR__WIRE_HELLO, hello.pid, -5, "pid");
    REFUSE(HR__WIRE_HELLO, hello.is_viewer, 2, "is_viewer");
    REFUSE(HR__WIRE_WELCOME, welcome.threads, 1 << 20, "threads");
    REFUSE(HR__WIRE_REFUSED, refused.code, 0, "code");
    REFUSE(HR__WIRE_REFUSED, refused.code, 1, "code");
    REFUSE(HR__WIRE_REFUSED, refused.code, INT32_MIN, "code");
    REFUSE(HR__WIRE_ATTACH, attach.text_bytes, 0, "text_bytes");
    REFUSE(HR__WIRE_ATTACH, attach.text_bytes, HR__WIRE_TEXT_BYTES_MAX + 1, "text_bytes");
    REFUSE(HR__WIRE_ATTACH, attach.rows_bytes, HR__WIRE_ROWS_BYTES_MAX + 1, "rows_bytes");
    REFUSE(HR__WIRE_ATTACH, attach.batch_size, 0, "batch_size");
    REFUSE(HR__WIRE_ATTACH, attach.batch_size, (1 << 24) + 1, "batch_size");
    REFUSE(HR__WIRE_ATTACH, attach.batches_ahead, 0, "batches_ahead");
    REFUSE(HR__WIRE_ATTACH, attach.window, 0, "window");
    REFUSE(HR__WIRE_ATTACH, attach.window, INT32_MAX, "window");
    REFUSE(HR__WIRE_ATTACH, attach.world_size, 0, "world_size");
    REFUSE(HR__WIRE_ATTACH, attach.world_size, INT32_MIN, "world_size");
    REFUSE(HR__WIRE_ATTACH, attach.rank, 4, "rank");
    REFUSE(HR__WIRE_ATTACH, attach.rank, -1, "rank");
    REFUSE(HR__WIRE_ATTACH, attach.on_error, 2, "on_error");
    REFUSE(HR__WIRE_ATTACH, attach.join, 2, "join");
    REFUSE(HR__WIRE_ATTACH, attach.lag, -1, "lag");
    REFUSE(HR__WIRE_ATTACH, attach.cache_form, HR_FORMS, "cache_form");
    REFUSE(HR__WIRE_ATTACH, attach.cache_form, -2, "cache_form");
    /* This message has a stream and four ranks. */
    REFUSE(HR__WIRE_ATTACH, attach.external_order, 1, "external_order");
    REFUSE(HR__WIRE_ATTACHED, attached.spec.dtype, (enum hr_dtype)4, "dtype");
    REFUSE(HR__WIRE_ATTACHED, attached.spec.layout, (enum hr_layout)2, "layout");
    REFUSE(HR__WIRE_ATTACHED, attached.spec.channels, 0, "channels");
    REFUSE(HR__WIRE_ATTACHED, attached.spec.height, 65537, "height");
    REFUSE(HR__WIRE_ATTACHED, attached.spec.width, -1, "height");
    REFUSE(HR__WIRE_ATTACHED, attached.spec.bytes, 12, "bytes");
    REFUSE(HR__WIRE_ATTACHED, attached.spec.dims, 5, "dims");
    REFUSE(HR__WIRE_ATTACHED, attached.spec.shape[1], -192, "shape");
    REFUSE(HR__WIRE_ATTACHED, attached.spec.shape[3], 7, "shape");
    REFUSE(HR__WIRE_ATTACHED, attached.samples, UINT64_MAX, "samples");
    REFUSE(HR__WIRE_SEEK, seek.position, UINT64_MAX, "position");
    REFUSE(HR__WIRE_SEEK, seek.is_first, 2, "is_first");
    REFUSE(HR__WIRE_WAITING, waiting.position, UINT64_MAX, "position");
    REFUSE(HR__WIRE_PLACED, placed.is_new, 3, "is_new");
    REFUSE(HR__WIRE_PLACED, placed.is_alone, 3, "is_alone");
    REFUSE(HR__WIRE_PLACED, placed.position, UINT64_MAX, "position");
    REFUSE(HR__WIRE_PLACED, placed.sequence, UINT64_MAX, "sequence");
    REFUSE(HR__WIRE_PLACED, placed.samples, UINT64_MAX, "samples");
    REFUSE(HR__WIRE_PLACED, placed.missed, UINT64_MAX, "missed");
    REFUSE(HR__WIRE_BAD, bad.sequence, UINT64_MAX, "sequence");
    REFUSE(HR__WIRE_BAD, bad.index, UINT64_MAX, "index");
    REFUSE(HR__WIRE_HALT, halt.error.code, 5, "error.code");
    REFUSE(HR__WIRE_HALT, halt.has_sample, 2, "has_sample");
    REFUSE(HR__WIRE_PRODUCE, produce.text_bytes, 0, "text_bytes");
    REFUSE(HR__WIRE_PRODUCE, produce.slots, 1, "slots");
    REFUSE(HR__WIRE_PRODUCE, produce.slots, HR__WIRE_SLOTS_MAX + 1, "slots");
    REFUSE(HR__WIRE_PRODUCE, produce.job, 0, "job");
    REFUSE(HR__WIRE_MAKE, make.index, UINT64_MAX, "index");
    REFUSE(HR__WIRE_MAKE, make.slot, HR__WIRE_SLOTS_MAX, "slot");
    REFUSE(HR__WIRE_MADE, made.slot, HR__WIRE_SLOTS_MAX, "slot");
    REFUSE(HR__WIRE_MADE, made.is_bad, 2, "is_bad");
    REFUSE(HR__WIRE_TRACE, trace.seconds, 0, "seconds");
    REFUSE(HR__WIRE_TRACE, trace.seconds, 601, "seconds");
    REFUSE(HR__WIRE_TRACE, trace.seconds, NAN, "seconds");
    REFUSE(HR__WIRE_TEXT, text.bytes, HR__WIRE_TEXT_BYTES_MAX + 1, "bytes");
    /* another sender can send what pack would correct */
    char bytes[HR__WIRE_BYTES_MAX];
    size_t length = packed(HR__WIRE_ATTACH, bytes);
    bytes[16 + offsetof(struct hr__wire_attach, shuffle)] = 2;
    refuse(bytes, length, -EPROTO, "shuffle");
}

/* Single flipped bits and random tails are refused, or give another message in its only form. */
static void test_damage(void **state)
{
    char bytes[HR__WIRE_BYTES_MAX], again[HR__WIRE_BYTES_MAX];
    for (int type = HR__WIRE_HELLO; type < HR__WIRE_TYPES; type++) {
        size_t length = packed((enum hr__wire_type)type, bytes);
        for (size_t bit = 0; bit < length * 8; bit++) {
            struct hr__wire_message m;
            bytes[bit / 8] ^= (char)(1 << bit % 8);
            if (!hr__wire_unpack(&m, bytes, length, NULL)) {
                assert_int_equal(hr__wire_pack(&m, again), length);
                assert_memory_equal(again, bytes, length);
            }
            bytes[bit / 8] ^= (char)(1 << bit % 8);
        }
    }
}

static void send_ok(int socket, struct hr__wire_message *m)
{
    assert_int_equal(hr__wire_send(socket, m), 0);
}

static int is_cloexec(int file)
{
    return (fcntl(file, F_GETFD) & FD_CLOEXEC) != 0;
}

static void test_over_a_socket(void **state)
{
    int ends[2], before = open_files();
    struct hr__wire_message m, got;
    pair(ends);
    int text = hr__wire_text_file("{}", 2);
    assert_true(text >= 0 && is_cloexec(text));
    for (int type = HR__WIRE_HELLO; type < HR__WIRE_TYPES; type++) {
        struct hr_error error = {0};
        m = valid((enum hr__wire_type)type);
        m.file_count = type == HR__WIRE_PLACED                               ? 4
                       : type == HR__WIRE_PRODUCE || type == HR__WIRE_ATTACH ? 2
                       : type == HR__WIRE_TEXT                               ? 1
                                                                             : 0;
        for (int i = 0; i < m.file_count; i++)
            m.files[i] = text;
        send_ok(ends[0], &m);
        if (hr__wire_receive(ends[1], 0, &got, &error) != 1)
            fail_msg("type %d: %s", type, error.message);
        assert_int_equal(got.type, type);
        assert_int_equal(got.file_count, m.file_count);
        for (int i = 0; i < got.file_count; i++) {
            assert_true(got.files[i] >= 0 && got.files[i] != text && is_cloexec(got.files[i]));
        }
        hr__wire_close_files(&got);
        assert_int_equal(got.file_count, 0);
        hr__wire_close_files(&got);
    }
    m = valid(HR__WIRE_PLACED);
    m.placed.is_new = 0;
    send_ok(ends[0], &m);
    assert_int_equal(hr__wire_receive(ends[1], MSG_DONTWAIT, &got, NULL), 1);
    assert_int_equal(got.file_count, 0);
    assert_int_equal(hr__wire_receive(ends[1], MSG_DONTWAIT, &got, NULL), -EAGAIN);
    close(text);
    part(ends);
    assert_int_equal(open_files(), before);
}

/* Sends any datagram with `count` files. */
static void send_raw(int socket, const void *bytes, size_t length, int count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 8)];
    } control = {.bytes = {0}};
    int files[8];
    struct iovec piece = {(void *)(uintptr_t)bytes, length};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1};
    for (int i = 0; i < count; i++)
        files[i] = 0;
    if (count) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
        memcpy(CMSG_DATA(c), files, sizeof(int) * (size_t)count);
    }
    assert_int_equal(sendmsg(socket, &header, 0), length);
}

static void receive_refused(int ends[2], int code, const char *words)
{
    struct hr__wire_message m;
    struct hr_error error = {0};
    int before = open_files();
    assert_int_equal(hr__wire_receive(ends[1], 0, &m, &error), code);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
    assert_int_equal(m.file_count, 0);
    assert_int_equal(open_files(), before);
}

/* Each type has a fixed number of files: with another number a message is refused and its files are
 * closed, whatever else is wrong. */
static void test_other_files(void **state)
{
    char bytes[HR__WIRE_BYTES_MAX + 1];
    int ends[2];
    size_t length;
    pair(ends);
    length = packed(HR__WIRE_ATTACH, bytes);
    send_raw(ends[0], bytes, length, 0);
    receive_refused(ends, -EPROTO, "ATTACH came with 0 files, where it needs 2");
    send_raw(ends[0], bytes, length, 1); /* without the rows */
    receive_refused(ends, -EPROTO, "came with 1 files");
    send_raw(ends[0], bytes, length, 8);
    receive_refused(ends, -EPROTO, "more than 4 files");
    length = packed(HR__WIRE_PLACED, bytes);
    send_raw(ends[0], bytes, length, 3);
    receive_refused(ends, -EPROTO, "needs 4");
    send_raw(ends[0], bytes, length, 5);
    receive_refused(ends, -EPROTO, "more than 4 files");
    bytes[16 + offsetof(struct hr__wire_placed, is_new)] = 0;
    send_raw(ends[0], bytes, length, 4);
    receive_refused(ends, -EPROTO, "needs 0");
    length = packed(HR__WIRE_HELLO, bytes);
    send_raw(ends[0], bytes, length, 1);
    receive_refused(ends, -EPROTO, "needs 0");
    send_raw(ends[0], bytes, length - 1, 4);
    receive_refused(ends, -EPROTO, "bytes");
    memset(bytes, 0, sizeof bytes);
    send_raw(ends[0], bytes, sizeof bytes, 2);
    receive_refused(ends, -EPROTO, "longer than the longest");
    part(ends);
}

/* At the limit of open files nothing is lost silently or stays open. */
static void test_no_room_for_files(void **state)
{
    struct rlimit old, low;
    struct hr__wire_message m = valid(HR__WIRE_PLACED);
    int ends[2], top;
    pair(ends);
    m.file_count = 4;
    memset(m.files, 0, sizeof m.files);
    send_ok(ends[0], &m);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    top = dup(0);
    close(top);
    /* descriptors up to top + 1 may be used: room for two of the four files, and none to count
     * them */
    low = (struct rlimit){.rlim_cur = (rlim_t)top + 2, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct hr_error error = {0};
    int r = hr__wire_receive(ends[1], 0, &m, &error), next = dup(0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    close(next);
    assert_int_equal(r, -EMFILE);
    assert_non_null(strstr(error.message, "ulimit -n"));
    assert_int_equal(next, top);
    part(ends);
}

/* The other end has closed: messages that it sent before still arrive, even if it no longer
 * received any. */
static void test_ends(void **state)
{
    int ends[2];
    struct hr__wire_message m = valid(HR__WIRE_REFUSED), got;
    pair(ends);
    send_ok(ends[0], &m);
    m = valid(HR__WIRE_SEEK);
    send_ok(ends[1], &m);
    close(ends[0]);
    assert_int_equal(hr__wire_receive(ends[1], 0, &got, NULL), 1);
    assert_int_equal(got.type, HR__WIRE_REFUSED);
    assert_int_equal(hr__wire_receive(ends[1], 0, &got, NULL), 0);
    assert_int_equal(hr__wire_receive(ends[1], MSG_DONTWAIT, &got, NULL), 0);
    assert_int_equal(hr__wire_send(ends[1], &m), -EPIPE);
    close(ends[1]);
    pair(ends);
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(hr__wire_receive(ends[1], 0, &got, NULL), 0);
    close(ends[1]);
}

/* A number of files that does not fit the type is the sender's error; a full socket that does not
 * block returns an error. */
static void test_send_refused(void **state)
{
    int ends[2], r = 0, sent = 0;
    struct hr__wire_message m = valid(HR__WIRE_ATTACH);
    pair(ends);
    assert_int_equal(hr__wire_send(ends[0], &m), -EINVAL);
    m = valid(HR__WIRE_HELLO);
    m.file_count = 1;
    m.files[0] = 0;
    assert_int_equal(hr__wire_send(ends[0], &m), -EINVAL);
    m.file_count = 0;
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    while (!r && sent < 1000000) {
        r = hr__wire_send(ends[0], &m);
        sent += !r;
    }
    assert_int_equal(r, -EAGAIN);
    for (int i = 0; i < sent; i++)
        assert_int_equal(hr__wire_receive(ends[1], MSG_DONTWAIT, &m, NULL), 1);
    assert_int_equal(hr__wire_receive(ends[1], MSG_DONTWAIT, &m, NULL), -EAGAIN);
    part(ends);
}

static void on_signal(int signal)
{
}

struct waiter {
    int socket;
    _Atomic int result;
};

static void *wait_for_one(void *arg)
{
    struct waiter *w = arg;
    struct hr__wire_message m;
    w->result = hr__wire_receive(w->socket, 0, &m, NULL);
    return NULL;
}

static void test_interrupted(void **state)
{
    int ends[2];
    struct sigaction action = {.sa_handler = on_signal}, old;
    struct waiter w = {.result = 1};
    pthread_t thread;
    pair(ends);
    w.socket = ends[1];
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_one, &w), 0);
    /* repeatedly: the first signal may come before it waits */
    while (w.result == 1) {
        assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
        usleep(1000);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(w.result, -EINTR);
    assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
    part(ends);
}

static void test_text(void **state)
{
    size_t length = 3 << 20;
    char *text = malloc(length), *back;
    uint64_t allocated = hr__allocated(HR__TAG_AGENT);
    assert_non_null(text);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)(i * 2654435761u >> 13);
    int file = hr__wire_text_file(text, length);
    assert_true(file >= 0);
    /* nobody can change it any more */
    assert_true(pwrite(file, "x", 1, 0) < 0);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(file, 1), -1);
    assert_int_equal(ftruncate(file, (off_t)length + 1), -1);
    assert_ptr_equal(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hr__wire_text_read(file, length, &back, NULL), 0);
        assert_memory_equal(back, text, length);
        assert_int_equal(back[length], 0);
        hr__free(back);
    }
    close(file);
    file = hr__wire_text_file("", 0);
    assert_int_equal(hr__wire_text_read(file, 0, &back, NULL), 0);
    assert_string_equal(back, "");
    hr__free(back);
    close(file);
    free(text);
    assert_int_equal(hr__allocated(HR__TAG_AGENT), allocated);
}

static void text_refused(int file, uint64_t bytes, const char *words)
{
    char *text = (char *)1;
    struct hr_error error = {0};
    assert_int_equal(hr__wire_text_read(file, bytes, &text, &error), -EPROTO);
    assert_null(text);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
}

static void test_text_refused(void **state)
{
    int pipes[2], file = hr__wire_text_file("hello", 5);
    char *text;
    text_refused(file, 4, "no sealed anonymous file of 4 bytes");
    text_refused(file, 6, "no sealed");
    hr__alloc_fail_at(1, 0);
    assert_int_equal(hr__wire_text_read(file, 5, &text, NULL), -ENOMEM);
    hr__alloc_fail_at(0, 0);
    close(file);
    /* files that would make a reader wait, or could change while it reads */
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(write(pipes[1], "hello", 5), 5);
    text_refused(pipes[0], 5, "no sealed");
    part(pipes);
    file = open("/proc/self/exe", O_RDONLY);
    struct stat st;
    assert_int_equal(fstat(file, &st), 0);
    text_refused(file, (uint64_t)st.st_size, "no sealed");
    close(file);
    file = memfd_create("test", MFD_ALLOW_SEALING);
    assert_int_equal(write(file, "hello", 5), 5);
    text_refused(file, 5, "no sealed");
    assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    text_refused(file, 5, "no sealed");
    assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), 0);
    assert_int_equal(hr__wire_text_read(file, 5, &text, NULL), 0);
    assert_string_equal(text, "hello");
    hr__free(text);
    close(file);
    text_refused(-1, 5, "no sealed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_values_arrive),
        cmocka_unit_test(test_strings_are_cut),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_other_lengths),
        cmocka_unit_test(test_other_headers),
        cmocka_unit_test(test_one_form_only),
        cmocka_unit_test(test_out_of_range),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_over_a_socket),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_no_room_for_files),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_send_refused),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_text_refused),
    };
    return cmocka_run_group_tests_name("agent wire", tests, NULL, NULL);
}
