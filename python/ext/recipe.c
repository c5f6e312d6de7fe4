/*
 * headrace._core.Recipe: holds one reference to a library recipe.
 *
 * Python passes the operations as pairs (name, {parameter: number or numbers}).
 */
#include "core.h"

#include <errno.h>
#include <stdlib.h>

struct recipe {
    PyObject_HEAD struct hr_recipe *handle;
};

struct hr_recipe *core_recipe_handle(PyObject *self)
{
    return ((struct recipe *)self)->handle;
}

#define VALUES_MAX 16

/* Reads a number, or a sequence of numbers. Returns how many, or -1 with an exception. */
static Py_ssize_t read_numbers(PyObject *value, const char *name, double values[VALUES_MAX])
{
    if (!PySequence_Check(value)) {
        values[0] = PyFloat_AsDouble(value);
        return values[0] == -1 && PyErr_Occurred() ? -1 : 1;
    }
    Py_ssize_t count = PySequence_Size(value);
    if (count > VALUES_MAX)
        PyErr_Format(PyExc_ValueError, "%s takes %d numbers at most", name, VALUES_MAX);
    if (count < 0 || count > VALUES_MAX)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(value, i);
        values[i] = item ? PyFloat_AsDouble(item) : -1;
        Py_XDECREF(item);
        if (values[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return count;
}

static int set_field(struct hr_operation *operation, PyObject *key, PyObject *value)
{
    double values[VALUES_MAX];
    struct hr_error error = {0};
    const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
    Py_ssize_t count = name ? read_numbers(value, name, values) : -1;
    if (count < 0)
        return -1;
    int r = hr_operation_set(operation, name, values, (size_t)count, &error);
    if (r)
        PyErr_SetString(r == -ENOENT ? PyExc_TypeError : PyExc_ValueError, error.message);
    return r ? -1 : 0;
}

static int set_fields(struct hr_operation *operation, PyObject *parameters)
{
    Py_ssize_t position = 0;
    PyObject *key, *value;
    /* A copy: another thread may change the caller's. */
    PyObject *copy = PyDict_Copy(parameters);
    int r = copy ? 0 : -1;
    while (!r && PyDict_Next(copy, &position, &key, &value))
        r = set_field(operation, key, value);
    Py_XDECREF(copy);
    return r;
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
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    enum hr_operation_kind kind = text ? hr_operation_kind_of(text) : (enum hr_operation_kind)0;
    if (!kind) {
        if (text)
            PyErr_Format(PyExc_ValueError, "there is no operation %R", name);
        return -1;
    }
    hr_operation_default(operation, kind);
    return set_fields(operation, values);
}

static struct hr_operation *convert_operations(PyObject *list, Py_ssize_t *count)
{
    PyObject *copy = PyList_AsTuple(list);
    if (!copy)
        return NULL;
    *count = PyTuple_Size(copy);
    struct hr_operation *operations = calloc(*count ? (size_t)*count : 1, sizeof *operations);
    if (!operations)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; operations && i < *count; i++) {
        if (set_operation(&operations[i], PyTuple_GetItem(copy, i)) < 0) {
            free(operations);
            operations = NULL;
        }
    }
    Py_DECREF(copy);
    return operations;
}

/* Takes the reference over. */
static PyObject *wrap(PyTypeObject *type, struct hr_recipe *handle)
{
    struct recipe *self = PyObject_New(struct recipe, type);
    if (!self) {
        hr_recipe_unref(&handle);
        return NULL;
    }
    self->handle = handle;
    return (PyObject *)self;
}

PyObject *core_recipe_wrap(struct core_state *state, struct hr_recipe *handle)
{
    return wrap(state->recipe_type, handle);
}

static PyObject *recipe_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"operations",       "layout",  "apply_exif_orientation",
                            "max_pixels",       "damaged", "exact",
                            "max_source_bytes", "padded",  "max_height",
                            "max_width",        NULL};
    struct hr_recipe_options options;
    hr_recipe_options_default(&options);
    PyObject *list;
    int layout = HR_NCHW, damaged = HR_DAMAGED_REFUSE, exact = 1;
    unsigned long long max_pixels = options.max_pixels, max_source = options.max_source_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|$ipKipKpii", names, &PyList_Type, &list,
                                     &layout, &options.apply_exif_orientation, &max_pixels,
                                     &damaged, &exact, &max_source, &options.padded,
                                     &options.max_height, &options.max_width))
        return NULL;
    options.layout = (enum hr_layout)layout;
    options.max_pixels = max_pixels;
    options.max_source_bytes = max_source;
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
    return wrap(type, handle);
}

