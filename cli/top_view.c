/*
 * Formats the lines of headrace top: the agent first, then each stream with its queues, and for
 * each queue where its time goes and which jobs read it; then the loaders of processes. Everything
 * is formatted as one text, then cut into lines. A title begins with a mark, which is removed.
 */
#include "top_view.h"

#include "text.h"
#include "top_rates.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK '\1' /* does not occur in printable text */

static const char *string(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text && *text ? text : otherwise;
}

/* Prints untrusted text in at most `columns` columns, without padding. */
static void put_text(FILE *out, const char *text, size_t columns)
{
    char *escaped = text_escape(text);
    if (escaped)
        text_put_cell(out, escaped,
                      text_columns(escaped) < columns ? text_columns(escaped) : columns);
    free(escaped);
}

static void put_cell(FILE *out, const char *text, size_t columns)
{
    char *escaped = text_escape(text);
    if (escaped)
        text_put_cell(out, escaped, columns);
    free(escaped);
}

/* Writes "1,234"; "-" if unknown; small numbers with decimals. */
static const char *counted(char buffer[TEXT_NUMBER], double value)
{
    if (!(value >= 0 && value < 1e18))
        return "-";
    if (value > 0 && value < 9.95) {
        snprintf(buffer, TEXT_NUMBER, "%.1f", value);
        return buffer;
    }
    return text_count(buffer, (uint64_t)llround(value));
}

/* Writes a whole number. */
static const char *whole(char buffer[TEXT_NUMBER], double value)
{
    return value >= 0 && value < 1e18 ? text_count(buffer, (uint64_t)value) : "-";
}

static const char *bytes(char buffer[TEXT_NUMBER], double value)
{
    return value >= 0 && value < 1e18 ? text_bytes(buffer, (uint64_t)value) : "-";
}

static const char *percent(char buffer[TEXT_NUMBER], double share)
{
    if (!isfinite(share))
        return "-";
    snprintf(buffer, TEXT_NUMBER, "%.0f %%", fmin(share, 1) * 100);
    return buffer;
}

static const char *megabytes(char buffer[TEXT_NUMBER], double per_second)
{
    if (!(per_second >= 0))
        return "-";
    snprintf(buffer, TEXT_NUMBER, "%.1f", per_second / 1e6);
    return buffer;
}

/* Writes "850 us", "1.07 ms", "2.5 s". */
static const char *duration(char buffer[TEXT_NUMBER], double seconds)
{
    if (!(seconds >= 0 && seconds < 1e9))
        snprintf(buffer, TEXT_NUMBER, "-");
    else if (seconds < 0.9995e-3)
        snprintf(buffer, TEXT_NUMBER, "%.0f us", seconds * 1e6);
    else if (seconds < 0.9995)
        snprintf(buffer, TEXT_NUMBER, "%.*f ms", seconds < 0.00995 ? 2 : 0, seconds * 1e3);
    else
        snprintf(buffer, TEXT_NUMBER, "%.1f s", seconds);
    return buffer;
}

/* Writes "0:42", "1:02:03". */
static const char *clock_time(char buffer[TEXT_NUMBER], double seconds)
{
    uint64_t s = seconds >= 0 && seconds < 1e12 ? (uint64_t)seconds : 0;
    if (s < 3600)
        snprintf(buffer, TEXT_NUMBER, "%d:%02d", (int)(s / 60), (int)(s % 60));
    else
        snprintf(buffer, TEXT_NUMBER, "%llu:%02d:%02d", (unsigned long long)(s / 3600),
                 (int)(s / 60 % 60), (int)(s % 60));
    return buffer;
}

static const char *plural(double count)
{
    return count == 1 ? "" : "s";
}

static void put_bar(FILE *out, double share, size_t columns)
{
    size_t full = isfinite(share) ? (size_t)lround(fmin(fmax(share, 0), 1) * (double)columns) : 0;
    fputc('[', out);
    for (size_t i = 0; i < columns; i++)
        fputc(i < full ? '#' : '-', out);
    fputc(']', out);
}

/* ---- the agent ---- */

