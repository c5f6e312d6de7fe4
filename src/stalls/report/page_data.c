/*
 * Writes the data of a page's charts; see page_data.h. page.js reads its members and draws them in
 * this order.
 */
#include "stalls/report/page_data.h"

#include "report/format.h"
#include "stalls/model/inside.h"
#include "stalls/report/tables.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define RANKS_AT_MOST   32  /* bars per chart */
#define BATCHES_AT_MOST 120 /* per segment */

/* Returns the last segment of a phase with known batches: the loader is in a steady state
 * by then. */
static const struct hr__segment_record *segment_of(const struct hr_stalls *s,
                                                   enum hr_stalls_phase phase)
{
    const struct hr__segment_record *found = NULL;
    for (size_t i = 0; s->rank_count && i < s->ranks[0].segment_count; i++) {
        const struct hr__segment_record *g = &s->ranks[0].segments[i];
        if (g->phase == phase && g->batches && g->wait_s && g->batch_s)
            found = g;
    }
    return found;
}

void hr__page_data_make(struct hr__page_data *data, const struct hr_stalls *s)
{
    data->stalls = s;
    hr__curves_cache(&data->cache, s);
    hr__curves_cores(&data->cores, s);
    data->cold = segment_of(s, HR_STALLS_COLD);
    data->warm = segment_of(s, HR_STALLS_WARM);
}

/* Returns the share of time that ranks[index] is blocked in next() in a phase; NaN: unknown. */
static double page_waiting(const struct hr_stalls *s, int index, enum hr_stalls_phase phase)
{
    const struct hr__rank_record *rank = &s->ranks[index];
    double waited = 0, all = 0;
    for (size_t i = 0; i < rank->segment_count; i++) {
        const struct hr__segment_record *g = &rank->segments[i];
        for (uint64_t b = 0; g->phase == phase && g->wait_s && g->batch_s && b < g->batches; b++) {
            waited += g->wait_s[b];
            all += g->batch_s[b];
        }
    }
    return all > 0 ? fmin(waited / all, 1) : NAN;
}

bool hr__page_data_drawn(const struct hr_stalls *s, const struct hr_interval *share, int parts)
{
    bool known = !isnan(share[0].value) && !*s->cannot_tell;
    for (int i = 0; i < parts && known; i++)
        known = isnan(share[i].value) || hr__share_is_known(share[i]);
    return known;
}

/* Returns the bytes/s of files that a host's training would use if it never waited; NaN:
 * unknown. */
static double page_needed(const struct hr_stalls *s)
{
    double hosts = s->host_count > 1 ? s->host_count : 1; /* hosts are assumed equal */
    return s->summary.device_rate.value / hosts * hr__mean_bytes(s);
}

/* ---- JSON ---- */

static void add_pairs(struct hr__draft *d, const double *values, size_t count, int decimals)
{
    hr__draft_put(d, "[");
    for (size_t i = 0; i < count; i++) {
        hr__draft_put(d, i ? "," : "");
        hr__draft_number(d, values[i], decimals);
    }
    hr__draft_put(d, "]");
}

static void add_split(struct hr__draft *d, const struct hr_stalls *s)
{
    const struct {
        const char *name;
        const struct hr_interval *share;
        int parts, phase;
    } rows[] = {{"epoch from storage", s->summary.share, 4, HR_STALLS_COLD},
                {s->network ? "epoch over the network" : "epoch from memory", s->summary.warm_share,
                 3, HR_STALLS_WARM}};
    hr__draft_print(d, "\"split\":{\"copy\":%s,\"rows\":[", s->on_cpu ? "false" : "true");
    bool comma = false;
    for (int r = 0; r < 2; r++) {
        double values[4] = {0};
        for (int i = 0; i < rows[r].parts; i++)
            values[i] = rows[r].share[i].value;
        if (!hr__page_data_drawn(s, rows[r].share, rows[r].parts))
            continue;
        bool sure = s->summary.measured[rows[r].phase] || s->network;
        hr__draft_print(d, "%s{\"name\":\"%s%s\",\"values\":", comma ? "," : "", rows[r].name,
                        sure ? "" : ", not verified");
        for (int i = 0; i < 4; i++)
            values[i] = isnan(values[i]) ? 0 : values[i];
        add_pairs(d, values, 4, 5);
        hr__draft_put(d, "}");
        comma = true;
    }
    hr__draft_put(d, "]}");
}

static void add_ranks(struct hr__draft *d, const struct hr_stalls *s)
{
    char name[128];
    hr__draft_put(d, ",\n\"ranks\":[");
    for (int i = 0; s->rank_count > 1 && i < s->rank_count && i < RANKS_AT_MOST; i++) {
        double waits[] = {page_waiting(s, i, HR_STALLS_COLD), page_waiting(s, i, HR_STALLS_WARM)};
        snprintf(name, sizeof name, "rank %d%s%s", s->ranks[i].rank, s->host_count > 1 ? ", " : "",
                 s->host_count > 1 ? s->ranks[i].host : "");
        hr__draft_put(d, i ? ",{\"name\":" : "{\"name\":");
        hr__draft_json(d, name);
        hr__draft_put(d, ",\"waits\":");
        add_pairs(d, waits, 2, 5);
        hr__draft_put(d, "}");
    }
    hr__draft_put(d, "]");
}

