/*
 * Writing a pack: threads that make items, and one that appends them in order.
 *
 * Each worker takes the next sample, reads and converts it, and puts it into the ring at its
 * number. The caller's thread takes items out in the order of the samples. So the file does not
 * depend on the number of threads, and the finished part is always a prefix. The ring limits how
 * far workers run ahead, in samples and in bytes. If the system gives no threads, the caller makes
 * the items itself.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/versioned.h"
#include "bulk/ahead.h"
#include "bulk/pack_convert.h"
#include "bulk/pool.h"
#include "codec/waveform.h"
#include "dataset/dataset.h"
#include "dataset/progress.h"
#include "recipe/recipe.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* How many samples may be in the ring for each worker. Several, so that an item that takes long
 * does not hold up the others. */
#define AHEAD_OF_A_WORKER 8

/* How many bytes of finished items may wait in the ring. The item that is due next is always let
 * in. */
#define WAITING_BYTES (UINT64_C(256) << 20)

/* Memory of freed item buffers that is kept for reuse. */
#define RETAINED_BYTES ((size_t)64 << 20)

/* How long the caller's thread waits before it checks for Ctrl-C. */
#define LOOK_AROUND_NS UINT64_C(50000000)

struct pack_place {
    struct hr__made made;
    int ready;
};

struct packing {
    struct hr_dataset *dataset;
    const struct hr_pack_options *options;
    struct hr__pack_file *file;
    struct hr__progress progress;
    struct hr__blocks *blocks;
    struct hr__ahead *ahead; /* NULL: samples are no objects */
    pthread_t owner;         /* the caller's thread, which appends */
    uint64_t count;          /* number of samples of the dataset */
    int no_workers;
    int appended;                 /* the caller's thread has finished; only it uses this */
    struct hr__pack_maker *maker; /* for the caller, if there are no workers */
    pthread_mutex_t lock;         /* guards what follows */
    pthread_cond_t room;          /* signalled when a place becomes free, and at stop */
    pthread_cond_t ready;         /* signalled when the item that is due is ready, and at stop */
    struct pack_place *ring;      /* sample i is at i % places */
    uint64_t places;
    uint64_t next;          /* next sample for a worker to take */
    uint64_t due;           /* next sample to append */
    uint64_t waiting_bytes; /* bytes of the ready items */
    int stop;
    struct hr_error failure; /* of a worker that could not start; code 0: none */
    int result;
    struct hr_error *error; /* the caller's */
};

const char *hr_pack_kept_text(enum hr_pack_kept kept)
{
    static const char *const texts[HR_PACK_KEPT_COUNT] = {
        [HR_PACK_CONVERTED] = "converted",
        [HR_PACK_KEPT_ASKED] = "as asked",
        [HR_PACK_KEPT_FORMAT] = "not a JPEG",
        [HR_PACK_KEPT_KIND] = "a kind of JPEG without another form",
        [HR_PACK_KEPT_GROWTH] = "it would grow too much",
        [HR_PACK_KEPT_WORTH] = "no other form is worth its bytes",
        [HR_PACK_KEPT_BAD] = "cannot be read or decoded",
    };
    return (unsigned)kept < HR_PACK_KEPT_COUNT ? texts[kept] : NULL;
}

