/*
 * Records operators reported by the C++ observer, for headrace._core.MemoryRecorder.
 *
 * The observer (python/headrace/memory/observer.cpp) is compiled on the user's machine against
 * the installed torch, and loaded here. It calls us before and after each operator, and we record
 * the same events as the dispatch mode (memory_dispatch.c).
 *
 * The observer holds the GIL when it calls; without a GIL each call takes the recorder's lock. An
 * exception raised then cannot pass through the operator: the main thread raises it as soon as it
 * runs Python code again.
 */
#include "memory_inside.h"

#include <dlfcn.h>

/* Our data about an operator call, in the space that the observer provides. */
struct observed {
    struct memory_call call;
};
_Static_assert(sizeof(struct observed) <= sizeof(struct observed_call), "observer.h: no room");

static int lock(void)
{
    return (int)PyGILState_Ensure();
}

static void unlock(int state)
{
    PyGILState_Release((PyGILState_STATE)state);
}

/* ---- exceptions ---- */

static int raise_later(void *arg)
{
    PyObject *error = arg;
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
    return -1;
}

/* Schedules a pending exception (of a signal handler) to be raised after the operator returns. */
static void put_off(void)
{
    if (!PyErr_Occurred())
        return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value && trace)
        PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    if (value && Py_AddPendingCall(raise_later, value) < 0)
        PyErr_SetInterrupt(); /* the queue of pending calls is full: raise KeyboardInterrupt */
}

/* An exception set aside while our code runs. */
struct waiting {
    PyObject *type, *value, *trace;
};

static struct waiting set_aside(void)
{
    struct waiting w;
    PyErr_Fetch(&w.type, &w.value, &w.trace);
    return w;
}

static void take_back(struct waiting w)
{
    put_off();
    PyErr_Restore(w.type, w.value, w.trace);
}

/* ---- callbacks of the observer ---- */

static const void *describe(struct memory *m, const char *name, const char *overload)
{
    struct waiting w = set_aside();
    const struct memory_op *op = NULL;
    CORE_LOCK(m);
    PyObject *key = Py_BuildValue("(ss)", name, overload);
    PyObject *bytes = key && m->recorder ? PyDict_GetItemWithError(m->ops, key) : NULL;
    if (key && m->recorder && !bytes && !PyErr_Occurred()) {
        PyObject *made = PyObject_CallFunctionObjArgs(m->describe, key, NULL);
        if (made && PyBytes_Check(made) && PyBytes_Size(made) == sizeof *op &&
            !PyDict_SetItem(m->ops, key, made))
            bytes = made; /* the dict keeps it alive */
        Py_XDECREF(made);
    }
    if (bytes)
        op = (const struct memory_op *)PyBytes_AsString(bytes);
    Py_XDECREF(key);
    CORE_UNLOCK;
    take_back(w);
    return op && memory_op_counts(op) ? op : NULL;
}

static void before(struct memory *m, struct observed_call *room, const void *op,
                   const struct observed_tensors *arguments)
{
    struct observed *o = (struct observed *)room;
    struct waiting w = set_aside();
    Py_INCREF((PyObject *)m);
    CORE_LOCK(m);
    if (m->recorder)
        memory_call_begin(m, &o->call, op, &(struct memory_operands){.observed = arguments});
    else /* the recording has just ended */
        o->call = (struct memory_call){.m = m, .op = op};
    CORE_UNLOCK;
    take_back(w);
}

static void after(struct observed_call *room, const struct observed_tensors *arguments,
                  const struct observed_tensors *results)
{
    struct observed *o = (struct observed *)room;
    struct waiting w = set_aside();
    CORE_LOCK(o->call.m);
    memory_call_returned(&o->call);
    memory_call_end(&o->call, &(struct memory_operands){.observed = arguments},
                    &(struct memory_operands){.observed = results});
    CORE_UNLOCK;
    take_back(w);
    Py_DECREF((PyObject *)o->call.m);
}

static void failed(struct observed_call *room, const char *text, int is_out_of_memory)
{
    struct observed *o = (struct observed *)room;
    struct waiting w = set_aside();
    CORE_LOCK(o->call.m);
    memory_call_returned(&o->call);
    PyObject *error =
        PyObject_CallFunction(is_out_of_memory ? PyExc_MemoryError : PyExc_RuntimeError, "s", text);
    memory_call_failed(&o->call, error);
    Py_XDECREF(error);
    CORE_UNLOCK;
    take_back(w);
    Py_DECREF((PyObject *)o->call.m);
}

static const struct observer_core core = {
    .version = OBSERVER_VERSION,
    .lock = lock,
    .unlock = unlock,
    .describe = describe,
    .before = before,
    .after = after,
    .failed = failed,
};

/* ---- beginning and end ---- */

PyObject *memory_observe(PyObject *object, PyObject *arg)
{
    struct memory *m = (struct memory *)object;
    char problem[512] = "";
    PyObject *path;
    if (!m->recorder || !m->describe || m->torch) {
        PyErr_SetString(PyExc_ValueError, "observe() is called once, while the recording goes on");
        return NULL;
    }
    if (!PyUnicode_FSConverter(arg, &path))
        return NULL;
    /* Never unloaded: threads may still run its code. */
    void *library = dlopen(PyBytes_AsString(path), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    Py_DECREF(path);
    if (!library)
        return core_text(dlerror());
    const struct observer_torch *(*begin)(const struct observer_core *, struct memory *, char *,
                                          size_t);
    *(void **)&begin = dlsym(library, "headrace_observer_begin");
    *(void **)&m->end_observing = dlsym(library, "headrace_observer_end");
    if (!begin || !m->end_observing)
        return core_text("the library is no observer");
    m->torch = begin(&core, m, problem, sizeof problem);
    if (!m->torch)
        return core_text(problem);
    Py_RETURN_NONE;
}

void memory_observe_end(struct memory *m)
{
    if (m->torch && m->end_observing)
        m->end_observing();
    m->end_observing = NULL;
}
