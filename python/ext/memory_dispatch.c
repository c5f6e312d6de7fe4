/*
 * Records operator calls for headrace._core.MemoryRecorder, and implements the dispatch mode's
 * __torch_dispatch__.
 *
 * For each operator it records which storages are read and written (memory_blocks.c). Which
 * arguments are, follows from the operator's schema, read at its first call. On request it also
 * records the lines that called the operator (memory_stack.c).
 *
 * Exceptions of signal handlers that run during our Python code must reach the training. They
 * are never dropped, but raised in place of the operator's result.
 */
#include "memory_inside.h"

#include <string.h>

enum {
    OP_IGNORED = 1,  /* metadata only: no access */
    OP_NO_WRITE = 2, /* outputs are not written (empty) */
    OP_ALIASES = 4,  /* outputs are arguments or views of them */
    OP_KWARGS = 8,   /* keyword arguments may be tensors */
    OP_NO_READ = 16, /* arguments are not read (empty_like) */
    OP_MAYBE = 32,   /* the output is a view, or new and then written */
    OP_MOVES = 64,   /* written arguments may get other memory */
};

int memory_op_counts(const struct memory_op *op)
{
    return (op->flags & (OP_IGNORED | OP_MOVES)) != OP_IGNORED;
}

/* ---- arguments ---- */

/* Returns nonzero if the argument that `written_if` depends on is True. */
static int is_condition_met(const struct memory_op *op, const struct memory_operands *arguments)
{
    if (arguments->observed)
        return op->condition < 64 && (arguments->observed->truths >> op->condition & 1);
    return (Py_ssize_t)op->condition < PyTuple_Size(arguments->args) &&
           PyTuple_GetItem(arguments->args, op->condition) == Py_True;
}

/* Returns the bit mask of the arguments that this call writes. */
static uint64_t written_of(const struct memory_op *op, const struct memory_operands *arguments)
{
    uint64_t written = op->written_args;
    if (op->written_if && is_condition_met(op, arguments))
        written |= op->written_if;
    return written;
}

static int is_written_name(const struct memory_op *op, PyObject *key)
{
    PyObject *spaced = PyUnicode_FromFormat(" %U ", key);
    PyObject *text = spaced ? PyUnicode_AsUTF8String(spaced) : NULL;
    int is = text && strstr(op->written_names, PyBytes_AsString(text));
    Py_XDECREF(text);
    Py_XDECREF(spaced);
    memory_forget();
    return is;
}

static void touch_observed(struct memory *m, uint64_t mask, const struct observed_tensors *tensors,
                           int written, const struct memory_access *access)
{
    for (size_t i = 0; i < tensors->count; i++) {
        uint32_t at = tensors->all[i].argument;
        if ((int)(at < 64 && mask >> at & 1) == written)
            memory_touch_observed(m, &tensors->all[i], access);
    }
}

/* Records an access to the arguments that the operator reads (written: 0) or writes (1). */
static void touch_arguments(struct memory_call *call, const struct memory_operands *arguments,
                            int written, const struct memory_access *access)
{
    struct memory *m = call->m;
    const struct memory_op *op = call->op;
    const uint64_t mask = written_of(op, arguments);
    PyObject *args = arguments->args, *kwargs = arguments->kwargs;
    if (arguments->observed) {
        touch_observed(m, mask | op->written_kwargs, arguments->observed, written, access);
        return;
    }
    for (Py_ssize_t i = 0, n = PyTuple_Size(args); i < n; i++)
        if ((int)(i < 64 && mask >> i & 1) == written)
            memory_touch(m, PyTuple_GetItem(args, i), access);
    if (!(op->flags & OP_KWARGS) || !kwargs)
        return;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    CORE_LOCK(kwargs);
    while (PyDict_Next(kwargs, &at, &key, &value))
        if (is_written_name(op, key) == written)
            memory_touch(m, value, access);
    CORE_UNLOCK;
}

/* ---- operators ---- */

/* Copies an operator's description to *op; describe() makes it at the first call. Returns 0, or
 * -1 with an exception. */
static int op_of(struct memory *m, PyObject *func, struct memory_op *op)
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

/* Returns nonzero if the call writes a parameter. */
static int writes_parameter(const struct memory_call *call, const struct memory_operands *arguments)
{
    uint64_t mask = written_of(call->op, arguments);
    int does = 0;
    if (arguments->observed) {
        mask |= call->op->written_kwargs;
        for (size_t i = 0; i < arguments->observed->count && !does; i++) {
            const struct observed_tensor *tensor = &arguments->observed->all[i];
            does = tensor->argument < 64 && mask >> tensor->argument & 1 &&
                   memory_is_parameter_observed(call->m, tensor);
        }
        return does;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(arguments->args) && i < 64 && !does; i++)
        does = mask >> i & 1 && memory_is_parameter(call->m, PyTuple_GetItem(arguments->args, i));
    return does;
}

/* Takes a write to a parameter between a backward and the next forward pass for an optimizer
 * step, by one of torch's optimizers or the training's own. */
static void find_update(struct memory_call *call, const struct memory_operands *arguments)
{
    struct memory *m = call->m;
    if (!m->awaits_update || atomic_load(&m->phase) != HR_MEMORY_OUTSIDE ||
        !writes_parameter(call, arguments))
        return;
    call->is_update = m->was_updated = 1;
    atomic_store(&m->phase, HR_MEMORY_OPTIMIZER);
}

static void end_update(struct memory_call *call)
{
    if (call->is_update)
        atomic_store(&call->m->phase, HR_MEMORY_OUTSIDE);
}

