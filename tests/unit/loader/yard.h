/*
 * What the tests of publishers and crews share: a yard, where chunks of one publisher lie, which
 * keeps books on every callback; and the samples that an embedded loader gives, to compare with.
 *
 * Callbacks come from other threads: what is wrong there is kept, and told by yard_check.
 */
#ifndef HR_TEST_ENGINE_YARD_H
#define HR_TEST_ENGINE_YARD_H

#include "fixture.h"

#include "loader/publisher.h"

#include <pthread.h>
#include <stdatomic.h>

/* Chunk numbers that a yard can keep books on. */
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
    _Atomic double ahead; /* what the crew is told */

    pthread_mutex_t lock;  /* guards what follows */
    pthread_cond_t moved;  /* something was published, or dropped */
    uint64_t limit;        /* there is no room for chunks from this one on */
    unsigned refuse_every; /* acquire says -EAGAIN once in so many times, at random; 0: never */
    unsigned random;
    uint64_t broken_from; /* acquire fails from this chunk on */
    int refuse_us;        /* how long acquire takes when there is no room */
    int publish_us;       /* how long publishing takes, at most */

    struct yard_chunk chunks[YARD_CHUNKS];
    uint64_t next;    /* one more than the last acquired */
    uint64_t shown;   /* one more than the last published */
    uint64_t samples; /* published since the last start */
    uint64_t bad;     /* likewise, of them bad */
    int publishing;
    uint64_t refused, acquired, published, dropped;
    const char *wrong; /* the first thing that was */

    struct hr_error ended; /* why the publisher ended since the last start; code 0: it did not */
    uint64_t ended_index;  /* of the sample */
    char ended_path[256];  /* "": no sample's fault */
    char ended_reason[256];
    uint64_t bad_index[256]; /* of the first bad ones since the last start */
};

/* Options as fixture_options, but for what the caller changes before. */
void yard_make(struct yard *yard, struct hr__crew *crew, const struct fixture *f,
               const struct hr_loader_options *options);

/* Destroys the publisher; every chunk must have been published or dropped. */
void yard_remove(struct yard *yard);

/* Starts the publisher, again perhaps; returns how many samples are to come. */
uint64_t yard_start(struct yard *yard, uint64_t epoch, uint64_t position);

/* Lets chunks below `limit` in. */
void yard_open(struct yard *yard, uint64_t limit);

/* Waits until so many samples are published since the start, or the publisher ended. Asks for room
 * again and again where acquire refuses at random. */
void yard_wait(struct yard *yard, uint64_t samples);

/* One of the books' numbers, while callbacks may come. */
uint64_t yard_read(struct yard *yard, const uint64_t *number);

/* Fails the test where a callback saw something wrong. */
void yard_check(struct yard *yard);

struct samples {
    size_t count, padding;
    int64_t *labels, *indices;
    uint8_t *images;
};

/* What an embedded loader with these options gives of the epoch from `position` on. */
void samples_make(struct samples *out, const struct fixture *f,
                  const struct hr_loader_options *options, uint64_t epoch, uint64_t position);
void samples_free(struct samples *samples);

/* Fails unless the yard's samples, from chunk `first` on, are these. */
void samples_compare(const struct samples *expected, struct yard *yard, uint64_t first,
                     uint64_t epoch);

/* Options without those that only embedded loaders know: whole epochs in batches of 5. */
void embedded_options(struct hr_loader_options *options, const struct hr_loader_options *publisher);

/* Workers are at home on this node; -1 (before): on none. */
extern int yard_node;

struct hr__crew *crew_make(int threads);

#endif
