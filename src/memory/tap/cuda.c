/*
 * The CUDA allocator: the two functions for torch.cuda.memory.CUDAPluggableAllocator.
 *
 * The CUDA runtime is found at run time: the one whose functions the process already has, else a
 * loaded library of one of these versions, else any that can be loaded. Memory comes from the
 * device's default pool in the order of the requesting stream (cudaMallocAsync), and the pool keeps
 * freed memory, as PyTorch's own allocator does. Devices without pools use cudaMalloc.
 *
 * PyTorch does not check what a pluggable allocator returns: NULL would become a tensor at address
 * 0. If libc10 is in the process, its own error function is called instead, which throws a C++
 * exception that becomes a RuntimeError (so this file is compiled with unwind tables).
 *
 * Source: CUDA Runtime API, "Stream Ordered Memory Allocator".
 */
#include "memory/tap/tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define DEVICES_MOST 64

/* Constants of the CUDA runtime's interface. */
enum {
    CUDA_ERROR_MEMORY = 2,          /* cudaErrorMemoryAllocation */
    CUDA_ATTRIBUTE_POOLS = 115,     /* cudaDevAttrMemoryPoolsSupported */
    CUDA_POOL_RELEASE_THRESHOLD = 4 /* cudaMemPoolAttrReleaseThreshold */
};

struct runtime {
    int (*get_device)(int *device);
    int (*set_device)(int device);
    int (*malloc)(void **out, size_t bytes);
    int (*free)(void *block);
    int (*get_last_error)(void);
    /* These may be NULL before CUDA 11.2. */
    int (*get_attribute)(int *out, int attribute, int device);
    int (*malloc_async)(void **out, size_t bytes, void *stream);
    int (*free_async)(void *block, void *stream);
    int (*get_default_pool)(void **out, int device);
    int (*set_pool_attribute)(void *pool, int attribute, void *value);
};

static struct runtime runtime; /* complete, or all NULL if there is none */
static pthread_once_t runtime_once = PTHREAD_ONCE_INIT;

enum way { WAY_UNKNOWN, WAY_POOL, WAY_PLAIN };

static atomic_int ways[DEVICES_MOST]; /* enum way, by device */

/* ---- the runtime ---- */

/* Returns the handle that provides the runtime's functions; NULL: none. */
static void *find_runtime(void)
{
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0",
                                        "libcudart.so"};
    void *handle = NULL;
    if (dlsym(RTLD_DEFAULT, "cudaMalloc"))
        return dlopen(NULL, RTLD_NOW | RTLD_LOCAL);
    for (int load = 0; load < 2; load++)
        for (size_t i = 0; !handle && i < sizeof names / sizeof names[0]; i++)
            handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | (load ? 0 : RTLD_NOLOAD));
    return handle;
}

static void load_runtime(void)
{
    void *from = find_runtime();
    if (!from)
        return;
    struct runtime r = {
        .get_device = (int (*)(int *))dlsym(from, "cudaGetDevice"),
        .set_device = (int (*)(int))dlsym(from, "cudaSetDevice"),
        .malloc = (int (*)(void **, size_t))dlsym(from, "cudaMalloc"),
        .free = (int (*)(void *))dlsym(from, "cudaFree"),
        .get_last_error = (int (*)(void))dlsym(from, "cudaGetLastError"),
        .get_attribute = (int (*)(int *, int, int))dlsym(from, "cudaDeviceGetAttribute"),
        .malloc_async = (int (*)(void **, size_t, void *))dlsym(from, "cudaMallocAsync"),
        .free_async = (int (*)(void *, void *))dlsym(from, "cudaFreeAsync"),
        .get_default_pool = (int (*)(void **, int))dlsym(from, "cudaDeviceGetDefaultMemPool"),
        .set_pool_attribute = (int (*)(void *, int, void *))dlsym(from, "cudaMemPoolSetAttribute"),
    };
    if (r.get_device && r.set_device && r.malloc && r.free && r.get_last_error)
        runtime = r;
}

/* Returns NULL without CUDA. */
static const struct runtime *cuda(void)
{
    pthread_once(&runtime_once, load_runtime);
    return runtime.malloc ? &runtime : NULL;
}

