/*
 * Fills the tables of a result; see tables.h. Computes only sums and means: figures that need
 * statistics were derived with the result.
 */
#include "stalls/report/tables.h"

#include "report/format.h"
#include "stalls/model/inside.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define RANKS_AN_END 8 /* ranks listed that wait most, and least, if not all are */
#define LIST_AT_MOST 40
#define SUGGESTIONS  6 /* rows at most */

static const char *plural(double n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

static void cell_range(struct hr__table *t, struct hr_interval interval, hr__format_fn format)
{
    char range[2 * HR__FORMAT_BYTES];
    hr__table_cell(t, hr__format_range(range, interval.low, interval.high, format));
}

static void cell_value(struct hr__table *t, double value, hr__format_fn format)
{
    char text[HR__FORMAT_BYTES];
    hr__table_cell(t, format(text, value));
}

/* ---- shares ---- */

/* Returns the share of a phase's time that the ranks were blocked in next(); NaN: unknown. */
static double blocked_share(const struct hr_stalls *s, int phase)
{
    double waited = 0, all = 0;
    for (int r = 0; r < s->rank_count; r++)
        for (size_t i = 0; i < s->ranks[r].segment_count; i++) {
            const struct hr__segment_record *g = &s->ranks[r].segments[i];
            if ((int)g->phase != phase || !g->wait_s)
                continue;
            all += g->elapsed_s;
            for (uint64_t b = 0; b < g->batches; b++)
                waited += g->wait_s[b];
        }
    return all > 0 ? fmin(waited / all, 1) : NAN;
}

/* Besides the time lost by difference, shows what the loop itself waited: the rest of the
 * difference is training slowed down by the loader. */
static void add_blocked(struct hr__table *t, const struct hr_stalls *s, int phase)
{
    double share = blocked_share(s, phase);
    if (isnan(share))
        return;
    hr__table_cell(t, "(blocked in next())");
    cell_value(t, share, hr__format_share);
    hr__table_cell(t, "-");
    cell_value(t, share * s->step_s[phase].value, hr__format_time);
}

/* An unknown share has no figure, only its interval. */
static void fill_shares(struct hr__table *t, const struct hr_stalls *s, int phase)
{
    const char *const names[] = {"computing", "copying to the GPU",
                                 s->network ? "waiting for its loader" : "waiting for preparation",
                                 hr__is_at_urls(s) ? "waiting for the network"
                                                   : "waiting for storage"};
    const struct hr_interval *share =
        phase == HR_STALLS_COLD ? s->summary.share : s->summary.warm_share;
    const char *mark = s->summary.measured[phase] || s->network ? "" : ", not verified";
    if (isnan(share[0].value) || *s->cannot_tell)
        return;
    for (int i = 0; i < (phase == HR_STALLS_COLD ? 4 : 3); i++) {
        if (i == 1 && s->on_cpu)
            continue; /* there is no copy */
        hr__table_cell_print(t, "%s%s",
                             i || s->summary.measured[HR_STALLS_DEVICE] || s->on_cpu
                                 ? names[i]
                                 : "computing and copying",
                             i < 2 ? "" : mark);
        bool known = isnan(share[i].value) || hr__share_is_known(share[i]);
        if (known)
            cell_value(t, share[i].value, hr__format_share);
        else
            hr__table_cell(t, "not known");
        cell_range(t, share[i], hr__format_share);
        cell_value(t, known ? share[i].value * s->step_s[phase].value : NAN, hr__format_time);
        if (known)
            hr__table_bar(t, share[i].value);
    }
    add_blocked(t, s, phase);
}

/* ---- effects of changes ---- */

static void add_prediction(struct hr__table *t, const char *name,
                           const struct hr_stalls_prediction *p)
{
    hr__table_cell_print(t, "%s%s", name, p->extrapolated ? ", extrapolated" : "");
    cell_value(t, p->rate, hr__format_rate);
    cell_range(t, (struct hr_interval){p->rate, p->low, p->high}, hr__format_rate);
    cell_value(t, 1 - p->share[0], hr__format_share);
    hr__table_bar(t, 1 - p->share[0]);
}

/* Adds the present state, and which measurement it corresponds to. */
static void add_now(struct hr__table *t, const struct hr_stalls_prediction *p)
{
    char name[64] = "as it is";
    if (p->measured)
        snprintf(name, sizeof name, "as it is, as measured");
    else if (p->cached > 0 && p->cached < 1)
        snprintf(name, sizeof name, "as it is, %.0f %% of the files in memory", 100 * p->cached);
    add_prediction(t, name, p);
}

/* If storage was not measured: shows what is known with all files in memory. */
static void fill_changes_in_memory(struct hr__table *t, const struct hr_stalls *s)
{
    static const char *const names[] = {"as it is, files in memory",
                                        "Headrace's loader, files in memory"};
    for (int i = 0; i < 2; i++) {
        struct hr_stalls_prediction p = {.size = sizeof p};
        struct hr_stalls_change change;
        struct hr_error error = {0};
        hr_stalls_change_default(&change);
        change.cache_share = 1;
        change.loader = i ? HR_STALLS_LOADER_HEADRACE : HR_STALLS_LOADER_SAME;
        bool same = i && s->loader == HR__LOADER_HEADRACE;
        if (!same && !hr_stalls_predict(s, &change, &p, &error))
            add_prediction(t, names[i], &p);
    }
}

/* Omits what cannot be predicted; hr_stalls_predict reports the reason. */
static void fill_changes(struct hr__table *t, const struct hr_stalls *s)
{
    struct hr_stalls_suggestion suggestions[SUGGESTIONS] = {{.size = sizeof *suggestions}};
    struct hr_stalls_prediction now = {.size = sizeof now};
    struct hr_stalls_change none;
    struct hr_error error = {0};
    hr_stalls_change_default(&none);
    if (hr_stalls_predict(s, &none, &now, &error)) {
        fill_changes_in_memory(t, s);
        return;
    }
    add_now(t, &now);
    int count = hr_stalls_suggest(s, HR__STALL, suggestions, SUGGESTIONS, &error);
    for (int i = 0; i < count; i++)
        if (memcmp(&suggestions[i].change, &none, sizeof none)) /* "nothing" is already shown */
            add_prediction(t, suggestions[i].text, &suggestions[i].prediction);
}

/* ---- rates ---- */

static void add_rate(struct hr__table *t, const char *name, struct hr_interval rate,
                     const char *mark)
{
    if (isnan(rate.value))
        return;
    hr__table_cell_print(t, "%s%s", name, mark);
    cell_value(t, rate.value, hr__format_rate);
    cell_range(t, rate, hr__format_rate);
}

static double batch_samples(const struct hr_stalls *s)
{
    return (double)s->batch_size * s->world_size;
}

/* Adds the copy alone: the time it adds to a batch. */
static void add_copy(struct hr__table *t, const struct hr_stalls *s)
{
    double added = s->step_s[HR_STALLS_HOST].value - s->step_s[HR_STALLS_DEVICE].value;
    char time[HR__FORMAT_BYTES];
    if (s->on_cpu || isnan(added))
        return;
    if (added <= 0) {
        hr__table_cell(t, "copying a batch: adds nothing that shows");
        hr__table_cell(t, "-");
    } else {
        hr__table_cell_print(t, "copying alone: a batch takes %s", hr__format_time(time, added));
        cell_value(t, batch_samples(s) / added, hr__format_rate);
    }
    hr__table_cell(t, "-");
}

/* Adds the rate over whole epochs, if each begins with a noticeable wait. */
static void add_epochs(struct hr__table *t, const struct hr_stalls *s, enum hr_stalls_phase phase)
{
    double start = hr__epoch_start_share(s, phase);
    struct hr_interval rate = s->summary.rate[phase];
    double each_s = start / (1 - start) / rate.value; /* extra time per sample */
    if (start > 0)
        add_rate(t, "  with the starts of its epochs",
                 (struct hr_interval){1 / (1 / rate.value + each_s), 1 / (1 / rate.low + each_s),
                                      1 / (1 / rate.high + each_s)},
                 "");
}

static void fill_rates(struct hr__table *t, const struct hr_stalls *s)
{
    static const struct {
        enum hr_stalls_phase phase;
        const char *gpu, *cpu;
    } rows[] = {
        {HR_STALLS_COLD, "training, files on storage", "training, files on storage"},
        {HR_STALLS_WARM, "training, files in memory", "training, files in memory"},
        {HR_STALLS_HOST, "training, batches prepared", "training, batches prepared (G)"},
        {HR_STALLS_DEVICE, "training, batches on the GPU (G)",
         "training, batches on the device (G)"},
    };
    const struct hr_stalls_summary *m = &s->summary;
    char name[96];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *what = s->on_cpu ? rows[i].cpu : rows[i].gpu;
        bool files = !s->network && !s->reads_no_files;
        if (rows[i].phase == HR_STALLS_COLD && hr__is_at_urls(s))
            what = "training, from the store";
        if (rows[i].phase == HR_STALLS_WARM && !files)
            what = s->network ? "training, over the network" : "training, with its loader";
        add_rate(t, what, m->rate[rows[i].phase],
                 m->measured[rows[i].phase] || s->network ? "" : ", not verified");
        if (rows[i].phase == HR_STALLS_COLD || rows[i].phase == HR_STALLS_WARM)
            add_epochs(t, s, rows[i].phase);
    }
    add_copy(t, s);
    snprintf(name, sizeof name, "preparation alone, %d %s (P)", m->cores,
             plural(m->cores, "core", "cores"));
    add_rate(t, name, m->prepare_rate, "");
    add_rate(t,
             hr__is_at_urls(s) ? "the store alone, as this loader asks (F)"
                               : "storage alone, as this loader reads (F)",
             m->fetch_rate, "");
}

