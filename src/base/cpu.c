/* CPU affinity, cgroup quota and CPU features. */
#include "base/cpu.h"

#include <headrace/prepare.h>

#include <pthread.h>
#include <stdbool.h>
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

cpu_set_t *hr__cpu_affinity(size_t *bytes)
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
    cpu_set_t *set = hr__cpu_affinity(&bytes);
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

void hr__cpu_groups(void (*visit)(void *arg, const char *folder), void *arg)
{
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
        bool v2 = !*controllers, v1 = strstr(controllers, "cpu") && !strstr(controllers, "cpuset");
        while ((v1 || v2) && path) {
            char folder[4200], *slash = strrchr(path, '/');
            snprintf(folder, sizeof folder, "/sys/fs/cgroup%s%s", v2 ? "" : "/cpu", path);
            visit(arg, folder);
            if (slash)
                *slash = 0;
            path = slash ? path : NULL;
        }
    }
    if (f)
        fclose(f);
}

/* Lowers *tightest to the quota of a cgroup. */
static void take_quota(void *tightest, const char *folder)
{
    char file[4300];
    long long v[2] = {-1, -1}, period[2] = {-1, -1};
    snprintf(file, sizeof file, "%s/cpu.max", folder);
    if (read_two(file, v) != 2) {
        snprintf(file, sizeof file, "%s/cpu.cfs_quota_us", folder);
        read_two(file, v);
        snprintf(file, sizeof file, "%s/cpu.cfs_period_us", folder);
        read_two(file, period);
        v[1] = period[0];
    }
    int *least = tightest, cores = quota_cores(v[0], v[1]);
    if (cores && (!*least || cores < *least))
        *least = cores;
}

int hr_cores(void)
{
    return hr__cpu_count();
}

int hr__cpu_count(void)
{
    int cores = affinity_count(), quota = 0;
    hr__cpu_groups(take_quota, &quota);
    return quota && quota < cores ? quota : cores;
}
