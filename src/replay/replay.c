/* Opens traces; see include/headrace/replay.h. */
#include "replay/scenario.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LIMIT_USUAL 0.05

static const struct hr_replay_options defaults = {
    .size = sizeof defaults, .instance = -1, .limit = LIMIT_USUAL};

void hr_replay_options_init(struct hr_replay_options *options, size_t size)
{
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

/* Paths of traces. */
struct path_list {
    char **paths;
    size_t count;
};

static int no_memory(struct hr_error *error)
{
    return hr__fail(error, -ENOMEM, "out of memory for a replay");
}

static int add_path(struct path_list *list, const char *folder, const char *name)
{
    size_t length = strlen(folder) + strlen(name) + 2;
    if (hr__reserve(HR__TAG_REPLAY, &list->paths, list->count + 1))
        return -ENOMEM;
    char *path = hr__alloc(HR__TAG_REPLAY, length, 1);
    if (!path)
        return -ENOMEM;
    snprintf(path, length, "%s%s%s", folder, *folder ? "/" : "", name);
    list->paths[list->count++] = path;
    return 0;
}

static int is_trace_name(const char *name)
{
    size_t n = strlen(name);
    return (n > 5 && !strcmp(name + n - 5, ".json")) ||
           (n > 8 && !strcmp(name + n - 8, ".json.gz"));
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_folder(struct path_list *list, const char *folder, struct hr_error *error)
{
    DIR *dir = opendir(folder);
    size_t first = list->count;
    int code = 0;
    if (!dir)
        return hr__fail(error, -errno, "cannot open %s: %s", folder, hr__errno_text(errno));
    for (struct dirent *entry; !code && (entry = readdir(dir));)
        if (is_trace_name(entry->d_name) && add_path(list, folder, entry->d_name))
            code = no_memory(error);
    closedir(dir);
    if (!code && list->count == first)
        return hr__fail(error, -ENODATA, "%s has no files *.json or *.json.gz", folder);
    if (!code)
        qsort(list->paths + first, list->count - first, sizeof *list->paths, by_text);
    return code;
}

static int list_paths(struct path_list *list, const char *const *paths, size_t count,
                      struct hr_error *error)
{
    int code = 0;
    for (size_t i = 0; i < count && !code; i++) {
        struct stat info;
        if (!stat(paths[i], &info) && S_ISDIR(info.st_mode))
            code = add_folder(list, paths[i], error);
        else if (add_path(list, "", paths[i]))
            code = no_memory(error);
    }
    return code;
}

static int by_rank(const void *a, const void *b)
{
    const struct hr__trace_data *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Refuses traces, sorted by rank, that are not of different ranks of one run. */
static int check_ranks(const struct hr_replay *r, struct hr_error *error)
{
    const struct hr__trace_data *first = r->traces;
    if (r->trace_count > 1 && first->rank < 0)
        return hr__fail(error, -EINVAL,
                        "one of %zu traces does not say its rank (distributedInfo), so they cannot "
                        "be joined: give one of them",
                        r->trace_count);
    for (size_t i = 1; i < r->trace_count; i++) {
        const struct hr__trace_data *t = &r->traces[i];
        if (t->rank == t[-1].rank)
            return hr__fail(error, -EINVAL,
                            "two traces are of rank %lld: give one trace of each rank of one run",
                            (long long)t->rank);
        if (t->ranks != first->ranks)
            return hr__fail(error, -EINVAL,
                            "rank %lld is of a run of %lld ranks, and rank %lld of one of %lld: "
                            "give traces of one run",
                            (long long)first->rank, (long long)first->ranks, (long long)t->rank,
                            (long long)t->ranks);
    }
    return 0;
}

/* Reads all traces and sorts them by rank. */
static int read_all(struct hr_replay *r, const struct path_list *list, struct hr_error *error)
{
    r->traces = hr__alloc(HR__TAG_REPLAY, list->count + 1, sizeof *r->traces);
    if (!r->traces)
        return no_memory(error);
    for (size_t i = 0; i < list->count; i++) {
        r->trace_count++;
        int code = hr__trace_read(&r->traces[i], list->paths[i], error);
        if (code)
            return code;
    }
    qsort(r->traces, r->trace_count, sizeof *r->traces, by_rank);
    return check_ranks(r, error);
}

static int open_all(struct hr_replay *r, const char *const *paths, size_t count,
                    const struct hr_replay_options *o, struct hr_error *error)
{
    const struct hr__trace_window window = {.name = o->window, .instance = o->instance};
    struct path_list list = {.paths = NULL};
    int code = list_paths(&list, paths, count, error);
    if (!code && !list.count)
        code = hr__fail(error, -EINVAL, "no trace was given");
    if (!code)
        code = read_all(r, &list, error);
    for (size_t i = 0; i < list.count; i++)
        hr__free(list.paths[i]);
    hr__free(list.paths);
    if (!code)
        code = hr__graph_build(&r->graph, r->traces, r->trace_count, &window, error);
    if (!code)
        code = hr__graph_replay(&r->schedule, &r->graph, NULL, error);
    if (!code)
        code = hr__identity_find(&r->identity, &r->graph, &r->schedule, error);
    return code;
}

int hr_replay_open(struct hr_replay **out, const char *const *paths, size_t count,
                   const struct hr_replay_options *options, struct hr_error *error)
{
    struct hr_replay_options o = defaults;
    *out = NULL;
    int code =
        options ? hr__versioned_take(&o, sizeof o, options, "struct hr_replay_options", error) : 0;
    if (!code && !(o.limit > 0 && o.limit <= 1))
        code = hr__fail(error, -EINVAL, "the limit of the identity's error must be from 0 to 1");
    if (code)
        return code;
    struct hr_replay *r = hr__alloc(HR__TAG_REPLAY, 1, sizeof *r);
    if (!r)
        return no_memory(error);
    r->limit = o.limit;
    code = open_all(r, paths, count, &o, error);
    if (code)
        hr_replay_destroy(&r);
    *out = r;
    return code;
}

void hr_replay_destroy(struct hr_replay **replay)
{
    struct hr_replay *r = *replay;
    *replay = NULL;
    if (!r)
        return;
    hr__schedule_clear(&r->schedule);
    hr__graph_clear(&r->graph);
    for (size_t i = 0; i < r->trace_count; i++)
        hr__trace_clear(&r->traces[i]);
    hr__free(r->traces);
    hr__free(r);
}

void hr_replay_summarise(const struct hr_replay *r, struct hr_replay_summary *out)
{
    const struct hr__graph *g = &r->graph;
    struct hr_replay_summary result = {
        .tasks = g->task_count,
        .edges = g->edge_count,
        .ranks = (uint32_t)g->rank_count,
        .iterations = g->iterations,
        .recorded_s = (double)g->recorded_ns / 1e9 / g->iterations,
        .replayed_s = (double)r->schedule.length_ns / 1e9 / g->iterations,
        .error = r->identity.error,
        .start_median = r->identity.start_median,
        .start_max = r->identity.start_max,
        .usual_error = r->identity.usual_error,
        .unexplained = (double)r->identity.unexplained_ns / (double)g->recorded_ns,
        .is_trusted = fabs(hr__identity_distance(&r->identity)) <= r->limit,
        .checked = r->identity.checked,
    };
    for (size_t i = 0; i < r->trace_count; i++)
        result.events += r->traces[i].read;
    hr__versioned_give(out, &result, sizeof result);
}
