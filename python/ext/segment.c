/*
 * Functions headrace._core.stalls_*: what a segment of a measuring run proves. Evidence is a dict
 * whose members are those of struct hr_stalls_evidence; absent ones and None are not known, and
 * other members are ignored.
 */
#include "core.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum evidence_kind { IS_REAL, IS_WHOLE, IS_PHASE, IS_READS, IS_FILESYSTEM };

#define MEMBER(name, kind)                                                                         \
    {                                                                                              \
#name, kind, offsetof(struct hr_stalls_evidence, name)                                     \
    }
static const struct evidence_member {
    const char *name;
    enum evidence_kind kind;
    size_t offset;
} members[] = {
    MEMBER(phase, IS_PHASE),         MEMBER(reads, IS_READS),
    MEMBER(read_bytes, IS_REAL),     MEMBER(expected_bytes, IS_REAL),
    MEMBER(cold_bytes, IS_REAL),     MEMBER(bytes, IS_REAL),
    MEMBER(resident_bytes, IS_REAL), MEMBER(in_memory, IS_WHOLE),
    MEMBER(network, IS_WHOLE),       MEMBER(filesystem, IS_FILESYSTEM),
    MEMBER(cores, IS_WHOLE),         MEMBER(load_s, IS_REAL),
    MEMBER(busy_s, IS_REAL),         MEMBER(steal_s, IS_REAL),
    MEMBER(run_s, IS_REAL),          MEMBER(run_delay_s, IS_REAL),
    MEMBER(throttled_s, IS_REAL),    MEMBER(elapsed_s, IS_REAL),
    MEMBER(all_s, IS_REAL),          MEMBER(waited_s, IS_REAL),
    MEMBER(queue_ahead, IS_REAL),    MEMBER(queue_end, IS_REAL),
    MEMBER(unsettled, IS_WHOLE),     MEMBER(tries, IS_WHOLE),
    MEMBER(pauses, IS_WHOLE),        MEMBER(paused_s, IS_REAL),
    MEMBER(others, IS_REAL),         MEMBER(disturbed, IS_WHOLE),
};

/* Returns which of `words` a str is, or -1 with an exception. */
static int word_of(PyObject *value, const char *const *words, int count, const char *what)
{
    for (int i = 0; PyUnicode_Check(value) && i < count; i++)
        if (!PyUnicode_CompareWithASCIIString(value, words[i]))
            return i;
    PyErr_Format(PyExc_ValueError, "%R is no %s", value, what);
    return -1;
}

static void take_member(char *at, enum evidence_kind kind, PyObject *value)
{
    static const char *const reads[] = {"known", "estimated", "unknown", "nothing"};
    const char *phases[HR_STALLS_PHASES];
    double real;
    int whole = 0;
    switch (kind) {
    case IS_REAL:
        real = PyFloat_AsDouble(value);
        memcpy(at, &real, sizeof real);
        return;
    case IS_WHOLE:
        whole = (int)PyLong_AsLong(value);
        break;
    case IS_PHASE:
        for (int i = 0; i < HR_STALLS_PHASES; i++)
            phases[i] = hr_stalls_phase_name((enum hr_stalls_phase)i);
        whole = word_of(value, phases, HR_STALLS_PHASES, "phase");
        break;
    case IS_READS:
        whole = word_of(value, reads, 4, "word for what a segment reads");
        break;
    case IS_FILESYSTEM: {
        PyObject *bytes = PyUnicode_AsUTF8String(value);
        if (bytes)
            strncpy(at, PyBytes_AsString(bytes),
                    sizeof(struct hr_stalls_evidence){0}.filesystem - 1);
        Py_XDECREF(bytes);
        return;
    }
    }
    memcpy(at, &whole, sizeof whole);
}

static int take_evidence(struct hr_stalls_evidence *e, PyObject *dict)
{
    hr_stalls_evidence_default(e);
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "evidence is a dict");
        return -1;
    }
    /* A copy: another thread may change the caller's. */
    PyObject *copy = PyDict_Copy(dict);
    for (size_t i = 0; copy && i < sizeof members / sizeof *members && !PyErr_Occurred(); i++) {
        PyObject *value = PyDict_GetItemString(copy, members[i].name);
        if (value && value != Py_None)
            take_member((char *)e + members[i].offset, members[i].kind, value);
    }
    Py_XDECREF(copy);
    return PyErr_Occurred() ? -1 : 0;
}

/* None if it is not known. */
static PyObject *known(double value)
{
    return isnan(value) ? Py_NewRef(Py_None) : PyFloat_FromDouble(value);
}

