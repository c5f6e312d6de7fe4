/*
 * Before the first batch all ranks compare what the plan follows from.
 *
 * Each rank keeps a short record on every server that answers: a random number of this run
 * of it, its host, a digest of its inputs, and, once there is a record of every rank, a digest
 * of all their random numbers. A record whose digest of the numbers is one's own was written
 * by somebody who has seen one's own number: what an earlier run left behind never has, so no
 * clock is needed, and a record is short however many ranks there are. Who sees the same
 * digest of the numbers in all records compares the digests of the inputs: where they are
 * equal all go on, else all stop with an error that names the input, the ranks, their hosts
 * and the values.
 *
 * A rank that goes on to its next meeting of the same name tells in its record there what
 * it agreed to before, so that slower ones end theirs. Records are written again every two
 * seconds: servers that come up get them.
 */
#ifndef HR_CLUSTER_MEETING_H
#define HR_CLUSTER_MEETING_H

#include "cluster/peers.h"

#include <stdatomic.h>

#define HR__MEETING_JOB 256

/* A run's name, the same on all its ranks, from the environment of torchrun (its run id,
 * MASTER_ADDR and MASTER_PORT), Open MPI, PMIx, Slurm, or MASTER_ADDR and
 * MASTER_PORT alone; HEADRACE_JOB before all of them; "default". */
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
    int input_count;  /* at most HR__MEETING_INPUTS */
    uint32_t limit_s; /* until all are there */
    atomic_int *stop; /* looked at all the time: non-zero ends it with -ECANCELED; NULL: never */
};

#define HR__MEETING_INPUTS    64
#define HR__MEETING_RANKS_MAX 65536

/* What the meeting found. */
struct hr__meeting_found {
    int *host_of_rank; /* world_size; hr__free's */
};

/*
 * Blocks until all have met, `limit_s` and one request's time at most; tells the log after
 * some seconds for whom it waits. A world of one only looks for servers that answer, tells the
 * log of those that do not, and goes on. Meetings of one rank come one after another. On
 * success *found is filled. Errors: -EINVAL: inputs differ, two processes are the same rank, or
 * the wish; -ETIMEDOUT names the ranks that did not come, and the servers that do not answer;
 * -ECANCELED; -ENOMEM.
 */
int hr__meeting_run(struct hr__peers *peers, const struct hr__hosts *hosts,
                    const struct hr__meeting_wish *wish, struct hr__meeting_found *found,
                    struct hr_error *error);

#endif
