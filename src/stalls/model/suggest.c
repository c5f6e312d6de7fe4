/*
 * Finds the cheapest changes that remove the stall. Candidates come in order of their cost to a
 * person, and the model tries each; for cache, workers, cores and disks it finds the smallest
 * sufficient amount. Only waiting that was measured with certainty justifies a change.
 */
#include "stalls/model/inside.h"
#include "stalls/model/predict.h"

#include "base/error.h"
#include "base/versioned.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_CORES       256 /* per host */
#define MOST_MORE        16  /* times as many as it has: nobody would go further */
#define MOST_WORKERS     32  /* per rank with fewer cores: waiting workers use none */
#define MOST_STORAGE     64  /* times as fast as measured */
#define CACHE_STEPS      100 /* steps of the share that a cache may hold */
#define MOST_SUGGESTIONS 16
#define SEEN             0.005 /* smallest share of the time that counts */
#define RELIEF           0.25  /* share of the waiting that a change at no cost may leave */

/* What all candidates share. */
struct search {
    const struct hr__model *model;
    double stall;
    struct hr_stalls_suggestion *found;
    int count, capacity;
    struct hr_error *error;
};

static double waiting(const struct hr_stalls_prediction *p)
{
    return p->share[2] + p->share[3];
}

/* Tries a change; *does: the remaining waiting is small enough. A change that cannot be predicted
 * is skipped. */
static int try_change(struct search *s, const struct hr_stalls_change *change,
                      struct hr_stalls_prediction *p, bool *does)
{
    int r = hr__model_predict(s->model, change, false, p, s->error);
    *does = !r && waiting(p) <= s->stall;
    return r == -ENODATA || r == -EINVAL ? 0 : r;
}

static int keep(struct search *s, const struct hr_stalls_change *change, const char *text)
{
    struct hr_stalls_suggestion *one = &s->found[s->count];
    *one = (struct hr_stalls_suggestion){.size = sizeof *one, .change = *change};
    snprintf(one->text, sizeof one->text, "%s", text);
    int r = hr__model_predict(s->model, change, true, &one->prediction, s->error);
    one->prediction.size = sizeof one->prediction;
    s->count += !r;
    return r;
}

/* ---- candidates: each modifies `change` and names it ---- */

struct candidate {
    void (*apply)(const struct hr__model *model, int amount, struct hr_stalls_change *change);
    void (*name)(const struct hr__model *model, const struct hr_stalls_change *change, char *text,
                 size_t room);
    int least, most; /* range of amounts in which to find the smallest sufficient one */
};

static void headrace(const struct hr__model *model, int amount, struct hr_stalls_change *change)
{
    change->loader = HR_STALLS_LOADER_HEADRACE;
    change->page_cache = 1; /* only the import changes */
}

static void name_headrace(const struct hr__model *model, const struct hr_stalls_change *change,
                          char *text, size_t room)
{
    snprintf(text, room, "Headrace's loader");
}

/* Returns the bytes of a cache that never evicts: the dataset's, in the form fastest to prepare if
 * that fits; at most the free memory. */
static double cache_bytes(const struct hr__model *model, bool forms)
{
    const struct hr__host_record *host = model->host;
    double bytes = model->dataset_bytes, fastest = INFINITY, file = 0;
    for (size_t i = 0; i < host->form_count; i++)
        if (host->forms[i].form == HR_FORM_ENCODED)
            file = host->forms[i].bytes;
    for (size_t i = 0; i < host->form_count && forms && file > 0; i++) {
        double all = model->dataset_bytes * host->forms[i].bytes / file;
        if (host->forms[i].cpu_s < fastest && all <= model->available_bytes) {
            fastest = host->forms[i].cpu_s;
            bytes = all;
        }
    }
    return fmin(ceil(bytes), model->available_bytes);
}

static void cache(const struct hr__model *model, int amount, struct hr_stalls_change *change)
{
    double bytes = cache_bytes(model, change->loader == HR_STALLS_LOADER_HEADRACE);
    bytes = ceil(bytes * amount / CACHE_STEPS);
    change->page_cache = 0;
    if (bytes >= 1)
        change->cache_bytes = (uint64_t)bytes;
}