void hr_pack_options_init(struct hr_pack_options *options, size_t size)
{
    static const struct hr_pack_options defaults = {.form = HR_FORM_COEFFICIENTS};
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

int hr__pack_take_options(struct hr_pack_options *out, const struct hr_pack_options *options,
                          struct hr_error *error)
{
    hr_pack_options_default(out);
    int r = options ? hr__versioned_take(out, sizeof *out, options, "hr_pack_options", error) : 0;
    if (r)
        return r;
    if (out->form < HR_FORM_AUTO || out->form >= HR_FORMS)
        return hr__fail(error, -EINVAL, "hr_pack_options.form is %d: not a form", out->form);
    int has_head = out->head.mono || out->head.rate;
    if (has_head && (out->form < 0 || !hr__form_is_waveform((enum hr_form)out->form)))
        return hr__fail(error, -EINVAL,
                        "hr_pack_options.head (mono, rate) is of waveforms: leave it out, or ask "
                        "for the form waveform");
    if (out->head.rate &&
        (out->head.rate < HR_SOUND_MIN_RATE || out->head.rate > HR_SOUND_MAX_RATE))
        return hr__fail(error, -EINVAL, "a rate of %d Hz is not possible: %d to %d", out->head.rate,
                        HR_SOUND_MIN_RATE, HR_SOUND_MAX_RATE);
    if (out->threads < 0)
        return hr__fail(error, -EINVAL, "hr_pack_options.threads is %d: it must be 0 or more",
                        out->threads);
    if (!isfinite(out->max_growth) || out->max_growth < 0)
        return hr__fail(error, -EINVAL,
                        "hr_pack_options.max_growth is %g: it must be 0 (any) or more",
                        out->max_growth);
    if (out->on_error != HR_ON_ERROR_RAISE && out->on_error != HR_ON_ERROR_SKIP)
        return hr__fail(error, -EINVAL, "hr_pack_options.on_error is %d: neither raise nor skip",
                        (int)out->on_error);
    return 0;
}

/* Returns how many samples a thread takes next: an image with its mask, which has to have its size.
 */
static uint64_t samples_at_once(const struct packing *p)
{
    return p->dataset->is_paired && p->next % 2 == 0 ? 2 : 1;
}

/* Returns non-zero if these may be begun: the ring has places for them, and the byte limit allows
 * it. */
static int may_begin_locked(const struct packing *p)
{
    uint64_t end = p->next + samples_at_once(p);
    return end <= p->count && end <= p->due + p->places &&
           (p->next == p->due || p->waiting_bytes < WAITING_BYTES);
}

static void stop_locked(struct packing *p)
{
    p->stop = 1;
    pthread_cond_broadcast(&p->room);
    pthread_cond_signal(&p->ready);
}

static void work(struct packing *p, struct hr__pack_maker *maker)
{
    struct hr__made made;
    pthread_mutex_lock(&p->lock);
    /* until stop: a thread that returned earlier would be given the caller's item of the run */
    while (!p->stop) {
        if (!may_begin_locked(p)) {
            pthread_cond_wait(&p->room, &p->lock);
            continue;
        }
        uint64_t i = p->next, end = i + samples_at_once(p);
        for (p->next = end; i < end; i++) {
            pthread_mutex_unlock(&p->lock);
            hr__pack_make(maker, p->dataset, i, &made);
            pthread_mutex_lock(&p->lock);
            struct pack_place *place = &p->ring[i % p->places];
            place->made = made;
            place->ready = 1;
            p->waiting_bytes += made.entry.length;
            if (i == p->due)
                pthread_cond_signal(&p->ready);
        }
    }
    pthread_mutex_unlock(&p->lock);
}

static void worker_main(struct packing *p)
{
    struct hr__pack_maker *maker;
    struct hr_error error = {0};
    int r = hr__pack_maker_create(&maker, p->options, p->blocks, p->ahead, &error);
    if (!r) {
        work(p, maker);
        hr__pack_maker_destroy(&maker);
        return;
    }
    pthread_mutex_lock(&p->lock);
    error.code = r;
    p->failure = error;
    stop_locked(p);
    pthread_mutex_unlock(&p->lock);
}

/* Waits a little for the item that is due. Returns 1 with the item in *made, which the caller then
 * owns; 0: not yet; or an error. */
static int wait_for_due(struct packing *p, struct hr__made *made)
{
    struct timespec until = hr__timespec(hr__now_ns() + LOOK_AROUND_NS);
    pthread_mutex_lock(&p->lock);
    struct pack_place *place = &p->ring[p->due % p->places];
    int r = 0;
    while (!place->ready && !p->stop && !r)
        r = pthread_cond_timedwait(&p->ready, &p->lock, &until);
    if (place->ready) {
        *made = place->made;
        place->ready = 0;
        p->waiting_bytes -= made->entry.length;
        p->due++;
        pthread_cond_broadcast(&p->room);
        r = 1;
    } else {
        r = p->stop ? hr__fail(p->error, p->failure.code, "%s", p->failure.message) : 0;
    }
    pthread_mutex_unlock(&p->lock);
    return r;
}

static int next_made(struct packing *p, struct hr__made *made)
{
    if (!p->no_workers)
        return wait_for_due(p, made);
    int r =
        p->maker ? 0 : hr__pack_maker_create(&p->maker, p->options, p->blocks, p->ahead, p->error);
    if (r)
        return r;
    hr__pack_make(p->maker, p->dataset, p->due++, made);
    return 1;
}

static void notice(struct packing *p, uint64_t index, enum hr_pack_kept kept, const char *reason)
{
    char path[PATH_MAX];
    if (!p->options->notice)
        return;
    hr_dataset_path(p->dataset, index, path, sizeof path);
    struct hr_bad_sample sample = {hr__dataset_image_of(p->dataset, index), path, reason};
    p->options->notice(p->options->notice_arg, &sample, kept);
}

/* Reports a sample that ends the run. */
static int fail_sample(struct packing *p, uint64_t index, const struct hr__made *made)
{
    char path[512], printable[512];
    if (made->fatal)
        return hr__fail(p->error, made->result, "%s", made->reason);
    notice(p, index, HR_PACK_KEPT_BAD, made->reason);
    hr_dataset_path(p->dataset, index, path, sizeof path);
    hr__printable(printable, sizeof printable, path);
    return hr__fail(p->error, made->result,
                    "sample %" PRIu64 " (%s): %s; repair it and continue, or keep bad samples as "
                    "they are (on_error skip)",
                    hr__dataset_image_of(p->dataset, index), printable, made->reason);
}

static int append(struct packing *p, uint64_t index, const struct hr__made *made)
{
    if (made->result && (made->fatal || p->options->on_error == HR_ON_ERROR_RAISE))
        return fail_sample(p, index, made);
    int r = hr__pack_file_append(p->file, &made->entry, p->error);
    if (!r && made->reason[0])
        notice(p, index, made->entry.kept, made->reason);
    return r;
}

/* The caller's thread: appends until all is done or an error ends the run. Commits what was
 * appended in any case. */
static int append_all(struct packing *p)
{
    struct hr__made made;
    int r = 0;
    while (!r && p->file->done < p->count) {
        r = p->file->upload ? hr__pack_upload_wait(p->file->upload, p->error) : 0;
        if (r == 1) {
            r = 0; /* what is packed has to be sent first */
            hr__progress_add(&p->progress, 0);
            if (hr__progress_cancelled(&p->progress))
                r = -ECANCELED;
            continue;
        }
        if (!r)
            r = next_made(p, &made);
        if (r == 1) {
            r = append(p, p->file->done, &made);
            hr__free(made.bytes);
            if (!r)
                hr__progress_add(&p->progress, 1);
        } else if (!r) {
            hr__progress_add(&p->progress, 0);
        }
        if (!r && hr__pack_file_is_due(p->file))
            r = hr__pack_file_commit(p->file, p->error);
        if (!r && hr__progress_cancelled(&p->progress))
            r = -ECANCELED;
    }
    int safe = hr__pack_file_commit(p->file, r && r != -ECANCELED ? NULL : p->error);
    if (r == -ECANCELED && !safe)
        return hr__fail(p->error, r,
                        "packing was cancelled; the first %" PRIu64 " of %" PRIu64
                        " samples are kept in %s: call it again to continue",
                        p->file->safe, p->count, p->file->partial);
    return r ? r : safe;
}

static void packing_thread(void *arg, size_t i)
{
    struct packing *p = arg;
    if (!pthread_equal(pthread_self(), p->owner)) {
        worker_main(p);
        return;
    }
    /* the pool may give the caller a second item when it has finished the first */
    if (p->appended)
        return;
    p->appended = 1;
    p->result = append_all(p);
    pthread_mutex_lock(&p->lock);
    stop_locked(p);
    pthread_mutex_unlock(&p->lock);
}

/* Runs the threads. The file is open and has p->file->done samples. */
static int run(struct packing *p)
{
    struct hr__pool *pool = NULL;
    int threads = p->options->threads > 0 ? p->options->threads : hr_cores();
    int r = hr__pool_create(&pool, threads + 1, p->error);
    if (r)
        return r;
    const struct hr__executor *executor = hr__pool_executor(pool);
    p->no_workers = executor->threads < 2;
    p->places = (uint64_t)executor->threads * AHEAD_OF_A_WORKER;
    p->ring = hr__alloc(HR__TAG_LOADER, p->places, sizeof *p->ring);
    p->blocks = hr__blocks_create(HR__TAG_LOADER, 64, RETAINED_BYTES);
    if (!p->ring || !p->blocks) {
        r = hr__fail(p->error, -ENOMEM, "out of memory to pack with %d threads", threads);
    } else {
        p->next = p->due = p->file->done;
        r = hr__ahead_create(&p->ahead,
                             &(struct hr__ahead_options){.dataset = p->dataset, .first = p->next},
                             p->error);
    }
    if (!r) {
        executor->run(executor->self, (size_t)executor->threads, packing_thread, p);
        /* if workers could not start, they may have used up the pool's items */
        r = p->appended ? p->result : hr__fail(p->error, p->failure.code, "%s", p->failure.message);
    }
    hr__pool_destroy(&pool);
    hr__ahead_destroy(&p->ahead);
    for (uint64_t i = 0; p->ring && i < p->places; i++)
        if (p->ring[i].ready)
            hr__free(p->ring[i].made.bytes);
    hr__pack_maker_destroy(&p->maker);
    hr__blocks_destroy(&p->blocks);
    hr__free(p->ring);
    return r;
}

/* Reports bad samples of an earlier run again, so that the user gets the whole list. */
static void report_earlier(struct packing *p)
{
    for (uint64_t i = 0; i < p->file->done; i++)
        if (hr__range_kept(&p->file->catalog->ranges[i]) == HR_PACK_KEPT_BAD)
            notice(p, i, HR_PACK_KEPT_BAD, "an earlier run found that it is bad");
}

static int write_pack(struct packing *p, struct hr_pack_result *result)
{
    hr__progress_init(&p->progress, p->options->progress, p->options->progress_arg);
    int r = hr__pack_check_sources(p->file, p->dataset, &p->progress, p->error);
    if (r)
        return r;
    hr__progress_stage(&p->progress, "packing", p->count);
    hr__progress_add(&p->progress, p->file->done);
    report_earlier(p);
    if (p->file->done < p->count)
        r = run(p);
    if (!r && hr__progress_end(&p->progress))
        r = hr__fail(p->error, -ECANCELED,
                     "packing was cancelled when all samples were in %s: call it again to finish",
                     p->file->partial);
    if (!r)
        r = hr__pack_file_finish(p->file, p->options->overwrite, &p->progress, p->error);
    if (r || !result)
        return r;
    struct hr_pack_result now = {0};
    hr__pack_count(p->file->catalog, p->count, &now);
    now.pack_bytes = p->file->super.bytes;
    now.rows_bytes = p->file->super.rows_bytes;
    now.continued = p->file->continued;
    now.head = p->options->head;
    now.media = hr_dataset_media(p->dataset);
    now.masks = p->dataset->is_paired ? p->count / 2 : 0;
    hr__versioned_give(result, &now, sizeof now);
    return 0;
}

/* Waveforms are no files: a pack of them can only be packed as it is. */
static int check_source(struct hr_dataset *dataset, const struct hr_pack_options *options,
                        struct hr_error *error)
{
    const struct hr_dataset *origin = hr__dataset_origin(dataset);
    char made[HR__HEAD_TEXT];
    if (!origin->waveforms ||
        (options->form == origin->waveforms && !origin->head.mono == !options->head.mono &&
         origin->head.rate == options->head.rate))
        return 0;
    return hr__fail(error, -ENOTSUP,
                    "%s holds waveforms (%s after %s), of which nothing else can be made: pack the "
                    "files that it was made of, or ask for the same",
                    origin->source.path, hr_form_name((enum hr_form)origin->waveforms),
                    hr__sound_head_text(made, &origin->head));
}

int hr_pack_write(struct hr_dataset *dataset, const char *path,
                  const struct hr_pack_options *options, struct hr_pack_result *result,
                  struct hr_error *error)
{
    struct hr_pack_options taken;
    struct hr_dataset *pairs = NULL;
    struct packing p = {
        .dataset = dataset,
        .options = &taken,
        .owner = pthread_self(),
        .count = hr_dataset_count(dataset),
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .room = PTHREAD_COND_INITIALIZER,
        .error = error,
    };
    hr__cond_init(&p.ready);
    int r = hr__pack_take_options(&taken, options, error);
    if (!r && dataset->produced)
        r = hr__fail(error, -ENOTSUP, "the samples of %s come from producers, and are no images",
                     hr_dataset_root(dataset));
    if (!r && dataset->masks) {
        r = hr__dataset_pair(&pairs, dataset, error);
        p.dataset = dataset = pairs;
        p.count *= 2;
    }
    if (!r)
        r = check_source(dataset, &taken, error);
    if (!r)
        r = hr__pack_file_open(&p.file, dataset, path, &taken, hr__pack_options_digest(&taken),
                               error);
    if (!r)
        r = write_pack(&p, result);
    hr__pack_file_close(&p.file);
    hr_dataset_unref(&pairs);
    pthread_cond_destroy(&p.ready);
    pthread_cond_destroy(&p.room);
    pthread_mutex_destroy(&p.lock);
    return r;
}
