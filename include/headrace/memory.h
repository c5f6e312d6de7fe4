/*
 * Memory behaviour of training: what every block of memory is, when it is allocated, read,
 * written and freed ("Pinpointing the Memory Behaviors of DNN Training", ISPASS'21).
 *
 * A recorder writes events to a file (docs/memory-format.md) from any number of threads,
 * without a lock and without allocating. What was recorded is in the
 * file however the process ends.
 *
 * Block: an allocation, known by its address from ALLOC to FREE. The same address later is
 * another block. Access: one operator's reading or writing of a block. ATI: the time between
 * two successive accesses to the same block.
 */
#ifndef HEADRACE_MEMORY_H
#define HEADRACE_MEMORY_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum hr_memory_kind {
    HR_MEMORY_ALLOC = 1,    /* a block of `bytes`; what: a stack or 0 */
    HR_MEMORY_FREE = 2,     /* bytes: what it had, or 0 */
    HR_MEMORY_READ = 3,     /* what: the operator's name; bytes: see hr_memory_access */
    HR_MEMORY_WRITE = 4,    /* likewise */
    HR_MEMORY_PRESENT = 5,  /* a block of `bytes` that was there before recording began */
    HR_MEMORY_DESCRIBE = 6, /* what: a name "shape dtype"; bytes: see hr_memory_about */
    HR_MEMORY_MARK = 7,     /* what: a name; bytes: its number. "iteration": one begins */
    HR_MEMORY_FAILED = 8,   /* an allocation of `bytes` was refused: out of memory */
    HR_MEMORY_SEGMENT = 9,  /* an allocator took `bytes` from the device, in which blocks lie */
    HR_MEMORY_SEGMENT_FREE = 10, /* it gave them back */
};

enum hr_memory_phase {
    HR_MEMORY_OUTSIDE = 0, /* of none of these */
    HR_MEMORY_FORWARD = 1,
    HR_MEMORY_BACKWARD = 2,
    HR_MEMORY_OPTIMIZER = 3,
};

enum hr_memory_category {
    HR_MEMORY_UNKNOWN = 0,
    HR_MEMORY_PARAMETER = 1,
    HR_MEMORY_GRADIENT = 2,
    HR_MEMORY_OPTIMIZER_STATE = 3,
    HR_MEMORY_INPUT = 4,
    HR_MEMORY_ACTIVATION = 5,
    HR_MEMORY_TEMPORARY = 6,
    HR_MEMORY_WORKSPACE = 7, /* a block that no operator names */
};

/* Of a DESCRIBE: part is the id of a name, that of the part of the model ("layer1.0.conv2") in
 * which the block was made, or that it belongs to; 0: not known. */
static inline uint64_t hr_memory_about(enum hr_memory_category category, uint32_t part)
{
    return (uint64_t)part << 32 | (uint32_t)category;
}

/* 32 bytes, as in the file. */
struct hr_memory_event {
    uint64_t time_ns; /* since the recording began; 0 when it is given: now */
    uint64_t address;
    uint64_t bytes;
    uint32_t what;  /* id of a name or a stack; 0: none */
    uint8_t kind;   /* enum hr_memory_kind */
    uint8_t phase;  /* enum hr_memory_phase */
    uint8_t device; /* 0: host memory; n: accelerator n - 1; HR_MEMORY_LIBRARIES */
    uint8_t flags;  /* HR_MEMORY_HOST_TIME */
};

/* Host memory that libraries took past the framework's allocator: a device of its own, so that
 * the framework's bytes are those that it reports. */
#define HR_MEMORY_LIBRARIES 255u

/* The time is that of the host's call, not of the accelerator's work. */
#define HR_MEMORY_HOST_TIME 1u

/* Of a READ or WRITE: `call` counts operator calls, so that what one call does is told;
 * stack: id, 0: none. */
static inline uint64_t hr_memory_access(uint32_t call, uint32_t stack)
{
    return (uint64_t)call << 32 | stack;
}

/* One line of a stack. */
struct hr_memory_frame {
    uint32_t file, function; /* ids of names */
    uint32_t line, zero;
};

struct hr_memory_recorder;

struct hr_memory_recorder_options {
    size_t size;          /* sizeof, set by the caller */
    uint64_t limit_bytes; /* of the file: from there on nothing is recorded; 0 (default): none */
};

HR_API void hr_memory_recorder_options_init(struct hr_memory_recorder_options *options,
                                            size_t size);

static inline void hr_memory_recorder_options_default(struct hr_memory_recorder_options *options)
{
    hr_memory_recorder_options_init(options, sizeof *options);
}

/*
 * Makes the file, which must not exist or be a record (that is replaced), owner-only.
 * options: NULL for the defaults. On success *out is the caller's. Errors: of the file, with
 * its name; -ENOSPC; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_memory_recorder_create(struct hr_memory_recorder **out, const char *path,
                                                  const struct hr_memory_recorder_options *options,
                                                  struct hr_error *error);

/* Ends the recording and closes the file. No thread records by then. Accepts NULL; in a
 * forked child it leaves the file alone. */
HR_API void hr_memory_recorder_destroy(struct hr_memory_recorder **recorder);

/*
 * Records an event. Any thread; no lock and no allocation but at a thread's first event and
 * once every 8,000. Never fails: where the disk is full or the limit is reached events are counted
 * as lost and nothing else happens; in a forked child nothing does.
 */
HR_API void hr_memory_record(struct hr_memory_recorder *recorder,
                             const struct hr_memory_event *event);

/* The id of a name, which is written once; 0 where that is not possible. Any thread; takes a
 * lock: callers keep ids. */
HR_API uint32_t hr_memory_name(struct hr_memory_recorder *recorder, const char *text);

