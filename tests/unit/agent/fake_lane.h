/*
 * A lane of an agent, played by the test: makes board, data and desk as agent/share.h says,
 * and publishes chunks when it is told to, with the agent's rules for places: what a seat
 * has not taken is waited for, or taken from it; what it holds is left to it.
 */
#ifndef HR_TEST_AGENT_FAKE_LANE_H
#define HR_TEST_AGENT_FAKE_LANE_H

#include "../test.h"

#include "agent/share.h"

struct fake_lane;

/* What the sample at `sequence` is. */
typedef void (*fake_fill_fn)(struct fake_lane *lane, uint64_t sequence, unsigned char *image,
                             struct hr__board_sample *sample);

struct fake_lane {
    uint64_t sample_bytes, chunk_samples, chunk_bytes, places;
    int is_gapless;
    int board_file, data_file, desk_file, bell_file;
    struct hr__board *board;
    struct hr__board_place *at;
    struct hr__board_sample *samples;
    struct hr__desk *desk;
    unsigned char *data; /* all that the file may grow to */
    uint64_t file_bytes, data_bytes;
    uint64_t next_chunk; /* number */
    struct fake_lent {
        uint64_t offset, end; /* free when mark has reached `end` */
    } lent[4096];
    size_t lent_count;
    uint64_t spares[4096]; /* offsets */
    size_t spare_count;
    uint64_t lends;    /* places that got other memory */
    uint64_t expelled; /* floors that were set */
    fake_fill_fn fill;
    void *arg;
};

/* A ring of at least `ring_samples`; chunks of `chunk_samples`, 0: as the agent chooses them,
 * `batch` where there are gaps. */
void fake_lane_make(struct fake_lane *lane, uint64_t sample_bytes, uint64_t chunk_samples,
                    uint64_t batch, uint64_t ring_samples);
void fake_lane_remove(struct fake_lane *lane);

/* Copies of the files, as SEATED brings them. */
void fake_lane_files(const struct fake_lane *lane, int files[4]);

/* Publishes the next chunk with `count` samples: 1; 0: the seat has not taken what lies at its
 * place, and is not to be expelled. */
int fake_lane_publish(struct fake_lane *lane, uint64_t count, int expel);

/* Goes on at another chunk. */
void fake_lane_skip_to(struct fake_lane *lane, uint64_t chunk);

/* The default of fill: bytes and labels are functions of the sequence. */
void fake_fill(struct fake_lane *lane, uint64_t sequence, unsigned char *image,
               struct hr__board_sample *sample);
unsigned char fake_byte(uint64_t sequence, uint64_t byte);

#endif