/* ---- the loader alone, storage, Headrace's cost ---- */

/* Sums the drains of one kind over all ranks, and assumes missing ranks to be like the others;
 * false if there is nothing to divide by. */
static bool sum_drains(const struct hr_stalls *s, struct hr__drained *sum)
{
    double samples = 0;
    for (int r = 0; r < s->rank_count; r++) {
        double rank_samples = 0, rank_s = 0;
        for (size_t i = 0; i < s->ranks[r].drain_count; i++) {
            const struct hr__drain_record *d = &s->ranks[r].drains[i];
            if (d->cold != sum->cold || d->cores != sum->cores || !(d->elapsed_s > 0))
                continue;
            rank_samples += (double)d->samples;
            rank_s += d->elapsed_s;
            sum->cpu_s += d->cpu_s;
        }
        sum->rate += rank_s > 0 ? rank_samples / rank_s : 0;
        sum->ranks += rank_s > 0;
        samples += rank_samples;
    }
    sum->cpu_s /= samples;
    sum->rate *= (double)s->world_size / (sum->ranks ? sum->ranks : 1);
    return samples > 0;
}

static bool is_before(const struct hr__drained *a, const struct hr__drained *b)
{
    return a->cold != b->cold ? !a->cold : a->cores < b->cores;
}

