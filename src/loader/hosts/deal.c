/*
 * The dealer: a thread that makes each epoch's plan before its first batch is opened. It is a
 * thread of its own so that `next` can be interrupted while the ranks wait for each other. After
 * that it searches later batches for samples to read ahead.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "loader/hosts/inside.h"

#include <errno.h>

static size_t deal_batch(struct hr__deal *base, uint64_t number, uint64_t *positions,
                         size_t *padding)
{
    struct hr__host_deal *deal = (struct hr__host_deal *)(void *)base;
    pthread_mutex_lock(&deal->lock);
    size_t count = hr__plan_batch(deal->plan, number, positions, padding);
    pthread_mutex_unlock(&deal->lock);
    return count;
}

static void destroy_deal(struct hr__deal *base)
{
    struct hr__host_deal *deal = (struct hr__host_deal *)(void *)base;
    hr__plan_destroy(&deal->plan);
    hr__cluster_unref(&deal->cluster);
    pthread_mutex_destroy(&deal->lock);
    hr__free(deal);
}

static enum hr__assignment choose_assignment(const struct hr_loader *l,
                                             const struct hr__cluster *cluster)
{
    if (l->options.assignment == HR_ASSIGNMENT_AUTO)
        return cluster->hosts.count > 1 ? HR__ASSIGNMENT_LOCAL : HR__ASSIGNMENT_EXACT;
    return l->options.assignment == HR_ASSIGNMENT_LOCAL ? HR__ASSIGNMENT_LOCAL
                                                        : HR__ASSIGNMENT_EXACT;
}

/* Logs once how dealing samples to hosts changes which rank gets which samples. */
static void log_assignment_once(struct hr_loader *l, const struct hr__cluster *cluster)
{
    if (l->hosting->is_logged || l->options.rank || l->options.world_size < 2 ||
        choose_assignment(l, cluster) != HR__ASSIGNMENT_LOCAL)
        return;
    l->hosting->is_logged = 1;
    hr__log(HR_LOG_INFO, "the samples of each global batch are dealt to the ranks whose hosts keep "
                         "them: losses that depend on which rank has a sample need "
                         "assignment=exact (docs/hosts.md)");
}

/* Makes the plan of an epoch for a cluster whose ranks have met. */
static int make_plan(struct hr_loader *l, struct hr__cluster *cluster, const struct hr__epoch *plan,
                     struct hr__host_deal *deal, struct hr_error *error)
{
    struct hr__plan_rates *rates =
        hr__alloc(HR__TAG_LOADER, (size_t)cluster->hosts.count, sizeof *rates);
    if (!rates)
        return hr__fail(error, -ENOMEM, "out of memory for an epoch's plan");
    pthread_mutex_lock(&l->lock);
    int has_rates = hr__hosting_rates_locked(l, cluster, plan->epoch, rates);
    pthread_mutex_unlock(&l->lock);
    struct hr__plan_wish wish = {
        .assignment = choose_assignment(l, cluster),
        .cut = plan->cut,
        .order = plan->order,
        .owners = deal->owners,
        .disks = cluster->disks ? hr__placement_owners(cluster->disks) : NULL,
        .bytes = cluster->sizes,
        .host_count = cluster->hosts.count,
        .host_of_rank = cluster->host_of_rank,
        .rates = has_rates ? rates : NULL,
    };
    int r = hr__plan_create(&deal->plan, &wish, error);
    hr__free(rates);
    return r;
}

/* Makes the deal of an epoch. Meets the other ranks first if that was not done for this list. */
static int make_deal(struct hr_loader *l, struct hr__cluster *cluster, const struct hr__epoch *plan,
                     struct hr__host_deal **out, struct hr_error *error)
{
    int r = hr__cluster_meet(l, cluster, plan, error);
    if (r)
        return r;
    log_assignment_once(l, cluster);
    struct hr__host_deal *deal = hr__alloc(HR__TAG_LOADER, 1, sizeof *deal);
    if (!deal)
        return hr__fail(error, -ENOMEM, "out of memory for an epoch's plan");
    deal->deal = (struct hr__deal){.batch = deal_batch, .destroy = destroy_deal};
    pthread_mutex_init(&deal->lock, NULL);
    deal->cluster = hr__cluster_ref(cluster);
    deal->owners = hr__placement_owners(cluster->placement);
    r = make_plan(l, cluster, plan, deal, error);
    if (r) {
        destroy_deal(&deal->deal);
        return r;
    }
    *out = deal;
    return 0;
}

