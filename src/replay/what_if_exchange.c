/*
 * What if gradients were exchanged between ranks, in other buckets, compressed, by priority; or if
 * the optimizer worked meanwhile?
 *
 * A scenario has one exchange. Each of these what-ifs changes it, and its tasks are made anew: for
 * each bucket an all-reduce on the channel "link", after the bucket's last gradient, and before
 * what follows the backward pass. DistributedDataParallel fills buckets in the order in which
 * gradients are made, and closes one when it is full ("PyTorch Distributed", Li and others, VLDB
 * 2020; torch/csrc/distributed/c10d/reducer.cpp). With priorities each gradient is cut
 * into slices, and the next forward operator of its layer waits for it ("Priority-based Parameter
 * Propagation", Jayarajan and others, MLSys 2019).
 *
 * If the trace has all-reduces of NCCL already, they are replaced by buckets whose times for each
 * all-reduce and for each byte are those of the trace, by least squares.
 */
#include "replay/gradients.h"
#include "replay/scenario.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIRST_BYTES  (1ull << 20) /* of DistributedDataParallel's first bucket */
#define BUCKET_BYTES (25ull << 20)
#define SLICE_BYTES  200e3 /* 50,000 parameters of 32 bits, as in P3 */

static int no_memory(struct hr_error *error)
{
    return hr__fail(error, -ENOMEM, "out of memory for a what-if");
}

/* ---- what the trace tells ---- */

/* Finds the gradients, and refuses if their sizes are unknown. */
static int find(struct hr__gradients *out, const struct hr_replay_scenario *s,
                struct hr_error *error)
{
    int code = hr__gradients_find(out, &s->replay->graph, error);
    for (size_t i = 0; i < out->count && !code; i++)
        if (out->all[i].bytes < 0)
            code = hr__fail(error, -ENODATA,
                            "the trace does not have the sizes of the gradients: record it with "
                            "shapes (headrace replay record --shapes, or "
                            "torch.profiler.profile(record_shapes=True))");
    return code;
}

static int is_all_reduce(const struct hr__graph *g, const struct hr__graph_task *task)
{
    const char *name = hr__graph_name(g, task);
    return task->kind == HR__TASK_COLLECTIVE &&
           (strstr(name, "AllReduce") || strstr(name, "Generic"));
}

/* The all-reduces of a trace: sums over them. */
struct exchange_sums {
    size_t count, unknown; /* unknown: of these, without a size */
    double bytes, ns, squares, products;
    uint16_t group, other; /* of the first one; of the first one with another group */
    int has_other;
};

static void add_sums(struct exchange_sums *sums, const struct hr__trace_event *event,
                     int64_t length_ns)
{
    double bytes = event->value > 0 ? (double)event->value : 0;
    sums->group = sums->count ? sums->group : event->group;
    if (sums->group != event->group && !sums->has_other) {
        sums->has_other = 1;
        sums->other = event->group;
    }
    sums->count++;
    sums->unknown += event->value <= 0;
    sums->bytes += bytes;
    sums->ns += (double)length_ns;
    sums->squares += bytes * bytes;
    sums->products += bytes * (double)length_ns;
}

/* Makes an exchange whose all-reduces take a time each and a time for each byte: the line of least
 * squares, or, where it does not rise or begins below 0, bytes alone. */
static struct hr__exchange exchange_of(const struct exchange_sums *sums)
{
    double n = (double)sums->count, spread = n * sums->squares - sums->bytes * sums->bytes;
    double fixed_ns = 0, byte_ns = sums->ns / sums->bytes;
    if (spread > 1e-6 * n * sums->squares) {
        double slope = (n * sums->products - sums->bytes * sums->ns) / spread;
        double begin_ns = (sums->ns - slope * sums->bytes) / n;
        if (slope > 0 && begin_ns > 0) {
            fixed_ns = begin_ns;
            byte_ns = slope;
        }
    }
    return (struct hr__exchange){.is_made = 1,
                                 .fixed_s = fixed_ns / 1e9,
                                 .byte_s = byte_ns / 1e9,
                                 .first_bytes = FIRST_BYTES,
                                 .bucket_bytes = BUCKET_BYTES,
                                 .ratio = 1,
                                 .rounds = 1};
}

