/*
 * Cross-checks before anything is reported: figures measured in different ways must agree. Training
 * is never faster than its own parts (G, P, F). The extra time of a batch with its loader must be
 * time blocked in next(), computing of the training process, or at most all the computing of the
 * loader's workers meanwhile. A phase that fails counts as not measured, with the reason; if no
 * phase remains, there is no result.
 */
#include "stalls/model/inside.h"

#include <stdio.h>
#include <string.h>

/* Being faster than a part by more than this, outside both intervals, is impossible. */
#define FASTER 0.15
/* Lost time may exceed its explanation by this factor, plus this share of a step. */
#define EXPLAINED 1.25
#define SLACK     0.05

static bool is_faster(struct hr_interval rate, struct hr_interval part)
{
    return rate.low > part.high * (1 + FASTER);
}

static void refuse_faster(struct hr_stalls *s, int phase, const char *part, struct hr_interval rate)
{
    s->summary.measured[phase] = 0;
    snprintf(s->phase_reason[phase], sizeof s->phase_reason[phase],
             "training ran at %.4g samples/s, faster than %s, which gave %.4g: batches prepared "
             "before were counted, or the machine was disturbed",
             s->summary.rate[phase].value, part, rate.value);
}

static void check_rates(struct hr_stalls *s, int phase)
{
    const struct hr_stalls_summary *m = &s->summary;
    struct hr_interval rate = m->rate[phase];
    if (is_faster(rate, m->device_rate))
        refuse_faster(s, phase, "the step alone", m->device_rate);
    else if (is_faster(rate, m->prepare_rate))
        refuse_faster(s, phase, "the loader alone", m->prepare_rate);
    else if (phase == HR_STALLS_COLD && !(s->loader_cache_bytes > 0) &&
             is_faster(rate, m->fetch_rate))
        refuse_faster(s, phase, "storage alone", m->fetch_rate);
}

/* Seconds per batch of a phase, from its segments; NaN: unknown. */
struct spent_s {
    double all, waited, computed, workers;
};

static struct spent_s spent(const struct hr__rank_record *rank, bool real, int phase)
{
    struct spent_s sum = {0};
    double batches = 0;
    for (size_t i = 0; i < rank->segment_count; i++) {
        const struct hr__segment_record *g = &rank->segments[i];
        if ((int)g->phase != phase || !g->batches)
            continue;
        batches += (double)g->batches;
        sum.all += g->elapsed_s;
        sum.computed += g->process_cpu_s;
        sum.workers += real ? g->worker_cpu_s : 0;
        for (uint64_t b = 0; b < g->batches; b++)
            sum.waited += g->wait_s[b];
    }
    return (struct spent_s){sum.all / batches, sum.waited / batches, sum.computed / batches,
                            sum.workers / batches};
}

/* Only for one rank: with several, each also waits for the others' loaders. */
static void check_lost(struct hr_stalls *s, int phase)
{
    int base = isfinite(s->step_s[HR_STALLS_HOST].value) ? HR_STALLS_HOST : HR_STALLS_DEVICE;
    struct spent_s with = spent(&s->ranks[0], true, phase);
    struct spent_s without = spent(&s->ranks[0], false, base);
    double lost_s = with.all - without.all, more_s = with.computed - without.computed;
    double explained_s = with.waited + fmax(0, more_s) + with.workers;
    if (s->world_size > 1 || !(lost_s > EXPLAINED * explained_s + SLACK * without.all))
        return;
    s->summary.measured[phase] = 0;
    snprintf(s->phase_reason[phase], sizeof s->phase_reason[phase],
             "a batch takes %.3g s longer with its loader than without, but is waited for only "
             "%.3g s in next() and costs %.3g s of CPU more: something else slowed it",
             lost_s, with.waited, fmax(0, more_s) + with.workers);
}

void hr__derive_checks(struct hr_stalls *s)
{
    const int phases[] = {HR_STALLS_WARM, HR_STALLS_COLD};
    bool left = false;
    const char *why = NULL;
    for (int i = 0; i < 2; i++) {
        int phase = phases[i];
        if (!s->summary.measured[phase])
            continue;
        check_rates(s, phase);
        if (s->summary.measured[phase])
            check_lost(s, phase);
        left |= s->summary.measured[phase];
        if (!s->summary.measured[phase])
            why = s->phase_reason[phase];
        s->summary.contradicts |= !s->summary.measured[phase];
    }
    if (why && !left && !*s->cannot_tell)
        snprintf(s->cannot_tell, sizeof s->cannot_tell, "%s", why);
}
