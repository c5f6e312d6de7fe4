/* Pictures of replays; see picture.h. */
#include "replay/picture.h"

#include "base/memory.h"
#include "replay/path.h"

#include <errno.h>
#include <stdlib.h>

/* A task within the time shown. */
struct seen_task {
    int64_t begin_ns, end_ns;
    uint32_t task, lane;
    uint8_t kind;
};

struct seen_list {
    struct seen_task *all;
    size_t count;
};

/* Finds where an iteration in the middle begins: where the thread that marks it goes on. */
static int64_t middle(const struct hr__graph *g, const struct hr__replay_schedule *s)
{
    for (uint32_t i = 0; i < g->task_count; i++) {
        const struct hr__lane *lane = &g->lanes[g->tasks[i].lane];
        if (!lane->is_stream && !lane->rank && lane->track == g->ranks[0].main &&
            g->tasks[i].begin_ns >= g->middle_ns)
            return s->begin_ns[i];
    }
    return s->first_ns;
}

static void find_span(struct hr__replay_picture *t, const struct hr__graph *g,
                      const struct hr__replay_schedule *s)
{
    int64_t length = s->length_ns / g->iterations, end = s->first_ns + s->length_ns;
    t->begin_ns = g->iterations > 1 ? middle(g, s) : s->first_ns;
    if (t->begin_ns > end - length)
        t->begin_ns = end - length;
    t->end_ns = t->begin_ns + length;
    t->least_ns = length / HR__PICTURE_STEPS + 1;
}

/* Cuts a piece to the time shown. Returns 0 if nothing is left. */
static int cut(const struct hr__replay_picture *t, struct seen_task *piece)
{
    if (piece->begin_ns < t->begin_ns)
        piece->begin_ns = t->begin_ns;
    if (piece->end_ns > t->end_ns)
        piece->end_ns = t->end_ns;
    return piece->begin_ns < piece->end_ns;
}

static int by_begin(const void *a, const void *b)
{
    const struct seen_task *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    return x->task < y->task ? -1 : x->task > y->task;
}

/* Returns whether a piece is joined with the run before it. */
static int joins(const struct hr__replay_picture *t, const struct hr__picture_run *run,
                 const struct seen_task *piece)
{
    int is_run_short = run->end_ns - run->begin_ns < t->least_ns;
    int is_short = piece->end_ns - piece->begin_ns < t->least_ns;
    if (piece->begin_ns - run->end_ns >= t->least_ns)
        return 0;
    return run->kind == piece->kind ? is_run_short || is_short : is_run_short && is_short;
}

/* Makes the runs of pieces that are in order. */
static int make_runs(const struct hr__replay_picture *t, struct hr__picture_run **out,
                     size_t *count, const struct seen_task *pieces, size_t piece_count)
{
    for (size_t i = 0; i < piece_count; i++) {
        const struct seen_task *p = &pieces[i];
        int64_t length = p->end_ns - p->begin_ns;
        struct hr__picture_run *run = *count ? &(*out)[*count - 1] : NULL;
        if (!run || !joins(t, run, p)) {
            if (hr__reserve(HR__TAG_REPLAY, out, *count + 1))
                return -ENOMEM;
            run = &(*out)[(*count)++];
            *run = (struct hr__picture_run){.begin_ns = p->begin_ns, .end_ns = p->begin_ns};
        }
        if (length > run->longest_ns) {
            run->longest_ns = length;
            run->task = p->task;
            run->kind = p->kind;
        }
        int64_t from = p->begin_ns > run->end_ns ? p->begin_ns : run->end_ns;
        if (p->end_ns > from) { /* pieces of a stream may overlap */
            run->busy_ns += p->end_ns - from;
            run->end_ns = p->end_ns;
        }
        run->count++;
    }
    return 0;
}

static struct hr__picture_lane *lane_of(struct hr__replay_picture *t, uint32_t lane)
{
    for (size_t i = 0; i < t->lane_count; i++)
        if (t->lanes[i].lane == lane)
            return &t->lanes[i];
    return NULL;
}

/* Gives each lane that is shown its runs, or those of the critical path. */
static int add_pieces(struct hr__replay_picture *t, const struct seen_list *list, int is_critical)
{
    struct seen_task *pieces = list->all;
    size_t count = list->count;
    if (count)
        qsort(pieces, count, sizeof *pieces, by_begin);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && pieces[end].lane == pieces[first].lane;)
            end++;
        struct hr__picture_lane *lane = lane_of(t, pieces[first].lane);
        if (lane && make_runs(t, is_critical ? &lane->critical : &lane->runs,
                              is_critical ? &lane->critical_count : &lane->run_count,
                              pieces + first, end - first))
            return -ENOMEM;
    }
    return 0;
}

