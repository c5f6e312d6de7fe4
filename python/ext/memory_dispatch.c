/*
 * The hot half of the dispatch mode: headrace._core.MemoryRecorder.__torch_dispatch__.
 *
 * For each operator it notes which storages are read and written, by what the operator's
 * schema said when it came first (memory_blocks.c), and on request by which lines
 * (memory_stack.c).
 *
 * Signals that arrive while Python code of ours runs must reach the training: what is not our
 * own exception is never dropped, but raised in place of the operator's result.
 */
#include "memory_inside.h"

#include <string.h>

/* What an operator does, by its schema: the Python half packs it into bytes. */
struct op {
    uint32_t name;            /* id */
    uint32_t flags;           /* OP_ */
    uint64_t written_args;    /* bit i: the i-th argument is written, not read */
    uint64_t written_if;      /* the same where argument `condition` is true */
    uint32_t condition, zero; /* index of an argument */
    char written_names[64];   /* keyword arguments that are: " out " or " values indices " */
};

enum {
    OP_IGNORED = 1,  /* only metadata: no access at all */
    OP_NO_WRITE = 2, /* outputs are not written (empty) */
    OP_ALIASES = 4,  /* outputs are arguments, or views of them */
    OP_KWARGS = 8,   /* keyword arguments may be tensors */
    OP_NO_READ = 16, /* arguments are not read (empty_like) */
    OP_MAYBE = 32,   /* the output may be a view, or new: then it is written */
    OP_MOVES = 64,   /* the memory of what is written may be another then */
};

/* ---- arguments ---- */

/* Bits of the arguments that are written. */
static uint64_t written_of(const struct op *op, PyObject *args)
{
    uint64_t written = op->written_args;
    if (op->written_if && (Py_ssize_t)op->condition < PyTuple_Size(args) &&
        PyTuple_GetItem(args, op->condition) == Py_True)
        written |= op->written_if;
    return written;
}

static int is_written_name(const struct op *op, PyObject *key)
{
    PyObject *spaced = PyUnicode_FromFormat(" %U ", key);
    PyObject *text = spaced ? PyUnicode_AsUTF8String(spaced) : NULL;
    int is = text && strstr(op->written_names, PyBytes_AsString(text));
    Py_XDECREF(text);
    Py_XDECREF(spaced);
    memory_forget();
    return is;
}

/* The arguments that an operator reads (written: 0) or writes (1). */
static void touch_arguments(struct memory *m, const struct op *op, PyObject *args, PyObject *kwargs,
                            int written, const struct memory_access *access)
{
    const uint64_t mask = written_of(op, args);
    for (Py_ssize_t i = 0, n = PyTuple_Size(args); i < n; i++)
        if ((int)(i < 64 && mask >> i & 1) == written)
            memory_touch(m, PyTuple_GetItem(args, i), access);
    if (!(op->flags & OP_KWARGS) || !kwargs)
        return;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(kwargs, &at, &key, &value))
        if (is_written_name(op, key) == written)
            memory_touch(m, value, access);
}

/* ---- operators ---- */

/* Copies what is known of an operator; -1 with an exception. */
static int op_of(struct memory *m, PyObject *func, struct op *op)
{
    PyObject *bytes = PyDict_GetItemWithError(m->ops, func);
    if (PyErr_Occurred())
        return -1;
    if (bytes) {
        memcpy(op, PyBytes_AsString(bytes), sizeof *op);
        return 0;
    }
    bytes = PyObject_CallFunctionObjArgs(m->describe, func, NULL);
    int r = bytes ? 0 : -1;
    if (bytes && (!PyBytes_Check(bytes) || PyBytes_Size(bytes) != sizeof *op)) {
        PyErr_SetString(PyExc_TypeError, "describe gives the bytes of an operator");
        r = -1;
    }
    if (!r)
        r = PyDict_SetItem(m->ops, func, bytes);
    if (!r)
        memcpy(op, PyBytes_AsString(bytes), sizeof *op);
    Py_XDECREF(bytes);
    return r;
}

/* An operator raised: where memory was short that is recorded. What a signal raises meanwhile
 * goes before the operator's. */
static void tell_failure(struct memory *m, uint64_t failures_before)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    /* Until 3.11 it may be the message alone. */
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *told = PyBool_FromLong(memory_tap_failures(m) != failures_before);
    PyObject *done = PyObject_CallFunctionObjArgs(m->failed, value ? value : Py_None, told, NULL);
    Py_DECREF(told);
    Py_XDECREF(done);
    memory_forget();
    if (PyErr_Occurred()) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    } else {
        PyErr_Restore(type, value, trace);
    }
}

/* Calls the operator; what it allocates is of these lines, what a device does of this call. */
static PyObject *call_operator(struct memory *m, const struct memory_access *access, PyObject *func,
                               PyObject *args, PyObject *kwargs)
{
    if (!m->stacks.classify && !m->kernels)
        return PyObject_Call(func, args, kwargs);
    /* They are closed when the recording ends, which may be meanwhile: then not even called. */
    struct hr_memory_kernels *kernels = m->kernels;
    uint32_t outer_stack = atomic_exchange(&m->alloc_stack, access->stack);
    uintptr_t outer_thread = atomic_exchange(&m->op_thread, (uintptr_t)pthread_self());
    if (kernels)
        hr_memory_kernels_call(kernels, access->call);
    PyObject *result = PyObject_Call(func, args, kwargs);
    if (kernels && m->kernels == kernels)
        hr_memory_kernels_called(kernels);
    atomic_store(&m->alloc_stack, outer_stack);
    atomic_store(&m->op_thread, outer_thread);
    return result;
}