static void name_cache(const struct hr__model *model, const struct hr_stalls_change *change,
                       char *text, size_t room)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    double bytes = (double)change->cache_bytes / 1024;
    int unit = 0;
    for (; bytes >= 999.5 && unit < 4; unit++)
        bytes /= 1024;
    snprintf(text, room, "a cache of %.*f %s that never evicts", bytes < 9.95 ? 1 : 0, bytes,
             units[unit]);
}

static void workers(const struct hr__model *model, int amount, struct hr_stalls_change *change)
{
    change->workers = amount;
}

static void name_workers(const struct hr__model *model, const struct hr_stalls_change *change,
                         char *text, size_t room)
{
    snprintf(text, room, "%d worker%s%s", change->workers, change->workers == 1 ? "" : "s",
             model->system.ranks > 1 ? " per rank" : "");
}

/* Sets a rank's cores and as many workers; fewer may suffice (least_workers). */
static void cores(const struct hr__model *model, int amount, struct hr_stalls_change *change)
{
    int own = model->system.workers;
    bool threads =
        change->loader == HR_STALLS_LOADER_HEADRACE || model->system.loader == HR__LOADER_HEADRACE;
    change->cores = amount * model->system.ranks;
    change->workers = threads || amount <= own ? 0 : amount;
}

static void name_cores(const struct hr__model *model, const struct hr_stalls_change *change,
                       char *text, size_t room)
{
    const char *per = model->system.ranks < 2 ? ""
                      : model->stalls->on_cpu ? " per rank"
                                              : " per GPU";
    int n = snprintf(text, room, "%d cores%s", change->cores / model->system.ranks, per);
    if (change->workers && n > 0 && (size_t)n < room)
        snprintf(text + n, room - (size_t)n, " with %d worker%s%s", change->workers,
                 change->workers == 1 ? "" : "s", model->system.ranks > 1 ? " each" : "");
}

static void disk(const struct hr__model *model, int amount, struct hr_stalls_change *change)
{
    change->storage_factor = amount;
}

static void name_disk(const struct hr__model *model, const struct hr_stalls_change *change,
                      char *text, size_t room)
{
    const char *what = hr__is_at_urls(model->stalls) ? "a network" : "storage";
    snprintf(text, room, "%s %.0f times as fast", what, change->storage_factor);
}

static int core_least(const struct hr__model *model)
{
    return model->system.cores / model->system.ranks + 1;
}

/* One candidate (the second part is NULL) or two together. */
struct plan {
    const struct candidate *part[2];
    int amount[2];
    int workers; /* overrides the parts' workers; 0: no override */
};

static struct hr_stalls_change change_of(const struct search *s, const struct plan *plan)
{
    struct hr_stalls_change change;
    hr_stalls_change_default(&change);
    for (int i = 0; i < 2; i++)
        if (plan->part[i])
            plan->part[i]->apply(s->model, plan->amount[i], &change);
    if (plan->workers)
        change.workers = plan->workers;
    return change;
}

static int try_amount(struct search *s, struct plan *plan, int part, int amount, bool *does)
{
    struct hr_stalls_prediction p;
    plan->amount[part] = amount;
    struct hr_stalls_change change = change_of(s, plan);
    return try_change(s, &change, &p, does);
}

/* Finds the smallest sufficient amount of one part by doubling, then bisection; 0: none. */
static int least_amount(struct search *s, struct plan *plan, int part)
{
    const struct candidate *candidate = plan->part[part];
    int below = candidate->least - 1, at = candidate->least;
    bool does = false;
    int r = try_amount(s, plan, part, at, &does);
    while (!r && !does && at < candidate->most) {
        below = at;
        at = at * 2 < candidate->most ? at * 2 : candidate->most;
        r = try_amount(s, plan, part, at, &does);
    }
    while (!r && does && at - below > 1) {
        int middle = below + (at - below) / 2;
        bool enough = false;
        r = try_amount(s, plan, part, middle, &enough);
        if (enough)
            at = middle;
        else
            below = middle;
    }
    plan->amount[part] = does ? at : 0;
    return r;
}

/* For a plan that has more workers because it has more cores, finds the fewest sufficient
 * workers. */
