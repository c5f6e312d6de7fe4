/*
 * headrace._core.MemoryRecorder: the Python type of a memory recording. The dispatch mode in
 * python/headrace/memory/ is a subclass. memory_dispatch.c has the per-operator code and
 * memory_blocks.c tracks storages. This builds without torch: the subclass passes in the torch
 * objects that it needs.
 */
#include "memory_inside.h"

#include <errno.h>
#include <string.h>
#include <structmember.h>

static struct memory *self_of(PyObject *object)
{
    return (struct memory *)object;
}

/* Method _freed: callback of a storage's weak reference. */
static PyObject *memory_freed(PyObject *object, PyObject *reference)
{
    memory_ended(self_of(object), reference);
    Py_RETURN_NONE;
}

/* ---- the recording ---- */

/* Returns the module's state of a type or of the first base that has one: subclasses made in
 * Python have none. */
static struct core_state *state_of(PyTypeObject *type)
{
    struct core_state *state = NULL;
    while (type && !(state = PyType_GetModuleState(type))) {
        PyErr_Clear();
        type = (PyTypeObject *)PyType_GetSlot(type, Py_tp_base);
    }
    return state;
}

/* Interns the attribute names. Returns 0, or -1 with an exception. */
static int make_words(struct memory *m)
{
    const struct {
        PyObject **place;
        const char *text;
    } words[] = {
        {&m->untyped_storage, "untyped_storage"},
        {&m->data_ptr, "data_ptr"},
        {&m->nbytes, "nbytes"},
        {&m->is_cpu, "is_cpu"},
        {&m->shape, "shape"},
        {&m->dtype, "dtype"},
        {&m->f_back, "f_back"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!(*words[i].place = PyUnicode_InternFromString(words[i].text)))
            return -1;
    return 0;
}

static PyObject *memory_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct hr_memory_recorder *recorder;
    struct hr_error error = {0};
    PyObject *path;
    unsigned long long limit_bytes = 0;
    struct hr_memory_recorder_options options;
    static char *names[] = {"path", "limit_bytes", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|K", names, PyUnicode_FSConverter, &path,
                                     &limit_bytes))
        return NULL;
    hr_memory_recorder_options_default(&options);
    options.limit_bytes = limit_bytes;
    struct memory *m = (struct memory *)PyType_GenericNew(type, NULL, NULL);
    if (!m) {
        Py_DECREF(path);
        return NULL;
    }
    int r = hr_memory_recorder_create(&recorder, PyBytes_AsString(path), &options, &error);
    if (r) {
        core_raise(state_of(type), r, &error, path);
        Py_DECREF(path);
        Py_DECREF(m);
        return NULL;
    }
    Py_DECREF(path);
    m->recorder = recorder;
    m->storages.free = MEMORY_NONE;
    m->stacks.latest = UINT64_MAX;
    m->ops = PyDict_New();
    m->names = PyDict_New();
    m->types = PyDict_New();
    m->changes = PyList_New(0);
    if (!m->ops || !m->names || !m->types || !m->changes || make_words(m) < 0)
        Py_CLEAR(m);
    return (PyObject *)m;
}

static int memory_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct memory *m = self_of(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(m->describe);
    Py_VISIT(m->failed);
    Py_VISIT(m->address_of);
    Py_VISIT(m->tensor_type);
    Py_VISIT(m->ops);
    Py_VISIT(m->names);
    Py_VISIT(m->types);
    Py_VISIT(m->plain);
    Py_VISIT(m->on_freed);
    Py_VISIT(m->changes);
    Py_VISIT(m->stacks.classify);
    Py_VISIT(m->stacks.sequence_of);
    Py_VISIT(m->stacks.current_node);
    return memory_storages_visit(m, visit, arg);
}

static int memory_clear(PyObject *object)
{
    struct memory *m = self_of(object);
    PyObject **objects[] = {
        &m->describe, &m->failed, &m->address_of, &m->tensor_type,     &m->ops,      &m->names,
        &m->types,    &m->plain,  &m->on_freed,   &m->untyped_storage, &m->data_ptr, &m->nbytes,
        &m->is_cpu,   &m->shape,  &m->dtype,      &m->f_back,          &m->changes,
    };
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        Py_CLEAR(*objects[i]);
    memory_stacks_clear(m);
    memory_storages_clear(m);
    return 0;
}