static int by_weight(const void *a, const void *b)
{
    const struct hr__picture_lane *x = a, *y = b;
    if (x->critical_ns != y->critical_ns)
        return x->critical_ns > y->critical_ns ? -1 : 1;
    if (x->busy_ns != y->busy_ns)
        return x->busy_ns > y->busy_ns ? -1 : 1;
    return x->lane < y->lane ? -1 : x->lane > y->lane;
}

static int by_lane(const void *a, const void *b)
{
    const struct hr__picture_lane *x = a, *y = b;
    return x->lane < y->lane ? -1 : x->lane > y->lane;
}

/* Chooses the lanes to show. */
static int choose(struct hr__replay_picture *t, const struct hr__graph *g,
                  const struct seen_list *busy, const struct seen_list *critical)
{
    struct hr__picture_lane *all = hr__alloc(HR__TAG_REPLAY, g->lane_count + 1, sizeof *all);
    size_t used = 0;
    if (!all)
        return -ENOMEM;
    for (uint32_t i = 0; i < g->lane_count; i++)
        all[i].lane = i;
    for (size_t i = 0; i < busy->count; i++)
        all[busy->all[i].lane].busy_ns += busy->all[i].end_ns - busy->all[i].begin_ns;
    for (size_t i = 0; i < critical->count; i++)
        all[critical->all[i].lane].critical_ns +=
            critical->all[i].end_ns - critical->all[i].begin_ns;
    qsort(all, g->lane_count, sizeof *all, by_weight);
    while (used < g->lane_count && (all[used].critical_ns || all[used].busy_ns))
        used++;
    t->lane_count = used < HR__PICTURE_LANES ? used : HR__PICTURE_LANES;
    t->left_out = used - t->lane_count;
    for (size_t i = 0; i < t->lane_count; i++)
        t->lanes[i] = all[i];
    qsort(t->lanes, t->lane_count, sizeof *t->lanes, by_lane);
    hr__free(all);
    return 0;
}

/* Lists the pieces of the critical path; latencies are between them. */
static void list_critical(const struct hr__replay_picture *t, const struct hr__graph *g,
                          const struct hr__replay_schedule *s, struct seen_list *out)
{
    for (struct hr__path_walk w = {.is_begun = 0}; hr__path_back(&w, g, s);) {
        struct seen_task piece = {.begin_ns = w.begin_ns,
                                  .end_ns = w.begin_ns + w.own_ns,
                                  .task = w.task,
                                  .lane = g->tasks[w.task].lane};
        if (cut(t, &piece))
            out->all[out->count++] = piece;
    }
}

static void list_busy(const struct hr__replay_picture *t, const struct hr__graph *g,
                      const struct hr__replay_schedule *s, struct seen_list *out)
{
    for (uint32_t i = 0; i < g->task_count; i++) {
        struct seen_task piece = {.begin_ns = s->begin_ns[i],
                                  .end_ns = s->begin_ns[i] + g->tasks[i].length_ns,
                                  .task = i,
                                  .lane = g->tasks[i].lane,
                                  .kind = g->tasks[i].kind};
        if (cut(t, &piece))
            out->all[out->count++] = piece;
    }
}

int hr__picture_make(struct hr__replay_picture *out, const struct hr__graph *g,
                     const struct hr__replay_schedule *s)
{
    struct seen_list busy = {hr__alloc(HR__TAG_REPLAY, g->task_count + 1, sizeof *busy.all), 0};
    struct seen_list path = {hr__alloc(HR__TAG_REPLAY, g->task_count + 1, sizeof *path.all), 0};
    int code = -ENOMEM;
    *out = (struct hr__replay_picture){.lane_count = 0};
    if (busy.all && path.all) {
        find_span(out, g, s);
        list_busy(out, g, s, &busy);
        list_critical(out, g, s, &path);
        code = choose(out, g, &busy, &path);
        code = code ? code : add_pieces(out, &busy, 0);
        code = code ? code : add_pieces(out, &path, 1);
    }
    hr__free(busy.all);
    hr__free(path.all);
    return code;
}

void hr__picture_clear(struct hr__replay_picture *t)
{
    for (size_t i = 0; i < t->lane_count; i++) {
        hr__free(t->lanes[i].runs);
        hr__free(t->lanes[i].critical);
    }
    *t = (struct hr__replay_picture){.lane_count = 0};
}
