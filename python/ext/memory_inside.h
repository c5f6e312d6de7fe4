/*
 * What the files of headrace._core.MemoryRecorder share: memory.c (the type), memory_dispatch.c
 * (operators), memory_observer.c (operators that an observer below Python sees), memory_blocks.c
 * (storages and the memory below them), memory_stack.c (lines of code), memory_tap.c (what the
 * allocators report), memory_map.c (a table), memory_state.c (helpers of all). A file calls those
 * that are declared above it here.
 *
 * All of it is under the GIL but for what the tap calls, which any thread may do: that is the
 * recorder and the atomic members.
 */
#ifndef HEADRACE_PYTHON_MEMORY_INSIDE_H
#define HEADRACE_PYTHON_MEMORY_INSIDE_H

#include "core.h"

#include "../headrace/memory/observer.h"

#include <stdatomic.h>

/* ---- a table of numbers ---- */

#define MEMORY_NONE UINT32_MAX

/* From numbers other than 0 to numbers; zeroed: empty. */
struct memory_map {
    struct memory_pair *pairs;
    size_t capacity; /* a power of two */
    size_t count;
};

/* MEMORY_NONE: it is not there. */
uint32_t memory_map_get(const struct memory_map *map, uint64_t key);
/* 0; -1: out of memory, with an exception. */
int memory_map_put(struct memory_map *map, uint64_t key, uint32_t value);
void memory_map_remove(struct memory_map *map, uint64_t key);
void memory_map_clear(struct memory_map *map);

/* ---- storages ---- */

/* A storage that is followed, from first sight until it is freed. */
struct memory_storage {
    uint64_t impl;       /* address of PyTorch's object */
    PyObject *reference; /* weak; its callback is called at the end */
    uint64_t data;       /* address of its memory; 0: it has none of a device's */
    uint64_t bytes;
    uint32_t next;       /* storage over the same memory, or the next free place; MEMORY_NONE */
    uint32_t part;       /* name of the part of the model; 0: not known */
    uint8_t device;      /* as in events */
    uint8_t category;    /* that was recorded */
    uint8_t is_recorded; /* we recorded its allocation, and record its end */
};

struct memory_storages {
    struct memory_storage *all;
    uint32_t count, room, free;
    struct memory_map by_impl, by_reference;
    struct memory_map by_data; /* first of the chain */
};

/* ---- code ---- */

/* Lines that called operators. */
struct memory_stacks {
    PyObject *classify;     /* classify(code) -> (file, function) as ids, or None: left out */
    PyObject *sequence_of;  /* torch._C._autograd._get_sequence_nr */
    PyObject *current_node; /* torch._C._current_autograd_node */
    struct memory_code *codes;
    uint32_t code_count, code_room;
    struct memory_map by_code;
    struct memory_forward *forward; /* stacks by autograd's sequence numbers: a ring */
    uint64_t latest;                /* sequence number there; UINT64_MAX: none */
};

/* ---- the recording ---- */

struct memory {
    PyObject_HEAD struct hr_memory_recorder *recorder;
    struct memory_tap *tap;             /* NULL: none */
    struct hr_memory_kernels *kernels;  /* NULL: accelerators' times are not followed */
    const struct observer_torch *torch; /* functions of the observer; NULL: a mode records */
    void (*end_observing)(void);

    PyObject *describe;    /* describe(func) -> bytes of a struct op; also of (name, overload) */
    PyObject *failed;      /* failed(exception, is_recorded): an operator raised it */
    PyObject *address_of;  /* torch._C._storage_address */
    PyObject *tensor_type; /* torch.Tensor */
    PyObject *ops;         /* by func */
    PyObject *names;       /* ids by (shape, dtype) */
    PyObject *types;       /* of tensors: whether they have a dispatch of their own */
    PyObject *plain;       /* torch.Tensor.__torch_dispatch__ */
    PyObject *on_freed;    /* our own method */
    PyObject *changes;     /* of the phase, while history reports: list of (ns, phase) */
    PyObject *untyped_storage, *data_ptr, *nbytes, *is_cpu, *shape, *dtype, *f_back; /* str */

    struct memory_storages storages;
    struct memory_stacks stacks;
    uint64_t without_storage; /* tensors that have none */
    uint32_t call;            /* operator calls so far */
    uint32_t part;            /* name of the part of the model that runs */
    uint8_t is_surveying;     /* what is met was there before */
    uint8_t history_reports;  /* of accelerators' allocations */
    uint8_t awaits_update;    /* outside passes, what writes a parameter is an optimizer's step */
    uint8_t was_updated;      /* such a step was seen */

    _Atomic uint8_t phase;        /* enum hr_memory_phase */
    _Atomic uint32_t alloc_stack; /* of the operator that runs */
    _Atomic uintptr_t op_thread;  /* in which it does; 0: none */
};

/* ---- memory_state.c ---- */

/* Records an event with the phase of the moment. */
void memory_record(struct memory *m, struct hr_memory_event event);

/* Drops what a call raised, but for what ends programs (KeyboardInterrupt, ...), which stays. */
void memory_forget(void);

/* ---- memory_tap.c ---- */

