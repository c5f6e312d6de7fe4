/*
 * Searches for the depth; see depth.h.
 *
 * A search always compares with its best rung, not with the rung above, so that many small losses
 * do not add up to a large one. If a lower depth gives more bandwidth, as on disks that seek, it
 * becomes the best rung.
 */
#include "storage/depth.h"

#include <string.h>

/* ENOUGH: the share of the best bandwidth that a lower depth must reach. BETTER: the ratio from
 * which it becomes the best rung. */
#define ENOUGH 0.95
#define BETTER 1.05

/* Ratios outside these limits decide without a second round. */
#define CLEARLY_LESS 0.85
#define CLEARLY_MORE 1.15

/* The length of a window and the number of its reads. On slow devices fewer reads suffice, but the
 * window is longer. */
#define WINDOW_NS         UINT64_C(50000000)
#define WINDOW_READS      64
#define WINDOW_SLOW_NS    UINT64_C(2000000000)
#define WINDOW_SLOW_READS 8

/* Most windows in a comparison: one ABBA round, and a second one if the first is not clear. */
#define DUEL_WINDOWS 8

/* The rest between searches, first and longest, and how bandwidth is watched during it: if a span's
 * bandwidth leaves these ratios to the first span's, the device's speed has changed. */
#define REST_NS      UINT64_C(5000000000)
#define REST_MOST_NS UINT64_C(60000000000)
#define SPAN_NS      UINT64_C(1000000000)
#define FALLEN       0.7
#define RISEN        1.4

/* Returns a rung's depth: 1, 2, 3, 4, 6, 8, 12, 16, ... Two rungs up is twice the depth. */
static unsigned rung_value(const struct hr__depth *d, unsigned rung)
{
    unsigned value = rung == 0 ? 1 : rung % 2 ? 1u << (rung + 1) / 2 : 3u << (rung / 2 - 1);
    return value < d->most ? value : d->most;
}

static double rate(const struct hr__depth_sum *sum)
{
    return sum->ns ? (double)sum->bytes / (double)sum->ns : 0;
}

static void add(struct hr__depth_sum *to, const struct hr__depth_sum *sum)
{
    to->bytes += sum->bytes;
    to->ns += sum->ns;
    to->reads += sum->reads;
}

/* Starts a window at a rung. */
static void go_to(struct hr__depth *d, unsigned rung)
{
    unsigned value = rung_value(d, rung);
    if (value != d->now)
        d->turnover = value;
    d->now = value;
    d->window = (struct hr__depth_sum){0};
}

static void begin_duel(struct hr__depth *d, unsigned trial)
{
    d->trial = trial;
    d->windows = 0;
    memset(d->duel, 0, sizeof d->duel);
    go_to(d, d->best);
}

static void begin_rest(struct hr__depth *d)
{
    unsigned apart = d->chosen > d->previous ? d->chosen - d->previous : d->previous - d->chosen;
    d->rest_ns = apart > 1 ? REST_NS : 2 * d->rest_ns;
    if (d->rest_ns > REST_MOST_NS)
        d->rest_ns = REST_MOST_NS;
    d->previous = d->chosen;
    d->searching = 0;
    d->rested_ns = 0;
    d->rest_rate = 0;
    go_to(d, d->chosen);
}

static void begin_search(struct hr__depth *d)
{
    d->searching = 1;
    d->chosen = d->best = d->top;
    d->step = d->top > 1 ? 2 : 1;
    begin_duel(d, d->top - d->step);
}

/* Accepts the trial and goes further down, if there is a lower rung. */
static void descend(struct hr__depth *d, int is_best)
{
    d->chosen = d->trial;
    if (is_best)
        d->best = d->trial;
    /* After a failed step of two rungs only the rung in between is tried. */
    if (d->step == 1 || !d->trial) {
        begin_rest(d);
        return;
    }
    d->step = d->trial > 1 ? 2 : 1;
    begin_duel(d, d->trial - d->step);
}

static void end_duel(struct hr__depth *d, double ratio)
{
    if (ratio >= ENOUGH) {
        descend(d, ratio > BETTER);
    } else if (d->step == 2) {
        d->step = 1;
        begin_duel(d, d->trial + 1);
    } else {
        begin_rest(d);
    }
}

/* Ends a window of the comparison. */
static void end_window(struct hr__depth *d)
{
    /* ABBA: the second and third of four windows measure the trial. */
    int of_trial = (d->windows + 1) / 2 % 2;
    add(&d->duel[of_trial], &d->window);
    d->windows++;
    if (d->windows % 4 == 0) {
        double best = rate(&d->duel[0]);
        double ratio = best > 0 ? rate(&d->duel[1]) / best : 1;
        if (d->windows == DUEL_WINDOWS || ratio < CLEARLY_LESS || ratio > CLEARLY_MORE) {
            end_duel(d, ratio);
            return;
        }
    }
    go_to(d, (d->windows + 1) / 2 % 2 ? d->trial : d->best);
}

static void rest(struct hr__depth *d)
{
    if (d->window.ns < SPAN_NS || d->window.reads < WINDOW_SLOW_READS)
        return;
    double now = rate(&d->window);
    d->rested_ns += d->window.ns;
    d->window = (struct hr__depth_sum){0};
    if (d->rest_rate == 0) {
        d->rest_rate = now;
    } else if (now < FALLEN * d->rest_rate || now > RISEN * d->rest_rate) {
        d->rest_ns = REST_NS / 2;
        d->rested_ns = d->rest_ns;
    }
    if (d->rested_ns >= d->rest_ns)
        begin_search(d);
}

static int is_complete(const struct hr__depth_sum *window)
{
    return window->ns >= WINDOW_NS &&
           (window->reads >= WINDOW_READS ||
            (window->ns >= WINDOW_SLOW_NS && window->reads >= WINDOW_SLOW_READS));
}

void hr__depth_init(struct hr__depth *d, unsigned most)
{
    *d = (struct hr__depth){.most = most, .now = most, .rest_ns = REST_NS / 2};
    while (rung_value(d, d->top) < most)
        d->top++;
    d->previous = d->top;
    if (d->top)
        begin_search(d);
}

void hr__depth_note(struct hr__depth *d, unsigned in_flight, unsigned reads, uint64_t bytes,
                    uint64_t now_ns)
{
    uint64_t ns = d->noted_ns && now_ns > d->noted_ns ? now_ns - d->noted_ns : 0;
    d->noted_ns = now_ns;
    /* Require nearly all allowed reads in flight; not all, because submission goes in rounds. */
    if (!d->top || !ns || in_flight > d->now || in_flight < d->now - d->now / 4)
        return;
    if (d->turnover) {
        d->turnover -= reads < d->turnover ? reads : d->turnover;
        return;
    }
    add(&d->window, &(struct hr__depth_sum){.bytes = bytes, .ns = ns, .reads = reads});
    if (!d->searching)
        rest(d);
    else if (is_complete(&d->window))
        end_window(d);
}
