/*
 * Derives results from the measurements: times and rates of each phase, and the shares of an
 * epoch's time from paired differences within rounds (VLDB'21, section 3, with the weaknesses of
 * its tool removed: alternating order, several rounds, intervals).
 */
#include "base/error.h"
#include "base/memory.h"
#include "stalls/model/inside.h"
#include "stalls/model/parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool ran(const struct hr_stalls *s, int phase)
{
    return isfinite(s->step_s[phase].value);
}

/* Times and rates by phase; a rate is a batch's samples over its time. */
static int phase_times(struct hr_stalls *s, const struct hr__joined *j, struct hr_error *error)
{
    double *times = hr__alloc(HR__TAG_STALLS, (size_t)j->rounds, sizeof *times);
    if (!times)
        return hr__fail(error, -ENOMEM, "out of memory for %d rounds", j->rounds);
    for (int p = 0; p < HR_STALLS_PHASES; p++) {
        s->step_s[p] = s->summary.rate[p] = HR__UNKNOWN;
        s->middle_s[p] = 0;
        if (p >= HR__ROUND_PHASES)
            continue;
        for (int r = 0; r < j->rounds; r++)
            times[r] = j->round[r].seconds[p];
        s->step_s[p] = hr__interval_positive(times, (size_t)j->rounds);
        s->middle_s[p] = hr__middle_of(times, (size_t)j->rounds);
        double samples = hr__moments_of(j->samples[p], (size_t)j->rounds).mean;
        s->summary.rate[p] = hr__interval_inverse(s->step_s[p], samples);
    }
    hr__free(times);
    return 0;
}

/* ALONE: the mean over all ranks that loaded alone, by segment. */
static int alone_times(struct hr_stalls *s, const struct hr__joined *j, struct hr_error *error)
{
    double *times = hr__alloc(HR__TAG_STALLS, j->segments + 1, 2 * sizeof *times);
    double *samples = times + j->segments + 1;
    size_t n = 0;
    if (!times)
        return hr__fail(error, -ENOMEM, "out of memory for %zu segments", j->segments);
    for (size_t k = 0; k < j->segments; k++) {
        if (s->ranks[0].segments[k].phase != HR_STALLS_ALONE)
            continue;
        times[n] = samples[n] = 0;
        for (int i = 0; i < s->rank_count; i++) {
            const struct hr__segment_record *g = &s->ranks[i].segments[k];
            times[n] = fmax(times[n], g->elapsed_s / (double)g->batches);
            samples[n] += (double)g->samples / (double)g->batches * j->scale;
        }
        n++;
    }
    s->step_s[HR_STALLS_ALONE] = hr__interval_positive(times, n);
    s->summary.rate[HR_STALLS_ALONE] =
        hr__interval_inverse(s->step_s[HR_STALLS_ALONE], hr__moments_of(samples, n).mean);
    hr__free(times);
    return 0;
}

/* Selects the phases up to `of` whose shares can be computed, among the bits of `phases`: all of
 * them, or fewer if no round has all. Returns 0 if no round has both `of` and a replay. */
static int phases_in_common(const struct hr__joined *j, int phases, enum hr_stalls_phase of,
                            struct hr_interval share[HR__ROUND_PHASES])
{
    static const int without[] = {0,
                                  1 << HR_STALLS_DEVICE,
                                  1 << HR_STALLS_WARM,
                                  1 << HR_STALLS_DEVICE | 1 << HR_STALLS_WARM,
                                  1 << HR_STALLS_HOST,
                                  1 << HR_STALLS_HOST | 1 << HR_STALLS_WARM};
    const int replays = 1 << HR_STALLS_DEVICE | 1 << HR_STALLS_HOST;
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        int left = phases & ~without[i];
        if (left & replays && left >> of & 1 &&
            hr__rounds_share(j->round, j->rounds, left, of, share))
            return left;
    }
    return 0;
}

/*
 * Splits the time of phase `of` into compute, copy, preparation and fetch. A part that cannot be
 * separated counts with its neighbour and is itself unknown: the copy counts with compute if
 * nothing was replayed from the device, with preparation if nothing was replayed from the host;
 * fetching counts with preparation if files were never in memory.
 */
