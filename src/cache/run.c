/* Determines the run a process belongs to; see run.h. */
#include "cache/run.h"

#include "base/files.h"

#include <headrace/cache.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

uint64_t hr__run_started(const char *stat)
{
    /* Field 22 of proc(5). Field 2 is a name in parentheses that may contain anything. */
    const char *at = strrchr(stat, ')');
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at, ' ');
        at += at != NULL;
    }
    return at ? strtoull(at, NULL, 10) : 0;
}

int hr__run_is_valid(const char *run)
{
    size_t length = strlen(run);
    return length && length < HR_CACHE_RUN &&
           strspn(run, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") ==
               length;
}

void hr_cache_run(char out[HR_CACHE_RUN], int world_size)
{
    char path[64], text[1024], where[256] = "";
    pid_t pid = world_size > 1 ? getppid() : getpid();
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    hr__read_text(path, text, sizeof text);
    uint64_t started = hr__run_started(text);
    ssize_t n = hr__read_text("/proc/sys/kernel/random/boot_id", where, 64);
    size_t length = n < 0 ? 0 : (size_t)n;
    n = readlink("/proc/self/ns/pid", where + length, sizeof where - length);
    length += n < 0 ? 0 : (size_t)n;
    snprintf(out, HR_CACHE_RUN, "%08" PRIx32 "-%ld-%" PRIu64, (uint32_t)XXH3_64bits(where, length),
             (long)pid, started);
}
