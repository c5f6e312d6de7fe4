/* When the users of a segment use its items next (store_orders.h). */
#include "cache/store_inside.h"

#include "base/error.h"
#include "cache/directory.h"

#include <math.h>

/* A user that stands still for so long does not count until it moves again. */
#define STILL_NS UINT64_C(1000000000)

/* What a time and its uses count after another look, of which there are ten a second. */
#define FADING 0.9

void hr__store_orders_init(struct hr__store *store)
{
    struct hr__store_orders *o = &store->orders;
    pthread_mutex_init(&o->telling, NULL);
    pthread_mutex_init(&o->looking, NULL);
    hr__random_init(&o->random, (uint64_t)store->segment->slot, HR__PURPOSE_EVICTION, 0, 0);
}

void hr__store_orders_free(struct hr__store *store)
{
    hr__future_order_destroy(&store->orders.own);
    pthread_mutex_destroy(&store->orders.telling);
    pthread_mutex_destroy(&store->orders.looking);
}

/* ---- telling ---- */

static _Atomic uint32_t *uses_of(const struct hr__segment *s, unsigned slot)
{
    return s->uses + slot * (s->layout.uses_bytes / sizeof *s->uses);
}

static int take_memory(struct hr__segment *s, void *unused)
{
    char why[HR__CAPACITY_WHY];
    uint64_t bytes = s->layout.uses_bytes;
    return hr__segment_populate(s, s->layout.uses_offset + (unsigned)s->slot * bytes, bytes, why);
}

/* Makes the future of this user, once. Returns non-zero if it has one. */
static int has_future(struct hr__store *store)
{
    struct hr__store_orders *o = &store->orders;
    struct hr__segment *s = store->segment;
    struct hr_error error;
    if (s->slot >= HR__SEGMENT_TELLERS)
        atomic_store(&o->mute_ns, HR__MUTE);
    else if (!o->own &&
             (hr__directory_make_room(s, 0, 0, take_memory, NULL) ||
              hr__future_order_create(&o->own, &o->future, s->layout.index_slots, &error)))
        atomic_store(&o->mute_ns, hr__now_ns());
    else
        atomic_store(&o->mute_ns, 0);
    return o->own != NULL;
}

/* Tells the next use of a sample. */
static void tell(struct hr__store *store, uint64_t sample)
{
    const struct hr__store_orders *o = &store->orders;
    uint32_t number = hr__future_number(o->own, sample);
    uint32_t next = number == HR__NO_USE ? 0 : o->base + number;
    atomic_store_explicit(&uses_of(store->segment, (unsigned)store->segment->slot)[sample], next,
                          memory_order_relaxed);
}

static void tell_known(struct hr__store *store)
{
    atomic_store_explicit(&store->segment->user->known,
                          store->orders.base + hr__future_known(store->orders.own),
                          memory_order_relaxed);
}

/* Returns non-zero if a sample can be told. */
static int is_told(const struct hr__store *store, uint64_t sample)
{
    return store->orders.own && sample < store->segment->layout.index_slots &&
           !hr__segment_is_broken(store->segment);
}

void hr__store_begin_uses(struct hr__store *store)
{
    struct hr__store_orders *o = &store->orders;
    struct hr__segment *s = store->segment;
    pthread_mutex_lock(&o->telling);
    if (hr__segment_is_sound(s) && has_future(store)) {
        hr__future_begin(o->own);
        /* 0 is no number of a use. */
        o->base = (uint32_t)atomic_load(&s->user->used) + 1;
        atomic_store(&s->user->used, o->base);
        for (uint64_t i = 0; i < s->layout.index_slots; i++)
            tell(store, i);
        tell_known(store);
    }
    pthread_mutex_unlock(&o->telling);
}

void hr__store_add_use(struct hr__store *store, uint64_t sample)
{
    pthread_mutex_lock(&store->orders.telling);
    if (is_told(store, sample)) {
        int is_first = hr__future_number(store->orders.own, sample) == HR__NO_USE;
        /* If memory is short, the future is known less far. */
        if (!hr__future_add(store->orders.own, sample) && is_first)
            tell(store, sample);
        tell_known(store);
    }
    pthread_mutex_unlock(&store->orders.telling);
}

void hr__store_end_uses(struct hr__store *store)
{
    pthread_mutex_lock(&store->orders.telling);
    if (is_told(store, 0)) {
        hr__future_end_epoch(store->orders.own);
        atomic_store(&store->segment->user->tells, 1);
    }
    pthread_mutex_unlock(&store->orders.telling);
}

