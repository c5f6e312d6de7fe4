/*
 * Sends a pack's file in parts; see pack_upload.h.
 *
 * A part is noted, on storage, before its place in the file is given back: a part that is neither
 * noted nor in the file cannot be. A part that was sent but not noted is sent again, with the same
 * number and the same bytes.
 */
#include "bulk/pack_upload.h"

#include "base/clock.h"
#include "base/draft.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/thread.h"
#include "bulk/pack_file.h"
#include "dataset/index.h"
#include "storage/url.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define SENDERS        4
#define STATE_SUFFIX   ".upload"
#define STATE_TITLE    "headrace-upload 1"
#define LOOK_AROUND_NS UINT64_C(50000000)

/* Parts have the same size, as some stores want it, if the guess of the pack's is not too small by
 * half. Beyond, it doubles after each GROWTH_PARTS, so that any pack has room in HR__UPLOAD_PARTS.
 * S3 takes no part below 5 MiB but the last. */
#define PART_BYTES   (UINT64_C(16) << 20)
#define EVEN_PARTS   5000u
#define GROWTH_PARTS 1000u

enum part_state { PART_TO_SEND = 0, PART_IN_HAND, PART_SENT };

struct hr__pack_upload {
    struct hr__upload upload;
    char *url, *state_path; /* owned */
    int fd;                 /* of the pack file, which owns it */
    int state_fd;           /* where parts are noted; -1: none */
    uint64_t part_bytes, front_bytes;
    struct hr__pack_superblock super; /* of an object that an earlier run completed */
    int is_there;                     /* there is an object with our digest */
    int is_complete;                  /* and it is all that is to be made */
    atomic_int stop;
    pthread_t threads[SENDERS];
    int thread_count;
    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t changed; /* parts are offered or sent, or sending ended */
    uint64_t safe;          /* bytes of the file that are final, behind the front */
    uint64_t total;         /* of the whole file; 0: not known yet */
    uint64_t waiting_bytes; /* of parts that may be sent */
    unsigned sent;          /* parts */
    struct hr_error failure;
    uint8_t states[HR__UPLOAD_PARTS];
    char etags[HR__UPLOAD_PARTS][HR__ETAG_BYTES];
};

/* Returns where part `i` (from 0) begins. */
static uint64_t part_begin(const struct hr__pack_upload *u, unsigned i)
{
    uint64_t at = 0, bytes = u->part_bytes;
    unsigned even = i < EVEN_PARTS ? i : EVEN_PARTS;
    at = even * bytes;
    for (unsigned left = i - even; left; bytes *= 2) {
        unsigned n = left < GROWTH_PARTS ? left : GROWTH_PARTS;
        at += n * 2 * bytes;
        left -= n;
    }
    return at;
}

/* Returns whether a part may be sent, with its bounds. Parts of the front may be when all is
 * known. */
static int may_send_locked(const struct hr__pack_upload *u, unsigned i, uint64_t *from,
                           uint64_t *to)
{
    *from = part_begin(u, i);
    *to = part_begin(u, i + 1);
    if (u->states[i] != PART_TO_SEND)
        return 0;
    if (!u->total)
        return *from >= u->front_bytes && *to <= u->safe;
    *to = *to < u->total ? *to : u->total;
    return *from < u->total;
}

/* ---- the threads ---- */

static void fail_unlocking(struct hr__pack_upload *u, const struct hr_error *why)
{
    if (!u->failure.code)
        u->failure = *why;
    atomic_store(&u->stop, 1);
}

/* Notes a part of items, and gives its place in the file back. The first parts and the last one are
 * not noted: they are sent when the file is sealed, and again if that has to be repeated. */
static int note_part(struct hr__pack_upload *u, const struct hr__upload_part *part, uint64_t from,
                     struct hr_error *error)
{
    char line[HR__ETAG_BYTES + 32];
    if (from < u->front_bytes || from + part->length < part_begin(u, part->number))
        return 0;
    int n = snprintf(line, sizeof line, "%u %s\n", part->number, part->etag);
    int r = hr__write_all(u->state_fd, line, (size_t)n);
    if (!r && fdatasync(u->state_fd))
        r = -errno;
    if (r)
        return hr__fail(error, r, "cannot write %s: %s", u->state_path, hr__errno_text(r));
    /* a file system that cannot do it keeps the bytes until the end */
    (void)!fallocate(u->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
                     (off_t)part->length);
    return 0;
}

