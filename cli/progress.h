/*
 * A progress line on the terminal, and Ctrl-C. Both use the progress callback of the library's
 * long calls.
 */
#ifndef HR_CLI_PROGRESS_H
#define HR_CLI_PROGRESS_H

#include <headrace/dataset.h>

#include <stdint.h>

struct cli_progress {
    int shown;            /* non-zero: draw on stderr */
    int drawn;            /* non-zero: a line is drawn now */
    const char *stage;    /* the stage shown */
    double since;         /* when the stage began */
    uint64_t first;       /* items done before that, by an earlier run */
    uint64_t first_bytes; /* their bytes */
    /* Returns the bytes of the first `done` items, for the rate in MB/s; NULL: show no rate. */
    uint64_t (*bytes)(void *arg, uint64_t done);
    void *bytes_arg;
};

/* Handles Ctrl-C from here on. Draws only if stderr is a terminal and `quiet` is 0. */
void cli_progress_init(struct cli_progress *progress, int quiet);

/* The progress callback; arg is a struct cli_progress. Returns non-zero after Ctrl-C. */
int cli_progress_call(void *arg, uint64_t done, uint64_t total, const char *stage);

/* Erases the line. */
void cli_progress_clear(struct cli_progress *progress);

/* Returns non-zero once Ctrl-C was pressed. */
int cli_interrupted(void);

/* Seconds of a clock that only goes forward. */
double cli_now(void);

#endif
