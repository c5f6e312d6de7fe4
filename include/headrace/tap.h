/*
 * The tap: what allocators do, told to a recorder of memory behaviour (memory.h).
 *
 * These functions are not in libheadrace but in libheadrace-tap.so, which is preloaded
 * (LD_PRELOAD) to see host allocations, or named to PyTorch as a pluggable CUDA allocator.
 *
 * Host memory: malloc and its relatives. What PyTorch's CPU allocator takes (calls that come
 * from libc10) is device 0, of any size; what others take is HR_MEMORY_LIBRARIES, from
 * HEADRACE_TAP_LEAST bytes on (65536). In a program that nobody records from Python,
 * HEADRACE_TAP_RECORD=FILE makes the library record by itself, everything as device 0 there.
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

#define HR_TAP_VERSION 1u

/* Where it is told to. Called from any thread, within an allocator: they neither allocate by the
 * ways that are tapped nor wait for anyone who does. */
struct hr_tap {
    uint32_t version; /* HR_TAP_VERSION */
    void *arg;
    /* device: as in events. `bytes` of `freed` are those of its allocation. */
    void (*allocated)(void *arg, uint64_t address, uint64_t bytes, uint8_t device);
    void (*freed)(void *arg, uint64_t address, uint64_t bytes, uint8_t device);
    void (*failed)(void *arg, uint64_t bytes, uint8_t device);
};

/* From here on; one at a time: 0, -EBUSY, or -ENOTSUP (of another version). `tap` is copied. */
int hr_tap_begin(const struct hr_tap *tap);

/* Returns when no call is under way any more. */
void hr_tap_end(void);

/* Bytes of the block that lives at an address, from before the beginning, too; 0: none that
 * was seen. *device: whose. */
uint64_t hr_tap_bytes(uint64_t address, uint8_t *device);

/* Non-zero where host allocations are seen: the library was preloaded. */
int hr_tap_sees_host(void);

/* PyTorch's pluggable allocator (torch.cuda.memory.CUDAPluggableAllocator): from the device's
 * stream-ordered pool, by the CUDA runtime that is loaded. NULL: out of memory. */
void *hr_tap_cuda_malloc(ssize_t size, int device, void *stream);
void hr_tap_cuda_free(void *ptr, ssize_t size, int device, void *stream);

#ifdef __cplusplus
}
#endif

#endif
