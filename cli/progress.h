/*
 * Progress on a terminal, and Ctrl-C. Both reach long calls of the library
 * through the same callback.
 */
#ifndef HR_CLI_PROGRESS_H
#define HR_CLI_PROGRESS_H

#include <headrace/dataset.h>

#include <stdint.h>
#include <time.h>

struct cli_progress {
    int shown;             /* non-zero: draws on stderr */
    int drawn;             /* non-zero: a line is there now */
    const char *stage;     /* being shown */
    struct timespec since; /* when the stage began */
    uint64_t first;        /* what was done then: by an earlier run */
    uint64_t first_bytes;  /* bytes of that */
    /* bytes of the first `done` items, for the rate in MB/s; NULL: none is shown */
    uint64_t (*bytes)(void *arg, uint64_t done);
    void *bytes_arg;
};

/* Catches Ctrl-C from here on; draws only on a terminal and where `quiet` is 0. */
void cli_progress_init(struct cli_progress *progress, int quiet);

/* The callback; arg is a struct cli_progress. Non-zero after Ctrl-C. */
int cli_progress_call(void *arg, uint64_t done, uint64_t total, const char *stage);

/* Removes the line. */
void cli_progress_clear(struct cli_progress *progress);

/* Non-zero once Ctrl-C was pressed. */
int cli_interrupted(void);

#endif