void hr__store_use(struct hr__store *store, uint64_t sample)
{
    struct hr__segment_user *user = store->segment->user;
    pthread_mutex_lock(&store->orders.telling);
    if (is_told(store, sample)) {
        hr__future_use(store->orders.own, sample);
        tell(store, sample);
        atomic_fetch_add_explicit(&user->used, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&store->orders.telling);
}

int hr__store_asks(const struct hr__store *store)
{
    uint64_t mute_ns = atomic_load_explicit(&store->orders.mute_ns, memory_order_relaxed);
    return atomic_load_explicit(&store->is_asked, memory_order_relaxed) &&
           (!mute_ns || (mute_ns != HR__MUTE && hr__now_ns() - mute_ns > HR__REFUSED_NS));
}

int hr__store_tells(const struct hr__store *store)
{
    return atomic_load_explicit(&store->segment->user->tells, memory_order_relaxed) != 0;
}

/* ---- looking ---- */

/* What a user said of its order. */
struct order_seen {
    uint64_t stream, position, samples;
    int repeats;
};

static struct order_seen see(const struct hr__segment_user *user)
{
    return (struct order_seen){
        .stream = atomic_load_explicit(&user->stream, memory_order_relaxed),
        .position = atomic_load_explicit(&user->position, memory_order_relaxed),
        .samples = atomic_load_explicit(&user->samples, memory_order_relaxed),
        .repeats = atomic_load_explicit(&user->repeats, memory_order_relaxed) != 0,
    };
}

static int are_one(const struct order_seen *a, const struct order_seen *b)
{
    uint64_t apart =
        a->position > b->position ? a->position - b->position : b->position - a->position;
    return a->stream == b->stream && apart < a->samples;
}

unsigned hr__segment_orders(const struct hr__segment *s)
{
    struct order_seen seen[HR__SEGMENT_TELLERS];
    unsigned count = 0;
    int repeats = 0;
    for (unsigned slot = 0; slot < HR__SEGMENT_TELLERS; slot++) {
        const struct hr__segment_user *user = &s->header->users[slot];
        if (!atomic_load(&user->pid) || !atomic_load(&user->tells) ||
            (user != s->user && !hr__segment_is_alive(s, slot)))
            continue;
        seen[count] = see(user);
        repeats |= seen[count].repeats;
        unsigned same = 0;
        while (same < count && !are_one(&seen[same], &seen[count]))
            same++;
        count += same == count;
    }
    return count > 1 || repeats ? count : 0;
}

/* Notes how far a user came. Returns non-zero if it counts. */
static int follow(struct hr__teller *teller, uint64_t used, uint64_t since_ns, uint64_t now_ns)
{
    if (!teller->moved_ns || used < teller->used) {
        *teller = (struct hr__teller){.used = used, .moved_ns = now_ns};
        return 0;
    }
    teller->uses = teller->uses * FADING + (double)(used - teller->used);
    teller->time_ns = teller->time_ns * FADING + (double)(now_ns - since_ns);
    if (used != teller->used)
        teller->moved_ns = now_ns;
    teller->used = used;
    return teller->uses > 0 && teller->time_ns > 0 && now_ns - teller->moved_ns < STILL_NS;
}

static void count_user(struct hr__store *store, unsigned slot)
{
    struct hr__store_orders *o = &store->orders;
    struct hr__segment *s = store->segment;
    const struct hr__teller *teller = &o->tellers[slot];
    struct order_seen first, this = see(&s->header->users[slot]);
    o->evicting |= this.repeats;
    if (o->count) {
        first = see(&s->header->users[o->counted[0].slot]);
        o->evicting |= !are_one(&first, &this);
    }
    o->counted[o->count++] = (struct hr__counted){
        .next = uses_of(s, slot),
        .use_ns = teller->time_ns / teller->uses,
        .slot = slot,
        .samples = (uint32_t)this.samples,
    };
}

/* Looks at the users. Returns non-zero if one has another order than this one, or if this one's
 * repeats samples. */
static int look(struct hr__store *store, uint64_t now_ns)
{
    struct hr__store_orders *o = &store->orders;
    struct hr__segment *s = store->segment;
    struct order_seen mine = see(s->user), theirs;
    int asks = mine.stream && mine.repeats;
    o->count = 0;
    o->evicting = 0;
    for (unsigned slot = 0; slot < HR__SEGMENT_USERS; slot++) {
        struct hr__segment_user *user = &s->header->users[slot];
        int is_me = user == s->user;
        if (!is_me && (!atomic_load_explicit(&user->pid, memory_order_relaxed) ||
                       !hr__segment_is_alive(s, slot)))
            continue;
        theirs = see(user);
        asks |= mine.stream && theirs.stream && !are_one(&mine, &theirs);
        if (slot >= HR__SEGMENT_TELLERS || !atomic_load(&user->tells))
            continue;
        if (follow(&o->tellers[slot], atomic_load(&user->used), o->looked_ns, now_ns))
            count_user(store, slot);
    }
    return asks;
}

void hr__store_look_around(struct hr__store *store, uint64_t now_ns)
{
    struct hr__store_orders *o = &store->orders;
    struct hr__segment_user *user = store->segment->user;
    if (!atomic_load(&store->is_full) || store->segment->on_disk ||
        pthread_mutex_trylock(&o->looking))
        return;
    if (now_ns > o->looked_ns) {
        int asks = look(store, now_ns);
        o->looked_ns = now_ns;
        if (!asks)
            atomic_store(&user->tells, 0);
        atomic_store(&store->is_asked, asks);
    }
    pthread_mutex_unlock(&o->looking);
}

void hr__store_next_begin(struct hr__store *store)
{
    for (unsigned i = 0; i < store->orders.count; i++) {
        struct hr__counted *counted = &store->orders.counted[i];
        const struct hr__segment_user *user = &store->segment->header->users[counted->slot];
        counted->used = (uint32_t)atomic_load_explicit(&user->used, memory_order_relaxed);
        counted->known = (uint32_t)atomic_load_explicit(&user->known, memory_order_relaxed);
    }
}

double hr__store_next_use(const struct hr__store *store, uint64_t sample)
{
    const struct hr__store_orders *o = &store->orders;
    double soonest = HUGE_VAL;
    for (unsigned i = 0; i < o->count; i++) {
        const struct hr__counted *c = &o->counted[i];
        uint32_t next = sample < store->segment->layout.index_slots
                            ? atomic_load_explicit(&c->next[sample], memory_order_relaxed)
                            : 0;
        /* Numbers wrap. Threads report uses in another order than they are told in. */
        int32_t ahead = (int32_t)(next - c->used);
        double uses = ahead > 0 ? ahead : 0;
        int32_t left = (int32_t)(c->known - c->used);
        if (!next)
            uses = (double)(left > 0 ? left : 0) + c->samples;
        soonest = uses * c->use_ns < soonest ? uses * c->use_ns : soonest;
    }
    return soonest;
}