int hr__drained(const struct hr_stalls *s, struct hr__drained *out, int capacity)
{
    int count = 0;
    for (int r = 0; r < s->rank_count; r++)
        for (size_t i = 0; i < s->ranks[r].drain_count && count < capacity; i++) {
            const struct hr__drain_record *d = &s->ranks[r].drains[i];
            struct hr__drained sum = {.cold = d->cold, .cores = d->cores};
            bool seen = false;
            for (int k = 0; k < count; k++)
                seen |= out[k].cold == d->cold && out[k].cores == d->cores;
            if (seen || !sum_drains(s, &sum))
                continue;
            int at = count++;
            for (; at && is_before(&sum, &out[at - 1]); at--)
                out[at] = out[at - 1];
            out[at] = sum;
        }
    return count;
}

static void fill_prepare(struct hr__table *t, const struct hr_stalls *s)
{
    struct hr__drained drained[HR__STALLS_MAX_POINTS];
    int count = hr__drained(s, drained, HR__STALLS_MAX_POINTS);
    for (int i = 0; i < count; i++) {
        const struct hr__drained *d = &drained[i];
        hr__table_cell_print(t, "%d %s, files %s", d->cores, plural(d->cores, "core", "cores"),
                             d->cold ? "on storage" : "in memory");
        cell_value(t, d->rate, hr__format_rate);
        cell_value(t, d->cores > 0 ? d->rate / d->cores : NAN, hr__format_rate);
        cell_value(t, d->cpu_s, hr__format_time);
    }
}