static int send_part(struct hr__pack_upload *u, struct hr__upload_part *part, uint64_t from,
                     struct hr_error *error)
{
    void *bytes = hr__alloc_aligned(HR__TAG_LOADER, part->length, 0);
    if (!bytes)
        return hr__fail(error, -ENOMEM, "out of memory for a part of %s, %zu bytes", u->url,
                        part->length);
    int r = hr__read_exactly(u->fd, bytes, part->length, from);
    if (r)
        hr__fail(error, r, "cannot read what is to be sent to %s: %s", u->url, hr__errno_text(r));
    part->bytes = bytes;
    if (!r)
        r = hr__upload_send(&u->upload, part, error);
    hr__free(bytes);
    return r;
}

/* Takes the next part that may be sent. Returns 0 if there is none. */
static int take_locked(struct hr__pack_upload *u, struct hr__upload_part *part, uint64_t *from)
{
    uint64_t to;
    for (unsigned i = 0; i < HR__UPLOAD_PARTS; i++)
        if (may_send_locked(u, i, from, &to)) {
            u->states[i] = PART_IN_HAND;
            *part = (struct hr__upload_part){.number = i + 1, .length = (size_t)(to - *from)};
            return 1;
        }
    return 0;
}

static void *send_parts(void *arg)
{
    struct hr__pack_upload *u = arg;
    struct hr__upload_part part;
    uint64_t from;
    pthread_mutex_lock(&u->lock);
    while (!atomic_load(&u->stop)) {
        struct hr_error why = {.code = 0};
        if (!take_locked(u, &part, &from)) {
            pthread_cond_wait(&u->changed, &u->lock);
            continue;
        }
        pthread_mutex_unlock(&u->lock);
        int r = send_part(u, &part, from, &why);
        pthread_mutex_lock(&u->lock);
        if (!r)
            r = note_part(u, &part, from, &why);
        u->states[part.number - 1] = r ? PART_TO_SEND : PART_SENT;
        if (r) {
            fail_unlocking(u, &why);
        } else {
            memcpy(u->etags[part.number - 1], part.etag, sizeof part.etag);
            u->waiting_bytes -= part.length < u->waiting_bytes ? part.length : u->waiting_bytes;
            u->sent++;
        }
        pthread_cond_broadcast(&u->changed);
    }
    pthread_mutex_unlock(&u->lock);
    return NULL;
}

static int start(struct hr__pack_upload *u, struct hr_error *error)
{
    while (u->thread_count < SENDERS &&
           !hr__thread_create(&u->threads[u->thread_count], send_parts, u))
        u->thread_count++;
    return u->thread_count
               ? 0
               : hr__fail(error, -EAGAIN, "the system gives no thread to send to %s", u->url);
}

/* ---- creating ---- */

static int find_partial(struct hr__pack_upload *u, const char *staging, char **partial,
                        struct hr_error *error)
{
    char name[80];
    char *address = hr__http_address(u->upload.http, u->url);
    if (!address)
        return hr__fail(error, -ENOMEM, "out of memory for %s", u->url);
    XXH128_hash_t h = XXH3_128bits(address, strlen(address));
    hr__free(address);
    snprintf(name, sizeof name, "upload/%016" PRIx64 "%016" PRIx64 ".partial", h.high64, h.low64);
    struct hr__draft path = {0};
    int r = 0;
    if (staging) {
        hr__draft_print(&path, "%s/%s", staging, strchr(name, '/') + 1);
        r = hr__draft_finish(&path, partial, NULL);
    } else {
        r = hr__user_cache(partial, name);
    }
    if (r == -ENOENT)
        return hr__fail(error, r,
                        "there is no directory for what is to be sent to %s: give one (staging), "
                        "or set XDG_CACHE_HOME or HOME",
                        u->url);
    if (!r)
        r = hr__make_parents(*partial);
    if (r)
        return hr__fail(error, r, "cannot make the directory of %s: %s",
                        *partial ? *partial : u->url, hr__errno_text(r));
    hr__draft_print(&path, "%s" STATE_SUFFIX, *partial);
    return hr__draft_finish(&path, &u->state_path, error);
}

