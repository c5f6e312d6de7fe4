/*
 * Reads the load of the machine: what the kernel counted for all processes on the cores that this
 * one may use (/proc/stat), for the processes of a run (schedstat of each thread), and for a CPU
 * quota (cpu.stat of the cgroups). What is missing or malformed there counts as unknown.
 */
#include "base/clock.h"
#include "base/machine.h"
#include "base/versioned.h"

#include <headrace/stalls.h>

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Generations of processes below the run's topmost one. */
#define MOST_DEEP 64

/* Adds up the lines of the cores that this process may use. */
static void read_cores(struct hr_stalls_load *load)
{
    char line[512];
    size_t bytes = 0;
    double tick_s = 1.0 / (double)sysconf(_SC_CLK_TCK);
    cpu_set_t *cores = hr__cores_affinity(&bytes);
    FILE *file = fopen("/proc/stat", "re");
    bool found = false;
    double busy = 0, steal = 0;
    load->cores = cores ? CPU_COUNT_S(bytes, cores) : hr_cores();
    while (file && cores && fgets(line, sizeof line, file)) {
        unsigned core;
        unsigned long long t[8]; /* user nice system idle iowait irq softirq steal */
        if (strncmp(line, "cpu", 3))
            break;
        if (sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu %llu", &core, &t[0], &t[1],
                   &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) != 9 ||
            core >= 8 * bytes || !CPU_ISSET_S(core, bytes, cores))
            continue;
        found = true;
        busy += (double)(t[0] + t[1] + t[2] + t[5] + t[6]) * tick_s;
        steal += (double)t[7] * tick_s;
    }
    if (file)
        fclose(file);
    CPU_FREE(cores);
    load->busy_s = found ? busy : NAN;
    load->steal_s = found ? steal : NAN;
}

/* Adds a thread's time on cores, if `counts_cpu`, and the time that it waited for one. */
static bool add_thread(struct hr_stalls_load *load, const char *folder, bool counts_cpu)
{
    char path[160];
    unsigned long long on_cores_ns, waited_ns;
    snprintf(path, sizeof path, "%s/schedstat", folder);
    FILE *file = fopen(path, "re");
    bool found = file && fscanf(file, "%llu %llu", &on_cores_ns, &waited_ns) == 2;
    if (file)
        fclose(file);
    if (!found)
        return false;
    load->run_s += counts_cpu ? (double)on_cores_ns * 1e-9 : 0;
    load->run_delay_s += (double)waited_ns * 1e-9;
    return true;
}

/* Adds a process and those below it. False if the kernel counts nothing for its threads. */
static bool add_process(struct hr_stalls_load *load, int pid, int depth)
{
    char path[64], folder[128];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    int fd = depth < MOST_DEEP ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *tasks = fd < 0 ? NULL : fdopendir(fd);
    bool found = false;
    const struct dirent *entry;
    while (tasks && (entry = readdir(tasks))) {
        long id = strtol(entry->d_name, NULL, 10);
        int child;
        if (id <= 0)
            continue;
        snprintf(folder, sizeof folder, "%s/%ld", path, id);
        found |= add_thread(load, folder, pid != getpid());
        snprintf(folder, sizeof folder, "%s/%ld/children", path, id);
        FILE *children = fopen(folder, "re");
        while (children && fscanf(children, "%d", &child) == 1)
            add_process(load, child, depth + 1);
        if (children)
            fclose(children);
    }
    if (tasks)
        closedir(tasks);
    else if (fd >= 0)
        close(fd);
    return found;
}

/* Raises *most to the time that a cgroup's quota took. */
static void take_throttled(void *most, const char *folder, int version)
{
    char path[4300], name[64];
    double *most_s = most;
    unsigned long long value;
    snprintf(path, sizeof path, "%s/cpu.stat", folder);
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%63s %llu", name, &value) == 2) {
        if (!strcmp(name, version == 1 ? "throttled_time" : "throttled_usec"))
            *most_s = fmax(*most_s, (double)value * (version == 1 ? 1e-9 : 1e-6));
    }
    if (file)
        fclose(file);
}

/* This process's own time includes threads that have ended; that of children, those that it has
 * waited for. */
static double own_s(void)
{
    struct timespec t = {0};
    struct rusage children = {0};
    (void)!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    (void)!getrusage(RUSAGE_CHILDREN, &children);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9 + (double)children.ru_utime.tv_sec +
           (double)children.ru_stime.tv_sec +
           (double)(children.ru_utime.tv_usec + children.ru_stime.tv_usec) * 1e-6;
}

void hr_stalls_load_read(struct hr_stalls_load *load, int root)
{
    struct hr_stalls_load now = {.size = sizeof now, .throttled_s = NAN};
    read_cores(&now);
    now.run_s = own_s();
    if (!add_process(&now, root, 0))
        now.run_delay_s = NAN;
    hr__groups_visit("", "cpu", take_throttled, &now.throttled_s);
    now.at_s = (double)hr__now_ns() * 1e-9;
    hr__versioned_give(load, &now, sizeof now);
}
