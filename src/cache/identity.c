/*
 * Computes identities and keys; see identity.h. Digests are XXH3-128, which is not safe against
 * deliberate collisions. That is acceptable: a user who may write to a segment is trusted anyway.
 */
#include "cache/identity.h"

#include "base/error.h"
#include "base/memory.h"
#include "cache/store.h"
#include "dataset/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A digest that texts are appended to. */
struct digest {
    XXH128_hash_t state;
};

static void add(struct digest *d, const void *bytes, size_t length)
{
    struct {
        XXH128_hash_t state, of;
        uint64_t length;
    } step = {d->state, XXH3_128bits(bytes, length), length};
    d->state = XXH3_128bits(&step, sizeof step);
}

static void add_text(struct digest *d, const char *text)
{
    add(d, text, strlen(text));
}

/* Returns a path in canonical form, or unchanged if it has none; "" for the working directory. On
 * success the caller owns *out. */
static int canonical(char **out, const char *path)
{
    char *resolved = realpath(*path ? path : ".", NULL);
    *out = hr__strdup(HR__TAG_CACHE, resolved ? resolved : path);
    free(resolved);
    return *out ? 0 : -ENOMEM;
}

static int add_canonical(struct digest *d, const char *path)
{
    char *resolved;
    int r = canonical(&resolved, path);
    if (r)
        return r;
    add_text(d, resolved);
    hr__free(resolved);
    return 0;
}

/* Makes the readable form: `what`, with the first digits of the digest if `what` alone would be
 * ambiguous. */
static void describe(struct hr__identity *out, const char *what, const struct digest *d)
{
    char text[HR__IDENTITY_TEXT];
    int most = (int)sizeof text - 32;
    if (d)
        snprintf(text, sizeof text, "%.*s (%08" PRIx64 ")", most, what, d->state.high64 >> 32);
    else
        snprintf(text, sizeof text, "%s", what);
    hr__printable(out->text, sizeof out->text, text);
}

static int of_folder(struct hr__identity *out, struct digest *d, const struct hr_dataset *origin)
{
    const char *root = hr__catalog_at(origin->catalog, origin->catalog->header->root);
    add_text(d, "folder");
    add_text(d, root);
    describe(out, root, NULL);
    return 0;
}

static int of_pack(struct hr__identity *out, struct digest *d, const struct hr_dataset *origin)
{
    char *path;
    int r = canonical(&path, origin->base);
    if (r)
        return r;
    add_text(d, "pack");
    add_text(d, path);
    add(d, &origin->catalog->header->checksum, sizeof origin->catalog->header->checksum);
    describe(out, path, NULL);
    hr__free(path);
    return 0;
}

static int of_shards(struct hr__identity *out, struct digest *d, const struct hr_dataset *origin)
{
    char what[HR__IDENTITY_TEXT], *first = NULL;
    uint64_t count = origin->catalog->header->containers;
    int r = 0;
    add_text(d, "tar");
    for (uint64_t i = 0; !r && i < count; i++)
        r = add_canonical(d, hr__containers_path(origin->containers, i));
    if (!r)
        r = canonical(&first, count ? hr__containers_path(origin->containers, 0) : "");
    if (r)
        return r;
    if (count > 1) {
        static const char *const kinds[] = {
            [HR__SOURCE_TAR] = "tar ", [HR__SOURCE_PARQUET] = "Parquet ", [HR__SOURCE_RANGES] = ""};
        snprintf(what, sizeof what, "%" PRIu64 " %sfiles, the first %.400s", count,
                 kinds[origin->source.kind], first);
        describe(out, what, d);
    } else {
        describe(out, first, NULL);
    }
    hr__free(first);
    return 0;
}

static int of_list(struct hr__identity *out, struct digest *d, const struct hr_dataset *origin)
{
    char key[PATH_MAX], what[HR__IDENTITY_TEXT], *base = NULL;
    int relative = 0;
    add_text(d, "list");
    for (size_t i = 0; i < origin->count; i++) {
        size_t length = hr_dataset_key(origin, i, key, sizeof key);
        relative |= key[0] != '/';
        add(d, key, length < sizeof key ? length : sizeof key - 1);
    }
    /* Absolute paths do not depend on the base. */
    int r = relative ? canonical(&base, origin->base) : 0;
    if (r)
        return r;
    if (base)
        add_text(d, base);
    hr_dataset_key(origin, 0, key, sizeof key);
    snprintf(what, sizeof what, "%zu files%s%.200s, the first %.200s", origin->count,
             base ? " in " : "", base ? base : "", origin->count ? key : "of none");
    describe(out, what, d);
    hr__free(base);
    return 0;
}

