/* The sentence and the tables of a plan, and its text for a terminal; see pipeline_report.h. */
#include "replay/pipeline_report.h"

#include "base/error.h"
#include "report/format.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define DRAWN_PASSES   48 /* of one GPU, at least those of its first two batches */
#define VERSIONS_SHOWN 4

double hr__plan_drawn_s(const struct hr_plan *plan)
{
    const struct hr__pipeline_run *run = &plan->run;
    size_t tasks = 4 * (size_t)plan->choices->microbatches * (size_t)plan->choices->chunks;
    tasks = tasks > DRAWN_PASSES ? tasks : DRAWN_PASSES;
    if (!run->device_tasks || tasks >= run->device_tasks)
        return run->makespan_s;
    return run->tasks[tasks].begin_s;
}

/* ---- the sentence ---- */

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

/* "2bw with 4 stages, 2 replicas, microbatches of 8, with recomputation" */
static void put_choice(const struct hr_plan *plan, const struct hr__choice *c,
                       struct hr__draft *draft)
{
    hr__draft_put(draft, c->devices == 1 ? "no pipeline" : hr_plan_schedule_name(c->schedule));
    if (c->devices > 1)
        hr__draft_print(draft, " with %d stages", c->devices);
    if (c->chunks > 1)
        hr__draft_print(draft, " of %d parts", c->chunks);
    if (c->replicas > 1)
        hr__draft_print(draft, ", %d replicas", c->replicas);
    hr__draft_print(draft, ", microbatches of %d", (int)plan->profile.sizes[c->size]);
    if (c->recompute)
        hr__draft_put(draft, ", with recomputation");
}

void hr__plan_sentence(const struct hr_plan *plan, struct hr__draft *draft)
{
    char speed[HR__FORMAT_BYTES], gain[HR__FORMAT_BYTES];
    if (!plan->count) {
        hr__draft_print(draft, "Nothing fits: none of %d plans can train this network on %d GPU%s.",
                        plan->considered, plan->options.gpus, plural(plan->options.gpus));
        return;
    }
    const struct hr__choice *c = plan->choices;
    hr__draft_put(draft, "Fastest: ");
    put_choice(plan, c, draft);
    hr__draft_print(draft, ": %s samples/s", hr__format_rate(speed, c->samples_per_s));
    if (c->devices > 1 && plan->alone_per_s > 0)
        hr__draft_print(draft, ", %s times as fast as without a pipeline",
                        hr__format_rate(gain, c->samples_per_s / plan->alone_per_s));
    else if (c->devices > 1 && plan->options.stages == HR_PLAN_ANY)
        hr__draft_put(draft, "; without a pipeline nothing fits");
    hr__draft_put(draft, ".");
}

/* ---- tables ---- */

static void number_cell(struct hr__table *t, double value, hr__format_fn format)
{
    char text[HR__FORMAT_BYTES];
    hr__table_cell(t, format(text, value));
}

static void choices_table(struct hr__table *t, const struct hr_plan *plan)
{
    static const char *const columns[] = {">stages", ">replicas",   ">samples/s",  ">bubble",
                                          ">memory", ">microbatch", ">recomputes", ">step",
                                          ">batch",  NULL};
    hr__table_begin(t, "plans", columns);
    for (int i = 0; i < plan->count; i++) {
        const struct hr__choice *c = &plan->choices[i];
        if (c->chunks > 1)
            hr__table_cell_print(t, "%s, %d parts", hr_plan_schedule_name(c->schedule), c->chunks);
        else
            hr__table_cell(t, c->devices == 1 ? "no pipeline" : hr_plan_schedule_name(c->schedule));
        hr__table_cell_print(t, "%d", c->devices);
        hr__table_cell_print(t, "%d", c->replicas);
        number_cell(t, c->samples_per_s, hr__format_rate);
        number_cell(t, c->bubble, hr__format_share);
        number_cell(t, c->memory_bytes, hr__format_bytes);
        hr__table_cell_print(t, "%d", (int)plan->profile.sizes[c->size]);
        hr__table_cell(t, c->recompute ? "yes" : "no");
        number_cell(t, c->step_s, hr__format_time);
        hr__table_cell_print(t, "%d", c->batch);
    }
}

/* Returns the last stage from `first` on whose memory is shown with the same text. */
static int same_until(const struct hr__choice *c, int first, const char *text)
{
    char other[HR__FORMAT_BYTES];
    int last = first;
    while (last + 1 < c->devices &&
           !strcmp(text, hr__format_bytes(other, hr__device_total(&c->bytes[last + 1]))))
        last++;
    return last;
}

