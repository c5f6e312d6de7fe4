/* A bar of one line on stderr, redrawn in place; a flag set by SIGINT. */
#include "progress.h"

#include "text.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_COLUMNS 30

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    interrupted = 1;
}

void cli_progress_init(struct cli_progress *progress, int quiet)
{
    /* the second Ctrl-C does what it always does */
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    memset(progress, 0, sizeof *progress);
    progress->shown = !quiet && isatty(STDERR_FILENO);
}

int cli_interrupted(void)
{
    return interrupted;
}

static double seconds_since(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begin->tv_sec) + (double)(now.tv_nsec - begin->tv_nsec) * 1e-9;
}

/* ", 1:05 left" once that can be told; else "". */
static void time_left(char *out, size_t capacity, double share, double seconds)
{
    *out = 0;
    if (share <= 0.01 || share >= 1 || seconds < 1)
        return;
    long left = (long)(seconds * (1 - share) / share + 0.5);
    snprintf(out, capacity, "  %ld:%02ld left", left / 60, left % 60);
}

static void draw(const struct cli_progress *p, uint64_t done, uint64_t total)
{
    char bar[BAR_COLUMNS + 1], count[TEXT_NUMBER], left[40];
    if (!total) {
        fprintf(stderr, "\r%-10s %s\033[K", p->stage, text_count(count, done));
        return;
    }
    double share = done < total ? (double)done / (double)total : 1;
    int full = (int)(share * BAR_COLUMNS);
    memset(bar, '-', BAR_COLUMNS);
    memset(bar, '#', (size_t)full);
    bar[BAR_COLUMNS] = 0;
    time_left(left, sizeof left, share, seconds_since(&p->since));
    fprintf(stderr, "\r%-10s [%s] %3d %%  %s%s\033[K", p->stage, bar, (int)(share * 100),
            text_count(count, done), left);
}

int cli_progress_call(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    struct cli_progress *p = arg;
    if (p->shown) {
        if (!p->stage || strcmp(p->stage, stage)) {
            p->stage = stage;
            clock_gettime(CLOCK_MONOTONIC, &p->since);
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
