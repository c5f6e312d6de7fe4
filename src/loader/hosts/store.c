/*
 * Stores samples that were read from storage at their owners' servers.
 *
 * Bytes wait in bounded queues, one for each owner. A host thread takes a group of one owner,
 * checks that the files are still the ones that the keys describe, converts the bytes to the form
 * of the list, and stores them in bulk. What cannot be stored is dropped and counted; it will be
 * read again.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/pair.h"
#include "loader/caching.h"
#include "loader/hosts/inside.h"

#include <errno.h>
#include <string.h>

/* The longest that a worker waits for room. */
#define OFFER_NS UINT64_C(1000000000)

/* How long a server is offered nothing after its memory was full. */
#define FULL_NS UINT64_C(2000000000)

/* The longest that the end of an epoch waits for stores. */
#define DRAIN_NS UINT64_C(15000000000)

/* A server whose request takes longer is slow, and gets only one thread. */
#define SLOW_NS UINT64_C(500000000)

/* A group being stored. */
struct stores {
    struct hr__cluster *cluster; /* a reference */
    int owner;
    size_t count;
    struct hr__pending_store *stores[HR__GROUP_ITEMS];
    struct hr__peer_item items[HR__GROUP_ITEMS];
    uint8_t *converted[HR__GROUP_ITEMS]; /* owned; NULL: stored as it is */
};

void hr__hosting_push_store_locked(struct hr_loader *l, struct hr__pending_store *store)
{
    struct hr__hosting *h = l->hosting;
    int owner = hr__placement_owners(h->cluster->placement)[store->index];
    struct hr__host_queue *q = &h->cluster->queues[owner];
    h->cluster->known[store->index] |= HR__ITEM_COMING;
    store->next = NULL;
    if (q->stores_last)
        q->stores_last->next = store;
    else
        q->stores = store;
    q->stores_last = store;
    q->store_bytes += store->length;
    h->stores++;
    h->store_bytes += store->length;
    if (h->idle)
        pthread_cond_signal(&h->work);
}

static void free_store(struct hr__pending_store *store)
{
    hr__free(store->bytes);
    hr__free(store);
}

/* Subtracts a store that is done or given up, and wakes those that wait for room or for the end. */
static void account_locked(struct hr_loader *l, struct hr__host_queue *q,
                           const struct hr__pending_store *store)
{
    struct hr__hosting *h = l->hosting;
    q->store_bytes -= store->length;
    h->stores--;
    h->store_bytes -= store->length;
    pthread_cond_broadcast(&h->space);
    if (h->drain_ns)
        hr__wake_consumer_locked(l);
    if (l->idle_fetchers && h->ahead_at < h->ahead_count)
        pthread_cond_signal(&l->fetch);
}

/* Gives up a store. If a batch is waiting for its sample, that batch gets the bytes. */
static void give_up_locked(struct hr_loader *l, struct hr__pending_store *store)
{
    struct hr__hosting *h = l->hosting;
    h->cluster->known[store->index] &= (uint8_t)~HR__ITEM_COMING;
    struct hr__job *held = hr__hosting_unhold_locked(l, store->index);
    if (held) {
        held->sample.read = (struct hr__read){
            .fd = -1, .bytes = store->bytes, .length = store->length, .user = held};
        held->mask_read = l->dataset->masks ? HR__MASK_WITHIN : HR__MASK_UNREAD;
        store->bytes = NULL;
        hr__count(&hr__counters_here(l)->staged_bytes, store->length);
        hr__hosting_hand_over_locked(l, held);
    }
    hr__hosting_release_locked(l, store->index);
}

static struct hr__pending_store *pop_locked(struct hr__host_queue *q)
{
    struct hr__pending_store *store = q->stores;
    q->stores = store->next;
    if (!q->stores)
        q->stores_last = NULL;
    return store;
}

void hr__hosting_drop_stores_locked(struct hr_loader *l, struct hr__cluster *cluster)
{
    for (int i = 0; i < cluster->hosts.count; i++)
        while (cluster->queues[i].stores) {
            struct hr__pending_store *store = pop_locked(&cluster->queues[i]);
            account_locked(l, &cluster->queues[i], store);
            free_store(store);
        }
}

int hr__hosting_is_storing_locked(struct hr_loader *l)
{
    struct hr__hosting *h = l->hosting;
    uint64_t now_ns = hr__now_ns();
    h->has_run = 1;
    if (!h->stores) {
        h->drain_ns = 0;
        return 0;
    }
    if (!h->drain_ns)
        h->drain_ns = now_ns + DRAIN_NS;
    return now_ns < h->drain_ns;
}

/* Returns non-zero if there is room to store more. One host may take half of the room, since it may
 * be slow. */