int memory_call_begin(struct memory *m, struct memory_call *call, const struct memory_op *op,
                      const struct memory_operands *arguments)
{
    *call = (struct memory_call){.m = m, .op = op};
    call->access = (struct memory_access){.kind = HR_MEMORY_READ, .op = op->name};
    call->access.time_ns = hr_memory_now_ns(m->recorder);
    call->access.call = ++m->call;
    find_update(call, arguments);
    if (m->stacks.classify) {
        int64_t stack = memory_stack_now(m);
        if (stack < 0)
            return -1;
        call->access.stack = (uint32_t)stack;
    }
    if (!(op->flags & (OP_NO_READ | OP_MAYBE | OP_IGNORED)))
        touch_arguments(call, arguments, 0, &call->access);
    if (PyErr_Occurred())
        return -1;
    call->failures = memory_tap_failures(m);
    call->is_attributed = m->stacks.classify || m->kernels;
    if (!call->is_attributed)
        return 0;
    /* Attributes allocations to these lines, and device work to this call. */
    call->outer_stack = atomic_exchange(&m->alloc_stack, call->access.stack);
    call->outer_thread = atomic_exchange(&m->op_thread, (uintptr_t)pthread_self());
    call->kernels = m->kernels;
    if (call->kernels)
        hr_memory_kernels_call(call->kernels, call->access.call);
    return 0;
}

void memory_call_returned(struct memory_call *call)
{
    struct memory *m = call->m;
    if (!call->is_attributed)
        return;
    /* The recording, and with it `kernels`, may have been closed during the operator. */
    if (call->kernels && m->kernels == call->kernels)
        hr_memory_kernels_called(call->kernels);
    atomic_store(&m->alloc_stack, call->outer_stack);
    atomic_store(&m->op_thread, call->outer_thread);
}

/* m->failed() records the failure if the operator ran out of memory. */
void memory_call_failed(struct memory_call *call, PyObject *error)
{
    struct memory *m = call->m;
    end_update(call);
    PyObject *is_recorded = PyBool_FromLong(memory_tap_failures(m) != call->failures);
    PyObject *done =
        PyObject_CallFunctionObjArgs(m->failed, error ? error : Py_None, is_recorded, NULL);
    Py_DECREF(is_recorded);
    Py_XDECREF(done);
    memory_forget();
}

/* As memory_call_failed, with Python's pending exception, and keeps it pending. An exception that
 * a signal handler raises meanwhile replaces it. */
static void report_failure(struct memory_call *call)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    /* Up to Python 3.11, `value` may be only the message. */
    PyErr_NormalizeException(&type, &value, &trace);
    memory_call_failed(call, value);
    if (PyErr_Occurred()) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    } else {
        PyErr_Restore(type, value, trace);
    }
}

static void touch_results(struct memory_call *call, const struct memory_operands *results,
                          const struct memory_access *access)
{
    if (results->observed)
        for (size_t i = 0; i < results->observed->count; i++)
            memory_touch_observed(call->m, &results->observed->all[i], access);
    else
        memory_touch(call->m, results->args, access);
}

static void touch_written(struct memory_call *call, const struct memory_operands *arguments,
                          const struct memory_operands *results)
{
    struct memory *m = call->m;
    struct memory_access access = call->access;
    const uint32_t flags = call->op->flags;
    access.time_ns = hr_memory_now_ns(m->recorder);
    access.kind = HR_MEMORY_WRITE;
    /* Attributes new storages to these lines. */
    uint32_t outer = access.stack ? atomic_exchange(&m->alloc_stack, access.stack) : 0;
    if (flags & OP_MAYBE) {
        access.only_new = 1;
    } else {
        access.moves = (flags & OP_MOVES) != 0;
        if (flags & OP_IGNORED)
            access.kind = 0;
        touch_arguments(call, arguments, 1, &access);
        access.moves = 0;
    }
    if (!(flags & (OP_ALIASES | OP_IGNORED)) || flags & OP_MAYBE) {
        access.is_new = 1;
        if (flags & OP_NO_WRITE)
            access.kind = 0;
        touch_results(call, results, &access);
    }
    if (access.stack)
        atomic_store(&m->alloc_stack, outer);
}

void memory_call_end(struct memory_call *call, const struct memory_operands *arguments,
                     const struct memory_operands *results)
{
    if (call->m->recorder)
        touch_written(call, arguments, results);
    end_update(call);
}

static PyObject *run(struct memory *m, const struct memory_op *op, PyObject *func, PyObject *args,
                     PyObject *kwargs)
{
    struct memory_call call;
    const struct memory_operands arguments = {.args = args, .kwargs = kwargs};
    if (memory_call_begin(m, &call, op, &arguments) < 0) {
        end_update(&call);
        return NULL;
    }
    PyObject *result = PyObject_Call(func, args, kwargs);
    memory_call_returned(&call);
    if (!result) {
        report_failure(&call);
        return NULL;
    }
    memory_call_end(&call, &arguments, &(struct memory_operands){.args = result});
    if (PyErr_Occurred())
        Py_CLEAR(result);
    return result;
}

/* Returns the highest enum memory_kind of a tuple of types. */
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
    /* The subclass's own dispatch calls operators on the tensors it wraps: those come here too. */
    if (kind == MEMORY_SUBCLASS)
        return Py_NewRef(Py_NotImplemented);
    PyObject *empty = NULL;
    if (!args && !(args = empty = PyTuple_New(0)))
        return NULL;
    if (kwargs == Py_None)
        kwargs = NULL;
    struct memory_op op = {.flags = OP_IGNORED};
    PyObject *result = NULL;
    if (kind == MEMORY_UNREAL || !m->recorder || !m->describe || !op_of(m, func, &op))
        result = m->recorder && memory_op_counts(&op) ? run(m, &op, func, args, kwargs)
                                                      : PyObject_Call(func, args, kwargs);
    Py_XDECREF(empty);
    return result;
}
