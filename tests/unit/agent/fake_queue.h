/*
 * A fake queue of an agent: makes header, data and control block as agent/share.h describes them,
 * and publishes chunks on request. It follows the agent's rules for the places of the ring: it
 * waits for samples that a cursor has not taken, or takes them away from the cursor, and it leaves
 * samples that a job holds to the job.
 */
#ifndef HR_TEST_AGENT_FAKE_QUEUE_H
#define HR_TEST_AGENT_FAKE_QUEUE_H

#include "../test.h"

#include "agent/share.h"

struct fake_queue;

/* Writes the contents of the sample at `sequence`. */
typedef void (*fake_fill_fn)(struct fake_queue *queue, uint64_t sequence, unsigned char *image,
                             struct hr__header_sample *sample);

struct fake_queue {
    uint64_t sample_bytes, chunk_samples, chunk_bytes, places;
    int is_gapless;
    int header_file, data_file, control_file, bell_file;
    struct hr__header *header;
    struct hr__header_place *at;
    struct hr__header_sample *samples;
    struct hr__control *control;
    unsigned char *data; /* mapping of the largest size that the file may have */
    uint64_t file_bytes, data_bytes;
    uint64_t next_chunk; /* number */
    struct fake_lent {
        uint64_t offset, end; /* the range is free once the mark has reached `end` */
    } leased[4096];
    size_t lent_count;
    uint64_t spares[4096]; /* offsets */
    size_t spare_count;
    uint64_t lends;    /* number of places that got other memory */
    uint64_t expelled; /* number of times that a floor was set */
    fake_fill_fn fill;
    void *arg;
};

/* Makes a ring of at least `ring_samples` with chunks of `chunk_samples`; 0: the agent's choice, or
 * `batch` if samples have gaps. */
void fake_queue_make(struct fake_queue *queue, uint64_t sample_bytes, uint64_t chunk_samples,
                     uint64_t batch, uint64_t ring_samples);
void fake_queue_remove(struct fake_queue *queue);

/* Duplicates the descriptors that PLACED carries. */
void fake_queue_files(const struct fake_queue *queue, int files[4]);

/* Publishes the next chunk with `count` samples. Returns 1, or 0 if the cursor has not taken the
 * samples at its place and must not be expelled. */
int fake_queue_publish(struct fake_queue *queue, uint64_t count, int expel);

/* Continues at another chunk. */
void fake_queue_skip_to(struct fake_queue *queue, uint64_t chunk);

/* The default for `fill`: bytes and labels are functions of the sequence number. */
void fake_fill(struct fake_queue *queue, uint64_t sequence, unsigned char *image,
               struct hr__header_sample *sample);
unsigned char fake_byte(uint64_t sequence, uint64_t byte);

#endif