static int has_space_locked(const struct hr__hosting *h, int owner, uint64_t bytes)
{
    uint64_t of_host = h->cluster->queues[owner].store_bytes;
    uint64_t most = h->cluster->hosts.count > 1 ? HR__STORE_BYTES / 2 : HR__STORE_BYTES;
    return !h->store_bytes ||
           (h->store_bytes + bytes <= HR__STORE_BYTES && (!of_host || of_host + bytes <= most));
}

void hr__hosting_offer(struct hr__thread *self, struct hr__job *job, uint64_t index,
                       const struct hr__cost *cost)
{
    struct hr_loader *l = self->loader;
    struct hr__hosting *h = l->hosting;
    const struct hr__host_deal *deal = hr__deal_of(job->batch->plan);
    struct hr__read *read = &job->sample.read;
    uint16_t owner = deal->owners[index];
    if (owner == HR__NOBODY && h->disk)
        h->disk->offer(self, job, index, cost); /* learns for itself */
    else if (job->tier == HR__TIER_STORAGE)
        hr__hosting_learn(l, job, index);
    if (owner == HR__NOBODY || job->tier != HR__TIER_STORAGE ||
        !hr__peers_is_up(deal->cluster->peers, owner) || hr__job_join(l, job))
        return;
    struct hr__pending_store *store = hr__alloc(HR__TAG_LOADER, 1, sizeof *store);
    if (!store)
        return;
    store->index = index;
    store->seen = job->seen;
    uint64_t until_ns = hr__now_ns() + OFFER_NS;
    struct timespec until = hr__timespec(until_ns);
    pthread_mutex_lock(&l->lock);
    int is_taken = deal->cluster == h->cluster && !h->cluster->known[index] &&
                   h->cluster->queues[owner].full_until_ns < hr__now_ns();
    while (is_taken && !l->stop && !has_space_locked(h, owner, read->length) &&
           hr__peers_is_up(deal->cluster->peers, owner)) {
        if (pthread_cond_timedwait(&h->space, &l->lock, &until) == ETIMEDOUT) {
            hr__count(&hr__counters_here(l)->refused, 1);
            is_taken = 0;
        }
        is_taken = is_taken && deal->cluster == h->cluster && !h->cluster->known[index];
    }
    if (is_taken) {
        store->bytes = read->bytes;
        store->length = read->length;
        read->bytes = NULL;
        hr__uncount(&hr__counters_here(l)->staged_bytes, store->length);
        hr__hosting_push_store_locked(l, store);
        store = NULL;
    }
    pthread_mutex_unlock(&l->lock);
    hr__free(store);
}

void hr__hosting_forget(struct hr_loader *l, const struct hr__job *job, uint64_t index)
{
    struct hr__cluster *cluster = hr__deal_of(job->batch->plan)->cluster;
    pthread_mutex_lock(&l->lock);
    cluster->known[index] &= (uint8_t)~HR__ITEM_THERE;
    pthread_mutex_unlock(&l->lock);
}

/* Takes the next group; hosts take turns. Returns 0 if there is none. */
static int take_stores_locked(struct hr_loader *l, struct stores *g)
{
    struct hr__hosting *h = l->hosting;
    int count = h->cluster->hosts.count;
    uint64_t bytes = 0;
    g->count = 0;
    g->owner = h->store_next % count;
    for (int i = 0; i < count && !g->count; i++) {
        int host = (int)((unsigned)h->store_next + (unsigned)i) % count;
        struct hr__host_queue *q = &h->cluster->queues[host];
        int is_up = hr__peers_is_up(h->cluster->peers, host);
        while (q->stores && !is_up) {
            struct hr__pending_store *store = pop_locked(q);
            hr__count(&hr__counters_here(l)->refused, 1);
            account_locked(l, q, store);
            give_up_locked(l, store);
            free_store(store);
        }
        if (q->is_slow && (q->threads || h->slow >= h->thread_count - 1))
            continue;
        while (q->stores && g->count < HR__GROUP_ITEMS &&
               (!g->count || bytes + q->stores->length <= HR__GROUP_BYTES)) {
            bytes += q->stores->length;
            g->stores[g->count++] = pop_locked(q);
        }
        g->owner = host;
    }
    h->store_next = (g->owner + 1) % count;
    return g->count > 0;
}

/* Converts an item to the form of the list, unless it has it or would get larger than it was
 * charged. */
