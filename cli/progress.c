/* Draws a progress bar in one line of stderr; SIGINT sets a flag. */
#include "progress.h"

#include "text.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_COLUMNS 30

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    interrupted = 1;
}

void cli_progress_init(struct cli_progress *progress, int quiet)
{
    /* SA_RESETHAND: the second Ctrl-C kills the process as usual. */
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    memset(progress, 0, sizeof *progress);
    progress->shown = !quiet && isatty(STDERR_FILENO);
}

int cli_interrupted(void)
{
    return interrupted;
}

double cli_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Writes "  1:05 left" once that is known; else "". `now`: the share done by this run. */
static void time_left(char *out, size_t capacity, double now, double left, double seconds)
{
    *out = 0;
    if (now <= 0.01 || left <= 0 || seconds < 1)
        return;
    long rest = (long)(seconds * left / now + 0.5);
    snprintf(out, capacity, "  %ld:%02ld left", rest / 60, rest % 60);
}

/* Writes "  812/s, 71.5 MB/s" for stages with bytes, once that is known; else "". */
static void rates(const struct cli_progress *p, uint64_t done, uint64_t total, double seconds,
                  char *out, size_t capacity)
{
    *out = 0;
    if (!p->bytes || done == p->first || seconds <= 0 || (seconds < 0.5 && done < total))
        return;
    double bytes = (double)(p->bytes(p->bytes_arg, done) - p->first_bytes);
    snprintf(out, capacity, "  %.0f/s, %.1f MB/s", (double)(done - p->first) / seconds,
             bytes / seconds / 1e6);
}

static void draw(const struct cli_progress *p, uint64_t done, uint64_t total)
{
    char bar[BAR_COLUMNS + 1], count[TEXT_NUMBER], rate[60], left[40];
    if (!total) {
        fprintf(stderr, "\r%-10s %s\033[K", p->stage, text_count(count, done));
        return;
    }
    double share = done < total ? (double)done / (double)total : 1;
    double seconds = cli_now() - p->since;
    int columns = p->bytes ? BAR_COLUMNS / 3 : BAR_COLUMNS; /* the rates need the room */
    int full = (int)(share * columns);
    memset(bar, '-', (size_t)columns);
    memset(bar, '#', (size_t)full);
    bar[columns] = 0;
    time_left(left, sizeof left, share - (double)p->first / (double)total, 1 - share, seconds);
    rates(p, done, total, seconds, rate, sizeof rate);
    fprintf(stderr, "\r%-10s [%s] %3d %%  %s%s%s\033[K", p->stage, bar, (int)(share * 100),
            text_count(count, done), rate, left);
}

int cli_progress_call(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    struct cli_progress *p = arg;
    if (p->shown) {
        if (!p->stage || strcmp(p->stage, stage)) {
            p->stage = stage;
            p->first = done;
            p->first_bytes = p->bytes ? p->bytes(p->bytes_arg, done) : 0;
            p->since = cli_now();
        }
        draw(p, done, total);
        fflush(stderr);
        p->drawn = 1;
    }
    return interrupted;
}

void cli_progress_clear(struct cli_progress *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    progress->drawn = 0;
}
