/*
 * Module functions on the order of samples, for loaders in Python that follow the order of the
 * native one.
 */
#include "core.h"

#include <errno.h>

PyObject *core_order(PyObject *module, PyObject *args)
{
    unsigned long long samples, seed, epoch;
    int shuffle;
    if (!PyArg_ParseTuple(args, "KpKK", &samples, &shuffle, &seed, &epoch))
        return NULL;
    if (samples > PY_SSIZE_T_MAX / sizeof(uint64_t))
        return PyErr_NoMemory();
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(samples * sizeof(uint64_t)));
    if (!bytes)
        return NULL;
    uint64_t *out = (uint64_t *)(void *)PyBytes_AsString(bytes);
    struct hr_error error = {0};
    int r;
    Py_BEGIN_ALLOW_THREADS
        r = hr_order_fill(out, samples, shuffle, seed, epoch, &error);
    Py_END_ALLOW_THREADS
    if (r) {
        Py_DECREF(bytes);
        return core_raise(PyModule_GetState(module), r, &error, NULL);
    }
    return bytes;
}

PyObject *core_order_replacement(PyObject *module, PyObject *args)
{
    unsigned long long samples, seed, epoch, position;
    unsigned int attempt;
    if (!PyArg_ParseTuple(args, "KKKKI", &samples, &seed, &epoch, &position, &attempt))
        return NULL;
    if (position >= samples) {
        PyErr_SetString(PyExc_ValueError, "position must be less than samples");
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(
        hr_order_replacement(samples, seed, epoch, position, attempt));
}
