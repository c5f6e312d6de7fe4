/* Writes sentences on memory; see words.h. */
#include "memory/report/words.h"

#include "report/format.h"

#include <math.h>
#include <string.h>

#define NAMED       3    /* categories named first; further ones only if large */
#define NAMED_LEAST 0.10 /* share of the peak from which a category is named */
#define WORTH       0.01 /* share of the peak from which a sentence is written */

static const struct {
    const char *remedy, *verb, *one, *many, *caveat;
} advice[HR__ADVICE_KINDS] = {
    [HR__ADVICE_SWAP] =
        {"swap out", "Swapping out", "a block that is idle over the peak",
         "blocks that are idle over the peak",
         "Swapping: the block is idle over the peak for longer than copying it out and back takes. "
         "The copies are assumed to overlap with computing and to have the link to themselves."},
    [HR__ADVICE_UNTOUCHED] =
        {"never touched", "Removing", "a block that no operator touches",
         "blocks that no operator touches",
         "Never touched: no operator reads or writes the block while it is recorded. Other "
         "code, or code that runs later, may need it."},
    [HR__ADVICE_LATE_FREE] =
        {"free sooner", "Freeing", "a block right after its last use",
         "blocks right after their last use",
         "Freeing sooner: the block's last use is before the peak. Drop the last "
         "reference to it (del, a smaller scope, detach) before the peak."},
    [HR__ADVICE_RECOMPUTE] =
        {"recompute", "Recomputing", "an activation", "activations",
         "Recomputing: a cheap operator made the block, and it waits long for its next use. "
         "torch.utils.checkpoint drops it and computes it again, which takes the computation's "
         "time once more."},
};

const char *hr__memory_remedy(enum hr__advice_kind kind)
{
    return advice[kind].remedy;
}

const char *hr__memory_caveat(enum hr__advice_kind kind)
{
    return advice[kind].caveat;
}

/* ---- the peak ---- */

static void say_when(const struct hr__memory_view *v, struct hr__draft *d)
{
    static const char *const phases[] = {NULL, "the forward pass", "the backward pass",
                                         "the optimizer's step"};
    bool phase = v->phase > 0 && v->phase < sizeof phases / sizeof *phases;
    /* State the subject first: a compiled model holds other memory. */
    if (*hr__view_fact(v, "compiled code"))
        hr__draft_put(d, "Run eagerly, without torch.compile: at its peak");
    else
        hr__draft_put(d, "At its peak");
    if (phase)
        hr__draft_print(d, ", in %s", phases[v->phase]);
    if (v->iteration)
        hr__draft_print(d, phase ? " of iteration %u" : ", in iteration %u", v->iteration);
    hr__draft_put(d, phase || v->iteration ? ", training holds " : ", the program holds ");
}

/* Writes "62 % activations, 20 % parameters, 15 % gradients and 3 % other". */
static void say_categories(const struct hr__memory_view *v, double total, struct hr__draft *d)
{
    bool is_named[HR__CATEGORIES] = {false};
    int percent_left = 100;
    for (int n = 0; n < HR__CATEGORIES; n++) {
        int most = -1;
        for (int c = 0; c < HR__CATEGORIES; c++) {
            double bytes = hr__view_peak_of(v, c);
            if (!is_named[c] && bytes > 0 && (most < 0 || bytes > hr__view_peak_of(v, most)))
                most = c;
        }
        if (most < 0)
            break;
        double share = hr__view_peak_of(v, most) / total;
        int percent = (int)(100 * share + 0.5);
        if (percent < 1 || (n >= NAMED && share < NAMED_LEAST))
            break;
        percent = percent > percent_left ? percent_left : percent;
        is_named[most] = true;
        percent_left -= percent;
        hr__draft_print(d, "%s%d %% %s", n ? ", " : ": ", percent, hr__category_plural(most));
    }
    if (percent_left > 0 && percent_left < 100)
        hr__draft_print(d, " and %d %% other", percent_left);
}

