/*
 * The environment of a process that it inherits and cannot change.
 *
 * Starting an agent undoes what can be undone (agent/start.c). Its control group, seccomp filters
 * and often a lower priority stay, and apply to its work for all jobs. So the agent's status lists
 * them, and a job that runs under fewer restrictions gets a warning.
 */
#ifndef HR_AGENT_SERVER_SURROUNDINGS_H
#define HR_AGENT_SERVER_SURROUNDINGS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hr__surroundings {
    int nice;
    int cores;       /* that it may run on; 0: unknown */
    int filters;     /* seccomp filters */
    char group[256]; /* the control group that its memory is charged to; "": unknown */
    /* Set for this process only: the lowest memory limit of its control groups, and the file that
     * contains it. UINT64_MAX: none, or unknown. */
    uint64_t memory_limit;
    char memory_file[300];
};

/* Reads the surroundings of process `pid`; 0: of this one. What cannot be read stays 0 or unknown.
 * Reads small files of /proc and /sys. */
void hr__surroundings_read(struct hr__surroundings *out, pid_t pid);

/* Writes a text on what an agent runs under and a job does not; "": nothing. Pure. */
void hr__surroundings_differ(const struct hr__surroundings *agent,
                             const struct hr__surroundings *job, char *out, size_t capacity);

#endif