/* Recipe.of_views(recipes) */
static PyObject *recipe_of_views(PyObject *class, PyTypeObject *type, PyObject *const *args,
                                 Py_ssize_t count, PyObject *names)
{
    struct core_state *state = PyType_GetModuleState(type);
    struct hr_recipe *views[HR_RECIPE_MAX_VIEWS], *handle = NULL;
    struct hr_error error = {0};
    if (count != 1 || names || !PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "of_views takes a tuple of recipes");
        return NULL;
    }
    Py_ssize_t n = PyTuple_Size(args[0]);
    if (n < 1 || n > HR_RECIPE_MAX_VIEWS) {
        PyErr_Format(PyExc_ValueError, "%zd views are not possible: give 1 to %d", n,
                     HR_RECIPE_MAX_VIEWS);
        return NULL;
    }
    for (Py_ssize_t v = 0; v < n; v++) {
        PyObject *item = PyTuple_GetItem(args[0], v);
        if (!PyObject_TypeCheck(item, type)) {
            PyErr_SetString(PyExc_TypeError, "of_views takes a tuple of recipes");
            return NULL;
        }
        views[v] = core_recipe_handle(item);
    }
    int r = hr_recipe_create_views(&handle, views, (size_t)n, &error);
    return r ? core_raise(state, r, &error, NULL) : wrap(type, handle);
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
    PyObject *shape = PyTuple_New((Py_ssize_t)spec.dims);
    for (size_t i = 0; shape && i < spec.dims; i++) {
        PyObject *side = PyLong_FromLongLong(spec.shape[i]);
        if (!side || PyTuple_SetItem(shape, (Py_ssize_t)i, side) < 0)
            Py_CLEAR(shape);
    }
    return shape;
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

static PyObject *recipe_views(PyObject *object, void *closure)
{
    return PyLong_FromSize_t(hr_recipe_views(core_recipe_handle(object)));
}

static PyObject *recipe_sound_head(PyObject *object, void *closure)
{
    struct hr_sound_head head;
    if (hr_recipe_sound_head(core_recipe_handle(object), &head))
        Py_RETURN_NONE;
    return Py_BuildValue("(Oi)", head.mono ? Py_True : Py_False, head.rate);
}

static PyMethodDef recipe_methods[] = {
    {"of_views", (PyCFunction)(void (*)(void))recipe_of_views,
     METH_METHOD | METH_FASTCALL | METH_KEYWORDS | METH_CLASS,
     PyDoc_STR("of_views(recipes)\n--\n\nA recipe of several views of one image.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recipe_getset[] = {
    {"views", recipe_views, NULL, PyDoc_STR("How many views of an image it makes."), NULL},
    {"shape", recipe_shape, NULL, PyDoc_STR("Of one sample."), NULL},
    {"dtype", recipe_dtype, NULL, PyDoc_STR("Of one element."), NULL},
    {"nbytes", recipe_nbytes, NULL, PyDoc_STR("Of one sample."), NULL},
    {"sound_head", recipe_sound_head, NULL,
     PyDoc_STR("What it does first to the whole sound, as (mono, rate); None: it is of images."),
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot recipe_slots[] = {
    {Py_tp_doc,
     (void *)PyDoc_STR("Recipe(operations, *, layout=0, apply_exif_orientation=False,\n"
                       "max_pixels=178956970, damaged=0, exact=True, padded=False,\n"
                       "max_height=0, max_width=0)\n--\n\nA checked list of operations.")},
    {Py_tp_new, recipe_new},
    {Py_tp_dealloc, recipe_dealloc},
    {Py_tp_methods, recipe_methods},
    {Py_tp_getset, recipe_getset},
    {0, NULL},
};

PyType_Spec core_recipe_spec = {
    .name = "headrace._core.Recipe",
    .basicsize = sizeof(struct recipe),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = recipe_slots,
};