static void fill_storage(struct hr__table *t, const struct hr_stalls *s)
{
    for (int h = 0; h < s->host_count; h++) {
        const struct hr__host_record *host = &s->hosts[h];
        const char *colon = s->host_count > 1 ? ": " : "";
        const char *name = s->host_count > 1 ? host->name : "";
        for (size_t i = 0; i < host->depth_count; i++) {
            const struct hr__depth_record *d = &host->depths[i];
            hr__table_cell_print(t, "%s%s%d %s in flight", name, colon, d->depth,
                                 plural(d->depth, "read", "reads"));
            cell_value(t, d->bytes_per_s, hr__format_speed);
            cell_value(t, d->reads_per_s, hr__format_rate);
            cell_value(t, d->bytes_per_s / hr__mean_bytes(s), hr__format_rate);
        }
        if (isnan(host->memory_bytes_per_s))
            continue;
        hr__table_cell_print(t, "%s%sfiles in memory", name, colon);
        cell_value(t, host->memory_bytes_per_s, hr__format_speed);
        hr__table_cell(t, "-");
        cell_value(t, host->memory_bytes_per_s / hr__mean_bytes(s), hr__format_rate);
    }
}

static void fill_forms(struct hr__table *t, const struct hr_stalls *s)
{
    const struct hr__host_record *host = s->host_count ? &s->hosts[0] : NULL;
    for (size_t i = 0; host && i < host->form_count; i++) {
        const struct hr__form_record *f = &host->forms[i];
        const char *name = hr_form_name(f->form);
        hr__table_cell(t, name ? name : "?");
        cell_value(t, f->cpu_s, hr__format_time);
        cell_value(t, f->cpu_s > 0 ? 1 / f->cpu_s : NAN, hr__format_rate);
        cell_value(t, f->bytes, hr__format_bytes);
    }
}

/* ---- ranks ---- */

static void add_rank(struct hr__table *t, const struct hr_stalls *s, int i)
{
    const struct hr__rank_record *rank = &s->ranks[i];
    struct hr_interval waiting = s->waiting ? s->waiting[i] : (struct hr_interval){NAN, NAN, NAN};
    hr__table_cell_print(t, "%d%s%s%s", rank->rank, s->host_count > 1 ? " on " : "",
                         s->host_count > 1 ? rank->host : "",
                         s->straggles && s->straggles[i] ? ", straggles" : "");
    cell_value(t, waiting.value, hr__format_share);
    cell_range(t, waiting, hr__format_share);
    cell_value(t, s->alone_s ? s->alone_s[i].value : NAN, hr__format_time);
    cell_value(t, rank->first_batch_s, hr__format_time);
}

/* Returns how many ranks wait longer than this one; equal ones are ordered by rank. */
static int place_of(const struct hr_stalls *s, int i)
{
    int place = 0;
    double own = s->waiting ? s->waiting[i].value : 0;
    for (int k = 0; k < s->rank_count; k++) {
        double other = s->waiting ? s->waiting[k].value : 0;
        place += other > own || (isnan(own) && !isnan(other)) || (!(other < own) && k < i);
    }
    return place;
}

static void fill_ranks(struct hr__table *t, const struct hr_stalls *s)
{
    if (s->rank_count < 2)
        return;
    for (int i = 0, left_out = 0; i < s->rank_count; i++) {
        bool all = s->rank_count <= 2 * RANKS_AN_END + 1;
        int place = all ? 0 : place_of(s, i);
        bool straggles = s->straggles && s->straggles[i];
        if (place < RANKS_AN_END || place >= s->rank_count - RANKS_AN_END || straggles)
            add_rank(t, s, i);
        else
            left_out++;
        if (i + 1 < s->rank_count || !left_out)
            continue;
        hr__table_cell_print(t, "... %d more between these", left_out);
        for (int c = 1; c < t->column_count; c++)
            hr__table_cell(t, "");
    }
}

/* ---- the run ---- */

static void add_pair(struct hr__table *t, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    hr__table_cell(t, name);
    hr__table_cell(t, value);
}

