/* A stand-in for the CUDA runtime: the calls that it received, and those that it must refuse. */
#ifndef HR_TEST_STANDIN_CUDART_H
#define HR_TEST_STANDIN_CUDART_H

#include <stddef.h>
#include <stdint.h>

#define STANDIN_DEVICES 3 /* the last one has no memory pools */

struct standin {
    int device;         /* of the thread */
    int refuse;         /* error code of the next allocations; 0: they succeed */
    int last_error;     /* returned once by cudaGetLastError */
    int set_devices;    /* calls */
    int live;           /* blocks */
    int mallocs, frees; /* cudaMalloc, cudaFree */
    int async_mallocs, async_frees;
    int wrong; /* non-zero: invalid arguments or an invalid order of calls */
    size_t bytes;
    void *stream;                         /* of the last call that had one */
    int last_device;                      /* the current device at the last allocation or free */
    uint64_t thresholds[STANDIN_DEVICES]; /* of the pools */
};

/* The type of the library's function that returns it. */
typedef struct standin *standin_fn(void);

#endif