int hr__pack_upload_create(struct hr__pack_upload **out, const char *url, const char *staging,
                           char **partial, struct hr_error *error)
{
    struct hr__url parsed;
    *out = NULL;
    *partial = NULL;
    int r = hr__url_parse(&parsed, url, error);
    if (r)
        return r;
    if (!hr__url_has_bucket(&parsed) || !*parsed.path)
        return hr__fail(error, -ENOTSUP,
                        "%s cannot be written to: a pack goes to s3://BUCKET/KEY or "
                        "gs://BUCKET/KEY, or to a file",
                        url);
    struct hr__pack_upload *u = hr__alloc(HR__TAG_LOADER, 1, sizeof *u);
    if (!u)
        return hr__fail(error, -ENOMEM, "out of memory to write %s", url);
    u->fd = u->state_fd = -1;
    pthread_mutex_init(&u->lock, NULL);
    hr__cond_init(&u->changed);
    u->url = hr__strdup(HR__TAG_LOADER, url);
    u->upload.url = u->url;
    u->upload.stop = &u->stop;
    r = u->url ? hr__http_create(&u->upload.http, error)
               : hr__fail(error, -ENOMEM, "out of memory to write %s", url);
    if (!r)
        r = find_partial(u, staging, partial, error);
    if (r)
        hr__pack_upload_close(&u);
    *out = u;
    return r;
}

void hr__pack_upload_close(struct hr__pack_upload **upload)
{
    struct hr__pack_upload *u = *upload;
    *upload = NULL;
    if (!u)
        return;
    pthread_mutex_lock(&u->lock);
    atomic_store(&u->stop, 1);
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
    for (int i = 0; i < u->thread_count; i++)
        pthread_join(u->threads[i], NULL);
    if (u->state_fd >= 0)
        close(u->state_fd);
    pthread_cond_destroy(&u->changed);
    pthread_mutex_destroy(&u->lock);
    hr__http_unref(&u->upload.http);
    hr__free(u->upload.id);
    hr__free(u->state_path);
    hr__free(u->url);
    hr__free(u);
}

/* Reads the superblock of the object. Returns 1 if there is one, 0, or an error of the store. */
static int read_object(struct hr__pack_upload *u, struct hr__pack_superblock *super,
                       struct hr_error *error)
{
    const struct hr__http_piece piece = {.http = u->upload.http, .url = u->url};
    struct hr__object object;
    size_t got = 0;
    memset(super, 0, sizeof *super);
    int r = hr__http_piece(&piece, super, sizeof *super, &got, &object, error);
    if (r == -ENOENT)
        return 0;
    /* an empty object has no first byte */
    return r && r != -ENODATA ? r : 1;
}

int hr__pack_upload_look(struct hr__pack_upload *u, const struct hr__pack_file *file, int overwrite,
                         struct hr_error *error)
{
    struct hr_error why = {.code = 0};
    int r = read_object(u, &u->super, &why);
    if (r < 0) {
        if (error)
            *error = why;
        return r;
    }
    u->is_there = r && u->super.digest == file->super.digest &&
                  u->super.catalog_bytes == file->super.catalog_bytes &&
                  !hr__pack_check(&u->super, u->url, NULL);
    if (!r || overwrite || (u->is_there && hr__pack_upload_is_begun(u)))
        return 0;
    return hr__fail(error, -EEXIST,
                    "there is something at %s; give another URL, or ask to overwrite it", u->url);
}

/* ---- what was sent ---- */

int hr__pack_upload_is_begun(const struct hr__pack_upload *u)
{
    return !access(u->state_path, F_OK);
}

