/*
 * The loader's cache on this host: which samples it takes, and when workers convert them.
 *
 * A sample that was read and prepared without an error is offered to the cache, either in its final
 * form or to be converted later. A worker converts one item at a time, whenever it has nothing else
 * to do. If workers always have something to do, they spend a tenth of their time on conversions,
 * in one go, at the moment when the batch that the consumer gets next has no sample left to take.
 * The rules are in src/cache/worth.h.
 *
 * Batches do not depend on any of this: all forms have the same pixels. Scaled decoding is the
 * exception, so a loader whose recipe asks for it converts nothing.
 */
#ifndef HR_LOADER_CACHING_H
#define HR_LOADER_CACHING_H

#include "cache/cache.h"

#include <headrace/base.h>

struct hr_loader;
struct hr_recipe;
struct hr__cache_spec;
struct hr__pair;
struct hr__thread;

/* Makes the cache that the options ask for and attaches it to the loader. `of_publishers`: it is
 * shared with the other publishers of this process. Errors: -EINVAL: the options; those of
 * hr_cache_open. */
int hr__caching_create(struct hr_loader *l, int of_publishers, struct hr_error *error);

/* Makes a cache on this host's disk for what several hosts' memory does not hold, and attaches it;
 * `text` as hr__hosts_disk_parse takes it. Does nothing if it has no disk. Errors: as above. */
int hr__caching_create_disk(struct hr_loader *l, const char *text, struct hr_error *error);

/* Returns the bytes of items that the disk of each host may hold; 0: there is none. */
uint64_t hr__caching_disk_bytes(const struct hr_loader *l);

/* Limits the form that a cache of the loader is to keep, as hr__recipe_cache_form does. */
int hr__caching_form(const struct hr_loader *l, int *form, struct hr_error *error);

/* Returns a digest of what items of the form depend on besides their files: of waveforms, the head
 * of the recipe and the decoders. 0: on nothing. */
uint64_t hr__caching_variant(const struct hr_recipe *recipe, int form);

/* Sets the variant of a cache that keeps items of the form for loaders of the recipe. */
void hr__caching_set_variant(struct hr__cache_spec *spec, const struct hr_recipe *recipe, int form);

/* Converts a file to a form of the recipe's samples, on this thread. *out is valid until its next
 * conversion. Returns 0, or a negative errno: then the file stays as it is. */
int hr__convert(struct hr__thread *self, enum hr_form form, const struct hr_item *file,
                struct hr_item *out);

/* Offers an item of a sample to the cache; if the sample has a mask, both as one item, of
 * offer->parts or of pair->image, and offer->length is set. Returns as hr__cache_offer does, and 0
 * if memory is short. */
int hr__caching_offer(struct hr__cache *cache, struct hr__cache_offer *offer,
                      const struct hr__pair *pair);

/* Returns how many bytes of budget are needed to cache the samples that are not cached yet, as they
 * are on storage. The dataset has `samples` samples with `bytes` bytes in all. Pure. */
uint64_t hr__caching_missing(const struct hr__cache_counts *now, uint64_t samples, double bytes);

#endif
