/*
 * Adds the model's advice to the sentence: what would remove the stall (its first suggestions), and
 * how much time is spent waiting if part of the files stays in memory. This takes a search of
 * simulations, up to seconds, so it runs once, when records are analysed; stalls.json keeps the
 * answers.
 */
#include "base/error.h"
#include "base/memory.h"
#include "stalls/model/inside.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Suggestions in the sentence. */
#define MOST_ADVICE 2
/* Limit of samples in preparation at once on a host; beyond it the search would take minutes. */
#define MOST_AT_ONCE (1 << 17)

static bool small_enough(const struct hr_stalls *s)
{
    int64_t ranks = (s->rank_count + s->host_count - 1) / s->host_count;
    int64_t workers = s->workers > 0 ? s->workers : 1;
    return ranks * workers * s->batch_size <= MOST_AT_ONCE;
}

/* Writes "A", "A or B"; "A and B, or C". */
static void join(char *out, size_t capacity, const struct hr_stalls_suggestion *found, int count)
{
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < count && used < capacity; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%s",
                                 i ? (strstr(out, " and ") ? ", or " : " or ") : "", found[i].text);
}

/* Predicts the present state, if it is neither of the measured kinds of epoch. */
static void find_now(struct hr_stalls *s)
{
    struct hr_stalls_prediction p = {.size = sizeof p};
    struct hr_error problem;
    if (hr_stalls_predict(s, NULL, &p, &problem) || p.measured || !(p.cached > 0 && p.cached < 1))
        return;
    s->now_cached = p.cached;
    s->now_waits = 1 - p.share[0];
}

/* If figures for a prediction are missing, leaves the result unchanged. Returns -ENOMEM or 0. */
static int find_suggestions(struct hr_stalls *s, struct hr_error *error)
{
    struct hr_error problem;
    hr__free(s->suggestions);
    s->suggestions = hr__alloc(HR__TAG_STALLS, HR__SUGGESTIONS, sizeof *s->suggestions);
    s->suggestion_count = 0;
    s->has_suggestions = false;
    if (!s->suggestions)
        return hr__fail(error, -ENOMEM, "out of memory for suggestions");
    for (int i = 0; i < HR__SUGGESTIONS; i++)
        s->suggestions[i].size = sizeof *s->suggestions;
    int n = hr_stalls_suggest(s, HR__STALL, s->suggestions, HR__SUGGESTIONS, &problem);
    s->suggestion_count = n > 0 ? (size_t)n : 0;
    s->has_suggestions = n >= 0;
    return n == -ENOMEM ? hr__fail(error, n, "%s", problem.message) : 0;
}

int hr__stalls_advise(struct hr_stalls *s, struct hr_error *error)
{
    s->now_cached = s->now_waits = s->relief_waits = NAN;
    *s->relief = 0;
    if (small_enough(s)) {
        find_now(s);
        int r = find_suggestions(s, error);
        if (r)
            return r;
    }
    const struct hr_stalls_suggestion *found = s->suggestions;
    int n = (int)s->suggestion_count;
    double waits = n ? found->prediction.share[2] + found->prediction.share[3] : 0;
    if (waits > HR__STALL) {
        snprintf(s->relief, sizeof s->relief, "%s", found->text);
        s->relief_waits = waits;
        found++;
        n--;
    }
    /* Changing nothing is no advice. */
    if (n && strcmp(found->text, "nothing"))
        join(s->remedy, sizeof s->remedy, found, n < MOST_ADVICE ? n : MOST_ADVICE);
    return hr__derive_sentence(s, error);
}
