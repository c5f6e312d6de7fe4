/* Helpers that build Python dicts and lists from the library's numbers. */
#include "core.h"

int core_put(PyObject *dict, const char *key, PyObject *value)
{
    int r = value ? PyDict_SetItemString(dict, key, value) : -1;
    Py_XDECREF(value);
    return r;
}

int core_put_numbers(PyObject *dict, const struct core_number *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (core_put(dict, numbers[i].name, PyLong_FromUnsignedLongLong(numbers[i].value)) < 0)
            return -1;
    return 0;
}

PyObject *core_numbers(const uint64_t *values, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(values[i]);
        if (!number || PyList_SetItem(list, (Py_ssize_t)i, number) < 0)
            Py_CLEAR(list);
    }
    return list;
}
