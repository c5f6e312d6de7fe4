/*
 * headrace._core.Batch: one batch of a loader.
 *
 * A batch holds one reference to the loader's slot, and its images hold another,
 * so that either may be freed first. Labels and indices are copies: a program that
 * keeps them for every batch does not keep the images.
 */
#include "core.h"

#include <string.h>
#include <structmember.h>

struct batch {
    PyObject_HEAD struct hr_batch *handle;
    struct hr_batch_view view;
};

PyObject *core_batch_new(struct core_state *state, struct hr_batch *handle)
{
    struct batch *self = PyObject_New(struct batch, state->batch_type);
    if (!self) {
        hr_batch_release(&handle);
        return NULL;
    }
    self->handle = handle;
    hr_batch_get(handle, &self->view);
    return (PyObject *)self;
}

static void batch_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    hr_batch_release(&((struct batch *)object)->handle);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *batch_images(PyObject *object, void *closure)
{
    struct batch *self = (struct batch *)object;
    struct core_memory *memory = core_memory_of_batch(self->handle);
    if (!memory)
        return PyErr_NoMemory();
    return core_array_of_spec(core_state_of(object), memory, self->view.images, &self->view.spec,
                              (Py_ssize_t)self->view.count);
}

/* The images of each view. */
static PyObject *batch_views(PyObject *object, void *closure)
{
    struct batch *self = (struct batch *)object;
    PyObject *list = PyList_New(0);
    struct hr_tensor_spec spec;
    void *images;
    for (size_t v = 0; list && hr_batch_images(self->handle, v, &images, &spec) == 0; v++) {
        struct core_memory *memory = core_memory_of_batch(self->handle);
        PyObject *array = memory ? core_array_of_spec(core_state_of(object), memory, images, &spec,
                                                      (Py_ssize_t)self->view.count)
                                 : PyErr_NoMemory();
        if (!array || PyList_Append(list, array) < 0)
            Py_CLEAR(list);
        Py_XDECREF(array);
    }
    return list;
}

/* Getter of `indices` if closure is not NULL, otherwise of `labels`. */
static PyObject *batch_integers(PyObject *object, void *closure)
{
    struct batch *self = (struct batch *)object;
    Py_ssize_t count = (Py_ssize_t)self->view.count;
    const int64_t *values = closure ? self->view.indices : self->view.labels;
    void *data;
    struct core_memory *memory = core_memory_of_block((size_t)count * sizeof *values, &data);
    if (!memory)
        return PyErr_NoMemory();
    memcpy(data, values, (size_t)count * sizeof *values);
    return core_array_new(core_state_of(object), memory, data, CORE_INT64, 1, &count);
}

/* The masks, or None. */
static PyObject *batch_masks(PyObject *object, void *closure)
{
    struct batch *self = (struct batch *)object;
    struct hr_field field;
    for (size_t i = 0; !hr_batch_field(self->handle, i, &field); i++) {
        if (strcmp(field.name, "masks") != 0)
            continue;
        struct core_memory *memory = core_memory_of_batch(self->handle);
        if (!memory)
            return PyErr_NoMemory();
        const Py_ssize_t shape[3] = {(Py_ssize_t)field.shape[0], (Py_ssize_t)field.shape[1],
                                     (Py_ssize_t)field.shape[2]};
        return core_array_new(core_state_of(object), memory, field.data, CORE_UINT8, 3, shape);
    }
    Py_RETURN_NONE;
}

/* How much of each sample's place its image or sound takes, or None. */
static PyObject *batch_extents(PyObject *object, void *closure)
{
    struct batch *self = (struct batch *)object;
    struct hr_field field;
    int r = hr_batch_field(self->handle, 0, &field);
    if (r || !field.extents)
        Py_RETURN_NONE;
    const Py_ssize_t shape[2] = {(Py_ssize_t)self->view.count, field.dims - 1};
    size_t bytes = (size_t)(shape[0] * shape[1]) * sizeof *field.extents;
    void *data;
    struct core_memory *memory = core_memory_of_block(bytes, &data);
    if (!memory)
        return PyErr_NoMemory();
    memcpy(data, field.extents, bytes);
    return core_array_new(core_state_of(object), memory, data, CORE_INT64, 2, shape);
}