/* Makes the exchange of a trace that has one: takes the all-reduces of NCCL away. */
static int adopt(struct hr_replay_scenario *s, struct hr_error *error)
{
    struct hr__graph *g = &s->graph;
    struct exchange_sums sums = {.count = 0};
    uint8_t *marks = hr__alloc(HR__TAG_REPLAY, g->task_count + 1, 1);
    if (!marks)
        return no_memory(error);
    for (size_t i = 0; i < g->task_count; i++) {
        if (!is_all_reduce(g, &g->tasks[i]))
            continue;
        marks[i] = 1;
        add_sums(&sums, hr__graph_event(g, &g->tasks[i]), g->tasks[i].length_ns);
    }
    int code = 0;
    if (!sums.count)
        code = hr__fail(error, -ENODATA,
                        "the trace has no all-reduces of NCCL: name ddp before it ('ddp ranks=16 "
                        "link=25Gbit/s'), or give traces of a run on several GPUs");
    else if (sums.unknown)
        code = hr__fail(error, -ENODATA,
                        "%zu of %zu all-reduces in the trace do not say how many bytes they move: "
                        "record it with PyTorch 2.2 or newer, or use 'link x2'",
                        sums.unknown, sums.count);
    else if (sums.has_other)
        code = hr__fail(error, -ENODATA,
                        "the trace has all-reduces of %s and of %s: which of them exchange "
                        "gradients is not known; use 'link x2'",
                        hr__trace_group_label(g->ranks[0].trace, sums.group),
                        hr__trace_group_label(g->ranks[0].trace, sums.other));
    if (!code) {
        hr__remove(g, marks);
        s->exchange = exchange_of(&sums);
    }
    hr__free(marks);
    return code;
}

/* ---- the tasks of an exchange ---- */

/* Takes the tasks away that were inserted before. */
static int detach(struct hr_replay_scenario *s)
{
    struct hr__graph *g = &s->graph;
    struct hr__exchange *x = &s->exchange;
    size_t kept = 0;
    if (!x->task_count)
        return 0;
    uint8_t *gone = hr__alloc(HR__TAG_REPLAY, g->task_count + 1, 1);
    uint32_t lane = hr__graph_add_lane(
        g, (struct hr__lane){
               .track = UINT32_MAX, .is_apart = 1, .first = HR__NO_TASK, .last = HR__NO_TASK});
    if (!gone || g->no_memory) {
        hr__free(gone);
        return -ENOMEM;
    }
    for (size_t i = 0; i < x->task_count; i++) {
        struct hr__graph_task *task = &g->tasks[x->tasks[i]];
        task->length_ns = 0;
        if (g->lanes[task->lane].track == UINT32_MAX) {
            gone[x->tasks[i]] = 1;
            task->lane = lane;
        }
    }
    for (size_t i = 0; i < g->edge_count; i++)
        if (!gone[g->edges[i].from] && !gone[g->edges[i].to])
            g->edges[kept++] = g->edges[i];
    g->edge_count = kept;
    x->task_count = 0;
    hr__free(gone);
    return 0;
}

/* Gradients that are exchanged together. */
struct exchange_unit {
    const struct hr__gradient *last; /* the one that is made last */
    double bytes, update_s;
    uint32_t rank, waits; /* waits: the task that waits for it; HR__NO_TASK: none */
    int32_t priority;
};

/* Inserts a task of a unit after tasks, on a channel of its rank or, if that is NULL, after[0]'s
 * place. */
static int insert(struct hr_replay_scenario *s, const struct exchange_unit *unit,
                  const char *channel, struct hr_replay_insertion x, uint32_t *out)
{
    struct hr_error error;
    char name[64];
    snprintf(name, sizeof name, "%s of rank %u", channel ? channel : "", unit->rank);
    x.size = sizeof x;
    x.channel = channel ? name : NULL;
    x.priority = unit->priority;
    if (hr_replay_insert(s, &x, out, &error) ||
        hr__reserve(HR__TAG_REPLAY, &s->exchange.tasks, s->exchange.task_count + 1))
        return -ENOMEM;
    s->exchange.tasks[s->exchange.task_count++] = *out;
    return 0;
}

static int64_t to_ns(double seconds)
{
    return (int64_t)fmin(seconds * 1e9 + 0.5, 2e18);
}