static double memory_of(const json_t *status)
{
    double sum = 0;
    size_t i, k;
    json_t *stream, *queue;
    json_array_foreach(json_object_get(status, "streams"), i, stream)
    {
        json_array_foreach(json_object_get(stream, "queues"), k, queue)
        {
            double m = top_number(queue, "memory_bytes");
            sum += isfinite(m) ? m : 0;
        }
    }
    return sum;
}

/* Prints the restrictions that the agent inherited from the process that started it. */
static void put_surroundings(FILE *out, const json_t *under, size_t columns)
{
    char a[TEXT_NUMBER];
    double nice = top_number(under, "nice"), limit = top_number(under, "memory_limit_bytes");
    int filtered = top_number(under, "seccomp_filters") > 0;
    if (!(nice > 0) && !isfinite(limit) && !filtered)
        return;
    fputs("runs under:", out);
    if (nice > 0)
        fprintf(out, "   nice %.0f", nice);
    if (filtered)
        fputs("   a filter of system calls", out);
    if (isfinite(limit)) {
        fprintf(out, "   %s of memory, ", bytes(a, limit));
        put_text(out, string(under, "memory_limit_file", "?"), columns / 2);
    }
    fputc('\n', out);
}

static void put_head(FILE *out, const json_t *status, size_t columns)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER];
    double threads = top_number(status, "threads"), jobs = top_number(status, "jobs");
    double cores = top_number(status, "cpu_cores");
    double expelled = top_number(status, "expelled"), refused = top_number(status, "refused");
    fprintf(out, "%cheadrace agent   process %.0f   up %s   %s thread%s   %s job%s\n", MARK,
            top_number(status, "pid"), clock_time(a, top_number(status, "uptime_s")),
            whole(b, threads), plural(threads), whole(c, jobs), plural(jobs));
    fprintf(out, "%s samples/s   ", counted(a, top_number(status, "samples_per_s")));
    if (isfinite(cores))
        fprintf(out, "CPU %.2f cores   ", cores);
    fprintf(out, "%s MB/s from storage   %s shared\n",
            megabytes(a, top_number(status, "read_bytes_per_s")), bytes(b, memory_of(status)));
    if (json_is_string(json_object_get(status, "cache"))) {
        fputs("cache ", out);
        put_text(out, string(status, "cache", ""), columns - 6);
        fputc('\n', out);
    }
    put_surroundings(out, json_object_get(status, "runs_under"), columns);
    if (expelled > 0 || refused > 0)
        fprintf(out, "so far: jobs left behind by the others %s, requests refused %s\n",
                whole(a, expelled), whole(b, refused));
}

/* ---- a queue ---- */

static void put_queue_title(FILE *out, size_t bar)
{
    fprintf(out, "  %-7s%6s%7s%12s  %-*s%6s%10s%7s\n", "rank", "epoch", "done", "samples/s",
            (int)bar + 2, "ready ahead", "", "read MB/s", "hits");
}

static void put_queue(FILE *out, const json_t *queue, size_t bar)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER], d[TEXT_NUMBER], e[TEXT_NUMBER];
    char rank[TEXT_NUMBER];
    double world = top_number(queue, "world_size");
    double ready = top_number(queue, "ready_samples") / top_number(queue, "window_samples");
    snprintf(rank, sizeof rank, "%.0f/%.0f", top_number(queue, "rank"), world);
    fprintf(out, "  %-7s%6s%7s%12s  ", rank, whole(a, top_number(queue, "epoch")),
            percent(b, top_number(queue, "position") / top_number(queue, "epoch_samples")),
            counted(c, top_number(queue, "samples_per_s")));
    put_bar(out, ready, bar);
    fprintf(out, "%6s%10s%7s", percent(d, ready),
            megabytes(e, top_number(queue, "read_bytes_per_s")),
            percent(a, top_number(queue, "hit_share")));
    fputs(json_is_true(json_object_get(queue, "alone")) ? "  alone\n" : "\n", out);
}

/* Limits of shares. MUCH: threads are busy, the queue is full. SOME: a job waits. */
#define MUCH 0.5
#define SOME 0.05

/* Returns the largest share of time that a job of the queue waited; NaN if unknown. */
static double most_waited(const json_t *queue)
{
    double most = (double)NAN;
    size_t i;
    json_t *subscriber;
    json_array_foreach(json_object_get(queue, "subscribers"), i, subscriber)
    {
        most = fmax(most, top_number(subscriber, "wait_share")); /* fmax ignores NaN */
    }
    return most;
}