static int least_workers(struct search *s, struct plan *plan)
{
    int below = s->model->system.workers, enough = change_of(s, plan).workers, r = 0;
    while (!r && enough - below > 1) {
        struct hr_stalls_prediction p;
        bool does = false;
        plan->workers = below + (enough - below) / 2;
        struct hr_stalls_change change = change_of(s, plan);
        r = try_change(s, &change, &p, &does);
        if (does)
            enough = plan->workers;
        else
            below = plan->workers;
    }
    plan->workers = enough > 0 ? enough : 0;
    return r;
}

static int keep_plan(struct search *s, struct plan *plan)
{
    char names[2][64] = {"", ""}, text[160];
    int r = change_of(s, plan).cores ? least_workers(s, plan) : 0;
    if (r)
        return r;
    struct hr_stalls_change change = change_of(s, plan);
    for (int i = 0; i < 2; i++)
        if (plan->part[i])
            plan->part[i]->name(s->model, &change, names[i], sizeof names[i]);
    snprintf(text, sizeof text, "%s%s%s", names[0], plan->part[1] ? " and " : "", names[1]);
    return keep(s, &change, text);
}

static bool possible(const struct candidate *candidate)
{
    return candidate->most >= candidate->least;
}

static int add_single(struct search *s, const struct candidate *candidate)
{
    struct plan plan = {.part = {candidate, NULL}};
    if (s->count == s->capacity || !possible(candidate))
        return 0;
    int r = least_amount(s, &plan, 0);
    return r || !plan.amount[0] ? r : keep_plan(s, &plan);
}

/* With the most of the first part, finds the least of the second; then the least of the first. */
static int add_pair(struct search *s, const struct candidate *first, const struct candidate *second)
{
    struct plan plan = {.part = {first, second}, .amount = {first->most, 0}};
    if (s->count == s->capacity || !possible(first) || !possible(second))
        return 0;
    int r = least_amount(s, &plan, 1);
    if (r || !plan.amount[1])
        return r;
    r = least_amount(s, &plan, 0);
    return r || !plan.amount[0] ? r : keep_plan(s, &plan);
}

static int most_cores(const struct hr__model *model)
{
    int most =
        model->system.cores < MOST_CORES / MOST_MORE ? MOST_MORE * model->system.cores : MOST_CORES;
    return most / model->system.ranks;
}

/* Where only two changes together would suffice: keeps Headrace's loader alone if it removes most
 * of the waiting. It costs nothing, and what the second change adds is little. */
static int add_relief(struct search *s, const struct candidate *candidate, double now)
{
    struct plan plan = {.part = {candidate, NULL}, .amount = {1, 0}};
    if (s->count == s->capacity || !possible(candidate))
        return 0;
    struct hr_stalls_change change = change_of(s, &plan);
    struct hr_stalls_prediction p;
    bool does;
    p.share[2] = p.share[3] = 1; /* if it cannot be predicted */
    int r = try_change(s, &change, &p, &does);
    return r || waiting(&p) > RELIEF * now ? r : keep_plan(s, &plan);
}

/* ---- known causes of waiting ---- */

/* Returns whether a share is certain: its interval does not include 0. */
static bool is_share(bool measured, const struct hr_interval *share)
{
    return measured && share->low > 0;
}

/* Causes of waiting that are certain: changes are suggested only for these. */
struct waits {
    bool prepares, fetches;
};

static int find_waits(const struct hr_stalls *stalls, struct waits *waits, struct hr_error *error)
{
    const struct hr_stalls_summary *m = &stalls->summary;
    bool cold = m->measured[HR_STALLS_COLD];
    waits->fetches = is_share(cold, &m->share[3]);
    waits->prepares =
        is_share(cold, &m->share[2]) || is_share(m->measured[HR_STALLS_WARM], &m->warm_share[2]);
    if (waits->fetches || waits->prepares)
        return 0;
    return hr__fail(error, -ENODATA,
                    "not known: whether training waits for data at all (the intervals of what it "
                    "waits for include 0): measure for longer (--time), or on a quieter machine");
}

/* ---- the whole ---- */

enum { HEADRACE, CACHE, WORKERS, CORES, DISK, COUNT };

