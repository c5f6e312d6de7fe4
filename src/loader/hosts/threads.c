/*
 * The host threads. Each takes a group of items of one owner, that of the earliest turn, requests
 * them from its server in bulk, and passes those found to the workers; or it stores a group.
 *
 * The number that fetch at once depends on the workers: one more if items wait and workers run
 * short of staged samples, one less if many are staged. While a request is in progress the next
 * group grows, so that a few threads make large requests.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "loader/hosts/inside.h"

#include <string.h>
#include <time.h>

/* A server whose request takes longer is slow, and gets only one thread. */
#define SLOW_NS 100000000u

/* Other ranks may still be storing samples that they read at the end of the previous epoch. So in
 * the first GRACE_NS of an epoch, missing items are requested again, after the pauses below. */
#define GRACE_NS UINT64_C(500000000)

/* When to try again if no slot was free for the next batch. */
#define RETRY_NS UINT64_C(2000000)

static const uint64_t pauses_ns[] = {3000000, 10000000, 30000000};

/* Returns non-zero if the staging budget has room for another item. */
static int has_room_locked(const struct hr_loader *l, uint64_t bytes)
{
    uint64_t budget = l->options.staging_bytes;
    return !l->reserved_items ||
           (l->reserved_bytes + bytes <= budget && l->reserved_items + bytes <= budget / 4 * 3);
}

/* Chooses the host whose first item has the earliest turn, of those that may be asked now; -1:
 * none. Items of hosts that are down become reads from storage. */
static int pick_locked(struct hr_loader *l)
{
    const struct hr__hosting *h = l->hosting;
    struct hr__cluster *cluster = h->cluster;
    int best = -1;
    uint64_t turn = UINT64_MAX;
    for (int i = 0; i < cluster->hosts.count; i++) {
        struct hr__host_queue *q = &cluster->queues[i];
        if (!q->first)
            continue;
        if (!hr__peers_is_up(cluster->peers, i)) {
            hr__hosting_reroute_locked(l, i);
            continue;
        }
        /* Keep one thread for the fast hosts. */
        int is_barred = q->is_slow && (q->threads || h->slow >= h->thread_count - 1);
        if (q->first->turn < turn && !is_barred) {
            turn = q->first->turn;
            best = i;
        }
    }
    return best;
}

/* Takes the first items of a host, as many as fit into a group and the budget. */
static void take_group_locked(struct hr_loader *l, int host, struct hr__group *g)
{
    struct hr__hosting *h = l->hosting;
    struct hr__host_queue *q = &h->cluster->queues[host];
    uint64_t bytes = 0;
    g->cluster = hr__cluster_ref(h->cluster);
    g->owner = host;
    g->count = 0;
    while (q->first && g->count < HR__GROUP_ITEMS) {
        struct hr__job *job = q->first;
        uint64_t size = hr__item_size(l, job);
        if (!has_room_locked(l, size) || (g->count && bytes + size > HR__GROUP_BYTES))
            break;
        q->first = job->next;
        if (!q->first)
            q->last = NULL;
        job->next = NULL;
        job->is_item = 1;
        h->queued--;
        hr__charge_locked(l, job, size);
        bytes += size;
        g->jobs[g->count++] = job;
    }
}

/* Requests the items of a group at places at[] from the server. An item that was made from another
 * state of its file counts as not found. */
static void fetch_items(const struct hr_loader *l, struct hr__group *g, const size_t *at,
                        size_t count)
{
    struct hr__peer_item asked[HR__GROUP_ITEMS];
    for (size_t i = 0; i < count; i++)
        asked[i] = g->items[at[i]];
    if (count)
        hr__peers_fetch(g->cluster->peers, g->owner, asked, count);
    for (size_t i = 0; i < count; i++) {
        const struct hr__job *job = g->jobs[at[i]];
        uint64_t index = (uint64_t)job->batch->indices[job->place];
        struct hr__peer_item *item = &g->items[at[i]];
        if (!asked[i].bytes)
            continue;
        if (hr__hosting_is_believed(l, g->cluster, index, &g->stamps[at[i]], &asked[i])) {
            *item = asked[i];
        } else {
            hr__free(asked[i].bytes);
            g->asking[at[i]] = HR__ASK_NOT;
        }
    }
}

