/*
 * Functions headrace._core.storage_*: page-cache residency of files (check, drop, preread) and
 * the speed of storage (measure).
 *
 * Long lists of files go to the library in groups, without the GIL; Ctrl-C takes effect between
 * groups. The results of the groups are summed.
 */
#include "core.h"

#include <errno.h>
#include <string.h>

/* Files per library call. */
#define RUN_FILES 512

typedef int (*surveyor)(const char *const *, size_t, struct hr_storage_residency *,
                        struct hr_error *);

static void add(struct hr_storage_residency *sum, const struct hr_storage_residency *part)
{
    /* A failed file's problem has precedence over that of a file of unknown residency. */
    if (part->problem[0] && (!sum->problem[0] || (part->failed && !sum->failed)))
        memcpy(sum->problem, part->problem, sizeof sum->problem);
    if (!sum->files)
        memcpy(sum->filesystem, part->filesystem, sizeof sum->filesystem);
    sum->files += part->files;
    sum->bytes += part->bytes;
    sum->resident_bytes += part->resident_bytes;
    sum->dirty_bytes += part->dirty_bytes;
    sum->failed += part->failed;
    sum->unknown += part->unknown;
    sum->in_memory |= part->in_memory;
    sum->network |= part->network;
}

static PyObject *survey(PyObject *module, PyObject *sequence, surveyor function)
{
    struct core_paths paths;
    struct hr_storage_residency sum = {.size = sizeof sum};
    struct hr_error error = {0};
    int r = 0;
    if (core_paths_take(&paths, sequence) < 0)
        return NULL;
    for (Py_ssize_t at = 0; at < paths.count && !r; at += RUN_FILES) {
        struct hr_storage_residency part = {.size = sizeof part};
        Py_ssize_t n = paths.count - at < RUN_FILES ? paths.count - at : RUN_FILES;
        do {
            Py_BEGIN_ALLOW_THREADS
                r = function(paths.text + at, (size_t)n, &part, &error);
            Py_END_ALLOW_THREADS
            if (PyErr_CheckSignals() < 0)
                goto fail;
        } while (r == -EINTR); /* a signal handler returned normally: repeat the group */
        add(&sum, &part);
    }
    core_paths_clear(&paths);
    if (r)
        return core_raise(PyModule_GetState(module), r, &error, NULL);
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:N,s:N,s:N}", "files", (unsigned long long)sum.files,
        "bytes", (unsigned long long)sum.bytes, "resident_bytes",
        (unsigned long long)sum.resident_bytes, "dirty_bytes", (unsigned long long)sum.dirty_bytes,
        "failed", (unsigned long long)sum.failed, "unknown", (unsigned long long)sum.unknown,
        "problem", core_text(sum.problem), "filesystem", core_text(sum.filesystem), "in_memory",
        PyBool_FromLong(sum.in_memory), "network", PyBool_FromLong(sum.network));
fail:
    core_paths_clear(&paths);
    return NULL;
}

PyObject *core_storage_check(PyObject *module, PyObject *paths)
{
    return survey(module, paths, hr_storage_check);
}

PyObject *core_storage_drop(PyObject *module, PyObject *paths)
{
    return survey(module, paths, hr_storage_drop);
}

PyObject *core_storage_preread(PyObject *module, PyObject *paths)
{
    return survey(module, paths, hr_storage_preread);
}

/* Makes a result of a measured rate, or raises what ended it. */
static PyObject *rate_result(struct core_state *state, int r, const struct hr_storage_rate *rate,
                             const struct hr_error *error)
{
    core_log_drain(state);
    if (PyErr_CheckSignals() < 0)
        return NULL;
    if (r == -ENODATA) {
        /* OSError, not ValueError: the files cannot be read, but the arguments are valid. */
        PyObject *arguments = Py_BuildValue("(iN)", ENODATA, core_text(error->message));
        if (arguments)
            PyErr_SetObject(PyExc_OSError, arguments);
        Py_XDECREF(arguments);
        return NULL;
    }
    if (r)
        return core_raise(state, r, error, NULL);
    PyObject *parts = PyList_New(rate->part_count);
    for (int i = 0; parts && i < rate->part_count; i++) {
        PyObject *part = PyFloat_FromDouble(rate->parts[i]);
        if (!part || PyList_SetItem(parts, i, part) < 0)
            Py_CLEAR(parts);
    }
    if (!parts)
        return NULL;
    return Py_BuildValue(
        "{s:K,s:K,s:d,s:d,s:d,s:N,s:K,s:N,s:d}", "reads", (unsigned long long)rate->reads, "bytes",
        (unsigned long long)rate->bytes, "elapsed_s", rate->elapsed_s, "bytes_per_s",
        rate->bytes_per_s, "reads_per_s", rate->reads_per_s, "exhausted",
        PyBool_FromLong(rate->exhausted), "failed", (unsigned long long)rate->failed, "parts",
        parts, "steady_bytes_per_s", rate->steady_bytes_per_s);
}

PyObject *core_storage_measure(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"paths", "depth", "seconds", NULL};
    struct core_state *state = PyModule_GetState(module);
    struct hr_storage_rate rate = {.size = sizeof rate};
    struct hr_error error = {0};
    struct core_paths paths;
    PyObject *sequence;
    int depth, r;
    double seconds;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Oid", names, &sequence, &depth, &seconds) ||
        core_paths_take(&paths, sequence) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
        r = hr_storage_measure(paths.text, (size_t)paths.count, depth, seconds, &rate, &error);
    Py_END_ALLOW_THREADS
    core_paths_clear(&paths);
    return rate_result(state, r, &rate, &error);
}

PyObject *core_storage_measure_samples(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dataset", "indices", "depth", "seconds", NULL};
    struct core_state *state = PyModule_GetState(module);
    struct hr_storage_rate rate = {.size = sizeof rate};
    struct hr_error error = {0};
    PyObject *dataset, *indices;
    Py_buffer view;
    int depth, r;
    double seconds;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!Oid", names, state->dataset_type, &dataset,
                                     &indices, &depth, &seconds) ||
        core_get_int64(indices, "indices", &view) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
        r = hr_storage_measure_samples(core_dataset_handle(dataset), view.buf, (size_t)view.len / 8,
                                       depth, seconds, &rate, &error);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return rate_result(state, r, &rate, &error);
}
