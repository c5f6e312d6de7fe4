/*
 * Helpers for tests of publishers and crews: a yard holds the chunks of one publisher and checks
 * every callback; also computes the samples of an embedded loader, for comparison.
 *
 * Callbacks run on other threads, so the yard stores the first error, and yard_check fails the
 * test.
 */
#ifndef HR_TEST_ENGINE_YARD_H
#define HR_TEST_ENGINE_YARD_H

#include "fixture.h"

#include "loader/publisher.h"

#include <pthread.h>
#include <stdatomic.h>

/* Largest chunk number that a yard can check. */
#define YARD_CHUNKS 4096

enum yard_state { YARD_NEW = 0, YARD_ACQUIRED, YARD_PUBLISHED, YARD_DROPPED };

struct yard_chunk {
    enum yard_state state;
    struct hr__chunk memory; /* while it is acquired or published */
    uint64_t epoch;
    size_t count, padding;
};

struct yard {
    struct hr_loader *publisher;
    size_t chunk_samples, sample_bytes;
    _Atomic double ahead; /* reported to the crew */

    pthread_mutex_t lock;  /* guards the members below */
    pthread_cond_t moved;  /* signals that a chunk was published or dropped */
    uint64_t limit;        /* there is no room for chunks from this number on */
    unsigned refuse_every; /* acquire returns -EAGAIN at random, once in so many calls; 0: never */
    unsigned random;
    uint64_t broken_from; /* acquire fails from this chunk on */
    int refuse_us;        /* duration of acquire when there is no room */
    int publish_us;       /* longest duration of publishing */

    struct yard_chunk chunks[YARD_CHUNKS];
    uint64_t next;    /* number of the last acquired chunk, plus 1 */
    uint64_t shown;   /* number of the last published chunk, plus 1 */
    uint64_t samples; /* published since the last start */
    uint64_t bad;     /* bad samples among them */
    int publishing;
    uint64_t refused, acquired, published, dropped;
    const char *wrong; /* the first error; NULL: none */

    struct hr_error ended; /* error with which the publisher ended since the last start; code 0:
                              none */
    uint64_t ended_index;  /* of the sample that caused it */
    char ended_path[256];  /* "": no sample caused it */
    char ended_reason[256];
    uint64_t bad_index[256]; /* of the first bad ones since the last start */
};

/* Makes a yard with the options of fixture_options, except for the caller's changes. */
void yard_make(struct yard *yard, struct hr__crew *crew, const struct fixture *f,
               const struct hr_loader_options *options);

/* Destroys the publisher; every chunk must have been published or dropped. */
void yard_remove(struct yard *yard);

/* Starts or restarts the publisher; returns the number of samples to come. */
uint64_t yard_start(struct yard *yard, uint64_t epoch, uint64_t position);

/* Makes room for chunks below `limit`. */
void yard_open(struct yard *yard, uint64_t limit);

/* Waits until `samples` are published since the start, or the publisher has ended. Offers room
 * repeatedly if acquire refuses at random. */
void yard_wait(struct yard *yard, uint64_t samples);

/* Reads a counter, while callbacks may run. */
uint64_t yard_read(struct yard *yard, const uint64_t *number);

/* Fails the test if a callback found an error. */
void yard_check(struct yard *yard);

struct samples {
    size_t count, padding;
    int64_t *labels, *indices;
    uint8_t *images;
};

/* Computes an embedded loader's samples of the epoch from `position` on. */
void samples_make(struct samples *out, const struct fixture *f,
                  const struct hr_loader_options *options, uint64_t epoch, uint64_t position);
void samples_free(struct samples *samples);

/* Fails unless the yard's samples, from chunk `first` on, equal these. */
void samples_compare(const struct samples *expected, struct yard *yard, uint64_t first,
                     uint64_t epoch);

/* Makes options for an embedded loader: whole epochs in batches of 5. */
void embedded_options(struct hr_loader_options *options, const struct hr_loader_options *publisher);

/* Workers are at home on this node; -1 (before): on none. */
extern int yard_node;

struct hr__crew *crew_make(int threads);

#endif
