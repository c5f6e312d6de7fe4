/*
 * Converts Python sequences of paths to arrays of C strings for the library.
 */
#include "core.h"

#include <stdlib.h>

void core_paths_clear(struct core_paths *paths)
{
    free(paths->text);
    Py_CLEAR(paths->owners);
    paths->text = NULL;
}

int core_paths_take(struct core_paths *paths, PyObject *sequence)
{
    *paths = (struct core_paths){0};
    /* A single str or bytes would pass as a sequence of its characters. */
    if (PyUnicode_Check(sequence) || PyBytes_Check(sequence)) {
        PyErr_SetString(PyExc_TypeError, "paths must be a sequence of paths, not one path");
        return -1;
    }
    paths->owners = PySequence_List(sequence);
    if (!paths->owners)
        return -1;
    paths->count = PyList_Size(paths->owners);
    paths->text = malloc((paths->count ? (size_t)paths->count : 1) * sizeof *paths->text);
    if (!paths->text) {
        PyErr_NoMemory();
        goto fail;
    }
    for (Py_ssize_t i = 0; i < paths->count; i++) {
        PyObject *bytes = NULL;
        if (!PyUnicode_FSConverter(PyList_GetItem(paths->owners, i), &bytes))
            goto fail;
        paths->text[i] = PyBytes_AsString(bytes);
        if (PyList_SetItem(paths->owners, i, bytes) < 0)
            goto fail;
    }
    return 0;
fail:
    core_paths_clear(paths);
    return -1;
}
