/*
 * Access time intervals; see intervals.h.
 *
 * Outliers are a heap whose root is the smallest. The scatter keeps every stride-th interval. When
 * it is full, every other one is dropped and the stride doubles, so that it is even over time and
 * the same for the same record.
 */
#include "memory/analysis/intervals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void hr__intervals_init(struct hr__intervals *intervals, double h2d_bytes_per_s,
                        double d2h_bytes_per_s, double probe_ns)
{
    memset(intervals, 0, sizeof *intervals);
    intervals->h2d_bytes_per_s = h2d_bytes_per_s;
    intervals->d2h_bytes_per_s = d2h_bytes_per_s;
    intervals->probe_ns = probe_ns;
    intervals->stride = 1;
}

double hr__swap_bytes(const struct hr__intervals *i, double ns)
{
    return ns * 1e-9 / (1 / i->h2d_bytes_per_s + 1 / i->d2h_bytes_per_s);
}

static int bin_of(uint64_t ns)
{
    if (ns < 1)
        return 0;
    int bin = (int)(log2((double)ns) * HR__ATI_PARTS);
    return bin < HR__ATI_BINS ? bin : HR__ATI_BINS - 1;
}

/* Returns the bytes that a swap could free: the block's, as far as the time suffices. */
static double worth(const struct hr__intervals *i, const struct hr__interval_of *one)
{
    double most = hr__swap_bytes(i, (double)one->ns);
    return most < (double)one->bytes ? most : (double)one->bytes;
}

static void sift(struct hr__intervals *i, size_t at)
{
    struct hr__interval_of *heap = i->outliers, one = heap[at];
    double mine = worth(i, &one);
    for (size_t child; (child = 2 * at + 1) < i->outlier_count; at = child) {
        if (child + 1 < i->outlier_count && worth(i, &heap[child + 1]) < worth(i, &heap[child]))
            child++;
        if (worth(i, &heap[child]) >= mine)
            break;
        heap[at] = heap[child];
    }
    heap[at] = one;
}

static void note_outlier(struct hr__intervals *i, const struct hr__interval_of *one)
{
    if (i->outlier_count < HR__ATI_OUTLIERS) {
        i->outliers[i->outlier_count++] = *one;
        if (i->outlier_count == HR__ATI_OUTLIERS)
            for (size_t at = HR__ATI_OUTLIERS / 2; at--;)
                sift(i, at);
    } else if (worth(i, one) > worth(i, &i->outliers[0])) {
        i->outliers[0] = *one;
        sift(i, 0);
    }
}

static void note_scatter(struct hr__intervals *i, const struct hr__interval_of *one)
{
    if (i->seen++ % i->stride)
        return;
    if (i->scatter_count == HR__ATI_SCATTER) {
        for (size_t k = 0; k < HR__ATI_SCATTER / 2; k++)
            i->scatter[k] = i->scatter[2 * k];
        i->scatter_count = HR__ATI_SCATTER / 2;
        i->stride *= 2;
        if ((i->seen - 1) % i->stride)
            return;
    }
    i->scatter[i->scatter_count++] = *one;
}

int hr__interval_ns(const struct hr__intervals *i, const struct hr__block_event *event,
                    uint64_t *ns)
{
    uint32_t call = (uint32_t)(event->event->bytes >> 32);
    if (!event->before || (call && call == event->before_call) ||
        (event->clock == HR__CLOCK_DEVICE) != (event->before_clock == HR__CLOCK_DEVICE))
        return 0;
    *ns = event->at_ns > event->before_ns ? event->at_ns - event->before_ns : 0;
    /* Calls of several threads may be out of order; a device works while the host records. */
    int32_t calls = (int32_t)(call - event->before_call);
    if (calls > 0 && event->clock != HR__CLOCK_DEVICE) {
        double probe = calls * i->probe_ns;
        *ns = probe < (double)*ns ? *ns - (uint64_t)probe : 0;
    }
    return 1;
}

