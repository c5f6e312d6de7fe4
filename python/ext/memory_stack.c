/*
 * Finds the lines of code that called an operator, for headrace._core.MemoryRecorder.
 *
 * Each call walks the thread's Python frames. Code objects are classified once: those of torch
 * and headrace are left out. In a backward pass the lines are those of the forward operator:
 * autograd numbers its nodes as it creates them (just before the operator is dispatched) and
 * knows which node runs.
 */
#include "memory_inside.h"

#define FRAMES_MOST  16  /* frames recorded per stack */
#define WALKED_MOST  120 /* frames examined per stack */
#define FORWARD_MOST 65536

/* A classified code object. We hold a reference so that its address is not reused. */
struct memory_code {
    PyObject *code;
    uint32_t file, function; /* name ids; function 0: left out of stacks */
};

struct memory_forward {
    uint64_t sequence;
    uint32_t stack;
};

/* Returns the classified code object; NULL with an exception. */
static const struct memory_code *code_of(struct memory *m, PyObject *code)
{
    struct memory_stacks *s = &m->stacks;
    uint32_t index = memory_map_get(&s->by_code, (uint64_t)(uintptr_t)code);
    if (index != MEMORY_NONE)
        return &s->codes[index];
    struct memory_code new = {.code = code};
    PyObject *found = PyObject_CallFunctionObjArgs(s->classify, code, NULL);
    if (!found || (found != Py_None && !PyArg_ParseTuple(found, "II", &new.file, &new.function))) {
        Py_XDECREF(found);
        return NULL;
    }
    Py_DECREF(found);
    if (s->code_count == s->code_room) {
        uint32_t room = s->code_room ? 2 * s->code_room : 64;
        struct memory_code *grown = PyMem_Realloc(s->codes, room * sizeof *grown);
        if (!grown) {
            PyErr_NoMemory();
            return NULL;
        }
        s->codes = grown;
        s->code_room = room;
    }
    if (memory_map_put(&s->by_code, (uint64_t)(uintptr_t)code, s->code_count) < 0)
        return NULL;
    Py_INCREF(code);
    s->codes[s->code_count] = new;
    return &s->codes[s->code_count++];
}

/* Fills in the frames of this thread, innermost first. Returns their number, or -1 with an
 * exception. */
static int walk(struct memory *m, struct hr_memory_frame frames[FRAMES_MOST])
{
    PyObject *frame = (PyObject *)PyThreadState_GetFrame(PyThreadState_Get());
    int count = 0;
    for (int i = 0; frame && i < WALKED_MOST && count < FRAMES_MOST; i++) {
        PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
        const struct memory_code *known = code_of(m, code);
        Py_DECREF(code);
        if (known && known->function)
            frames[count++] = (struct hr_memory_frame){
                .file = known->file,
                .function = known->function,
                .line = (uint32_t)PyFrame_GetLineNumber((PyFrameObject *)frame),
            };
        /* Leave out code that cannot be classified (if there is no working directory). */
        if (!known)
            memory_forget();
        PyObject *outer = PyErr_Occurred() ? NULL : PyObject_GetAttr(frame, m->f_back);
        Py_DECREF(frame);
        frame = outer;
        if (!outer)
            return -1;
        if (outer == Py_None) {
            Py_DECREF(outer);
            frame = NULL;
        }
    }
    Py_XDECREF(frame);
    return count;
}

/* Returns the sequence number of the next autograd node of this thread; 0 if unknown. */
static uint64_t sequence_now(struct memory *m)
{
    PyObject *found = PyObject_CallNoArgs(m->stacks.sequence_of);
    uint64_t value = found ? PyLong_AsUnsignedLongLong(found) : 0;
    Py_XDECREF(found);
    if (PyErr_Occurred()) {
        memory_forget();
        return 0;
    }
    return value;
}

/* Remembers the stack of a forward operator by its autograd node, if a node was just created: the
 * first operator after the creation of a node is that node's. */
static void note_forward(struct memory *m, uint32_t stack)
{
    struct memory_stacks *s = &m->stacks;
    uint64_t next = sequence_now(m);
    if (!next || next - 1 == s->latest)
        return;
    if (!s->forward)
        s->forward = PyMem_Calloc(FORWARD_MOST, sizeof *s->forward);
    s->latest = next - 1;
    if (s->forward)
        s->forward[s->latest % FORWARD_MOST] =
            (struct memory_forward){.sequence = next, .stack = stack};
}

/* Returns the stack id of the forward operator whose backward node runs; 0 if unknown. */
static uint32_t forward_stack(struct memory *m)
{
    struct memory_stacks *s = &m->stacks;
    PyObject *node = s->forward ? PyObject_CallNoArgs(s->current_node) : NULL;
    PyObject *number =
        node && node != Py_None ? PyObject_CallMethod(node, "_sequence_nr", NULL) : NULL;
    uint64_t sequence = number ? PyLong_AsUnsignedLongLong(number) : UINT64_MAX;
    int is_known = number && !PyErr_Occurred();
    Py_XDECREF(number);
    Py_XDECREF(node);
    memory_forget();
    if (!is_known || s->forward[sequence % FORWARD_MOST].sequence != sequence + 1)
        return 0;
    return s->forward[sequence % FORWARD_MOST].stack;
}

int64_t memory_stack_now(struct memory *m)
{
    struct hr_memory_frame frames[FRAMES_MOST];
    if (atomic_load(&m->phase) == HR_MEMORY_BACKWARD) {
        uint32_t stack = forward_stack(m);
        if (stack)
            return stack;
    }
    int count = walk(m, frames);
    if (count < 0 || !m->recorder)
        return PyErr_Occurred() ? -1 : 0;
    uint32_t stack = hr_memory_stack(m->recorder, frames, (size_t)count);
    if (atomic_load(&m->phase) != HR_MEMORY_BACKWARD)
        note_forward(m, stack);
    return stack;
}

void memory_stacks_clear(struct memory *m)
{
    struct memory_stacks stacks = m->stacks;
    m->stacks = (struct memory_stacks){.latest = UINT64_MAX};
    Py_XDECREF(stacks.classify);
    Py_XDECREF(stacks.sequence_of);
    Py_XDECREF(stacks.current_node);
    for (uint32_t i = 0; i < stacks.code_count; i++)
        Py_DECREF(stacks.codes[i].code);
    memory_map_clear(&stacks.by_code);
    PyMem_Free(stacks.codes);
    PyMem_Free(stacks.forward);
}