/* Returns a reference to the list of hosts for an epoch. Switches to the next list first if the
 * epoch has come; *before is then the old list, which the caller gives back. */
static struct hr__cluster *choose_cluster_locked(struct hr_loader *l, const struct hr__epoch *plan,
                                                 struct hr__cluster **before)
{
    struct hr__hosting *h = l->hosting;
    if (h->next && plan->epoch >= h->next_epoch) {
        hr__hosting_drop_stores_locked(l, h->cluster);
        *before = h->cluster;
        h->cluster = h->next;
        h->next = NULL;
        h->generation++;
        h->has_run = 0;
    }
    return hr__cluster_ref(h->cluster);
}

/* From now on batches of the plan can be opened. */
static void begin_dealt_locked(struct hr_loader *l, struct hr__epoch *plan,
                               struct hr__host_deal *deal)
{
    struct hr__hosting *h = l->hosting;
    plan->deal = &deal->deal;
    h->begun_ns = hr__now_ns();
    h->missed = 0;
    h->ahead_count = h->ahead_at = 0;
    h->ahead_next = 0;
    for (int i = 0; i < deal->cluster->hosts.count; i++)
        deal->cluster->queues[i].asked = deal->cluster->queues[i].found = 0;
    hr__wake_claimers_locked(l);
}

static int wants_deal_locked(const struct hr_loader *l)
{
    return l->plan && !l->plan->deal && !l->no_more && !l->broken.code;
}

/* Makes the deal of the loader's plan. Drops it if the loader has another plan by then. */
static void deal_unlocking(struct hr_loader *l)
{
    struct hr__hosting *h = l->hosting;
    struct hr__epoch *plan = hr__epoch_ref(l->plan);
    struct hr__cluster *before = NULL, *cluster = choose_cluster_locked(l, plan, &before);
    struct hr__host_deal *deal = NULL;
    struct hr_error error = {0};
    atomic_store(&h->halt, 0);
    h->is_dealing = 1;
    pthread_mutex_unlock(&l->lock);
    hr__cluster_unref(&before);
    int r = make_deal(l, cluster, plan, &deal, &error);
    pthread_mutex_lock(&l->lock);
    h->is_dealing = 0;
    int wanted = !l->stop && l->plan == plan && !l->no_more;
    if (wanted && !r) {
        begin_dealt_locked(l, plan, deal);
        deal = NULL;
    } else if (wanted) {
        l->broken = error;
        l->broken.code = r;
        l->no_more = 1;
        hr__wake_consumer_locked(l);
    }
    pthread_mutex_unlock(&l->lock);
    if (!r && wanted)
        hr__cluster_ask(l, cluster);
    if (deal)
        destroy_deal(&deal->deal);
    hr__cluster_unref(&cluster);
    hr__epoch_unref(&plan);
    pthread_mutex_lock(&l->lock);
}

void hr__hosting_begin_locked(struct hr_loader *l)
{
    struct hr__hosting *h = l->hosting;
    uint64_t waited_ns = HR__COUNTED(l, wait_ns);
    if (l->epoch_seen)
        h->wait_s = (double)(waited_ns - h->wait_before_ns) * 1e-9;
    h->wait_before_ns = waited_ns;
    h->drain_ns = 0;
    h->ahead_count = h->ahead_at = 0;
    if (h->is_dealing)
        atomic_store(&h->halt, 1);
    pthread_cond_signal(&h->dealing);
}

void *hr__deal_main(void *arg)
{
    struct hr__thread *self = arg;
    struct hr_loader *l = self->loader;
    struct hr__hosting *h = l->hosting;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (wants_deal_locked(l))
            deal_unlocking(l);
        else if (hr__hosting_wants_look_locked(l))
            hr__hosting_look_unlocking(l);
        else
            pthread_cond_wait(&h->dealing, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}
