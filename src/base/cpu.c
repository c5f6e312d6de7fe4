/* CPU affinity, cgroup quota and CPU features. */
#include "base/cpu.h"

#include <headrace/prepare.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__)
/* clang recognises F16C by name only from version 19 on. */
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static enum hr__isa detect(void)
{
    enum hr__isa best = HR__ISA_PORTABLE;
#if defined(__aarch64__)
    best = HR__ISA_NEON;
#elif defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
        __builtin_cpu_supports("bmi2") && has_f16c())
        best = HR__ISA_AVX2;
    if (best == HR__ISA_AVX2 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vnni"))
        best = HR__ISA_AVX512;
#endif
    const char *wish = getenv("HEADRACE_ISA");
    if (wish && !strcmp(wish, "portable"))
        best = HR__ISA_PORTABLE;
    else if (wish && !strcmp(wish, "avx2") && best > HR__ISA_AVX2)
        best = HR__ISA_AVX2;
    return best;
}

static enum hr__isa chosen;

static void choose(void)
{
    chosen = detect();
}

enum hr__isa hr__isa(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}

const char *hr_isa_name(void)
{
#if defined(__aarch64__)
    static const char *const names[] = {"portable", "neon"};
#else
    static const char *const names[] = {"portable", "avx2", "avx512"};
#endif
    return names[hr__isa()];
}

/* Returns the set of cores this process may run on and its size in bytes, or NULL if unknown. Free
 * it with CPU_FREE. */
static cpu_set_t *affinity(size_t *bytes)
{
    /* CPU_SETSIZE (1024) is too small for the largest machines, so grow the set until it fits. */
    for (int cpus = 1024; cpus <= 1 << 18; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set)
            break;
        *bytes = CPU_ALLOC_SIZE((size_t)cpus);
        CPU_ZERO_S(*bytes, set);
        if (!sched_getaffinity(0, *bytes, set))
            return set;
        CPU_FREE(set);
    }
    return NULL;
}

static int affinity_count(void)
{
    size_t bytes;
    cpu_set_t *set = affinity(&bytes);
    int count = set ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0)
        return count;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* Reads up to two integers from a small file; "max" reads as -1. Returns how many it read. */
static int read_two(const char *path, long long v[2])
{
    char a[32], b[32];
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    int n = fscanf(f, "%31s %31s", a, b);
    fclose(f);
    if (n >= 1)
        v[0] = strcmp(a, "max") ? atoll(a) : -1;
    if (n >= 2)
        v[1] = atoll(b);
    return n;
}

/* Converts a cgroup quota and period to cores, rounded up. 0: no limit. */
static int quota_cores(long long quota, long long period)
{
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

/*
 * Finds the lowest quota between this process's cgroup and the root. Containers usually mount the
 * cgroup's own files at the root, so this tries both the path from /proc/self/cgroup and the bare
 * mount.
 */
static int cgroup_cores(void)
{
    int tightest = 0;
    char line[4096];
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *controllers++ = 0;
        *path++ = 0;
        int v2 = !*controllers;
        int v1 = strstr(controllers, "cpu") && !strstr(controllers, "cpuset");
        if (!v1 && !v2)
            continue;
        for (;;) {
            char file[4200];
            long long v[2] = {-1, -1};
            int cores = 0;
            if (v2) {
                snprintf(file, sizeof file, "/sys/fs/cgroup%s/cpu.max", path);
                if (read_two(file, v) == 2)
                    cores = quota_cores(v[0], v[1]);
            } else {
                long long period[2] = {-1, -1};
                snprintf(file, sizeof file, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", path);
                read_two(file, v);
                snprintf(file, sizeof file, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", path);
                read_two(file, period);
                cores = quota_cores(v[0], period[0]);
            }
            if (cores && (!tightest || cores < tightest))
                tightest = cores;
            char *slash = strrchr(path, '/');
            if (!slash)
                break;
            *slash = 0;
        }
    }
    if (f)
        fclose(f);
    return tightest;
}

int hr_cores(void)
{
    return hr__cpu_count();
}

int hr__cpu_count(void)
{
    int cores = affinity_count();
    int quota = cgroup_cores();
    return quota && quota < cores ? quota : cores;
}
