/*
 * Makes and destroys the loader's state for hosts (hosts.h).
 */
#include "loader/hosts/hosts.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "cache/spec.h"
#include "loader/caching.h"
#include "loader/hosts/inside.h"

#include <errno.h>

/* The most loaders of a rank in this process that meetings can tell apart, and the most ranks in a
 * process (only tests have more than one). */
#define LOADERS_MAX 64
#define RANKS_MAX   256

/* Bit masks of the numbers in use, by rank. Ranks make their loaders in the same order, so the
 * lowest free number is the same on all of them, and meetings of different loaders are not mixed
 * up. */
static _Atomic uint64_t numbers[RANKS_MAX];

static unsigned take_number(int rank)
{
    _Atomic uint64_t *used = &numbers[rank % RANKS_MAX];
    uint64_t before = atomic_load(used), bit;
    do {
        bit = ~before & (before + 1);
        if (!bit)
            return LOADERS_MAX;
    } while (!atomic_compare_exchange_weak(used, &before, before | bit));
    return (unsigned)__builtin_ctzll(bit);
}

static void give_number(int rank, unsigned number)
{
    if (number < LOADERS_MAX)
        atomic_fetch_and(&numbers[rank % RANKS_MAX], ~(UINT64_C(1) << number));
}

int hr__hosting_is_wanted(const struct hr_loader_options *options)
{
    return options->cache && hr__hosts_is(options->cache);
}

int hr__hosting_check(const struct hr_loader_options *o, struct hr_error *error)
{
    if (!hr__hosting_is_wanted(o))
        return o->assignment != HR_ASSIGNMENT_LOCAL
                   ? 0
                   : hr__fail(error, -EINVAL,
                              "assignment = local: it goes by which host keeps a sample, so it "
                              "needs a cache of hosts (\"memcached:...\")");
    if (o->agent && *o->agent)
        return hr__fail(error, -ENOTSUP,
                        "an agent prepares streams for this machine alone, and cannot deal "
                        "samples to the hosts of \"%.100s\": leave agent out",
                        o->cache);
    if (o->external_order)
        return hr__fail(error, -ENOTSUP,
                        "an order of the caller's own cannot be dealt to the hosts of "
                        "\"%.100s\": leave out the order (a sampler), or the cache",
                        o->cache);
    return 0;
}

static void init_conditions(struct hr__hosting *h)
{
    hr__cond_init(&h->dealing);
    hr__cond_init(&h->work);
    hr__cond_init(&h->space);
}

static void free_parts(struct hr__hosting *h)
{
    for (int i = 0; i < 2; i++)
        hr__free(h->rates[i].ranks);
    hr__free(h->ahead_positions);
    hr__free(h->ahead);
    hr__free(h->groups);
    hr__free(h);
}

static void destroy(struct hr_loader *l)
{
    static const struct hr__keeper no_keeper;
    struct hr__hosting *h = l->hosting;
    if (h->cluster)
        hr__hosting_drop_stores_locked(l, h->cluster); /* all threads have ended */
    hr__cluster_unref(&h->cluster);
    hr__cluster_unref(&h->next);
    pthread_cond_destroy(&h->dealing);
    pthread_cond_destroy(&h->work);
    pthread_cond_destroy(&h->space);
    give_number(l->options.rank, h->number);
    l->keeper = h->disk ? h->disk : &no_keeper; /* which closes the disk, after this */
    l->hosting = NULL;
    free_parts(h);
}

/* The servers' connections belong to the parent: leaves the cluster, which holds them, as it is. */
static void abandon(struct hr_loader *l)
{
    give_number(l->options.rank, l->hosting->number);
    free_parts(l->hosting);
    l->hosting = NULL;
}

static int start(struct hr_loader *l, struct hr_error *error)
{
    struct hr__hosting *h = l->hosting;
    int wanted = h->cluster->hosts.count;
    if (wanted > HR__HOST_THREADS || h->next)
        wanted = HR__HOST_THREADS;
    /* So that one can store while the other waits for a fetch. */
    if (wanted < 2)
        wanted = 2;
    h->allowed = 1;
    int r = 0;
    while (!r && h->thread_count < wanted) {
        struct hr__thread *thread = &h->threads[h->thread_count];
        *thread = (struct hr__thread){.loader = l, .number = h->thread_count};
        r = hr__thread_start(thread, hr__host_main, "hr-host", error);
        h->thread_count += !r;
    }
    if (!r) {
        h->dealer = (struct hr__thread){.loader = l};
        r = hr__thread_start(&h->dealer, hr__deal_main, "hr-deal", error);
        h->has_dealer = !r;
    }
    return r;
}

