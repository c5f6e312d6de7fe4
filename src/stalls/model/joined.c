/*
 * Joins the segments of all ranks. All ranks change segments at the same batch, so the k-th segment
 * of each is the same one. In synchronous training each rank takes as long as the slowest, and
 * differences between their clocks are noise: the longest time counts.
 *
 * If a phase was verified in some rounds (cold was really cold), only those count. If it was
 * verified in none, all count, and the phase is marked as not measured. Segments disturbed by other
 * processes count only if there are too few others.
 */
#include "base/error.h"
#include "base/memory.h"
#include "stalls/model/inside.h"
#include "stalls/model/parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int same_segments(const struct hr__rank_record *a, const struct hr__rank_record *b,
                         size_t count, struct hr_error *error)
{
    for (size_t k = 0; k < count; k++) {
        const struct hr__segment_record *x = &a->segments[k], *y = &b->segments[k];
        if (x->phase != y->phase || x->round != y->round || x->alone_rank != y->alone_rank)
            return hr__fail(error, -EINVAL,
                            "segment %zu was %s of round %d on rank %d and %s of round %d on rank "
                            "%d: the records are damaged or not of one run",
                            k, hr__phase_names[x->phase], x->round, a->rank,
                            hr__phase_names[y->phase], y->round, b->rank);
    }
    return 0;
}

/* Returns the seconds of a global batch in segment k, and its samples. */
static double batch_s(const struct hr_stalls *s, size_t k, double *samples)
{
    double longest = 0, sum = 0;
    for (int i = 0; i < s->rank_count; i++) {
        const struct hr__segment_record *g = &s->ranks[i].segments[k];
        longest = fmax(longest, g->elapsed_s / (double)g->batches);
        sum += (double)g->samples / (double)g->batches;
    }
    *samples = sum;
    return longest > 0 ? longest : NAN;
}

/* If no file is read, there is nothing to verify. */
static bool needs_none(const struct hr_stalls *s, int phase)
{
    return s->reads_no_files && phase == HR_STALLS_WARM;
}

/* Returns 0 if any rank reports 0, else 1 if any reports 1, else -1. */
static int verified(const struct hr_stalls *s, size_t k, const char **reason)
{
    int all = -1;
    if (needs_none(s, (int)s->ranks[0].segments[k].phase))
        return all;
    for (int i = 0; i < s->rank_count; i++) {
        const struct hr__segment_record *g = &s->ranks[i].segments[k];
        if (g->verified == 0) {
            *reason = g->reason;
            return 0;
        }
        if (g->verified > 0)
            all = 1;
    }
    return all;
}

/* With so many undisturbed rounds of a phase, the disturbed ones are ignored. */
#define ENOUGH_ROUNDS 4

static bool is_disturbed(const struct hr_stalls *s, size_t k)
{
    for (int i = 0; i < s->rank_count; i++)
        if (s->ranks[i].segments[k].disturbed)
            return true;
    return false;
}

/* `sound`: count only verified segments. */
static bool needs_disturbed(const struct hr__joined *j, const struct hr_stalls *s, int phase,
                            bool sound)
{
    const char *reason;
    int quiet = 0;
    for (size_t k = 0; k < j->segments; k++)
        quiet += (int)s->ranks[0].segments[k].phase == phase && !is_disturbed(s, k) &&
                 (!sound || verified(s, k, &reason));
    return quiet < ENOUGH_ROUNDS;
}

/* Decides which rounds of a phase count, and whether the phase was measured. */
static void judge(struct hr__joined *j, struct hr_stalls *s, int phase)
{
    const char *reason = "", *first_reason = NULL;
    bool found = false, sound = false;
    char *why = s->phase_reason[phase];
    if (needs_none(s, phase))
        *why = 0;
    for (size_t k = 0; k < j->segments; k++) {
        const struct hr__segment_record *g = &s->ranks[0].segments[k];
        if ((int)g->phase != phase)
            continue;
        found = true;
        if (verified(s, k, &reason))
            sound = true;
        else if (!first_reason)
            first_reason = reason;
    }
    /* A record gives reasons for skipped phases and for rounds that were not verified. The latter
     * do not matter if other rounds were verified. */
    s->summary.measured[phase] = found && sound && (first_reason || !*why);
    if (s->summary.measured[phase])
        *why = 0;
    else if (found && !sound && !*why)
        snprintf(why, sizeof s->phase_reason[phase], "%s",
                 first_reason && *first_reason ? first_reason : "it was not verified");
    bool take_disturbed = needs_disturbed(j, s, phase, sound);
    for (size_t k = 0; k < j->segments && phase < HR__ROUND_PHASES; k++) {
        const struct hr__segment_record *g = &s->ranks[0].segments[k];
        if ((int)g->phase != phase || (sound && !verified(s, k, &reason)) ||
            (!take_disturbed && is_disturbed(s, k)))
            continue;
        double samples;
        j->round[g->round].seconds[phase] = batch_s(s, k, &samples);
        j->samples[phase][g->round] = samples * j->scale;
    }
}

int hr__joined_make(struct hr__joined *joined, struct hr_stalls *s, struct hr_error *error)
{
    struct hr__joined *j = joined;
    *j = (struct hr__joined){.segments = SIZE_MAX, .rounds = 1};
    j->scale = (double)s->world_size / s->rank_count;
    for (int i = 0; i < s->rank_count; i++)
        if (s->ranks[i].segment_count < j->segments)
            j->segments = s->ranks[i].segment_count;
    for (int i = 1; i < s->rank_count; i++) {
        int r = same_segments(&s->ranks[0], &s->ranks[i], j->segments, error);
        if (r)
            return r;
    }
    for (size_t k = 0; k < j->segments; k++)
        if (s->ranks[0].segments[k].round >= j->rounds)
            j->rounds = s->ranks[0].segments[k].round + 1;
    j->round = hr__alloc(HR__TAG_STALLS, (size_t)j->rounds, sizeof *j->round);
    bool ok = j->round;
    for (int p = 0; p < HR__ROUND_PHASES; p++) {
        j->samples[p] = hr__alloc(HR__TAG_STALLS, (size_t)j->rounds, sizeof *j->samples[p]);
        ok &= j->samples[p] != NULL;
        for (int r = 0; ok && r < j->rounds; r++)
            j->round[r].seconds[p] = j->samples[p][r] = NAN;
    }
    if (!ok) {
        hr__joined_destroy(j);
        return hr__fail(error, -ENOMEM, "out of memory for %d rounds", j->rounds);
    }
    for (int p = 0; p < HR_STALLS_PHASES; p++)
        judge(j, s, p);
    return 0;
}

void hr__joined_destroy(struct hr__joined *joined)
{
    hr__free(joined->round);
    for (int p = 0; p < HR__ROUND_PHASES; p++)
        hr__free(joined->samples[p]);
    *joined = (struct hr__joined){0};
}
