/*
 * headrace._core.StallsSchedule: chooses the next segment of a measuring run. Python names
 * phases by strings.
 */
#include "core.h"

#include <string.h>

struct schedule {
    PyObject_HEAD struct hr_stalls_schedule *handle;
};

/* Returns the enum hr_stalls_phase of a name, or -1 with an exception. */
static int phase_of(PyObject *name)
{
    if (!PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "a phase is a str");
        return -1;
    }
    for (int i = 0; i < HR_STALLS_PHASES; i++)
        if (!PyUnicode_CompareWithASCIIString(name, hr_stalls_phase_name((enum hr_stalls_phase)i)))
            return i;
    PyErr_Format(PyExc_ValueError, "%R is no phase: device, host, warm, cold and alone are", name);
    return -1;
}

/* Returns the bit mask of a sequence of phase names, or -1 with an exception. */
static int phases_of(PyObject *sequence)
{
    int bits = 0;
    if (PyUnicode_Check(sequence)) {
        PyErr_SetString(PyExc_TypeError, "phases must be a sequence of phases, not one");
        return -1;
    }
    PyObject *list = PySequence_List(sequence);
    if (!list)
        return -1;
    for (Py_ssize_t i = 0; i < PyList_Size(list) && bits >= 0; i++) {
        int phase = phase_of(PyList_GetItem(list, i));
        bits = phase < 0 ? -1 : bits | 1 << phase;
    }
    Py_DECREF(list);
    return bits;
}

static PyObject *schedule_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"phases",      "ranks", "batches",   "settle",
                            "max_batches", "max_s", "precision", NULL};
    struct hr_stalls_schedule_options options;
    struct hr_stalls_schedule *handle = NULL;
    struct hr_error error = {0};
    PyObject *phases;
    hr_stalls_schedule_options_default(&options);
    long long batches = (long long)options.batches, settle = (long long)options.settle,
              max_batches = (long long)options.max_batches;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$iLLLdd", names, &phases, &options.ranks,
                                     &batches, &settle, &max_batches, &options.max_s,
                                     &options.precision))
        return NULL;
    if (batches < 0 || settle < 0 || max_batches < 0) {
        PyErr_SetString(PyExc_ValueError, "batches, settle and max_batches are not negative");
        return NULL;
    }
    options.batches = (uint64_t)batches;
    options.settle = (uint64_t)settle;
    options.max_batches = (uint64_t)max_batches;
    options.phases = phases_of(phases);
    if (options.phases < 0)
        return NULL;
    int r = hr_stalls_schedule_create(&handle, &options, &error);
    if (r)
        return core_raise(PyType_GetModuleState(type), r, &error, NULL);
    struct schedule *self = PyObject_New(struct schedule, type);
    if (!self) {
        hr_stalls_schedule_destroy(&handle);
        return NULL;
    }
    self->handle = handle;
    return (PyObject *)self;
}

PyObject *core_stalls_lengths(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"phases",        "step_s", "load_s",      "ahead", "unit",
                            "epoch_batches", "max_s",  "max_batches", NULL};
    struct hr_stalls_schedule_options options;
    struct hr_stalls_pace pace;
    struct hr_error error = {0};
    unsigned long long ahead, unit, epoch_batches, max_batches;
    PyObject *phases;
    hr_stalls_schedule_options_default(&options);
    hr_stalls_pace_default(&pace);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O$ddKKKdK", names, &phases, &pace.step_s,
                                     &pace.load_s, &ahead, &unit, &epoch_batches, &options.max_s,
                                     &max_batches))
        return NULL;
    options.phases = phases_of(phases);
    if (options.phases < 0)
        return NULL;
    options.max_batches = max_batches;
    pace.ahead = ahead;
    pace.unit = unit;
    pace.epoch_batches = epoch_batches;
    int r = hr_stalls_schedule_fit(&options, &pace, &error);
    if (r)
        return core_raise(PyModule_GetState(module), r, &error, NULL);
    return Py_BuildValue("{s:K,s:K}", "batches", (unsigned long long)options.batches, "settle",
                         (unsigned long long)options.settle);
}

static void schedule_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    hr_stalls_schedule_destroy(&((struct schedule *)object)->handle);
    PyObject_Free(object);
    Py_DECREF(type);
}

static struct hr_stalls_schedule *handle_of(PyObject *object)
{
    return ((struct schedule *)object)->handle;
}

