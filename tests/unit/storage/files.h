/*
 * Files for the storage tests: a temporary directory, contents that are a function of seed and
 * offset, and the number of open descriptors.
 */
#ifndef HR_TEST_STORAGE_FILES_H
#define HR_TEST_STORAGE_FILES_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char files_root[512];

static inline uint8_t files_byte(unsigned seed, size_t offset)
{
    uint64_t x = (offset + 1) * UINT64_C(0x9E3779B97F4A7C15) + seed * UINT64_C(0xD1B54A32D192ED03);
    return (uint8_t)(x >> 40 ^ x >> 53);
}

/* In the build folder, not in /tmp, which may be a tmpfs without O_DIRECT. */
static inline int files_setup(void **state)
{
    const char *build = getenv("HEADRACE_BUILD_ROOT");
    snprintf(files_root, sizeof files_root, "%s/storage-test-XXXXXX", build ? build : "/tmp");
    return mkdtemp(files_root) && !chmod(files_root, 0755) ? 0 : -1;
}

static inline int files_teardown(void **state)
{
    DIR *dir = opendir(files_root);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.' && unlinkat(dirfd(dir), entry->d_name, 0))
            unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    if (dir)
        closedir(dir);
    return rmdir(files_root);
}

/* Returns a path below the root; the caller frees it. */
static inline char *files_path(const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", files_root, name) < 0 ? NULL : path;
}

/* Makes or replaces a file; returns its path, which the caller frees. */
static inline char *files_make(const char *name, unsigned seed, size_t size)
{
    char *path = files_path(name);
    uint8_t *data = malloc(size + 1);
    FILE *file = path && data ? fopen(path, "we") : NULL;
    if (!file)
        abort();
    for (size_t i = 0; i < size; i++)
        data[i] = files_byte(seed, i);
    if (fwrite(data, 1, size, file) != size || fclose(file))
        abort();
    free(data);
    return path;
}

/* Returns the first offset at which the bytes differ from those of `seed`; size if none does. */
static inline size_t files_differ(const uint8_t *bytes, size_t size, unsigned seed)
{
    size_t i = 0;
    while (i < size && bytes[i] == files_byte(seed, i))
        i++;
    return i;
}

static inline int files_open_count(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

#endif
