/*
 * Checks whether the files that are already packed have changed: one stat for each, on more threads
 * than there are cores, because on a cold disk or over a network they mostly wait. Samples that are
 * pieces of containers are compared by what the dataset knows.
 */
#include "base/error.h"
#include "base/memory.h"
#include "bulk/pack_file.h"
#include "bulk/pool.h"
#include "loader/sample.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define LOOKING_THREADS 16

/* How many samples a thread takes at once. */
#define TAKE 64

struct looking {
    const struct hr__pack_file *file;
    const struct hr_dataset *dataset;
    struct hr__progress *progress;
    _Atomic uint64_t next; /* the next sample to look at */
    pthread_mutex_t lock;  /* guards what follows */
    uint64_t changed;      /* number of samples that have changed */
    uint64_t first;        /* the first of them */
    const char *how;       /* how that one has changed */
    int result;            /* 0, or -ENOMEM, which ends the check */
};

/* Returns how sample `i` differs from when it was packed; NULL: it does not. `s` is aimed at it;
 * `aimed` is the result of aiming. */
static const char *difference(const struct looking *l, const struct hr__sample *s, int aimed,
                              uint64_t i)
{
    const struct hr__catalog *c = l->file->catalog;
    const struct hr__catalog_range *entry = &c->ranges[i];
    int64_t bytes, mtime_ns = hr__dataset_mtime_ns(l->dataset, i);
    struct stat st;
    /* it could not be read then */
    if (hr__range_kept(entry) == HR_PACK_KEPT_BAD && c->mtimes_ns[i] == HR_SIZE_UNKNOWN)
        return NULL;
    if (aimed)
        return "cannot be read any more";
    if (s->read.is_range) {
        bytes = (int64_t)(s->range.source_bytes ? s->range.source_bytes : s->range.bytes);
    } else if (s->read.http) { /* as it was listed; one that a list names was not */
        bytes = s->read.expected >= 0 ? s->read.expected : (int64_t)entry->source_bytes;
    } else {
        if (stat(s->read.path, &st))
            return "is not there any more";
        bytes = st.st_size;
        mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    }
    if (bytes != (int64_t)entry->source_bytes)
        return "has another size";
    return mtime_ns != c->mtimes_ns[i] ? "has another time" : NULL;
}

static void note(struct looking *l, uint64_t i, const char *how)
{
    pthread_mutex_lock(&l->lock);
    if (!l->changed++ || i < l->first) {
        l->first = i;
        l->how = how;
    }
    pthread_mutex_unlock(&l->lock);
}

static void look_at_many(void *arg, size_t thread)
{
    struct looking *l = arg;
    struct hr__sample sample = {0};
    uint64_t count = l->file->done;
    while (!hr__progress_cancelled(l->progress)) {
        uint64_t i = atomic_fetch_add_explicit(&l->next, TAKE, memory_order_relaxed);
        if (i >= count)
            break;
        uint64_t end = count - i < TAKE ? count : i + TAKE;
        hr__progress_add(l->progress, end - i);
        for (; i < end; i++) {
            int aimed = hr__sample_aim(&sample, l->dataset, i, 0, NULL);
            if (aimed == -ENOMEM) {
                pthread_mutex_lock(&l->lock);
                l->result = aimed;
                pthread_mutex_unlock(&l->lock);
                hr__progress_cancel(l->progress);
                break;
            }
            const char *how = difference(l, &sample, aimed, i);
            if (how)
                note(l, i, how);
        }
    }
    hr__sample_clear(&sample);
}

int hr__pack_check_sources(const struct hr__pack_file *file, const struct hr_dataset *dataset,
                           struct hr__progress *progress, struct hr_error *error)
{
    struct hr__pool *pool = NULL;
    struct looking l = {
        .file = file,
        .dataset = dataset,
        .progress = progress,
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    char name[600];
    if (!file->done)
        return 0;
    int r = hr__pool_create(&pool, LOOKING_THREADS, error);
    if (r)
        return r;
    const struct hr__executor *executor = hr__pool_executor(pool);
    hr__progress_stage(progress, "checking", file->done);
    executor->run(executor->self, (size_t)executor->threads, look_at_many, &l);
    hr__pool_destroy(&pool);
    pthread_mutex_destroy(&l.lock);
    if (l.result)
        return hr__fail(error, l.result, "out of memory to look at the files of %s", file->partial);
    if (hr__progress_end(progress))
        return hr__fail(error, -ECANCELED,
                        "packing was cancelled; %s is as it was: call it again to continue",
                        file->partial);
    if (!l.changed)
        return 0;
    hr_dataset_path(dataset, l.first, name, sizeof name);
    return hr__fail(error, -ESTALE,
                    "%s %s since %s was begun, and %" PRIu64 " more; restart it (what is done is "
                    "thrown away), or put the files back",
                    name, l.how, file->partial, l.changed - 1);
}