/* Ends the recording: stops the observer and the tap, and writes all pending device events. */
static void end_recording(struct memory *m)
{
    struct hr_memory_recorder *recorder = m->recorder;
    struct hr_memory_kernels *kernels = m->kernels;
    if (!recorder)
        return;
    memory_observe_end(m);
    memory_tap_end(m);
    /* Cleared before the GIL is released, so that no other thread uses them meanwhile. */
    m->recorder = NULL;
    m->kernels = NULL;
    Py_BEGIN_ALLOW_THREADS
        hr_memory_kernels_close(&kernels);
        hr_memory_recorder_destroy(&recorder);
    Py_END_ALLOW_THREADS
}

static void memory_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    end_recording(self_of(object));
    memory_clear(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* Method prepare(): takes the callables and types that the subclass passes in. */
static PyObject *memory_prepare(PyObject *object, PyObject *args, PyObject *kwargs)
{
    struct memory *m = self_of(object);
    static char *names[] = {"describe", "failed", "address_of", "tensor_type", NULL};
    PyObject *given[4];
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO", names, &given[0], &given[1], &given[2],
                                     &given[3]))
        return NULL;
    if (!PyType_Check(given[3])) {
        PyErr_SetString(PyExc_TypeError, "tensor_type is a type");
        return NULL;
    }
    if (m->describe) {
        PyErr_SetString(PyExc_ValueError, "prepare() is called once");
        return NULL;
    }
    m->on_freed = PyObject_GetAttrString(object, "_freed");
    m->plain = PyObject_GetAttrString(given[3], "__torch_dispatch__");
    if (!m->on_freed || !m->plain)
        return NULL;
    PyObject **places[4] = {&m->describe, &m->failed, &m->address_of, &m->tensor_type};
    for (int i = 0; i < 4; i++)
        *places[i] = Py_NewRef(given[i]);
    Py_RETURN_NONE;
}

/* Method with_stacks(): records the lines that call operators from now on. */
static PyObject *memory_with_stacks(PyObject *object, PyObject *args)
{
    struct memory_stacks *s = &self_of(object)->stacks;
    PyObject *classify, *sequence_of, *current_node;
    if (!PyArg_ParseTuple(args, "OOO", &classify, &sequence_of, &current_node))
        return NULL;
    if (s->classify) {
        PyErr_SetString(PyExc_ValueError, "with_stacks() is called once");
        return NULL;
    }
    s->sequence_of = Py_NewRef(sequence_of);
    s->current_node = Py_NewRef(current_node);
    s->classify = Py_NewRef(classify);
    Py_RETURN_NONE;
}

static PyObject *memory_tap(PyObject *object, PyObject *none)
{
    struct memory *m = self_of(object);
    if (!m->recorder || m->tap) {
        PyErr_SetString(PyExc_ValueError, "tap() is called once, while the recording goes on");
        return NULL;
    }
    int r = memory_tap_begin(m);
    return r < 0 ? NULL : PyBool_FromLong(r);
}

static PyObject *memory_follow_kernels(PyObject *object, PyObject *none)
{
    struct memory *m = self_of(object);
    struct hr_error error = {0};
    if (!m->recorder || m->kernels) {
        PyErr_SetString(PyExc_ValueError,
                        "follow_kernels() is called once, while the recording goes on");
        return NULL;
    }
    struct hr_memory_kernels *kernels = NULL;
    int r = hr_memory_kernels_open(&kernels, m->recorder, &error);
    m->kernels = kernels;
    if (r == -ENOMEM)
        return PyErr_NoMemory();
    if (r)
        return core_text(error.message);
    Py_RETURN_NONE;
}

static PyObject *memory_close(PyObject *object, PyObject *none)
{
    /* Keeps tracking storages, without recording: an operator may be using them now. */
    end_recording(self_of(object));
    Py_RETURN_NONE;
}

/* Drops the recorder in a forked child without closing it: the file and the tap's callbacks
 * belong to the parent. */
static PyObject *memory_abandon(PyObject *object, PyObject *none)
{
    struct memory *m = self_of(object);
    memory_observe_end(m);
    m->recorder = NULL;
    m->tap = NULL;
    m->kernels = NULL;
    Py_RETURN_NONE;
}

