/* Finds what a report on a replay says; see report.h. */
#include "replay/report.h"

#include "base/error.h"
#include "base/memory.h"
#include "report/format.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORTH         0.005 /* a what-if that brings less is not advised */
#define UNEVEN        1.3   /* longest iteration over the shortest one: worth a note */
#define NAME_BYTES    48    /* of a name for people */
#define PACKETS_TRIED 1e7   /* that advice simulates for loss-tolerance: about 2 s */

const char *hr__report_kind(int kind)
{
    static const char *const words[] = {"operators on the CPU",
                                        "CUDA calls",
                                        "Python (outside operators)",
                                        "blocking calls",
                                        "kernels",
                                        "copies",
                                        "memory sets",
                                        "communication",
                                        "inserted tasks",
                                        "latencies",
                                        "waiting for data"};
    return words[kind];
}

double hr__report_share(const struct hr__shares *s, int kind)
{
    if (kind == HR__TASK_KINDS)
        return s->latency;
    if (kind == HR__PATH_DATA)
        return s->data;
    return s->kind[kind] - s->waits[kind];
}

/* Adds a name in parentheses; NULL and "": none. */
static void add_name(struct hr__draft *draft, const char *name)
{
    if (!name || !*name)
        return;
    hr__draft_put(draft, " (");
    hr__report_name(draft, name);
    hr__draft_put(draft, ")");
}

void hr__report_shares(struct hr__draft *draft, const struct hr__shares *s, int most,
                       const char *name)
{
    uint32_t used = 0;
    char number[HR__FORMAT_BYTES];
    for (int n = 0; n < most; n++) {
        int best = -1;
        for (int k = 0; k < HR__TASK_KINDS + 2; k++)
            if (!(used >> k & 1) &&
                (best < 0 || hr__report_share(s, k) > hr__report_share(s, best)))
                best = k;
        if (best < 0 || hr__report_share(s, best) < 0.005)
            break;
        used |= 1u << best;
        hr__draft_print(draft, "%s%s %s", n ? ", " : "", hr__report_kind(best),
                        hr__format_share(number, hr__report_share(s, best)));
        add_name(draft, n ? NULL : name);
    }
}

/* ---- bottlenecks ---- */

/* Returns a signature of C++ from its function's own name on; other names whole. */
static const char *without_namespaces(const char *name)
{
    static const char hidden[] = "(anonymous namespace)";
    const char *start = name, *at = name;
    for (; *at && *at != '<' && (*at != '(' || !strncmp(at, hidden, sizeof hidden - 1)); at++) {
        if (*at == '(')
            at += sizeof hidden - 2;
        if (at[0] == ':' && at[1] == ':')
            start = at + 2;
    }
    if (!*at || at == name)
        return name;
    if (start == name && !strncmp(name, "void ", 5))
        start += 5;
    return start < at ? start : name;
}

void hr__report_name(struct hr__draft *draft, const char *name)
{
    char text[NAME_BYTES + 4];
    name = without_namespaces(name);
    size_t length = strlen(name), at = length < NAME_BYTES ? length : NAME_BYTES - 1;
    while (length > at && at && ((unsigned char)name[at] & 0xc0) == 0x80)
        at--; /* not within a character of several bytes */
    snprintf(text, sizeof text, "%.*s%s", (int)at, name, length > at ? "..." : "");
    hr__draft_plain(draft, text);
}

void hr__report_bottleneck(struct hr__draft *draft, const struct hr__bottleneck *b)
{
    char number[HR__FORMAT_BYTES];
    hr__draft_print(draft, "%s %s", hr__report_kind(b->kind), hr__format_share(number, b->share));
    add_name(draft, b->name.name);
}

static struct hr__bottleneck find_bottleneck(const struct hr__shares *shares,
                                             const struct hr__path_name *names, size_t count)
{
    struct hr__bottleneck b = {.kind = 0};
    for (int k = 0; k < HR__TASK_KINDS + 2; k++)
        if (!k || hr__report_share(shares, k) > b.share) {
            b.kind = k;
            b.share = hr__report_share(shares, k);
        }
    for (size_t i = 0; i < count && !b.name.name; i++)
        if (names[i].kind == b.kind)
            b.name = names[i];
    return b;
}

