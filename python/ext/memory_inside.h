/*
 * Internal header of headrace._core.MemoryRecorder. Its files, from top to bottom layer:
 *
 *   memory.c           the Python type
 *   memory_observer.c  operators reported by the C++ observer below Python
 *   memory_dispatch.c  operators, and __torch_dispatch__
 *   memory_blocks.c    tensor storages and the memory under them
 *   memory_stack.c     call stacks
 *   memory_tap.c       allocations reported by the allocators
 *   memory_state.c     helpers
 *   memory_map.c       hash table
 *
 * A file calls only files below it in this list, whose functions this header declares first.
 *
 * The GIL protects everything except what the tap's callbacks use, because any thread may call
 * them: the recorder and the atomic members of struct memory.
 */
#ifndef HEADRACE_PYTHON_MEMORY_INSIDE_H
#define HEADRACE_PYTHON_MEMORY_INSIDE_H

#include "core.h"

#include "../headrace/memory/observer.h"

#include <stdatomic.h>

/* ---- hash table (memory_map.c) ---- */

#define MEMORY_NONE UINT32_MAX

/* Maps nonzero 64-bit keys to 32-bit values. A zeroed map is empty. */
struct memory_map {
    struct memory_pair *pairs;
    size_t capacity; /* a power of two */
    size_t count;
};

/* Returns the value of a key, or MEMORY_NONE. */
uint32_t memory_map_get(const struct memory_map *map, uint64_t key);
/* Sets a value. Returns 0, or -1 with an exception if out of memory; replacing a value cannot
 * fail. */
int memory_map_put(struct memory_map *map, uint64_t key, uint32_t value);
void memory_map_remove(struct memory_map *map, uint64_t key);
void memory_map_clear(struct memory_map *map);

/* ---- storages ---- */

/* A tensor storage that the recorder tracks, from its first use until it is freed. */
struct memory_storage {
    uint64_t impl;       /* address of PyTorch's StorageImpl */
    PyObject *reference; /* weak reference; its callback reports that the storage was freed */
    uint64_t data;       /* address of its memory; 0: none, or on a device we do not record */
    uint64_t bytes;
    uint32_t next;       /* next storage over the same memory, or next free entry; MEMORY_NONE */
    uint32_t part;       /* name id of its part of the model; 0: unknown */
    uint8_t device;      /* as in struct hr_memory_event */
    uint8_t category;    /* the last one recorded */
    uint8_t is_recorded; /* we recorded its allocation and will record its free */
};

struct memory_storages {
    struct memory_storage *all;
    uint32_t count, room, free;
    struct memory_map by_impl, by_reference;
    struct memory_map by_data; /* first storage of the chain linked by `next` */
};

/* ---- call stacks ---- */

/* State of recording which lines called operators. */
struct memory_stacks {
    PyObject *classify;     /* classify(code) -> (file id, function id), or None to leave it out */
    PyObject *sequence_of;  /* torch._C._autograd._get_sequence_nr */
    PyObject *current_node; /* torch._C._current_autograd_node */
    struct memory_code *codes;
    uint32_t code_count, code_room;
    struct memory_map by_code;
    struct memory_forward *forward; /* ring of stacks by autograd sequence number */
    uint64_t latest;                /* newest sequence number in it; UINT64_MAX: none */
};

/* ---- the recorder ---- */

struct memory {
    PyObject_HEAD struct hr_memory_recorder *recorder;
    struct memory_tap *tap;             /* NULL: none */
    struct hr_memory_kernels *kernels;  /* NULL: no GPU kernel times are recorded */
    const struct observer_torch *torch; /* the observer; NULL: the dispatch mode records */
    void (*end_observing)(void);

    PyObject *describe;    /* describe(func or (name, overload)) -> bytes of a struct memory_op */
    PyObject *failed;      /* failed(exception, is_recorded), called when an operator raises */
    PyObject *address_of;  /* torch._C._storage_address */
    PyObject *tensor_type; /* torch.Tensor */
    PyObject *ops;         /* dict: func or (name, overload) -> bytes from describe() */
    PyObject *names;       /* dict: (shape, dtype) -> name id */
    PyObject *types;       /* dict: tensor type -> enum memory_kind */
    PyObject *plain;       /* torch.Tensor.__torch_dispatch__ */
    PyObject *on_freed;    /* our bound method _freed */
    PyObject *changes;     /* phase changes while history_reports: list of (ns, phase) */
    PyObject *untyped_storage, *data_ptr, *nbytes, *is_cpu, *shape, *dtype, *f_back; /* str */

    struct memory_storages storages;
    struct memory_stacks stacks;
    uint64_t without_storage; /* number of tensors seen that have no storage */
    uint32_t call;            /* operator calls so far */
    uint32_t part;            /* name id of the part of the model that runs */
    uint8_t is_surveying;     /* storages met now existed before the recording */
    uint8_t history_reports;  /* PyTorch's memory history reports accelerators' allocations */
    uint8_t awaits_update;    /* an operator outside passes that writes a parameter is a step */
    uint8_t was_updated;      /* such an optimizer step was seen */

    _Atomic uint8_t phase;        /* enum hr_memory_phase */
    _Atomic uint32_t alloc_stack; /* stack id of the running operator, for its allocations */
    _Atomic uintptr_t op_thread;  /* thread that runs it; 0: none */
};

/* ---- memory_state.c ---- */

/* Records an event with the current phase; does nothing once the recording has ended. */
void memory_record(struct memory *m, struct hr_memory_event event);

/* Clears a pending exception derived from Exception; keeps KeyboardInterrupt and SystemExit. */
void memory_forget(void);