static int open_state(struct hr__pack_upload *u, struct hr_error *error)
{
    u->state_fd = open(u->state_path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    return u->state_fd >= 0 ? 0
                            : hr__fail(error, -errno, "cannot open %s: %s", u->state_path,
                                       hr__errno_text(errno));
}

/* Reads the notes of an earlier run: all whole lines of them. */
static int read_state(struct hr__pack_upload *u, struct hr_error *error)
{
    FILE *file = fopen(u->state_path, "re");
    char *line = NULL;
    size_t capacity = 0;
    unsigned lines = 0;
    int bad = !file;
    while (!bad && getline(&line, &capacity, file) >= 0) {
        size_t n = strlen(line);
        unsigned number = 0;
        char etag[HR__ETAG_BYTES];
        if (!n || line[n - 1] != '\n')
            break;
        line[n - 1] = 0;
        if (lines == 0)
            bad = strcmp(line, STATE_TITLE) != 0;
        else if (lines == 1)
            bad = sscanf(line, "%" SCNu64, &u->part_bytes) != 1 || !u->part_bytes;
        else if (lines == 2)
            bad = !(u->upload.id = hr__strdup(HR__TAG_LOADER, line));
        else if (sscanf(line, "%u %99s", &number, etag) == 2 && number &&
                 number <= HR__UPLOAD_PARTS) {
            u->states[number - 1] = PART_SENT;
            memcpy(u->etags[number - 1], etag, sizeof etag);
        } else {
            bad = 1;
        }
        lines++;
    }
    free(line);
    if (file)
        fclose(file);
    return bad || lines < 3 ? hr__fail(error, -EBADMSG, "%s is damaged; restart it", u->state_path)
                            : 0;
}

static uint64_t choose_part(uint64_t bytes)
{
    const uint64_t unit = UINT64_C(1) << 20;
    uint64_t even = (bytes / EVEN_PARTS + unit - 1) / unit * unit;
    return even > PART_BYTES ? even : PART_BYTES;
}

int hr__pack_upload_begin(struct hr__pack_upload *u, const struct hr__pack_file *file,
                          uint64_t bytes, uint64_t part_bytes, struct hr_error *error)
{
    struct hr__draft text = {0};
    int r = 0;
    if (hr__pack_upload_is_begun(u)) {
        struct hr_error why = {.code = 0};
        if (!read_state(u, &why))
            r = hr__upload_abort(&u->upload, &why);
        if (r)
            hr__log(HR_LOG_WARNING, "%s", why.message);
        hr__free(u->upload.id);
        u->upload.id = NULL;
        memset(u->states, PART_TO_SEND, sizeof u->states);
        if (unlink(u->state_path))
            return hr__fail(error, -errno, "cannot remove %s: %s", u->state_path,
                            hr__errno_text(errno));
    }
    u->fd = file->fd;
    u->front_bytes = file->super.items_offset;
    u->part_bytes = part_bytes ? part_bytes : choose_part(bytes);
    r = hr__upload_begin(&u->upload, error);
    if (r)
        return r;
    hr__draft_print(&text, STATE_TITLE "\n%" PRIu64 "\n%s\n", u->part_bytes, u->upload.id);
    r = text.failed ? -ENOMEM : hr__replace_file(u->state_path, text.text, text.length, 0600);
    hr__draft_clear(&text);
    if (r) {
        hr__upload_abort(&u->upload, NULL);
        return hr__fail(error, r, "cannot write %s: %s", u->state_path, hr__errno_text(r));
    }
    r = open_state(u, error);
    return r ? r : start(u, error);
}

struct comparing {
    const struct hr__pack_upload *u;
    unsigned found, last;
};

static int compare_part(void *arg, unsigned number, const char *etag, int64_t bytes)
{
    struct comparing *c = arg;
    const struct hr__pack_upload *u = c->u;
    /* some stores begin a page with the last part of the one before */
    if (number <= c->last || u->states[number - 1] != PART_SENT)
        return 0;
    c->last = number;
    uint64_t wanted = part_begin(u, number) - part_begin(u, number - 1);
    c->found += (uint64_t)bytes == wanted && !strcmp(etag, u->etags[number - 1]);
    return 0;
}

static int lost(const struct hr__pack_upload *u, const char *why, struct hr_error *error)
{
    return hr__fail(error, -ESTALE,
                    "the unfinished upload of %s cannot be continued (%s); restart it", u->url,
                    why);
}

int hr__pack_upload_resume(struct hr__pack_upload *u, const struct hr__pack_file *file,
                           struct hr_error *error)
{
    struct comparing comparing = {.u = u};
    struct hr_error why = {.code = 0};
    unsigned noted = 0;
    uint64_t end = 0;
    int r = read_state(u, error);
    if (r)
        return r;
    u->fd = file->fd;
    u->front_bytes = file->super.items_offset;
    for (unsigned i = 0; i < HR__UPLOAD_PARTS; i++)
        if (u->states[i] == PART_SENT) {
            noted++;
            end = part_begin(u, i + 1);
        }
    r = hr__upload_list(&u->upload, compare_part, &comparing, &why);
    if (r == -ESTALE && u->is_there) {
        u->is_complete = 1;
        return 0;
    }
    if (r == -ESTALE)
        return lost(u, "the store has no such upload: it was aborted, or has expired", error);
    if (r) {
        if (error)
            *error = why;
        return r;
    }
    if (comparing.found != noted)
        return lost(u, "the store lacks parts that it had", error);
    if (end > file->end)
        return lost(u, "its index is older than what was sent", error);
    u->sent = noted;
    r = open_state(u, error);
    return r ? r : start(u, error);
}

int hr__pack_upload_has(const struct hr__pack_upload *u, uint64_t from, uint64_t to)
{
    for (unsigned i = 0; i < HR__UPLOAD_PARTS && part_begin(u, i) < to; i++)
        if (u->states[i] == PART_SENT && part_begin(u, i + 1) > from)
            return 1;
    return u->is_complete;
}

/* ---- sending ---- */

void hr__pack_upload_offer(struct hr__pack_upload *u, uint64_t safe)
{
    pthread_mutex_lock(&u->lock);
    u->safe = safe;
    u->waiting_bytes = 0;
    for (unsigned i = 0; i < HR__UPLOAD_PARTS && part_begin(u, i) < safe; i++) {
        uint64_t from, to;
        if (u->states[i] == PART_IN_HAND || may_send_locked(u, i, &from, &to))
            u->waiting_bytes += part_begin(u, i + 1) - part_begin(u, i);
    }
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
}

/* Waits a moment for a change. Returns the error that ended sending, or 0. */
static int wait_locked(struct hr__pack_upload *u, struct hr_error *error)
{
    struct timespec until = hr__timespec(hr__now_ns() + LOOK_AROUND_NS);
    if (!u->failure.code)
        pthread_cond_timedwait(&u->changed, &u->lock, &until);
    if (u->failure.code && error)
        *error = u->failure;
    return u->failure.code;
}

int hr__pack_upload_wait(struct hr__pack_upload *u, struct hr_error *error)
{
    uint64_t most = HR__UPLOAD_BACKLOG > 2 * u->part_bytes ? HR__UPLOAD_BACKLOG : 2 * u->part_bytes;
    pthread_mutex_lock(&u->lock);
    int r = u->failure.code;
    if (r && error)
        *error = u->failure;
    else if (!r && u->waiting_bytes > most)
        r = wait_locked(u, error);
    if (!r)
        r = u->waiting_bytes > most;
    pthread_mutex_unlock(&u->lock);
    return r;
}

/* Sends the rest. */
static int drain(struct hr__pack_upload *u, uint64_t bytes, struct hr__progress *progress,
                 unsigned *parts, struct hr_error *error)
{
    unsigned count = 0, told = 0;
    int r = 0;
    while (count < HR__UPLOAD_PARTS && part_begin(u, count) < bytes)
        count++;
    *parts = count;
    if (part_begin(u, count) < bytes)
        return hr__fail(error, -EFBIG, "%s would need more than %d parts of its size", u->url,
                        HR__UPLOAD_PARTS);
    hr__progress_stage(progress, "uploading", count);
    pthread_mutex_lock(&u->lock);
    u->total = bytes;
    pthread_cond_broadcast(&u->changed);
    while (!r && u->sent < count && !hr__progress_cancelled(progress)) {
        r = wait_locked(u, error);
        unsigned sent = u->sent;
        pthread_mutex_unlock(&u->lock);
        hr__progress_add(progress, sent - told);
        told = sent;
        pthread_mutex_lock(&u->lock);
    }
    pthread_mutex_unlock(&u->lock);
    if (!r && hr__progress_end(progress))
        r = hr__fail(error, -ECANCELED,
                     "writing %s was cancelled when all samples were packed: call it again to "
                     "finish",
                     u->url);
    return r;
}

/* Returns whether the object at the URL is the file: so it is when a store completes an upload, but
 * its answer is lost. */
static int check_object(struct hr__pack_upload *u, struct hr_error *error)
{
    struct hr__pack_superblock mine, theirs;
    int r = hr__read_exactly(u->fd, &mine, sizeof mine, 0);
    if (r)
        return hr__fail(error, r, "cannot read what was sent to %s: %s", u->url, hr__errno_text(r));
    r = read_object(u, &theirs, error);
    if (r < 0)
        return r;
    if (r && !memcmp(&mine, &theirs, sizeof mine))
        return 0;
    return hr__fail(error, -EBADMSG,
                    "the store completed %s, but what is there is not the pack that was sent; "
                    "restart it",
                    u->url);
}

int hr__pack_upload_finish(struct hr__pack_upload *u, uint64_t bytes, struct hr__progress *progress,
                           struct hr_error *error)
{
    struct hr_error why = {.code = 0};
    unsigned parts = 0;
    int r = u->is_complete ? 0 : drain(u, bytes, progress, &parts, error);
    if (r)
        return r;
    if (!u->is_complete)
        r = hr__upload_complete(&u->upload, (const char(*)[HR__ETAG_BYTES])u->etags, parts, &why);
    if (r && r != -ESTALE) {
        if (error)
            *error = why;
        return r;
    }
    r = check_object(u, error);
    return r && why.code ? lost(u, "the store has no such upload any more", error) : r;
}

void hr__pack_upload_forget(struct hr__pack_upload *u)
{
    unlink(u->state_path);
}
