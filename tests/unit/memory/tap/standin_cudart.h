/* A stand-in for the CUDA runtime: the calls that it received, and those that it must refuse. */
#ifndef HR_TEST_STANDIN_CUDART_H
#define HR_TEST_STANDIN_CUDART_H

#include <stddef.h>
#include <stdint.h>

#define STANDIN_DEVICES 3 /* the last one has no memory pools */

struct standin {
    int device;         /* the thread's */
    int refuse;         /* code of the next allocations; 0: they succeed */
    int last_error;     /* what cudaGetLastError gives, once */
    int set_devices;    /* calls */
    int live;           /* blocks */
    int mallocs, frees; /* cudaMalloc, cudaFree */
    int async_mallocs, async_frees;
    int wrong; /* arguments or an order that the real one would not take */
    size_t bytes;
    void *stream;                         /* of the last call that had one */
    int last_device;                      /* current at the last allocation or free */
    uint64_t thresholds[STANDIN_DEVICES]; /* of the pools */
};

/* The library's function of this name gives it. */
typedef struct standin *standin_fn(void);

#endif
