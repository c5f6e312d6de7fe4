/*
 * Helpers for tests of packs: an image folder with the fixture's files, paths of packs, and
 * comparisons of files, names and batches.
 */
#ifndef HR_TEST_ENGINE_PACK_BENCH_H
#define HR_TEST_ENGINE_PACK_BENCH_H

#include "../loader/fixture.h"

#define SAMPLES 48

/* An image folder of two classes with the fixture's files, and a folder for packs. */
struct pack_bench {
    struct fixture f;
    char root[64];
    struct hr_dataset *folder;
};

void bench_make(struct pack_bench *b);

/* Removes it. Fails the test if the loader still holds memory. */
void bench_remove(struct pack_bench *b);

/* Returns a path in it, valid until the fourth call after this one. */
const char *bench_at(const struct pack_bench *b, const char *name);

/* Opens the folder again. */
void bench_open(struct pack_bench *b);

void bench_options(struct hr_pack_options *options, int form, int threads);

/* hr_pack_write, which must succeed. */
void bench_write(struct hr_dataset *dataset, const char *path,
                 const struct hr_pack_options *options, struct hr_pack_result *result);

/* Packs the folder under that name. */
void bench_pack(const struct pack_bench *b, const char *name, int form, int threads);

/* Returns the bytes of a whole file, malloc'ed. */
char *bench_bytes(const char *path, size_t *length);

/* Makes a loader of a dataset, in epoch 3. */
struct hr_loader *bench_loader(const struct pack_bench *b, struct hr_dataset *dataset, int threads);

void assert_same_file(const char *a, const char *b);

/* Compares batches with the folder's. */
void assert_same_batches(const struct pack_bench *b, struct hr_dataset *other, int threads);

/* Compares keys, labels and classes. */
void assert_same_names(struct hr_dataset *x, struct hr_dataset *y);

#endif