static void add_loader(struct hr__table *t, const struct hr_stalls *s)
{
    static const char *const kinds[] = {"worker", "thread", "worker"};
    char bytes[HR__FORMAT_BYTES];
    hr__table_cell(t, "loader");
    if (s->loader == HR__LOADER_OTHER)
        hr__table_cell(t, s->loader_class);
    else if (!s->workers)
        hr__table_cell_print(t, "%s, no workers: it loads within the training loop; batches of %d",
                             s->loader_class, s->batch_size);
    else
        hr__table_cell_print(t, "%s, %d %s%s%s, %d %s ahead, batches of %d", s->loader_class,
                             s->workers, kinds[s->loader], s->workers == 1 ? "" : "s",
                             s->world_size > 1 ? " a rank" : "", s->prefetch_batches,
                             plural(s->prefetch_batches, "batch", "batches"), s->batch_size);
    if (s->loader_cache_bytes > 0) {
        hr__table_cell(t, "its cache");
        hr__table_cell(t, hr__format_bytes(bytes, s->loader_cache_bytes));
    }
}

static void add_dataset(struct hr__table *t, const struct hr_stalls *s)
{
    char samples[HR__FORMAT_BYTES], bytes[HR__FORMAT_BYTES], mean[HR__FORMAT_BYTES];
    struct hr__draft d = {.text = NULL};
    hr__draft_plain(&d, s->dataset);
    if (s->samples)
        hr__draft_print(&d, "%s%s samples", d.length ? ", " : "",
                        hr__format_fixed(samples, (double)s->samples, 0, true));
    if (!isnan(hr__dataset_bytes(s)))
        hr__draft_print(&d, ", %s", hr__format_bytes(bytes, hr__dataset_bytes(s)));
    if (!isnan(hr__mean_bytes(s)))
        hr__draft_print(&d, ", %s each", hr__format_bytes(mean, hr__mean_bytes(s)));
    if (*s->filesystem)
        hr__draft_print(&d, ", on %s", s->filesystem);
    add_pair(t, "dataset", d.text);
    t->failed |= d.failed;
    hr__draft_clear(&d);
}

static void add_costs(struct hr__table *t, const struct hr_stalls *s)
{
    char time[HR__FORMAT_BYTES];
    if (!isnan(s->prepare_cpu_s)) {
        hr__table_cell(t, "CPU of preparation");
        hr__table_cell_print(t, "%s a sample", hr__format_time(time, s->prepare_cpu_s));
    }
    if (!isnan(s->training_cpu_s)) {
        hr__table_cell(t, "CPU of training");
        hr__table_cell_print(t, "%s a batch, by the training process",
                             hr__format_time(time, s->training_cpu_s));
    }
    if (s->rank_count == 1 && !isnan(s->ranks[0].first_batch_s)) {
        hr__table_cell(t, "first batch");
        hr__table_cell_print(t, "%s after the loader was started",
                             hr__format_time(time, s->ranks[0].first_batch_s));
    }
}

static void add_hosts(struct hr__table *t, const struct hr_stalls *s)
{
    char memory[HR__FORMAT_BYTES], available[HR__FORMAT_BYTES];
    for (int h = 0; h < s->host_count && h < LIST_AT_MOST; h++) {
        const struct hr__host_record *host = &s->hosts[h];
        struct hr__draft d = {.text = NULL};
        if (s->host_count > 1)
            hr__draft_print(&d, "%s: ", host->name);
        hr__draft_print(&d, "%d %s", host->cores, plural(host->cores, "core", "cores"));
        if (*host->cpu)
            hr__draft_print(&d, " of %s", host->cpu);
        if (*host->device)
            hr__draft_print(&d, ", %s", host->device);
        if (host->memory_bytes)
            hr__draft_print(&d, ", %s of memory", hr__format_bytes(memory, host->memory_bytes));
        if (host->available_bytes)
            hr__draft_print(&d, ", %s of them free for files",
                            hr__format_bytes(available, host->available_bytes));
        add_pair(t, "machine", d.text);
        t->failed |= d.failed;
        hr__draft_clear(&d);
    }
    if (s->host_count > LIST_AT_MOST) {
        hr__table_cell(t, "machines");
        hr__table_cell_print(t, "... %d more", s->host_count - LIST_AT_MOST);
    }
}

