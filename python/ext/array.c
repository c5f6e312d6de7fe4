/*
 * headrace._core.Array: a C-contiguous array that other libraries use without
 * a copy, through DLPack or the buffer protocol.
 *
 * An array is a view of memory that it keeps alive. Every consumer holds its own
 * reference to that memory (through a DLPack capsule's deleter, or a Py_buffer's
 * reference to the array). A batch therefore returns to its loader when the last
 * consumer releases it, in any order and on any thread. Consumers may write.
 */
#include "core.h"

#include "dlpack.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct core_memory {
    atomic_size_t references;
    struct hr_batch *batch; /* or NULL */
    void *block;            /* or NULL */
    size_t bytes;           /* of the block, a multiple of 64 */
    struct core_pool *pool; /* that the block goes back to, or NULL */
};

struct array {
    PyObject_HEAD struct core_memory *memory;
    void *data;
    enum core_dtype dtype;
    int dimensions;
    Py_ssize_t shape[CORE_MAX_DIMENSIONS];
    Py_ssize_t strides[CORE_MAX_DIMENSIONS]; /* bytes */
    Py_ssize_t bytes;
};

static const struct {
    const char *name;
    const char *format; /* in the struct module's notation; NULL: none exists */
    uint8_t bytes, code;
} types[] = {
    [CORE_UINT8] = {"uint8", "B", 1, DLPACK_UINT},
    [CORE_FLOAT16] = {"float16", "e", 2, DLPACK_FLOAT},
    [CORE_BFLOAT16] = {"bfloat16", NULL, 2, DLPACK_BFLOAT},
    [CORE_FLOAT32] = {"float32", "f", 4, DLPACK_FLOAT},
    [CORE_INT64] = {"int64", sizeof(long) == 8 ? "l" : "q", 8, DLPACK_INT},
    [CORE_INT32] = {"int32", "i", 4, DLPACK_INT},
    [CORE_FLOAT64] = {"float64", "d", 8, DLPACK_FLOAT},
    [CORE_BOOL] = {"bool", "?", 1, DLPACK_BOOL},
};

enum core_dtype core_dtype_of(enum hr_dtype dtype)
{
    switch (dtype) {
    case HR_FLOAT16:
        return CORE_FLOAT16;
    case HR_BFLOAT16:
        return CORE_BFLOAT16;
    case HR_FLOAT32:
        return CORE_FLOAT32;
    case HR_INT64:
        return CORE_INT64;
    case HR_INT32:
        return CORE_INT32;
    case HR_FLOAT64:
        return CORE_FLOAT64;
    case HR_BOOL:
        return CORE_BOOL;
    case HR_UINT8:
    default:
        return CORE_UINT8;
    }
}

const char *core_dtype_name(enum core_dtype dtype)
{
    return types[dtype].name;
}

/* Memory. From malloc, not CPython's allocator: it is freed without the GIL. */

static struct core_memory *memory_new(void)
{
    struct core_memory *memory = calloc(1, sizeof *memory);
    if (memory)
        atomic_init(&memory->references, 1);
    return memory;
}

struct core_memory *core_memory_of_batch(struct hr_batch *batch)
{
    struct core_memory *memory = memory_new();
    if (memory)
        memory->batch = hr_batch_ref(batch);
    return memory;
}

struct core_memory *core_memory_of_pool(struct core_pool *pool, size_t bytes, void **data)
{
    struct core_memory *memory = memory_new();
    if (!memory)
        return NULL;
    if (bytes <= SIZE_MAX - 64) {
        memory->pool = pool;
        memory->bytes = (bytes + 64) & ~(size_t)63;
        memory->block =
            pool ? core_pool_take(pool, memory->bytes) : aligned_alloc(64, memory->bytes);
    }
    if (!memory->block) {
        free(memory);
        return NULL;
    }
    *data = memory->block;
    return memory;
}

struct core_memory *core_memory_of_block(size_t bytes, void **data)
{
    return core_memory_of_pool(NULL, bytes, data);
}

struct core_memory *core_memory_ref(struct core_memory *memory)
{
    /* Relaxed suffices: the caller holds a reference, and this publishes nothing. */
    atomic_fetch_add_explicit(&memory->references, 1, memory_order_relaxed);
    return memory;
}

void core_memory_unref(struct core_memory *memory)
{
    /* Acquire-release: every holder's writes happen before the memory is released. */
    if (atomic_fetch_sub_explicit(&memory->references, 1, memory_order_acq_rel) != 1)
        return;
    hr_batch_release(&memory->batch);
    if (memory->pool)
        core_pool_return(memory->pool, memory->block, memory->bytes);
    else
        free(memory->block);
    free(memory);
}

