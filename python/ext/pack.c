/*
 * Functions headrace._core.pack_*: write, unpack and inspect packs.
 *
 * The calls release the GIL. The library reports progress and notices on the calling
 * thread, and the callbacks take the GIL for a moment. If a callback raises, or on
 * Ctrl-C, the call is cancelled and the caller gets that exception.
 */
#include "core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One call into the library. */
struct pack_call {
    PyThreadState *saved;
    PyObject *progress; /* callable(done, total), or NULL; borrowed */
    PyObject *notices;  /* list of (index, path, reason, kept); owned */
    uint64_t last;      /* index of the latest bad sample, if `any` */
    int any;            /* a bad sample was reported */
    char reason[400];   /* why the latest one is bad */
};

static int on_progress(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    struct pack_call *call = arg;
    PyEval_RestoreThread(call->saved);
    int stop = PyErr_Occurred() || PyErr_CheckSignals();
    /* "checking": continuing a pack first checks the files packed already; no progress yet.
     * "uploading": all samples are packed. */
    if (!stop && call->progress && strcmp(stage, "checking") && strcmp(stage, "uploading")) {
        PyObject *result = PyObject_CallFunction(call->progress, "KK", (unsigned long long)done,
                                                 (unsigned long long)total);
        stop = !result;
        Py_XDECREF(result);
    }
    call->saved = PyEval_SaveThread();
    return stop;
}

static void on_notice(void *arg, const struct hr_bad_sample *sample, enum hr_pack_kept kept)
{
    struct pack_call *call = arg;
    PyEval_RestoreThread(call->saved);
    if (kept == HR_PACK_KEPT_BAD) {
        call->any = 1;
        call->last = sample->index;
        snprintf(call->reason, sizeof call->reason, "%s", sample->reason);
    }
    PyObject *path = PyErr_Occurred() ? NULL : PyUnicode_DecodeFSDefault(sample->path);
    PyObject *reason = path ? core_text(sample->reason) : NULL;
    PyObject *entry =
        reason ? Py_BuildValue("(KOOi)", (unsigned long long)sample->index, path, reason, (int)kept)
               : NULL;
    /* On an exception, the next on_progress cancels the call. */
    if (entry)
        (void)PyList_Append(call->notices, entry);
    Py_XDECREF(entry);
    Py_XDECREF(reason);
    Py_XDECREF(path);
    call->saved = PyEval_SaveThread();
}

/* Raises headrace.SampleError if `error` is about a bad sample, OSError for a full disk or a
 * file that is too large, and otherwise as core_raise. */
static PyObject *raise(struct core_state *state, const struct pack_call *call, int code,
                       const struct hr_error *error, PyObject *path)
{
    char start[48];
    if (PyErr_Occurred())
        return NULL;
    snprintf(start, sizeof start, "sample %llu (", (unsigned long long)call->last);
    if (call->any && !strncmp(error->message, start, strlen(start))) {
        PyObject *notice = PyList_GetItem(call->notices, PyList_Size(call->notices) - 1);
        PyObject *arguments =
            notice ? PyTuple_Pack(3, PyTuple_GetItem(notice, 1), PyTuple_GetItem(notice, 0),
                                  PyTuple_GetItem(notice, 2))
                   : NULL;
        if (arguments)
            PyErr_SetObject(state->sample_error, arguments);
        Py_XDECREF(arguments);
        return NULL;
    }
    if (code == -ENOSPC || code == -EFBIG) {
        PyObject *arguments = Py_BuildValue("(iNO)", -code, core_text(error->message), path);
        if (arguments)
            PyErr_SetObject(PyExc_OSError, arguments);
        Py_XDECREF(arguments);
        return NULL;
    }
    return core_raise(state, code, error, path);
}

static PyObject *result_dict(const struct hr_pack_result *result, PyObject *notices)
{
    PyObject *dict = Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:O,s:i,s:K}", "samples", (unsigned long long)result->samples,
        "source_bytes", (unsigned long long)result->source_bytes, "bytes",
        (unsigned long long)result->pack_bytes, "continued", (unsigned long long)result->continued,
        "bad_count", (unsigned long long)result->bad, "rows_bytes",
        (unsigned long long)result->rows_bytes, "mono", result->head.mono ? Py_True : Py_False,
        "rate", result->head.rate, "masks", (unsigned long long)result->masks);
    if (!dict)
        return NULL;
    uint64_t samples[HR_FORMS], bytes[HR_FORMS];
    for (int form = 0; form < HR_FORMS; form++) {
        samples[form] = result->forms[form].samples;
        bytes[form] = result->forms[form].bytes;
    }
    if (core_put(dict, "samples_of_form", core_numbers(samples, HR_FORMS)) < 0 ||
        core_put(dict, "bytes_of_form", core_numbers(bytes, HR_FORMS)) < 0 ||
        core_put(dict, "samples_kept", core_numbers(result->samples_kept, HR_PACK_KEPT_COUNT)) <
            0 ||
        (notices && PyDict_SetItemString(dict, "notices", notices) < 0))
        Py_CLEAR(dict);
    return dict;
}