/* Looks at the files, then asks the server. Without the lock. */
static void ask(const struct hr_loader *l, struct hr__group *g)
{
    size_t n = 0, at[HR__GROUP_ITEMS];
    for (size_t i = 0; i < g->count; i++) {
        struct hr__job *job = g->jobs[i];
        uint64_t index = (uint64_t)job->batch->indices[job->place];
        struct hr__stamp *stamp = &g->stamps[i];
        g->asking[i] = hr__hosting_look(l, g->cluster, index, stamp, &g->items[i]);
        int is_known = g->asking[i] == HR__ASK && (stamp->bytes || stamp->change);
        job->seen = is_known ? hr__stamp_digest(stamp) : 0;
        if (g->asking[i] == HR__ASK)
            at[n++] = i;
    }
    fetch_items(l, g, at, n);
}

/* Returns non-zero while other ranks may still be storing items. */
static int is_early(struct hr_loader *l, const struct hr__group *g)
{
    struct hr__hosting *h = l->hosting;
    const struct hr__host_queue *q = &g->cluster->queues[g->owner];
    pthread_mutex_lock(&l->lock);
    int is_early = !l->stop && h->has_run && !q->refused && !q->lost &&
                   hr__now_ns() - h->begun_ns < GRACE_NS &&
                   hr__peers_is_up(g->cluster->peers, g->owner);
    pthread_mutex_unlock(&l->lock);
    return is_early;
}

/* Finds the places of items that were requested and not found; returns how many. */
static size_t find_missing(const struct hr__group *g, size_t at[HR__GROUP_ITEMS])
{
    size_t n = 0;
    for (size_t i = 0; i < g->count; i++)
        if (g->asking[i] == HR__ASK && !g->items[i].bytes)
            at[n++] = i;
    return n;
}

/* Makes an item that was found the bytes of a job. */
static void fill_job(struct hr_loader *l, const struct hr__group *g, struct hr__job *job,
                     const struct hr__peer_item *item)
{
    struct hr__counters *c = hr__counters_here(l);
    int is_own = g->owner == g->cluster->hosts.self;
    job->sample.read = (struct hr__read){
        .fd = -1,
        .bytes = item->bytes,
        .length = item->length,
        .user = job,
    };
    job->unread = 0;
    job->mask_read = l->dataset->masks ? HR__MASK_WITHIN : HR__MASK_UNREAD;
    job->tier = is_own ? HR__TIER_OWN : HR__TIER_PEER;
    hr__count(&c->staged_bytes, item->length);
    hr__count(&c->cache_hits, 1);
    hr__count(is_own ? &c->own_hits : &c->peer_hits, 1);
    hr__count(is_own ? &c->own_bytes : &c->peer_bytes, item->length);
}

/* Queues an item that the server lacks to be read from storage. Returns a slot to give back. */
static struct hr_batch *miss_locked(struct hr_loader *l, struct hr__job *job)
{
    job->unread = 1;
    job->tier = HR__TIER_STORAGE;
    job->sample.read.bytes = NULL;
    if (job->batch->cancelled)
        return hr__deliver_locked(l, job);
    hr__charge_locked(l, job, 0);
    hr__hosting_to_read_locked(l, job);
    return NULL;
}

/* Passes the results of a group to the workers and the fetchers. Returns slots to give back. */
static struct hr_batch *hand_out_locked(struct hr_loader *l, struct hr__group *g,
                                        uint64_t *found_bytes)
{
    struct hr_batch *slots = NULL;
    *found_bytes = 0;
    for (size_t i = 0; i < g->count; i++) {
        struct hr__job *job = g->jobs[i];
        uint64_t index = (uint64_t)job->batch->indices[job->place];
        int is_found = g->items[i].bytes != NULL;
        hr__hosting_note_locked(l, g->cluster, g->owner, index, is_found);
        if (g->asking[i] == HR__ASK_NEVER)
            g->cluster->known[index] |= HR__ITEM_NEVER;
        if (is_found)
            *found_bytes += g->items[i].length;
        struct hr_batch *slot = is_found ? hr__deliver_locked(l, job) : miss_locked(l, job);
        if (slot) {
            slot->next = slots;
            slots = slot;
        }
    }
    return slots;
}