/* Points are [x, rate, low, high, extrapolated]. */
static void add_curves(struct hr__draft *d, const char *member, const struct hr__curves *curves)
{
    hr__draft_print(d, ",\n\"%s\":{\"curves\":[", member);
    for (int c = 0; c < curves->curve_count; c++) {
        const struct hr__curve *curve = &curves->curve[c];
        hr__draft_put(d, c ? ",\n{\"name\":" : "\n{\"name\":");
        hr__draft_json(d, curve->name);
        hr__draft_put(d, ",\"points\":[");
        for (int i = 0; i < curve->count; i++) {
            const struct hr_stalls_prediction *p = &curve->at[i];
            double point[] = {curve->x[i], p->rate, p->low, p->high, p->extrapolated != 0};
            hr__draft_put(d, i ? "," : "");
            add_pairs(d, point, 5, 3);
        }
        hr__draft_put(d, "]}");
    }
    hr__draft_put(d, "],\n\"measured\":[");
    for (int i = 0; i < curves->measured_count; i++) {
        const struct hr__measured *m = &curves->measured[i];
        double point[] = {m->x, m->rate.value, m->rate.low, m->rate.high};
        hr__draft_put(d, i ? ",{\"name\":" : "{\"name\":");
        hr__draft_json(d, m->name);
        hr__draft_put(d, ",\"point\":");
        add_pairs(d, point, 4, 3);
        hr__draft_put(d, "}");
    }
    hr__draft_put(d, "]}");
}

static void add_segment(struct hr__draft *d, const char *member, const struct hr__segment_record *g)
{
    hr__draft_print(d, ",\n\"%s\":", member);
    if (!g) {
        hr__draft_put(d, "null");
        return;
    }
    size_t count = g->batches < BATCHES_AT_MOST ? (size_t)g->batches : BATCHES_AT_MOST;
    hr__draft_put(d, "{\"wait_s\":");
    add_pairs(d, g->wait_s, count, 7);
    hr__draft_put(d, ",\"batch_s\":");
    add_pairs(d, g->batch_s, count, 7);
    hr__draft_put(d, "}");
}

static void add_storage(struct hr__draft *d, const struct hr_stalls *s)
{
    const struct hr__host_record *host = s->host_count ? &s->hosts[0] : NULL;
    hr__draft_put(d, ",\n\"storage\":{\"needed\":");
    hr__draft_number(d, page_needed(s), 0);
    hr__draft_put(d, ",\"depths\":[");
    for (size_t i = 0; host && i < host->depth_count; i++) {
        double point[] = {host->depths[i].depth, host->depths[i].bytes_per_s};
        hr__draft_put(d, i ? "," : "");
        add_pairs(d, point, 2, 0);
    }
    hr__draft_put(d, "]}");
}

void hr__page_data_json(const struct hr__page_data *data, struct hr__draft *d)
{
    const struct hr_stalls *s = data->stalls;
    hr__draft_print(d, "{\"processor\":\"%s\",\n\"device_rate\":", s->on_cpu ? "CPU" : "GPU");
    hr__draft_number(d, s->summary.device_rate.value, 3);
    hr__draft_put(d, ",\n");
    add_split(d, s);
    add_ranks(d, s);
    add_curves(d, "cache", &data->cache);
    add_curves(d, "cores", &data->cores);
    add_segment(d, "cold", data->cold);
    add_segment(d, "warm", data->warm);
    add_storage(d, s);
    hr__draft_put(d, "}");
}

/* ---- the batches as a table ---- */

static void batch_cells(struct hr__table *t, const struct hr__segment_record *g, uint64_t i)
{
    char text[HR__FORMAT_BYTES];
    bool there = g && i < g->batches;
    hr__table_cell(t, hr__format_time(text, there ? g->wait_s[i] : NAN));
    hr__table_cell(t, hr__format_time(text, there ? g->batch_s[i] - g->wait_s[i] : NAN));
}

void hr__page_data_batches(const struct hr__page_data *data, struct hr__table *t)
{
    static const char *const columns[] = {">waits, from storage", ">trains, from storage",
                                          ">waits, from memory", ">trains, from memory", NULL};
    uint64_t cold = data->cold ? data->cold->batches : 0;
    uint64_t warm = data->warm ? data->warm->batches : 0;
    uint64_t count = cold > warm ? cold : warm;
    hr__table_begin(t, "batch", columns);
    for (uint64_t i = 0; i < count && i < BATCHES_AT_MOST; i++) {
        hr__table_cell_print(t, "%d", (int)i + 1);
        batch_cells(t, data->cold, i);
        batch_cells(t, data->warm, i);
    }
}
