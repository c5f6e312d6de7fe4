/*
 * The reader's interface: counts requests, keeps the completed ones, and chooses the backend. The
 * pread backend, a loop around the transfer, is here; the io_uring backend is in uring.c, that of
 * objects in http_reader.c. Files and objects may be read together.
 */
#include "storage/reader.h"

#include "base/clock.h"
#include "base/error.h"
#include "storage/backend.h"
#include "storage/http.h"
#include "storage/http_reader.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>

#define DEPTH_MOST        1024
#define DEFAULT_MAX_BYTES (UINT64_C(2) << 30)

struct hr__reader {
    unsigned depth; /* maximum number of requests in flight */
    struct hr__transfer_rules rules;
    const struct hr__reader_backend *backend;
    void *self;                   /* the backend's state; NULL: pread, which has none */
    struct hr__read_list done;    /* completed and not collected yet */
    unsigned in_flight;           /* submitted and not collected yet */
    struct hr__http_client *http; /* the client whose objects are read; NULL: none yet */
    void *objects;                /* the state of their backend; it holds a reference to `http` */
    unsigned objects_in_flight;   /* part of in_flight */
};

/* Logs once per process, not once per thread, why reads are not asynchronous. */
static void log_refusal(int code)
{
    static atomic_flag is_logged = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&is_logged))
        hr__log(HR_LOG_INFO,
                "io_uring is refused here (%s); files are read with pread instead. Containers "
                "often forbid it: allow the io_uring system calls in the seccomp profile and see "
                "/proc/sys/kernel/io_uring_disabled",
                hr__errno_text(code));
}

int hr__reader_create(struct hr__reader **out, const struct hr__reader_options *options,
                      struct hr_error *error)
{
    if (options->depth < 1 || options->depth > DEPTH_MOST)
        return hr__fail(error, -EINVAL, "reader: depth is %u; it must be 1 to %d", options->depth,
                        DEPTH_MOST);
    struct hr__reader *reader = hr__alloc(HR__TAG_STORAGE, 1, sizeof *reader);
    if (!reader)
        goto fail;
    reader->depth = options->depth;
    reader->rules = (struct hr__transfer_rules){.max_bytes = options->max_bytes ? options->max_bytes
                                                                                : DEFAULT_MAX_BYTES,
                                                .direct = options->direct,
                                                .pool = hr__transfer_pool(options->depth)};
    if (!reader->rules.pool)
        goto fail;
    if (options->source) {
        int rc = options->source->open(options->source, &reader->self, &reader->done);
        if (rc)
            goto fail;
        reader->backend = options->source->backend;
    } else if (!options->no_io_uring) {
        int rc = hr__uring_create(&reader->self, options->depth, &reader->rules, &reader->done);
        if (rc)
            log_refusal(rc);
        else
            reader->backend = &hr__uring_backend;
    }
    *out = reader;
    return 0;

fail:
    hr__reader_destroy(&reader);
    return hr__fail(error, -ENOMEM, "no memory for a reader; free memory on this host");
}

void hr__reader_destroy(struct hr__reader **reader)
{
    if (!*reader)
        return;
    if ((*reader)->backend)
        (*reader)->backend->destroy((*reader)->self);
    if ((*reader)->http)
        hr__http_backend.destroy((*reader)->objects);
    for (struct hr__read *read; (read = hr__read_list_take(&(*reader)->done));) {
        hr__read_drop(read);
        read->length = 0;
        read->result = -ECANCELED;
    }
    hr__blocks_destroy(&(*reader)->rules.pool);
    hr__free(*reader);
    *reader = NULL;
}

int hr__reader_is_io_uring(const struct hr__reader *reader)
{
    return reader->backend == &hr__uring_backend;
}

/* Submits a read of an object. The first one opens their backend. */
static int submit_object(struct hr__reader *reader, struct hr__read *read)
{
    int r = 0;
    if (!reader->http)
        r = hr__http_open(&reader->objects, read->http, &reader->rules, &reader->done);
    if (!r && !reader->http)
        reader->http = read->http;
    if (!r && reader->http != read->http)
        r = -EXDEV;
    if (!r)
        r = hr__http_backend.submit(reader->objects, read);
    reader->objects_in_flight += !r;
    return r;
}

int hr__reader_submit(struct hr__reader *reader, struct hr__read *read)
{
    if (reader->in_flight >= reader->depth)
        return -EAGAIN;
    read->release = NULL;
    read->reason = NULL;
    if (read->http) {
        int rc = submit_object(reader, read);
        if (rc)
            return rc;
    } else if (reader->backend) {
        int rc = reader->backend->submit(reader->self, read);
        if (rc)
            return rc;
    } else {
        hr__transfer_run(read, &reader->rules);
        hr__read_list_append(&reader->done, read);
    }
    reader->in_flight++;
    return 0;
}

/* With files and objects in flight together, how long each is waited for in turn. */
#define TURN_NS INT64_C(1000000)

/* Advances the requests until one is done. */
static int progress(struct hr__reader *reader, int64_t timeout_ns)
{
    int has_files = reader->backend && reader->in_flight > reader->objects_in_flight;
    if (!reader->objects_in_flight)
        return has_files ? reader->backend->progress(reader->self, timeout_ns) : 0;
    if (!has_files)
        return hr__http_backend.progress(reader->objects, timeout_ns);
    uint64_t start_ns = hr__now_ns();
    int r;
    do {
        r = reader->backend->progress(reader->self, timeout_ns ? TURN_NS : 0);
        if (!r)
            r = hr__http_backend.progress(reader->objects, timeout_ns ? TURN_NS : 0);
    } while (!r && !reader->done.first &&
             (timeout_ns < 0 || hr__now_ns() - start_ns < (uint64_t)timeout_ns));
    return r;
}

int hr__reader_wait(struct hr__reader *reader, struct hr__read **done, int capacity,
                    int64_t timeout_ns)
{
    assert(capacity > 0);
    if (!reader->in_flight)
        return 0;
    int rc = progress(reader, timeout_ns);
    if (rc && !reader->done.first)
        return rc;
    int count = 0;
    while (count < capacity && (done[count] = hr__read_list_take(&reader->done)))
        reader->objects_in_flight -= done[count++]->http != NULL;
    reader->in_flight -= (unsigned)count;
    return count;
}

void hr__read_drop(struct hr__read *read)
{
    if (read->release)
        read->release(read->release_arg);
    else
        hr__free(read->bytes);
    hr__free(read->reason);
    read->bytes = NULL;
    read->reason = NULL;
    read->release = NULL;
}

int hr__read_file(struct hr__read *read, uint64_t max_bytes)
{
    if (read->http)
        return hr__http_read(read, max_bytes ? max_bytes : DEFAULT_MAX_BYTES);
    struct hr__transfer_rules rules = {.max_bytes = max_bytes ? max_bytes : DEFAULT_MAX_BYTES};
    hr__transfer_run(read, &rules);
    return read->result;
}
