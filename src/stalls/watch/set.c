/*
 * Index sets, and the evidence that cold segments were cold and warm ones warm.
 *
 * A set is a piece of one seeded shuffle of the dataset, so that each segment reads samples as an
 * epoch does. Its files are evicted from the page cache, one by one, before a cold segment. They
 * are held in memory from a warm segment on, until the next set or eviction. If samples are in
 * containers (packs, tar files), the container is evicted as a whole, and only the set's samples
 * are read again.
 *
 * The evidence is the kernel's count of bytes read from storage by this process, from the push of
 * a segment's batches to the arrival of the last one. What the loader finds in its own cache need
 * not be read.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/machine.h"
#include "base/memory.h"
#include "dataset/dataset.h"
#include "loader/sample.h"
#include "stalls/watch/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    struct hr__memory_limits capacity;
    hr__memory_limits_read(&capacity, "", -1);
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

/* Returns the bytes of all files, or pieces, that hold the set's samples. */
static double file_bytes(const struct hr_stalls_watch *w)
{
    double sum = 0;
    for (size_t i = 0; i < w->set.unique_count; i++) {
        int64_t bytes = hr__watch_sample_bytes(w, (uint64_t)w->set.unique[i]);
        sum += bytes < 0 ? 0 : (double)bytes;
    }
    return sum;
}

static void take_residency(struct hr_stalls_evidence *e, const struct hr_storage_residency *r)
{
    e->bytes = (double)r->bytes;
    e->resident_bytes = (double)r->resident_bytes;
    e->in_memory = r->in_memory;
    e->network = r->network;
    snprintf(e->filesystem, sizeof e->filesystem, "%s", r->filesystem);
}

void hr__watch_prove(struct hr_stalls_watch *w)
{
    struct hr_stalls_evidence *e = &w->now.proof;
    if (e->phase == HR_STALLS_WARM || e->phase == HR_STALLS_COLD) {
        e->read_bytes = hr__watch_read_bytes() - w->whole_read_bytes;
        e->expected_bytes = e->phase == HR_STALLS_COLD ? w->whole_expected_bytes : file_bytes(w);
    }
    if (e->phase == HR_STALLS_COLD)
        take_residency(e, &w->residency);
    (void)!hr_stalls_judge(e, NULL);
}

void hr__watch_give_reason(struct hr_stalls_watch *w, enum hr_stalls_phase phase,
                           const char *format, ...)
{
    if (w->phase_reason[phase][0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(w->phase_reason[phase], sizeof w->phase_reason[phase], format, arguments);
    va_end(arguments);
}

/* Excludes a phase. */
static void leave_out(struct hr_stalls_watch *w, enum hr_stalls_phase phase, const char *reason)
{
    w->phases &= ~(1 << phase);
    hr__watch_give_reason(w, phase, "%.255s", reason);
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
    hr__watch_give_reason(
        w, HR_STALLS_DEVICE, "%s",
        w->options.synchronize
            ? "a loop in C is replayed from the host's memory only: copies to the device are "
              "part of its steps"
            : "the loop trains on the CPU: there is no copy to a device");
    snprintf(w->filesystem, sizeof w->filesystem, "%s", found.filesystem);
    if (r)
        leave_out(w, HR_STALLS_COLD, why.message);
    struct hr_stalls_evidence e;
    hr_stalls_evidence_default(&e);
    e.phase = HR_STALLS_COLD;
    take_residency(&e, &found);
    if (!r && e.in_memory && !hr_stalls_judge(&e, NULL))
        leave_out(w, HR_STALLS_COLD, e.reason);
    if (w->loader->options.direct_io)
        leave_out(w, HR_STALLS_WARM,
                  "the loader reads around the page cache (direct_io): its data are never in "
                  "memory");
    if (w->set.containers)
        hr__watch_note(w, "the samples lie in containers, which are dropped from memory whole: "
                          "other programs that read them fetch them again");
    return 0;
}
