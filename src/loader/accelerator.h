/*
 * Page-locked batch memory for accelerators, and fences that tell when copies from it are complete.
 *
 * A backend is a constant table of functions. hr__accelerator_none is for loaders that do not pin:
 * it locks nothing and its fences are always done, so the ring needs no special case.
 * hr__accelerator_cuda loads NVIDIA's driver at run time; building it needs no CUDA.
 *
 * A fence covers all work that was submitted to the accelerators before it was recorded. So a copy
 * from a batch is complete when the fence recorded at the batch's release is done, whatever stream
 * the copy was enqueued on.
 */
#ifndef HR_LOADER_ACCELERATOR_H
#define HR_LOADER_ACCELERATOR_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

/* The most devices of one host that a fence can cover. */
#define HR__MAX_DEVICES 32

struct hr__fence {
    void *event[HR__MAX_DEVICES]; /* events of the backend; NULL until first used */
    uint32_t waiting;             /* bit mask of devices whose event may not be complete */
};

struct hr__accelerator {
    const char *name;

    /* Makes the backend's state. Errors: -ENOTSUP, with a message that says what is missing. */
    int (*open)(void **state, struct hr_error *error);
    /* Frees the state. All memory must be unlocked and all fences forgotten by then. */
    void (*close)(void *state);

    /* Page-locks memory for all devices; may take milliseconds. */
    int (*lock)(void *state, void *memory, size_t bytes, struct hr_error *error);
    void (*unlock)(void *state, void *memory);

    /* Writes the PCI bus id of the device that this thread uses, or else of the first that the
     * process uses. Returns 0 if it is unknown. */
    int (*bus_id)(void *state, char *out, int capacity);

    /* Records a fence over everything enqueued so far on any device in use. Returns 0, or -EBUSY if
     * that is not possible now (a stream is being captured); the memory must then stay out of use
     * until a later call succeeds. */
    int (*record)(void *state, struct hr__fence *fence);
    /* Returns non-zero once the recorded work is complete. Never blocks. */
    int (*done)(void *state, struct hr__fence *fence);
    /* Frees the fence's events. */
    void (*forget)(void *state, struct hr__fence *fence);
};

/* Every function but open and close may be called from any thread. One fence is used by one thread
 * at a time. */
extern const struct hr__accelerator hr__accelerator_none;
extern const struct hr__accelerator hr__accelerator_cuda;

#endif