/* Adds segments, rounds and seconds of the first rank, and why the run ended. */
static void add_extent(struct hr__table *t, const struct hr_stalls *s)
{
    static const struct {
        const char *ended, *text;
    } ends[] = {
        {"precise", "until the intervals were narrow enough"},
        {"limit", "until a limit was reached"},
        {"script", "until the script ended"},
        {"interrupted", "until it was interrupted"},
    };
    const struct hr__rank_record *rank = s->rank_count ? &s->ranks[0] : NULL;
    char time[HR__FORMAT_BYTES];
    const char *why = "";
    double seconds = 0;
    uint64_t batches = 0;
    for (size_t i = 0; rank && i < rank->segment_count; i++) {
        const struct hr__segment_record *g = &rank->segments[i];
        seconds = fmax(seconds, g->begin_s + g->elapsed_s);
        batches += g->batches;
    }
    for (size_t i = 0; s->ended && i < sizeof ends / sizeof *ends; i++)
        if (!strcmp(s->ended, ends[i].ended))
            why = ends[i].text;
    if (!batches)
        return;
    hr__table_cell(t, "measured");
    hr__table_cell_print(t, "%" PRIu64 " batches in %zu segments, %s, %s", batches,
                         rank->segment_count, hr__format_time(time, seconds), why);
}

static void fill_run(struct hr__table *t, const struct hr_stalls *s)
{
    char training[256];
    add_pair(t, "command", s->command);
    add_pair(t, "started", s->started);
    add_extent(t, s);
    if (s->world_size > 1)
        snprintf(training, sizeof training, "%d ranks, each on %s", s->world_size,
                 s->on_cpu ? "the CPU" : "a GPU");
    else
        snprintf(training, sizeof training, "on %s",
                 s->on_cpu             ? "the CPU"
                 : *s->training_device ? s->training_device
                                       : "the GPU");
    if (s->on_cpu && s->training_threads > 0)
        snprintf(training + strlen(training), sizeof training - strlen(training), ", %d %s",
                 s->training_threads, plural(s->training_threads, "thread", "threads"));
    if (s->rank_count < s->world_size)
        snprintf(training + strlen(training), sizeof training - strlen(training),
                 "; only %d of them are in this result", s->rank_count);
    add_pair(t, "training", training);
    add_loader(t, s);
    add_dataset(t, s);
    add_costs(t, s);
    add_hosts(t, s);
}

/* ---- lists ---- */

static void fill_unverified(struct hr__table *t, const struct hr_stalls *s)
{
    for (int p = 0; p < HR_STALLS_PHASES; p++) {
        if (!*s->phase_reason[p])
            continue;
        hr__table_cell(t, hr_stalls_phase_title((enum hr_stalls_phase)p));
        hr__table_cell(t, s->phase_reason[p]);
    }
    if (s->host_count && *s->hosts[0].no_forms) {
        hr__table_cell(t, "Headrace's loader");
        hr__table_cell(t, s->hosts[0].no_forms);
    }
    struct hr_stalls_prediction now = {.size = sizeof now};
    struct hr_error error = {0};
    if (s->host_count && hr_stalls_predict(s, NULL, &now, &error)) {
        hr__table_cell(t, "predictions");
        hr__table_cell(t, error.message);
    }
}

static void fill_list(struct hr__table *t, char *const *texts, size_t count, size_t at_most)
{
    for (size_t i = 0; i < count && i < at_most; i++)
        hr__table_cell(t, texts[i]);
    if (count > at_most)
        hr__table_cell_print(t, "... %zu more; stalls.json lists all", count - at_most);
}

static void fill_segments(struct hr__table *t, const struct hr_stalls *s)
{
    static const char *const verified[] = {"", "no", "yes"};
    const struct hr__rank_record *rank = s->rank_count ? &s->ranks[0] : NULL;
    for (size_t i = 0; rank && i < rank->segment_count; i++) {
        const struct hr__segment_record *g = &rank->segments[i];
        hr__table_cell_print(t, "%zu: %s", i + 1, hr_stalls_phase_name(g->phase));
        hr__table_cell_print(t, "%" PRIu64, g->batches);
        cell_value(t, g->batches ? g->elapsed_s / (double)g->batches : NAN, hr__format_time);
        cell_value(t, g->read_bytes, hr__format_bytes);
        cell_value(t, g->expected_bytes, hr__format_bytes);
        cell_value(t, g->others, hr__format_share);
        hr__table_cell(t, verified[g->verified + 1]);
    }
}