/* ---- what-ifs ---- */

static int predict(struct hr__replay_outcome *out, struct hr_replay_scenario *s,
                   struct hr_error *error)
{
    struct hr__replay_schedule schedule;
    int code = hr__scenario_simulate(&schedule, s, error);
    if (!code) {
        struct hr__path_name *names;
        size_t count;
        out->iteration_s = (double)schedule.length_ns / 1e9 / s->graph.iterations;
        hr__path_shares(&out->shares, &s->graph, &schedule);
        if (hr__path_names(&names, &count, &s->graph, &schedule))
            code = hr__fail(error, -ENOMEM, "out of memory for a report");
        else
            out->bottleneck = find_bottleneck(&out->shares, names, count);
        hr__free(names);
    }
    hr__schedule_clear(&schedule);
    return code;
}

static int add(struct hr__report *r, struct hr_replay_scenario *s, const char *text,
               struct hr_error *error)
{
    if (hr__reserve(HR__TAG_REPLAY, &r->outcomes, r->count + 1))
        return hr__fail(error, -ENOMEM, "out of memory for a report");
    struct hr__replay_outcome *one = &r->outcomes[r->count];
    *one = (struct hr__replay_outcome){.text = text, .what = hr__what_if_find(text, error)};
    int code = one->what ? hr_replay_apply(s, text, error) : -EINVAL;
    if (!code)
        code = predict(one, s, error);
    r->count += !code;
    return code;
}

static int in_a_row(struct hr__report *r, const char *const *what_ifs, size_t count,
                    struct hr_error *error)
{
    struct hr_replay_scenario *s;
    int code = hr_replay_scenario_create(&s, r->replay, error);
    for (size_t i = 0; i < count && !code; i++)
        code = add(r, s, what_ifs[i], error);
    hr_replay_scenario_destroy(&s);
    return code;
}

static int by_time(const void *a, const void *b)
{
    const struct hr__replay_outcome *x = a, *y = b;
    return x->iteration_s < y->iteration_s ? -1 : x->iteration_s > y->iteration_s;
}

/* Notes that a what-if was not tried. */
static int add_untried(struct hr__report *r, const char *text, const char *why,
                       struct hr_error *error)
{
    char *own = hr__strdup(HR__TAG_REPLAY, why);
    if (!own || hr__reserve(HR__TAG_REPLAY, &r->untried, r->untried_count + 1)) {
        hr__free(own);
        return hr__fail(error, -ENOMEM, "out of memory for a report");
    }
    r->untried[r->untried_count++] = (struct hr__replay_untried){.text = text, .why = own};
    return 0;
}

/* Tries a what-if alone; one that does not apply is noted. */
static int try_one(struct hr__report *r, const char *text, struct hr_error *error)
{
    struct hr_replay_scenario *s;
    struct hr_error own = {0};
    int code = hr_replay_scenario_create(&s, r->replay, error);
    if (code)
        return code;
    s->packets_most = PACKETS_TRIED;
    code = add(r, s, text, &own);
    hr_replay_scenario_destroy(&s);
    if (code == -ENODATA || code == -EINVAL || code == -E2BIG)
        return add_untried(r, text, own.message, error);
    return code ? hr__fail(error, code, "%s", own.message) : 0;
}

/* Notes a what-if that needs what only the user knows, or that it would not apply. */
static int note_needs(struct hr__report *r, const struct hr__what_if *w, struct hr_error *error)
{
    struct hr_replay_scenario *s;
    struct hr_error own = {0};
    if (strstr(w->example, "REGEX"))
        return add_untried(r, w->example, w->needs, error);
    int code = hr_replay_scenario_create(&s, r->replay, error);
    if (code)
        return code;
    code = hr_replay_apply(s, w->example, &own);
    hr_replay_scenario_destroy(&s);
    if (code && code != -ENODATA)
        return hr__fail(error, code, "%s", own.message);
    return add_untried(r, w->name, code ? own.message : w->needs, error);
}

