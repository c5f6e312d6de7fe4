/*
 * Helpers for tests of the loader: a temporary folder of small JPEG files made by libjpeg, a recipe
 * with random parameters, the expected contents of a batch, and hooks around the calls that a
 * worker makes (the tests are linked with --wrap).
 */
#ifndef HR_TEST_ENGINE_FIXTURE_H
#define HR_TEST_ENGINE_FIXTURE_H

#include "../test.h"

#include <headrace/headrace.h>

#define FIXTURE_SEED 42

struct fixture {
    char dir[64];
    size_t count;
    char **paths;
    struct hr_dataset *dataset;
    struct hr_recipe *recipe;
    struct hr_preparer *preparer;
    struct hr_tensor_spec spec;
    void *expected; /* one sample */
    struct fixture_known *known;
};

/* Waits until no file counts as just written: caches do not admit such files
 * (HR__STAMP_FRESH_NS). */
void fixture_settle(void);

/* Makes `count` files of different sizes and pictures, and waits until they may be cached; label =
 * index % 7. */
void fixture_make(struct fixture *f, size_t count);
void fixture_remove(struct fixture *f);

/* Removes the fixture. Fails the test if the loader, its slots or a watch still hold memory.
 * Returns 0. */
int fixture_end(struct fixture *f);

/* A fixture of `count` files that is made anew for each test of a program, with cmocka's setup and
 * teardown. */
#define FIXTURE(count)                                                                             \
    static struct fixture fixture;                                                                 \
    static int setup(void **state)                                                                 \
    {                                                                                              \
        fixture_make(&fixture, count);                                                             \
        return 0;                                                                                  \
    }                                                                                              \
    static int teardown(void **state)                                                              \
    {                                                                                              \
        return fixture_end(&fixture);                                                              \
    }

/* Replaces a file's bytes; NULL deletes the file. */
void fixture_spoil(const struct fixture *f, size_t index, const char *bytes);

/* Batch size 8, shuffled, FIXTURE_SEED. */
void fixture_options(struct hr_loader_options *options);

struct hr_loader *fixture_loader(const struct fixture *f, const struct hr_loader_options *options);

/* Fails the test unless the image equals hr_preparer_run's result for this index, and the label is
 * its. `epoch` is the draw key's. */
void fixture_check_sample(const struct fixture *f, uint64_t epoch, int64_t index, int64_t label,
                          const void *image);

/* Checks every sample of the batch so.
 * `external`: with the draw keys of external orders, if the first sample of this batch is at
 * `position`. */
void fixture_check(const struct fixture *f, const struct hr_batch *batch, int external,
                   uint64_t position);

/* Returns the next batch, which must exist. */
struct hr_batch *fixture_next(struct hr_loader *loader);

/* Hooks, called in the worker before the real function; NULL: none. */
extern void (*fixture_before_prepare)(uint64_t index);
extern void (*fixture_before_read)(const char *path);
extern void (*fixture_before_bytes)(const void *bytes, size_t length); /* for before_prepare */

/* Sleeps for a pseudo-random time of up to 2 ms; for either hook. */
void fixture_delay(uint64_t index);

#endif