void hr__intervals_add(void *arg, const struct hr__blocks_found *found,
                       const struct hr__block_event *event)
{
    struct hr__intervals *i = arg;
    uint64_t ns;
    if (!event->before)
        return;
    if (!hr__interval_ns(i, event, &ns)) {
        i->left_out += event->clock != event->before_clock;
        return;
    }
    int behaviour =
        (event->before == HR_MEMORY_WRITE) << 1 | (event->event->kind == HR_MEMORY_WRITE);
    struct hr__interval_of one = {
        .begin_ns = event->before_ns,
        .ns = ns,
        .bytes = found->blocks[event->block].bytes,
        .block = event->block,
        .op = event->event->what,
        .behaviour = (uint8_t)behaviour,
    };
    i->of[behaviour].count++;
    i->of[behaviour].sum_ns += ns;
    if (ns > i->of[behaviour].longest_ns)
        i->of[behaviour].longest_ns = ns;
    i->of[behaviour].bins[bin_of(ns)]++;
    i->swappable += one.bytes && (double)one.bytes <= hr__swap_bytes(i, (double)ns);
    note_outlier(i, &one);
    note_scatter(i, &one);
}

static uint64_t count_of(const struct hr__intervals *i, int behaviour, int bin)
{
    uint64_t count = 0;
    for (int b = 0; b < HR__BEHAVIOURS; b++)
        if (behaviour < 0 || b == behaviour)
            count += bin < 0 ? i->of[b].count : i->of[b].bins[bin];
    return count;
}

double hr__intervals_quantile(const struct hr__intervals *i, int behaviour, double share)
{
    uint64_t all = count_of(i, behaviour, -1), upto = 0;
    if (!all)
        return NAN;
    for (int bin = 0; bin < HR__ATI_BINS; bin++) {
        upto += count_of(i, behaviour, bin);
        if ((double)upto >= share * (double)all)
            return exp2((bin + 1.0) / HR__ATI_PARTS);
    }
    return exp2((double)HR__ATI_BINS / HR__ATI_PARTS);
}

const struct hr__quantile hr__quantiles[HR__QUANTILES] = {
    {"p10", 0.1}, {"p25", 0.25}, {"p50", 0.5}, {"p75", 0.75}, {"p90", 0.9}, {"p99", 0.99},
};

uint64_t hr__intervals_count(const struct hr__intervals *i)
{
    uint64_t count = 0;
    for (int b = 0; b < HR__BEHAVIOURS; b++)
        count += i->of[b].count;
    return count;
}

static const struct {
    const char *name, *title;
} behaviours[HR__BEHAVIOURS] = {
    [HR__READ_READ] = {"read-read", "read, then read"},
    [HR__READ_WRITE] = {"read-write", "read, then write"},
    [HR__WRITE_READ] = {"write-read", "write, then read"},
    [HR__WRITE_WRITE] = {"write-write", "write, then write"},
};

const char *hr__behaviour_name(unsigned behaviour)
{
    return behaviours[behaviour < HR__BEHAVIOURS ? behaviour : 0].name;
}

const char *hr__behaviour_title(unsigned behaviour)
{
    return behaviours[behaviour < HR__BEHAVIOURS ? behaviour : 0].title;
}

/* An interval and its sort key. */
struct ranked {
    double worth;
    struct hr__interval_of one;
};

static int by_worth(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->worth != y->worth)
        return x->worth > y->worth ? -1 : 1;
    return x->one.begin_ns < y->one.begin_ns ? -1 : x->one.begin_ns > y->one.begin_ns;
}

void hr__intervals_sort(struct hr__intervals *i)
{
    struct ranked ranked[HR__ATI_OUTLIERS];
    for (size_t k = 0; k < i->outlier_count; k++)
        ranked[k] = (struct ranked){worth(i, &i->outliers[k]), i->outliers[k]};
    if (i->outlier_count)
        qsort(ranked, i->outlier_count, sizeof *ranked, by_worth);
    for (size_t k = 0; k < i->outlier_count; k++)
        i->outliers[k] = ranked[k].one;
}