/* Uses more threads while items wait and workers run short, fewer while many samples are staged. */
static void adapt_locked(struct hr_loader *l, int is_waiting)
{
    struct hr__hosting *h = l->hosting;
    uint64_t workers = (uint64_t)l->workers_wanted;
    if (is_waiting && l->fetched < workers && h->allowed < h->thread_count) {
        h->allowed++;
        pthread_cond_signal(&h->work);
    } else if (l->fetched > 4 * workers && h->allowed > 1) {
        h->allowed--;
    }
}

/* Fetches one group. Returns 0 if there is none to fetch now. */
static int fetch_unlocking(struct hr__thread *self, struct hr__group *g)
{
    struct hr_loader *l = self->loader;
    struct hr__hosting *h = l->hosting;
    int host = h->fetching < h->allowed ? pick_locked(l) : -1;
    if (host < 0)
        return 0;
    take_group_locked(l, host, g);
    if (!g->count) {
        hr__cluster_unref(&g->cluster); /* not the last reference: the loader has its own */
        return 0;
    }
    struct hr__host_queue *q = &g->cluster->queues[host];
    struct hr__tier_meter *meter =
        &h->meters[host == g->cluster->hosts.self ? HR__TIER_OWN : HR__TIER_PEER];
    uint64_t start_ns = hr__now_ns();
    int is_slow = q->is_slow;
    h->fetching++;
    h->slow += is_slow;
    q->threads++;
    hr__tier_meter_begin_locked(meter, start_ns);
    int is_waiting = pick_locked(l) >= 0;
    adapt_locked(l, is_waiting);
    pthread_mutex_unlock(&l->lock);
    ask(l, g);
    uint64_t end_ns = hr__now_ns(), found_bytes;
    for (size_t i = 0; i < sizeof pauses_ns / sizeof *pauses_ns; i++) {
        size_t at[HR__GROUP_ITEMS], missing = find_missing(g, at);
        if (!missing || !is_early(l, g))
            break;
        struct timespec pause = hr__timespec(pauses_ns[i]);
        nanosleep(&pause, NULL);
        fetch_items(l, g, at, missing);
    }
    for (size_t i = 0; i < g->count; i++)
        if (g->items[i].bytes)
            fill_job(l, g, g->jobs[i], &g->items[i]);
    pthread_mutex_lock(&l->lock);
    struct hr_batch *slots = hand_out_locked(l, g, &found_bytes);
    hr__tier_meter_end_locked(meter, end_ns, found_bytes);
    if (found_bytes)
        hr__tier_meter_note_locked(meter, found_bytes, end_ns - start_ns);
    h->fetching--;
    h->slow -= is_slow;
    q->threads--;
    q->is_slow = end_ns - start_ns > SLOW_NS;
    if (hr__hosting_wants_look_locked(l))
        pthread_cond_signal(&h->dealing);
    pthread_mutex_unlock(&l->lock);
    hr__return_slots(slots);
    hr__cluster_unref(&g->cluster);
    pthread_mutex_lock(&l->lock);
    return 1;
}

void *hr__host_main(void *arg)
{
    struct hr__thread *self = arg;
    struct hr_loader *l = self->loader;
    struct hr__hosting *h = l->hosting;
    struct hr__group *g = &h->groups[self->number];
    hr__numa_enter("", &l->home, 0);
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        h->trying++;
        int refused = hr__hosting_deal_unlocking(l, 0);
        h->trying--;
        if (l->stop)
            break;
        /* Store first: workers block if too many bytes wait to be stored. */
        int is_full = h->store_bytes > HR__STORE_BYTES / 2;
        if (is_full && hr__hosting_store_unlocking(self))
            continue;
        if (fetch_unlocking(self, g))
            continue;
        if (!is_full && hr__hosting_store_unlocking(self))
            continue;
        h->idle++;
        if (refused) {
            struct timespec until = hr__timespec(hr__now_ns() + RETRY_NS);
            pthread_cond_timedwait(&h->work, &l->lock, &until);
        } else {
            pthread_cond_wait(&h->work, &l->lock);
        }
        h->idle--;
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}