static void convert(struct hr__thread *self, struct stores *g, size_t i, struct hr__peer_item *item)
{
    const struct hr__pending_store *store = g->stores[i];
    enum hr_form form = (enum hr_form)g->cluster->hosts.form;
    struct hr__pair pair;
    struct hr_item out;
    size_t length;
    if (form == HR_FORM_ENCODED || item->form != HR_FORM_ENCODED ||
        hr__pair_split(&pair, self->loader->dataset, store->bytes, store->length))
        return;
    const struct hr_item file = {pair.image.bytes, pair.image.length, HR_FORM_ENCODED};
    uint64_t start_ns = hr__thread_cpu_ns();
    int r = hr__convert(self, form, &file, &out);
    hr__count(&hr__counters_here(self->loader)->conversion_ns, hr__thread_cpu_ns() - start_ns);
    if (r || out.length + (store->length - file.length) >
                 store->length * g->cluster->charge_percent / 100)
        return;
    pair.image = (struct hr_item_part){out.bytes, out.length};
    g->converted[i] = hr__pair_join(&pair.image, 1, &pair.mask, &length);
    if (!g->converted[i])
        return;
    item->bytes = g->converted[i];
    item->length = length;
    item->form = out.form;
    hr__count(&hr__counters_here(self->loader)->converted, 1);
}

/* Stores a group. Without the lock. */
static void send_group(struct hr__thread *self, struct stores *g)
{
    const struct hr_loader *l = self->loader;
    struct hr__peer_item sent[HR__GROUP_ITEMS];
    size_t n = 0, at[HR__GROUP_ITEMS];
    for (size_t i = 0; i < g->count; i++) {
        const struct hr__pending_store *store = g->stores[i];
        struct hr__peer_item *item = &g->items[i];
        g->converted[i] = NULL;
        if (hr__hosting_seal(l, g->cluster, store, item)) {
            item->result = -ESTALE;
            continue;
        }
        convert(self, g, i, item);
        at[n] = i;
        sent[n++] = *item;
    }
    if (n)
        hr__peers_store(g->cluster->peers, g->owner, sent, n);
    for (size_t i = 0; i < n; i++)
        g->items[at[i]].result = sent[i].result;
    for (size_t i = 0; i < g->count; i++)
        hr__free(g->converted[i]);
}

static void log_full(const struct hr__cluster *cluster, int owner)
{
    hr__log(HR_LOG_WARNING,
            "%s refuses items, its memory is full: start it with a larger -m, or lower the size "
            "of the list (0.75 of -m is what it may be)",
            cluster->hosts.hosts[owner].name);
}

/* Handles the results of a group. Returns whether to log, for the first time, that its host is
 * full. */
static int settle_locked(struct hr_loader *l, struct stores *g)
{
    struct hr__hosting *h = l->hosting;
    struct hr__counters *c = hr__counters_here(l);
    struct hr__host_queue *q = &g->cluster->queues[g->owner];
    size_t full = 0;
    for (size_t i = 0; i < g->count; i++) {
        struct hr__pending_store *store = g->stores[i];
        uint8_t *known = &g->cluster->known[store->index];
        int result = g->items[i].result;
        account_locked(l, q, store);
        *known &= (uint8_t)~HR__ITEM_COMING;
        full += result == -ENOSPC;
        if (!result) {
            *known |= HR__ITEM_THERE;
            hr__count(&c->stored, 1);
            hr__count(&c->stored_bytes, g->items[i].length);
        } else if (result != -ESTALE) {
            if (result == -E2BIG)
                *known |= HR__ITEM_NEVER;
            hr__count(&c->refused, 1);
            q->refused |= result == -ENOSPC;
        }
        if (g->cluster == h->cluster && result)
            give_up_locked(l, store);
        else if (g->cluster == h->cluster)
            hr__hosting_release_locked(l, store->index);
    }
    if (full == g->count)
        q->full_until_ns = hr__now_ns() + FULL_NS;
    int is_news = full && !q->is_logged;
    q->is_logged |= is_news;
    return is_news;
}

int hr__hosting_store_unlocking(struct hr__thread *self)
{
    struct hr_loader *l = self->loader;
    struct hr__hosting *h = l->hosting;
    struct stores g;
    if (!h->stores || !take_stores_locked(l, &g))
        return 0;
    g.cluster = hr__cluster_ref(h->cluster);
    struct hr__host_queue *q = &g.cluster->queues[g.owner];
    int is_slow = q->is_slow;
    q->threads++;
    h->slow += is_slow;
    pthread_mutex_unlock(&l->lock);
    uint64_t start_ns = hr__now_ns();
    send_group(self, &g);
    uint64_t took_ns = hr__now_ns() - start_ns;
    pthread_mutex_lock(&l->lock);
    q->threads--;
    h->slow -= is_slow;
    q->is_slow = took_ns > SLOW_NS;
    int is_news = settle_locked(l, &g);
    pthread_mutex_unlock(&l->lock);
    if (is_news)
        log_full(g.cluster, g.owner);
    for (size_t i = 0; i < g.count; i++)
        free_store(g.stores[i]);
    hr__cluster_unref(&g.cluster);
    pthread_mutex_lock(&l->lock);
    return 1;
}
