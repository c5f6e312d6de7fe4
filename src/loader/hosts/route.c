/*
 * Routes jobs: claims them in order and puts each into its owner's queue, into the list of reads
 * from storage, or, if its sample is already being read ahead or stored, into the list of held
 * jobs. Only jobs that a thread takes are charged to the staging budget. Neither reads nor items
 * may take more than three quarters of the budget, so that neither starves the other.
 */
#include "base/clock.h"
#include "loader/hosts/inside.h"

static uint64_t index_of(const struct hr__job *job)
{
    return (uint64_t)job->batch->indices[job->place];
}

uint64_t hr__item_size(const struct hr_loader *l, const struct hr__job *job)
{
    const struct hr__cluster *cluster = hr__deal_of(job->batch->plan)->cluster;
    return hr__size_of(l, job->batch, job->place) * cluster->charge_percent / 100;
}

/* Inserts a job by its turn: mostly at the end; an item that a server lacked goes before samples
 * that nobody owns. */
static void append_read_locked(struct hr__hosting *h, struct hr__job *job)
{
    struct hr__job **at = &h->reads;
    if (h->reads_last && h->reads_last->turn < job->turn)
        at = &h->reads_last->next;
    while (*at && (*at)->turn < job->turn)
        at = &(*at)->next;
    job->next = *at;
    *at = job;
    if (!job->next)
        h->reads_last = job;
}

void hr__hosting_to_read_locked(struct hr_loader *l, struct hr__job *job)
{
    job->tier = HR__TIER_STORAGE;
    job->unread = 1;
    if (!l->live_fetchers && l->reader_state) {
        hr__stage_locked(l, job);
        return;
    }
    append_read_locked(l->hosting, job);
    if (l->idle_fetchers)
        pthread_cond_signal(&l->fetch);
}

void hr__hosting_hand_over_locked(struct hr_loader *l, struct hr__job *job)
{
    job->tier = HR__TIER_STORAGE;
    job->unread = 0;
    job->is_item = 0;
    hr__charge_locked(l, job, job->sample.read.length);
    hr__stage_locked(l, job);
}

static void append_locked(struct hr__hosting *h, struct hr__host_queue *q, struct hr__job *job)
{
    h->queued++;
    job->next = NULL;
    if (q->last)
        q->last->next = job;
    else
        q->first = job;
    q->last = job;
}

/* Puts a job that was just claimed, or is no longer held, where it belongs. */
static void place_locked(struct hr_loader *l, struct hr__job *job)
{
    struct hr__hosting *h = l->hosting;
    const struct hr__host_deal *deal = hr__deal_of(job->batch->plan);
    struct hr__cluster *cluster = deal->cluster;
    uint64_t index = index_of(job);
    uint16_t owner = deal->owners[index];
    uint8_t known = cluster->known[index];
    if (owner == HR__NOBODY || known & HR__ITEM_NEVER) {
        hr__hosting_to_read_locked(l, job);
    } else if (known & HR__ITEM_COMING) {
        job->next = h->held;
        h->held = job;
    } else if (!hr__peers_is_up(cluster->peers, owner)) {
        hr__hosting_to_read_locked(l, job);
    } else {
        append_locked(h, &cluster->queues[owner], job);
    }
}

/* Wakes one host thread, or all if several may find something to do. */
static void wake_for_queues_locked(struct hr__hosting *h)
{
    if (!h->idle || !h->queued)
        return;
    if (h->queued > 1 && h->cluster->hosts.count > 1)
        pthread_cond_broadcast(&h->work);
    else
        pthread_cond_signal(&h->work);
}

int hr__hosting_deal_unlocking(struct hr_loader *l, int may_wait)
{
    struct hr__hosting *h = l->hosting;
    int routed = 0, refused = 0;
    while (hr__can_claim_locked(l)) {
        struct hr__job *job = hr__claim_unlocking(l, may_wait && !h->reads);
        if (!job) {
            refused = hr__can_claim_locked(l);
            break;
        }
        job->turn = h->turn++;
        place_locked(l, job);
        routed = 1;
    }
    if (routed)
        wake_for_queues_locked(h);
    return refused;
}