/* The same for a stack of up to 64 frames, the innermost first. */
HR_API uint32_t hr_memory_stack(struct hr_memory_recorder *recorder,
                                const struct hr_memory_frame *frames, size_t count);

/* Writes a fact of the run, "name=value". */
HR_API void hr_memory_fact(struct hr_memory_recorder *recorder, const char *name,
                           const char *value);

/* When an accelerator really did what an operator's call asked for, in the clock of events. */
struct hr_memory_ran {
    uint64_t begin_ns, end_ns; /* of its first and last kernel or copy */
    uint32_t call;
    uint32_t device; /* as in events: 1 and up */
};

/* Writes such times, which become known late: in any order, at any time before the end. Takes a
 * lock; lost where there is no room. */
HR_API void hr_memory_record_ran(struct hr_memory_recorder *recorder,
                                 const struct hr_memory_ran *ran, size_t count);

/* Nanoseconds since the recording began: the clock of events. */
HR_API uint64_t hr_memory_now_ns(const struct hr_memory_recorder *recorder);

/* Events recorded, and lost, so far. Any thread. */
HR_API void hr_memory_counts(const struct hr_memory_recorder *recorder, uint64_t *recorded,
                             uint64_t *lost);

/* ---- accelerators ---- */

/* Follows what CUDA devices run, by CUPTI, which is loaded at run time. */
struct hr_memory_kernels;

/*
 * From here on kernels and copies are joined to the operator calls that asked for them, and
 * their times recorded. On success *out is the caller's; it ends before the recorder does.
 * Errors: -ENOTSUP: there is no CUDA or no CUPTI here, or another tool uses it (the message
 * tells); -ENOMEM.
 */
HR_API HR_NODISCARD int hr_memory_kernels_open(struct hr_memory_kernels **out,
                                               struct hr_memory_recorder *recorder,
                                               struct hr_error *error);

/* Around an operator's call, in the thread that makes it; calls may nest. */
HR_API void hr_memory_kernels_call(struct hr_memory_kernels *kernels, uint32_t call);
HR_API void hr_memory_kernels_called(struct hr_memory_kernels *kernels);

/* Waits for the devices' records of what they have run so far; may be NULL. */
HR_API void hr_memory_kernels_close(struct hr_memory_kernels **kernels);

/* ---- analysing ---- */

/* A record, analysed. Immutable; may be used by several threads. */
struct hr_memory;

struct hr_memory_options {
    size_t size;                             /* sizeof, set by the caller */
    double h2d_bytes_per_s, d2h_bytes_per_s; /* between host and accelerator, for swap advice; 0
                                                (default): what the record says, else 12e9 */
    int points;                              /* of a timeline; 0 (default): 1000 */
};

HR_API void hr_memory_options_init(struct hr_memory_options *options, size_t size);

static inline void hr_memory_options_default(struct hr_memory_options *options)
{
    hr_memory_options_init(options, sizeof *options);
}

/*
 * Reads a record and analyses it: live bytes and their peak, intervals between accesses, the
 * iterative pattern, advice. What is damaged is left out and told. options: NULL for the
 * defaults. On success *out is the caller's. Blocks: about 0.1 s a million events.
 * Of other tools' files, too: what hr_memory_import takes. Errors: of the file; -EBADMSG: no
 * record, or not readable as what it looks like; -ENOTSUP: of another version; -ENODATA: it has
 * no events; -EINVAL: the options; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_memory_open(struct hr_memory **out, const char *path,
                                       const struct hr_memory_options *options,
                                       struct hr_error *error);
HR_API void hr_memory_destroy(struct hr_memory **memory);

/* All of it as JSON (docs/memory-format.md); the text belongs to the analysis. */
HR_API const char *hr_memory_json(const struct hr_memory *memory);

/*
 * Writes what others recorded as a record: a snapshot of PyTorch's allocator (a pickle, of which
 * nothing is executed), a Kineto trace with [memory] events, PyTorch's raw memory timeline; these
 * may be gzipped. They tell of allocations, not of accesses. `to` as of
 * hr_memory_recorder_create. Errors: of the files; -EBADMSG: none of these, or damaged, with the
 * place; -ENODATA: no memory events; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_memory_import(const char *from, const char *to, struct hr_error *error);

/* What is found, for people: as text of at most `columns` (40 to 160) columns, or as one HTML
 * page that needs no network; of several records side by side, the first explained in full.
 * path: "-" is standard output. Errors: -EINVAL, of the file, -ENOMEM. */
HR_API HR_NODISCARD int hr_memory_write_text(const struct hr_memory *const *memories, size_t count,
                                             const char *path, int columns, struct hr_error *error);
HR_API HR_NODISCARD int hr_memory_write_page(const struct hr_memory *const *memories, size_t count,
                                             const char *path, struct hr_error *error);

/* What is different between two records: peaks by category, groups of blocks that came, went or
 * grew, iterations, intervals. */
struct hr_memory_comparison;

/* Borrows both, which stay until it is destroyed. Errors: -ENOMEM. */
HR_API HR_NODISCARD int hr_memory_compare(struct hr_memory_comparison **out,
                                          const struct hr_memory *before,
                                          const struct hr_memory *after, struct hr_error *error);
HR_API void hr_memory_comparison_destroy(struct hr_memory_comparison **comparison);

/* The largest growth of a device's peak, as a share of what it was: 0.05 is 5 % more, negative
 * less. */
HR_API double hr_memory_comparison_growth(const struct hr_memory_comparison *comparison);
HR_API const char *hr_memory_comparison_json(const struct hr_memory_comparison *comparison);
HR_API HR_NODISCARD int
hr_memory_write_comparison_text(const struct hr_memory_comparison *comparison, const char *path,
                                int columns, struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