/* Makes the device's pool keep freed memory: otherwise each synchronisation would return it all to
 * the driver. Failure only costs time. */
static void keep_freed(const struct runtime *r, int device)
{
    uint64_t all = UINT64_MAX;
    void *pool = NULL;
    if (r->get_default_pool && r->set_pool_attribute && !r->get_default_pool(&pool, device))
        r->set_pool_attribute(pool, CUDA_POOL_RELEASE_THRESHOLD, &all);
}

static enum way way_of(const struct runtime *r, int device)
{
    int has_pools = 0;
    if (device < 0 || device >= DEVICES_MOST)
        return WAY_PLAIN;
    int way = atomic_load(&ways[device]);
    if (way != WAY_UNKNOWN)
        return (enum way)way;
    if (r->malloc_async && r->free_async && r->get_attribute &&
        r->get_attribute(&has_pools, CUDA_ATTRIBUTE_POOLS, device))
        has_pools = 0;
    way = has_pools ? WAY_POOL : WAY_PLAIN;
    if (has_pools)
        keep_freed(r, device);
    atomic_store(&ways[device], way);
    return (enum way)way;
}

/* Makes a device current for the thread, the previous one in *before. Returns 0 or the runtime's
 * error. */
static int enter_device(const struct runtime *r, int device, int *before)
{
    int code = r->get_device(before);
    return code || *before == device ? code : r->set_device(device);
}

static void leave_device(const struct runtime *r, int device, int before)
{
    if (before != device)
        r->set_device(before);
}

/* ---- errors ---- */

/* Throws an exception if PyTorch can catch it; else returns. */
static void raise_in_torch(const char *text)
{
    /* c10::detail::torchCheckFail(function, file, line, message) does not return. */
    static const char name[] = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_";
    void *torch = dlopen("libc10.so", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    void (*fail)(const char *, const char *, uint32_t, const char *) = NULL;
    if (torch) {
        fail = (void (*)(const char *, const char *, uint32_t, const char *))dlsym(torch, name);
        dlclose(torch);
    }
    if (fail)
        fail("hr_tap_cuda_malloc", "cuda.c", __LINE__, text);
}

static void *refuse(uint64_t bytes, int device, int code)
{
    char text[160];
    if (code == CUDA_ERROR_MEMORY) {
        hr__tap_refused(bytes, (uint8_t)(device + 1));
        snprintf(text, sizeof text,
                 "CUDA out of memory. Tried to allocate %.2f MiB on device %d (headrace's tap)",
                 (double)bytes / (1 << 20), device);
    } else if (code) {
        snprintf(text, sizeof text,
                 "CUDA error %d while allocating %.2f MiB on device %d (headrace's tap)", code,
                 (double)bytes / (1 << 20), device);
    } else {
        snprintf(text, sizeof text, "headrace's tap found no CUDA runtime (libcudart.so)");
    }
    raise_in_torch(text);
    return NULL;
}

/* ---- functions that PyTorch calls ---- */

void *hr_tap_cuda_malloc(ssize_t size, int device, void *stream)
{
    const struct runtime *r = cuda();
    void *block = NULL;
    int before = device;
    if (size <= 0)
        return NULL;
    if (!r)
        return refuse((uint64_t)size, device, 0);
    int code = enter_device(r, device, &before);
    if (!code) {
        code = way_of(r, device) == WAY_POOL ? r->malloc_async(&block, (size_t)size, stream)
                                             : r->malloc(&block, (size_t)size);
        leave_device(r, device, before);
    }
    /* The failure is reported here; clear it so that checks for kernel errors do not find it. */
    if (code == CUDA_ERROR_MEMORY)
        r->get_last_error();
    if (code)
        return refuse((uint64_t)size, device, code);
    hr__tap_allocated(block, (uint64_t)size, (uint8_t)(device + 1));
    return block;
}

void hr_tap_cuda_free(void *ptr, ssize_t size, int device, void *stream)
{
    const struct runtime *r = cuda();
    int before = device;
    (void)size;
    if (!ptr || !r)
        return;
    hr__tap_freed(ptr, NULL);
    if (enter_device(r, device, &before))
        return;
    if (way_of(r, device) == WAY_POOL)
        r->free_async(ptr, stream);
    else
        r->free(ptr);
    leave_device(r, device, before);
}
