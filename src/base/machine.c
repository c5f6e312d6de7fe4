/* Reads /proc and /sys: control groups, cores, memory, NUMA nodes, PCI devices; see machine.h. */
#include "base/machine.h"

#include "base/files.h"
#include "base/versioned.h"

#include <headrace/base.h>

#include <ctype.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#define UNKNOWN UINT64_MAX

/* Version 1 expresses "no limit" as a number larger than any machine's memory. */
#define LIMIT_END (UINT64_C(1) << 50)

/* No list of cores or nodes goes further. */
#define LIST_MOST (1u << 20)

#define PATH_BYTES 4400

/* Room for a list of nodes or cores; longer ones are cut, at a range's end or not. */
#define LIST_BYTES 8192

/* Reads the beginning of FOLDER/NAME. Returns 0 if it does not exist or is empty. */
static int read_in(const char *folder, const char *name, char *out, size_t capacity)
{
    char path[PATH_BYTES];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           hr__read_text(path, out, capacity) > 0;
}

/* Returns the number of the line "PREFIX NAME NUMBER"; `none` if there is no such line. */
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

/* ---- control groups ---- */

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
int hr__group_path(const char *text, const char *controller, char *out, size_t capacity)
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

/* Visits the folder of a group and all above it. */
static void visit_upwards(const char *mount, char *path, int version, hr__group_fn visit, void *arg)
{
    char folder[PATH_BYTES];
    /* "/.." is above what this process may see. */
    if (strstr(path, "/.."))
        *path = 0;
    for (;;) {
        size_t length = strlen(path);
        while (length && path[length - 1] == '/')
            path[--length] = 0;
        if (snprintf(folder, sizeof folder, "%s%s", mount, path) < (int)sizeof folder)
            visit(arg, folder, version);
        char *slash = strrchr(path, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

void hr__groups_visit(const char *root, const char *controller, hr__group_fn visit, void *arg)
{
    static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified",
                                         "/sys/fs/cgroup/"};
    char text[8192], path[2048], mount[2048];
    if (!read_in(root, "proc/self/cgroup", text, sizeof text))
        return;
    for (int i = 0; i < 3; i++) {
        int version = i < 2 ? 2 : 1;
        const char *name = version == 1 ? controller : "";
        if (hr__group_path(text, version == 1 ? controller : NULL, path, sizeof path) &&
            snprintf(mount, sizeof mount, "%s%s%s", root, mounts[i], name) < (int)sizeof mount)
            visit_upwards(mount, path, version, visit, arg);
    }
}

/* ---- cores ---- */

cpu_set_t *hr__cores_affinity(size_t *bytes)
{
    /* CPU_SETSIZE (1024) is too small for the largest machines, so grow the set until it fits. */
    for (int cores = 1024; cores <= 1 << 18; cores *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cores);
        if (!set)
            break;
        *bytes = CPU_ALLOC_SIZE((size_t)cores);
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
    cpu_set_t *set = hr__cores_affinity(&bytes);
    int count = set ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0)
        return count;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* Lowers *tightest to the quota of a group, in cores, rounded up. */
static void take_quota(void *tightest, const char *folder, int version)
{
    char text[64];
    long long quota = -1, period = -1;
    int *least = tightest;
    if (version == 2) {
        /* "QUOTA PERIOD", or "max PERIOD". */
        if (read_in(folder, "cpu.max", text, sizeof text))
            (void)!sscanf(text, "%lld %lld", &quota, &period);
    } else {
        if (read_in(folder, "cpu.cfs_quota_us", text, sizeof text))
            quota = strtoll(text, NULL, 10);
        if (read_in(folder, "cpu.cfs_period_us", text, sizeof text))
            period = strtoll(text, NULL, 10);
    }
    if (quota <= 0 || period <= 0 || quota / period >= INT32_MAX - 1)
        return;
    int cores = (int)(quota / period + (quota % period != 0));
    if (!*least || cores < *least)
        *least = cores;
}

int hr__cores_usable(const char *root)
{
    int cores = affinity_count(), quota = 0;
    hr__groups_visit(root, "cpu", take_quota, &quota);
    return quota && quota < cores ? quota : cores;
}

void hr__processor_name(const char *root, char *out, size_t capacity)
{
    /* Some ARM boards name only themselves, at the end of the file. */
    static const char *const names[] = {"model name", "Model"};
    char line[4096];
    struct utsname system;
    snprintf(line, sizeof line, "%s/proc/cpuinfo", root);
    FILE *file = fopen(line, "re");
    out[0] = 0;
    while (file && !out[0] && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        for (int i = 0; i < 2 && value && !out[0]; i++)
            if (!strncmp(line, names[i], strlen(names[i]))) {
                value += 1 + strspn(value + 1, " \t");
                value[strcspn(value, "\n")] = 0;
                snprintf(out, capacity, "%s", value);
            }
    }
    if (file)
        fclose(file);
    if (!out[0] && !uname(&system))
        snprintf(out, capacity, "%s", system.machine);
}

int hr__range_next(const char **list, unsigned *first, unsigned *last)
{
    char *end;
    if (**list < '0' || **list > '9')
        return 0;
    unsigned long from = strtoul(*list, &end, 10), to = from;
    if (*end == '-') {
        if (end[1] < '0' || end[1] > '9')
            return 0;
        to = strtoul(end + 1, &end, 10);
    }
    if (to > LIST_MOST || to < from)
        return 0;
    *first = (unsigned)from;
    *last = (unsigned)to;
    *list = end + (*end == ',');
    return 1;
}

/* ---- memory ---- */

uint64_t hr__meminfo_available(const char *text)
{
    uint64_t kib = number_of(text, "", "MemAvailable:", UNKNOWN);
    return kib == UNKNOWN ? UNKNOWN : kib * 1024;
}

uint64_t hr__group_reclaimable(const char *text, int version)
{
    const char *prefix = version == 1 ? "total_" : "";
    return number_of(text, prefix, "inactive_file", 0) +
           number_of(text, prefix, "active_file", 0) / 2;
}

/* Returns the bytes in a group's memory.stat that are no file pages. */
static uint64_t unreclaimable(const char *text, int version)
{
    if (version == 1)
        return number_of(text, "total_", "rss", 0) + number_of(text, "total_", "shmem", 0);
    return number_of(text, "", "anon", 0) + number_of(text, "", "shmem", 0) +
           number_of(text, "", "slab_unreclaimable", 0);
}

uint64_t hr__group_limit(const char *text)
{
    if (*text < '0' || *text > '9')
        return UNKNOWN;
    return strtoull(text, NULL, 10);
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Lowers the values of a struct hr__memory_limits to those of one control group. */
static void take_memory(void *memory, const char *folder, int version)
{
    struct hr__memory_limits *out = memory;
    const char *name = version == 1 ? "memory.limit_in_bytes" : "memory.max";
    const char *usage = version == 1 ? "memory.usage_in_bytes" : "memory.current";
    char text[8192];
    if (!read_in(folder, name, text, 64))
        return;
    uint64_t limit = hr__group_limit(text), used = 0;
    if (limit < out->group_limit) {
        out->group_limit = limit;
        snprintf(out->group_file, sizeof out->group_file, "%.250s/%.40s", folder, name);
    }
    if (limit > LIMIT_END)
        return;
    int is_used = read_in(folder, usage, text, 64);
    if (is_used)
        used = hr__group_limit(text);
    if (!read_in(folder, "memory.stat", text, sizeof text))
        text[0] = 0;
    uint64_t pages = less(limit, unreclaimable(text, version));
    if (pages < out->group_pages)
        out->group_pages = pages;
    uint64_t left = less(limit, less(used, hr__group_reclaimable(text, version)));
    if (is_used && left < out->group_left) {
        out->group_left = left;
        out->left_limit = limit;
        snprintf(out->left_file, sizeof out->left_file, "%.250s/%.40s", folder, name);
    }
}

void hr__memory_limits_read(struct hr__memory_limits *out, const char *root, int directory)
{
    char text[8192];
    struct statvfs files;
    *out = (struct hr__memory_limits){.files_free = UNKNOWN,
                                      .files_total = UNKNOWN,
                                      .available = UNKNOWN,
                                      .total = UNKNOWN,
                                      .group_limit = UNKNOWN,
                                      .group_left = UNKNOWN,
                                      .group_pages = UNKNOWN};
    /* A tmpfs without a size limit reports no blocks. */
    if (directory >= 0 && !fstatvfs(directory, &files) && files.f_blocks) {
        out->files_free = (uint64_t)files.f_bavail * files.f_frsize;
        out->files_total = (uint64_t)files.f_blocks * files.f_frsize;
    }
    if (read_in(root, "proc/meminfo", text, sizeof text)) {
        uint64_t kib = number_of(text, "", "MemTotal:", UNKNOWN);
        out->available = hr__meminfo_available(text);
        out->total = kib == UNKNOWN ? UNKNOWN : kib * 1024;
    }
    hr__groups_visit(root, "memory", take_memory, out);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t hr__memory_usable(const struct hr__memory_limits *memory)
{
    return smaller(memory->total, memory->group_limit);
}

uint64_t hr__memory_pages(const struct hr__memory_limits *memory)
{
    uint64_t most = smaller(memory->available, memory->group_pages);
    return smaller(most, hr__memory_usable(memory));
}

int hr__memory_generations(const char *root)
{
    char text[32];
    return read_in(root, "sys/kernel/mm/lru_gen/enabled", text, sizeof text) &&
           strtoul(text, NULL, 16) & 1;
}

/* ---- NUMA nodes and devices ---- */

/* Returns the set of a list of nodes. */
static uint64_t nodes_in(const char *list)
{
    unsigned first, last;
    uint64_t nodes = 0;
    while (hr__range_next(&list, &first, &last))
        for (unsigned node = first; node <= last && node < HR__NODES_MAX; node++)
            nodes |= UINT64_C(1) << node;
    return nodes;
}

uint64_t hr__nodes_usable(const char *root)
{
    char text[LIST_BYTES];
    if (!read_in(root, "sys/devices/system/node/has_memory", text, sizeof text) &&
        !read_in(root, "sys/devices/system/node/online", text, sizeof text))
        return 0;
    uint64_t nodes = nodes_in(text);
    const char *key = "\nMems_allowed_list:";
    const char *allowed =
        read_in(root, "proc/self/status", text, sizeof text) ? strstr(text, key) : NULL;
    if (!allowed)
        return nodes;
    allowed += strlen(key);
    return nodes & nodes_in(allowed + strspn(allowed, " \t"));
}

cpu_set_t *hr__cores_of_node(const char *root, int node, size_t *bytes)
{
    char name[80], text[LIST_BYTES];
    snprintf(name, sizeof name, "sys/devices/system/node/node%d/cpulist", node);
    if (node < 0 || !read_in(root, name, text, sizeof text))
        return NULL;
    cpu_set_t *mine = hr__cores_affinity(bytes);
    cpu_set_t *both = mine ? CPU_ALLOC(8 * *bytes) : NULL;
    const char *list = text;
    unsigned first, last;
    int count = 0;
    if (both)
        CPU_ZERO_S(*bytes, both);
    while (both && hr__range_next(&list, &first, &last))
        for (unsigned core = first; core <= last && core < 8 * *bytes; core++)
            if (CPU_ISSET_S(core, *bytes, mine) && !CPU_ISSET_S(core, *bytes, both)) {
                CPU_SET_S(core, *bytes, both);
                count++;
            }
    CPU_FREE(mine);
    if (count)
        return both;
    CPU_FREE(both);
    return NULL;
}

int hr__nodes_own(const char *root)
{
    uint64_t nodes = hr__nodes_usable(root);
    size_t bytes;
    cpu_set_t *mine = hr__cores_affinity(&bytes);
    int all = mine ? CPU_COUNT_S(bytes, mine) : 0, found = -1;
    CPU_FREE(mine);
    for (int node = 0; all && node < HR__NODES_MAX && found < 0; node++) {
        cpu_set_t *here = nodes >> node & 1 ? hr__cores_of_node(root, node, &bytes) : NULL;
        if (here && CPU_COUNT_S(bytes, here) == all)
            found = node;
        CPU_FREE(here);
    }
    return found;
}

/* Reads a number of a PCI device; -1 if it cannot be read. */
static long device_number(const char *root, const char *device, const char *name)
{
    char folder[PATH_BYTES], text[32];
    snprintf(folder, sizeof folder, "%s/sys/bus/pci/devices/%.63s", root, device);
    return read_in(folder, name, text, sizeof text) ? strtol(text, NULL, 0) : -1;
}

/* Writes the name that /sys has for a bus id. Returns 0 if it is none: nothing but hexadecimal
 * digits, colons and points becomes part of a path. */
static int device_name(const char *bus_id, char name[64])
{
    size_t length = strlen(bus_id);
    if (!length || length >= 64)
        return 0;
    for (size_t i = 0; i <= length; i++)
        name[i] = (char)tolower((unsigned char)bus_id[i]);
    return strspn(name, "0123456789abcdef:.") == length;
}

int hr__device_node(const char *root, const char *bus_id)
{
    char name[64];
    long node = device_name(bus_id, name) ? device_number(root, name, "numa_node") : -1;
    return node >= 0 && node < HR__NODES_MAX ? (int)node : -1;
}

int hr__device_peers(const char *root, const char *bus_id)
{
    char path[4096], name[64];
    int count = 0, node = hr__device_node(root, bus_id);
    if (node < 0 || !device_name(bus_id, name))
        return 0;
    long class = device_number(root, name, "class"), vendor = device_number(root, name, "vendor");
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root);
    DIR *devices = opendir(path);
    const struct dirent *entry;
    while (devices && (entry = readdir(devices)))
        count += class >= 0 && device_number(root, entry->d_name, "class") == class &&
                 device_number(root, entry->d_name, "vendor") == vendor &&
                 device_number(root, entry->d_name, "numa_node") == node;
    if (devices)
        closedir(devices);
    return count;
}

/* ---- the public view ---- */

int hr_cores(void)
{
    return hr__cores_usable("");
}

void hr_machine_get(struct hr_machine *out)
{
    struct hr__memory_limits memory;
    hr__memory_limits_read(&memory, "", -1);
    uint64_t usable = hr__memory_usable(&memory);
    uint64_t pages = hr__memory_pages(&memory);
    struct hr_machine now = {
        .cores = hr_cores(),
        .nodes = __builtin_popcountll(hr__nodes_usable("")),
        .memory_bytes = usable == UNKNOWN ? 0 : usable,
        .page_cache_bytes = pages == UNKNOWN ? 0 : pages,
        .page_generations = hr__memory_generations(""),
    };
    hr__processor_name("", now.processor, sizeof now.processor);
    hr__versioned_give(out, &now, sizeof now);
}
