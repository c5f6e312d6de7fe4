/*
 * Reading ahead: while no sample of an open batch waits for storage, fetchers read samples of this
 * rank's later batches, in order of use, and host threads store them at their owners. Each sample
 * is used once in an epoch, by this rank, so no other rank reads it.
 *
 * The dealer searches one batch after the other and lists the samples worth reading; fetchers take
 * them from the list. A sample is worth reading if this rank has not seen its item at the owner and
 * the owner lacks most of the items it is asked for. So in an epoch in which all items are found,
 * nothing is read ahead.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "loader/hosts/inside.h"

/* An owner must have lacked so many items before anything is read ahead for it. */
#define LACKING_MIN 4

/* After so many items that were on a server and no longer are, all of that server's are presumed
 * lost. */
#define LOST_MAX 16

static int is_lacking(const struct hr__host_queue *q)
{
    uint64_t lacked = q->asked - q->found;
    return lacked >= LACKING_MIN && lacked > q->found && !q->refused;
}

void hr__hosting_note_locked(struct hr_loader *l, struct hr__cluster *cluster, int owner,
                             uint64_t index, int is_found)
{
    struct hr__host_queue *q = &cluster->queues[owner];
    uint8_t *known = &cluster->known[index];
    if (!(*known & HR__ITEM_THERE)) {
        q->asked++;
        q->found += is_found != 0;
    } else if (!is_found) {
        q->lost++;
    }
    if (is_found) {
        *known |= HR__ITEM_THERE;
        return;
    }
    l->hosting->missed++;
    *known &= (uint8_t)~HR__ITEM_THERE;
    if (q->lost < LOST_MAX || !cluster->placement)
        return;
    /* The server was restarted and is empty. */
    const uint16_t *owners = hr__placement_owners(cluster->placement);
    for (uint64_t i = 0; i < cluster->samples; i++)
        if (owners[i] == owner)
            cluster->known[i] &= (uint8_t)~HR__ITEM_THERE;
    q->lost = 0;
    q->refused = 0;
}

/* Returns non-zero if a sample is to be read ahead. */
static int is_wanted_locked(const struct hr__host_deal *deal, uint64_t index)
{
    uint16_t owner = deal->owners[index];
    const struct hr__cluster *cluster = deal->cluster;
    return owner != HR__NOBODY && !cluster->known[index] && is_lacking(&cluster->queues[owner]) &&
           hr__peers_is_up(cluster->peers, owner);
}

int hr__hosting_wants_look_locked(const struct hr_loader *l)
{
    const struct hr__hosting *h = l->hosting;
    return h->missed >= LACKING_MIN && h->ahead_at == h->ahead_count && l->plan && l->plan->deal &&
           !l->no_more && h->ahead_next < l->plan->batches;
}

void hr__hosting_look_unlocking(struct hr_loader *l)
{
    struct hr__hosting *h = l->hosting;
    struct hr__epoch *plan = l->plan;
    uint64_t number = h->ahead_next > l->opened ? h->ahead_next : l->opened;
    h->ahead_next = number + 1;
    if (number >= plan->batches)
        return;
    hr__epoch_ref(plan);
    pthread_mutex_unlock(&l->lock);
    size_t padding, count = plan->deal->batch(plan->deal, number, h->ahead_positions, &padding);
    for (size_t i = 0; i < count; i++)
        h->ahead[i] = (int64_t)hr__order_at(plan->order, h->ahead_positions[i]);
    pthread_mutex_lock(&l->lock);
    if (l->plan == plan) {
        size_t wanted = 0;
        for (size_t i = 0; i < count; i++)
            if (is_wanted_locked(hr__deal_of(plan), (uint64_t)h->ahead[i]))
                h->ahead[wanted++] = h->ahead[i];
        h->ahead_count = wanted;
        h->ahead_at = 0;
        h->ahead_number = number;
        if (wanted && l->idle_fetchers)
            pthread_cond_signal(&l->fetch);
    }
    pthread_mutex_unlock(&l->lock);
    hr__epoch_unref(&plan);
    pthread_mutex_lock(&l->lock);
}

