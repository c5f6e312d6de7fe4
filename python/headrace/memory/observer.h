/*
 * What headrace's extension and the observer of operators (observer.cpp) are to each other.
 *
 * The extension is built without torch. The observer is compiled on the machine on which it runs,
 * against the torch that is there, and loaded by the extension. Each hands the other a table of
 * functions. All of them but `lock` are called with the interpreter's lock (the GIL).
 */
#ifndef HEADRACE_OBSERVER_H
#define HEADRACE_OBSERVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OBSERVER_VERSION 1

struct _object; /* Python's */
struct memory;  /* the recording */

/* A tensor that an operator was given or gave. */
struct observed_tensor {
    uint64_t impl;      /* address of its storage; 0: it has none */
    const void *tensor; /* for the functions below: valid while the operator runs */
    uint32_t argument;  /* its position in the operator's schema */
};

struct observed_tensors {
    const struct observed_tensor *all;
    size_t count;
    uint64_t truths; /* bit i: the i-th argument is True */
};

/* Memory below a tensor's storage. */
struct observed_storage {
    uint64_t data, bytes;
    int32_t device; /* as in events; -1: memory that does not count */
};

/* One operator's call: the extension's. */
struct observed_call {
    uint64_t room[12];
};

/* What the extension gives the observer. */
struct observer_core {
    uint32_t version;
    /* Takes the GIL, and gives it back. */
    int (*lock)(void);
    void (*unlock)(int state);
    /* What an operator does; NULL: nothing that is recorded. Lives as long as the recording. */
    const void *(*describe)(struct memory *m, const char *name, const char *overload);
    /* Around an operator's call. After `before` comes either `after` or `failed`. */
    void (*before)(struct memory *m, struct observed_call *call, const void *op,
                   const struct observed_tensors *arguments);
    void (*after)(struct observed_call *call, const struct observed_tensors *arguments,
                  const struct observed_tensors *results);
    void (*failed)(struct observed_call *call, const char *text, int is_out_of_memory);
};

/* What the observer gives the extension. */
struct observer_torch {
    uint32_t version;
    void (*look)(const void *tensor, struct observed_storage *out);
    /* A new reference to the Python object of the tensor's storage; NULL with an exception. */
    struct _object *(*storage)(const void *tensor);
    /* "[64, 10] float32" */
    void (*text)(const void *tensor, char *out, size_t size);
};

/* The observer's own functions. Operators of this thread, and of the backward passes that it
 * starts, are observed between them. observer_begin gives NULL where that is not possible, and
 * why in `problem`. */
const struct observer_torch *headrace_observer_begin(const struct observer_core *core,
                                                     struct memory *m, char *problem, size_t size);
void headrace_observer_end(void);

#ifdef __cplusplus
}
#endif

#endif
