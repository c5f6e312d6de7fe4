/*
 * headrace._core.Recipe: holds one reference to a library recipe.
 *
 * Python passes the operations as pairs (name, {field: value}). A table lists
 * the fields of each kind with their types and offsets in struct hr_operation,
 * so that the same code fills in every kind and rejects unknown fields.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

struct recipe {
    PyObject_HEAD struct hr_recipe *handle;
};

struct hr_recipe *core_recipe_handle(PyObject *self)
{
    return ((struct recipe *)self)->handle;
}

enum field_type { FIELD_INT, FIELD_DOUBLE };

struct recipe_field {
    const char *name;
    size_t offset; /* in struct hr_operation */
    enum field_type type;
    int count; /* 1: a number; otherwise a sequence of this length */
};

#define FIELD(member, type, count) offsetof(struct hr_operation, u.member), type, count
#define MAX_FIELDS                 8

/* Python passes the library's enumerators as ints. */
_Static_assert(sizeof(enum hr_interpolation) == sizeof(int), "read through int");

static const struct {
    const char *name;
    enum hr_operation_kind kind;
    struct recipe_field field[MAX_FIELDS];
} kinds[] = {
    {"RandomResizedCrop",
     HR_RANDOM_RESIZED_CROP,
     {{"height", FIELD(random_resized_crop.height, FIELD_INT, 1)},
      {"width", FIELD(random_resized_crop.width, FIELD_INT, 1)},
      {"scale", FIELD(random_resized_crop.scale, FIELD_DOUBLE, 2)},
      {"ratio", FIELD(random_resized_crop.ratio, FIELD_DOUBLE, 2)},
      {"interpolation", FIELD(random_resized_crop.interpolation, FIELD_INT, 1)},
      {"antialias", FIELD(random_resized_crop.antialias, FIELD_INT, 1)}}},
    {"Resize",
     HR_RESIZE,
     {{"height", FIELD(resize.height, FIELD_INT, 1)},
      {"width", FIELD(resize.width, FIELD_INT, 1)},
      {"max_size", FIELD(resize.max_size, FIELD_INT, 1)},
      {"interpolation", FIELD(resize.interpolation, FIELD_INT, 1)},
      {"antialias", FIELD(resize.antialias, FIELD_INT, 1)}}},
    {"CenterCrop",
     HR_CENTER_CROP,
     {{"height", FIELD(center_crop.height, FIELD_INT, 1)},
      {"width", FIELD(center_crop.width, FIELD_INT, 1)}}},
    {"RandomCrop",
     HR_RANDOM_CROP,
     {{"height", FIELD(random_crop.height, FIELD_INT, 1)},
      {"width", FIELD(random_crop.width, FIELD_INT, 1)},
      {"padding", FIELD(random_crop.padding, FIELD_INT, 4)},
      {"pad_if_needed", FIELD(random_crop.pad_if_needed, FIELD_INT, 1)},
      {"fill", FIELD(random_crop.fill, FIELD_DOUBLE, 3)},
      {"padding_mode", FIELD(random_crop.padding_mode, FIELD_INT, 1)}}},
    {"RandomHorizontalFlip", HR_RANDOM_HORIZONTAL_FLIP, {{"p", FIELD(flip.p, FIELD_DOUBLE, 1)}}},
    {"RandomVerticalFlip", HR_RANDOM_VERTICAL_FLIP, {{"p", FIELD(flip.p, FIELD_DOUBLE, 1)}}},
    {"ColorJitter",
     HR_COLOR_JITTER,
     {{"brightness", FIELD(color_jitter.brightness, FIELD_DOUBLE, 2)},
      {"contrast", FIELD(color_jitter.contrast, FIELD_DOUBLE, 2)},
      {"saturation", FIELD(color_jitter.saturation, FIELD_DOUBLE, 2)},
      {"hue", FIELD(color_jitter.hue, FIELD_DOUBLE, 2)}}},
    {"RandomGrayscale", HR_RANDOM_GRAYSCALE, {{"p", FIELD(random_grayscale.p, FIELD_DOUBLE, 1)}}},
    {"ToDtype",
     HR_TO_DTYPE,
     {{"dtype", FIELD(to_dtype.dtype, FIELD_INT, 1)},
      {"scale", FIELD(to_dtype.scale, FIELD_INT, 1)}}},
    {"Normalize",
     HR_NORMALIZE,
     {{"mean", FIELD(normalize.mean, FIELD_DOUBLE, 3)},
      {"std", FIELD(normalize.std, FIELD_DOUBLE, 3)}}},
};

static int set_number(void *base, const struct recipe_field *field, int i, PyObject *value)
{
    if (field->type == FIELD_DOUBLE) {
        double d = PyFloat_AsDouble(value);
        if (d == -1 && PyErr_Occurred())
            return -1;
        ((double *)base)[i] = d;
        return 0;
    }
    long n = PyLong_AsLong(value);
    if (n == -1 && PyErr_Occurred())
        return -1;
    if (n < INT32_MIN || n > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%s = %ld is out of range", field->name, n);
        return -1;
    }
    ((int *)base)[i] = (int)n;
    return 0;
}