/* Writes what would save most at the peak of the main device. */
static void say_advice(const struct hr__memory_view *v, struct hr__draft *d)
{
    double bytes[HR__ADVICE_KINDS] = {0}, blocks[HR__ADVICE_KINDS] = {0};
    char text[HR__FORMAT_BYTES];
    int best = 0;
    for (size_t i = 0; i < v->found->advice_count; i++) {
        const struct hr__advice *one = &v->found->advice[i];
        if (v->found->found.blocks[one->block].device != v->device->device ||
            (one->kind == HR__ADVICE_SWAP && !v->device->device)) /* nowhere to swap to */
            continue;
        bytes[one->kind] += (double)one->bytes;
        blocks[one->kind] += (double)one->blocks;
    }
    for (int k = 1; k < HR__ADVICE_KINDS; k++)
        best = bytes[k] > bytes[best] ? k : best;
    if (!(bytes[best] >= WORTH * hr__view_peak(v)))
        return;
    if (blocks[best] == 1)
        hr__draft_print(d, " %s %s", advice[best].verb, advice[best].one);
    else
        hr__draft_print(d, " %s %d %s", advice[best].verb, (int)blocks[best], advice[best].many);
    hr__draft_print(d, " would save up to %s.", hr__format_bytes(text, bytes[best]));
}

static void say_batch(const struct hr__memory_view *v, struct hr__draft *d)
{
    char text[HR__FORMAT_BYTES], capacity[HR__FORMAT_BYTES];
    if (!(v->fit.batch_that_fits >= 1))
        return;
    hr__draft_print(d, " Batches of up to %s would fit into %s",
                    hr__format_fixed(text, v->fit.batch_that_fits, 0, true),
                    hr__format_bytes(capacity, v->capacity_bytes));
    if (v->fitted == 1)
        hr__draft_print(d,
                        " (now %s), if all but parameters, gradients and optimizer state grows "
                        "with the batch",
                        hr__format_fixed(text, v->batch_size, 0, true));
    else
        hr__draft_print(d, " (by a line through %zu records)", v->fitted);
    hr__draft_put(d, ".");
}

void hr__memory_say_peak(const struct hr__memory_view *v, struct hr__draft *d)
{
    char text[HR__FORMAT_BYTES], device[HR__VIEW_DEVICE_BYTES];
    double total = hr__view_peak(v);
    if (v->found->found.failed)
        hr__draft_print(d, "Memory ran out: an allocation of %s was refused. ",
                        hr__format_bytes(text, (double)v->found->found.failed_bytes));
    if (!(total > 0)) {
        hr__draft_put(d, "No memory was held in this record.");
        return;
    }
    say_when(v, d);
    hr__draft_print(d, "%s on ", hr__format_bytes(text, total));
    hr__draft_plain(d, hr__view_device(v->device->device, device));
    say_categories(v, total, d);
    hr__draft_put(d, ".");
    say_advice(v, d);
    say_batch(v, d);
}

/* ---- intervals ---- */

void hr__memory_say_intervals(const struct hr__memory_view *v, struct hr__draft *d)
{
    const struct hr__intervals *i = &v->found->intervals;
    double count = (double)hr__intervals_count(i);
    char share[HR__FORMAT_BYTES], in[HR__FORMAT_BYTES], out[HR__FORMAT_BYTES];
    if (!(count > 0))
        return;
    hr__draft_print(d,
                    "%s of the intervals are too short for their block to leave and return: "
                    "S_max = interval / (1 / %s + 1 / %s) is less than its size.",
                    hr__format_share(share, 1 - (double)i->swappable / count),
                    hr__format_speed(in, i->h2d_bytes_per_s),
                    hr__format_speed(out, i->d2h_bytes_per_s));
    if (i->probe_ns > 0)
        hr__draft_print(d, " What recording itself costs, %s an operator, is taken off.",
                        hr__format_time(in, i->probe_ns * 1e-9));
}
