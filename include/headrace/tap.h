/*
 * The tap: reports what allocators do to a recorder of memory behaviour (memory.h).
 *
 * These functions are not in libheadrace but in libheadrace-tap.so. Preload that library
 * (LD_PRELOAD) to see host allocations, or pass it to PyTorch as a pluggable CUDA allocator.
 *
 * Host memory is malloc and its relatives. Allocations of PyTorch's CPU allocator (aligned
 * allocations called from libc10) are device 0, of any size. Those of other callers are
 * HR_MEMORY_LIBRARIES, from HEADRACE_TAP_LEAST bytes on (default 65536). In a program that is not
 * recorded from Python, HEADRACE_TAP_RECORD=FILE makes the library record by itself, with
 * everything as device 0. "%p" in FILE stands for the process id; with it, the programs that this
 * program starts are recorded, too.
 *
 * A forked child knows no block from before the fork, and reports nothing until it calls
 * hr_tap_begin itself.
 */
#ifndef HEADRACE_TAP_H
#define HEADRACE_TAP_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HR_TAP_API __attribute__((visibility("default")))

#define HR_TAP_VERSION 1u

/* The callbacks of a listener. Called from any thread, inside an allocator: they must not wait for
 * a thread that may allocate. Their own allocations are not reported. An address's `freed` comes
 * before its next `allocated`. A realloc that grows or moves a block ends it and begins another. */
struct hr_tap {
    uint32_t version; /* HR_TAP_VERSION */
    void *arg;
    /* device: as in events. `bytes` of `freed` is the size of the allocation. */
    void (*allocated)(void *arg, uint64_t address, uint64_t bytes, uint8_t device);
    void (*freed)(void *arg, uint64_t address, uint64_t bytes, uint8_t device);
    void (*failed)(void *arg, uint64_t bytes, uint8_t device);
    /* May be NULL. Called from within hr_tap_begin for each live block. If it is set, `freed` is
     * called only for blocks that `allocated` or `present` reported; if NULL, for all blocks. */
    void (*present)(void *arg, uint64_t address, uint64_t bytes, uint8_t device);
};

/* Starts reporting to `tap`, which is copied. Only one listener at a time. Returns 0, -EBUSY,
 * -ENOTSUP (another version) or -ENOMEM. Any thread; allocates nothing. */
HR_TAP_API int hr_tap_begin(const struct hr_tap *tap);

/* Stops reporting. Returns when no callback is running any more; must not be called from one. */
HR_TAP_API void hr_tap_end(void);

/* Returns the size of the live block at an address, even one from before hr_tap_begin; 0: the tap
 * saw no such block. *device: the block's device. */
HR_TAP_API uint64_t hr_tap_bytes(uint64_t address, uint8_t *device);

/* Returns non-zero if the tap sees host allocations, that is, if the library was preloaded. */
HR_TAP_API int hr_tap_sees_host(void);

/*
 * PyTorch's pluggable allocator (torch.cuda.memory.CUDAPluggableAllocator). It allocates from the
 * device's stream-ordered pool, or with cudaMalloc if there is none, using the CUDA runtime that
 * is already loaded. Out of memory, or without CUDA, it returns NULL; called from PyTorch, which
 * does not check for NULL, it raises a RuntimeError.
 */
HR_TAP_API void *hr_tap_cuda_malloc(ssize_t size, int device, void *stream);
HR_TAP_API void hr_tap_cuda_free(void *ptr, ssize_t size, int device, void *stream);

#ifdef __cplusplus
}
#endif

#endif