/* Tries all that apply, each alone. */
static int try_all(struct hr__report *r, struct hr_error *error)
{
    int code = 0;
    r->is_ranked = 1;
    for (size_t i = 0; i < hr__what_if_count && !code; i++) {
        const struct hr__what_if *w = &hr__what_ifs[i];
        if (w->needs)
            code = note_needs(r, w, error);
        for (size_t k = 0; k < sizeof w->tried / sizeof *w->tried && !code; k++)
            if (w->tried[k])
                code = try_one(r, w->tried[k], error);
    }
    if (!code && r->count)
        qsort(r->outcomes, r->count, sizeof *r->outcomes, by_time);
    return code;
}

/* ---- notes ---- */

/* Names what was found so many times, in words that fit any number. */
static void note(struct hr__report *r, uint64_t count, const char *what, const char *then)
{
    if (count)
        hr__draft_print(&r->notes, "%s: %llu%s\n", what, (unsigned long long)count, then);
}

/* Names the process groups of the first rank's collectives, if there are several. */
static void note_groups(struct hr__report *r)
{
    const struct hr__graph *g = &r->replay->graph;
    const struct hr__trace_data *t = &r->replay->traces[0];
    struct hr__draft names = {.text = NULL};
    size_t found = 0, *counts = hr__alloc(HR__TAG_REPLAY, t->group_count + 1, sizeof *counts);
    names.failed = !counts;
    for (size_t i = 0; counts && i < g->task_count; i++)
        if (g->tasks[i].kind == HR__TASK_COLLECTIVE && !g->tasks[i].rank)
            counts[hr__graph_event(g, &g->tasks[i])->group]++;
    for (size_t i = 1; counts && i <= t->group_count; i++)
        if (counts[i])
            hr__draft_print(&names, "%s%s %zu", found++ ? ", " : "", t->groups[i - 1].label,
                            counts[i]);
    if (found > 1) {
        hr__draft_put(&r->notes, "Kernels that communicate, by process group: ");
        hr__draft_plain(&r->notes, names.text ? names.text : "");
        hr__draft_put(&r->notes, ".\n");
    }
    r->notes.failed |= names.failed;
    hr__draft_clear(&names);
    hr__free(counts);
}

static void add_notes(struct hr__report *r)
{
    const struct hr__graph *g = &r->replay->graph;
    const struct hr__graph_counts *c = &g->counts;
    char time[HR__FORMAT_BYTES], longest[HR__FORMAT_BYTES];
    uint64_t wrong = 0;
    for (size_t i = 0; i < r->replay->trace_count; i++)
        wrong += r->replay->traces[i].wrong;
    hr__draft_print(&r->notes, "Replayed: %s.\n", g->window);
    if (!c->kernels)
        hr__draft_put(&r->notes,
                      "The trace has no work of a device: the CPU's time is replayed.\n");
    note(r, c->guessed, "Blocking calls without a record of what they waited for (cuda_sync)",
         ". They are taken to wait for the work that ended last before they returned.");
    note(r, c->unresolved, "Waits of a stream for an event that the trace does not have",
         ". What they held back follows its stream only.");
    note(r, c->unlaunched, "Kernels and copies without a call that launched them", ".");
    note(r, c->many, "Kernels launched several at once (CUDA graphs)",
         ". They follow their stream.");
    note(r, c->skewed, "Kernels that begin before their launch",
         ". The clocks of CPU and device differ.");
    note(r, c->overlaps, "Slices of a thread that overlap without being nested, and were cut", ".");
    note(r, c->polled, "Threads left out because they only ask for events", ".");
    note(r, wrong, "Slices left out because they have no time", ".");
    note(r, c->far,
         "Pieces of a device's work left out because they are more than a year away from the rest",
         ". The trace's times are damaged.");
    note(r, c->apart, "Threads beside the iteration",
         ". Nothing is known to wait for them, so their time is not in it.");
    note(r, c->loose, "Threads that launch work, and of which it is not known what they wait for",
         ". Their pauses stay as recorded, so predictions may change too little.");
    /* with a device the CPU may run ahead, and waits for it in some of them */
    if (!c->kernels && g->longest_ns > UNEVEN * g->shortest_ns)
        hr__draft_print(&r->notes,
                        "The iterations take from %s to %s: other work of the machine, or the "
                        "script, makes some longer. Predictions are of their mean: record again "
                        "while nothing else runs, or choose one with --instance.\n",
                        hr__format_time(time, (double)g->shortest_ns / 1e9),
                        hr__format_time(longest, (double)g->longest_ns / 1e9));
    if (g->tail_ns > g->recorded_ns / 50)
        hr__draft_print(&r->notes,
                        "The device works for %s after the last of %u iterations: this is counted, "
                        "so an iteration seems longer than in a long run. Record more of them.\n",
                        hr__format_time(time, (double)g->tail_ns / 1e9), g->iterations);
    note_groups(r);
    if (c->collectives && !c->joined)
        note(r, c->collectives, "Kernels that communicate",
             ". Their times include waiting for other ranks: give the traces of all ranks to "
             "divide it.");
    if (c->joined && r->replay->traces[0].ranks > (int64_t)r->replay->trace_count)
        hr__draft_print(&r->notes,
                        "%zu of %lld ranks were given: transfers still include waiting for the "
                        "others.\n",
                        r->replay->trace_count, (long long)r->replay->traces[0].ranks);
    if (r->summary.unexplained > 0.01)
        hr__draft_print(&r->notes,
                        "%d %% of the critical path are latencies that no rule of the graph "
                        "explains; they are kept as recorded in every prediction.\n",
                        (int)lround(100 * r->summary.unexplained));
}