static int set_field(struct hr_operation *operation, const struct recipe_field *field,
                     PyObject *value)
{
    void *base = (char *)operation + field->offset;
    if (field->count == 1)
        return set_number(base, field, 0, value);
    if (PySequence_Size(value) != field->count) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "%s takes %d numbers", field->name, field->count);
        return -1;
    }
    for (int i = 0; i < field->count; i++) {
        PyObject *item = PySequence_GetItem(value, i);
        int r = item ? set_number(base, field, i, item) : -1;
        Py_XDECREF(item);
        if (r < 0)
            return -1;
    }
    return 0;
}

static int set_fields(struct hr_operation *operation, const struct recipe_field *fields,
                      PyObject *values)
{
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(values, &position, &key, &value)) {
        const struct recipe_field *field = NULL;
        for (int i = 0; i < MAX_FIELDS && fields[i].name; i++)
            if (PyUnicode_CompareWithASCIIString(key, fields[i].name) == 0)
                field = &fields[i];
        if (!field) {
            PyErr_Format(PyExc_TypeError, "%s has no parameter %R",
                         hr_operation_name(operation->kind), key);
            return -1;
        }
        if (set_field(operation, field, value) < 0)
            return -1;
    }
    return 0;
}

static int set_operation(struct hr_operation *operation, PyObject *pair)
{
    PyObject *name, *values;
    if (!PyTuple_Check(pair) ||
        !PyArg_ParseTuple(pair, "UO!;an operation is (name, {field: value})", &name, &PyDict_Type,
                          &values)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "an operation is (name, {field: value})");
        return -1;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (PyUnicode_CompareWithASCIIString(name, kinds[i].name) != 0)
            continue;
        hr_operation_default(operation, kinds[i].kind);
        return set_fields(operation, kinds[i].field, values);
    }
    PyErr_Format(PyExc_ValueError, "there is no operation %R", name);
    return -1;
}

static struct hr_operation *convert_operations(PyObject *list, Py_ssize_t *count)
{
    *count = PyList_Size(list);
    struct hr_operation *operations = calloc(*count ? (size_t)*count : 1, sizeof *operations);
    if (!operations) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < *count; i++) {
        if (set_operation(&operations[i], PyList_GetItem(list, i)) < 0) {
            free(operations);
            return NULL;
        }
    }
    return operations;
}

static PyObject *recipe_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {
        "operations", "layout", "apply_exif_orientation", "max_pixels", "damaged", "exact", NULL};
    struct hr_recipe_options options;
    hr_recipe_options_default(&options);
    PyObject *list;
    int layout = HR_NCHW, damaged = HR_DAMAGED_REFUSE, exact = 1;
    unsigned long long max_pixels = options.max_pixels;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|$ipKip", names, &PyList_Type, &list, &layout,
                                     &options.apply_exif_orientation, &max_pixels, &damaged,
                                     &exact))
        return NULL;
    options.layout = (enum hr_layout)layout;
    options.max_pixels = max_pixels;
    options.damaged = (enum hr_damaged)damaged;
    options.inexact = !exact;
    Py_ssize_t count;
    struct hr_operation *operations = convert_operations(list, &count);
    if (!operations)
        return NULL;
    struct core_state *state = PyType_GetModuleState(type);
    struct hr_recipe *handle = NULL;
    struct hr_error error = {0};
    int r = hr_recipe_create(&handle, operations, (size_t)count, &options, &error);
    free(operations);
    if (r)
        return core_raise(state, r, &error, NULL);
    struct recipe *self = PyObject_New(struct recipe, type);
    if (!self) {
        hr_recipe_unref(&handle);
        return NULL;
    }
    self->handle = handle;
    return (PyObject *)self;
}

static void recipe_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    hr_recipe_unref(&((struct recipe *)object)->handle);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *recipe_shape(PyObject *object, void *closure)
{
    struct hr_tensor_spec spec;
    hr_recipe_output(core_recipe_handle(object), &spec);
    return spec.layout == HR_NCHW ? Py_BuildValue("(iii)", spec.channels, spec.height, spec.width)
                                  : Py_BuildValue("(iii)", spec.height, spec.width, spec.channels);
}

static PyObject *recipe_dtype(PyObject *object, void *closure)
{
    struct hr_tensor_spec spec;
    hr_recipe_output(core_recipe_handle(object), &spec);
    return PyUnicode_FromString(core_dtype_name(core_dtype_of(spec.dtype)));
}

static PyObject *recipe_nbytes(PyObject *object, void *closure)
{
    struct hr_tensor_spec spec;
    hr_recipe_output(core_recipe_handle(object), &spec);
    return PyLong_FromSize_t(spec.bytes);
}

static PyGetSetDef recipe_getset[] = {
    {"shape", recipe_shape, NULL, PyDoc_STR("Of one sample."), NULL},
    {"dtype", recipe_dtype, NULL, PyDoc_STR("Of one element."), NULL},
    {"nbytes", recipe_nbytes, NULL, PyDoc_STR("Of one sample."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot recipe_slots[] = {
    {Py_tp_doc,
     (void *)PyDoc_STR(
         "Recipe(operations, *, layout=0, apply_exif_orientation=False,\n"
         "max_pixels=178956970, damaged=0, exact=True)\n--\n\nA checked list of operations.")},
    {Py_tp_new, recipe_new},
    {Py_tp_dealloc, recipe_dealloc},
    {Py_tp_getset, recipe_getset},
    {0, NULL},
};

PyType_Spec core_recipe_spec = {
    .name = "headrace._core.Recipe",
    .basicsize = sizeof(struct recipe),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = recipe_slots,
};
