/*
 * headrace._core.StorageHold: keeps files in the page cache until it is closed.
 *
 * Files are added in groups without the GIL; Ctrl-C takes effect between groups. The byte counts
 * stay readable after close().
 */
#include "core.h"

#include <errno.h>
#include <structmember.h>

/* Files per library call. */
#define RUN_FILES 512

struct hold {
    PyObject_HEAD struct hr_storage_hold *handle; /* NULL: closed */
    struct hr_storage_held held;
};

/* Holds all files and fills in self->held. Returns 0, or -1 with an exception. */
static int add_all(struct hold *self, PyTypeObject *type, const struct core_paths *paths,
                   uint64_t most_bytes)
{
    struct hr_error error = {0};
    int r = 0;
    Py_ssize_t at = 0;
    do {
        Py_ssize_t n = paths->count - at < RUN_FILES ? paths->count - at : RUN_FILES;
        Py_BEGIN_ALLOW_THREADS
            r = hr_storage_hold(paths->text + at, (size_t)n, most_bytes, &self->handle, &error);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return -1;
        if (r != -EINTR) /* -EINTR: a signal handler returned normally; repeat the group */
            at += n;
    } while ((!r && at < paths->count) || r == -EINTR);
    self->held = (struct hr_storage_held){.size = sizeof self->held};
    if (!r)
        r = hr_storage_hold_look(self->handle, &self->held, &error);
    if (!r)
        return 0;
    core_raise(PyType_GetModuleState(type), r, &error, NULL);
    return -1;
}

static PyObject *hold_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"paths", "most_bytes", NULL};
    struct core_paths paths;
    PyObject *sequence;
    long long most_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OL", names, &sequence, &most_bytes))
        return NULL;
    if (most_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "most_bytes is not negative");
        return NULL;
    }
    if (core_paths_take(&paths, sequence) < 0)
        return NULL;
    struct hold *self = PyObject_New(struct hold, type);
    if (self)
        self->handle = NULL;
    if (self && add_all(self, type, &paths, (uint64_t)most_bytes) < 0)
        Py_CLEAR(self);
    core_paths_clear(&paths);
    return (PyObject *)self;
}

static void hold_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    hr_storage_release(&((struct hold *)object)->handle);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *hold_close(PyObject *object, PyObject *none)
{
    struct hr_storage_hold *handle = ((struct hold *)object)->handle;
    /* Taken before the GIL is released, so that only one of two threads closes it. */
    ((struct hold *)object)->handle = NULL;
    Py_BEGIN_ALLOW_THREADS
        hr_storage_release(&handle);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *hold_enter(PyObject *object, PyObject *none)
{
    return Py_NewRef(object);
}

static PyObject *hold_exit(PyObject *object, PyObject *exception)
{
    return hold_close(object, NULL);
}

static PyObject *hold_problem(PyObject *object, void *closure)
{
    return core_text(((struct hold *)object)->held.problem);
}

CORE_METHOD(hold_close);
CORE_METHOD(hold_exit);

static PyMethodDef hold_methods[] = {
    {"close", CORE_LOCKED(hold_close), METH_NOARGS,
     PyDoc_STR("close()\n--\n\nLets go of the files.")},
    {"__enter__", hold_enter, METH_NOARGS, NULL},
    {"__exit__", CORE_LOCKED(hold_exit), METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef hold_members[] = {
    {"bytes", T_ULONGLONG, offsetof(struct hold, held.bytes), READONLY,
     PyDoc_STR("Of the files that could be opened.")},
    {"held_bytes", T_ULONGLONG, offsetof(struct hold, held.held_bytes), READONLY,
     PyDoc_STR("Of them, those that go only where memory is short.")},
    {"locked_bytes", T_ULONGLONG, offsetof(struct hold, held.locked_bytes), READONLY,
     PyDoc_STR("Of these, those that do not go.")},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef hold_getset[] = {
    {"problem", hold_problem, NULL,
     PyDoc_STR("Of the first file that is not held, or else not locked; ''."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot hold_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("StorageHold(paths, most_bytes)\n--\n\n"
                                  "Files that are kept in memory until it is closed.")},
    {Py_tp_new, hold_new},
    {Py_tp_dealloc, hold_dealloc},
    {Py_tp_methods, hold_methods},
    {Py_tp_members, hold_members},
    {Py_tp_getset, hold_getset},
    {0, NULL},
};

PyType_Spec core_storage_hold_spec = {
    .name = "headrace._core.StorageHold",
    .basicsize = sizeof(struct hold),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = hold_slots,
};
