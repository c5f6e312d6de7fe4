/*
 * DLPack exchange structures, version 1 (dmlc/dlpack, "DLPack: Open In Memory
 * Tensor Structure"): the part that a producer of host memory needs. Layout and
 * constants follow the standard, for the versioned capsule and the older
 * unversioned one.
 */
#ifndef HEADRACE_PYTHON_DLPACK_H
#define HEADRACE_PYTHON_DLPACK_H

#include <stdint.h>

#define DLPACK_MAJOR          1
#define DLPACK_MINOR          0
#define DLPACK_DEVICE_CPU     1
#define DLPACK_FLAG_IS_COPIED (UINT64_C(1) << 1)

enum { DLPACK_INT = 0, DLPACK_UINT = 1, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4, DLPACK_BOOL = 6 };

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

/* Content of a capsule named "dltensor"; a consumer renames it "used_dltensor". */
struct dlpack_managed {
    struct dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *self);
};

/* Content of a capsule named "dltensor_versioned"; a consumer renames it
 * "used_dltensor_versioned". */
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