static void begin(struct pack_call *call, struct hr_pack_options *options, PyObject *progress)
{
    call->progress = progress == Py_None ? NULL : progress;
    options->progress = on_progress;
    options->progress_arg = call;
    options->notice = on_notice;
    options->notice_arg = call;
    call->saved = PyEval_SaveThread();
}

/* Takes the GIL back. Returns the result dict of a call that returned `r`, or NULL with an
 * exception. */
static PyObject *end(struct core_state *state, struct pack_call *call, int r,
                     const struct hr_error *error, PyObject *path,
                     const struct hr_pack_result *result)
{
    PyObject *dict = NULL;
    PyEval_RestoreThread(call->saved);
    core_log_drain(state);
    PyObject *name = PyUnicode_DecodeFSDefault(PyBytes_AsString(path));
    if (r && name)
        raise(state, call, r, error, name);
    else if (name && !PyErr_Occurred())
        dict = result_dict(result, call->notices);
    Py_XDECREF(name);
    Py_DECREF(call->notices);
    return dict;
}

PyObject *core_pack_write(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dataset",    "path",    "form",      "threads",    "trust",
                            "max_growth", "restart", "overwrite", "skip",       "progress",
                            "mono",       "rate",    "staging",   "part_bytes", NULL};
    struct core_state *state = PyModule_GetState(module);
    struct hr_pack_options options;
    hr_pack_options_default(&options);
    PyObject *dataset, *path = NULL, *progress = Py_None, *dict = NULL;
    int skip = 0;
    unsigned long long part_bytes = 0;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!O&|$iipdpppOpizK", names, state->dataset_type, &dataset,
            PyUnicode_FSConverter, &path, &options.form, &options.threads, &options.trust,
            &options.max_growth, &options.restart, &options.overwrite, &skip, &progress,
            &options.head.mono, &options.head.rate, &options.staging, &part_bytes))
        return NULL;
    struct pack_call call = {.notices = PyList_New(0)};
    struct hr_pack_result result = {.size = sizeof result};
    struct hr_error error = {0};
    options.part_bytes = part_bytes;
    options.on_error = skip ? HR_ON_ERROR_SKIP : HR_ON_ERROR_RAISE;
    if (call.notices) {
        begin(&call, &options, progress);
        int r = hr_pack_write(core_dataset_handle(dataset), PyBytes_AsString(path), &options,
                              &result, &error);
        dict = end(state, &call, r, &error, path, &result);
    }
    Py_DECREF(path);
    return dict;
}

PyObject *core_pack_unpack(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path", "directory", "threads", "overwrite", "skip", "progress", NULL};
    struct core_state *state = PyModule_GetState(module);
    struct hr_pack_options options;
    hr_pack_options_default(&options);
    PyObject *path = NULL, *directory = NULL, *progress = Py_None, *dict = NULL;
    int skip = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&|$ippO", names, PyUnicode_FSConverter,
                                     &path, PyUnicode_FSConverter, &directory, &options.threads,
                                     &options.overwrite, &skip, &progress))
        return NULL;
    struct pack_call call = {.notices = PyList_New(0)};
    struct hr_pack_result result = {.size = sizeof result};
    struct hr_error error = {0};
    options.on_error = skip ? HR_ON_ERROR_SKIP : HR_ON_ERROR_RAISE;
    if (call.notices) {
        begin(&call, &options, progress);
        int r = hr_pack_unpack(PyBytes_AsString(path), PyBytes_AsString(directory), &options,
                               &result, &error);
        dict = end(state, &call, r, &error, path, &result);
    }
    Py_DECREF(directory);
    Py_DECREF(path);
    return dict;
}

PyObject *core_pack_inspect(PyObject *module, PyObject *path)
{
    struct core_state *state = PyModule_GetState(module);
    struct hr_pack_result result = {.size = sizeof result};
    struct hr_error error = {0};
    PyObject *bytes = NULL;
    int r;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    const char *text = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS
        r = hr_pack_inspect(text, &result, &error);
    Py_END_ALLOW_THREADS
    PyObject *dict = r ? core_raise(state, r, &error, path) : result_dict(&result, NULL);
    Py_DECREF(bytes);
    return dict;
}
