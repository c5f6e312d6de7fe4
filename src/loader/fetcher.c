/*
 * The fetchers: threads that read many files at a time for the workers, when workers' reads block
 * (see loader.h).
 *
 * A fetcher takes samples from the schedule in order, as the staging budget allows, and keeps as
 * many reads in flight as the device benefits from. Cached samples go to the workers at once.
 * Samples that another process is reading into a shared cache wait in a list; the fetcher asks for
 * them again whenever reads have come back.
 */
#include "loader/fetcher.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "loader/inside.h"
#include "loader/schedule.h"
#include "storage/depth.h"

#include <errno.h>

/* How long a fetcher waits for a read before it checks for other work: short if it could soon
 * submit more reads. */
#define FETCH_WAIT_NS       INT64_C(20000000)
#define FETCH_WAIT_SHORT_NS INT64_C(2000000)

/* Reads taken from the schedule at once. A limit, so that the first are in flight early. */
#define FETCH_BULK 32

/* The most jobs of a fetcher that wait for other processes. */
#define WAITING_MAX 64

/* State of one fetcher. */
struct fetcher {
    struct hr_loader *loader;
    int number;
    struct hr__reader *reader;
    int direct;                                /* the reader wants O_DIRECT */
    struct hr__depth depth;                    /* the most reads in flight, adapted to the device */
    struct hr__http_client *http;              /* the client of the dataset's objects, or NULL */
    struct hr__job *flight[HR__OBJECTS_DEPTH]; /* the jobs that the reader has */
    unsigned flying;
    struct hr__job *waiting; /* jobs whose samples other processes are reading, the first to ask for
                                first */
    struct hr__job **waiting_end;
    unsigned waiting_count;
    int refused; /* there was something to read, but no slot for its batch */
};

/* Returns non-zero if there is a sample to read and the staging budget has room for it. */
static int has_read_locked(const struct hr_loader *l)
{
    if (l->part->has_read_locked)
        return l->part->has_read_locked(l) || hr__can_claim_locked(l);
    return !l->workers_read && hr__can_claim_locked(l) &&
           (!l->reserved_bytes ||
            l->reserved_bytes + hr__next_size_locked(l) <= l->options.staging_bytes);
}

/* Takes samples to read, linked by next: at most `room`, and as many as the staging budget allows.
 * Waits for a slot only if this fetcher has no jobs, because slots of a dropped epoch may come back
 * only when those jobs are done. */
static struct hr__job *claim_reads_unlocking(struct fetcher *f, unsigned room)
{
    struct hr_loader *l = f->loader;
    struct hr__job *list = NULL, **end = &list;
    if (room > FETCH_BULK)
        room = FETCH_BULK;
    f->refused = 0;
    while (room-- && has_read_locked(l)) {
        int is_empty = !list && !f->flying && !f->waiting;
        struct hr__job *job = hr__claim_unlocking(l, is_empty);
        f->refused = !job && !is_empty && hr__can_claim_locked(l);
        if (!job)
            break;
        job->charged_bytes = hr__size_of(l, job->batch, job->place);
        l->reserved_bytes += job->charged_bytes;
        *end = job;
        end = &job->next;
        if (l->fetcher_samples && !--l->fetcher_samples && !l->options.direct_io)
            hr__let_workers_read_locked(l);
    }
    *end = NULL;
    if (list && l->idle_fetchers && has_read_locked(l))
        pthread_cond_signal(&l->fetch);
    return list;
}

/* The same if a part decides what to read. */
static struct hr__job *take_reads_unlocking(struct fetcher *f, unsigned room)
{
    struct hr_loader *l = f->loader;
    struct hr__job *list = NULL, **end = &list;
    if (room > FETCH_BULK)
        room = FETCH_BULK;
    f->refused = l->part->deal_unlocking(l, !f->flying && !f->waiting);
    while (room--) {
        struct hr__job *job = l->part->next_read_locked(l);
        if (!job)
            break;
        *end = job;
        end = &job->next;
    }
    *end = NULL;
    if (list && l->idle_fetchers && l->part->has_read_locked(l))
        pthread_cond_signal(&l->fetch);
    return list;
}

/* Appends a job whose sample another process is reading to the list of waiting jobs. */
static void wait_for_other(struct fetcher *f, struct hr__job *job)
{
    hr__job_wait(job, f->waiting_count);
    job->next = NULL;
    *f->waiting_end = job;
    f->waiting_end = &job->next;
    f->waiting_count++;
}

