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

/* What the sample at `sequence` is. */
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
    unsigned char *data; /* all that the file may grow to */
    uint64_t file_bytes, data_bytes;
    uint64_t next_chunk; /* number */
    struct fake_lent {
        uint64_t offset, end; /* free when mark has reached `end` */
    } leased[4096];
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
void fake_queue_make(struct fake_queue *queue, uint64_t sample_bytes, uint64_t chunk_samples,
                     uint64_t batch, uint64_t ring_samples);
void fake_queue_remove(struct fake_queue *queue);

/* Copies of the files, as PLACED brings them. */
void fake_queue_files(const struct fake_queue *queue, int files[4]);

/* Publishes the next chunk with `count` samples: 1; 0: the cursor has not taken what lies at its
 * place, and is not to be expelled. */
int fake_queue_publish(struct fake_queue *queue, uint64_t count, int expel);

/* Goes on at another chunk. */
void fake_queue_skip_to(struct fake_queue *queue, uint64_t chunk);

/* The default of fill: bytes and labels are functions of the sequence. */
void fake_fill(struct fake_queue *queue, uint64_t sequence, unsigned char *image,
               struct hr__header_sample *sample);
unsigned char fake_byte(uint64_t sequence, uint64_t byte);

#endif
