/*
 * Reads all items of a cache on disk and compares them with their checksums. Each thread takes the
 * next entry of the index. A segment that is in use is checked as well: its users go on.
 */
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "bulk/each.h"
#include "cache/directory.h"
#include "cache/store.h"

#include <headrace/cache.h>

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

struct verifying {
    struct hr__cache_spec spec; /* only path and key_file */
    struct hr__secret secret;
    struct hr__store **stores; /* of the segments that can be checked */
    size_t count;
    uint64_t skipped;
    struct hr__each each;
    _Atomic uint64_t items, bytes, bad;
};

static int parse(struct verifying *v, const char *text, struct hr_error *error)
{
    if (!hr__cache_spec_is_disk(text))
        return hr__fail(error, -EINVAL,
                        "\"%.200s\": a cache on disk is verified: write disk:/DIRECTORY; items in "
                        "memory are checked at each hit",
                        text);
    int r = strchr(text, '?') ? hr__cache_spec_parse(&v->spec, text, error)
                              : hr__cache_spec_directory(v->spec.path, text, error);
    return r ? r : hr__secret_read(&v->secret, v->spec.key_file, error);
}

/* Opens one segment as a user. */
static int open_segment(struct verifying *v, struct hr__directory *d, const char *file,
                        struct hr_error *error)
{
    struct hr__segment *segment;
    int r = hr__segment_attach(&segment, d->own.fd, file, 1, error);
    if (r)
        return r;
    if (!hr__directory_is_secret(segment, &v->secret)) {
        struct hr__books now = hr__segment_books(segment);
        for (int form = 0; form < HR_FORMS; form++)
            v->skipped += now.items[form];
        hr__segment_detach(&segment);
        return 0;
    }
    segment->secret = v->secret;
    r = hr__store_create(&v->stores[v->count], segment, error);
    v->count += !r;
    return r;
}

static int open_all(struct verifying *v, struct hr_error *error)
{
    const struct hr__directory_where where = {.group = HR__DIRECTORY_OWN, .disk = v->spec.path};
    struct hr__directory d;
    struct hr__directory_file *files = NULL;
    size_t count = 0;
    int r = hr__directory_lock(&d, &where, 0, error);
    if (r == -ENOENT)
        return hr__fail(error, r, "there is no cache in %s", v->spec.path);
    if (r)
        return r;
    r = hr__directory_files(&d, HR__DISK_NAME, &files, &count);
    if (!r && !count)
        r = hr__fail(error, -ENOENT, "there is no cache in %s", v->spec.path);
    v->stores = r ? NULL : hr__alloc(HR__TAG_CACHE, count, sizeof *v->stores);
    if (!r && !v->stores)
        r = hr__fail(error, -ENOMEM, "out of memory for a list of caches");
    for (size_t i = 0; !r && i < count; i++)
        if (!files[i].code)
            r = open_segment(v, &d, files[i].file, error);
    hr__directory_unlock(&d);
    hr__free(files);
    return r;
}

/* Checks one entry: `index` counts the entries of all segments. */
static int verify_entry(void *arg, void *tools, size_t index, struct hr_error *why)
{
    struct verifying *v = arg;
    (void)tools;
    size_t i = 0;
    for (uint64_t slots; index >= (slots = hr__store_segment(v->stores[i])->layout.index_slots);
         i++)
        index -= slots;
    int64_t bytes = hr__store_check(v->stores[i], index);
    if (bytes == -ENOMEM)
        return hr__fail(why, -ENOMEM, "out of memory for an item");
    atomic_fetch_add(&v->bad, bytes < 0);
    atomic_fetch_add(&v->items, bytes != 0);
    atomic_fetch_add(&v->bytes, bytes > 0 ? (uint64_t)bytes : 0);
    return 0;
}

static void verify_many(void *arg, size_t i)
{
    struct verifying *v = arg;
    struct hr_error why = {0};
    hr__each_take(&v->each, NULL, 0, &why);
}

int hr_cache_verify(const char *spec, int threads, hr_progress_fn progress, void *progress_arg,
                    struct hr_cache_verify_report *report, struct hr_error *error)
{
    struct hr__pool *pool = NULL;
    struct verifying v = {.each = {.stage = "verifying",
                                   .what = "verifying the cache",
                                   .left = "",
                                   .thread = verify_many,
                                   .work = verify_entry}};
    v.each.arg = &v;
    int r = parse(&v, spec, error);
    if (!r)
        r = open_all(&v, error);
    for (size_t i = 0; i < v.count; i++)
        v.each.count += hr__store_segment(v.stores[i])->layout.index_slots;
    if (!r)
        r = hr__pool_create(&pool, threads, error);
    if (!r)
        r = hr__each_run(&v.each, &pool, progress, progress_arg, error);
    for (size_t i = 0; i < v.count; i++)
        hr__store_destroy(&v.stores[i]);
    hr__free(v.stores);
    explicit_bzero(&v.secret, sizeof v.secret);
    const struct hr_cache_verify_report now = {
        .items = v.items, .bytes = v.bytes, .bad = v.bad, .skipped = v.skipped};
    if (report)
        hr__versioned_give(report, &now, sizeof now);
    return r;
}