/* Takes the first of the waiting jobs. */
static struct hr__job *wait_no_more(struct fetcher *f)
{
    struct hr__job *job = f->waiting;
    f->waiting = job->next;
    if (!f->waiting)
        f->waiting_end = &f->waiting;
    f->waiting_count--;
    return job;
}

static void take_off(struct fetcher *f, struct hr__job *job)
{
    job->flight = f->flying;
    f->flight[f->flying++] = job;
}

static uint64_t index_of(const struct hr__job *job)
{
    return job->batch ? (uint64_t)job->batch->indices[job->place] : job->ahead;
}

/* Submits the read of a job's mask. Returns zero if there is none, or the worker has to read it. */
static int submit_mask(struct fetcher *f, struct hr__job *job)
{
    struct hr_dataset *masks = f->loader->dataset->masks;
    if (!masks)
        return 0;
    job->mask.read.user = job;
    if (hr__sample_aim(&job->mask, masks, index_of(job), f->direct, NULL) ||
        hr__reader_submit(f->reader, &job->mask.read))
        return 0;
    job->mask_read = HR__MASK_FLYING;
    return 1;
}

/* Submits a job to the reader. Returns 1 if it was submitted or waits for another process; 0 if it
 * need not or cannot be read here, and is for a worker. */
static int submit_one(struct fetcher *f, struct hr__job *job)
{
    struct hr_loader *l = f->loader;
    uint64_t index = index_of(job);
    job->sample.read.user = job;
    job->unread = 1;
    /* Workers find cached samples in the cache. What is read ahead is for others' memory. */
    enum hr__claim claim = job->batch ? hr__sample_claim(l, index, &job->ticket) : HR__CLAIM_ALONE;
    if (claim == HR__CLAIM_FOUND)
        return 0;
    if (claim == HR__CLAIM_BUSY) {
        wait_for_other(f, job);
        return 1;
    }
    if (hr__job_aim(l, job, index, f->direct, NULL) ||
        hr__reader_submit(f->reader, &job->sample.read))
        return 0;
    job->unread = 0;
    take_off(f, job);
    return 1;
}

/* Submits claimed reads. Those for the workers are put in front of `left`; returns that list. */
static struct hr__job *submit(struct fetcher *f, struct hr__job *list, struct hr__job *left)
{
    while (list) {
        struct hr__job *job = list;
        list = job->next;
        if (!submit_one(f, job)) {
            job->next = left;
            left = job;
        }
    }
    return left;
}

/* How many more reads may be submitted now. */
static unsigned free_of(const struct fetcher *f)
{
    unsigned depth = hr__depth_now(&f->depth);
    if (f->loader->samples && atomic_load(&f->loader->samples->depth) < depth)
        depth = atomic_load(&f->loader->samples->depth);
    return depth > f->flying ? depth - f->flying : 0;
}

/* The same for waiting jobs that are due, as far as the reader has room. */
static struct hr__job *ask_again(struct fetcher *f, struct hr__job *left)
{
    if (!f->waiting)
        return left;
    uint64_t now_ns = hr__now_ns();
    while (f->waiting && f->waiting->ask_ns <= now_ns && free_of(f)) {
        struct hr__job *job = wait_no_more(f);
        if (!submit_one(f, job)) {
            job->next = left;
            left = job;
        }
    }
    return left;
}

/* Takes out the waiting jobs whose epoch was dropped. */
static struct hr__job *wanted_no_more_locked(struct fetcher *f)
{
    struct hr__job *gone = NULL;
    for (unsigned n = f->waiting_count; n; n--) {
        struct hr__job *job = wait_no_more(f);
        if (job->batch->cancelled) {
            job->next = gone;
            gone = job;
            continue;
        }
        job->next = NULL;
        *f->waiting_end = job;
        f->waiting_end = &job->next;
        f->waiting_count++;
    }
    return gone;
}

static void land(struct fetcher *f, struct hr__job *job)
{
    struct hr__job *last = f->flight[--f->flying];
    f->flight[job->flight] = last;
    last->flight = job->flight;
}

