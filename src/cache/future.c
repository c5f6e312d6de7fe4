/*
 * When samples are used next, by several orders (future.h).
 *
 * Known uses are numbered from 0 at the beginning of an epoch. The uses of one sample are a list:
 * the sample has the number of the first, and each use that of the following one. So adding a use,
 * reporting one and looking up the next one each take constant time.
 */
#include "cache/future.h"

#include "base/error.h"
#include "base/memory.h"
#include "cache/numbers.h"
#include "cache/residents.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The weight of the newest of the times between two uses, in their mean. */
#define GAP_WEIGHT (1.0 / 64)

/* A time between two uses counts as at most this many means, so that one pause changes little. */
#define GAP_MOST 16

/* After this many mean times without a use, an order stands still. */
#define STANDS_STILL 64

struct future_sample {
    uint32_t next; /* number of the first known use, or HR__NO_USE */
    uint32_t last; /* number of the last known use, or HR__NO_USE */
    uint32_t uses; /* so far */
};

struct hr__future_order {
    struct hr__future *future;
    uint64_t samples;
    struct future_sample *of;
    uint32_t *following;     /* by known use: the number of the same sample's following use */
    uint32_t *sample_of;     /* by known use */
    struct hr__numbers kept; /* known uses that are the next one of a kept sample */
    struct hr__residents unforeseen; /* kept samples without a known use */
    uint32_t known;                  /* number of known uses, with those that happened */
    uint32_t ends;     /* number of the first use of the next epoch; HR__NO_USE: not known yet */
    uint32_t done;     /* number of uses in this epoch that happened */
    uint64_t all_uses; /* so far */
    double gap;        /* mean number of ticks between two uses */
    uint64_t used;     /* clock at the last use, or at the beginning */
    uint64_t began;    /* clock at the beginning of this epoch */
    uint64_t period;   /* ticks between the beginnings of the last two epochs; 0: unknown */
};

static int is_kept(const struct hr__future_order *order, uint64_t sample)
{
    uint32_t next = order->of[sample].next;
    return next != HR__NO_USE ? hr__numbers_has(&order->kept, next)
                              : hr__residents_has(&order->unforeseen, (uint32_t)sample);
}

/* Enters a kept sample into the set that it belongs to now. */
static void enter(struct hr__future_order *order, uint64_t sample)
{
    uint32_t next = order->of[sample].next;
    if (next != HR__NO_USE)
        hr__numbers_add(&order->kept, next);
    else
        hr__residents_add(&order->unforeseen, (uint32_t)sample);
}

static void leave(struct hr__future_order *order, uint64_t sample)
{
    uint32_t next = order->of[sample].next;
    if (next != HR__NO_USE)
        hr__numbers_remove(&order->kept, next);
    else
        hr__residents_remove(&order->unforeseen, (uint32_t)sample);
}

static void forget(struct hr__future_order *order)
{
    for (uint64_t i = 0; i < order->samples; i++) {
        struct future_sample *of = &order->of[i];
        int moves = of->next != HR__NO_USE && is_kept(order, i);
        of->next = of->last = HR__NO_USE;
        if (moves)
            enter(order, i);
    }
    hr__numbers_clear(&order->kept);
    order->known = order->done = 0;
    order->ends = HR__NO_USE;
}

int hr__future_order_create(struct hr__future_order **out, struct hr__future *future,
                            uint64_t samples, struct hr_error *error)
{
    *out = NULL;
    if (samples >= HR__NO_USE)
        return hr__fail(error, -EOVERFLOW,
                        "the future of %" PRIu64 " samples is not supported: the most are %u",
                        samples, HR__NO_USE - 1);
    struct hr__future_order *order = hr__alloc(HR__TAG_CACHE, 1, sizeof *order);
    if (order)
        order->of = hr__alloc(HR__TAG_CACHE, samples + !samples, sizeof *order->of);
    if (order)
        hr__residents_init(&order->unforeseen);
    if (!order || !order->of || hr__residents_reserve(&order->unforeseen, (uint32_t)samples)) {
        hr__future_order_destroy(&order);
        return hr__fail(error, -ENOMEM,
                        "out of memory for the next uses of %" PRIu64 " samples: %zu bytes for "
                        "each are needed",
                        samples, sizeof *order->of + 2 * sizeof(uint32_t));
    }
    order->future = future;
    order->samples = samples;
    order->gap = 1;
    order->began = order->used = future->clock;
    for (uint64_t i = 0; i < samples; i++)
        order->of[i].next = HR__NO_USE;
    forget(order);
    *out = order;
    return 0;
}

