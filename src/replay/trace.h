/*
 * A trace of PyTorch's profiler (Kineto's Chrome JSON, plain or gzipped) as compact columns: the
 * slices that a replay needs, 48 bytes each, names once each. Flows, counters, overlays of
 * annotations on the GPU and instants are left out: slices are linked by their arguments, because
 * many flows end without having begun.
 *
 * The file is read as a stream, so memory is a fraction of the file's length.
 */
#ifndef HR_REPLAY_TRACE_H
#define HR_REPLAY_TRACE_H

#include <headrace/base.h>

#include "base/ids.h"

#include <stddef.h>
#include <stdint.h>

enum hr__trace_kind {
    HR__TRACE_OP,         /* cpu_op: an operator of PyTorch */
    HR__TRACE_RUNTIME,    /* cuda_runtime, cuda_driver: a call of CUDA or HIP */
    HR__TRACE_PYTHON,     /* python_function */
    HR__TRACE_ANNOTATION, /* user_annotation */
    HR__TRACE_KERNEL,
    HR__TRACE_COPY, /* gpu_memcpy */
    HR__TRACE_SET,  /* gpu_memset */
    HR__TRACE_SYNC, /* cuda_sync: what a call or a stream waited for */
    HR__TRACE_KINDS
};

enum hr__trace_sync {
    HR__SYNC_UNKNOWN,
    HR__SYNC_CONTEXT,
    HR__SYNC_STREAM,
    HR__SYNC_EVENT,
    HR__SYNC_WAIT, /* Stream Wait Event */
};

#define HR__TRACE_NONE (-1)

struct hr__trace_event {
    int64_t begin_ns, length_ns; /* begin: since 1970, or what the trace counts from */
    int64_t link;                /* correlation; operators: sequence number; HR__TRACE_NONE: none */
    int64_t value;  /* copies and collectives: bytes; syncs: correlation of the event's record;
                       operators: of the first input, if shapes were recorded; HR__TRACE_NONE:
                       none */
    uint32_t name;  /* index of `names` */
    uint32_t track; /* index of `tracks`: a thread or a stream */
    int32_t number; /* syncs: the stream waited for; collectives: ranks in the group;
                       HR__TRACE_NONE: unknown */
    uint8_t kind;   /* enum hr__trace_kind */
    uint8_t sync;   /* enum hr__trace_sync */
    uint16_t group; /* collectives of devices: 1 + an index of `groups`; 0: unknown */
};

/* A process group of torch.distributed. */
struct hr__trace_group {
    char *name;  /* PyTorch's, the same on all ranks, often a number; where old versions write none,
                    the list of its ranks; owned */
    char *label; /* for people: "group 'tp' (ranks [0, 1])"; owned */
    int64_t size; /* ranks; HR__TRACE_NONE: unknown */
};

/* A CPU thread or a stream of a device. */
struct hr__trace_track {
    int64_t process, thread; /* numbers, or hashes of texts; streams: device and stream */
    char *name;              /* from the trace's metadata; NULL: none; owned */
    int is_stream;
};

struct hr__trace_data {
    struct hr__trace_event *events; /* in the file's order */
    size_t event_count;
    char **names;
    struct hr__ids name_ids; /* name_ids.count names; an id is an index + 1 */
    struct hr__trace_track *tracks;
    size_t track_count;
    struct hr__trace_group *groups; /* of distributedInfo and of collectives */
    size_t group_count;
    char *device;   /* name of the first accelerator; NULL: unknown; owned */
    int64_t rank;   /* HR__TRACE_NONE: unknown */
    int64_t ranks;  /* world size; HR__TRACE_NONE: unknown */
    uint64_t read;  /* events in the file, of all kinds */
    uint64_t wrong; /* of these, slices without a time, or with a negative length */
    uint64_t bytes; /* of the file, decompressed */
};

/* Reads a trace. The caller clears *out, also after an error. Errors: of the file; -EBADMSG: no
 * JSON, or no trace, with the place; -EFBIG: nested too deeply; -ENODATA: no slice that a replay
 * could use; -ENOMEM. */
HR_NODISCARD int hr__trace_read(struct hr__trace_data *out, const char *path,
                                struct hr_error *error);

/* The same from memory. */
HR_NODISCARD int hr__trace_parse(struct hr__trace_data *out, const void *bytes, size_t length,
                                 const char *name, struct hr_error *error);

void hr__trace_clear(struct hr__trace_data *trace);

static inline const char *hr__trace_name(const struct hr__trace_data *trace, uint32_t name)
{
    return trace->names[name];
}

/* Names a group for people, by an event's number. */
static inline const char *hr__trace_group_label(const struct hr__trace_data *trace, uint16_t group)
{
    return group ? trace->groups[group - 1].label : "a group without a name";
}

static inline int64_t hr__trace_end(const struct hr__trace_event *event)
{
    return event->begin_ns + event->length_ns;
}

static inline int hr__trace_is_gpu(const struct hr__trace_event *event)
{
    return event->kind == HR__TRACE_KERNEL || event->kind == HR__TRACE_COPY ||
           event->kind == HR__TRACE_SET;
}

#endif
