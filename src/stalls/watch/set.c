/*
 * Index sets, and the verification that cold segments were cold and warm ones warm.
 *
 * A set is a piece of one seeded shuffle of the dataset, so that each segment reads samples as an
 * epoch does. Its files are evicted from the page cache, one by one, before a cold segment. They
 * are held in memory from a warm segment on, until the next set or eviction. If samples are in
 * containers (packs, tar files), the container is evicted as a whole, and only the set's samples
 * are read again.
 *
 * The verification uses the kernel's count of bytes read from storage by this process, from the
 * push of a segment's batches to the arrival of the last one. A cold segment must read about as
 * much as its files hold, a warm one nothing. What the loader finds in its own cache need not be
 * read.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "cache/capacity.h"
#include "dataset/dataset.h"
#include "loader/sample.h"
#include "stalls/watch/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Shares of the bytes of a segment's files: how much a cold segment must read at least, how much
 * may be resident before it, and how much a warm segment may read; besides, the bytes that programs
 * may read from their own files. */
#define COLD_SHARE     0.9
#define RESIDENT_SHARE 0.05
#define WARM_SHARE     0.05
#define BESIDE_BYTES   65536.0

/* Files to check to find where the dataset is stored. */
#define PROBED_FILES 16

void hr__watch_set_clear(struct hr__watch_set *set)
{
    hr__free(set->indices);
    hr__free(set->unique);
    hr__free(set->names);
    hr__free(set->text);
    hr_storage_release(&set->hold);
    *set = (struct hr__watch_set){.count = 0};
}

static int compare_indices(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int compare_names(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    return strcmp(x, y);
}

static size_t without_repeats(int64_t *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_indices);
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (!n || values[n - 1] != values[i])
            values[n++] = values[i];
    return n;
}

/* Lists the names of the containers, which the dataset owns. Returns 0 if samples are files. */
static int name_containers(struct hr_stalls_watch *w, struct hr__watch_set *set,
                           struct hr_error *error)
{
    struct hr__range range;
    for (size_t i = 0; i < set->unique_count; i++) {
        int r = hr__dataset_range(w->loader->dataset, (uint64_t)set->unique[i], 0, &range, error);
        if (r != 1)
            return r;
        set->names[i] = (char *)range.path;
    }
    qsort(set->names, set->unique_count, sizeof *set->names, compare_names);
    for (size_t i = 0; i < set->unique_count; i++)
        if (!set->name_count || strcmp(set->names[set->name_count - 1], set->names[i]))
            set->names[set->name_count++] = set->names[i];
    set->containers = true;
    return 1;
}

static int name_files(struct hr_stalls_watch *w, struct hr__watch_set *set)
{
    const struct hr_dataset *dataset = w->loader->dataset;
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < set->unique_count; i++)
        bytes += hr_dataset_path(dataset, (size_t)set->unique[i], NULL, 0) + 1;
    set->text = hr__alloc(HR__TAG_LOADER, bytes, 1);
    if (!set->text)
        return -ENOMEM;
    for (size_t i = 0; i < set->unique_count; i++) {
        set->names[i] = set->text + at;
        at += hr_dataset_path(dataset, (size_t)set->unique[i], set->names[i], bytes - at) + 1;
    }
    set->name_count = set->unique_count;
    return 0;
}

int hr__watch_set_make(struct hr_stalls_watch *w, uint64_t batches, uint64_t epoch,
                       struct hr_error *error)
{
    struct hr__watch_set *set = &w->set;
    size_t samples = hr_dataset_count(w->loader->dataset);
    hr__watch_set_clear(set);
    w->set_number = -1;
    set->epoch = epoch;
    set->batches = batches;
    set->count = (size_t)batches * (size_t)w->loader->options.batch_size;
    set->indices = hr__alloc(HR__TAG_LOADER, set->count, sizeof *set->indices);
    set->unique = hr__alloc(HR__TAG_LOADER, set->count, sizeof *set->unique);
    set->names = hr__alloc(HR__TAG_LOADER, set->count, sizeof *set->names);
    int r = -ENOMEM;
    if (set->indices && set->unique && set->names) {
        for (size_t i = 0; i < set->count; i++)
            set->unique[i] = set->indices[i] =
                (int64_t)hr__order_at(w->order, (w->taken + i) % samples);
        set->unique_count = without_repeats(set->unique, set->count);
        r = name_containers(w, set, error);
        if (!r)
            r = name_files(w, set);
    }
    if (r == -ENOMEM)
        hr__fail(error, r, "out of memory for a set of %zu samples", set->count);
    if (r < 0) {
        hr__watch_set_clear(set);
        return r;
    }
    w->taken += set->count;
    return 0;
}