/* ---- all ---- */

void hr__report_sentence(struct hr__draft *draft, const struct hr__report *r)
{
    char time[HR__FORMAT_BYTES], share[HR__FORMAT_BYTES];
    double recorded = r->summary.recorded_s;
    hr__draft_print(draft,
                    "%s takes %s: ", r->replay->graph.is_whole ? "The whole trace" : "An iteration",
                    hr__format_time(time, recorded));
    hr__report_shares(draft, &r->shares, 3, NULL);
    hr__draft_put(draft, ".");
    if (!r->summary.is_trusted) {
        hr__draft_put(draft, " The replay differs too much from the record to predict anything.");
        return;
    }
    if (!r->count)
        return;
    const struct hr__replay_outcome *one = hr__report_shown(r);
    if (!one) {
        hr__draft_put(draft, " None of the what-ifs that were tried would change that much.");
        return;
    }
    double gain = 1 - one->iteration_s / r->summary.replayed_s;
    hr__draft_print(draft, r->is_ranked ? " The best what-if is %s: " : " With %s: ", one->text);
    hr__draft_print(draft, "%s, ", hr__format_time(time, one->iteration_s));
    hr__draft_print(draft, "%s %s, then mostly ", hr__format_share(share, fabs(gain)),
                    gain < 0 ? "more" : "less");
    hr__report_bottleneck(draft, &one->bottleneck);
    hr__draft_put(draft, ".");
}

const struct hr__replay_outcome *hr__report_shown(const struct hr__report *r)
{
    if (!r->count)
        return NULL;
    const struct hr__replay_outcome *one = &r->outcomes[r->is_ranked ? 0 : r->count - 1];
    double gain = 1 - one->iteration_s / r->summary.replayed_s;
    return r->is_ranked && gain < WORTH ? NULL : one;
}

int hr__report_make(struct hr__report *out, const struct hr_replay *replay,
                    const char *const *what_ifs, size_t count, struct hr_error *error)
{
    int code = 0;
    *out = (struct hr__report){.replay = replay, .summary.size = sizeof out->summary};
    hr_replay_summarise(replay, &out->summary);
    hr__path_shares(&out->shares, &replay->graph, &replay->schedule);
    if (hr__path_names(&out->names, &out->name_count, &replay->graph, &replay->schedule))
        return hr__fail(error, -ENOMEM, "out of memory for a report");
    out->bottleneck = find_bottleneck(&out->shares, out->names, out->name_count);
    if (count)
        code = in_a_row(out, what_ifs, count, error);
    else if (out->summary.is_trusted)
        code = try_all(out, error);
    if (!code)
        add_notes(out);
    return code;
}

void hr__report_clear(struct hr__report *r)
{
    for (size_t i = 0; i < r->untried_count; i++)
        hr__free(r->untried[i].why);
    hr__free(r->untried);
    hr__free(r->outcomes);
    hr__free(r->names);
    hr__draft_clear(&r->notes);
    *r = (struct hr__report){.replay = NULL};
}

void hr_replay_free(char *text)
{
    hr__free(text);
}