/* What an operator has done: what it wrote, and what is new. */
static void touch_result(struct memory *m, const struct op *op, PyObject *args, PyObject *kwargs,
                         PyObject *result, struct memory_access access)
{
    /* What is new was allocated for these lines. */
    uint32_t outer = access.stack ? atomic_exchange(&m->alloc_stack, access.stack) : 0;
    if (op->flags & OP_MAYBE) {
        access.only_new = 1;
    } else {
        access.moves = (op->flags & OP_MOVES) != 0;
        if (op->flags & OP_IGNORED)
            access.kind = 0;
        touch_arguments(m, op, args, kwargs, 1, &access);
        access.moves = 0;
    }
    if (!(op->flags & (OP_ALIASES | OP_IGNORED)) || op->flags & OP_MAYBE) {
        access.is_new = 1;
        if (op->flags & OP_NO_WRITE)
            access.kind = 0;
        memory_touch(m, result, &access);
    }
    if (access.stack)
        atomic_store(&m->alloc_stack, outer);
}

static PyObject *run(struct memory *m, const struct op *op, PyObject *func, PyObject *args,
                     PyObject *kwargs)
{
    struct memory_access access = {.kind = HR_MEMORY_READ, .op = op->name};
    access.time_ns = hr_memory_now_ns(m->recorder);
    access.call = ++m->call;
    if (m->stacks.classify) {
        int64_t stack = memory_stack_now(m);
        if (stack < 0)
            return NULL;
        access.stack = (uint32_t)stack;
    }
    if (!(op->flags & (OP_NO_READ | OP_MAYBE | OP_IGNORED)))
        touch_arguments(m, op, args, kwargs, 0, &access);
    uint64_t failures = memory_tap_failures(m);
    PyObject *result = PyErr_Occurred() ? NULL : call_operator(m, &access, func, args, kwargs);
    if (!result) {
        tell_failure(m, failures);
        return NULL;
    }
    if (!m->recorder)
        return result;
    access.time_ns = hr_memory_now_ns(m->recorder);
    access.kind = HR_MEMORY_WRITE;
    touch_result(m, op, args, kwargs, result, access);
    if (PyErr_Occurred())
        Py_CLEAR(result);
    return result;
}

/* What a type of tensors is, met for the first time. */
static enum memory_kind look_at_type(struct memory *m, PyObject *type)
{
    PyObject *its = PyObject_GetAttrString(type, "__torch_dispatch__");
    enum memory_kind kind = its && its != m->plain ? MEMORY_SUBCLASS : MEMORY_PLAIN;
    Py_XDECREF(its);
    PyObject *module = kind ? PyObject_GetAttrString(type, "__module__") : NULL;
    PyObject *start = module ? PyUnicode_FromString("torch._subclasses") : NULL;
    if (start && PyUnicode_Check(module) &&
        PyUnicode_Tailmatch(module, start, 0, PY_SSIZE_T_MAX, -1) > 0)
        kind = MEMORY_UNREAL;
    Py_XDECREF(start);
    Py_XDECREF(module);
    memory_forget();
    return kind;
}

enum memory_kind memory_kind_of(struct memory *m, PyObject *type)
{
    if (type == m->tensor_type)
        return MEMORY_PLAIN;
    PyObject *known = PyDict_GetItemWithError(m->types, type);
    if (known)
        return (enum memory_kind)PyLong_AsLong(known);
    memory_forget();
    enum memory_kind kind = look_at_type(m, type);
    PyObject *number = PyLong_FromLong(kind);
    if (number)
        PyDict_SetItem(m->types, type, number);
    Py_XDECREF(number);
    memory_forget();
    return kind;
}

/* The strangest of some types. */
static enum memory_kind kind_of_all(struct memory *m, PyObject *types)
{
    enum memory_kind kind = MEMORY_PLAIN;
    for (Py_ssize_t i = 0, n = PyTuple_Check(types) ? PyTuple_Size(types) : 0; i < n; i++) {
        enum memory_kind its = memory_kind_of(m, PyTuple_GetItem(types, i));
        kind = its > kind ? its : kind;
    }
    return kind;
}

PyObject *memory_dispatch(PyObject *object, PyObject *arguments)
{
    struct memory *m = (struct memory *)object;
    PyObject *func, *types, *args = NULL, *kwargs = NULL;
    if (!PyArg_UnpackTuple(arguments, "__torch_dispatch__", 2, 4, &func, &types, &args, &kwargs))
        return NULL;
    enum memory_kind kind = m->recorder && m->describe ? kind_of_all(m, types) : MEMORY_PLAIN;
    /* A subclass's own operator comes back here, of the tensors that it is made of. */
    if (kind == MEMORY_SUBCLASS)
        return Py_NewRef(Py_NotImplemented);
    PyObject *empty = NULL;
    if (!args && !(args = empty = PyTuple_New(0)))
        return NULL;
    if (kwargs == Py_None)
        kwargs = NULL;
    struct op op = {.flags = OP_IGNORED};
    PyObject *result = NULL;
    if (kind == MEMORY_UNREAL || !m->recorder || !m->describe || !op_of(m, func, &op))
        result = m->recorder && (op.flags & (OP_IGNORED | OP_MOVES)) != OP_IGNORED
                     ? run(m, &op, func, args, kwargs)
                     : PyObject_Call(func, args, kwargs);
    Py_XDECREF(empty);
    return result;
}
