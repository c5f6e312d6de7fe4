/*
 * What a process runs under: what the agent got from whoever started it, and cannot give back.
 *
 * Starting one undoes what can be undone (agent/start.c). A control group, a filter of system
 * calls, and often a lower priority stay, and hold for every job that it serves: so statuses say
 * them, and a job that has less of them is warned.
 */
#ifndef HR_AGENT_SERVER_SURROUNDINGS_H
#define HR_AGENT_SERVER_SURROUNDINGS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hr__surroundings {
    int nice;
    int cores;       /* that it may run on; 0: not known */
    int filters;     /* of system calls (seccomp) */
    char group[256]; /* the control group that its memory is charged to; "": not known */
    /* Of the process itself only: the least memory limit of its groups, and the file that says
     * so. UINT64_MAX: none, or not known. */
    uint64_t memory_limit;
    char memory_file[300];
};

/* Of a process; 0: of this one. What cannot be read stays 0, or unknown. Reads small files of
 * /proc and /sys. */
void hr__surroundings_read(struct hr__surroundings *out, pid_t pid);

/* Writes what an agent runs under that a job does not: "" where there is nothing. Pure. */
void hr__surroundings_differ(const struct hr__surroundings *agent,
                             const struct hr__surroundings *job, char *out, size_t capacity);

#endif
