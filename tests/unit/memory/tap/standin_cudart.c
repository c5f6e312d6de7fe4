/*
 * A stand-in for the CUDA runtime (libcudart.so.12), for machines without a GPU: uses the host's
 * memory, and checks and counts each call. For one thread.
 */
#include "standin_cudart.h"

#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT struct standin *standin_cudart(void);
EXPORT int cudaGetDevice(int *device);
EXPORT int cudaSetDevice(int device);
EXPORT int cudaMalloc(void **out, size_t bytes);
EXPORT int cudaFree(void *block);
EXPORT int cudaMallocAsync(void **out, size_t bytes, void *stream);
EXPORT int cudaFreeAsync(void *block, void *stream);
EXPORT int cudaGetLastError(void);
EXPORT int cudaDeviceGetAttribute(int *out, int attribute, int device);
EXPORT int cudaDeviceGetDefaultMemPool(void **out, int device);
EXPORT int cudaMemPoolSetAttribute(void *pool, int attribute, void *value);

static struct standin state;

struct standin *standin_cudart(void)
{
    return &state;
}

int cudaGetDevice(int *device)
{
    *device = state.device;
    return 0;
}

int cudaSetDevice(int device)
{
    state.set_devices++;
    if (device < 0 || device >= STANDIN_DEVICES)
        return 101; /* cudaErrorInvalidDevice */
    state.device = device;
    return 0;
}

static int give(void **out, size_t bytes)
{
    state.last_device = state.device;
    state.bytes = bytes;
    state.last_error = state.refuse;
    if (state.refuse)
        return state.refuse;
    *out = malloc(bytes);
    state.live++;
    return 0;
}

int cudaMalloc(void **out, size_t bytes)
{
    state.mallocs++;
    return give(out, bytes);
}

int cudaMallocAsync(void **out, size_t bytes, void *stream)
{
    state.async_mallocs++;
    state.wrong += state.device == STANDIN_DEVICES - 1;
    state.stream = stream;
    return give(out, bytes);
}

static int take(void *block)
{
    state.last_device = state.device;
    state.live--;
    free(block);
    return 0;
}

int cudaFree(void *block)
{
    state.frees++;
    return take(block);
}

int cudaFreeAsync(void *block, void *stream)
{
    state.async_frees++;
    state.wrong += state.device == STANDIN_DEVICES - 1;
    state.stream = stream;
    return take(block);
}

int cudaGetLastError(void)
{
    int code = state.last_error;
    state.last_error = 0;
    return code;
}

int cudaDeviceGetAttribute(int *out, int attribute, int device)
{
    state.wrong += attribute != 115;
    *out = device != STANDIN_DEVICES - 1;
    return 0;
}

int cudaDeviceGetDefaultMemPool(void **out, int device)
{
    *out = &state.thresholds[device];
    return 0;
}

int cudaMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    state.wrong += attribute != 4;
    *(uint64_t *)pool = *(uint64_t *)value;
    return 0;
}