/* Returns a text on what slows the queue down; NULL if the interval does not show it. */
static const char *slow_side(const json_t *queue, double threads)
{
    const char *reason = string(queue, "waits_for", "");
    double ready = top_number(queue, "ready_samples") / top_number(queue, "window_samples");
    if (!strcmp(reason, "room"))
        return ready >= MUCH ? "the jobs are the slow side: the queue is full"
                             : "preparation waits for the jobs that are behind, or hold batches";
    if (!strcmp(reason, "sampler"))
        return "the job is the slow side: all that its sampler gave is ready";
    if (!(most_waited(queue) > SOME))
        return NULL;
    if (!strcmp(reason, "fetch"))
        return "storage is the slow side: threads wait for bytes";
    if (strcmp(reason, "prepare") != 0)
        return NULL;
    return top_number(queue, "busy_threads") / threads >= MUCH
               ? "preparation is the slow side: the threads are busy"
               : "jobs wait, and the threads are not busy: other work may have the cores";
}

static void put_where(FILE *out, const json_t *queue, double threads)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER];
    const char *slow = slow_side(queue, threads);
    double budget = top_number(queue, "cache_budget_bytes"),
           cached = top_number(queue, "cache_bytes");
    double bad = top_number(queue, "bad_samples"), leased = top_number(queue, "leased_bytes");
    if (isfinite(top_number(queue, "prepare_per_sample_s")))
        fprintf(out, "    a sample: fetch %s, prepare %s   threads busy with it: %s\n",
                duration(a, top_number(queue, "fetch_per_sample_s")),
                duration(b, top_number(queue, "prepare_per_sample_s")),
                percent(c, top_number(queue, "busy_threads") / threads));
    if (slow)
        fprintf(out, "    %s\n", slow);
    if (budget > 0) {
        fputs("    cache ", out);
        put_bar(out, cached / budget, 20);
        fprintf(out, " %s of %s\n", bytes(a, cached), bytes(b, budget));
    }
    if (leased > 0)
        fprintf(out, "    %s leased to jobs that hold old batches\n", bytes(a, leased));
    if (bad > 0)
        fprintf(out, "    %s bad sample%s so far\n", whole(a, bad), plural(bad));
}

/* ---- its subscribers ---- */

static void put_subscriber_title(FILE *out, size_t program)
{
    fprintf(out, "    %8s  %-*s%7s%11s%7s%9s%6s\n", "process", (int)program, "program", "batch",
            "samples/s", "waits", "behind", "held");
}

static void put_subscriber(FILE *out, const json_t *queue, const json_t *s, size_t program)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER], d[TEXT_NUMBER], e[TEXT_NUMBER];
    double behind = top_number(s, "behind_samples");
    fprintf(out, "    %8.0f  ", top_number(s, "pid"));
    put_cell(out, string(s, "program", "?"), program);
    fprintf(out, "%7s%11s%7s%9s%6s", whole(a, top_number(s, "batch_samples")),
            counted(b, top_number(s, "samples_per_s")), percent(c, top_number(s, "wait_share")),
            whole(d, behind), whole(e, top_number(s, "held")));
    /* Less than half of the window is left before the others go on without it. */
    if (behind * 2 > top_number(queue, "window_samples"))
        fputs("  lags", out);
    fputc('\n', out);
}

static void put_stream(FILE *out, const json_t *stream, double threads, size_t columns)
{
    char a[TEXT_NUMBER];
    size_t i, k, bar = columns < 80 ? 10 : columns - 80 > 30 ? 40 : columns - 70;
    size_t program = columns < 80 ? 8 : columns - 80 > 40 ? 58 : columns - 62;
    json_t *queue, *subscriber;
    const char *name = string(stream, "name", NULL);
    fprintf(out, "\n%c", MARK);
    if (name) {
        fputs("stream ", out);
        put_text(out, name, columns / 3);
    } else {
        fputs("a job's own stream", out);
    }
    fputs("   ", out);
    put_text(out, string(stream, "dataset", "?"), columns / 3);
    fprintf(out, "   %s samples\n", whole(a, top_number(stream, "samples")));
    json_array_foreach(json_object_get(stream, "queues"), i, queue)
    {
        const json_t *subscribers = json_object_get(queue, "subscribers");
        put_queue_title(out, bar);
        put_queue(out, queue, bar);
        put_where(out, queue, threads);
        if (json_array_size(subscribers))
            put_subscriber_title(out, program);
        json_array_foreach(subscribers, k, subscriber)
        {
            put_subscriber(out, queue, subscriber, program);
        }
    }
}

