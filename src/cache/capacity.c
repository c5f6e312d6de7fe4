/* Reads and checks the limits on memory; see capacity.h. */
#include "cache/capacity.h"

#include "base/error.h"
#include "base/files.h"
#include "cache/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define UNKNOWN UINT64_MAX

/* Returns the number of the line "NAME NUMBER"; `none` if there is no such line. */
static uint64_t number_of(const char *text, const char *prefix, const char *name, uint64_t none)
{
    size_t before = strlen(prefix), length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, prefix, before) && !strncmp(line + before, name, length) &&
            line[before + length] == ' ')
            return strtoull(line + before + length, NULL, 10);
    }
    return none;
}

uint64_t hr__capacity_meminfo(const char *text)
{
    uint64_t kib = number_of(text, "", "MemAvailable:", UNKNOWN);
    return kib == UNKNOWN ? UNKNOWN : kib * 1024;
}

uint64_t hr__capacity_reclaimable(const char *text, const char *prefix)
{
    return number_of(text, prefix, "inactive_file", 0) +
           number_of(text, prefix, "active_file", 0) / 2;
}

/* Returns non-zero if `word` is one of the comma-separated words of [list, list + length). */
static int has_word(const char *list, size_t length, const char *word)
{
    size_t size = strlen(word);
    for (const char *at = list, *end = list + length; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t n = (size_t)((comma ? comma : end) - at);
        if (n == size && !memcmp(at, word, n))
            return 1;
        at += n + 1;
    }
    return 0;
}

/* The lines are NUMBER:CONTROLLERS:PATH; version 2 has number 0 and no controllers. */
int hr__capacity_group_path(const char *text, const char *controller, char *out, size_t capacity)
{
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        const char *names = memchr(line, ':', length);
        const char *path =
            names ? memchr(names + 1, ':', length - (size_t)(names + 1 - line)) : NULL;
        if (path) {
            size_t names_length = (size_t)(path - names - 1);
            size_t path_length = length - (size_t)(path + 1 - line);
            int found = controller ? has_word(names + 1, names_length, controller)
                                   : !names_length && *line == '0';
            if (found && path_length < capacity) {
                memcpy(out, path + 1, path_length);
                out[path_length] = 0;
                return 1;
            }
        }
        line += length + (line[length] == '\n');
    }
    return 0;
}

uint64_t hr__capacity_limit(const char *text)
{
    if (*text < '0' || *text > '9')
        return UNKNOWN;
    return strtoull(text, NULL, 10);
}

/* The files of a cgroup version. */
struct group_files {
    const char *mount, *limit, *usage, *prefix;
};

/* Reads a file of a cgroup's directory. Returns 0 if it does not exist. */
static int read_group_file(const char *folder, const char *name, char *out, size_t capacity)
{
    char path[400];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           hr__read_text(path, out, capacity) > 0;
}

/* Reads the limit of one cgroup and the memory it has left. */
static void read_group(struct hr__capacity *out, const struct group_files *files,
                       const char *folder)
{
    char text[8192];
    if (!read_group_file(folder, files->limit, text, 64))
        return;
    uint64_t limit = hr__capacity_limit(text), used = 0;
    if (limit < out->group_limit) {
        out->group_limit = limit;
        snprintf(out->group_file, sizeof out->group_file, "%.250s/%.40s", folder, files->limit);
    }
    /* Version 1 expresses "no limit" as a number larger than any machine's memory. */
    if (limit > HR__SIZE_END || !read_group_file(folder, files->usage, text, 64))
        return;
    used = hr__capacity_limit(text);
    uint64_t reclaimable = read_group_file(folder, "memory.stat", text, sizeof text)
                               ? hr__capacity_reclaimable(text, files->prefix)
                               : 0;
    used = used > reclaimable ? used - reclaimable : 0;
    uint64_t left = limit > used ? limit - used : 0;
    if (left < out->group_left) {
        out->group_left = left;
        out->left_limit = limit;
        snprintf(out->left_file, sizeof out->left_file, "%.250s/%.40s", folder, files->limit);
    }
}

/* Reads a cgroup and all above it, and keeps the lowest values. Containers differ in which of them
 * are visible; one that is not visible counts as no limit. */