struct hr_batch *hr__deliver_locked(struct hr_loader *l, struct hr__job *job)
{
    if (l->part->landed_locked && l->part->landed_locked(l, job))
        return NULL;
    hr__charge_locked(l, job,
                      (job->unread ? 0 : job->sample.read.length) +
                          (job->mask_read == HR__MASK_READ ? job->mask.read.length : 0));
    if (!job->batch->cancelled) {
        hr__stage_locked(l, job);
        return NULL;
    }
    struct hr__outcome outcome = {.blocked = 0};
    hr__sample_unclaim(l, &job->ticket);
    hr__drop_bytes(l, &job->sample.read);
    return hr__finish_locked(l, job, &outcome);
}

static void deliver(struct hr_loader *l, struct hr__job *list)
{
    struct hr_batch *slots = NULL;
    pthread_mutex_lock(&l->lock);
    while (list) {
        struct hr__job *next = list->next;
        struct hr_batch *slot = hr__deliver_locked(l, list);
        if (slot) {
            slot->next = slots;
            slots = slot;
        }
        list = next;
    }
    pthread_mutex_unlock(&l->lock);
    hr__return_slots(slots);
}

/* Checks a sample that was read ahead: it goes to its owner without being prepared, so damage has
 * to be found here. */
static void check_ahead(struct hr_loader *l, struct hr__job *job)
{
    int is_whole = !l->dataset->masks ||
                   (job->mask_read == HR__MASK_READ && !hr__sample_check(&job->mask, NULL));
    if (is_whole && !hr__sample_check(&job->sample, NULL) && !hr__job_join(l, job))
        return;
    hr__drop_bytes(l, &job->sample.read);
    job->unread = 1;
}

/* Takes the result of a read. Returns non-zero if the job stays in flight, for its mask. */
static int take_result(struct fetcher *f, struct hr__job *job, struct hr__read *read)
{
    if (read->result)
        read->bytes = NULL;
    int is_mask = read == &job->mask.read;
    hr__account_read(f->loader, read, is_mask ? HR__TIER_STORAGE : job->tier,
                     read->completed_ns - read->submitted_ns);
    if (!is_mask)
        return !read->result && job->tier == HR__TIER_STORAGE && submit_mask(f, job);
    job->mask_read = HR__MASK_READ;
    return 0;
}

/* Puts the jobs of completed reads in front of `list`. If the reader is broken, *failure is a
 * negative errno. */
static struct hr__job *collect(struct fetcher *f, int64_t timeout_ns, struct hr__job *list,
                               int *failure)
{
    struct hr__read *done[HR__OBJECTS_DEPTH];
    unsigned in_flight = f->flying;
    uint64_t bytes = 0;
    int n = hr__reader_wait(f->reader, done, HR__OBJECTS_DEPTH, timeout_ns);
    *failure = n < 0 && n != -EINTR ? n : 0;
    /* From the last to the first, so that the list begins with the oldest. */
    for (int i = n - 1; i >= 0; i--) {
        struct hr__job *job = done[i]->user;
        bytes += done[i]->length;
        if (take_result(f, job, done[i]))
            continue;
        land(f, job);
        if (!job->batch)
            check_ahead(f->loader, job);
        job->next = list;
        list = job;
    }
    /* producers have a depth of their own, and so have stores */
    if (!f->loader->samples && !f->http)
        hr__depth_note(&f->depth, in_flight, n > 0 ? (unsigned)n : 0, bytes, hr__now_ns());
    return list;
}

/* How many reads a fetcher may take from the schedule now. */
static unsigned room_of(const struct fetcher *f)
{
    return f->waiting_count < WAITING_MAX ? free_of(f) : 0;
}

/* Sleeps until there is something to read, or the first waiting job is due. */
static void wait_for_reads_unlocking(struct fetcher *f)
{
    struct hr_loader *l = f->loader;
    l->idle_fetchers++;
    if (f->waiting || f->refused) {
        uint64_t until_ns = hr__now_ns() + FETCH_WAIT_SHORT_NS;
        if (f->waiting && (!f->refused || f->waiting->ask_ns < until_ns))
            until_ns = f->waiting->ask_ns;
        struct timespec until = hr__timespec(until_ns);
        pthread_cond_timedwait(&l->fetch, &l->lock, &until);
    } else {
        pthread_cond_wait(&l->fetch, &l->lock);
    }
    l->idle_fetchers--;
    hr__depth_note(&f->depth, 0, 0, 0, hr__now_ns());
}

