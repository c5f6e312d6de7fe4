/*
 * headrace._core.Meter: the status of a loader in Python, for headrace top and Prometheus; and the
 * module function metrics_text().
 *
 * A Meter belongs to the process that made it. In a forked child it does nothing but free its
 * memory.
 */
#include "core.h"

struct meter {
    PyObject_HEAD struct hr_meter *handle; /* NULL: ended */
};

static PyObject *meter_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"metrics", "rank", "local_world_size", NULL};
    const char *metrics;
    int rank, ranks, r;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "zii", names, &metrics, &rank, &ranks))
        return NULL;
    if (rank < 0 || ranks < 1) {
        PyErr_SetString(PyExc_ValueError, "rank is not negative, local_world_size is 1 or more");
        return NULL;
    }
    struct meter *self = PyObject_New(struct meter, type);
    if (!self)
        return NULL;
    struct hr_error error = {0};
    self->handle = NULL;
    /* `metrics` is of an argument that the caller holds. */
    Py_BEGIN_ALLOW_THREADS
        r = hr_meter_begin(&self->handle, metrics, rank, ranks, &error);
    Py_END_ALLOW_THREADS
    if (!r)
        return (PyObject *)self;
    core_raise(PyType_GetModuleState(type), r, &error, NULL);
    Py_DECREF(self);
    return NULL;
}

static PyObject *meter_check(PyObject *type, PyObject *argument)
{
    struct hr_error error = {0};
    const char *metrics = PyUnicode_AsUTF8AndSize(argument, NULL);
    if (!metrics)
        return NULL;
    int r = hr_meter_check(metrics, &error);
    if (r)
        return core_raise(PyType_GetModuleState((PyTypeObject *)type), r, &error, NULL);
    Py_RETURN_NONE;
}

static PyObject *meter_publish(PyObject *self, PyObject *status)
{
    struct hr_meter *handle = ((struct meter *)self)->handle;
    const char *text = PyUnicode_AsUTF8AndSize(status, NULL);
    if (!text)
        return NULL;
    if (handle)
        hr_meter_publish(handle, text);
    Py_RETURN_NONE;
}

static PyObject *meter_end(PyObject *self, PyObject *none)
{
    struct hr_meter *handle = ((struct meter *)self)->handle;
    /* Taken before the GIL is released, so that only one of two threads ends it. */
    ((struct meter *)self)->handle = NULL;
    Py_BEGIN_ALLOW_THREADS
        hr_meter_end(&handle);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static void meter_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct hr_meter *handle = ((struct meter *)self)->handle;
    Py_BEGIN_ALLOW_THREADS
        hr_meter_end(&handle);
    Py_END_ALLOW_THREADS
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *meter_number(PyObject *self, void *closure)
{
    struct hr_meter *handle = ((struct meter *)self)->handle;
    return PyLong_FromLong(handle ? hr_meter_number(handle) : -1);
}

PyObject *core_metrics_text(PyObject *module, PyObject *none)
{
    char *metrics = NULL;
    struct hr_error error = {0};
    int r;
    Py_BEGIN_ALLOW_THREADS
        r = hr_metrics_text(&metrics, &error);
    Py_END_ALLOW_THREADS
    if (r)
        return core_raise(PyModule_GetState(module), r, &error, NULL);
    PyObject *text = core_text(metrics);
    hr_text_free(metrics);
    return text;
}

CORE_METHOD(meter_publish);
CORE_METHOD(meter_end);
CORE_GETTER(meter_number);

static PyMethodDef meter_methods[] = {
    {"check", meter_check, METH_O | METH_CLASS,
     PyDoc_STR("check(metrics)\n--\n\nRaises ValueError if it is not an address.")},
    {"publish", CORE_LOCKED(meter_publish), METH_O,
     PyDoc_STR("publish(status)\n--\n\nReplaces the status: one JSON object.")},
    {"end", CORE_LOCKED(meter_end), METH_NOARGS,
     PyDoc_STR("end()\n--\n\nThe loader is shown no more.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef meter_getset[] = {
    {"number", CORE_LOCKED(meter_number), NULL,
     PyDoc_STR("The lowest that no other loader of the process has; -1: it has ended."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot meter_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Meter(metrics, rank, local_world_size)\n--\n\n"
                                  "The status of a loader, which others see.")},
    {Py_tp_new, meter_new},
    {Py_tp_dealloc, meter_dealloc},
    {Py_tp_methods, meter_methods},
    {Py_tp_getset, meter_getset},
    {0, NULL},
};

PyType_Spec core_meter_spec = {
    .name = "headrace._core.Meter",
    .basicsize = sizeof(struct meter),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = meter_slots,
};