PyObject *core_stalls_judge(PyObject *module, PyObject *dict)
{
    struct hr_stalls_evidence e;
    struct hr_error error = {0};
    if (take_evidence(&e, dict) < 0)
        return NULL;
    int r = hr_stalls_judge(&e, &error);
    if (r)
        return core_raise(PyModule_GetState(module), r, &error, NULL);
    PyObject *verified = e.verified < 0 ? Py_NewRef(Py_None) : PyBool_FromLong(e.verified);
    return Py_BuildValue("{s:N,s:s,s:N,s:N}", "verified", verified, "reason", e.reason, "others",
                         known(e.others), "disturbed", PyBool_FromLong(e.disturbed));
}

PyObject *core_stalls_again(struct hr_stalls_schedule *schedule, PyObject *dict)
{
    static const char *const names[] = {"", "disturbed", "unsettled", "none settled"};
    struct hr_stalls_evidence e;
    if (take_evidence(&e, dict) < 0)
        return NULL;
    return PyUnicode_FromString(names[hr_stalls_schedule_again(schedule, &e)]);
}

PyObject *core_stalls_notes(PyObject *module, PyObject *args)
{
    PyObject *list, *texts = NULL;
    const char *unheld;
    char notes[HR_STALLS_NOTES][400];
    if (!PyArg_ParseTuple(args, "O!s", &PyList_Type, &list, &unheld))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    struct hr_stalls_evidence *segments = calloc((size_t)count + 1, sizeof *segments);
    if (!segments)
        return PyErr_NoMemory();
    int bad = 0;
    for (Py_ssize_t i = 0; i < count && !bad; i++)
        bad = take_evidence(&segments[i], PyList_GetItem(list, i)) < 0;
    if (!bad)
        texts = PyList_New(0);
    int n = texts ? hr_stalls_segment_notes(segments, (size_t)count, unheld, notes) : 0;
    for (int i = 0; i < n && texts; i++) {
        PyObject *text = core_text(notes[i]);
        if (!text || PyList_Append(texts, text) < 0)
            Py_CLEAR(texts);
        Py_XDECREF(text);
    }
    free(segments);
    return texts;
}

/* Copies a sequence of floats; NULL with an exception. */
static double *doubles_of(PyObject *sequence, Py_ssize_t *count)
{
    PyObject *list = PySequence_List(sequence);
    double *values = NULL;
    if (list) {
        *count = PyList_Size(list);
        values = calloc((size_t)*count + 1, sizeof *values);
        if (!values)
            PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; values && i < *count; i++)
        values[i] = PyFloat_AsDouble(PyList_GetItem(list, i));
    Py_XDECREF(list);
    if (values && PyErr_Occurred()) {
        free(values);
        values = NULL;
    }
    return values;
}

PyObject *core_stalls_pauses(PyObject *module, PyObject *args)
{
    PyObject *waits, *batches, *found = NULL;
    Py_ssize_t count = 0, batch_count = 0;
    double step_s;
    if (!PyArg_ParseTuple(args, "OOd", &waits, &batches, &step_s))
        return NULL;
    double *wait_s = doubles_of(waits, &count);
    double *batch_s = wait_s ? doubles_of(batches, &batch_count) : NULL;
    double *pause_s = calloc((size_t)count + 1, sizeof *pause_s);
    if (batch_s && count != batch_count)
        PyErr_SetString(PyExc_ValueError, "each batch has a wait");
    else if (batch_s && !pause_s)
        PyErr_NoMemory();
    else if (batch_s) {
        hr_stalls_pauses(wait_s, batch_s, (size_t)count, step_s, pause_s);
        found = PyList_New(count);
        for (Py_ssize_t i = 0; found && i < count; i++) {
            PyObject *value = PyFloat_FromDouble(pause_s[i]);
            if (!value || PyList_SetItem(found, i, value) < 0)
                Py_CLEAR(found);
        }
    }
    free(wait_s);
    free(batch_s);
    free(pause_s);
    return found;
}

PyObject *core_stalls_load(PyObject *module, PyObject *root)
{
    struct hr_stalls_load load = {.size = sizeof load};
    long pid = PyLong_AsLong(root);
    if (pid == -1 && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
        hr_stalls_load_read(&load, (int)pid);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("{s:d,s:i,s:N,s:N,s:d,s:N,s:N}", "at_s", load.at_s, "cores", load.cores,
                         "busy_s", known(load.busy_s), "steal_s", known(load.steal_s), "run_s",
                         load.run_s, "run_delay_s", known(load.run_delay_s), "throttled_s",
                         known(load.throttled_s));
}