void hr__future_order_destroy(struct hr__future_order **order)
{
    if (!*order)
        return;
    hr__free((*order)->following);
    hr__free((*order)->sample_of);
    hr__numbers_free(&(*order)->kept);
    hr__residents_clear(&(*order)->unforeseen);
    hr__free((*order)->of);
    hr__free(*order);
    *order = NULL;
}

void hr__future_begin(struct hr__future_order *order)
{
    uint64_t clock = order->future->clock;
    if (order->all_uses && order->done)
        order->period = clock - order->began;
    order->began = order->used = clock;
    forget(order);
}

static void change_next(struct hr__future_order *order, uint64_t sample, uint32_t use)
{
    int moves = is_kept(order, sample);
    if (moves)
        leave(order, sample);
    order->of[sample].next = use;
    if (moves)
        enter(order, sample);
}

int hr__future_add(struct hr__future_order *order, uint64_t sample)
{
    struct future_sample *of = &order->of[sample];
    if (order->known == HR__NO_USE)
        return -EOVERFLOW;
    if (hr__reserve(HR__TAG_CACHE, &order->following, (size_t)order->known + 1) ||
        hr__reserve(HR__TAG_CACHE, &order->sample_of, (size_t)order->known + 1) ||
        hr__numbers_reserve(&order->kept, order->known + 1))
        return -ENOMEM;
    uint32_t use = order->known++;
    order->following[use] = HR__NO_USE;
    order->sample_of[use] = (uint32_t)sample;
    if (of->next == HR__NO_USE)
        change_next(order, sample, use);
    else
        order->following[of->last] = use;
    of->last = use;
    return 0;
}

void hr__future_end_epoch(struct hr__future_order *order)
{
    order->ends = order->known;
}

void hr__future_use(struct hr__future_order *order, uint64_t sample)
{
    struct future_sample *of = &order->of[sample];
    uint64_t clock = ++order->future->clock;
    double gap = (double)(clock - order->used), most = GAP_MOST * order->gap;
    if (order->done)
        order->gap += ((gap < most ? gap : most) - order->gap) * GAP_WEIGHT;
    order->used = clock;
    order->done += order->done < HR__NO_USE;
    order->all_uses++;
    of->uses += of->uses < UINT32_MAX;
    if (of->next != HR__NO_USE)
        change_next(order, sample, order->following[of->next]);
}

/* Returns in how many ticks the order uses something again, as far as it stands still. */
static double pause_of(const struct hr__future_order *order)
{
    double idle = (double)(order->future->clock - order->used);
    return idle > STANDS_STILL * order->gap ? idle : 0;
}

/* Returns in how many ticks the next epoch begins. */
static double next_epoch(const struct hr__future_order *order)
{
    uint64_t clock = order->future->clock, due = order->began + order->period;
    double left = order->ends > order->done ? (double)(order->ends - order->done) : 0;
    double begins = left > 0 ? pause_of(order) + left * order->gap : 0;
    if (!order->period)
        return left > 0 ? begins : pause_of(order);
    if (due > clock && (double)(due - clock) > begins)
        return (double)(due - clock);
    return left > 0 ? begins : (double)(clock - due);
}

/* Returns in how many ticks the use of this number happens. */
static double when(const struct hr__future_order *order, uint32_t use)
{
    if (use >= order->ends)
        return next_epoch(order) + (double)(use - order->ends) * order->gap;
    double ahead = use > order->done ? (double)(use - order->done) : 0;
    return pause_of(order) + ahead * order->gap;
}

double hr__future_next(const struct hr__future_order *order, uint64_t sample)
{
    const struct future_sample *of = &order->of[sample];
    if (of->next != HR__NO_USE)
        return when(order, of->next);
    double between = (double)(order->all_uses + order->samples) / ((double)of->uses + 1);
    return when(order, order->known) + between * order->gap;
}

uint32_t hr__future_number(const struct hr__future_order *order, uint64_t sample)
{
    return order->of[sample].next;
}

uint32_t hr__future_known(const struct hr__future_order *order)
{
    return order->known;
}

void hr__future_keep(struct hr__future_order *order, uint64_t sample)
{
    if (!is_kept(order, sample))
        enter(order, sample);
}

void hr__future_drop(struct hr__future_order *order, uint64_t sample)
{
    if (is_kept(order, sample))
        leave(order, sample);
}

static double next_of(const void *context, uint32_t sample)
{
    return hr__future_next(context, sample);
}

uint32_t hr__future_furthest(struct hr__future_order *order, double *when_used)
{
    if (order->unforeseen.count)
        return hr__residents_furthest(&order->unforeseen, next_of, order, when_used);
    uint32_t use = hr__numbers_largest(&order->kept);
    if (use == HR__NO_NUMBER)
        return HR__NO_RESIDENT;
    *when_used = when(order, use);
    return order->sample_of[use];
}
