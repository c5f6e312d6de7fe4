/*
 * The validation of index files, and of catalogs with labels and ranges. The first byte chooses the
 * sections, and whether checksum and length are corrected, so that the checks after them are
 * reached.
 */
#include "base/memory.h"
#include "dataset/catalog.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads everything that a catalog refers to; ASan detects a missing check. */
static size_t use(const struct hr__catalog *c)
{
    size_t sum = strlen(hr__catalog_at(c, c->header->root));
    for (uint64_t i = 0; i < c->header->classes; i++)
        sum += strlen(hr__catalog_at(c, c->class_names[i]));
    for (uint64_t i = 0; i < c->header->samples; i++) {
        const struct hr__catalog_directory *d = &c->directories[c->sample_directory[i]];
        const char *name = hr__catalog_at(c, c->names[i]);
        if (!*name || *hr__catalog_at(c, d->path) == '/' ||
            (!c->labels && (strchr(name, '/') || d->label >= c->header->classes)))
            abort();
        if (c->ranges && (c->ranges[i].container >= c->header->containers || c->sizes[i] < 0))
            abort();
        sum += c->labels ? (size_t)c->labels[i] & 1 : 0;
        sum += c->changes ? (size_t)c->changes[i] & 1 : 0;
        sum += strlen(name) + (size_t)(c->sizes[i] & 1) + (size_t)(c->mtimes_ns[i] & 1);
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__catalog *c;
    if (size < 1)
        return 0;
    int repair = data[0] & 1, sections = data[0];
    data++;
    size--;
    char *block = hr__alloc(HR__TAG_DATASET, size ? size : 1, 1);
    if (!block)
        return 0;
    memcpy(block, data, size);
    struct hr__catalog_header *h = (struct hr__catalog_header *)block;
    if (repair && size >= sizeof *h) {
        memcpy(h->magic, HR__CATALOG_MAGIC, sizeof h->magic);
        h->version = HR__CATALOG_VERSION;
        h->byte_order = 0x01020304;
        h->flags = HR__CATALOG_SIZES | (sections & 2 ? HR__CATALOG_LABELS : 0) |
                   (sections & 4 ? HR__CATALOG_RANGES : 0) |
                   (sections & 8 ? HR__CATALOG_CHANGES : 0);
        h->bytes = size;
        h->checksum = hr__catalog_checksum(h);
    }
    if (hr__catalog_adopt(&c, block, size)) {
        hr__free(block);
        return 0;
    }
    volatile size_t sum = use(c);
    (void)sum;
    hr__catalog_destroy(&c);
    return 0;
}
