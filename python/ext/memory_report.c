/*
 * Module functions that report on, compare and import memory records: headrace._core.memory_*.
 * Each call opens the analyses it needs and closes them.
 */
#include "core.h"

#include <errno.h>
#include <headrace/memory.h>
#include <stdlib.h>

/* The analyses open during a call. */
struct opened {
    struct hr_memory **memories;
    size_t count;
};

static void close_all(struct opened *opened)
{
    for (size_t i = 0; i < opened->count; i++)
        hr_memory_destroy(&opened->memories[i]);
    free(opened->memories);
}

/* Opens all records; called without the GIL. On failure *at is the index of the failed path and
 * nothing stays open. */
static int open_all(struct opened *opened, const struct core_paths *paths,
                    const struct hr_memory_options *options, Py_ssize_t *at, struct hr_error *error)
{
    int r = 0;
    *at = 0;
    *opened =
        (struct opened){.memories = calloc((size_t)paths->count + 1, sizeof *opened->memories)};
    if (!opened->memories)
        return -ENOMEM;
    for (; *at < paths->count; (*at)++) {
        r = hr_memory_open(&opened->memories[*at], paths->text[*at], options, error);
        if (r)
            break;
        opened->count++;
    }
    if (r)
        close_all(opened);
    return r;
}

/* Raises a library error. Leaves out the path for a record without events (-ENODATA), which
 * core_raise would report as a missing file. */
static void raise_of(PyObject *module, int code, const struct hr_error *error, PyObject *path)
{
    core_raise(PyModule_GetState(module), code, error, code == -ENODATA ? NULL : path);
}

/* Writes the report to `out`, as text or, if columns < 0, as an HTML page. */
static PyObject *write_of(PyObject *module, PyObject *sequence, PyObject *out, int columns,
                          const struct hr_memory_options *options)
{
    struct core_paths paths;
    struct opened opened;
    struct hr_error error = {0};
    Py_ssize_t at;
    int r, is_open;
    if (core_paths_take(&paths, sequence) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
        r = open_all(&opened, &paths, options, &at, &error);
        is_open = !r;
        if (is_open) {
            const struct hr_memory *const *all = (const struct hr_memory *const *)opened.memories;
            const char *to = PyBytes_AsString(out);
            r = columns < 0 ? hr_memory_write_page(all, opened.count, to, &error)
                            : hr_memory_write_text(all, opened.count, to, columns, &error);
            close_all(&opened);
        }
    Py_END_ALLOW_THREADS
    if (r)
        raise_of(module, r, &error,
                 is_open || at >= paths.count ? out : PyList_GetItem(paths.owners, at));
    core_paths_clear(&paths);
    return r ? NULL : Py_NewRef(Py_None);
}

PyObject *core_memory_write_text(PyObject *module, PyObject *args)
{
    PyObject *sequence, *out;
    struct hr_memory_options options;
    int columns;
    hr_memory_options_default(&options);
    if (!PyArg_ParseTuple(args, "OO&idd", &sequence, PyUnicode_FSConverter, &out, &columns,
                          &options.h2d_bytes_per_s, &options.d2h_bytes_per_s))
        return NULL;
    PyObject *done = write_of(module, sequence, out, columns < 0 ? 0 : columns, &options);
    Py_DECREF(out);
    return done;
}

PyObject *core_memory_write_page(PyObject *module, PyObject *args)
{
    PyObject *sequence, *out;
    struct hr_memory_options options;
    hr_memory_options_default(&options);
    if (!PyArg_ParseTuple(args, "OO&dd", &sequence, PyUnicode_FSConverter, &out,
                          &options.h2d_bytes_per_s, &options.d2h_bytes_per_s))
        return NULL;
    PyObject *done = write_of(module, sequence, out, -1, &options);
    Py_DECREF(out);
    return done;
}

PyObject *core_memory_compare(PyObject *module, PyObject *sequence)
{
    struct core_paths paths;
    struct opened opened;
    struct hr_memory_comparison *comparison = NULL;
    struct hr_error error = {0};
    PyObject *text = NULL;
    Py_ssize_t at;
    int r;
    if (core_paths_take(&paths, sequence) < 0)
        return NULL;
    if (paths.count != 2) {
        PyErr_SetString(PyExc_ValueError, "two records are compared");
        core_paths_clear(&paths);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
        r = open_all(&opened, &paths, NULL, &at, &error);
        if (!r) {
            r = hr_memory_compare(&comparison, opened.memories[0], opened.memories[1], &error);
            if (r)
                close_all(&opened);
        }
    Py_END_ALLOW_THREADS
    if (r) {
        raise_of(module, r, &error, at < 2 ? PyList_GetItem(paths.owners, at) : NULL);
    } else {
        text = PyUnicode_FromString(hr_memory_comparison_json(comparison));
        hr_memory_comparison_destroy(&comparison);
        close_all(&opened);
    }
    core_paths_clear(&paths);
    return text;
}

PyObject *core_memory_import(PyObject *module, PyObject *args)
{
    PyObject *from, *to;
    struct hr_error error = {0};
    int r;
    if (!PyArg_ParseTuple(args, "O&O&", PyUnicode_FSConverter, &from, PyUnicode_FSConverter, &to))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
        r = hr_memory_import(PyBytes_AsString(from), PyBytes_AsString(to), &error);
    Py_END_ALLOW_THREADS
    if (r)
        raise_of(module, r, &error, from);
    Py_DECREF(from);
    Py_DECREF(to);
    return r ? NULL : Py_NewRef(Py_None);
}
