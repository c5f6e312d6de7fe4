/*
 * headrace._core.Converter: converts image files to items and back, on the calling
 * thread with the GIL released. Results are copied into bytes objects, because the
 * library reuses their memory in its next call.
 */
#include "core.h"

#include <string.h>

struct converter {
    PyObject_HEAD struct hr_converter *handle;
    bool busy; /* a call is in progress without the GIL; guarded by the GIL */
};

static PyObject *converter_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"trust", "max_growth", "max_pixels", NULL};
    struct hr_converter_options options;
    hr_converter_options_default(&options);
    unsigned long long max_pixels = options.max_pixels;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$pdK", names, &options.trust,
                                     &options.max_growth, &max_pixels))
        return NULL;
    options.max_pixels = max_pixels;
    struct hr_converter *handle = NULL;
    struct hr_error error = {0};
    int r = hr_converter_create(&handle, &options, &error);
    if (r)
        return core_raise(PyType_GetModuleState(type), r, &error, NULL);
    struct converter *self = PyObject_New(struct converter, type);
    if (!self) {
        hr_converter_destroy(&handle);
        return NULL;
    }
    self->handle = handle;
    self->busy = false;
    return (PyObject *)self;
}

static void converter_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    hr_converter_destroy(&((struct converter *)object)->handle);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Sets *form from a name. Returns 0, or -1 with ValueError for an unknown name. */
static int parse_form(const char *name, enum hr_form *form)
{
    for (int i = 0; hr_form_name((enum hr_form)i); i++)
        if (!strcmp(name, hr_form_name((enum hr_form)i))) {
            *form = (enum hr_form)i;
            return 0;
        }
    PyErr_Format(
        PyExc_ValueError,
        "form must be encoded, indexed, coefficients, planes, waveform or waveform16, not '%s'",
        name);
    return -1;
}

/* Converts the buffer to an item of `form`, or back to an image file if `form` is NULL. Releases
 * the buffer. */
static PyObject *produce(struct converter *self, Py_buffer *view, const enum hr_form *form)
{
    struct hr_item item;
    struct hr_error error = {0};
    PyObject *result = NULL;
    if (core_enter(&self->busy, "Converter") == 0) {
        int r;
        Py_BEGIN_ALLOW_THREADS
            r = form ? hr_converter_run(self->handle, *form, view->buf, (size_t)view->len, &item,
                                        &error)
                     : hr_converter_restore(self->handle, view->buf, (size_t)view->len, &item,
                                            &error);
        Py_END_ALLOW_THREADS
        result = r ? core_raise(core_state_of((PyObject *)self), r, &error, NULL)
                   : PyBytes_FromStringAndSize(item.bytes, (Py_ssize_t)item.length);
        self->busy = false;
    }
    PyBuffer_Release(view);
    return result;
}

static PyObject *converter_convert(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "form", NULL};
    Py_buffer view;
    const char *name = "coefficients";
    enum hr_form form;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*|s", names, &view, &name))
        return NULL;
    if (parse_form(name, &form) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    return produce((struct converter *)object, &view, &form);
}

static PyObject *converter_restore(PyObject *object, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    return produce((struct converter *)object, &view, NULL);
}

static PyObject *converter_estimate(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "form", NULL};
    struct converter *self = (struct converter *)object;
    struct hr_form_estimate estimate = {.size = sizeof estimate};
    struct hr_error error = {0};
    Py_buffer view;
    const char *name = "coefficients";
    enum hr_form form;
    int r = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*|s", names, &view, &name))
        return NULL;
    if (parse_form(name, &form) == 0 && core_enter(&self->busy, "Converter") == 0) {
        r = hr_converter_estimate(self->handle, form, view.buf, (size_t)view.len, &estimate,
                                  &error);
        self->busy = false;
    }
    PyBuffer_Release(&view);
    if (r)
        return core_raise(core_state_of(object), r, &error, NULL);
    if (!estimate.possible)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(estimate.bytes);
}

PyObject *core_form_of(PyObject *module, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    enum hr_form form = hr_form_of(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyUnicode_FromString(hr_form_name(form));
}

PyObject *core_is_sound(PyObject *module, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int is_sound = hr_sound_recognise(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyBool_FromLong(is_sound);
}

CORE_KEYWORDS(converter_convert);
CORE_KEYWORDS(converter_estimate);
CORE_METHOD(converter_restore);

static PyMethodDef converter_methods[] = {
    {"convert", (PyCFunction)(void (*)(void))CORE_LOCKED(converter_convert),
     METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("convert(data, form='coefficients')\n--\n\nAn image file as an item of that form.")},
    {"restore", CORE_LOCKED(converter_restore), METH_O,
     PyDoc_STR("restore(item)\n--\n\nAn image file with the pixels of an item.")},
    {"estimate", (PyCFunction)(void (*)(void))CORE_LOCKED(converter_estimate),
     METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("estimate(data, form='coefficients')\n--\n\n"
               "Bytes that an item would take, from the file's header alone: expected\n"
               "for 'coefficients', exact for the others. None: the file has to stay a file.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot converter_slots[] = {
    {Py_tp_doc,
     (void *)PyDoc_STR(
         "Converter(*, trust=False, max_growth=0.0, max_pixels=178956970)\n--\n\n"
         "Converts images to items and back, one thread at a time.\n\n"
         "It keeps memory from image to image; the GIL is released meanwhile, so that\n"
         "several converters work side by side. trust: give items out without comparing\n"
         "their pixels with libjpeg-turbo's; max_growth: the largest item, in bytes of\n"
         "its file (0: any); max_pixels: the largest image.")},
    {Py_tp_new, converter_new},
    {Py_tp_dealloc, converter_dealloc},
    {Py_tp_methods, converter_methods},
    {0, NULL},
};

PyType_Spec core_converter_spec = {
    .name = "headrace._core.Converter",
    .basicsize = sizeof(struct converter),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = converter_slots,
};