static void split(const struct hr_stalls *s, const struct hr__joined *j, enum hr_stalls_phase of,
                  struct hr_interval out[4])
{
    struct hr_interval share[HR__ROUND_PHASES];
    int phases = 0;
    for (int p = 0; p <= (int)of; p++)
        phases |= ran(s, p) << p;
    for (int i = 0; i < 4; i++)
        out[i] = HR__UNKNOWN;
    phases = phases_in_common(j, phases, of, share);
    if (!phases)
        return;
    bool device = phases >> HR_STALLS_DEVICE & 1, host = phases >> HR_STALLS_HOST & 1;
    out[0] = share[device ? HR_STALLS_DEVICE : HR_STALLS_HOST];
    if (s->on_cpu)
        out[1] = (struct hr_interval){0, 0, 0};
    else if (device && host)
        out[1] = share[HR_STALLS_HOST];
    if (phases >> HR_STALLS_WARM & 1) {
        out[2] = share[HR_STALLS_WARM];
        if (of == HR_STALLS_COLD)
            out[3] = share[HR_STALLS_COLD];
    } else {
        out[2] = share[HR_STALLS_COLD];
    }
}

static int enough(const struct hr_stalls *s, const struct hr__joined *j, struct hr_error *error)
{
    const char *why[HR_STALLS_PHASES];
    for (int p = 0; p < HR_STALLS_PHASES; p++)
        why[p] = *s->phase_reason[p] ? s->phase_reason[p] : "it did not come to that";
    if (!j->segments)
        return hr__fail(error, -ENODATA,
                        "nothing was measured on every rank (the run ended: %s): let the script "
                        "run for more batches",
                        s->ended);
    if (!ran(s, HR_STALLS_DEVICE) && !ran(s, HR_STALLS_HOST))
        return hr__fail(error, -ENODATA,
                        "no segment without loading was measured (device: %s; host: %s), so there "
                        "is nothing to compare with: let the script run for more batches",
                        why[HR_STALLS_DEVICE], why[HR_STALLS_HOST]);
    if (!ran(s, HR_STALLS_WARM) && !ran(s, HR_STALLS_COLD))
        return hr__fail(error, -ENODATA,
                        "no segment with loading was measured (warm: %s; cold: %s), so what "
                        "loading costs is not known: let the script run for more batches",
                        why[HR_STALLS_WARM], why[HR_STALLS_COLD]);
    return 0;
}

static void fill_summary(struct hr_stalls *s, const struct hr__joined *j)
{
    struct hr_stalls_summary *m = &s->summary;
    struct hr_interval warm[4];
    m->size = sizeof *m;
    m->ranks = s->world_size;
    m->cores = s->hosts[0].cores;
    m->samples = s->samples;
    double bytes = hr__dataset_bytes(s);
    m->bytes = bytes > 0 ? (uint64_t)bytes : 0;
    for (int i = 0; i < 4; i++)
        m->share[i] = warm[i] = HR__UNKNOWN;
    if (ran(s, HR_STALLS_COLD))
        split(s, j, HR_STALLS_COLD, m->share);
    if (ran(s, HR_STALLS_WARM))
        split(s, j, HR_STALLS_WARM, warm);
    memcpy(m->warm_share, warm, sizeof m->warm_share);
    m->device_rate = m->rate[ran(s, HR_STALLS_DEVICE) ? HR_STALLS_DEVICE : HR_STALLS_HOST];
    hr__derive_rates(s, j->scale);
    hr__derive_checks(s);
}

static int derive(struct hr_stalls *s, const struct hr__joined *j, struct hr_error *error)
{
    int r = phase_times(s, j, error);
    if (!r)
        r = alone_times(s, j, error);
    if (!r)
        r = enough(s, j, error);
    if (r)
        return r;
    fill_summary(s, j);
    if (!isfinite(s->summary.share[0].value) && !isfinite(s->summary.warm_share[0].value))
        return hr__fail(error, -ENODATA,
                        "no round has both a segment without loading and one with it that counts: "
                        "let the script run for more batches");
    size_t ranks = (size_t)s->rank_count;
    s->alone_s = hr__alloc(HR__TAG_STALLS, ranks, sizeof *s->alone_s);
    s->waiting = hr__alloc(HR__TAG_STALLS, ranks, sizeof *s->waiting);
    s->straggles = hr__alloc(HR__TAG_STALLS, ranks, sizeof *s->straggles);
    if (!s->alone_s || !s->waiting || !s->straggles)
        return hr__fail(error, -ENOMEM, "out of memory for %zu ranks", ranks);
    r = hr__derive_ranks(s, j, error);
    return r ? r : hr__derive_sentence(s, error);
}

int hr__stalls_derive(struct hr_stalls *stalls, struct hr_error *error)
{
    struct hr__joined joined;
    hr__stalls_drop_derived(stalls);
    memset(&stalls->summary, 0, sizeof stalls->summary);
    int r = hr__joined_make(&joined, stalls, error);
    if (r)
        return r;
    r = derive(stalls, &joined, error);
    hr__joined_destroy(&joined);
    return r;
}
