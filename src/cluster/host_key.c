/*
 * Keys and dataset digests (host_key.h). Digests are XXH3-128 over records of fixed layout in
 * little-endian order, so that machines with different byte orders agree.
 */
#include "cluster/host_key.h"

#include "base/error.h"
#include "dataset/row_table.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <xxhash.h>

/* First field of a key. Increment it when the making of keys changes: old items are then not
 * found. */
#define KEY_VERSION 2

/* Identifies a sample in its dataset, independent of the machine. Fields are little-endian. */
struct host_key_place {
    uint64_t version;
    uint64_t dataset[2];
    uint64_t bytes, mtime_ns;
    uint64_t container, offset, checksum, form; /* of a piece; 0 without containers */
    char name[PATH_MAX];
};

static void write_pair(uint64_t out[2], XXH128_hash_t hash)
{
    out[0] = hash.low64;
    out[1] = hash.high64;
}

static void write_rows(uint64_t out[2], const struct hr_dataset *dataset)
{
    uint8_t digest[16];
    if (dataset->masks) /* a dataset has rows or masks */
        hr_dataset_names_digest(dataset->masks, digest);
    else
        hr__dataset_rows_digest(dataset, digest);
    memcpy(out, digest, sizeof digest);
}

static void add_number(XXH3_state_t *state, uint64_t value)
{
    value = htole64(value);
    XXH3_128bits_update(state, &value, sizeof value);
}

/* Adds the name with its length before it, so that no two lists of names give the same bytes. */
static int add_name(XXH3_state_t *state, const struct hr_dataset *dataset, size_t index)
{
    char name[PATH_MAX];
    size_t length = hr_dataset_key(dataset, index, name, sizeof name);
    if (length >= sizeof name)
        return -ENAMETOOLONG;
    add_number(state, length);
    XXH3_128bits_update(state, name, length);
    return 0;
}

/* Adds the sizes of containers: pieces of a rewritten container may be at the same places as
 * before. */
static void add_containers(XXH3_state_t *state, const struct hr__catalog *catalog)
{
    if (!catalog->ranges)
        return;
    for (uint64_t i = 0; i < catalog->header->containers; i++)
        add_number(state, catalog->containers[i].bytes);
}

static int is_unlisted(const struct hr_dataset *dataset, uint64_t index)
{
    return hr__dataset_is_unlisted(dataset, index) ||
           (dataset->masks && hr__dataset_is_unlisted(dataset->masks, index));
}

int64_t hr__host_bytes(const struct hr_dataset *dataset, uint64_t index)
{
    return is_unlisted(dataset, index) ? HR_SIZE_UNKNOWN : hr__dataset_kept_bytes(dataset, index);
}

enum host_key_part { PART_NAMES, PART_SIZES, PART_TIMES, PART_DATASET, PART_COUNT };

/* Makes all digests in one pass, so that each name is built only once. */
static int digest_parts(XXH3_state_t *parts[PART_COUNT], const struct hr_dataset *dataset)
{
    for (size_t i = 0; i < dataset->count; i++) {
        if (add_name(parts[PART_NAMES], dataset, i))
            return -ENAMETOOLONG;
        add_number(parts[PART_NAMES], (uint64_t)hr_dataset_label(dataset, i));
        add_number(parts[PART_SIZES], (uint64_t)hr__host_bytes(dataset, i));
        add_number(parts[PART_TIMES], is_unlisted(dataset, i)
                                          ? (uint64_t)HR_SIZE_UNKNOWN
                                          : (uint64_t)hr__dataset_mtime_ns(dataset, i));
    }
    return 0;
}

static int digest_dataset(XXH3_state_t *state, const struct hr_dataset *origin)
{
    add_containers(state, origin->catalog);
    for (size_t i = 0; i < origin->count; i++) {
        if (add_name(state, origin, i))
            return -ENAMETOOLONG;
        add_number(state, hr__dataset_is_unlisted(origin, i)
                              ? (uint64_t)HR_SIZE_UNKNOWN
                              : (uint64_t)hr_dataset_sample_bytes(origin, i));
    }
    return 0;
}