static void stop_locked(struct hr_loader *l)
{
    struct hr__hosting *h = l->hosting;
    atomic_store(&h->halt, 1);
    hr__peers_cancel(h->cluster->peers);
    pthread_cond_broadcast(&h->dealing);
    pthread_cond_broadcast(&h->work);
    pthread_cond_broadcast(&h->space);
}

static void join(struct hr_loader *l)
{
    struct hr__hosting *h = l->hosting;
    for (int i = 0; i < h->thread_count; i++) {
        pthread_join(h->threads[i].id, NULL);
        hr_converter_destroy(&h->threads[i].converter);
        hr_preparer_destroy(&h->threads[i].preparer);
    }
    if (h->has_dealer)
        pthread_join(h->dealer.id, NULL);
    h->thread_count = h->has_dealer = 0;
}

/* Batches can be opened once the dealer has made the plan. */
static int can_open_locked(const struct hr_loader *l)
{
    return l->plan->deal != NULL;
}

static struct hr__job *next_read_locked(struct hr_loader *l)
{
    struct hr__job *job = hr__hosting_read_locked(l);
    return job ? job : hr__hosting_ahead_locked(l);
}

static const struct hr__part part = {
    .start = start,
    .stop_locked = stop_locked,
    .join = join,
    .destroy = destroy,
    .abandon = abandon,
    .begin_locked = hr__hosting_begin_locked,
    .can_open_locked = can_open_locked,
    .ready_locked = hr__hosting_ready_locked,
    .cancel_locked = hr__hosting_cancel_locked,
    .holds_end_locked = hr__hosting_is_storing_locked,
    .wake_locked = hr__hosting_wake_locked,
    .deal_unlocking = hr__hosting_deal_unlocking,
    .next_read_locked = next_read_locked,
    .has_read_locked = hr__hosting_has_read_locked,
    .landed_locked = hr__hosting_landed_locked,
    .readers_gone_locked = hr__hosting_readers_gone_locked,
};

/* Attaches the disk before the hosts, if the text has one, and makes the loader's keeper of both.
 */
static int open_disk(struct hr_loader *l, struct hr_error *error)
{
    struct hr__hosting *h = l->hosting;
    int r = hr__caching_create_disk(l, l->options.cache, error);
    if (l->caching) {
        h->disk = l->keeper;
        h->keeper = *l->keeper;
    }
    h->keeper.offer = hr__hosting_offer;
    h->keeper.prepared = hr__hosting_prepared;
    h->keeper.forget = hr__hosting_forget;
    l->keeper = &h->keeper;
    return r;
}

int hr__hosting_create(struct hr_loader *l, struct hr_error *error)
{
    struct hr__hosting *h = hr__alloc(HR__TAG_LOADER, 1, sizeof *h);
    if (!h)
        return hr__fail(error, -ENOMEM, "out of memory for a loader's hosts");
    init_conditions(h);
    l->hosting = h;
    l->part = &part;
    l->uncached = l->always_fetched = 1;
    /* A single rank has no others to meet. */
    h->number = l->options.world_size > 1 ? take_number(l->options.rank) : LOADERS_MAX;
    h->wait_s = -1;
    int r = open_disk(l, error);
    if (!r)
        r = hr__cluster_create(&h->cluster, l, l->options.cache, error);
    if (r)
        return r;
    size_t batch_size = (size_t)l->options.batch_size;
    h->ahead_positions = hr__alloc(HR__TAG_LOADER, batch_size, sizeof *h->ahead_positions);
    h->ahead = hr__alloc(HR__TAG_LOADER, batch_size, sizeof *h->ahead);
    h->groups = hr__alloc(HR__TAG_LOADER, HR__HOST_THREADS, sizeof *h->groups);
    if (!h->ahead_positions || !h->ahead || !h->groups)
        return hr__fail(error, -ENOMEM, "out of memory for a loader's hosts");
    return 0;
}
