/*
 * headrace._core.Replay: traces of PyTorch's profiler and their graph. Immutable, so any thread may
 * use it. Scenario (scenario.c) keeps its Replay alive.
 */
#include "core.h"

#include <headrace/replay.h>
#include <stdlib.h>

struct core_replay {
    PyObject_HEAD struct hr_replay *handle;
};

struct hr_replay *core_replay_handle(PyObject *self)
{
    return ((struct core_replay *)self)->handle;
}

static PyObject *replay_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"paths", "window", "instance", "limit", NULL};
    PyObject *sequence;
    struct core_paths paths;
    struct hr_replay_options options;
    struct hr_error error = {0};
    int r;
    hr_replay_options_default(&options);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|zid", names, &sequence, &options.window,
                                     &options.instance, &options.limit) ||
        core_paths_take(&paths, sequence) < 0)
        return NULL;
    struct core_replay *self = PyObject_New(struct core_replay, type);
    if (!self) {
        core_paths_clear(&paths);
        return NULL;
    }
    self->handle = NULL;
    Py_BEGIN_ALLOW_THREADS
        r = hr_replay_open(&self->handle, paths.text, (size_t)paths.count, &options, &error);
    Py_END_ALLOW_THREADS
    core_paths_clear(&paths);
    if (!r)
        return (PyObject *)self;
    core_raise(PyType_GetModuleState(type), r, &error, NULL);
    Py_DECREF(self);
    return NULL;
}

static void replay_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    hr_replay_destroy(&((struct core_replay *)self)->handle);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *replay_summary(PyObject *self, PyObject *none)
{
    struct hr_replay_summary s = {.size = sizeof s};
    hr_replay_summarise(core_replay_handle(self), &s);
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:I,s:I,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:O,s:K}", "tasks",
        (unsigned long long)s.tasks, "edges", (unsigned long long)s.edges, "events",
        (unsigned long long)s.events, "ranks", s.ranks, "iterations", s.iterations, "recorded_s",
        s.recorded_s, "replayed_s", s.replayed_s, "error", s.error, "start_median", s.start_median,
        "start_max", s.start_max, "usual_error", s.usual_error, "unexplained", s.unexplained,
        "trusted", s.is_trusted ? Py_True : Py_False, "checked", (unsigned long long)s.checked);
}

/* Makes a report: as text of `columns`, or as JSON if columns < 0. */
static PyObject *replay_report(PyObject *self, PyObject *args)
{
    PyObject *sequence;
    struct core_paths what_ifs; /* texts, converted as paths are */
    struct hr_error error = {0};
    char *text = NULL;
    int columns, r;
    if (!PyArg_ParseTuple(args, "Oi", &sequence, &columns) ||
        core_paths_take(&what_ifs, sequence) < 0)
        return NULL;
    const struct hr_replay *handle = core_replay_handle(self);
    Py_BEGIN_ALLOW_THREADS
        r = columns < 0 ? hr_replay_report_json(handle, what_ifs.text, (size_t)what_ifs.count,
                                                &text, &error)
                        : hr_replay_report_text(handle, what_ifs.text, (size_t)what_ifs.count,
                                                columns, &text, &error);
    Py_END_ALLOW_THREADS
    core_paths_clear(&what_ifs);
    if (r)
        return core_raise(core_state_of(self), r, &error, NULL);
    PyObject *result = core_text(text);
    hr_replay_free(text);
    return result;
}

static PyObject *replay_write_page(PyObject *self, PyObject *args)
{
    PyObject *sequence, *path;
    struct core_paths what_ifs;
    struct hr_error error = {0};
    int r;
    if (!PyArg_ParseTuple(args, "OO&", &sequence, PyUnicode_FSConverter, &path))
        return NULL;
    if (core_paths_take(&what_ifs, sequence) < 0) {
        Py_DECREF(path);
        return NULL;
    }
    const struct hr_replay *handle = core_replay_handle(self);
    const char *to = PyBytes_AsString(path);
    Py_BEGIN_ALLOW_THREADS
        r = hr_replay_write_page(handle, what_ifs.text, (size_t)what_ifs.count, to, &error);
    Py_END_ALLOW_THREADS
    core_paths_clear(&what_ifs);
    PyObject *result = r ? core_raise(core_state_of(self), r, &error, path) : Py_NewRef(Py_None);
    Py_DECREF(path);
    return result;
}

static PyMethodDef replay_methods[] = {
    {"summary", replay_summary, METH_NOARGS,
     PyDoc_STR("summary()\n--\n\nHow well the graph explains the traces.")},
    {"report", replay_report, METH_VARARGS,
     PyDoc_STR("report(what_ifs, columns)\n--\n\nA report as text; as JSON if columns < 0.")},
    {"write_page", replay_write_page, METH_VARARGS,
     PyDoc_STR("write_page(what_ifs, path)\n--\n\nWrites the report as an HTML page.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot replay_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Replay(paths, window=None, instance=-1, limit=0.05)\n--\n\n"
                                  "Traces of PyTorch's profiler and their graph.")},
    {Py_tp_new, replay_new},
    {Py_tp_dealloc, replay_dealloc},
    {Py_tp_methods, replay_methods},
    {0, NULL},
};

PyType_Spec core_replay_spec = {
    .name = "headrace._core.Replay",
    .basicsize = sizeof(struct core_replay),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = replay_slots,
};