/* Returns the recorder, or NULL with an exception if the recording has ended. */
static struct hr_memory_recorder *open_of(PyObject *object)
{
    struct hr_memory_recorder *recorder = self_of(object)->recorder;
    if (!recorder)
        PyErr_SetString(PyExc_ValueError, "the recording has ended");
    return recorder;
}

static PyObject *memory_name(PyObject *object, PyObject *arg)
{
    struct hr_memory_recorder *recorder = self_of(object)->recorder;
    if (!recorder) /* another thread ended the recording while a hook ran */
        return PyLong_FromLong(0);
    PyObject *text = PyUnicode_AsEncodedString(arg, "utf-8", "backslashreplace");
    if (!text)
        return NULL;
    uint32_t id = hr_memory_name(recorder, PyBytes_AsString(text));
    Py_DECREF(text);
    return PyLong_FromUnsignedLong(id);
}

static PyObject *memory_fact(PyObject *object, PyObject *args)
{
    struct hr_memory_recorder *recorder = open_of(object);
    const char *name;
    PyObject *value;
    if (!recorder || !PyArg_ParseTuple(args, "sU", &name, &value))
        return NULL;
    /* Command lines and error messages may hold text that is not valid Unicode. */
    PyObject *text = PyUnicode_AsEncodedString(value, "utf-8", "backslashreplace");
    if (!text)
        return NULL;
    hr_memory_fact(recorder, name, PyBytes_AsString(text));
    Py_DECREF(text);
    Py_RETURN_NONE;
}

static PyObject *memory_mark(PyObject *object, PyObject *args)
{
    unsigned int name;
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "IK", &name, &number))
        return NULL;
    memory_record(self_of(object),
                  (struct hr_memory_event){.bytes = number, .what = name, .kind = HR_MEMORY_MARK});
    Py_RETURN_NONE;
}

static PyObject *memory_refused(PyObject *object, PyObject *arg)
{
    unsigned long long bytes = PyLong_AsUnsignedLongLong(arg);
    if (PyErr_Occurred())
        return NULL;
    memory_record(self_of(object),
                  (struct hr_memory_event){.bytes = bytes, .kind = HR_MEMORY_FAILED});
    Py_RETURN_NONE;
}

