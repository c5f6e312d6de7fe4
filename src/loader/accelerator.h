/*
 * Page-locked batch memory for accelerators, and knowing when the copies from
 * it are complete.
 *
 * A backend is a constant table. hr__accelerator_none is the one of loaders
 * that do not pin: it locks nothing and every fence is done at once, so that the
 * ring has no special case. hr__accelerator_cuda loads NVIDIA's driver at run
 * time; the build needs nothing of it.
 *
 * A fence stands for all work that accelerators had been given when it was
 * recorded: whatever stream a copy from a batch was enqueued on before the
 * batch was released, it is complete when the fence is done.
 */
#ifndef HR_LOADER_ACCELERATOR_H
#define HR_LOADER_ACCELERATOR_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

/* Devices of one host that a fence can cover. */
#define HR__MAX_DEVICES 32

struct hr__fence {
    void *event[HR__MAX_DEVICES]; /* the backend's, NULL until first used */
    uint32_t waiting;             /* devices (bits) whose event may not be complete */
};

struct hr__accelerator {
    const char *name;

    /* Makes the backend's state. Errors: -ENOTSUP says what is missing. */
    int (*open)(void **state, struct hr_error *error);
    /* Frees it. All memory is unlocked and all fences are forgotten by then. */
    void (*close)(void *state);

    /* Page-locks memory for all devices; may take milliseconds. */
    int (*lock)(void *state, void *memory, size_t bytes, struct hr_error *error);
    void (*unlock)(void *state, void *memory);

    /* Records a fence over everything enqueued so far on any device in use.
     * 0, or -EBUSY: cannot be told now (a stream is being captured); the memory
     * must stay out of use until a later call succeeds. */
    int (*record)(void *state, struct hr__fence *fence);
    /* Non-zero once the recorded work is complete. Never blocks. */
    int (*done)(void *state, struct hr__fence *fence);
    /* Frees the fence's events. */
    void (*forget)(void *state, struct hr__fence *fence);
};

/* Every function but open and close may be called from any thread; one fence
 * is used by one thread at a time. */
extern const struct hr__accelerator hr__accelerator_none;
extern const struct hr__accelerator hr__accelerator_cuda;

#endif
