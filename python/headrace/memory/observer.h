/*
 * Interface between headrace's extension and the operator observer (observer.cpp).
 *
 * The extension is built without torch. The observer is compiled on the user's machine against
 * the installed torch, and the extension loads it. Each hands the other a table of functions.
 * All of them except `lock` are called with the GIL held.
 */
#ifndef HEADRACE_OBSERVER_H
#define HEADRACE_OBSERVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OBSERVER_VERSION 1

struct _object; /* PyObject */
struct memory;  /* the recorder */

/* A tensor among an operator's arguments or results. */
struct observed_tensor {
    uint64_t impl;      /* address of its StorageImpl; 0: it has none */
    const void *tensor; /* for struct observer_torch's functions; valid while the operator runs */
    uint32_t argument;  /* its position in the operator's schema */
};

struct observed_tensors {
    const struct observed_tensor *all;
    size_t count;
    uint64_t truths; /* bit i: argument i is True */
};

/* The memory of a tensor's storage. */
struct observed_storage {
    uint64_t data, bytes;
    int32_t device; /* as in struct hr_memory_event; -1: not recorded */
};

/* Space for the extension's data about one operator call. */
struct observed_call {
    uint64_t room[12];
};

/* Functions that the extension gives the observer. */
struct observer_core {
    uint32_t version;
    /* Take and release the GIL. */
    int (*lock)(void);
    void (*unlock)(int state);
    /* Returns the description of an operator, valid as long as the recorder; NULL if its calls
     * are not recorded. */
    const void *(*describe)(struct memory *m, const char *name, const char *overload);
    /* Called before and after an operator. Each `before` is followed by `after` or `failed`. */
    void (*before)(struct memory *m, struct observed_call *call, const void *op,
                   const struct observed_tensors *arguments);
    void (*after)(struct observed_call *call, const struct observed_tensors *arguments,
                  const struct observed_tensors *results);
    void (*failed)(struct observed_call *call, const char *text, int is_out_of_memory);
};

/* Functions that the observer gives the extension. */
struct observer_torch {
    uint32_t version;
    void (*look)(const void *tensor, struct observed_storage *out);
    /* Returns a new reference to the Python object of the tensor's storage; NULL with an
     * exception. */
    struct _object *(*storage)(const void *tensor);
    /* Formats shape and type, as "[64, 10] float32". */
    void (*text)(const void *tensor, char *out, size_t size);
};

/* Exported by the observer. Between the two calls it observes the operators of the calling thread
 * and of the backward passes that this thread starts. headrace_observer_begin returns NULL if it
 * cannot, and writes the reason to `problem`. */
const struct observer_torch *headrace_observer_begin(const struct observer_core *core,
                                                     struct memory *m, char *problem, size_t size);
void headrace_observer_end(void);

#ifdef __cplusplus
}
#endif

#endif