static PyObject *schedule_next(PyObject *object, PyObject *none)
{
    struct hr_stalls_segment segment = {.size = sizeof segment};
    if (!hr_stalls_schedule_next(handle_of(object), &segment))
        Py_RETURN_NONE;
    return Py_BuildValue(
        "{s:s,s:i,s:i,s:i,s:N,s:K,s:K,s:N}", "phase", hr_stalls_phase_name(segment.phase), "round",
        segment.round, "set", segment.set, "rank", segment.rank, "preread",
        PyBool_FromLong(segment.preread), "settle", (unsigned long long)segment.settle, "batches",
        (unsigned long long)segment.batches, "full", PyBool_FromLong(segment.full));
}

static PyObject *schedule_again(PyObject *object, PyObject *evidence)
{
    return core_stalls_again(handle_of(object), evidence);
}

static PyObject *schedule_report(PyObject *object, PyObject *args)
{
    double timed_s, all_s;
    if (!PyArg_ParseTuple(args, "dd", &timed_s, &all_s))
        return NULL;
    hr_stalls_schedule_report(handle_of(object), timed_s, all_s);
    Py_RETURN_NONE;
}

static PyObject *schedule_drop(PyObject *object, PyObject *name)
{
    int phase = phase_of(name);
    if (phase < 0)
        return NULL;
    hr_stalls_schedule_drop(handle_of(object), (enum hr_stalls_phase)phase);
    Py_RETURN_NONE;
}

static PyObject *schedule_progress(PyObject *object, void *closure)
{
    return PyFloat_FromDouble(hr_stalls_schedule_progress(handle_of(object)));
}

static PyObject *schedule_end(PyObject *object, void *closure)
{
    switch (hr_stalls_schedule_end(handle_of(object))) {
    case HR_STALLS_PRECISE:
        return PyUnicode_FromString("precise");
    case HR_STALLS_LIMIT:
        return PyUnicode_FromString("limit");
    case HR_STALLS_GOES_ON:
        break;
    }
    return PyUnicode_FromString("");
}

CORE_METHOD(schedule_next);
CORE_METHOD(schedule_report);
CORE_METHOD(schedule_again);
CORE_METHOD(schedule_drop);

static PyMethodDef schedule_methods[] = {
    {"next", CORE_LOCKED(schedule_next), METH_NOARGS,
     PyDoc_STR("next()\n--\n\nThe next segment, or None at the end.")},
    {"report", CORE_LOCKED(schedule_report), METH_VARARGS,
     PyDoc_STR("report(timed_s, all_s)\n--\n\nHow long the segment last given took.")},
    {"again", CORE_LOCKED(schedule_again), METH_O,
     PyDoc_STR("again(evidence)\n--\n\n"
               "Whether the segment last given is run again, before it is reported: '' if it\n"
               "counts, 'disturbed', 'unsettled' (no try so far counts) or 'none settled'\n"
               "(earlier segments of its phase do not count either).")},
    {"drop", CORE_LOCKED(schedule_drop), METH_O,
     PyDoc_STR("drop(phase)\n--\n\nLeaves a phase out from now on.")},
    {NULL, NULL, 0, NULL},
};

CORE_GETTER(schedule_progress);
CORE_GETTER(schedule_end);

static PyGetSetDef schedule_getset[] = {
    {"progress", CORE_LOCKED(schedule_progress), NULL,
     PyDoc_STR("How far it is, 0 to 1; never falls."), NULL},
    {"end", CORE_LOCKED(schedule_end), NULL,
     PyDoc_STR("'' while it goes on; 'precise' or 'limit': why it ended."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot schedule_slots[] = {
    {Py_tp_doc,
     (void *)PyDoc_STR("StallsSchedule(phases, *, ranks=1, batches=20, settle=2, max_batches=0,\n"
                       "               max_s=150.0, precision=0.02)\n--\n\n"
                       "Which segment of a measuring run comes next.")},
    {Py_tp_new, schedule_new},
    {Py_tp_dealloc, schedule_dealloc},
    {Py_tp_methods, schedule_methods},
    {Py_tp_getset, schedule_getset},
    {0, NULL},
};

PyType_Spec core_stalls_schedule_spec = {
    .name = "headrace._core.StallsSchedule",
    .basicsize = sizeof(struct schedule),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = schedule_slots,
};