/* What the GPU of each stage holds: "1: 12.1 GiB, 2 to 4: 10.4 GiB". */
static void put_holds(const struct hr__choice *c, struct hr__draft *words)
{
    char text[HR__FORMAT_BYTES];
    for (int s = 0, last; s < c->devices; s = last + 1) {
        hr__format_bytes(text, hr__device_total(&c->bytes[s]));
        last = same_until(c, s, text);
        hr__draft_print(words, "%s%d", s ? ", " : "", s + 1);
        if (last > s)
            hr__draft_print(words, " to %d", last + 1);
        hr__draft_print(words, ": %s", text);
    }
}

/* A sentence for each plan. */
static void holds_list(struct hr__table *t, const struct hr_plan *plan)
{
    static const char *const none[] = {NULL};
    hr__table_begin(t, "what the GPU of each stage holds", none);
    for (int i = 0; i < plan->count; i++) {
        struct hr__draft words = {.text = NULL};
        put_choice(plan, &plan->choices[i], &words);
        hr__draft_put(&words, plan->choices[i].devices > 1 ? "; stage " : "; GPU ");
        put_holds(&plan->choices[i], &words);
        hr__table_cell(t, words.text);
        t->failed |= words.failed;
        hr__draft_clear(&words);
    }
}

/* "stage 2: layers 5 to 9, attention to norm" */
static void stage_cell(struct hr__table *t, const struct hr__profile *p, int stage,
                       const struct hr__stage_cost *s)
{
    const char *first = p->entries[p->layers[s->first]].name;
    const char *last = p->entries[p->layers[s->first + s->count - 1]].name;
    if (s->count == 1)
        hr__table_cell_print(t, "stage %d: layer %d, %.60s", stage, s->first + 1, first);
    else
        hr__table_cell_print(t, "stage %d: layers %d to %d, %.60s to %.60s", stage, s->first + 1,
                             s->first + s->count, first, last);
}

static void stages_table(struct hr__table *t, const struct hr_plan *plan)
{
    static const char *const columns[] = {">forward", ">backward", ">sends",
                                          ">update",  ">reduces",  NULL};
    hr__table_begin(t, "stages of the first plan", columns);
    for (int i = 0; i < plan->choices->devices * plan->choices->chunks; i++) {
        const struct hr__stage_cost *s = &plan->stages[i];
        stage_cell(t, &plan->profile, i + 1, s);
        number_cell(t, s->compute_forward_s, hr__format_time);
        number_cell(t, s->compute_backward_s, hr__format_time);
        number_cell(t, s->send_forward_s + s->send_backward_s, hr__format_time);
        number_cell(t, s->update_s, hr__format_time);
        number_cell(t, s->reduce_s, hr__format_time);
    }
}

static void memory_table(struct hr__table *t, const struct hr_plan *plan)
{
    static const char *const columns[] = {">weights",   ">gradients", ">optimizer", ">activations",
                                          ">in flight", ">total",     NULL};
    hr__table_begin(t, "its memory", columns);
    for (int i = 0; i < plan->choices->devices; i++) {
        const struct hr__device_bytes *b = &plan->choices->bytes[i];
        hr__table_cell_print(t, "GPU of stage %d", i + 1);
        number_cell(t, b->weights, hr__format_bytes);
        number_cell(t, b->gradients, hr__format_bytes);
        number_cell(t, b->state, hr__format_bytes);
        number_cell(t, b->activations, hr__format_bytes);
        hr__table_cell_print(t, "%d", b->microbatches);
        number_cell(t, hr__device_total(b), hr__format_bytes);
    }
}

static void versions_table(struct hr__table *t, const struct hr_plan *plan)
{
    static const char *const columns[] = {"version", NULL};
    const struct hr__choice *c = plan->choices;
    struct hr__pipeline_spec spec = {c->schedule, c->devices, c->chunks, c->microbatches, 1, NULL};
    int m = c->microbatches;
    hr__table_begin(t, "weights that microbatches use", columns);
    for (int batch = 0; batch < VERSIONS_SHOWN && c->schedule == HR_PLAN_2BW; batch++) {
        hr__table_cell_print(t, "batch %d, microbatches %d to %d", batch + 1, batch * m + 1,
                             (batch + 1) * m);
        hr__table_cell_print(t, "%d", hr__pipeline_version(&spec, batch * m));
    }
}

