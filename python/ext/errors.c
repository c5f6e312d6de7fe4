/*
 * Library errors to Python exceptions, in one table.
 *
 * A code that the table does not name is an operating system error and becomes
 * the OSError subclass of its errno (FileNotFoundError, PermissionError, ...),
 * with the file name where one is known.
 */
#include "core.h"

#include <errno.h>
#include <string.h>

/* Codes whose meaning here is not "the operating system said so". The pointers
 * are to CPython's own variables, which are filled in when it starts. */
static const struct {
    int code;
    PyObject **type;
} table[] = {
    {-EINVAL, &PyExc_ValueError},       {-ERANGE, &PyExc_IndexError},
    {-EBADMSG, &PyExc_ValueError},      {-EFBIG, &PyExc_ValueError},
    {-ENOSPC, &PyExc_ValueError},       {-ENOTSUP, &PyExc_NotImplementedError},
    {-ENOMEM, &PyExc_MemoryError},      {-ECHILD, &PyExc_RuntimeError},
    {-EAGAIN, &PyExc_RuntimeError},     {-ECANCELED, &PyExc_RuntimeError},
    {-EINTR, &PyExc_KeyboardInterrupt}, {-EINPROGRESS, &PyExc_RuntimeError},
};

struct core_state *core_state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

PyObject *core_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

static void raise_os_error(int code, PyObject *message, PyObject *filename)
{
    PyObject *exception =
        filename ? PyObject_CallFunction(PyExc_OSError, "iOO", -code, message, filename)
                 : PyObject_CallFunction(PyExc_OSError, "iO", -code, message);
    if (!exception)
        return;
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF(exception);
}

PyObject *core_raise(struct core_state *state, int code, const struct hr_error *error,
                     PyObject *filename)
{
    if (PyErr_Occurred())
        return NULL; /* a signal handler or a callback raised first */
    const char *text = error && error->code && error->message[0] ? error->message : strerror(-code);
    PyObject *message = core_text(text);
    if (!message)
        return NULL;
    PyObject *type = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].code == code)
            type = *table[i].type;
    if (code == -EOVERFLOW)
        type = state->too_many_bad_samples;
    if (code == -ENODATA) {
        /* What torchvision raises for a folder without classes or images. */
        PyErr_SetObject(filename ? PyExc_FileNotFoundError : PyExc_ValueError, message);
    } else if (type) {
        PyErr_SetObject(type, message);
    } else {
        raise_os_error(code, message, filename);
    }
    Py_DECREF(message);
    return NULL;
}

PyObject *core_raise_cache(struct core_state *state, int code, const struct hr_error *error)
{
    if (code != -ENOSPC || PyErr_Occurred())
        return core_raise(state, code, error, NULL);
    PyObject *message = core_text(error->message[0] ? error->message : strerror(ENOSPC));
    if (message)
        raise_os_error(code, message, NULL);
    Py_XDECREF(message);
    return NULL;
}