/* ---- jobs without a queue ---- */

static void put_waiting(FILE *out, const json_t *w, size_t columns)
{
    static const char *const says[][2] = {
        {"dataset", "its dataset is being opened"},
        {"epoch", "for the next epoch of the others"},
        {"start", "for its first samples"},
    };
    char a[TEXT_NUMBER];
    const char *reason = string(w, "waits_for", ""), *stream = string(w, "stream", NULL);
    fprintf(out, "    %8.0f%9s  ", top_number(w, "pid"), clock_time(a, top_number(w, "wait_s")));
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (!strcmp(reason, says[i][0]))
            fputs(says[i][1], out);
    if (stream) {
        fputs(", stream ", out);
        put_text(out, stream, columns / 3);
    }
    fputs("   ", out);
    put_text(out, string(w, "program", "?"), columns / 3);
    fputc('\n', out);
}

static void put_waiting_jobs(FILE *out, const json_t *waiting, size_t columns)
{
    size_t i;
    json_t *job;
    if (!json_array_size(waiting))
        return;
    fprintf(out, "\n%cjobs that wait\n     process     for  what\n", MARK);
    json_array_foreach(waiting, i, job)
    {
        put_waiting(out, job, columns);
    }
}

/* ---- loaders of this user's processes ---- */

/* Returns whether Python's code makes the samples. */
static int is_python(const json_t *loader)
{
    return !strcmp(string(loader, "prepared_by", ""), "python");
}

/* Returns a text on what slows the loader down; NULL if the interval does not show it. */
static const char *slow_side_of(const json_t *loader)
{
    const char *reason = string(loader, "waits_for", "");
    if (!strcmp(reason, "room"))
        return "training is the slow side: batches are ready";
    if (!strcmp(reason, "sampler"))
        return "training is the slow side: all that its sampler gave is ready";
    if (!(top_number(loader, "wait_share") > SOME))
        return NULL;
    if (!strcmp(reason, "fetch"))
        return "storage is the slow side: threads wait for bytes";
    if (strcmp(reason, "prepare") != 0)
        return NULL;
    if (is_python(loader))
        return "Python's code is the slow side: explain() of the loader shows its cost";
    return top_number(loader, "busy_threads") / top_number(loader, "threads") >= MUCH
               ? "preparation is the slow side: the threads are busy"
               : "training waits, and the threads are not busy: other work may have the cores";
}

static void put_cost(FILE *out, const json_t *loader)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER], d[TEXT_NUMBER];
    double threads = top_number(loader, "threads");
    const char *busy = percent(d, top_number(loader, "busy_threads") / threads);
    duration(b, top_number(loader, "prepare_per_sample_s"));
    if (!is_python(loader) && threads > 0)
        fprintf(out, "    a sample: fetch %s, prepare %s   %s thread%s, busy with it: %s\n",
                duration(a, top_number(loader, "fetch_per_sample_s")), b, whole(c, threads),
                plural(threads), busy);
    else if (is_python(loader) && threads > 0)
        fprintf(out, "    a sample: %s in Python   %s process%s, busy with it: %s\n", b,
                whole(c, threads), threads == 1 ? "" : "es", busy);
    else if (is_python(loader))
        fprintf(out, "    a sample: %s in Python, in the training process\n", b);
}

