/*
 * headrace._core.Agent: runs an agent in this process. Also queries the status of any agent.
 *
 * run() serves without the GIL until any thread calls stop(). The Python package calls run() on
 * a thread of its own, so that the main thread stays free for Python's signal handlers.
 */
#include "core.h"

struct agent {
    PyObject_HEAD struct hr_agent *handle; /* NULL once closed */
    bool is_running;                       /* run() is in progress; guarded by the GIL */
};

static int optional_path(PyObject *object, void *out)
{
    if (object != Py_None)
        return PyUnicode_FSConverter(object, out);
    *(PyObject **)out = NULL;
    return 1;
}

static PyObject *agent_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"socket", "listener", "threads", "cache", "idle_ms", "metrics", NULL};
    struct core_state *state = PyType_GetModuleState(type);
    struct hr_agent_options o;
    hr_agent_options_default(&o);
    PyObject *socket = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$O&iiziz", names, optional_path, &socket,
                                     &o.listener, &o.threads, &o.cache, &o.idle_ms, &o.metrics))
        return NULL;
    o.socket = socket ? PyBytes_AsString(socket) : NULL;
    struct hr_agent *handle = NULL;
    struct hr_error error = {0};
    int r;
    Py_BEGIN_ALLOW_THREADS
        r = hr_agent_create(&handle, &o, &error);
    Py_END_ALLOW_THREADS
    Py_XDECREF(socket);
    core_log_drain(state);
    if (r)
        return core_raise(state, r, &error, NULL);
    struct agent *self = PyObject_New(struct agent, type);
    if (!self) {
        hr_agent_destroy(&handle);
        return NULL;
    }
    self->handle = handle;
    self->is_running = false;
    return (PyObject *)self;
}

static void agent_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    struct hr_agent *handle = ((struct agent *)object)->handle;
    Py_BEGIN_ALLOW_THREADS
        hr_agent_destroy(&handle);
    Py_END_ALLOW_THREADS
    PyObject_Free(object);
    Py_DECREF(type);
}

static int check_usable(struct agent *self)
{
    if (self->handle && !self->is_running)
        return 0;
    PyErr_SetString(PyExc_RuntimeError,
                    self->handle ? "this agent is running already" : "this agent is closed");
    return -1;
}

static PyObject *agent_run(PyObject *object, PyObject *none)
{
    struct agent *self = (struct agent *)object;
    struct core_state *state = core_state_of(object);
    struct hr_error error = {0};
    if (check_usable(self) < 0)
        return NULL;
    self->is_running = true;
    int r;
    Py_BEGIN_ALLOW_THREADS
        r = hr_agent_run(self->handle, &error);
    Py_END_ALLOW_THREADS
    self->is_running = false;
    core_log_drain(state);
    if (r)
        return core_raise(state, r, &error, NULL);
    Py_RETURN_NONE;
}

static PyObject *agent_stop(PyObject *object, PyObject *none)
{
    struct agent *self = (struct agent *)object;
    if (self->handle)
        hr_agent_stop(self->handle);
    Py_RETURN_NONE;
}

static PyObject *agent_close(PyObject *object, PyObject *none)
{
    struct agent *self = (struct agent *)object;
    if (!self->handle)
        Py_RETURN_NONE;
    if (check_usable(self) < 0)
        return NULL;
    struct hr_agent *handle = self->handle;
    self->handle = NULL;
    Py_BEGIN_ALLOW_THREADS
        hr_agent_destroy(&handle);
    Py_END_ALLOW_THREADS
    core_log_drain(core_state_of(object));
    Py_RETURN_NONE;
}

PyObject *core_agent_socket(PyObject *module, PyObject *none)
{
    char path[4096];
    size_t length = hr_agent_default_socket(path, sizeof path);
    if (length >= sizeof path) {
        PyErr_SetString(PyExc_ValueError, "the path of the agent's socket is too long");
        return NULL;
    }
    return PyUnicode_DecodeFSDefaultAndSize(path, (Py_ssize_t)length);
}

PyObject *core_agent_status(PyObject *module, PyObject *path)
{
    struct core_state *state = PyModule_GetState(module);
    PyObject *socket = NULL;
    if (!optional_path(path, &socket))
        return NULL;
    char *json = NULL;
    struct hr_error error = {0};
    int r;
    Py_BEGIN_ALLOW_THREADS
        r = hr_agent_status(socket ? PyBytes_AsString(socket) : NULL, &json, &error);
    Py_END_ALLOW_THREADS
    Py_XDECREF(socket);
    core_log_drain(state);
    if (r)
        return core_raise(state, r, &error, NULL);
    PyObject *text = core_text(json);
    hr_text_free(json);
    return text;
}

CORE_METHOD(agent_run);
CORE_METHOD(agent_stop);
CORE_METHOD(agent_close);

static PyMethodDef agent_methods[] = {
    {"run", CORE_LOCKED(agent_run), METH_NOARGS,
     PyDoc_STR("run()\n--\n\nServes until stop(), or until it has been idle long enough.")},
    {"stop", CORE_LOCKED(agent_stop), METH_NOARGS,
     PyDoc_STR("stop()\n--\n\nEnds run() soon. Any thread.")},
    {"close", CORE_LOCKED(agent_close), METH_NOARGS,
     PyDoc_STR("close()\n--\n\nFrees it; the socket is gone.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot agent_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Agent(**options)\n\n"
                                  "Options are those of struct hr_agent_options.")},
    {Py_tp_new, agent_new},
    {Py_tp_dealloc, agent_dealloc},
    {Py_tp_methods, agent_methods},
    {0, NULL},
};

PyType_Spec core_agent_spec = {
    .name = "headrace._core.Agent",
    .basicsize = sizeof(struct agent),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = agent_slots,
};
