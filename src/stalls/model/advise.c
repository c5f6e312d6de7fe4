/*
 * What the model adds to the sentence: what would remove the stall, the first of what it
 * suggests; and how much is waited where a part of the files stays in memory. It takes a
 * search of simulations, up to seconds, so it is asked once, when records are analysed;
 * stalls.json keeps the answers.
 */
#include "base/error.h"
#include "stalls/model/inside.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Less waiting than this is none. */
#define STALL 0.02
/* Suggestions that are told. */
#define TOLD 2
/* Samples in preparation at once on a host, beyond which the search would take minutes. */
#define MOST_AT_ONCE (1 << 17)

static bool small_enough(const struct hr_stalls *s)
{
    int64_t ranks = (s->rank_count + s->host_count - 1) / s->host_count;
    int64_t workers = s->workers > 0 ? s->workers : 1;
    return ranks * workers * s->batch_size <= MOST_AT_ONCE;
}

/* "A", "A or B"; "A and B, or C". */
static void join(char *out, size_t capacity, const struct hr_stalls_suggestion *found, int count)
{
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < count && used < capacity; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%s",
                                 i ? (strstr(out, " and ") ? ", or " : " or ") : "", found[i].text);
}

/* How it is now, where that is neither of the epochs that were measured. */
static void find_now(struct hr_stalls *s)
{
    struct hr_stalls_prediction p = {.size = sizeof p};
    struct hr_error problem;
    if (hr_stalls_predict(s, NULL, &p, &problem) || p.measured || !(p.cached > 0 && p.cached < 1))
        return;
    s->now_cached = p.cached;
    s->now_waits = 1 - p.share[0];
}

int hr__stalls_advise(struct hr_stalls *s, struct hr_error *error)
{
    struct hr_stalls_suggestion found[TOLD] = {{.size = sizeof found[0]},
                                               {.size = sizeof found[0]}};
    struct hr_error problem;
    s->now_cached = s->now_waits = NAN;
    if (small_enough(s))
        find_now(s);
    int n = small_enough(s) ? hr_stalls_suggest(s, STALL, found, TOLD, &problem) : 0;
    if (n == -ENOMEM)
        return hr__fail(error, n, "%s", problem.message);
    /* What cannot be predicted for want of figures leaves the sentence as it is; and a
     * change of nothing is no advice. */
    if (n > 0 && strcmp(found[0].text, "nothing"))
        join(s->remedy, sizeof s->remedy, found, n);
    return hr__derive_sentence(s, error);
}