static void put_loader(FILE *out, const json_t *loader, size_t columns)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER], d[TEXT_NUMBER], e[TEXT_NUMBER];
    char f[TEXT_NUMBER], g[TEXT_NUMBER];
    double bad = top_number(loader, "bad_samples"), cached = top_number(loader, "cache_bytes");
    const char *slow = slow_side_of(loader);
    int is_running = json_is_true(json_object_get(loader, "running"));
    fprintf(out, "\n%cprocess %.0f   ", MARK, top_number(loader, "pid"));
    put_text(out, string(loader, "program", "?"), columns / 3);
    fputs("   ", out);
    put_text(out, string(loader, "dataset", "?"), columns / 3);
    fprintf(out, "\n  %4s%8s%7s%11s%7s%8s%10s%7s\n", "rank", "epoch", "done", "samples/s", "ready",
            "waits", "read MB/s", "hits");
    fprintf(out, "  %4s%8s%7s%11s%7s%8s%10s", whole(a, top_number(loader, "rank")),
            whole(b, top_number(loader, "epoch")),
            percent(c, top_number(loader, "position") / top_number(loader, "epoch_samples")),
            counted(d, top_number(loader, "samples_per_s")),
            whole(e, top_number(loader, "ready_batches")),
            percent(f, top_number(loader, "wait_share")),
            megabytes(g, top_number(loader, "read_bytes_per_s")));
    fprintf(out, "%7s", percent(a, top_number(loader, "hit_share")));
    fputs(is_running ? "\n" : "  between epochs\n", out);
    if (isfinite(top_number(loader, "prepare_per_sample_s")))
        put_cost(out, loader);
    if (!strcmp(string(loader, "prepared_by", ""), "agent"))
        fputs("    its agent prepares the batches\n", out);
    else if (slow && is_running)
        fprintf(out, "    %s\n", slow);
    if (cached > 0)
        fprintf(out, "    %s cached\n", bytes(a, cached));
    if (top_number(loader, "object_requests") > 0)
        fprintf(out, "    %.0f requests for objects, about $%.4f\n",
                top_number(loader, "object_requests"), top_number(loader, "object_cost_usd"));
    if (bad > 0)
        fprintf(out, "    %s bad sample%s so far\n", whole(a, bad), plural(bad));
}

/* ---- lines ---- */

/* Cuts `text` to `columns`, in place. */
static void cut(char *text, size_t columns)
{
    size_t kept = 0;
    for (; *text; text++) {
        if (((unsigned char)*text & 0xC0) != 0x80 && kept++ == columns) {
            *text = 0;
            return;
        }
    }
}

static int split(struct top_view *view, size_t columns)
{
    size_t count = 0;
    for (const char *p = view->memory; *p; p++)
        count += *p == '\n';
    view->lines = calloc(count + 1, sizeof *view->lines);
    if (!view->lines)
        return -1;
    char *rest = view->memory, *line;
    while (view->count < count && (line = strsep(&rest, "\n"))) {
        struct top_line *l = &view->lines[view->count++];
        l->is_title = *line == MARK;
        l->text = line + l->is_title;
        cut(line + l->is_title, columns);
    }
    return 0;
}

static void put_agent(FILE *out, const json_t *status, size_t columns)
{
    size_t i;
    json_t *stream;
    const json_t *waiting = json_object_get(status, "waiting");
    put_head(out, status, columns);
    json_array_foreach(json_object_get(status, "streams"), i, stream)
    {
        put_stream(out, stream, top_number(status, "threads"), columns);
    }
    put_waiting_jobs(out, waiting, columns);
    if (!json_array_size(json_object_get(status, "streams")) && !json_array_size(waiting))
        fputs("\nNo job is attached.\n", out);
}

int top_view_make(struct top_view *out, const json_t *status, size_t columns)
{
    size_t length, i;
    json_t *loader;
    const json_t *loaders = json_object_get(status, "loaders");
    memset(out, 0, sizeof *out);
    FILE *draft = open_memstream(&out->memory, &length);
    if (!draft)
        return -1;
    if (columns < 60)
        columns = 60;
    if (json_object_get(status, "pid"))
        put_agent(draft, status, columns);
    else
        fprintf(draft, "%cheadrace   no agent   %zu loader%s\n", MARK, json_array_size(loaders),
                plural((double)json_array_size(loaders)));
    json_array_foreach(loaders, i, loader)
    {
        put_loader(draft, loader, columns);
    }
    int bad = ferror(draft);
    bad |= fclose(draft);
    if (bad || split(out, columns)) {
        top_view_clear(out);
        return -1;
    }
    return 0;
}

void top_view_clear(struct top_view *view)
{
    free(view->lines);
    free(view->memory);
    memset(view, 0, sizeof *view);
}
