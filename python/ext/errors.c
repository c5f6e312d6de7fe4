/*
 * Converts library error codes to Python exceptions.
 *
 * A code that is not in the table is an operating system error. It becomes the
 * OSError subclass for its errno (FileNotFoundError, PermissionError, ...), with
 * the file name if it is known.
 */
#include "core.h"

#include <errno.h>
#include <string.h>

/* Codes that the library uses with a meaning of its own. The table points to CPython's
 * variables, because they are set only when the interpreter starts. */
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
        return NULL; /* keep what a signal handler or a callback raised */
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
        /* As torchvision does for a folder without classes or images. */
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

int core_enter(bool *busy, const char *type)
{
    if (*busy) {
        PyErr_Format(PyExc_RuntimeError,
                     "this %s is at work on another thread: make one per thread", type);
        return -1;
    }
    *busy = true;
    return 0;
}