/* Returns the next sample to read ahead, or -1. */
static int64_t next_wanted_locked(struct hr_loader *l)
{
    struct hr__hosting *h = l->hosting;
    if (h->ahead_number < l->opened)
        h->ahead_at = h->ahead_count;
    while (h->ahead_at < h->ahead_count) {
        int64_t index = h->ahead[h->ahead_at++];
        if (is_wanted_locked(hr__deal_of(l->plan), (uint64_t)index))
            return index;
    }
    return -1;
}

struct hr__job *hr__hosting_ahead_locked(struct hr_loader *l)
{
    struct hr__hosting *h = l->hosting;
    if (h->reads || hr__can_claim_locked(l) || l->no_more || !l->plan || !l->plan->deal ||
        h->ahead_bytes + h->store_bytes > HR__AHEAD_BYTES)
        return NULL;
    int64_t index = next_wanted_locked(l);
    if (hr__hosting_wants_look_locked(l))
        pthread_cond_signal(&h->dealing);
    struct hr__job *job = index < 0 ? NULL : hr__take_job_locked(l);
    if (!job)
        return NULL;
    job->batch = NULL;
    job->ahead = (uint64_t)index;
    job->generation = h->generation;
    job->unread = 1;
    job->tier = HR__TIER_STORAGE;
    job->from_source = 1; /* a disk's items are checked by workers, which do not see this one */
    job->seen = 0;
    job->ahead_bytes = h->cluster->sizes[index];
    h->ahead_bytes += job->ahead_bytes;
    h->cluster->known[index] |= HR__ITEM_COMING;
    hr__tier_meter_begin_locked(&h->meters[HR__TIER_STORAGE], hr__now_ns());
    return job;
}

/* Queues the bytes that were read to be stored. Returns 0 if out of memory. */
static int store_locked(struct hr_loader *l, struct hr__job *job)
{
    struct hr__read *read = &job->sample.read;
    struct hr__pending_store *store = hr__alloc(HR__TAG_LOADER, 1, sizeof *store);
    if (!store)
        return 0;
    hr__hosting_learn(l, job, job->ahead);
    store->index = job->ahead;
    store->seen = job->seen;
    store->bytes = read->bytes;
    store->length = read->length;
    hr__uncount(&hr__counters_here(l)->staged_bytes, read->length);
    read->bytes = NULL;
    hr__hosting_push_store_locked(l, store);
    return 1;
}

/* Ends a job, whether it was read or not, and frees it. */
static void end_locked(struct hr_loader *l, struct hr__job *job)
{
    struct hr__hosting *h = l->hosting;
    struct hr__read *read = &job->sample.read;
    h->ahead_bytes -= job->ahead_bytes;
    hr__hosting_read_ended_locked(l, job);
    int is_read = !job->unread && !read->result && read->bytes;
    if (job->generation == h->generation) {
        struct hr__job *held = hr__hosting_unhold_locked(l, job->ahead);
        uint8_t *known = &h->cluster->known[job->ahead];
        if (is_read)
            hr__count(&hr__counters_here(l)->read_ahead, 1);
        if (held && is_read) {
            /* A batch already needs the sample: give it the bytes first; they are stored after
             * that. */
            struct hr__sample sample = held->sample;
            held->sample = job->sample;
            job->sample = sample;
            job->sample.read.bytes = NULL;
            held->sample.read.user = held;
            held->mask_read = job->mask_read;
            job->mask_read = HR__MASK_UNREAD;
            held->seen = job->seen;
            *known &= (uint8_t)~HR__ITEM_COMING;
            hr__hosting_hand_over_locked(l, held);
        } else if (held || !is_read || !store_locked(l, job)) {
            *known &= (uint8_t)~HR__ITEM_COMING;
            if (held)
                hr__hosting_to_read_locked(l, held);
        }
        if (!(*known & HR__ITEM_COMING))
            hr__hosting_release_locked(l, job->ahead);
    }
    if (is_read)
        hr__drop_bytes(l, &job->sample.read);
    hr__free_job_locked(l, job);
}

int hr__hosting_landed_locked(struct hr_loader *l, struct hr__job *job)
{
    if (!job->batch) {
        end_locked(l, job);
        return 1;
    }
    if (!job->is_item)
        hr__hosting_read_ended_locked(l, job);
    return 0;
}