int hr__hosting_has_read_locked(const struct hr_loader *l)
{
    const struct hr__hosting *h = l->hosting;
    if (!h->reads)
        return 0;
    uint64_t bytes = hr__size_of(l, h->reads->batch, h->reads->place);
    uint64_t budget = l->options.staging_bytes, reads = l->reserved_bytes - l->reserved_items;
    return !reads || (l->reserved_bytes + bytes <= budget && reads + bytes <= budget / 4 * 3);
}

struct hr__job *hr__hosting_read_locked(struct hr_loader *l)
{
    struct hr__hosting *h = l->hosting;
    if (!hr__hosting_has_read_locked(l))
        return NULL;
    struct hr__job *job = h->reads;
    h->reads = job->next;
    if (!h->reads)
        h->reads_last = NULL;
    job->next = NULL;
    job->is_item = 0;
    hr__charge_locked(l, job, hr__size_of(l, job->batch, job->place));
    hr__tier_meter_begin_locked(&h->meters[HR__TIER_STORAGE], hr__now_ns());
    return job;
}

void hr__hosting_read_ended_locked(struct hr_loader *l, const struct hr__job *job)
{
    hr__tier_meter_end_locked(&l->hosting->meters[HR__TIER_STORAGE], hr__now_ns(),
                              job->unread || !job->sample.read.bytes ? 0 : job->sample.read.length);
}

void hr__hosting_wake_locked(struct hr_loader *l)
{
    struct hr__hosting *h = l->hosting;
    wake_for_queues_locked(h);
    /* A thread that found no slot tries again by itself; if it woke another, that one would find
     * none either. */
    if (h->idle && !h->queued && !h->trying && hr__can_claim_locked(l))
        pthread_cond_signal(&h->work);
    if (l->idle_fetchers && h->reads)
        pthread_cond_signal(&l->fetch);
}

void hr__hosting_readers_gone_locked(struct hr_loader *l)
{
    struct hr__hosting *h = l->hosting;
    struct hr__job *list = h->reads;
    h->reads = h->reads_last = NULL;
    while (list) {
        struct hr__job *job = list;
        list = job->next;
        hr__hosting_to_read_locked(l, job);
    }
    pthread_cond_broadcast(&h->work);
}

void hr__hosting_reroute_locked(struct hr_loader *l, int host)
{
    struct hr__host_queue *q = &l->hosting->cluster->queues[host];
    struct hr__job *list = q->first;
    q->first = q->last = NULL;
    while (list) {
        struct hr__job *job = list;
        list = job->next;
        l->hosting->queued--;
        hr__hosting_to_read_locked(l, job);
    }
}

struct hr__job *hr__hosting_unhold_locked(struct hr_loader *l, uint64_t index)
{
    for (struct hr__job **at = &l->hosting->held; *at; at = &(*at)->next) {
        struct hr__job *job = *at;
        if (index_of(job) != index)
            continue;
        *at = job->next;
        job->next = NULL;
        return job;
    }
    return NULL;
}

void hr__hosting_release_locked(struct hr_loader *l, uint64_t index)
{
    struct hr__job *job;
    while ((job = hr__hosting_unhold_locked(l, index)))
        place_locked(l, job);
    wake_for_queues_locked(l->hosting);
}

/* Ends jobs that no thread has: counts them as done. */
static void take_back_locked(struct hr_loader *l, struct hr__job *list)
{
    while (list) {
        struct hr__job *job = list;
        list = job->next;
        job->batch->done++;
        l->complete += job->batch->done == job->batch->count;
        hr__free_job_locked(l, job);
    }
}

void hr__hosting_cancel_locked(struct hr_loader *l)
{
    struct hr__hosting *h = l->hosting;
    if (!h->cluster) /* hr__hosting_create failed before the cluster was made */
        return;
    take_back_locked(l, h->reads);
    take_back_locked(l, h->held);
    h->reads = h->reads_last = h->held = NULL;
    for (int i = 0; i < h->cluster->hosts.count; i++) {
        struct hr__host_queue *q = &h->cluster->queues[i];
        take_back_locked(l, q->first);
        q->first = q->last = NULL;
    }
    h->queued = 0;
}

void hr__hosting_ready_locked(struct hr_loader *l, const struct hr_batch *batch)
{
    double seconds = (double)(hr__now_ns() - batch->opened_ns) * 1e-9;
    double *mean = &l->hosting->ready_s;
    *mean = *mean > 0 ? *mean + (seconds - *mean) / 16 : seconds;
}