static void read_groups(struct hr__capacity *out, const struct group_files *files, char *path)
{
    char folder[251];
    /* "/.." is above what this process may see. */
    if (strstr(path, "/.."))
        *path = 0;
    for (;;) {
        size_t length = strlen(path);
        while (length && path[length - 1] == '/')
            path[--length] = 0;
        if (snprintf(folder, sizeof folder, "%s%s", files->mount, path) < (int)sizeof folder)
            read_group(out, files, folder);
        char *slash = strrchr(path, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

void hr__capacity_read(struct hr__capacity *out, int directory)
{
    char text[8192], path[256];
    struct statvfs files;
    *out = (struct hr__capacity){.files_free = UNKNOWN,
                                 .files_total = UNKNOWN,
                                 .available = UNKNOWN,
                                 .total = UNKNOWN,
                                 .group_limit = UNKNOWN,
                                 .group_left = UNKNOWN};
    /* A tmpfs without a size limit reports no blocks. */
    if (directory >= 0 && !fstatvfs(directory, &files) && files.f_blocks) {
        out->files_free = (uint64_t)files.f_bavail * files.f_frsize;
        out->files_total = (uint64_t)files.f_blocks * files.f_frsize;
    }
    if (hr__read_text("/proc/meminfo", text, sizeof text) > 0) {
        uint64_t kib = number_of(text, "", "MemTotal:", UNKNOWN);
        out->available = hr__capacity_meminfo(text);
        out->total = kib == UNKNOWN ? UNKNOWN : kib * 1024;
    }
    if (hr__read_text("/proc/self/cgroup", text, sizeof text) <= 0)
        return;
    static const struct group_files versions[] = {
        {"/sys/fs/cgroup", "memory.max", "memory.current", ""},
        {"/sys/fs/cgroup/unified", "memory.max", "memory.current", ""},
        {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"},
    };
    for (int i = 0; i < 3; i++)
        if (hr__capacity_group_path(text, i < 2 ? NULL : "memory", path, sizeof path))
            read_groups(out, &versions[i], path);
}

/* Formats "23.5 GiB" or "512 MiB", rounded down so that the user can use it as a size. */
static const char *text_of(char out[32], uint64_t bytes)
{
    if (bytes >= UINT64_C(10) << 30)
        snprintf(out, 32, "%.1f GiB",
                 (double)(bytes / (UINT64_C(1) << 30) * 10 +
                          bytes % (UINT64_C(1) << 30) * 10 / (1 << 30)) /
                     10);
    else if (bytes >= UINT64_C(10) << 20)
        snprintf(out, 32, "%llu MiB", (unsigned long long)(bytes >> 20));
    else
        snprintf(out, 32, "%llu KiB", (unsigned long long)(bytes >> 10));
    return out;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UNKNOWN - b ? UNKNOWN : a + b;
}

int hr__capacity_check(const struct hr__capacity *c, const struct hr__capacity_wish *wish,
                       struct hr_error *error)
{
    char budget[32], takes[32], there[32], total[32];
    text_of(budget, wish->budget);
    text_of(takes, wish->bytes);
    unsigned long long gib = (unsigned long long)((wish->bytes + (UINT64_C(1) << 30)) >> 30);
    if (wish->bytes > plus(c->files_free, wish->freed_bytes))
        return hr__fail(
            error, -ENOSPC,
            "a cache of %s, which takes up to %s of shared memory, does not fit into the file "
            "system of %s: %s of its %s are free; enlarge it (mount -o remount,size=%lluG "
            "/dev/shm; Docker: --shm-size=%llug; Kubernetes: an emptyDir of medium Memory at "
            "/dev/shm), or write a smaller size",
            budget, takes, wish->place, text_of(there, plus(c->files_free, wish->freed_bytes)),
            text_of(total, c->files_total), gib, gib);
    if (wish->bytes > c->group_limit)
        return hr__fail(
            error, -ENOSPC,
            "a cache of %s, which takes up to %s of memory, is more than this process's "
            "control group may use: %s says %s; raise that limit (Docker: --memory; "
            "Kubernetes: resources.limits.memory; Slurm: --mem), or write a smaller "
            "size",
            budget, takes, c->group_file, text_of(there, c->group_limit));
    if (wish->bytes > plus(c->available, wish->freed_bytes))
        return hr__fail(error, -ENOSPC,
                        "a cache of %s, which takes up to %s of memory, is more than this machine "
                        "has available: %s; end what else uses memory, drop other caches (headrace "
                        "cache list), or write a smaller size",
                        budget, takes, text_of(there, plus(c->available, wish->freed_bytes)));
    return 0;
}

/* Returns how much of `total` bytes a cache leaves for everything else. */
static uint64_t reserve_of(uint64_t total)
{
    const uint64_t least = UINT64_C(32) << 20, most = UINT64_C(1) << 30;
    uint64_t share = total / 128;
    return share < least ? least : share > most ? most : share;
}

int hr__capacity_grants(const struct hr__capacity *c, uint64_t bytes, char why[HR__CAPACITY_WHY])
{
    char there[32], kept[32];
    uint64_t reserve = reserve_of(c->left_limit);
    if (bytes > c->files_free) {
        snprintf(
            why, HR__CAPACITY_WHY,
            "%s are free in the file system of shared memory; enlarge it, or drop other caches",
            text_of(there, c->files_free));
        return 0;
    }
    if (c->group_left != UNKNOWN && plus(bytes, reserve) > c->group_left) {
        snprintf(why, HR__CAPACITY_WHY,
                 "the control group has %s left, of which %s are kept for the job itself; raise "
                 "%.250s (Docker: --memory; Kubernetes: resources.limits.memory; Slurm: --mem)",
                 text_of(there, c->group_left), text_of(kept, reserve), c->left_file);
        return 0;
    }
    reserve = c->total == UNKNOWN ? 0 : reserve_of(c->total);
    if (c->available != UNKNOWN && plus(bytes, reserve) > c->available) {
        snprintf(why, HR__CAPACITY_WHY,
                 "the machine has %s available, of which %s are kept for the job itself; end what "
                 "else uses memory, or drop other caches (headrace cache list)",
                 text_of(there, c->available), text_of(kept, reserve));
        return 0;
    }
    return 1;
}

int hr__capacity_allows(int directory, uint64_t bytes, char why[HR__CAPACITY_WHY])
{
    struct hr__capacity c;
    hr__capacity_read(&c, directory);
    return hr__capacity_grants(&c, bytes, why);
}
