/*
 * For fuzz targets of container files: indexes a file with the input's bytes. The index pass ends
 * with a catalog whose ranges are inside the file, or with an error and a message.
 */
#ifndef HR_TEST_FUZZ_SHARD_INDEX_H
#define HR_TEST_FUZZ_SHARD_INDEX_H

#include "dataset/shard_samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*shard_index_fn)(struct hr__catalog **out, const struct hr__shard_source *source,
                              struct hr_error *error);

/* A file of memory, for indexing. */
struct shard_input {
    int fd;
    size_t size;
    char path[32];
};

static inline struct shard_input shard_input_make(const uint8_t *data, size_t size)
{
    struct shard_input file = {.fd = memfd_create("shard", MFD_CLOEXEC), .size = size};
    if (file.fd < 0 || write(file.fd, data, size) != (ssize_t)size)
        abort();
    snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.fd);
    return file;
}

/* `names` has the names of columns or fields. least: the fewest bytes that a sample may have. */
static inline void shard_input_index(const struct shard_input *file, shard_index_fn index,
                                     struct hr__shard_source names, uint64_t least)
{
    char *path = (char *)(uintptr_t)file->path;
    struct hr__catalog *catalog;
    struct hr__progress progress;
    struct hr_error error = {0};
    names.paths = &path;
    names.count = 1;
    names.executor = &hr__executor_serial;
    names.progress = &progress;
    hr__progress_init(&progress, NULL, NULL);
    if (index(&catalog, &names, &error)) {
        if (!error.message[0])
            abort();
        return;
    }
    for (uint64_t i = 0; i < catalog->header->samples; i++) {
        uint64_t bytes = (uint64_t)catalog->sizes[i];
        if (bytes < least || bytes > file->size || catalog->ranges[i].offset > file->size - bytes)
            abort();
    }
    hr__catalog_destroy(&catalog);
}

#endif
