/*
 * Writes a measuring run as a trace in Chrome's JSON ("Trace Event Format"), which Perfetto
 * (ui.perfetto.dev) and chrome://tracing open.
 *
 * Each rank is a process of the trace. Its first thread shows the segments, its second each of
 * their batches: first the time blocked in next(), then the rest. Counters show the speed of
 * training, and that of the loader alone. Drains have no time of their own in the records, so they
 * follow the last segment, one after another. Times are microseconds since the run's first segment,
 * by each rank's own clock.
 */
#include "base/error.h"
#include "report/events.h"
#include "report/format.h"
#include "stalls/report/tables.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum track { TRACK_SEGMENTS = 1, TRACK_BATCHES };

/* Begins a slice; the caller adds members of "args" and closes both. */
static void begin_slice(struct hr__events *t, int process, enum track track, double begin_s,
                        double length_s)
{
    hr__event_begin(t, "X", process, track);
    hr__event_number(t, "ts", begin_s * 1e6, 3);
    hr__event_number(t, "dur", length_s > 0 ? length_s * 1e6 : 0, 3);
}

static void add_counter(struct hr__events *t, int process, const char *name, double at_s,
                        double value)
{
    hr__event_begin(t, "C", process, -1);
    hr__event_text(t, "name", name);
    hr__event_number(t, "ts", at_s * 1e6, 3);
    hr__draft_put(&t->draft, ",\"args\":{\"samples/s\":");
    hr__draft_number(&t->draft, isfinite(value) ? value : 0, 2);
    hr__draft_put(&t->draft, "}}");
}

static void add_segment(struct hr__events *t, int process, const struct hr__segment_record *g)
{
    double rate = g->elapsed_s > 0 ? (double)g->samples / g->elapsed_s : NAN;
    begin_slice(t, process, TRACK_SEGMENTS, g->begin_s, g->elapsed_s);
    hr__event_text(t, "name", hr_stalls_phase_title(g->phase));
    hr__draft_print(&t->draft, ",\"args\":{\"phase\":\"%s\",\"round\":%d,\"set\":%d",
                    hr_stalls_phase_name(g->phase), g->round, g->set);
    if (g->phase == HR_STALLS_ALONE)
        hr__draft_print(&t->draft, ",\"loading rank\":%d", g->alone_rank);
    hr__draft_print(&t->draft, ",\"batches\":%" PRIu64, g->batches);
    hr__event_number(t, "samples/s", rate, 2);
    hr__event_number(t, "bytes read", g->read_bytes, 0);
    hr__event_number(t, "bytes of its files", g->expected_bytes, 0);
    if (g->verified >= 0)
        hr__draft_print(&t->draft, ",\"verified\":%s", g->verified ? "true" : "false");
    if (*g->reason)
        hr__event_text(t, "reason", g->reason);
    hr__draft_put(&t->draft, "}}");
    add_counter(t, process, "training", g->begin_s, rate);
    add_counter(t, process, "training", g->begin_s + g->elapsed_s, 0);
}

static void add_batches(struct hr__events *t, int process, const struct hr__segment_record *g)
{
    double at = g->begin_s;
    for (uint64_t i = 0; i < g->batches && g->wait_s && g->batch_s; i++) {
        double wait = fmin(g->wait_s[i], g->batch_s[i]);
        begin_slice(t, process, TRACK_BATCHES, at, wait);
        hr__draft_print(&t->draft, ",\"name\":\"waits\",\"args\":{\"batch\":%" PRIu64 "}}", i);
        begin_slice(t, process, TRACK_BATCHES, at + wait, g->batch_s[i] - wait);
        hr__draft_print(&t->draft, ",\"name\":\"trains\",\"args\":{\"batch\":%" PRIu64 "}}", i);
        at += g->batch_s[i];
    }
}

static void add_drains(struct hr__events *t, const struct hr__rank_record *rank, double at_s)
{
    char name[64];
    for (size_t i = 0; i < rank->drain_count; i++) {
        const struct hr__drain_record *d = &rank->drains[i];
        if (!(d->elapsed_s > 0))
            continue;
        snprintf(name, sizeof name, "loader alone, files %s, %d %s",
                 d->cold ? "on storage" : "in memory", d->cores, d->cores == 1 ? "core" : "cores");
        add_counter(t, rank->rank, name, at_s, (double)d->samples / d->elapsed_s);
        at_s += d->elapsed_s;
        add_counter(t, rank->rank, name, at_s, 0);
    }
}

static void add_rank(struct hr__events *t, const struct hr__rank_record *rank)
{
    char name[128];
    double end_s = 0;
    snprintf(name, sizeof name, "rank %d%s%s", rank->rank, *rank->host ? " on " : "", rank->host);
    hr__event_name(t, "process_name", rank->rank, 0, name);
    hr__event_begin(t, "M", rank->rank, -1);
    hr__draft_print(&t->draft, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
                    rank->rank);
    hr__event_name(t, "thread_name", rank->rank, TRACK_SEGMENTS, "segments");
    hr__event_name(t, "thread_name", rank->rank, TRACK_BATCHES, "batches");
    for (size_t i = 0; i < rank->segment_count; i++) {
        const struct hr__segment_record *g = &rank->segments[i];
        add_segment(t, rank->rank, g);
        add_batches(t, rank->rank, g);
        end_s = fmax(end_s, g->begin_s + g->elapsed_s);
    }
    add_drains(t, rank, end_s);
}

int hr_stalls_write_trace(const struct hr_stalls *result, const char *path, struct hr_error *error)
{
    struct hr__events t = {.begun = false};
    if (!result || !path)
        return hr__fail(error, -EINVAL, "a result and a path are needed to write it as a trace");
    hr__draft_put(&t.draft, "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"made by\":\"headrace ");
    hr__draft_print(&t.draft, "%s\"", hr_version());
    hr__event_text(&t, "command", result->command ? result->command : "");
    hr__event_text(&t, "started", result->started ? result->started : "");
    hr__event_text(&t, "result", result->sentence ? result->sentence : "");
    hr__draft_put(&t.draft, "},\n\"traceEvents\":[\n");
    for (int i = 0; i < result->rank_count; i++)
        add_rank(&t, &result->ranks[i]);
    hr__draft_put(&t.draft, "\n]}\n");
    int r = hr__draft_write(&t.draft, path, error);
    hr__draft_clear(&t.draft);
    return r;
}