int hr__watch_set_push(struct hr_stalls_watch *w, struct hr_error *error)
{
    size_t batch_size = (size_t)w->loader->options.batch_size;
    int r = hr_loader_start_epoch(w->loader, w->set.epoch, error);
    for (uint64_t i = 0; i < w->set.batches && !r; i++)
        r = hr_loader_push(w->loader, w->set.indices + i * batch_size, batch_size, error);
    return r;
}

int hr__watch_set_drop(struct hr_stalls_watch *w, struct hr_error *error)
{
    w->residency = (struct hr_storage_residency){.size = sizeof w->residency};
    hr_storage_release(&w->set.hold);
    return hr_storage_drop((const char *const *)w->set.names, w->set.name_count, &w->residency,
                           error);
}

/* A container may be far larger than memory, so only the set's samples are read. */
static int preread_samples(struct hr_stalls_watch *w)
{
    struct hr__sample sample = {.path_capacity = 0};
    int r = 0;
    for (size_t i = 0; i < w->set.unique_count && r != -ENOMEM; i++) {
        r = hr__sample_read(&sample, w->loader->dataset, (uint64_t)w->set.unique[i], NULL);
        if (!r)
            hr__free(sample.read.bytes);
    }
    hr__sample_clear(&sample);
    return r == -ENOMEM ? r : 0;
}

/* Returns a quarter of the available memory; under a control group's limit, most of which may be in
 * use already, an eighth of the limit. */
static uint64_t most_held(void)
{
    struct hr__capacity capacity;
    hr__capacity_read(&capacity, -1);
    uint64_t of_host = capacity.available == UINT64_MAX ? 0 : capacity.available / 4;
    uint64_t of_group = capacity.group_limit / 8;
    return of_host < of_group ? of_host : of_group;
}

int hr__watch_set_preread(struct hr_stalls_watch *w, struct hr_error *error)
{
    if (w->set.containers) {
        int r = preread_samples(w);
        return r ? hr__fail(error, r, "out of memory for reading a sample") : 0;
    }
    hr_storage_release(&w->set.hold);
    return hr_storage_hold((const char *const *)w->set.names, w->set.name_count, most_held(),
                           &w->set.hold, error);
}

int64_t hr__watch_sample_bytes(const struct hr_stalls_watch *w, uint64_t index)
{
    const struct hr_dataset *dataset = w->loader->dataset;
    int64_t bytes = hr_dataset_sample_bytes(dataset, index);
    if (bytes >= 0)
        return bytes;
    char path[4096];
    struct stat status;
    if (hr_dataset_path(dataset, index, path, sizeof path) < sizeof path && !stat(path, &status))
        bytes = status.st_size;
    return bytes;
}

double hr__watch_set_bytes(struct hr_stalls_watch *w, uint64_t from, uint64_t count)
{
    size_t batch_size = (size_t)w->loader->options.batch_size;
    struct hr__cache *cache = w->loader->cache;
    double sum = 0;
    for (size_t i = from * batch_size; i < (from + count) * batch_size; i++) {
        uint64_t index = (uint64_t)w->set.indices[i];
        w->set_samples++;
        if (cache && hr__cache_has(cache, index)) {
            w->cached_samples++;
            continue;
        }
        int64_t bytes = hr__watch_sample_bytes(w, index);
        if (bytes < 0)
            return NAN;
        sum += (double)bytes;
    }
    return sum;
}

double hr__watch_read_bytes(void)
{
    char text[1024];
    hr__read_text("/proc/self/io", text, sizeof text);
    const char *line = strstr(text, "\nread_bytes: ");
    return line ? strtod(line + 13, NULL) : NAN;
}

