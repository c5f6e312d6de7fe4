/* Reads /proc/PID/stat, status and cgroup (proc(5)); see surroundings.h. */
#include "agent/server/surroundings.h"

#include "base/error.h"
#include "base/files.h"
#include "base/machine.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NICE_FIELD 19 /* in stat; the field after the program's name is number 3 */

static int read_file(const char *process, const char *name, char *out, size_t capacity)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%s/%s", process, name);
    return hr__read_text(path, out, capacity) > 0;
}

static int nice_of(const char *stat)
{
    const char *at = strrchr(stat, ')');
    for (int field = 2; at && field < NICE_FIELD; field++)
        at = strchr(at + 1, ' ');
    return at ? atoi(at + 1) : 0;
}

/* Returns the value of a line "KEY:\tVALUE" of status; "": there is none. */
static const char *value_of(const char *status, const char *key)
{
    const char *at = strstr(status, key);
    at = at ? at + strlen(key) : "";
    return at + strspn(at, "\t ");
}

/* Counts the cores of a list: "0-3,8" has five. */
static int count_list(const char *list)
{
    unsigned first, last;
    int count = 0;
    while (hr__range_next(&list, &first, &last))
        count += (int)(last - first + 1);
    return count;
}

static int filters_of(const char *status)
{
    int filters = atoi(value_of(status, "\nSeccomp_filters:"));
    /* Before Linux 5.9 only the mode is given: 2 means a filter. */
    return filters ? filters : atoi(value_of(status, "\nSeccomp:")) == 2;
}

void hr__surroundings_read(struct hr__surroundings *out, pid_t pid)
{
    char process[16] = "self", text[8192];
    *out = (struct hr__surroundings){.memory_limit = UINT64_MAX};
    if (pid)
        snprintf(process, sizeof process, "%ld", (long)pid);
    if (read_file(process, "stat", text, sizeof text))
        out->nice = nice_of(text);
    if (read_file(process, "status", text, sizeof text)) {
        out->cores = count_list(value_of(text, "\nCpus_allowed_list:"));
        out->filters = filters_of(text);
    }
    if (read_file(process, "cgroup", text, sizeof text) &&
        !hr__group_path(text, "memory", out->group, sizeof out->group))
        (void)hr__group_path(text, NULL, out->group, sizeof out->group);
    if (pid)
        return;
    struct hr__memory_limits capacity;
    hr__memory_limits_read(&capacity, "", -1);
    /* Control groups of version 1 without a limit report one beyond any machine's memory. */
    if (capacity.group_limit >= capacity.total)
        return;
    out->memory_limit = capacity.group_limit;
    memcpy(out->memory_file, capacity.group_file, sizeof out->memory_file);
}

void hr__surroundings_differ(const struct hr__surroundings *agent,
                             const struct hr__surroundings *job, char *out, size_t capacity)
{
    char part[4][400] = {""};
    size_t length = 0;
    if (agent->nice > job->nice)
        snprintf(part[0], sizeof *part, "priority nice %d (here %d)", agent->nice, job->nice);
    if (agent->cores && agent->cores < job->cores)
        snprintf(part[1], sizeof *part, "%d cores (here %d)", agent->cores, job->cores);
    if (agent->filters > job->filters)
        snprintf(part[2], sizeof *part, "a filter of system calls (seccomp)");
    if (agent->memory_limit != UINT64_MAX && *job->group && strcmp(agent->group, job->group))
        snprintf(part[3], sizeof *part, "at most %" PRIu64 " MiB of memory (control group %.120s)",
                 agent->memory_limit >> 20, agent->group);
    *out = 0;
    for (int i = 0; i < 4; i++)
        if (*part[i] && length < capacity)
            length += (size_t)snprintf(out + length, capacity - length, "%s%s", length ? ", " : "",
                                       part[i]);
}