/* ---- memory_tap.c ---- */

/* Starts the tap's reports. Returns 1 if it reports host allocations, 0 if not or if the process
 * has no tap, -1 with an exception. */
int memory_tap_begin(struct memory *m);
void memory_tap_end(struct memory *m);
/* Returns the size of a block that the tap tracks and sets *device; 0 if it does not track it. */
uint64_t memory_tap_bytes(const struct memory *m, uint64_t address, uint8_t *device);
/* Returns how many failed allocations the tap has reported. */
uint64_t memory_tap_failures(const struct memory *m);

/* ---- memory_stack.c ---- */

/* Returns the id of the stack that called the current operator; 0: none; -1 with an exception. */
int64_t memory_stack_now(struct memory *m);
void memory_stacks_clear(struct memory *m);

/* ---- memory_blocks.c ---- */

/* Kind of a tensor type. */
enum memory_kind {
    MEMORY_PLAIN,
    MEMORY_SUBCLASS, /* wraps other tensors: has its own __torch_dispatch__ */
    MEMORY_UNREAL,   /* torch._subclasses: fake or functional tensors of PyTorch's tracing */
};

enum memory_kind memory_kind_of(struct memory *m, PyObject *type);

/* An operator's access to its arguments or results. */
struct memory_access {
    uint8_t kind; /* enum hr_memory_kind; 0: no access, only start tracking new storages */
    int is_new;   /* the operator allocated the storages not tracked yet */
    int only_new; /* skip storages tracked already */
    int moves;    /* the storage's memory may have been replaced */
    uint64_t time_ns;
    uint32_t op, call, stack;
};

/* Records an access to all tensors in an object: a tensor, tuple or list. */
void memory_touch(struct memory *m, PyObject *object, const struct memory_access *access);
/* As memory_touch, for a tensor that the observer reported. */
void memory_touch_observed(struct memory *m, const struct observed_tensor *tensor,
                           const struct memory_access *access);

/* Returns the index of a tensor's storage and tracks it from now on; MEMORY_NONE if it has none. */
uint32_t memory_storage_of(struct memory *m, PyObject *tensor, const struct memory_access *access);

/* Records what a storage holds. `shape` is a name id; part 0 keeps the part recorded before. */
void memory_say(struct memory *m, uint32_t storage, uint32_t shape, uint32_t category,
                uint32_t part);
/* Returns the name id of a tensor's shape and type; 0: none. */
uint32_t memory_shape(struct memory *m, PyObject *tensor);

/* Return nonzero if the tensor (or any in the tuple or list) is a parameter. Only storages tracked
 * already count. */
int memory_is_parameter(struct memory *m, PyObject *object);
int memory_is_parameter_observed(const struct memory *m, const struct observed_tensor *tensor);

/* Updates a storage whose memory may have been replaced (resize_, out=). `object` is its Python
 * storage or tensor. */
void memory_moved(struct memory *m, uint32_t storage, PyObject *object, uint64_t time_ns);

/* Stops tracking the freed storage that the weak reference `reference` was for. */
void memory_ended(struct memory *m, PyObject *reference);
int memory_storages_visit(struct memory *m, visitproc visit, void *arg);
void memory_storages_clear(struct memory *m);

/* ---- memory_dispatch.c ---- */

/* What an operator does, from its schema. The Python package packs it (memory/_schema.py). */
struct memory_op {
    uint32_t name;            /* name id */
    uint32_t flags;           /* OP_ flags */
    uint64_t written_args;    /* bit i: argument i is written, not read */
    uint64_t written_if;      /* further written arguments if argument `condition` is true */
    uint64_t written_kwargs;  /* written keyword arguments, by position in the schema */
    uint32_t condition, zero; /* an argument's index; padding */
    char written_names[64];   /* written keyword arguments: " out " or " values indices " */
};

/* One call of an operator. */
struct memory_call {
    struct memory *m;
    const struct memory_op *op;
    struct memory_access access;
    struct hr_memory_kernels *kernels;
    uint64_t failures; /* failed allocations reported before the call */
    uintptr_t outer_thread;
    uint32_t outer_stack;
    int is_attributed; /* allocations during the call get its stack and thread */
    int is_update;     /* the call is an optimizer step found by its write to a parameter */
};

/* Arguments or results of an operator: Python objects, or tensors from the observer. */
struct memory_operands {
    PyObject *args, *kwargs; /* a tuple and a dict, or NULL; results: any object in `args` */
    const struct observed_tensors *observed;
};

/* Returns nonzero if calls of the operator are recorded at all. */
int memory_op_counts(const struct memory_op *op);

/* Call before the operator runs: records its reads. Returns 0, or -1 with an exception. */
int memory_call_begin(struct memory *m, struct memory_call *call, const struct memory_op *op,
                      const struct memory_operands *arguments);
/* Call as soon as the operator has returned or failed. */
void memory_call_returned(struct memory_call *call);
/* Then, if it returned: records its writes and its new storages. */
void memory_call_end(struct memory_call *call, const struct memory_operands *arguments,
                     const struct memory_operands *results);
/* Or, if it failed: `error` is the exception, NULL if unknown. */
void memory_call_failed(struct memory_call *call, PyObject *error);

/* Method __torch_dispatch__. */
PyObject *memory_dispatch(PyObject *object, PyObject *arguments);

/* ---- memory_observer.c ---- */

/* Method observe(path): loads the observer library at `path`, which from now on reports this
 * thread's operators. Returns None, or a str that says why it cannot. */
PyObject *memory_observe(PyObject *object, PyObject *path);
void memory_observe_end(struct memory *m);

#endif