static PyObject *memory_describe(PyObject *object, PyObject *args)
{
    struct memory *m = self_of(object);
    const struct memory_access access = {.kind = 0};
    PyObject *tensor, *like = Py_None;
    int category;
    unsigned int part = 0;
    if (!m->recorder)
        Py_RETURN_NONE;
    if (!PyArg_ParseTuple(args, "Oi|OI", &tensor, &category, &like, &part))
        return NULL;
    if (like != Py_None && like != tensor) {
        uint32_t other = memory_storage_of(m, like, &access);
        part = other == MEMORY_NONE ? 0 : m->storages.all[other].part;
    }
    uint32_t index = memory_storage_of(m, tensor, &access);
    if (index != MEMORY_NONE) {
        const struct memory_storage *s = &m->storages.all[index];
        /* The caller repeats this at each step: record only changes. */
        if (s->category != category || (part && s->part != part))
            memory_say(m, index, memory_shape(m, tensor), (uint32_t)category, part);
    }
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *memory_part_of(PyObject *object, PyObject *tensor)
{
    struct memory *m = self_of(object);
    const struct memory_access access = {.kind = 0};
    uint32_t index = m->recorder ? memory_storage_of(m, tensor, &access) : MEMORY_NONE;
    if (PyErr_Occurred())
        return NULL;
    return PyLong_FromUnsignedLong(index == MEMORY_NONE ? 0 : m->storages.all[index].part);
}

/* Method: reports a tensor that existed before the recording. */
static PyObject *memory_present(PyObject *object, PyObject *tensor)
{
    struct memory *m = self_of(object);
    const struct memory_access access = {.kind = 0};
    if (!open_of(object))
        return NULL;
    m->is_surveying = 1;
    memory_storage_of(m, tensor, &access);
    m->is_surveying = 0;
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* Method: reports that something other than an operator replaced a storage's memory. */
static PyObject *memory_moved_storage(PyObject *object, PyObject *storage)
{
    struct memory *m = self_of(object);
    PyObject *address = m->recorder ? PyObject_GetAttrString(storage, "_cdata") : NULL;
    uint64_t impl = address ? PyLong_AsUnsignedLongLong(address) : 0;
    Py_XDECREF(address);
    memory_forget();
    uint32_t index = impl ? memory_map_get(&m->storages.by_impl, impl) : MEMORY_NONE;
    if (index != MEMORY_NONE)
        memory_moved(m, index, storage, 0);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *memory_phase_changes(PyObject *object, PyObject *none)
{
    struct memory *m = self_of(object);
    PyObject *changes = m->changes, *empty = PyList_New(0);
    if (!empty)
        return NULL;
    m->changes = empty;
    return changes;
}

static PyObject *memory_now(PyObject *object, PyObject *none)
{
    struct hr_memory_recorder *recorder = open_of(object);
    return recorder ? PyLong_FromUnsignedLongLong(hr_memory_now_ns(recorder)) : NULL;
}

/* Method: records events from another source unchanged. */
static PyObject *memory_events(PyObject *object, PyObject *buffer)
{
    struct hr_memory_recorder *recorder = open_of(object);
    Py_buffer view;
    if (!recorder || PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    struct hr_memory_event event;
    int is_whole = view.len % (Py_ssize_t)sizeof event == 0;
    for (Py_ssize_t at = 0; is_whole && at < view.len; at += (Py_ssize_t)sizeof event) {
        memcpy(&event, (const char *)view.buf + at, sizeof event);
        hr_memory_record(recorder, &event);
    }
    PyBuffer_Release(&view);
    if (!is_whole) {
        PyErr_SetString(PyExc_ValueError, "events are of 32 bytes each");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Method: returns the id of a stack given as (file, function, line) per frame, innermost first. */
static PyObject *memory_stack(PyObject *object, PyObject *lines)
{
    struct hr_memory_recorder *recorder = open_of(object);
    struct hr_memory_frame frames[64];
    PyObject *list = recorder ? PySequence_List(lines) : NULL;
    if (!list)
        return NULL;
    Py_ssize_t count = PyList_Size(list) < 64 ? PyList_Size(list) : 64;
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *file, *function;
        unsigned int line;
        PyObject *item = PyList_GetItem(list, i);
        if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "ssI", &file, &function, &line)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "a frame is a tuple (file, function, line)");
            Py_DECREF(list);
            return NULL;
        }
        frames[i] = (struct hr_memory_frame){.file = hr_memory_name(recorder, file),
                                             .function = hr_memory_name(recorder, function),
                                             .line = line};
    }
    Py_DECREF(list);
    return PyLong_FromUnsignedLong(hr_memory_stack(recorder, frames, (size_t)count));
}

static PyObject *memory_counts(PyObject *object, PyObject *none)
{
    struct hr_memory_recorder *recorder = open_of(object);
    uint64_t recorded, lost;
    if (!recorder)
        return NULL;
    hr_memory_counts(recorder, &recorded, &lost);
    return Py_BuildValue("KK", (unsigned long long)recorded, (unsigned long long)lost);
}

static PyObject *get_phase(PyObject *object, void *closure)
{
    return PyLong_FromLong(atomic_load(&self_of(object)->phase));
}

static int change_phase(struct memory *m, uint8_t phase)
{
    int r = 0;
    if (m->history_reports && m->recorder && phase != atomic_load(&m->phase)) {
        PyObject *change =
            Py_BuildValue("Ki", (unsigned long long)hr_memory_now_ns(m->recorder), (int)phase);
        r = change ? PyList_Append(m->changes, change) : -1;
        Py_XDECREF(change);
    }
    atomic_store(&m->phase, phase);
    return r;
}

static int set_phase(PyObject *object, PyObject *value, void *closure)
{
    long phase = value ? PyLong_AsLong(value) : -1;
    if (phase < HR_MEMORY_OUTSIDE || phase > HR_MEMORY_OPTIMIZER) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a phase is 0 to 3");
        return -1;
    }
    return change_phase(self_of(object), (uint8_t)phase);
}

static PyObject *get_awaits_update(PyObject *object, void *closure)
{
    return PyBool_FromLong(self_of(object)->awaits_update);
}

static int set_awaits_update(PyObject *object, PyObject *value, void *closure)
{
    int is = value ? PyObject_IsTrue(value) : 0;
    if (is < 0)
        return -1;
    self_of(object)->awaits_update = (uint8_t)is;
    self_of(object)->was_updated = 0;
    return 0;
}

static PyObject *get_is_open(PyObject *object, void *closure)
{
    return PyBool_FromLong(self_of(object)->recorder != NULL);
}

CORE_KEYWORDS(memory_prepare);
CORE_METHOD(memory_dispatch);
CORE_METHOD(memory_freed);
CORE_METHOD(memory_with_stacks);
CORE_METHOD(memory_observe);
CORE_METHOD(memory_tap);
CORE_METHOD(memory_follow_kernels);
CORE_METHOD(memory_close);
CORE_METHOD(memory_abandon);
CORE_METHOD(memory_name);
CORE_METHOD(memory_stack);
CORE_METHOD(memory_fact);
CORE_METHOD(memory_mark);
CORE_METHOD(memory_events);
CORE_METHOD(memory_refused);
CORE_METHOD(memory_describe);
CORE_METHOD(memory_part_of);
CORE_METHOD(memory_present);
CORE_METHOD(memory_moved_storage);
CORE_METHOD(memory_now);
CORE_METHOD(memory_phase_changes);
CORE_METHOD(memory_counts);

static PyMethodDef memory_methods[] = {
    {"__torch_dispatch__", CORE_LOCKED(memory_dispatch), METH_VARARGS, NULL},
    {"_freed", CORE_LOCKED(memory_freed), METH_O, NULL},
    {"prepare", (PyCFunction)(void (*)(void))CORE_LOCKED(memory_prepare),
     METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("prepare(describe, failed, address_of, tensor_type)\n--\n\n"
               "What __torch_dispatch__ calls.")},
    {"with_stacks", CORE_LOCKED(memory_with_stacks), METH_VARARGS,
     PyDoc_STR("with_stacks(classify, sequence_of, current_node)\n--\n\n"
               "Records the lines that call operators.")},
    {"observe", CORE_LOCKED(memory_observe), METH_O,
     PyDoc_STR("observe(path)\n--\n\n"
               "Operators of this thread come from an observer below Python (observer.cpp): why "
               "that is not possible, or None.")},
    {"tap", CORE_LOCKED(memory_tap), METH_NOARGS,
     PyDoc_STR(
         "tap()\n--\n\nThe tap reports allocations from now on; whether it sees the host's.")},
    {"follow_kernels", CORE_LOCKED(memory_follow_kernels), METH_NOARGS,
     PyDoc_STR(
         "follow_kernels()\n--\n\n"
         "Joins what CUDA devices run to operators' calls; why that is not possible, or None.")},
    {"close", CORE_LOCKED(memory_close), METH_NOARGS,
     PyDoc_STR("close()\n--\n\nEnds the recording.")},
    {"abandon", CORE_LOCKED(memory_abandon), METH_NOARGS,
     PyDoc_STR("abandon()\n--\n\nIn a forked child: it is the parent's.")},
    {"name", CORE_LOCKED(memory_name), METH_O,
     PyDoc_STR("name(text)\n--\n\nIts id; 0: there is no room.")},
    {"stack", CORE_LOCKED(memory_stack), METH_O,
     PyDoc_STR("stack(frames)\n--\n\nThe id of (file, function, line), the innermost first.")},
    {"fact", CORE_LOCKED(memory_fact), METH_VARARGS,
     PyDoc_STR("fact(name, value)\n--\n\nOf the run.")},
    {"mark", CORE_LOCKED(memory_mark), METH_VARARGS,
     PyDoc_STR("mark(name_id, number)\n--\n\nA moment.")},
    {"events", CORE_LOCKED(memory_events), METH_O,
     PyDoc_STR("events(buffer)\n--\n\nRecords events of 32 bytes each, as they are.")},
    {"refused", CORE_LOCKED(memory_refused), METH_O,
     PyDoc_STR("refused(bytes)\n--\n\nAn allocation that failed.")},
    {"describe", CORE_LOCKED(memory_describe), METH_VARARGS,
     PyDoc_STR("describe(tensor, category, like=None, part=0)\n--\n\n"
               "What its storage is; of the part of the model that `like` is of.")},
    {"part_of", CORE_LOCKED(memory_part_of), METH_O,
     PyDoc_STR("part_of(tensor)\n--\n\nThe id of the part of the model; 0: not known.")},
    {"present", CORE_LOCKED(memory_present), METH_O,
     PyDoc_STR("present(tensor)\n--\n\nIts storage was there before recording began.")},
    {"moved", CORE_LOCKED(memory_moved_storage), METH_O,
     PyDoc_STR("moved(storage)\n--\n\nIts memory may be another now.")},
    {"now_ns", CORE_LOCKED(memory_now), METH_NOARGS,
     PyDoc_STR("now_ns()\n--\n\nThe clock of events.")},
    {"phase_changes", CORE_LOCKED(memory_phase_changes), METH_NOARGS,
     PyDoc_STR("phase_changes()\n--\n\n"
               "(ns, phase) since it was asked last, while a history reports.")},
    {"counts", CORE_LOCKED(memory_counts), METH_NOARGS,
     PyDoc_STR("counts()\n--\n\nEvents recorded, and lost.")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef memory_members[] = {
    {"part", T_UINT, offsetof(struct memory, part), 0,
     PyDoc_STR("Name of the part of the model that runs.")},
    {"history_reports", T_BOOL, offsetof(struct memory, history_reports), 0,
     PyDoc_STR("Whether PyTorch's memory history reports accelerators' allocations.")},
    {"was_updated", T_BOOL, offsetof(struct memory, was_updated), READONLY,
     PyDoc_STR("Such a step was seen since awaits_update was set.")},
    {"calls", T_UINT, offsetof(struct memory, call), READONLY, PyDoc_STR("Operator calls so far.")},
    {"without_storage", T_ULONGLONG, offsetof(struct memory, without_storage), READONLY,
     PyDoc_STR("Tensors met so far that have no storage.")},
    {NULL, 0, 0, 0, NULL},
};

CORE_GETTER(get_phase);
CORE_SETTER(set_phase);
CORE_GETTER(get_awaits_update);
CORE_SETTER(set_awaits_update);
CORE_GETTER(get_is_open);

static PyGetSetDef memory_getset[] = {
    {"phase", CORE_LOCKED(get_phase), CORE_LOCKED(set_phase),
     PyDoc_STR("0 outside, 1 forward, 2 backward, 3 optimizer."), NULL},
    {"awaits_update", CORE_LOCKED(get_awaits_update), CORE_LOCKED(set_awaits_update),
     PyDoc_STR("Whether what writes a parameter outside passes is an optimizer's step."), NULL},
    {"is_open", CORE_LOCKED(get_is_open), NULL, PyDoc_STR("Whether it is recorded still."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("MemoryRecorder(path, limit_bytes=0)\n--\n\n"
                                  "A recording of what blocks of memory do.")},
    {Py_tp_new, memory_new},
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_traverse, memory_traverse},
    {Py_tp_clear, memory_clear},
    {Py_tp_methods, memory_methods},
    {Py_tp_members, memory_members},
    {Py_tp_getset, memory_getset},
    {0, NULL},
};

PyObject *core_memory_analyse(PyObject *module, PyObject *args)
{
    PyObject *path, *text = NULL;
    struct hr_memory *memory;
    struct hr_memory_options options;
    struct hr_error error = {0};
    int r;
    hr_memory_options_default(&options);
    if (!PyArg_ParseTuple(args, "O&dd", PyUnicode_FSConverter, &path, &options.h2d_bytes_per_s,
                          &options.d2h_bytes_per_s))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
        r = hr_memory_open(&memory, PyBytes_AsString(path), &options, &error);
    Py_END_ALLOW_THREADS
    if (r)
        core_raise(PyModule_GetState(module), r, &error, r == -ENODATA ? NULL : path);
    else
        text = PyUnicode_FromString(hr_memory_json(memory));
    if (!r)
        hr_memory_destroy(&memory);
    Py_DECREF(path);
    return text;
}

PyType_Spec core_memory_recorder_spec = {
    .name = "headrace._core.MemoryRecorder",
    .basicsize = sizeof(struct memory),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = memory_slots,
};