/* A sentence for each. */
static void refused_list(struct hr__table *t, const struct hr_plan *plan)
{
    static const char *const none[] = {NULL};
    char speed[HR__FORMAT_BYTES];
    hr__table_begin(
        t, plan->count ? "what would be faster, but is not possible" : "why nothing is possible",
        none);
    for (int i = 0; i < plan->refused_count; i++) {
        const struct hr__choice *c = &plan->refused[i];
        struct hr__draft words = {.text = NULL};
        put_choice(plan, c, &words);
        hr__draft_print(&words, " (%s samples/s at most): %s",
                        hr__format_rate(speed, c->batch / (c->pace_s * c->microbatches)),
                        c->reason);
        hr__table_cell(t, words.text);
        t->failed |= words.failed;
        hr__draft_clear(&words);
    }
}

/* How many plans cannot be, and why. */
static void note_counts(struct hr__table *t, const struct hr_plan *plan)
{
    int other = plan->considered - plan->fit - plan->full;
    struct hr__draft words = {.text = NULL};
    hr__draft_print(&words, "Of %d plans %d fit", plan->considered, plan->fit);
    if (plan->full)
        hr__draft_print(&words, "; %d need%s more memory than a GPU has", plan->full,
                        plan->full == 1 ? "s" : "");
    if (other)
        hr__draft_print(&words, "; the schedule of %d needs other numbers of microbatches", other);
    hr__draft_put(&words, ".");
    hr__table_cell(t, words.text);
    t->failed |= words.failed;
    hr__draft_clear(&words);
}

static void notes(struct hr__table *t, const struct hr_plan *plan)
{
    static const char *const none[] = {NULL};
    const struct hr_plan_options *o = &plan->options;
    hr__table_begin(t, "what was assumed", none);
    note_counts(t, plan);
    hr__table_cell(t, "A pass takes the time of its layers in the profile and of sending its "
                      "result; sending does not overlap with computing.");
    if (!(o->link_bytes_per_s > 0))
        hr__table_cell(t, "Transfers take no time, because no link was given.");
    hr__table_cell(t, "Gradients of replicas are added over a ring: before the update with a "
                      "flush, beside the next batch with 2bw.");
    if (!o->memory_bytes)
        hr__table_cell(t, "Memory is unlimited, because none was given.");
    hr__table_cell(t, "Memory is weights (two versions with 2bw), gradients, the optimizer's state "
                      "and what microbatches in flight hold, without fragmentation.");
    if (plan->count && plan->choices->schedule == HR_PLAN_2BW)
        hr__table_cell(t, "2bw updates weights with gradients of the version before: its loss may "
                          "differ from that of the other schedules.");
}

void hr__plan_tables_make(struct hr__table tables[HR__PLAN_TABLES], const struct hr_plan *plan)
{
    memset(tables, 0, HR__PLAN_TABLES * sizeof *tables);
    for (int i = 0; i < HR__PLAN_TABLES; i++)
        tables[i].column_count = 1;
    if (plan->count) {
        choices_table(&tables[HR__PLAN_CHOICES], plan);
        holds_list(&tables[HR__PLAN_HOLDS], plan);
        stages_table(&tables[HR__PLAN_STAGES], plan);
        memory_table(&tables[HR__PLAN_MEMORY], plan);
        versions_table(&tables[HR__PLAN_VERSIONS], plan);
    }
    refused_list(&tables[HR__PLAN_REFUSED], plan);
    notes(&tables[HR__PLAN_NOTES], plan);
}

bool hr__plan_tables_failed(const struct hr__table tables[HR__PLAN_TABLES])
{
    bool failed = false;
    for (int i = 0; i < HR__PLAN_TABLES; i++)
        failed |= tables[i].failed;
    return failed;
}

void hr__plan_tables_clear(struct hr__table tables[HR__PLAN_TABLES])
{
    for (int i = 0; i < HR__PLAN_TABLES; i++)
        hr__table_clear(&tables[i]);
}

/* ---- text ---- */

int hr_plan_write_text(const struct hr_plan *plan, const char *path, int columns,
                       struct hr_error *error)
{
    struct hr__table tables[HR__PLAN_TABLES];
    struct hr__draft draft = {.text = NULL}, words = {.text = NULL};
    if (!plan || !path)
        return hr__fail(error, -EINVAL, "a plan and a path are needed to write it as text");
    columns = hr__text_width(columns);
    hr__plan_sentence(plan, &words);
    draft.failed |= words.failed;
    if (!words.failed)
        hr__text_wrap(words.text, columns, 0, &draft);
    hr__draft_clear(&words);
    hr__plan_tables_make(tables, plan);
    draft.failed |= hr__plan_tables_failed(tables);
    for (int i = 0; i < HR__PLAN_TABLES && !draft.failed; i++)
        hr__table_text(&tables[i], columns, &draft);
    int r = hr__draft_write(&draft, path, error);
    hr__plan_tables_clear(tables);
    hr__draft_clear(&draft);
    return r;
}
