/*
 * Before the first batch all ranks compare what the plan follows from.
 *
 * Each rank keeps a record on every server that answers: a random number of this run of it,
 * its host, its inputs as named texts, and the random numbers that it has seen of the others.
 * A record counts as the others' present one only where it names this rank's own number: what
 * an earlier run left behind never does, so no clock is needed. Who has seen all ranks and
 * finds their inputs equal goes on; where they differ all stop, with an error that names the
 * input, the ranks, their hosts and both values.
 */
#ifndef HR_CACHE_MEETING_H
#define HR_CACHE_MEETING_H

#include "cache/peers.h"

#include <stdatomic.h>

/* A run's name, the same on all its ranks, from the environment of torchrun
 * (TORCHELASTIC_RUN_ID, MASTER_ADDR, MASTER_PORT), Slurm, Open MPI or PMIx; HEADRACE_JOB
 * before all of them. */
void hr__meeting_job(char *out, size_t room);

struct hr__meeting_input {
    const char *name;   /* as in a sentence: "the seed" */
    const char *value;  /* as in one too, short; equal where they are equal */
    const char *remedy; /* what to do where it differs; NULL: make them equal */
};

struct hr__meeting_wish {
    const char *job; /* and what tells apart meetings of one job */
    int rank, world_size;
    int host; /* of this rank, in the list; -1: in none */
    const struct hr__meeting_input *inputs;
    int input_count;
    uint32_t limit_s; /* until all are there */
    atomic_int *stop; /* looked at all the time: non-zero ends it with -ECANCELED */
};

/* What the meeting found. */
struct hr__meeting_found {
    int *host_of_rank; /* world_size; hr__free's */
};

/*
 * Blocks until all have met, `limit_s` at most; tells the log after some seconds for whom it
 * waits. A world of one only looks for servers that answer. On success *found is filled.
 * Errors: -EINVAL: inputs differ; -ETIMEDOUT names the ranks that did not come, and the
 * servers that do not answer; -ECANCELED; -ENOMEM.
 */
int hr__meeting_run(struct hr__peers *peers, const struct hr__hosts *hosts,
                    const struct hr__meeting_wish *wish, struct hr__meeting_found *found,
                    struct hr_error *error);

#endif
