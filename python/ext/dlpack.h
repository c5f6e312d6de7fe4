/*
 * The DLPack exchange structures, version 1 (dmlc/dlpack, "DLPack: Open In
 * Memory Tensor Structure"), as far as a producer of host memory needs them.
 * Layout and numbers are the standard's; both the versioned capsule and the
 * older unversioned one are described.
 */
#ifndef HEADRACE_PYTHON_DLPACK_H
#define HEADRACE_PYTHON_DLPACK_H

#include <stdint.h>

#define DLPACK_MAJOR          1
#define DLPACK_MINOR          0
#define DLPACK_DEVICE_CPU     1
#define DLPACK_FLAG_IS_COPIED (UINT64_C(1) << 1)

enum { DLPACK_INT = 0, DLPACK_UINT = 1, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4 };

struct dlpack_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
};

/* In a capsule named "dltensor"; "used_dltensor" once taken. */
struct dlpack_managed {
    struct dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *self);
};

/* In a capsule named "dltensor_versioned"; "used_dltensor_versioned" once taken. */
struct dlpack_managed_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dlpack_managed_versioned *self);
    uint64_t flags;
    struct dlpack_tensor tensor;
};

#endif