/* The tap reports allocations from now on: 1; 0: there is none; -1 with an exception. */
int memory_tap_begin(struct memory *m);
void memory_tap_end(struct memory *m);
/* Bytes of a block that the tap knows, and its device; 0: it does not. */
uint64_t memory_tap_bytes(const struct memory *m, uint64_t address, uint8_t *device);
/* Refused allocations that it reported. */
uint64_t memory_tap_failures(const struct memory *m);

/* ---- memory_stack.c ---- */

/* The id of the lines that called the operator, 0: none; -1 with an exception. */
int64_t memory_stack_now(struct memory *m);
void memory_stacks_clear(struct memory *m);

/* ---- memory_blocks.c ---- */

/* What a type of tensors is. */
enum memory_kind {
    MEMORY_PLAIN,
    MEMORY_SUBCLASS, /* made of other tensors, by a dispatch of its own */
    MEMORY_UNREAL,   /* of PyTorch's tracing: only shapes, or a graph; has a mode of its own */
};

enum memory_kind memory_kind_of(struct memory *m, PyObject *type);

/* One access of what an operator was given or gave. */
struct memory_access {
    uint8_t kind; /* enum hr_memory_kind; 0: none, but what is new is followed */
    int is_new;   /* what is not known yet was allocated by the operator */
    int only_new; /* what is known already was not accessed */
    int moves;    /* its memory may be another now */
    uint64_t time_ns;
    uint32_t op, call, stack;
};

/* Takes in an access of all tensors in an object: a tensor, a tuple, a list. */
void memory_touch(struct memory *m, PyObject *object, const struct memory_access *access);
/* The same of a tensor that an observer found. */
void memory_touch_observed(struct memory *m, const struct observed_tensor *tensor,
                           const struct memory_access *access);

/* The place of a tensor's storage, followed from now on; MEMORY_NONE: it has none. */
uint32_t memory_storage_of(struct memory *m, PyObject *tensor, const struct memory_access *access);

/* Says what a storage is; `shape` is a name. part: 0: what was said. */
void memory_say(struct memory *m, uint32_t storage, uint32_t shape, uint32_t category,
                uint32_t part);
/* The name of a tensor's shape and type; 0: none. */
uint32_t memory_shape(struct memory *m, PyObject *tensor);

/* Whether a tensor, a tuple or a list holds a parameter; of what is followed already. */
int memory_is_parameter(struct memory *m, PyObject *object);
int memory_is_parameter_observed(const struct memory *m, const struct observed_tensor *tensor);

/* A storage's memory may be another now. */
void memory_moved(struct memory *m, uint32_t storage, PyObject *object, uint64_t time_ns);

/* A storage was freed: the reference to it says so. */
void memory_ended(struct memory *m, PyObject *reference);
int memory_storages_visit(struct memory *m, visitproc visit, void *arg);
void memory_storages_clear(struct memory *m);

/* ---- memory_dispatch.c ---- */

/* What an operator does, by its schema: the Python half packs it into bytes. */
struct memory_op {
    uint32_t name;            /* id */
    uint32_t flags;           /* OP_ */
    uint64_t written_args;    /* bit i: the i-th argument is written, not read */
    uint64_t written_if;      /* the same where argument `condition` is true */
    uint64_t written_kwargs;  /* keyword arguments that are, by their positions in the schema */
    uint32_t condition, zero; /* index of an argument */
    char written_names[64];   /* keyword arguments that are: " out " or " values indices " */
};

/* One call of an operator. */
struct memory_call {
    struct memory *m;
    const struct memory_op *op;
    struct memory_access access;
    struct hr_memory_kernels *kernels;
    uint64_t failures; /* refused allocations before it */
    uintptr_t outer_thread;
    uint32_t outer_stack;
    int is_attributed; /* what is allocated is of this call's lines and thread */
    int is_update;     /* it is of an optimizer that is none of torch's */
};

/* What an operator is given or gives: Python's objects, or what an observer found. */
struct memory_operands {
    PyObject *args, *kwargs; /* a tuple and a dictionary, or NULL; a result alone in `args` */
    const struct observed_tensors *observed;
};

/* Whether anything of an operator is recorded. */
int memory_op_counts(const struct memory_op *op);

/* Before an operator is called: what it reads. 0; -1 with an exception. */
int memory_call_begin(struct memory *m, struct memory_call *call, const struct memory_op *op,
                      const struct memory_operands *arguments);
/* The operator has returned, or failed. */
void memory_call_returned(struct memory_call *call);
/* What it wrote, and what is new. */
void memory_call_end(struct memory_call *call, const struct memory_operands *arguments,
                     const struct memory_operands *results);
/* It raised `error`, or NULL: Python's exception. */
void memory_call_failed(struct memory_call *call, PyObject *error);

/* A method, __torch_dispatch__. */
PyObject *memory_dispatch(PyObject *object, PyObject *arguments);

/* ---- memory_observer.c ---- */

/* observe(path): operators of this thread come from an observer below Python from now on; why
 * that is not possible, or None. */
PyObject *memory_observe(PyObject *object, PyObject *path);
void memory_observe_end(struct memory *m);

#endif
