/*
 * Helpers for tests of several hosts: real memcached servers, and ranks, each a loader that is
 * consumed by a thread of its own and whose batches are recorded.
 *
 * Threads only record. The records are compared afterwards with a plain loader, sample by sample:
 * the image of a sample is a function of seed, epoch and index.
 */
#ifndef HR_TEST_ENGINE_WORLD_H
#define HR_TEST_ENGINE_WORLD_H

#include "../cluster/memcached_fixture.h"
#include "fixture.h"

#define WORLD_HOSTS 4
#define WORLD_RANKS 8

/* A rank and its results for an epoch. */
struct world_rank {
    struct world *world;
    int rank;
    struct hr_loader *loader;
    uint64_t epoch;
    uint64_t most;     /* number of batches after which it stops */
    uint64_t batches;  /* batches that it has taken */
    size_t count;      /* samples, without padding */
    size_t padding;    /* of all batches */
    size_t replaced;   /* likewise */
    int64_t *indices;  /* count */
    uint64_t *numbers; /* count: of their batches */
    uint8_t *images;   /* count */
    size_t room;       /* capacity of the three arrays */
    int result;        /* result of the last call of next */
    struct hr_error error;
    struct hr_loader_state state;             /* after the last batch */
    void (*between)(struct world_rank *rank); /* called after each batch; NULL: nothing */
};

struct world {
    struct fixture *fixture;
    struct memcached servers[WORLD_HOSTS];
    int hosts, ranks;
    int ranks_a_host;
    char rest[128]; /* end of the text, after the list: "size=1MiB" */
    struct hr_loader_options options;
    struct world_rank all[WORLD_RANKS];
    uint8_t *reference; /* images of an epoch by index */
    uint64_t reference_epoch;
};

/* Starts servers; skips the test if there is no memcached. */
void world_make(struct world *w, struct fixture *f, int hosts, int ranks);
void world_remove(struct world *w);

/* Writes the cache text of a rank. */
void world_text(const struct world *w, int rank, char *out, size_t room);

/* Makes the ranks' loaders that do not exist. */
void world_open(struct world *w);
void world_close(struct world *w);

/* Runs an epoch on all ranks to its end, or for `most` batches. Fails the test if a rank fails. */
void world_run(struct world *w, uint64_t epoch, uint64_t most);

/* The same from the ranks' present positions; start it with world_start, and wait with
 * world_wait. */
void world_consume(struct world *w);

/* Fails unless each sample of the dataset came once over all ranks, except `missing` of them, with
 * the right images. */
void world_check(struct world *w, size_t missing);

/* Sums the ranks' statistics since their loaders were made. */
void world_stats(const struct world *w, struct hr_loader_stats *sum);

/* Returns the bytes of all files. */
uint64_t world_bytes(const struct world *w);

#endif