static const struct {
    const char *title;
    const char *columns[HR__TABLE_COLUMNS];
} heads[HR__TABLES] = {
    [HR__TABLE_COLD] = {"An epoch from storage", {">share", ">95 % interval", ">of a batch", NULL}},
    [HR__TABLE_WARM] = {"An epoch from memory", {">share", ">95 % interval", ">of a batch", NULL}},
    [HR__TABLE_CHANGES] = {"What would change it",
                           {">samples/s", ">95 % interval", ">waits", NULL}},
    [HR__TABLE_RATES] = {"Rates", {">samples/s", ">95 % interval", NULL}},
    [HR__TABLE_PREPARE] = {"The loader alone",
                           {">samples/s", ">of a core", ">CPU of a sample", NULL}},
    [HR__TABLE_STORAGE] = {"Storage", {">bytes", ">files/s", ">samples/s", NULL}},
    [HR__TABLE_FORMS] = {"Headrace's loader, by form",
                         {">CPU of a sample", ">samples/s of a core", ">memory", NULL}},
    [HR__TABLE_RANKS] = {"Rank",
                         {">waits", ">95 % interval", ">costs a batch", ">first batch", NULL}},
    [HR__TABLE_RUN] = {"The run", {"", NULL}},
    [HR__TABLE_UNVERIFIED] = {"Not measured, or not verified", {"", NULL}},
    [HR__TABLE_NOTES] = {"Notes", {NULL}},
    [HR__TABLE_WRITTEN] = {"Files that the script would have left", {NULL}},
    [HR__TABLE_SEGMENTS] = {"Segment",
                            {">batches", ">a batch", ">read", ">of its files", ">others",
                             "verified"}},
};

void hr__tables_make(struct hr__table tables[HR__TABLES], const struct hr_stalls *s)
{
    for (int i = 0; i < HR__TABLES; i++)
        hr__table_begin(&tables[i], heads[i].title, heads[i].columns);
    tables[HR__TABLE_RUN].flexible = 1;
    tables[HR__TABLE_UNVERIFIED].flexible = 1;
    if (hr__is_at_urls(s)) {
        tables[HR__TABLE_COLD].title = "An epoch over the network";
        tables[HR__TABLE_STORAGE].title = "The store";
    }
    if (s->network)
        tables[HR__TABLE_WARM].title = "An epoch over the network";
    else if (s->reads_no_files)
        tables[HR__TABLE_WARM].title = "An epoch";
    fill_shares(&tables[HR__TABLE_COLD], s, HR_STALLS_COLD);
    fill_shares(&tables[HR__TABLE_WARM], s, HR_STALLS_WARM);
    fill_changes(&tables[HR__TABLE_CHANGES], s);
    fill_rates(&tables[HR__TABLE_RATES], s);
    fill_prepare(&tables[HR__TABLE_PREPARE], s);
    fill_storage(&tables[HR__TABLE_STORAGE], s);
    fill_forms(&tables[HR__TABLE_FORMS], s);
    fill_ranks(&tables[HR__TABLE_RANKS], s);
    fill_run(&tables[HR__TABLE_RUN], s);
    fill_unverified(&tables[HR__TABLE_UNVERIFIED], s);
    fill_list(&tables[HR__TABLE_NOTES], s->notes, s->note_count, SIZE_MAX);
    fill_list(&tables[HR__TABLE_WRITTEN], s->files_written, s->file_count, LIST_AT_MOST);
    fill_segments(&tables[HR__TABLE_SEGMENTS], s);
}

void hr__tables_clear(struct hr__table tables[HR__TABLES])
{
    for (int i = 0; i < HR__TABLES; i++)
        hr__table_clear(&tables[i]);
}

bool hr__tables_failed(const struct hr__table tables[HR__TABLES])
{
    bool failed = false;
    for (int i = 0; i < HR__TABLES; i++)
        failed |= tables[i].failed;
    return failed;
}
