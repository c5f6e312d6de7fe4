/*
 * What all stages of a watched loop use: notes for the reader, marks of time and work, and the
 * batches that are still to be taken from the loader.
 */
#include "stalls/watch/inside.h"

#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOTES_MAX 64

void hr__watch_note(struct hr_stalls_watch *w, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (size_t i = 0; i < w->note_count; i++)
        if (!strcmp(w->notes[i], text))
            return;
    if (w->note_count == NOTES_MAX)
        return;
    if (!w->notes)
        w->notes = hr__alloc(HR__TAG_LOADER, NOTES_MAX, sizeof *w->notes);
    char *copy = w->notes ? hr__strdup(HR__TAG_LOADER, text) : NULL;
    if (copy)
        w->notes[w->note_count++] = copy;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t))
        return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t thread_ns(pthread_t thread)
{
    clockid_t clock;
    return pthread_getcpuclockid(thread, &clock) ? 0 : clock_ns(clock);
}

void hr__watch_mark(struct hr_stalls_watch *w, struct hr__watch_mark *mark)
{
    const struct hr_loader *l = w->loader;
    mark->worker_cpu_ns = 0;
    for (int i = 0; i < l->worker_count; i++)
        mark->worker_cpu_ns += thread_ns(l->workers[i].id);
    for (int i = 0; i < l->fetcher_count; i++)
        mark->worker_cpu_ns += thread_ns(l->fetchers[i].id);
    mark->process_cpu_ns =
        clock_ns(CLOCK_PROCESS_CPUTIME_ID) - mark->worker_cpu_ns - w->excluded_cpu_ns;
    mark->prepare_ns = HR__COUNTED(l, prepare.sum_ns);
    mark->read_bytes = hr__watch_read_bytes();
    mark->ns = hr__watch_now(w);
}

int hr__watch_take(struct hr_stalls_watch *w, struct hr_batch **batch, struct hr_error *error)
{
    int r = hr_loader_next(w->loader, batch, error);
    return r ? r
             : hr__fail(error, -EINVAL,
                        "a batch of the watch is missing: use its loader through the watch only");
}

int hr__watch_drain_batches(struct hr_stalls_watch *w, struct hr_error *error)
{
    while (w->to_drain) {
        struct hr_batch *batch;
        int r = hr__watch_take(w, &batch, error);
        if (r < 0)
            return r;
        hr_batch_release(&batch);
        w->to_drain--;
    }
    return 0;
}

double hr__watch_read_bytes(void)
{
    char text[1024];
    hr__read_text("/proc/self/io", text, sizeof text);
    const char *line = strstr(text, "\nread_bytes: ");
    return line ? strtod(line + 13, NULL) : NAN;
}