int hr__identity_make(struct hr__identity *out, const struct hr_dataset *dataset,
                      struct hr_error *error)
{
    const struct hr_dataset *origin = dataset->parent ? dataset->parent : dataset;
    const struct hr__catalog *c = origin->catalog;
    struct digest d = {{0, 0}};
    int r;
    if (origin->produced)
        return hr__fail(error, -ENOTSUP,
                        "the samples of %s come from producers: a cache cannot see them change",
                        origin->root);
    if (!c->ranges)
        r = origin->is_folder ? of_folder(out, &d, origin) : of_list(out, &d, origin);
    else if (c->header->containers == 1 && !*hr__catalog_at(c, c->containers[0].path))
        r = of_pack(out, &d, origin);
    else
        r = of_shards(out, &d, origin);
    if (r)
        return hr__fail(error, r, "out of memory for a dataset's identity");
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, d.state);
    memcpy(out->digest, bytes.digest, sizeof out->digest);
    return 0;
}

void hr__identity_add(struct hr__identity *identity, uint64_t variant, const char *text)
{
    struct digest d = {{0, 0}};
    size_t length = strlen(identity->text);
    add(&d, identity->digest, sizeof identity->digest);
    add(&d, &variant, sizeof variant);
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, d.state);
    memcpy(identity->digest, bytes.digest, sizeof identity->digest);
    snprintf(identity->text + length, sizeof identity->text - length, " as %s", text);
}

/* What identifies a piece of a container, besides the container's stamp. */
struct identity_piece {
    uint64_t container, offset, bytes, checksum;
};

/* Computes the key of an image, or of a mask, whose sample has the stamp. */
static int key_of_one(struct hr__key *out, const struct hr__identity *identity,
                      const struct hr_dataset *dataset, uint64_t index,
                      const struct hr__stamp *stamp)
{
    struct {
        uint8_t digest[16];
        int64_t bytes, mtime_ns;
        uint64_t change, content;
        char place[PATH_MAX];
    } what;
    const struct hr_dataset *origin = dataset->parent ? dataset->parent : dataset;
    struct identity_piece piece = {.checksum = 0};
    size_t length = sizeof piece;
    if (origin->catalog->ranges) {
        uint64_t at = hr__dataset_at(dataset, index);
        const struct hr__catalog_range *range = &origin->catalog->ranges[at];
        piece = (struct identity_piece){range->container, range->offset,
                                        (uint64_t)hr_dataset_sample_bytes(dataset, index),
                                        range->checksum};
        memcpy(what.place, &piece, sizeof piece);
    } else {
        length = hr_dataset_key(dataset, index, what.place, sizeof what.place);
        if (length >= sizeof what.place)
            return -ENAMETOOLONG;
    }
    memcpy(what.digest, identity->digest, sizeof what.digest);
    what.bytes = stamp->bytes;
    what.mtime_ns = stamp->mtime_ns;
    what.change = stamp->change;
    what.content = piece.checksum;
    int r = stamp->change || piece.checksum ? 0 : hr__content_look(&what.content, dataset, index);
    if (!r)
        *out = hr__key_of(&what, offsetof(__typeof__(what), place) + length, 0);
    return r;
}

int hr__identity_key(struct hr__key *out, const struct hr__identity *identity,
                     const struct hr_dataset *dataset, uint64_t index,
                     const struct hr__stamp *stamp)
{
    struct {
        struct hr__key image, mask;
        uint64_t stamp;
    } pair = {.stamp = stamp->mask};
    int r = key_of_one(&pair.image, identity, dataset, index, stamp);
    if (!r && dataset->masks)
        r = key_of_one(&pair.mask, identity, dataset->masks, index, stamp);
    if (!r)
        *out = dataset->masks ? hr__key_of(&pair, sizeof pair, 0) : pair.image;
    return r;
}
