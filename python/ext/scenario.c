/*
 * headrace._core.Scenario: a copy of a Replay's graph that can be changed. A scenario serves one
 * thread at a time, so its methods hold the GIL; a prediction takes about a second for a million
 * tasks.
 */
#include "core.h"

#include <headrace/replay.h>
#include <limits.h>
#include <stdlib.h>

struct scenario {
    PyObject_HEAD struct hr_replay_scenario *handle;
    PyObject *replay; /* must outlive the handle */
};

static struct hr_replay_scenario *handle_of(PyObject *self)
{
    return ((struct scenario *)self)->handle;
}

static PyObject *raise_of(PyObject *self, int code, const struct hr_error *error)
{
    return core_raise(core_state_of(self), code, error, NULL);
}

static PyObject *scenario_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"replay", NULL};
    struct core_state *state = PyType_GetModuleState(type);
    PyObject *replay;
    struct hr_error error = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!", names, state->replay_type, &replay))
        return NULL;
    struct scenario *self = PyObject_New(struct scenario, type);
    if (!self)
        return NULL;
    self->handle = NULL;
    self->replay = Py_NewRef(replay);
    int r = hr_replay_scenario_create(&self->handle, core_replay_handle(replay), &error);
    if (!r)
        return (PyObject *)self;
    core_raise(state, r, &error, NULL);
    Py_DECREF(self);
    return NULL;
}

static void scenario_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    hr_replay_scenario_destroy(&((struct scenario *)self)->handle);
    Py_CLEAR(((struct scenario *)self)->replay);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Task numbers of a Python sequence; the caller frees `numbers`. */
struct scenario_tasks {
    uint32_t *numbers;
    size_t count;
};

static int take_tasks(struct scenario_tasks *tasks, PyObject *sequence)
{
    *tasks = (struct scenario_tasks){.numbers = NULL};
    PyObject *list = PySequence_List(sequence);
    if (!list)
        return -1;
    tasks->count = (size_t)PyList_Size(list);
    tasks->numbers = malloc((tasks->count + 1) * sizeof *tasks->numbers);
    if (!tasks->numbers)
        PyErr_NoMemory();
    for (size_t i = 0; i < tasks->count && !PyErr_Occurred(); i++) {
        unsigned long number = PyLong_AsUnsignedLong(PyList_GetItem(list, (Py_ssize_t)i));
        if (!PyErr_Occurred() && number > UINT32_MAX)
            PyErr_SetString(PyExc_ValueError, "there is no such task");
        tasks->numbers[i] = (uint32_t)number;
    }
    Py_DECREF(list);
    if (!PyErr_Occurred())
        return 0;
    free(tasks->numbers);
    tasks->numbers = NULL;
    return -1;
}

