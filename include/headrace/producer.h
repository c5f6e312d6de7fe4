/*
 * Producers: processes of a job that make the samples of a dataset for an agent.
 *
 * A *produced* dataset has no files: the job's own code makes its samples, each of the same number
 * of bytes and perhaps an integer label. Loaders of such a dataset need an agent
 * (headrace/loader.h: agent, stream). The agent decides which sample is due, asks a connected
 * producer for it, and hands it to all jobs of the stream. So each sample is made once for all of
 * them, while the code stays in the jobs.
 *
 * A producer writes samples into memory of its own, which the agent maps for reading. If it ends,
 * another producer of the same dataset, of any job, makes the samples that it owed.
 */
#ifndef HEADRACE_PRODUCER_H
#define HEADRACE_PRODUCER_H

#include <headrace/base.h>
#include <headrace/dataset.h>
#include <headrace/recipe.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Largest size of a sample. */
#define HR_PRODUCED_BYTES_MAX (UINT64_C(1) << 30)

/* Describes a produced dataset. Jobs share samples only if all members are equal. */
struct hr_produced_options {
    size_t size;           /* sizeof(struct hr_produced_options) */
    uint64_t count;        /* number of samples */
    uint64_t sample_bytes; /* of each sample, 1 to HR_PRODUCED_BYTES_MAX */
    const char *name;      /* for people, 1 to 200 bytes of UTF-8 */
    uint8_t layout[16];    /* digest of how the bytes of a sample are divided */
    uint8_t digest[16];    /* digest of everything else that the samples depend on */
};

HR_API void hr_produced_options_init(struct hr_produced_options *options, size_t size);

static inline void hr_produced_options_default(struct hr_produced_options *options)
{
    hr_produced_options_init(options, sizeof *options);
}

/*
 * Makes a produced dataset, and a recipe that hands its samples over as they are: as uint8 tensors
 * with 1 channel, 1 row and sample_bytes columns. Both are for hr_loader_create with
 * options.agent, and the caller's. Errors: -EINVAL names the member; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_produced_create(struct hr_dataset **dataset, struct hr_recipe **recipe,
                                           const struct hr_produced_options *options,
                                           struct hr_error *error);

/* Size of a slot of a producer's memory, for samples of this size. */
HR_API uint64_t hr_producer_slot_bytes(uint64_t sample_bytes);

struct hr_producer;

/* A sample to make. It is a function of these numbers alone. */
struct hr_producer_task {
    uint64_t index, epoch, seed;
    uint32_t slot; /* where to write it: at slot * hr_producer_slot_bytes(sample_bytes) */
};

/*
 * Connects to the agent at a path (NULL or "auto": this user's own), which must be running, as a
 * producer of the dataset. `memory` is a memfd of 2 to 64 slots whose size is sealed
 * (F_SEAL_SHRINK, F_SEAL_GROW); it stays the caller's. Each connection needs a new one: the agent
 * may read the samples of an earlier one for a while. On success *out is the caller's. Errors:
 * -ENOENT, -ECONNREFUSED, -ECONNRESET: no agent; -EINVAL: the memory is of another size or not
 * sealed; -EACCES; -EPROTONOSUPPORT: the agent has another version; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_producer_connect(struct hr_producer **out, const char *agent,
                                            const struct hr_dataset *dataset, int memory,
                                            struct hr_error *error);

/* Leaves the agent, which does not count this as a failure of the samples not made. Accepts
 * NULL. */
HR_API void hr_producer_destroy(struct hr_producer **producer);

/*
 * Waits for a task: for half a second at most, or until the file `stop` (-1: none) becomes readable
 * or is closed at its other end. Returns 1 with a task, 0 without one. Errors: -ECONNRESET: the
 * agent has ended; -EINTR; -EPROTO.
 */
HR_API HR_NODISCARD int hr_producer_next(struct hr_producer *producer,
                                         struct hr_producer_task *task, int stop,
                                         struct hr_error *error);

/* The same for several tasks: waits for the first, and takes up to `most` that are here by then.
 * Returns their number. They may be answered in any order. Errors: also -EINVAL: `most` is less
 * than 1. */
HR_API HR_NODISCARD int hr_producer_take(struct hr_producer *producer,
                                         struct hr_producer_task *tasks, int most, int stop,
                                         struct hr_error *error);

/* Hands over the sample of a task, which was written to its slot. Errors: -ECONNRESET. */
HR_API HR_NODISCARD int hr_producer_done(struct hr_producer *producer, uint32_t slot, int64_t label,
                                         struct hr_error *error);

/* Reports that the sample of a task cannot be made. Errors: -ECONNRESET. */
HR_API HR_NODISCARD int hr_producer_failed(struct hr_producer *producer, uint32_t slot,
                                           const char *reason, struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
