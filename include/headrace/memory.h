/*
 * Memory behaviour of training: the contents of every block of memory, and when it is allocated,
 * read, written and freed ("Pinpointing the Memory Behaviors of DNN Training", ISPASS'21).
 *
 * A recorder writes events to a file (docs/memory-format.md) from any number of threads,
 * without locks and without allocating memory. Recorded events are in the file however
 * the process ends.
 *
 * Block: an allocation, identified by its address from ALLOC to FREE. If the address is allocated
 * again later, that is another block. Access: one operator's read or write of a block. ATI (access
 * time interval): the time between two successive accesses to the same block.
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
    HR_MEMORY_ALLOC = 1,         /* a block of `bytes`; what: a stack or 0 */
    HR_MEMORY_FREE = 2,          /* bytes: the block's size, or 0 */
    HR_MEMORY_READ = 3,          /* what: the operator's name; bytes: see hr_memory_access */
    HR_MEMORY_WRITE = 4,         /* likewise */
    HR_MEMORY_PRESENT = 5,       /* a block of `bytes` that existed before recording began */
    HR_MEMORY_DESCRIBE = 6,      /* what: a name "shape dtype"; bytes: see hr_memory_about */
    HR_MEMORY_MARK = 7,          /* what: a name; bytes: its number. "iteration": one begins */
    HR_MEMORY_FAILED = 8,        /* an allocation of `bytes` failed: out of memory */
    HR_MEMORY_SEGMENT = 9,       /* an allocator took `bytes` from the device, to hold blocks */
    HR_MEMORY_SEGMENT_FREE = 10, /* it returned them */
};

enum hr_memory_phase {
    HR_MEMORY_OUTSIDE = 0, /* none of the phases below */
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
    HR_MEMORY_WORKSPACE = 7, /* a block that is no operator's input or output */
};

/* Makes the `bytes` of a DESCRIBE event. part: the id of the name of the module ("layer1.0.conv2")
 * in which the block was made, or that it belongs to; 0: unknown. */
static inline uint64_t hr_memory_about(enum hr_memory_category category, uint32_t part)
{
    return (uint64_t)part << 32 | (uint32_t)category;
}

/* 32 bytes, as in the file. */
struct hr_memory_event {
    uint64_t time_ns; /* since the recording began; 0 in hr_memory_record: now */
    uint64_t address;
    uint64_t bytes;
    uint32_t what;  /* id of a name or a stack; 0: none */
    uint8_t kind;   /* enum hr_memory_kind */
    uint8_t phase;  /* enum hr_memory_phase */
    uint8_t device; /* 0: host memory; n: accelerator n - 1; HR_MEMORY_LIBRARIES */
    uint8_t flags;  /* HR_MEMORY_HOST_TIME */
};

/* Host memory that libraries allocated without the framework's allocator. It counts as a separate
 * device, so that the framework's bytes match what the framework reports. */
#define HR_MEMORY_LIBRARIES 255u

/* The time is that of the call on the host, not of the work on the accelerator. */
#define HR_MEMORY_HOST_TIME 1u

/* Makes the `bytes` of a READ or WRITE event. `call` is the number of the operator call, so that
 * all accesses of one call can be found; stack: id, 0: none. */
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
    uint64_t limit_bytes; /* of the file: later events are lost; 0 (default): no limit */
};

HR_API void hr_memory_recorder_options_init(struct hr_memory_recorder_options *options,
                                            size_t size);

static inline void hr_memory_recorder_options_default(struct hr_memory_recorder_options *options)
{
    hr_memory_recorder_options_init(options, sizeof *options);
}

/*
 * Creates the file, readable only by its owner. `path` must not exist, or must be a record, which
 * is replaced. options: NULL for the defaults. On success the caller owns *out. Errors: of the
 * file, with its name; -ENOSPC; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_memory_recorder_create(struct hr_memory_recorder **out, const char *path,
                                                  const struct hr_memory_recorder_options *options,
                                                  struct hr_error *error);

/* Ends the recording and closes the file. No thread may still be recording. Accepts NULL. In a
 * forked child it does not change the file. */
HR_API void hr_memory_recorder_destroy(struct hr_memory_recorder **recorder);

/*
 * Records an event. Any thread. Takes no lock and allocates nothing, except at a thread's first
 * event and then once every 8,000. Never fails: if the disk is full or the limit is reached, the
 * event is only counted as lost. Does nothing in a forked child.
 */
HR_API void hr_memory_record(struct hr_memory_recorder *recorder,
                             const struct hr_memory_event *event);

/* Returns the id of a name, and writes the name to the file at its first use; 0 if that fails. Any
 * thread. Takes a lock, so callers should keep the ids. */
HR_API uint32_t hr_memory_name(struct hr_memory_recorder *recorder, const char *text);

/* The same for a stack of up to 64 frames, the innermost first. */
HR_API uint32_t hr_memory_stack(struct hr_memory_recorder *recorder,
                                const struct hr_memory_frame *frames, size_t count);

/* Records a fact about the run, "name=value". */
HR_API void hr_memory_fact(struct hr_memory_recorder *recorder, const char *name,
                           const char *value);