static PyObject *scenario_select(PyObject *self, PyObject *args)
{
    struct hr_replay_selector s;
    const uint32_t *tasks;
    size_t count;
    struct hr_error error = {0};
    unsigned kinds, phases;
    long long stream;
    hr_replay_selector_default(&s);
    if (!PyArg_ParseTuple(args, "zzIILi", &s.name, &s.within, &kinds, &phases, &stream, &s.rank))
        return NULL;
    s.kinds = kinds;
    s.phases = phases;
    s.stream = stream;
    int r = hr_replay_select(handle_of(self), &s, &tasks, &count, &error);
    if (r)
        return raise_of(self, r, &error);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *number = PyLong_FromUnsignedLong(tasks[i]);
        if (!number || PyList_SetItem(list, (Py_ssize_t)i, number) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *scenario_task(PyObject *self, PyObject *number)
{
    struct hr_replay_task t = {.size = sizeof t};
    unsigned long task = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred())
        return NULL;
    if (task > UINT32_MAX || hr_replay_task_get(handle_of(self), (uint32_t)task, &t)) {
        PyErr_SetString(PyExc_IndexError, "there is no such task");
        return NULL;
    }
    return Py_BuildValue("{s:N,s:i,s:i,s:i,s:I,s:L,s:L,s:L}", "name", core_text(t.name), "kind",
                         t.kind, "phase", t.phase, "rank", t.rank, "lane", t.lane, "begin_ns",
                         (long long)t.begin_ns, "length_ns", (long long)t.length_ns, "bytes",
                         (long long)t.bytes);
}

static PyObject *scenario_scale(PyObject *self, PyObject *args)
{
    PyObject *sequence;
    double factor;
    struct scenario_tasks tasks;
    struct hr_error error = {0};
    if (!PyArg_ParseTuple(args, "Od", &sequence, &factor) || take_tasks(&tasks, sequence) < 0)
        return NULL;
    int r = hr_replay_scale(handle_of(self), tasks.numbers, tasks.count, factor, &error);
    free(tasks.numbers);
    return r ? raise_of(self, r, &error) : Py_NewRef(Py_None);
}

static PyObject *scenario_remove(PyObject *self, PyObject *sequence)
{
    struct scenario_tasks tasks;
    struct hr_error error = {0};
    if (take_tasks(&tasks, sequence) < 0)
        return NULL;
    int r = hr_replay_remove(handle_of(self), tasks.numbers, tasks.count, &error);
    free(tasks.numbers);
    return r ? raise_of(self, r, &error) : Py_NewRef(Py_None);
}

static PyObject *scenario_insert(PyObject *self, PyObject *args)
{
    PyObject *after, *before;
    struct scenario_tasks waits, waiting;
    struct hr_replay_insertion x = {.size = sizeof x};
    struct hr_error error = {0};
    uint32_t task = 0;
    long long length;
    int priority;
    if (!PyArg_ParseTuple(args, "LOOzi", &length, &after, &before, &x.channel, &priority) ||
        take_tasks(&waits, after) < 0)
        return NULL;
    if (take_tasks(&waiting, before) < 0) {
        free(waits.numbers);
        return NULL;
    }
    x.length_ns = length;
    x.after = waits.numbers;
    x.after_count = waits.count;
    x.before = waiting.numbers;
    x.before_count = waiting.count;
    x.priority = priority;
    int r = hr_replay_insert(handle_of(self), &x, &task, &error);
    free(waits.numbers);
    free(waiting.numbers);
    return r ? raise_of(self, r, &error) : PyLong_FromUnsignedLong(task);
}

static PyObject *scenario_reschedule(PyObject *self, PyObject *args)
{
    PyObject *sequence, *list;
    struct scenario_tasks tasks;
    struct hr_error error = {0};
    unsigned lane;
    if (!PyArg_ParseTuple(args, "IOO", &lane, &sequence, &list) || take_tasks(&tasks, sequence) < 0)
        return NULL;
    int32_t *priorities = malloc((tasks.count + 1) * sizeof *priorities);
    PyObject *values = PySequence_List(list);
    if (!priorities)
        PyErr_NoMemory();
    if (values && (size_t)PyList_Size(values) != tasks.count)
        PyErr_SetString(PyExc_ValueError, "as many priorities as tasks are needed");
    for (size_t i = 0; i < tasks.count && !PyErr_Occurred(); i++) {
        long value = PyLong_AsLong(PyList_GetItem(values, (Py_ssize_t)i));
        if (!PyErr_Occurred() && (value < INT32_MIN || value > INT32_MAX))
            PyErr_SetString(PyExc_ValueError, "a priority has 32 bits");
        priorities[i] = (int32_t)value;
    }
    int r = PyErr_Occurred() ? 0
                             : hr_replay_reschedule(handle_of(self), lane, tasks.numbers,
                                                    priorities, tasks.count, &error);
    free(priorities);
    free(tasks.numbers);
    Py_XDECREF(values);
    if (PyErr_Occurred())
        return NULL;
    return r ? raise_of(self, r, &error) : Py_NewRef(Py_None);
}

static PyObject *scenario_apply(PyObject *self, PyObject *text)
{
    struct hr_error error = {0};
    const char *what_if = PyUnicode_AsUTF8AndSize(text, NULL);
    if (!what_if)
        return NULL;
    int r = hr_replay_apply(handle_of(self), what_if, &error);
    return r ? raise_of(self, r, &error) : Py_NewRef(Py_None);
}

static PyObject *scenario_predict(PyObject *self, PyObject *none)
{
    struct hr_replay_prediction p = {.size = sizeof p};
    struct hr_error error = {0};
    int r = hr_replay_predict(handle_of(self), &p, &error);
    if (r)
        return raise_of(self, r, &error);
    PyObject *shares = PyList_New(0);
    for (int k = 0; shares && k < HR_REPLAY_KINDS; k++) {
        PyObject *share = PyFloat_FromDouble(p.kind[k]);
        if (!share || PyList_Append(shares, share) < 0)
            Py_CLEAR(shares);
        Py_XDECREF(share);
    }
    if (!shares)
        return NULL;
    return Py_BuildValue("{s:d,s:d,s:N,s:d}", "iteration_s", p.iteration_s, "recorded_s",
                         p.recorded_s, "kind", shares, "latency", p.latency);
}

static PyObject *scenario_write_trace(PyObject *self, PyObject *args)
{
    PyObject *path;
    struct hr_error error = {0};
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path))
        return NULL;
    int r = hr_replay_write_trace(handle_of(self), PyBytes_AsString(path), &error);
    Py_DECREF(path);
    return r ? raise_of(self, r, &error) : Py_NewRef(Py_None);
}

