/* Datasets of given ranges of files. */
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "dataset/catalog.h"
#include "dataset/dataset.h"
#include "dataset/describe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_MOST 512

/* Writes the name of sample `i`: of its file, and its position. */
static void name_of(char name[NAME_MOST], const char *path, size_t i)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    size_t length = dot && dot != base ? (size_t)(dot - base) : strlen(base);
    snprintf(name, NAME_MOST, "%.*s/%06zu", (int)(length < 400 ? length : 400), base, i);
}

/* Checks a file, and describes it in *out. */
static int describe_file(struct hr__catalog_container *out, const char *path,
                         struct hr_error *error)
{
    struct stat st;
    if (stat(path, &st))
        return hr__fail(error, -errno, "cannot open %s: %s", path, hr__errno_text(-errno));
    if (!S_ISREG(st.st_mode))
        return hr__fail(error, -ENOTSUP, "%s is not a regular file", path);
    out->bytes = (uint64_t)st.st_size;
    out->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return 0;
}

static int check_range(const struct hr__catalog *c, const struct hr_dataset_ranges *from, size_t i,
                       struct hr_error *error)
{
    const struct hr_dataset_range *r = &from->ranges[i];
    if (r->file >= from->file_count)
        return hr__fail(error, -EINVAL, "range %zu is in file %" PRIu64 " of %zu", i, r->file,
                        from->file_count);
    uint64_t end = c->containers[r->file].bytes;
    if (r->offset > end || r->bytes > end - r->offset)
        return hr__fail(error, -EINVAL, "range %zu leads beyond the end of %s", i,
                        from->files[r->file]);
    return 0;
}

static int fill(struct hr__catalog *c, const struct hr_dataset_ranges *from, struct hr_error *error)
{
    char name[NAME_MOST];
    int r = 0;
    c->header->root = c->directories[0].path = hr__catalog_text(c, "", 0);
    c->directories[0].count = from->count;
    c->header->flags |= HR__CATALOG_SIZES;
    c->untrusted = 1;
    for (size_t i = 0; !r && i < from->file_count; i++) {
        r = describe_file(&c->containers[i], from->files[i], error);
        c->containers[i].path = hr__catalog_text(c, from->files[i], strlen(from->files[i]));
    }
    for (size_t i = 0; !r && i < from->count; i++) {
        const struct hr_dataset_range *range = &from->ranges[i];
        r = check_range(c, from, i, error);
        if (r)
            break;
        name_of(name, from->files[range->file], i);
        c->names[i] = hr__catalog_text(c, name, strlen(name));
        c->sizes[i] = (int64_t)range->bytes;
        c->mtimes_ns[i] = c->containers[range->file].mtime_ns;
        c->labels[i] = range->label;
        c->ranges[i] = (struct hr__catalog_range){.offset = range->offset,
                                                  .source_bytes = range->bytes,
                                                  .container = (uint32_t)range->file};
    }
    return r;
}

int hr_dataset_from_ranges(struct hr_dataset **out, const struct hr_dataset_ranges *ranges,
                           struct hr_error *error)
{
    struct hr_dataset_ranges from = {0};
    struct hr__catalog *catalog = NULL;
    *out = NULL;
    int r = hr__versioned_take(&from, sizeof from, ranges, "struct hr_dataset_ranges", error);
    if (r)
        return r;
    if (!from.count || !from.file_count)
        return hr__fail(error, -ENODATA, "no range of a file is given");
    struct hr__catalog_shape shape = {.directories = 1,
                                      .samples = from.count,
                                      .arena_bytes = 1,
                                      .labels = 1,
                                      .containers = from.file_count};
    for (size_t i = 0; i < from.file_count; i++)
        shape.arena_bytes += strlen(from.files[i]) + 1;
    for (size_t i = 0; i < from.count; i++) {
        char name[NAME_MOST];
        if (from.ranges[i].file < from.file_count)
            name_of(name, from.files[from.ranges[i].file], i);
        else
            *name = 0; /* refused later */
        shape.arena_bytes += strlen(name) + 1;
    }
    r = hr__catalog_create(&catalog, &shape);
    if (r)
        return hr__fail(error, r, "out of memory for %zu samples", from.count);
    r = fill(catalog, &from, error);
    if (!r)
        r = hr__dataset_create(out, catalog, "", "", error);
    if (r)
        hr__catalog_destroy(&catalog);
    else if ((r = hr__dataset_set_source(*out, HR__SOURCE_RANGES, "", NULL, error)))
        hr_dataset_unref(out);
    return r;
}
