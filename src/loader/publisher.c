/*
 * Publishers (publisher.h): how they differ from a loader with a consumer. Their chunks are in
 * chunk.c.
 */
#include "loader/publisher.h"

#include "base/error.h"
#include "base/memory.h"
#include "loader/caching.h"
#include "loader/create.h"
#include "loader/publisher_inside.h"
#include "loader/schedule.h"

#include <errno.h>

/* Waits until no thread publishes or opens a chunk, and prevents both until begin_locked. */
static void pause_publisher(struct hr_loader *l)
{
    struct hr__publisher *publisher = l->publisher;
    pthread_mutex_lock(&l->lock);
    publisher->starting = 1;
    while (publisher->publishing || l->opening)
        pthread_cond_wait(&publisher->quiet, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

static void begin_locked(struct hr_loader *l)
{
    struct hr__publisher *publisher = l->publisher;
    publisher->starting = publisher->turn = publisher->no_room = 0;
}

static int can_open_locked(const struct hr_loader *l)
{
    return !l->publisher->no_room && !l->publisher->starting;
}

static void opened_locked(struct hr_loader *l, int is_broken)
{
    if (l->publisher->starting)
        pthread_cond_broadcast(&l->publisher->quiet);
    /* A worker publishes the error that ended the publisher, because this thread may be a
     * fetcher. */
    if (is_broken)
        hr__wake_worker_locked(l);
}

/* A publisher has no consumer: the next worker to visit it publishes, usually this one. */
static void notify_consumer_locked(struct hr_loader *l)
{
    l->publisher->turn = 1;
    atomic_store(&l->publisher->has_work, 1);
}

static void notify_workers_locked(struct hr_loader *l, int count)
{
    atomic_store(&l->publisher->has_work, 1);
    hr__crew_wake(l->publisher->crew, count);
}

static int join_crew(struct hr_loader *l, struct hr_error *error)
{
    return hr__crew_join(l->publisher->crew, l, error);
}

static void leave_crew(struct hr_loader *l)
{
    hr__crew_leave(l->publisher->crew, l);
}

static void free_publisher(struct hr_loader *l)
{
    struct hr__publisher *publisher = l->publisher;
    while (publisher->spare) {
        struct hr_batch *next = publisher->spare->next;
        hr__chunk_free(publisher->spare);
        publisher->spare = next;
    }
    pthread_cond_destroy(&publisher->quiet);
    hr__free(publisher->bad);
    hr__free(publisher);
}

static const struct hr__part publisher_part = {
    .start = join_crew,
    .join = leave_crew,
    .destroy = free_publisher,
    .abandon = free_publisher,
    .pause = pause_publisher,
    .begin_locked = begin_locked,
    .can_open_locked = can_open_locked,
    .open = hr__chunk_open,
    .opened_locked = opened_locked,
    .notify_consumer_locked = notify_consumer_locked,
    .notify_workers_locked = notify_workers_locked,
};

static int make_publisher(struct hr_loader *l, struct hr_error *error)
{
    struct hr__publisher *publisher = hr__alloc(HR__TAG_LOADER, 1, sizeof *publisher);
    if (!publisher)
        return hr__fail(error, -ENOMEM, "out of memory for a publisher");
    l->publisher = publisher;
    l->part = &publisher_part;
    l->borrows_workers = 1;
    /* Constants here: the crew's workers may be idle, and the crew watches delayed samples. */
    l->idle_workers = l->delayed_watched = 1;
    publisher->loader = l;
    atomic_init(&publisher->ask_ns, UINT64_MAX);
    pthread_cond_init(&publisher->quiet, NULL);
    publisher->bad =
        hr__alloc(HR__TAG_LOADER, (size_t)l->options.batch_size, sizeof *publisher->bad);
    return publisher->bad ? 0 : hr__fail(error, -ENOMEM, "out of memory for a publisher");
}

/* Takes the caller's options and sets those that a publisher does not use. */
static int take_options(struct hr_loader_options *out, const struct hr_loader_options *options,
                        const struct hr__crew *crew, struct hr_error *error)
{
    int r = hr__options_take(out, options, error);
    if (r)
        return r;
    out->agent = out->stream = out->agent_command = NULL;
    out->pinned = out->drop_last = out->wait_ms = 0;
    out->max_bad_share = 1;
    out->threads = hr__crew_threads(crew);
    return 0;
}

int hr__publisher_create(struct hr_loader **out, struct hr__crew *crew, struct hr_dataset *dataset,
                         struct hr_recipe *recipe, const struct hr_loader_options *options,
                         const struct hr__publisher_ops *ops, void *self, struct hr_error *error)
{
    *out = NULL;
    struct hr_loader_options taken;
    struct hr_loader *l = NULL;
    int r = take_options(&taken, options, crew, error);
    if (!r)
        r = hr__loader_make(&l, dataset, recipe, &taken, error);
    if (r)
        return r;
    r = make_publisher(l, error);
    if (!r) {
        l->publisher->crew = crew;
        l->publisher->ops = ops;
        l->publisher->self = self;
        r = hr__caching_create(l, 1, error);
    }
    l->options.cache = NULL; /* the text is the caller's */
    if (r) {
        hr_loader_destroy(&l);
        return r;
    }
    *out = l;
    return 0;
}

void hr__publisher_set_home(struct hr_loader *l, struct hr__home home)
{
    l->home = home;
}

void hr__publisher_set_samples(struct hr_loader *l, struct hr__sample_source *source)
{
    l->samples = source;
    l->always_fetched = 1;
}

int hr__publisher_start(struct hr_loader *l, uint64_t epoch, uint64_t position, uint64_t first,
                        uint64_t *samples, struct hr_error *error)
{
    uint64_t total = hr_dataset_count(l->dataset), ranks = (uint64_t)l->options.world_size;
    struct hr_loader_state state = {
        .version = 1,
        .shuffle = (uint32_t)l->shuffle,
        .seed = l->seed,
        .epoch = epoch,
        .position = position,
        .samples = total,
    };
    int r = hr__state_check(l, &state, error);
    if (r)
        return r;
    *samples = l->options.external_order
                   ? HR__QUEUE_ENDLESS
                   : (total - position) / ranks + ((total - position) % ranks != 0);
    return hr__loader_start_at(l, &state, first, error);
}

void hr__publisher_room(struct hr_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->publisher->room_asked++;
    l->publisher->no_room = 0;
    if (hr__can_claim_locked(l))
        hr__wake_claimers_locked(l);
    pthread_mutex_unlock(&l->lock);
}