/* How long to wait for a read. */
static int64_t collect_timeout(const struct fetcher *f, int more)
{
    int64_t ns = free_of(f) && more ? FETCH_WAIT_SHORT_NS : FETCH_WAIT_NS;
    if (f->waiting && free_of(f)) {
        int64_t until_ns = (int64_t)(f->waiting->ask_ns - hr__now_ns());
        if (until_ns < ns)
            ns = until_ns > 0 ? until_ns : 0;
    }
    return ns;
}

/* Reads for the workers until stop, or until the reader fails. */
static int fetch_loop(struct fetcher *f)
{
    struct hr_loader *l = f->loader;
    int failure = 0;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && !failure) {
        struct hr__job *list = l->part->next_read_locked ? take_reads_unlocking(f, room_of(f))
                                                         : claim_reads_unlocking(f, room_of(f));
        struct hr__job *done = wanted_no_more_locked(f);
        int due = f->waiting && f->waiting->ask_ns <= hr__now_ns();
        if (!list && !done && !due && !f->flying) {
            /* Looking may have released the lock: look again before sleeping. */
            if (!l->stop && (f->refused || !(room_of(f) && has_read_locked(l))))
                wait_for_reads_unlocking(f);
            continue;
        }
        int more = !l->workers_read;
        pthread_mutex_unlock(&l->lock);
        done = submit(f, list, done);
        done = ask_again(f, done);
        if (f->flying)
            done = collect(f, done ? 0 : collect_timeout(f, more), done, &failure);
        deliver(l, done);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return failure;
}

static int open_reader(struct fetcher *f)
{
    struct hr_loader *l = f->loader;
    struct hr_error error = {0};
    unsigned most = f->http ? HR__OBJECTS_DEPTH : HR__FETCH_DEPTH;
    struct hr__reader_options options = {
        .depth = most,
        .direct = l->options.direct_io,
        .no_io_uring = l->options.no_io_uring || f->number > 0,
        .source = l->samples,
    };
    int r = hr__reader_create(&f->reader, &options, &error);
    f->direct = options.direct;
    int many = !r && (l->samples || f->http || hr__reader_is_io_uring(f->reader));
    /* A pread reader blocks in submit, so it gets one read at a time: the other fetchers then share
     * the rest. */
    hr__depth_init(&f->depth, many ? most : 1);
    pthread_mutex_lock(&l->lock);
    l->live_fetchers += !r;
    if (f->number == 0) {
        l->reader_state = r ? r : many ? 1 : 2;
        pthread_cond_broadcast(&l->room);
    }
    pthread_mutex_unlock(&l->lock);
    return r;
}

/* Frees the reader. Jobs it had in flight go to the workers, which read again. */
static void close_reader(struct fetcher *f)
{
    struct hr__job *list = NULL;
    hr__reader_destroy(&f->reader);
    while (f->flying) {
        struct hr__job *job = f->flight[--f->flying];
        if (job->mask_read == HR__MASK_FLYING) {
            job->mask_read = HR__MASK_UNREAD;
        } else {
            job->unread = 1;
            job->sample.read.bytes = NULL;
        }
        job->next = list;
        list = job;
    }
    while (f->waiting) {
        struct hr__job *job = wait_no_more(f);
        job->next = list;
        list = job;
    }
    deliver(f->loader, list);
}

void *hr__fetch_main(void *arg)
{
    struct hr__thread *self = arg;
    struct hr_loader *l = self->loader;
    struct fetcher f = {.loader = l, .number = self->number};
    f.waiting_end = &f.waiting;
    f.http = hr__dataset_origin(l->dataset)->http;
    hr__numa_enter("", &l->home, 0);
    if (open_reader(&f))
        return NULL;
    int failure = fetch_loop(&f);
    close_reader(&f);
    if (!failure)
        return NULL;
    hr__log(HR_LOG_WARNING, "asynchronous reads failed (%s): the workers read for themselves",
            hr__errno_text(failure));
    pthread_mutex_lock(&l->lock);
    l->live_fetchers--;
    if (!l->live_fetchers && l->part->readers_gone_locked)
        l->part->readers_gone_locked(l);
    else if (!l->live_fetchers)
        hr__let_workers_read_locked(l);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}