int hr__host_digest(struct hr__host_digest *out, const struct hr_dataset *dataset,
                    struct hr_error *error)
{
    XXH3_state_t *parts[PART_COUNT] = {NULL};
    const struct hr_dataset *origin = dataset->parent ? dataset->parent : dataset;
    int r = 0;
    /* acquire: the sizes were written before the flag */
    if (!atomic_load_explicit(&origin->sizes_known, memory_order_acquire))
        return hr__fail(error, -EAGAIN, "the sizes of the dataset's files are not known yet");
    for (int i = 0; i < PART_COUNT; i++) {
        parts[i] = XXH3_createState();
        if (!parts[i])
            r = -ENOMEM;
        else
            XXH3_128bits_reset(parts[i]);
    }
    if (!r)
        r = digest_parts(parts, dataset);
    if (!r)
        r = digest_dataset(parts[PART_DATASET], origin);
    if (!r) {
        write_pair(out->names, XXH3_128bits_digest(parts[PART_NAMES]));
        write_pair(out->sizes, XXH3_128bits_digest(parts[PART_SIZES]));
        write_pair(out->times, XXH3_128bits_digest(parts[PART_TIMES]));
        write_rows(out->rows, dataset);
        write_pair(out->dataset, XXH3_128bits_digest(parts[PART_DATASET]));
    }
    for (int i = 0; i < PART_COUNT; i++)
        XXH3_freeState(parts[i]);
    return r ? hr__fail(error, r, "no digest of the dataset could be made: %s", hr__errno_text(r))
             : 0;
}

static const struct hr__catalog_range *range_of(const struct hr_dataset *dataset, uint64_t index)
{
    const struct hr_dataset *origin = dataset->parent ? dataset->parent : dataset;
    uint64_t at = hr__dataset_at(dataset, index);
    return origin->catalog->ranges ? &origin->catalog->ranges[at] : NULL;
}

int hr__host_key_is_exact(const struct hr_dataset *dataset, uint64_t index)
{
    const struct hr__catalog_range *range = range_of(dataset, index);
    return range && range->flags & HR__RANGE_HAS_CHECKSUM &&
           (!dataset->masks || hr__host_key_is_exact(dataset->masks, index));
}

/* Makes the key of an image, or of a mask. `is_exact`: that of the sample. */
static int key_of_one(uint64_t key[2], const struct hr__host_digest *digest,
                      const struct hr_dataset *dataset, uint64_t index,
                      const struct hr__stamp *stamp, int is_exact)
{
    struct host_key_place place;
    const struct hr__catalog_range *range = range_of(dataset, index);
    memset(&place, 0, offsetof(struct host_key_place, name));
    place.version = htole64(KEY_VERSION);
    place.dataset[0] = htole64(digest->dataset[0]);
    place.dataset[1] = htole64(digest->dataset[1]);
    int unlisted = hr__dataset_is_unlisted(dataset, index);
    place.bytes = htole64(unlisted ? digest->run
                          : range  ? (uint64_t)hr_dataset_sample_bytes(dataset, index)
                                   : (uint64_t)stamp->bytes);
    if (digest->with_mtime && !unlisted)
        place.mtime_ns =
            htole64((uint64_t)(is_exact ? hr__dataset_mtime_ns(dataset, index) : stamp->mtime_ns));
    if (range) {
        place.container = htole64(range->container);
        place.offset = htole64(range->offset);
        place.checksum = htole64(range->checksum);
        place.form = htole64(range->form);
    }
    size_t length = hr_dataset_key(dataset, index, place.name, sizeof place.name);
    if (length >= sizeof place.name)
        return -ENAMETOOLONG;
    write_pair(key, XXH3_128bits(&place, offsetof(struct host_key_place, name) + length));
    return 0;
}

int hr__host_key(uint64_t key[2], const struct hr__host_digest *digest,
                 const struct hr_dataset *dataset, uint64_t index, const struct hr__stamp *stamp)
{
    uint64_t pair[4];
    int is_exact = hr__host_key_is_exact(dataset, index);
    int r = key_of_one(pair, digest, dataset, index, stamp, is_exact);
    if (!r && dataset->masks)
        r = key_of_one(pair + 2, digest, dataset->masks, index, stamp, is_exact);
    if (r)
        return r;
    memcpy(key, pair, 2 * sizeof *key);
    if (!dataset->masks)
        return 0;
    for (int i = 0; i < 4; i++)
        pair[i] = htole64(pair[i]);
    write_pair(key, XXH3_128bits(pair, sizeof pair));
    return 0;
}