/* When an accelerator executed the work of an operator call, in the clock of events. */
struct hr_memory_ran {
    uint64_t begin_ns, end_ns; /* of its first and last kernel or copy */
    uint32_t call;
    uint32_t device; /* as in events: 1 and up */
};

/* Records such times. They become known late, so they may come in any order, at any time before
 * the recording ends. Takes a lock; they are lost if there is no room. */
HR_API void hr_memory_record_ran(struct hr_memory_recorder *recorder,
                                 const struct hr_memory_ran *ran, size_t count);

/* Nanoseconds since the recording began: the clock of events. */
HR_API uint64_t hr_memory_now_ns(const struct hr_memory_recorder *recorder);

/* Returns the number of events recorded, and lost, so far. Any thread. */
HR_API void hr_memory_counts(const struct hr_memory_recorder *recorder, uint64_t *recorded,
                             uint64_t *lost);

/* ---- accelerators ---- */

/* Traces the work of CUDA devices with CUPTI, which is loaded at run time. */
struct hr_memory_kernels;

/*
 * Starts tracing: from now on, matches kernels and copies to the operator calls that launched
 * them, and records their times. On success the caller owns *out and must close it before it
 * destroys the recorder. Errors: -ENOTSUP: no CUDA or no CUPTI here, or another tool uses CUPTI
 * (the message says which); -ENOMEM.
 */
HR_API HR_NODISCARD int hr_memory_kernels_open(struct hr_memory_kernels **out,
                                               struct hr_memory_recorder *recorder,
                                               struct hr_error *error);

/* Begin and end an operator's call, in the thread that makes it. Calls may nest. */
HR_API void hr_memory_kernels_call(struct hr_memory_kernels *kernels, uint32_t call);
HR_API void hr_memory_kernels_called(struct hr_memory_kernels *kernels);

/* Waits for the devices' records of the work done so far, then stops. Accepts NULL. */
HR_API void hr_memory_kernels_close(struct hr_memory_kernels **kernels);

/* ---- analysing ---- */

/* A record that has been analysed. Immutable; several threads may use it. */
struct hr_memory;

struct hr_memory_options {
    size_t size;                             /* sizeof, set by the caller */
    double h2d_bytes_per_s, d2h_bytes_per_s; /* between host and accelerator, for swap advice; 0
                                                (default): from the record, else 12e9 */
    int points;                              /* points of a timeline; 0 (default): 1000 */
};

HR_API void hr_memory_options_init(struct hr_memory_options *options, size_t size);

static inline void hr_memory_options_default(struct hr_memory_options *options)
{
    hr_memory_options_init(options, sizeof *options);
}

/*
 * Reads a record and analyses it: live bytes and their peak, intervals between accesses, the
 * iterative pattern, advice. Leaves out damaged parts and reports them. Also reads the files of
 * other tools that hr_memory_import accepts. options: NULL for the defaults. On success the caller
 * owns *out. Blocks: about 0.1 s per million events. Errors: of the file; -EBADMSG: not a record,
 * or it cannot be read as the format it looks like; -ENOTSUP: another version; -ENODATA: it has no
 * events; -EINVAL: the options; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_memory_open(struct hr_memory **out, const char *path,
                                       const struct hr_memory_options *options,
                                       struct hr_error *error);
HR_API void hr_memory_destroy(struct hr_memory **memory);

/* The whole analysis as JSON (docs/memory-format.md); the analysis owns the text. */
HR_API const char *hr_memory_json(const struct hr_memory *memory);

/*
 * Converts the file of another tool to a record: a snapshot of PyTorch's allocator (a pickle, none
 * of which is executed), a Kineto trace with [memory] events, or PyTorch's raw memory timeline;
 * any of them may be gzipped. They contain allocations but no accesses. `to` as in
 * hr_memory_recorder_create. Errors: of the files; -EBADMSG: none of these formats, or damaged,
 * with the place; -ENODATA: no memory events; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_memory_import(const char *from, const char *to, struct hr_error *error);

/* Write the findings, as text of at most `columns` (40 to 160) columns, or as one HTML page that
 * needs no network. Several records are shown side by side; only the first is explained in full.
 * path: "-" is standard output. Errors: -EINVAL, of the file, -ENOMEM. */
HR_API HR_NODISCARD int hr_memory_write_text(const struct hr_memory *const *memories, size_t count,
                                             const char *path, int columns, struct hr_error *error);
HR_API HR_NODISCARD int hr_memory_write_page(const struct hr_memory *const *memories, size_t count,
                                             const char *path, struct hr_error *error);

/* The differences between two records: peaks by category, groups of blocks that appeared,
 * disappeared or grew, iterations, intervals. */
struct hr_memory_comparison;

/* Compares two analyses, which must live until *out is destroyed. Errors: -ENOMEM. */
HR_API HR_NODISCARD int hr_memory_compare(struct hr_memory_comparison **out,
                                          const struct hr_memory *before,
                                          const struct hr_memory *after, struct hr_error *error);
HR_API void hr_memory_comparison_destroy(struct hr_memory_comparison **comparison);

/* The largest growth of any device's peak, relative to its old peak: 0.05 is 5 % more; negative:
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
