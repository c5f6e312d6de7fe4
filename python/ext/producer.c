/*
 * headrace._core.Producer: a process's connection to an agent as a producer (headrace/producer.h),
 * and the produced dataset.
 *
 * One thread at a time may use a Producer. take() waits without the GIL.
 */
#include "core.h"

#include <errno.h>
#include <string.h>

/* Tasks that one call takes: a producer's memory has so many slots at most. */
#define TASKS_MOST 64

struct producer {
    PyObject_HEAD struct hr_producer *handle; /* NULL once closed */
    bool busy;
};

static PyObject *producer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"agent", "dataset", "memory", NULL};
    struct core_state *state = PyType_GetModuleState(type);
    PyObject *agent = NULL, *dataset;
    struct hr_producer *handle = NULL;
    struct hr_error error = {0};
    int memory, r;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O!i", names, PyUnicode_FSConverter, &agent,
                                     state->dataset_type, &dataset, &memory))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
        r = hr_producer_connect(&handle, PyBytes_AsString(agent), core_dataset_handle(dataset),
                                memory, &error);
    Py_END_ALLOW_THREADS
    Py_DECREF(agent);
    core_log_drain(state);
    if (r)
        return core_raise(state, r, &error, NULL);
    struct producer *self = PyObject_New(struct producer, type);
    if (!self) {
        hr_producer_destroy(&handle);
        return NULL;
    }
    self->handle = handle;
    self->busy = false;
    return (PyObject *)self;
}

static void producer_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    hr_producer_destroy(&((struct producer *)object)->handle);
    PyObject_Free(object);
    Py_DECREF(type);
}

static int enter(struct producer *self)
{
    if (!self->handle) {
        PyErr_SetString(PyExc_RuntimeError, "this producer is closed");
        return -1;
    }
    return core_enter(&self->busy, "producer");
}

static PyObject *task_list(const struct hr_producer_task *tasks, int count)
{
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        PyObject *task =
            Py_BuildValue("(IKKK)", (unsigned)tasks[i].slot, (unsigned long long)tasks[i].index,
                          (unsigned long long)tasks[i].epoch, (unsigned long long)tasks[i].seed);
        if (!task || PyList_SetItem(list, i, task) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *producer_take(PyObject *object, PyObject *args)
{
    struct producer *self = (struct producer *)object;
    struct hr_producer_task tasks[TASKS_MOST];
    struct hr_error error = {0};
    int most, stop, r;
    if (!PyArg_ParseTuple(args, "ii", &most, &stop) || enter(self) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
        r = hr_producer_take(self->handle, tasks, most < TASKS_MOST ? most : TASKS_MOST, stop,
                             &error);
    Py_END_ALLOW_THREADS
    self->busy = false;
    if (r == -EINTR)
        r = PyErr_CheckSignals() ? r : 0;
    if (r < 0)
        return core_raise(core_state_of(object), r, &error, NULL);
    return task_list(tasks, r);
}

/* Ends a call that answered the agent. */
static PyObject *answered(struct producer *self, int r, const struct hr_error *error)
{
    self->busy = false;
    if (r)
        return core_raise(core_state_of((PyObject *)self), r, error, NULL);
    Py_RETURN_NONE;
}

static PyObject *producer_done(PyObject *object, PyObject *args)
{
    struct producer *self = (struct producer *)object;
    struct hr_error error = {0};
    unsigned slot;
    long long label;
    if (!PyArg_ParseTuple(args, "IL", &slot, &label) || enter(self) < 0)
        return NULL;
    return answered(self, hr_producer_done(self->handle, slot, label, &error), &error);
}

static PyObject *producer_failed(PyObject *object, PyObject *args)
{
    struct producer *self = (struct producer *)object;
    struct hr_error error = {0};
    unsigned slot;
    const char *reason;
    if (!PyArg_ParseTuple(args, "Is", &slot, &reason) || enter(self) < 0)
        return NULL;
    return answered(self, hr_producer_failed(self->handle, slot, reason, &error), &error);
}

static PyObject *producer_close(PyObject *object, PyObject *none)
{
    struct producer *self = (struct producer *)object;
    if (self->handle && core_enter(&self->busy, "producer") < 0)
        return NULL;
    hr_producer_destroy(&self->handle);
    self->busy = false;
    Py_RETURN_NONE;
}

static int take_digest(Py_buffer *view, const char *name, uint8_t out[16])
{
    if (view->len != 16) {
        PyErr_Format(PyExc_ValueError, "%s must have 16 bytes, it has %zd", name, view->len);
        return -1;
    }
    memcpy(out, view->buf, 16);
    return 0;
}

PyObject *core_produced(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"count", "sample_bytes", "name", "layout", "digest", NULL};
    struct core_state *state = PyModule_GetState(module);
    struct hr_produced_options o;
    struct hr_dataset *dataset;
    struct hr_recipe *recipe;
    struct hr_error error = {0};
    unsigned long long count, sample_bytes;
    Py_buffer layout, digest;
    hr_produced_options_default(&o);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KKsy*y*", names, &count, &sample_bytes, &o.name,
                                     &layout, &digest))
        return NULL;
    o.count = count;
    o.sample_bytes = sample_bytes;
    int r = take_digest(&layout, "layout", o.layout);
    if (!r)
        r = take_digest(&digest, "digest", o.digest);
    PyBuffer_Release(&layout);
    PyBuffer_Release(&digest);
    if (r)
        return NULL;
    r = hr_produced_create(&dataset, &recipe, &o, &error);
    if (r)
        return core_raise(state, r, &error, NULL);
    PyObject *first = core_dataset_wrap(state, dataset), *second = core_recipe_wrap(state, recipe);
    PyObject *both = first && second ? PyTuple_Pack(2, first, second) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(second);
    return both;
}

CORE_METHOD(producer_take);
CORE_METHOD(producer_done);
CORE_METHOD(producer_failed);
CORE_METHOD(producer_close);

static PyMethodDef producer_methods[] = {
    {"take", CORE_LOCKED(producer_take), METH_VARARGS,
     PyDoc_STR("take(most, stop)\n--\n\n"
               "Waits up to half a second, or until the file `stop` is readable: a list of (slot,\n"
               "index, epoch, seed) of samples to make, up to `most`; empty if there are none.")},
    {"done", CORE_LOCKED(producer_done), METH_VARARGS,
     PyDoc_STR("done(slot, label)\n--\n\nHands over the sample in the slot.")},
    {"failed", CORE_LOCKED(producer_failed), METH_VARARGS,
     PyDoc_STR("failed(slot, reason)\n--\n\nReports that the slot's sample cannot be made.")},
    {"close", CORE_LOCKED(producer_close), METH_NOARGS,
     PyDoc_STR("close()\n--\n\nLeaves the agent.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot producer_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Producer(agent, dataset, memory)\n\n"
                                  "memory: a sealed memfd of 2 to 64 slots.")},
    {Py_tp_new, producer_new},
    {Py_tp_dealloc, producer_dealloc},
    {Py_tp_methods, producer_methods},
    {0, NULL},
};

PyType_Spec core_producer_spec = {
    .name = "headrace._core.Producer",
    .basicsize = sizeof(struct producer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = producer_slots,
};