PyObject *core_array_new(struct core_state *state, struct core_memory *memory, void *data,
                         enum core_dtype dtype, int dimensions, const Py_ssize_t *shape)
{
    struct array *self = PyObject_New(struct array, state->array_type);
    if (!self) {
        core_memory_unref(memory);
        return NULL;
    }
    self->memory = memory;
    self->data = data;
    self->dtype = dtype;
    self->dimensions = dimensions;
    Py_ssize_t stride = types[dtype].bytes;
    for (int i = dimensions - 1; i >= 0; i--) {
        self->shape[i] = shape[i];
        self->strides[i] = stride;
        stride *= shape[i];
    }
    self->bytes = stride;
    return (PyObject *)self;
}

PyObject *core_array_of_spec(struct core_state *state, struct core_memory *memory, void *data,
                             const struct hr_tensor_spec *spec, Py_ssize_t count)
{
    Py_ssize_t shape[CORE_MAX_DIMENSIONS];
    int n = 0;
    if (count >= 0)
        shape[n++] = count;
    for (size_t i = 0; i < spec->dims; i++)
        shape[n++] = (Py_ssize_t)spec->shape[i];
    return core_array_new(state, memory, data, core_dtype_of(spec->dtype), n, shape);
}

static void array_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    core_memory_unref(((struct array *)object)->memory);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* DLPack */

/* Owned by a capsule's consumer: the DLPack structure, shape and strides, and
 * one reference to the memory. */
struct export
{
    struct core_memory *memory;
    int64_t shape[CORE_MAX_DIMENSIONS];
    int64_t strides[CORE_MAX_DIMENSIONS];
    union {
        struct dlpack_managed legacy;
        struct dlpack_managed_versioned versioned;
    } u;
};

static void export_free(struct export *e)
{
    core_memory_unref(e->memory);
    free(e);
}

static void delete_legacy(struct dlpack_managed *self)
{
    export_free(self->context);
}

static void delete_versioned(struct dlpack_managed_versioned *self)
{
    export_free(self->context);
}

/* Frees the export unless a consumer took it: a consumer renames the capsule. */
static void legacy_capsule_destroy(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        delete_legacy(PyCapsule_GetPointer(capsule, "dltensor"));
}

static void versioned_capsule_destroy(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        delete_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

static void fill_tensor(struct dlpack_tensor *t, const struct array *self, struct export *e,
                        void *data)
{
    for (int i = 0; i < self->dimensions; i++) {
        e->shape[i] = self->shape[i];
        e->strides[i] = self->strides[i] / types[self->dtype].bytes;
    }
    t->data = data;
    t->device.type = DLPACK_DEVICE_CPU;
    t->device.id = 0;
    t->ndim = self->dimensions;
    t->dtype.code = types[self->dtype].code;
    t->dtype.bits = (uint8_t)(types[self->dtype].bytes * 8);
    t->dtype.lanes = 1;
    t->shape = e->shape;
    t->strides = e->strides;
    t->byte_offset = 0;
}

static PyObject *export_capsule(const struct array *self, bool versioned, bool copy)
{
    struct export *e = calloc(1, sizeof *e);
    void *data = self->data;
    if (e && copy) {
        e->memory = core_memory_of_block((size_t)self->bytes, &data);
        if (e->memory)
            memcpy(data, self->data, (size_t)self->bytes);
    } else if (e) {
        e->memory = core_memory_ref(self->memory);
    }
    if (!e || !e->memory) {
        free(e);
        return PyErr_NoMemory();
    }
    PyObject *capsule;
    if (versioned) {
        e->u.versioned.version.major = DLPACK_MAJOR;
        e->u.versioned.version.minor = DLPACK_MINOR;
        e->u.versioned.context = e;
        e->u.versioned.deleter = delete_versioned;
        e->u.versioned.flags = copy ? DLPACK_FLAG_IS_COPIED : 0;
        fill_tensor(&e->u.versioned.tensor, self, e, data);
        capsule = PyCapsule_New(&e->u.versioned, "dltensor_versioned", versioned_capsule_destroy);
    } else {
        e->u.legacy.context = e;
        e->u.legacy.deleter = delete_legacy;
        fill_tensor(&e->u.legacy.tensor, self, e, data);
        capsule = PyCapsule_New(&e->u.legacy, "dltensor", legacy_capsule_destroy);
    }
    if (!capsule)
        export_free(e);
    return capsule;
}

static int parse_pair(PyObject *pair, const char *what, int *first, int *second)
{
    if (PyTuple_Check(pair) && PyTuple_Size(pair) == 2)
        return PyArg_ParseTuple(pair, "ii", first, second) ? 0 : -1;
    PyErr_Format(PyExc_TypeError, "%s must be a pair of integers, not %R", what, pair);
    return -1;
}

/* Checks the stream and device that the consumer asks for. Returns 0, or -1 with an exception. */
static int check_request(PyObject *stream, PyObject *device)
{
    if (stream != Py_None) {
        PyErr_SetString(PyExc_BufferError, "a batch is in host memory: stream must be None");
        return -1;
    }
    if (device == Py_None)
        return 0;
    int type, id;
    if (parse_pair(device, "dl_device", &type, &id) < 0)
        return -1;
    if (type != DLPACK_DEVICE_CPU) {
        PyErr_Format(PyExc_BufferError,
                     "a batch is in host memory (device type 1), not on device type %d: take it "
                     "there and copy it",
                     type);
        return -1;
    }
    return 0;
}

static PyObject *array_dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream,
                                     &max_version, &device, &copy) ||
        check_request(stream, device) < 0)
        return NULL;
    bool versioned = false;
    if (max_version != Py_None) {
        int major, minor;
        if (parse_pair(max_version, "max_version", &major, &minor) < 0)
            return NULL;
        versioned = major >= DLPACK_MAJOR;
    }
    int must_copy = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (must_copy < 0)
        return NULL;
    return export_capsule((struct array *)object, versioned, must_copy);
}