static int collect(struct search *s)
{
    const struct hr__model *model = s->model;
    const struct hr_stalls *stalls = model->stalls;
    bool can_cache = stalls->loader != HR__LOADER_OTHER && model->available_bytes > 0 &&
                     model->dataset_bytes > 0;
    int own_cores = model->system.cores / model->system.ranks;
    int most_workers = own_cores > MOST_WORKERS ? own_cores : MOST_WORKERS;
    bool own = stalls->loader == HR__LOADER_HEADRACE;
    const struct candidate candidates[] = {
        {headrace, name_headrace, 1, own ? 0 : 1},
        {cache, name_cache, 1, can_cache ? CACHE_STEPS : 0},
        {workers, name_workers, model->system.workers + 1, most_workers},
        {cores, name_cores, core_least(model), most_cores(model)},
        {disk, name_disk, 2, MOST_STORAGE},
    };
    /* Pairs, in order of their joint cost. */
    static const int pairs[][2] = {{HEADRACE, CACHE}, {CACHE, WORKERS}, {HEADRACE, CORES},
                                   {CACHE, CORES},    {HEADRACE, DISK}, {WORKERS, DISK},
                                   {CORES, DISK}};
    struct hr_stalls_change none;
    struct hr_stalls_prediction p;
    hr_stalls_change_default(&none);
    int r = hr__model_predict(model, &none, false, &p, s->error);
    if (r)
        return r;
    if (waiting(&p) <= s->stall)
        return s->capacity ? keep(s, &none, "nothing") : 0;
    struct waits waits;
    r = find_waits(stalls, &waits, s->error);
    if (r)
        return r;
    bool fetches = waits.fetches && p.share[3] > SEEN;
    bool enough_cores = false; /* more workers suffice on the existing cores */
    for (int i = 0; i < COUNT && !r; i++) {
        int before = s->count;
        if ((!fetches && (i == CACHE || i == DISK)) || (i == CORES && enough_cores) ||
            (!waits.prepares && i == CORES))
            continue;
        r = add_single(s, &candidates[i]);
        enough_cores |= i == WORKERS && s->count > before;
    }
    int single = s->count;
    if (!r && !single)
        r = add_relief(s, &candidates[HEADRACE], waiting(&p));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && !r && !single; i++) {
        int before = s->count;
        bool disk = pairs[i][0] == CACHE || pairs[i][1] == CACHE || pairs[i][1] == DISK;
        bool more = pairs[i][0] == CORES || pairs[i][1] == CORES;
        if ((more && (enough_cores || !waits.prepares)) || (disk && !fetches))
            continue;
        r = add_pair(s, &candidates[pairs[i][0]], &candidates[pairs[i][1]]);
        enough_cores |= pairs[i][0] == WORKERS && s->count > before;
    }
    return r;
}

/* Fills in the result's own suggestions, and the predictions that it lacks. */
static int recall(struct search *s)
{
    const struct hr_stalls *stalls = s->model->stalls;
    int r = 0;
    for (size_t i = 0; i < stalls->suggestion_count && s->count < s->capacity && !r; i++) {
        const struct hr_stalls_suggestion *one = &stalls->suggestions[i];
        if (one->prediction.size)
            s->found[s->count++] = *one;
        else
            r = keep(s, &one->change, one->text);
    }
    return r;
}

int hr_stalls_suggest(const struct hr_stalls *result, double stall,
                      struct hr_stalls_suggestion *suggestions, int capacity,
                      struct hr_error *error)
{
    struct hr_stalls_suggestion found[MOST_SUGGESTIONS];
    struct hr__model model;
    if (!(stall >= 0 && stall <= 1))
        return hr__fail(error, -EINVAL, "a stall is a share of the time, from 0 to 1");
    if (capacity < 0 || (capacity && suggestions->size < sizeof suggestions->size))
        return hr__fail(error, -EINVAL, "hr_stalls_suggestion.size is not set");
    int r = hr__model_open(&model, result, error);
    if (r)
        return r;
    struct search s = {.model = &model,
                       .stall = stall,
                       .found = found,
                       .capacity = capacity < MOST_SUGGESTIONS ? capacity : MOST_SUGGESTIONS,
                       .error = error};
    r = stall == HR__STALL && result->has_suggestions ? recall(&s) : collect(&s);
    hr__model_clear(&model);
    if (r)
        return r;
    size_t stride = capacity ? suggestions->size : 0;
    for (int i = 0; i < s.count; i++) {
        char *out = (char *)suggestions + (size_t)i * stride;
        memcpy(out, &stride, sizeof stride);
        hr__versioned_give(out, &found[i], sizeof found[i]);
    }
    return s.count;
}
