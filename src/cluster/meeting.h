/*
 * The meeting: before the first batch, all ranks check that they have the same inputs for the plan.
 *
 * Each rank keeps a short record on every server that answers: a random number of this run, its
 * host, a digest of its inputs and, once it has seen a record of every rank, a digest of all their
 * random numbers. If a record has the same digest of numbers as mine, its writer has seen my
 * number. Records left by an earlier run never have, so no clock is needed, and a record is short
 * however many ranks there are. A rank that sees the same digest of numbers in all records compares
 * the digests of inputs. If they are equal, all ranks go on. If not, all stop with an error that
 * names the input, the ranks, their hosts and the values.
 *
 * A rank that is already in its next meeting of the same name repeats in its new record what it
 * agreed to before, so that slower ranks can finish theirs. Ranks rewrite their records every two
 * seconds, so that servers that come up later get them too.
 */
#ifndef HR_CLUSTER_MEETING_H
#define HR_CLUSTER_MEETING_H

#include "cluster/peers.h"

#include <stdatomic.h>

#define HR__MEETING_JOB 256

/* The name of a run, the same on all its ranks. Taken from HEADRACE_JOB, else from the environment
 * of torchrun (its run id, MASTER_ADDR and MASTER_PORT), Open MPI, PMIx, Slurm, or MASTER_ADDR and
 * MASTER_PORT alone; else "default". */
void hr__meeting_job(char *out, size_t room);

struct hr__meeting_input {
    const char *name;   /* as used in a sentence: "the seed" */
    const char *value;  /* short text, also for a sentence; inputs are equal if their texts are */
    const char *remedy; /* what to do if it differs; NULL: make them equal */
};

struct hr__meeting_wish {
    const char *job; /* name of the job, plus what distinguishes its meetings */
    int rank, world_size;
    int host; /* index of this rank's host in the list; -1: not in it */
    const struct hr__meeting_input *inputs;
    int input_count;  /* at most HR__MEETING_INPUTS */
    uint32_t limit_s; /* how long to wait for all ranks */
    atomic_int *stop; /* polled; non-zero ends the meeting with -ECANCELED; NULL: never */
};

#define HR__MEETING_INPUTS    64
#define HR__MEETING_RANKS_MAX 65536

/* The result of a meeting. */
struct hr__meeting_found {
    int *host_of_rank; /* world_size; free with hr__free */
    uint64_t number;   /* of this meeting: the same on all ranks, and random */
};

/*
 * Blocks until all ranks have met, for at most `limit_s` plus the time of one request. After some
 * seconds it logs which ranks it waits for. With a world size of one it only checks which servers
 * answer, logs those that do not, and goes on. One rank runs one meeting at a time. On success
 * *found is filled in. Errors: -EINVAL: inputs differ, two processes have the same rank, or a bad
 * wish; -ETIMEDOUT names the ranks that did not come and the servers that do not answer;
 * -ECANCELED; -ENOMEM.
 */
int hr__meeting_run(struct hr__peers *peers, const struct hr__hosts *hosts,
                    const struct hr__meeting_wish *wish, struct hr__meeting_found *found,
                    struct hr_error *error);

#endif