static PyObject *batch_rows(PyObject *object, void *closure)
{
    return core_batch_rows(core_state_of(object), ((struct batch *)object)->handle);
}

static PyObject *batch_mix(PyObject *object, void *closure)
{
    return PyFloat_FromDouble(hr_batch_mix(((struct batch *)object)->handle));
}

static Py_ssize_t batch_length(PyObject *object)
{
    return (Py_ssize_t)((struct batch *)object)->view.count;
}

static PyObject *batch_repr(PyObject *object)
{
    const struct hr_batch_view *v = &((struct batch *)object)->view;
    return PyUnicode_FromFormat("headrace.Batch(epoch=%llu, number=%llu, samples=%zu)",
                                (unsigned long long)v->epoch, (unsigned long long)v->number,
                                v->count);
}

#define NUMBER(name, doc)                                                                          \
    {                                                                                              \
#name, T_ULONGLONG, offsetof(struct batch, view.name), READONLY, PyDoc_STR(doc)            \
    }
_Static_assert(sizeof(size_t) == sizeof(unsigned long long), "counts of a batch have 64 bits");

static PyMemberDef batch_members[] = {
    NUMBER(count, "Samples."),
    NUMBER(epoch, "Epoch, from 0."),
    NUMBER(number, "Of the batch in its epoch, from 0."),
    NUMBER(padding, "Samples at the end that only make the ranks equal."),
    NUMBER(replaced, "Samples that stand in for bad ones."),
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef batch_getset[] = {
    {"images", batch_images, NULL,
     PyDoc_STR("Array: (samples, 3, height, width) or (samples, height, width, 3)."), NULL},
    {"views", batch_views, NULL, PyDoc_STR("List of arrays like `images`: one for each view."),
     NULL},
    {"labels", batch_integers, NULL, PyDoc_STR("Array of int64, a copy."), NULL},
    {"indices", batch_integers, NULL,
     PyDoc_STR("Array of int64, a copy: the samples really used, stand-ins for bad ones too."),
     (void *)(uintptr_t)1},
    {"masks", batch_masks, NULL,
     PyDoc_STR("Array of uint8: (samples, height, width). None: the dataset has no masks."), NULL},
    {"extents", batch_extents, NULL,
     PyDoc_STR("Array of int64, a copy: the shape of each sample, whose place in `images` has the\n"
               "largest shape and zeros elsewhere. Of sounds, the part that is not padding. None:\n"
               "samples fill their places."),
     NULL},
    {"rows", batch_rows, NULL,
     PyDoc_STR(
         "The columns of the dataset's rows: ({name: array}, with_rows, offsets), copies in one\n"
         "block of memory. Sample i has the rows offsets[i] to offsets[i + 1] - 1 of the columns\n"
         "that the list with_rows names; of others it has element i. offsets: None if none has\n"
         "rows. None instead of all: the dataset has no columns."),
     NULL},
    {"mix", batch_mix, NULL,
     PyDoc_STR("Share of a sample's own label after MixUp or CutMix; the rest is of the label\n"
               "before it in the batch. 1.0: not mixed."),
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A batch: images in the loader's memory, which goes back to the\n"
                                  "loader when batch and images are gone; labels and indices are\n"
                                  "copies.")},
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_repr, batch_repr},
    {Py_tp_members, batch_members},
    {Py_tp_getset, batch_getset},
    {Py_sq_length, batch_length},
    {0, NULL},
};

PyType_Spec core_batch_spec = {
    .name = "headrace.Batch",
    .basicsize = sizeof(struct batch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = batch_slots,
};
