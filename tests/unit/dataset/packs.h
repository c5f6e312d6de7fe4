/* Makes packs by hand: assembles a catalog and items in memory, without the library's writer. */
#ifndef HR_TEST_PACKS_H
#define HR_TEST_PACKS_H

#include "tree.h"

#include "base/memory.h"
#include "dataset/dataset.h"
#include "dataset/pack.h"

#include <xxhash.h>

/* A file in memory. */
struct pack_image {
    uint8_t *bytes; /* free() it */
    size_t length;
};

static inline struct hr__pack_superblock *pack_super(struct pack_image *p)
{
    return (struct hr__pack_superblock *)p->bytes;
}

static inline struct hr__catalog_header *pack_catalog(struct pack_image *p)
{
    return (struct hr__catalog_header *)(p->bytes + HR__PACK_SUPERBLOCK_BYTES);
}

/* Corrects both checksums. */
static inline void pack_seal(struct pack_image *p)
{
    pack_catalog(p)->checksum = hr__catalog_checksum(pack_catalog(p));
    hr__pack_seal(pack_super(p));
}

/* Makes a complete pack of `dataset` with these items. */
static inline void pack_make(struct pack_image *p, struct hr_dataset *dataset,
                             const uint8_t *const *items, const size_t *lengths, int form)
{
    struct hr__catalog *c;
    struct hr__pack_superblock super;
    size_t count = hr_dataset_count(dataset);
    assert_int_equal(hr__pack_catalog(&c, dataset, NULL), 0);
    hr__pack_begin(&super, c->header->bytes, 0, form, 0);
    uint64_t at = super.items_offset;
    for (size_t i = 0; i < count; i++) {
        c->sizes[i] = (int64_t)lengths[i];
        c->ranges[i] = (struct hr__catalog_range){
            .offset = at,
            .checksum = XXH3_64bits(items[i], lengths[i]),
            .source_bytes = lengths[i],
            .form = (uint16_t)form,
            .flags = HR__RANGE_HAS_CHECKSUM,
        };
        at = (at + lengths[i] + 63) / 64 * 64;
    }
    c->header->flags |= HR__CATALOG_SIZES;
    super.state = HR__PACK_COMPLETE;
    super.bytes = p->length = at;
    p->bytes = calloc(1, at);
    assert_non_null(p->bytes);
    memcpy(p->bytes, &super, sizeof super);
    memcpy(p->bytes + super.catalog_offset, c->header, c->header->bytes);
    for (size_t i = 0; i < count; i++)
        memcpy(p->bytes + c->ranges[i].offset, items[i], lengths[i]);
    pack_seal(p);
    hr__catalog_destroy(&c);
}

/* Writes the first `length` bytes to a file. */
static inline void pack_write(const struct pack_image *p, size_t length, const char *path)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(p->bytes, 1, length, f), length);
    assert_int_equal(fclose(f), 0);
}

#endif