/* Inserts the tasks of a unit: compression, all-reduce, decompression, the optimizer's work. */
static int add_unit(struct hr_replay_scenario *s, const struct exchange_unit *unit)
{
    const struct hr__exchange *x = &s->exchange;
    uint32_t made[2] = {unit->last->task, unit->last->kernel}, at = HR__NO_TASK;
    size_t count = made[1] == HR__NO_TASK ? 1 : 2;
    int64_t codec_ns = x->codec_bytes_per_s > 0 ? to_ns(unit->bytes / x->codec_bytes_per_s) : 0;
    struct hr_replay_insertion one = {.after = &made[count - 1], .after_count = 1};
    int code = 0;
    if (codec_ns) {
        one.length_ns = codec_ns;
        code = insert(s, unit, NULL, one, &at);
        made[count - 1] = at;
    }
    one.after = made;
    one.after_count = count;
    if (x->is_made && !code) {
        one.length_ns = to_ns(x->fixed_s * x->rounds + unit->bytes * x->ratio * x->byte_s);
        code = insert(s, unit, "link", one, &at);
        if (!code)
            s->graph.tasks[at].kind = HR__TASK_COLLECTIVE;
        one.after = &at;
        one.after_count = 1;
    }
    if (codec_ns && !code) {
        one.length_ns = codec_ns;
        code = insert(s, unit, "decompression", one, &at);
    }
    if (x->update_ns && !code) {
        one.length_ns = to_ns(unit->update_s);
        code = insert(s, unit, "optimizer", one, &at);
    }
    if (!code && at != HR__NO_TASK && unit->waits != HR__NO_TASK)
        hr__graph_add_edge(
            &s->graph, (struct hr__edge){.from = at, .to = unit->waits, .kind = HR__EDGE_ADDED});
    return code ? code : s->graph.no_memory ? -ENOMEM : 0;
}

/* Returns the first task of the forward operator of a gradient's layer, on the device if that made
 * the gradient; HR__NO_TASK: unknown. */
static uint32_t forward_task(const struct hr__gradients *all, const struct hr__backward_pass *pass,
                             const struct hr__gradient *gradient)
{
    if (gradient->forward == HR__NO_EVENT)
        return HR__NO_TASK;
    return gradient->kernel == HR__NO_TASK ? all->first_task[pass->rank][gradient->forward]
                                           : all->first_work[pass->rank][gradient->forward];
}

/* Returns whether an earlier what-if has removed the layer of a gradient. */
static int is_gone(const struct hr_replay_scenario *s, const struct hr__gradients *all,
                   const struct hr__backward_pass *pass, const struct hr__gradient *gradient)
{
    uint32_t task = forward_task(all, pass, gradient);
    return task != HR__NO_TASK && s->replay->graph.tasks[task].length_ns > 0 &&
           !s->graph.tasks[task].length_ns;
}

/* Adds the slices of a gradient, for which the next forward operator of its layer waits. */
static int add_slices(struct hr_replay_scenario *s, const struct hr__gradients *all,
                      const struct hr__backward_pass *pass, struct exchange_unit unit, uint32_t k)
{
    const struct hr__backward_pass *next = pass + 1;
    double bytes = unit.bytes, update_s = unit.update_s, slice = s->exchange.slice_bytes;
    unit.waits = HR__NO_TASK;
    if (next < all->passes + all->pass_count && next->rank == pass->rank &&
        next->count == pass->count)
        unit.waits = forward_task(all, next, &all->all[next->first + k]);
    unit.priority = (int32_t)k; /* the gradient that is made last is needed first */
    int code = 0;
    for (double at = 0; at < bytes && !code; at += slice) {
        unit.bytes = fmin(slice, bytes - at);
        unit.update_s = update_s * unit.bytes / bytes;
        code = add_unit(s, &unit);
    }
    return code;
}

/* Adds the units of a backward pass. */
static int add_pass(struct hr_replay_scenario *s, const struct hr__gradients *all,
                    const struct hr__backward_pass *pass)
{
    const struct hr__exchange *x = &s->exchange;
    const struct hr__gradient *own = &all->all[pass->first];
    double whole = 0, limit = x->is_made ? x->first_bytes : 0, update_s = 0;
    struct exchange_unit unit = {.rank = pass->rank, .waits = pass->next};
    int code = 0;
    for (uint32_t k = 0; k < pass->count; k++)
        whole += (double)own[k].bytes;
    if (x->update_ns && whole > 0)
        update_s = (double)x->update_ns[pass - all->passes] / 1e9 / whole;
    for (uint32_t k = 0; k < pass->count && !code; k++) {
        if (!is_gone(s, all, pass, &own[k])) {
            unit.bytes += (double)own[k].bytes;
            unit.last = &own[k];
        }
        unit.update_s = unit.bytes * update_s;
        if (!unit.last || (!x->slice_bytes && unit.bytes < limit && k + 1 < pass->count))
            continue;
        code = x->slice_bytes > 0 ? add_slices(s, all, pass, unit, k) : add_unit(s, &unit);
        unit.bytes = 0;
        unit.last = NULL;
        limit = x->is_made ? x->bucket_bytes : 0;
    }
    return code;
}