/* Without the GIL, one thread at a time. */
CORE_METHOD(scenario_select);
CORE_METHOD(scenario_task);
CORE_METHOD(scenario_scale);
CORE_METHOD(scenario_remove);
CORE_METHOD(scenario_insert);
CORE_METHOD(scenario_reschedule);
CORE_METHOD(scenario_apply);
CORE_METHOD(scenario_predict);
CORE_METHOD(scenario_write_trace);

static PyMethodDef scenario_methods[] = {
    {"select", CORE_LOCKED(scenario_select), METH_VARARGS,
     PyDoc_STR("select(name, within, kinds, phases, stream, rank)\n--\n\nNumbers of tasks.")},
    {"task", CORE_LOCKED(scenario_task), METH_O,
     PyDoc_STR("task(number)\n--\n\nDescribes a task.")},
    {"scale", CORE_LOCKED(scenario_scale), METH_VARARGS,
     PyDoc_STR("scale(tasks, factor)\n--\n\nMultiplies lengths.")},
    {"remove", CORE_LOCKED(scenario_remove), METH_O,
     PyDoc_STR("remove(tasks)\n--\n\nRemoves tasks and what they launched.")},
    {"insert", CORE_LOCKED(scenario_insert), METH_VARARGS,
     PyDoc_STR("insert(length_ns, after, before, channel, priority)\n--\n\nThe new task.")},
    {"reschedule", CORE_LOCKED(scenario_reschedule), METH_VARARGS,
     PyDoc_STR("reschedule(lane, tasks, priorities)\n--\n\nReplaces a lane's order.")},
    {"apply", CORE_LOCKED(scenario_apply), METH_O,
     PyDoc_STR("apply(what_if)\n--\n\nApplies a what-if by its name.")},
    {"predict", CORE_LOCKED(scenario_predict), METH_NOARGS,
     PyDoc_STR("predict()\n--\n\nReplays the scenario.")},
    {"write_trace", CORE_LOCKED(scenario_write_trace), METH_VARARGS,
     PyDoc_STR("write_trace(path)\n--\n\nWrites the predicted run as a trace.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot scenario_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Scenario(replay)\n--\n\nA copy of a graph to change.")},
    {Py_tp_new, scenario_new},
    {Py_tp_dealloc, scenario_dealloc},
    {Py_tp_methods, scenario_methods},
    {0, NULL},
};

PyType_Spec core_scenario_spec = {
    .name = "headrace._core.Scenario",
    .basicsize = sizeof(struct scenario),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = scenario_slots,
};
