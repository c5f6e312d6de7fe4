/*
 * The tap: what allocators do, told to a recorder of memory behaviour (memory.h).
 *
 * These functions are not in libheadrace but in libheadrace-tap.so, which is preloaded
 * (LD_PRELOAD) to see host allocations, or named to PyTorch as a pluggable CUDA allocator.
 *
 * Host memory: malloc and its relatives. What PyTorch's CPU allocator takes (aligned allocations
 * that come from libc10) is device 0, of any size; what others take is HR_MEMORY_LIBRARIES, from
 * HEADRACE_TAP_LEAST bytes on (65536). In a program that nobody records from Python,
 * HEADRACE_TAP_RECORD=FILE makes the library record by itself, everything as device 0 there
 * ("%p" in FILE is the process's number: then the programs that it starts record, too).
 *
 * A forked child knows of no block from before, and nobody listens there until it begins itself.
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

/* Where it is told to. Called from any thread, within an allocator: they wait for nobody who may
 * allocate meanwhile. What they allocate themselves is not told. An address's `freed` comes
 * before its next `allocated`; a block that realloc grows or moves ends, and another begins. */
struct hr_tap {
    uint32_t version; /* HR_TAP_VERSION */
    void *arg;
    /* device: as in events. `bytes` of `freed` are those of its allocation. */
    void (*allocated)(void *arg, uint64_t address, uint64_t bytes, uint8_t device);
    void (*freed)(void *arg, uint64_t address, uint64_t bytes, uint8_t device);
    void (*failed)(void *arg, uint64_t bytes, uint8_t device);
    /* May be NULL. Of each block that lives already, from within hr_tap_begin. With it `freed`
     * is told only of blocks of which `allocated` or this was; without it of all. */
    void (*present)(void *arg, uint64_t address, uint64_t bytes, uint8_t device);
};

/* From here on; one at a time: 0, -EBUSY, -ENOTSUP (of another version), or -ENOMEM. `tap` is
 * copied. Any thread; allocates nothing. */
HR_TAP_API int hr_tap_begin(const struct hr_tap *tap);

/* Returns when no call is under way any more; not to be called from one. */
HR_TAP_API void hr_tap_end(void);

/* Bytes of the block that lives at an address, from before the beginning, too; 0: none that
 * was seen. *device: whose. */
HR_TAP_API uint64_t hr_tap_bytes(uint64_t address, uint8_t *device);

/* Non-zero where host allocations are seen: the library was preloaded. */
HR_TAP_API int hr_tap_sees_host(void);

/*
 * PyTorch's pluggable allocator (torch.cuda.memory.CUDAPluggableAllocator): from the device's
 * stream-ordered pool, or by cudaMalloc where there is none, by the CUDA runtime that is loaded.
 * Out of memory, and where there is no CUDA: NULL, or in PyTorch, which does not look, a
 * RuntimeError.
 */
HR_TAP_API void *hr_tap_cuda_malloc(ssize_t size, int device, void *stream);
HR_TAP_API void hr_tap_cuda_free(void *ptr, ssize_t size, int device, void *stream);

#ifdef __cplusplus
}
#endif

#endif