/* Makes the exchange's tasks anew. */
static int make(struct hr_replay_scenario *s, const struct hr__gradients *all,
                struct hr_error *error)
{
    int code = detach(s);
    for (size_t i = 0; i < all->pass_count && !code; i++)
        code = add_pass(s, all, &all->passes[i]);
    return code ? no_memory(error) : 0;
}

/* ---- what-ifs ---- */

/* Begins a change of the exchange: finds the gradients, and takes over the exchange of the trace if
 * the scenario has none. The caller clears *all, also after an error. */
static int begin(struct hr__gradients *all, struct hr_replay_scenario *s, struct hr_error *error)
{
    int code = find(all, s, error);
    if (!code && !s->exchange.is_made)
        code = adopt(s, error);
    return code;
}

/* Returns whether the trace has collectives of any kind, or all-reduces that adopt takes. */
static int has_collectives(const struct hr_replay_scenario *s, int is_adopting)
{
    const struct hr__graph *g = &s->replay->graph;
    for (size_t i = 0; i < g->task_count; i++)
        if (g->tasks[i].kind == HR__TASK_COLLECTIVE &&
            (!is_adopting || is_all_reduce(g, &g->tasks[i])))
            return 1;
    return 0;
}

int hr__apply_ddp(struct hr_replay_scenario *s, const char *words, double factor,
                  struct hr_error *error)
{
    struct hr__argument a[] = {{.key = "ranks", .kind = HR__ARGUMENT_COUNT, .is_needed = 1},
                               {.key = "link", .kind = HR__ARGUMENT_SPEED, .is_needed = 1},
                               {.key = "latency", .kind = HR__ARGUMENT_TIME},
                               {.key = "algorithm", .kind = HR__ARGUMENT_TEXT, .text = "ring"},
                               {.key = "bucket", .kind = HR__ARGUMENT_BYTES}};
    struct hr__gradients all = {.all = NULL};
    struct hr__exchange *x = &s->exchange;
    int code = hr__arguments_take(a, sizeof a / sizeof *a, words, error);
    double ranks = a[0].value, steps = 2 * (ranks - 1);
    int is_tree = !strcmp(a[3].text, "tree");
    if (code)
        return code;
    if (ranks < 2 || ranks > 1e6 || !(a[1].value > 0) || (a[4].is_given && !(a[4].value > 0)))
        return hr__fail(error, -EINVAL,
                        "ddp: ranks must be from 2 to 1000000, link and bucket more than 0");
    if (!is_tree && strcmp(a[3].text, "ring"))
        return hr__fail(error, -EINVAL, "ddp: algorithm is '%.60s': it must be ring or tree",
                        a[3].text);
    if (s->replay->graph.rank_count > 1 || has_collectives(s, 0))
        return hr__fail(error, -ENODATA,
                        "the trace is of a run on several ranks already: change its exchange with "
                        "link, and that of NCCL with bucket=, compress or priority, too");
    code = find(&all, s, error);
    if (!code) {
        x->is_made = 1;
        x->fixed_s = (is_tree ? 2 * ceil(log2(ranks)) : steps) * a[2].value;
        x->byte_s = steps / ranks / a[1].value;
        x->first_bytes = a[4].is_given ? a[4].value : FIRST_BYTES;
        x->bucket_bytes = a[4].is_given ? a[4].value : BUCKET_BYTES;
        x->ratio = x->ratio > 0 ? x->ratio : 1;
        x->rounds = x->rounds > 0 ? x->rounds : 1;
        x->ranks = ranks;
        x->link_bytes_per_s = a[1].value;
        x->latency_s = a[2].value;
        code = make(s, &all, error);
    }
    hr__gradients_clear(&all);
    return code;
}

int hr__apply_bucket(struct hr_replay_scenario *s, const char *words, double factor,
                     struct hr_error *error)
{
    struct hr__argument a = {.key = "bucket", .kind = HR__ARGUMENT_BYTES, .is_needed = 1};
    struct hr__gradients all = {.all = NULL};
    char text[256];
    snprintf(text, sizeof text, "bucket=%s", words);
    int code = hr__arguments_take(&a, 1, text, error);
    if (!code && !(a.value > 0))
        code = hr__fail(error, -EINVAL, "a bucket must have more than 0 bytes");
    if (!code)
        code = begin(&all, s, error);
    if (!code) {
        s->exchange.first_bytes = s->exchange.bucket_bytes = a.value;
        code = make(s, &all, error);
    }
    hr__gradients_clear(&all);
    return code;
}