static void judge_cold(struct hr_stalls_watch *w, double read)
{
    struct hr__watch_segment *now = &w->now;
    const struct hr_storage_residency *left = &w->residency;
    if (left->network)
        snprintf(now->reason, sizeof now->reason,
                 "the files lie on another machine (%s), whose memory cannot be dropped",
                 left->filesystem);
    else if ((double)left->resident_bytes > RESIDENT_SHARE * (double)left->bytes + BESIDE_BYTES)
        snprintf(now->reason, sizeof now->reason,
                 "%.1f of %.1f MB stayed in memory: another program has these files mapped, or "
                 "writes to them",
                 (double)left->resident_bytes / 1e6, (double)left->bytes / 1e6);
    else if (read < COLD_SHARE * w->whole_expected_bytes)
        snprintf(now->reason, sizeof now->reason,
                 "only %.1f MB were read from storage where the files have %.1f MB: another "
                 "program read them meanwhile, or has them in memory",
                 read / 1e6, w->whole_expected_bytes / 1e6);
    else
        now->verified = 1;
}

static void judge_warm(struct hr_stalls_watch *w, double read)
{
    struct hr__watch_segment *now = &w->now;
    double files = 0;
    for (size_t i = 0; i < w->set.unique_count; i++) {
        int64_t bytes = hr__watch_sample_bytes(w, (uint64_t)w->set.unique[i]);
        files += bytes < 0 ? 0 : (double)bytes;
    }
    if (read <= WARM_SHARE * files + BESIDE_BYTES)
        now->verified = 1;
    else
        snprintf(now->reason, sizeof now->reason,
                 "%.1f MB were read from storage though the files, %.1f MB, had just been read: "
                 "too little memory for the page cache, or another program dropped them",
                 read / 1e6, files / 1e6);
}

void hr__watch_verify(struct hr_stalls_watch *w)
{
    struct hr__watch_segment *now = &w->now;
    enum hr_stalls_phase phase = now->what.phase;
    now->verified = -1;
    now->reason[0] = 0;
    if (phase != HR_STALLS_WARM && phase != HR_STALLS_COLD)
        return;
    now->verified = 0;
    double read = hr__watch_read_bytes() - w->whole_read_bytes;
    if (isnan(read))
        snprintf(now->reason, sizeof now->reason,
                 "the kernel does not tell this process what it reads from storage "
                 "(/proc/self/io)");
    else if (isnan(w->whole_expected_bytes))
        snprintf(now->reason, sizeof now->reason, "the sizes of the files could not be found out");
    else if (phase == HR_STALLS_COLD)
        judge_cold(w, read);
    else
        judge_warm(w, read);
    if (!now->verified && !w->phase_reason[phase][0])
        snprintf(w->phase_reason[phase], sizeof w->phase_reason[phase], "not verified: %s",
                 now->reason);
}

/* Excludes a phase. */
static void leave_out(struct hr_stalls_watch *w, enum hr_stalls_phase phase, const char *reason)
{
    w->phases &= ~(1 << phase);
    snprintf(w->phase_reason[phase], sizeof w->phase_reason[phase], "%.255s", reason);
}

int hr__watch_look_at_storage(struct hr_stalls_watch *w, struct hr_error *error)
{
    struct hr_storage_residency found = {.size = sizeof found};
    size_t count = w->set.name_count < PROBED_FILES ? w->set.name_count : PROBED_FILES;
    struct hr_error why = {0};
    int r = hr_storage_check((const char *const *)w->set.names, count, &found, &why);
    if (r == -ENOMEM || r == -EINTR) {
        if (error)
            *error = why;
        return r;
    }
    w->phases = 1 << HR_STALLS_HOST | 1 << HR_STALLS_WARM | 1 << HR_STALLS_COLD;
    snprintf(w->phase_reason[HR_STALLS_DEVICE], sizeof w->phase_reason[HR_STALLS_DEVICE],
             w->options.synchronize
                 ? "a loop in C is replayed from the host's memory only: copies to the device are "
                   "part of its steps"
                 : "the loop trains on the CPU: there is no copy to a device");
    snprintf(w->filesystem, sizeof w->filesystem, "%s", found.filesystem);
    if (r)
        leave_out(w, HR_STALLS_COLD, why.message);
    else if (found.in_memory)
        leave_out(w, HR_STALLS_COLD,
                  "the files lie in a file system in memory: there is no storage to fetch from");
    if (w->loader->options.direct_io)
        leave_out(w, HR_STALLS_WARM,
                  "the loader reads around the page cache (direct_io): its data are never in "
                  "memory");
    if (w->set.containers)
        hr__watch_note(w, "the samples lie in containers, which are dropped from memory whole: "
                          "other programs that read them fetch them again");
    return 0;
}