static PyObject *array_dlpack_device(PyObject *object, PyObject *none)
{
    return Py_BuildValue("(ii)", DLPACK_DEVICE_CPU, 0);
}

/* Buffer protocol */

static int array_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    struct array *self = (struct array *)object;
    view->obj = NULL;
    if (!types[self->dtype].format) {
        PyErr_Format(PyExc_BufferError,
                     "the buffer protocol has no %s: use DLPack (torch.from_dlpack, "
                     "jax.dlpack.from_dlpack)",
                     types[self->dtype].name);
        return -1;
    }
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && self->dimensions > 1) {
        PyErr_SetString(PyExc_BufferError, "the array is in C order");
        return -1;
    }
    view->buf = self->data;
    view->len = self->bytes;
    view->readonly = 0;
    view->itemsize = types[self->dtype].bytes;
    view->format = (flags & PyBUF_FORMAT) ? (char *)types[self->dtype].format : NULL;
    view->ndim = self->dimensions;
    view->shape = (flags & PyBUF_ND) ? self->shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    view->obj = Py_NewRef(object);
    return 0;
}

int core_get_int64(PyObject *object, const char *what, Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    if (view->ndim == 1 && view->itemsize == 8 && view->format &&
        (!strcmp(view->format, "q") || !strcmp(view->format, "l")))
        return 0;
    PyErr_Format(PyExc_TypeError, "%s must be a one-dimensional int64 array", what);
    PyBuffer_Release(view);
    return -1;
}

/* Attributes */

static PyObject *array_shape(PyObject *object, void *closure)
{
    struct array *self = (struct array *)object;
    PyObject *shape = PyTuple_New(self->dimensions);
    for (int i = 0; shape && i < self->dimensions; i++) {
        PyObject *n = PyLong_FromSsize_t(self->shape[i]);
        if (!n || PyTuple_SetItem(shape, i, n) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *array_dtype(PyObject *object, void *closure)
{
    return PyUnicode_FromString(types[((struct array *)object)->dtype].name);
}

static PyObject *array_nbytes(PyObject *object, void *closure)
{
    return PyLong_FromSsize_t(((struct array *)object)->bytes);
}

static Py_ssize_t array_length(PyObject *object)
{
    struct array *self = (struct array *)object;
    return self->dimensions ? self->shape[0] : 0;
}

static PyObject *array_repr(PyObject *object)
{
    PyObject *shape = array_shape(object, NULL);
    PyObject *text = shape ? PyUnicode_FromFormat("headrace.Array(shape=%R, dtype='%s')", shape,
                                                  types[((struct array *)object)->dtype].name)
                           : NULL;
    Py_XDECREF(shape);
    return text;
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
               "A DLPack capsule of this memory, shared unless copy=True; the capsule keeps\n"
               "it alive. max_version of at least (1, 0) gives a versioned capsule.")},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS,
     PyDoc_STR("__dlpack_device__()\n--\n\n(1, 0): host memory.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef array_getset[] = {
    {"shape", array_shape, NULL, PyDoc_STR("Elements per dimension."), NULL},
    {"dtype", array_dtype, NULL, PyDoc_STR("'uint8', 'float16', 'bfloat16', 'float32' or 'int64'."),
     NULL},
    {"nbytes", array_nbytes, NULL, PyDoc_STR("Bytes of all elements."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot array_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A C-contiguous array in host memory, for DLPack consumers\n"
                                  "(torch.from_dlpack, numpy.from_dlpack, jax.dlpack.from_dlpack)\n"
                                  "and the buffer protocol (numpy.asarray, memoryview). It may be\n"
                                  "written to; its memory lives until the last consumer is gone.")},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_repr, array_repr},
    {Py_tp_methods, array_methods},
    {Py_tp_getset, array_getset},
    {Py_sq_length, array_length},
    {Py_bf_getbuffer, array_getbuffer},
    {0, NULL},
};

PyType_Spec core_array_spec = {
    .name = "headrace.Array",
    .basicsize = sizeof(struct array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = array_slots,
};