int hr__apply_compress(struct hr_replay_scenario *s, const char *words, double factor,
                       struct hr_error *error)
{
    struct hr__argument a[] = {{.key = "ratio", .kind = HR__ARGUMENT_REAL, .is_needed = 1},
                               {.key = "rate", .kind = HR__ARGUMENT_SPEED},
                               {.key = "rounds", .kind = HR__ARGUMENT_COUNT, .value = 1}};
    struct hr__gradients all = {.all = NULL};
    int code = hr__arguments_take(a, 3, words, error);
    if (!code && (!(a[0].value > 0 && a[0].value <= 1) || (a[1].is_given && !(a[1].value > 0)) ||
                  a[2].value < 1 || a[2].value > 100))
        code = hr__fail(error, -EINVAL,
                        "compress: ratio, compressed bytes over all, must be from 0 to 1, rate "
                        "more than 0, and rounds from 1 to 100");
    if (!code)
        code = begin(&all, s, error);
    if (!code) {
        s->exchange.ratio = a[0].value;
        s->exchange.codec_bytes_per_s = a[1].value;
        s->exchange.rounds = a[2].value;
        code = make(s, &all, error);
    }
    hr__gradients_clear(&all);
    return code;
}

/* Takes the optimizer's work from where it is; the exchange does it. */
static int take_updates(struct hr_replay_scenario *s, const struct hr__gradients *all,
                        struct hr_error *error)
{
    struct hr__exchange *x = &s->exchange;
    size_t count = 0;
    if (x->update_ns)
        return 0;
    uint8_t *marks = hr__alloc(HR__TAG_REPLAY, s->graph.task_count + 1, 1);
    int64_t *update_ns = hr__alloc(HR__TAG_REPLAY, all->pass_count + 1, sizeof *update_ns);
    for (uint32_t i = 0; marks && update_ns && i < s->replay->graph.task_count; i++) {
        uint32_t pass = all->update_of[i];
        if (pass >= all->pass_count)
            continue;
        marks[i] = 1;
        update_ns[pass] += s->graph.tasks[i].length_ns;
        count++;
    }
    int code = 0;
    if (!marks || !update_ns)
        code = no_memory(error);
    else if (!count)
        code = hr__fail(error, -ENODATA,
                        "the trace has no steps of an optimizer (Optimizer.step annotations)");
    else
        hr__scale(&s->graph, marks, 0);
    hr__free(marks);
    if (code)
        hr__free(update_ns);
    else
        x->update_ns = update_ns;
    return code;
}

int hr__apply_priority(struct hr_replay_scenario *s, const char *words, double factor,
                       struct hr_error *error)
{
    struct hr__argument a = {.key = "slice", .kind = HR__ARGUMENT_BYTES, .value = SLICE_BYTES};
    struct hr__gradients all = {.all = NULL};
    int code = hr__arguments_take(&a, 1, words, error);
    if (!code && a.value < 1024)
        code = hr__fail(error, -EINVAL, "priority: a slice must have 1 KiB at least");
    if (!code)
        code = begin(&all, s, error);
    if (!code)
        code = take_updates(s, &all, error);
    for (size_t i = 0; i < all.pass_count && !code; i++)
        if (forward_task(&all, &all.passes[i], &all.all[all.passes[i].first]) == HR__NO_TASK)
            code = hr__fail(error, -ENODATA,
                            "the trace does not say which forward operators gradients belong to "
                            "(sequence numbers): record forward and backward with one profiler");
    if (!code) {
        s->exchange.slice_bytes = a.value;
        code = make(s, &all, error);
    }
    hr__gradients_clear(&all);
    return code;
}

int hr__apply_overlap(struct hr_replay_scenario *s, const char *words, double factor,
                      struct hr_error *error)
{
    struct hr__gradients all = {.all = NULL};
    int code = find(&all, s, error);
    if (!code && !s->exchange.is_made && has_collectives(s, 1))
        code = adopt(s, error);
    if (!code && !s->exchange.is_made && all.all[all.count - 1].kernel == HR__NO_TASK)
        code = hr__fail(error, -ENODATA,
                        "the optimizer and the backward pass share a CPU thread, so there is "
                        "nothing to overlap: name ddp before it, or give a trace of a GPU");
    if (!code)
        code = take_updates(s, &all, error);
    if (!code)
        code = make(s, &all, error);
    hr__gradients_clear(&all);
    return code;
}
