/*
 * headrace._core.MemoryRecorder: a recording, and the hot half of the dispatch mode that
 * fills it (python/headrace/memory/).
 *
 * The mode's __torch_dispatch__ is here: for each operator it notes which storages are read
 * and written, by what the operator's schema said when it came first. Storages are known by
 * the address of their memory from first sight until a weak reference tells that they are
 * freed; PyTorch keeps a storage's Python object as long as the storage lives. torch is not
 * needed to build this: what of it is used are objects that the Python half hands over.
 *
 * Under the GIL throughout, but for the operator itself.
 */
#include "core.h"

#include <errno.h>
#include <string.h>

/* What an operator does, by its schema: the Python half packs it into bytes. */
struct op {
    uint32_t name;          /* id */
    uint32_t flags;         /* OP_ */
    uint64_t written_args;  /* bit i: the i-th argument is written, not read */
    char written_names[64]; /* keyword arguments that are: " out " or " values indices " */
};

enum {
    OP_IGNORED = 1,  /* only metadata: no access at all */
    OP_NO_WRITE = 2, /* outputs are not written (empty) */
    OP_ALIASES = 4,  /* outputs are arguments, or views of them */
    OP_NO_READ = 16, /* arguments are not read (empty_like) */
    OP_KWARGS = 8,   /* keyword arguments may be tensors */
    OP_MAYBE = 32,   /* the output may be a view, or new: then it is written */
};

struct memory {
    PyObject_HEAD struct hr_memory_recorder *recorder;
    PyObject *describe;     /* describe(func) -> bytes of a struct op */
    PyObject *failed;       /* failed(exception): an operator raised it */
    PyObject *address_of;   /* torch._C._storage_address */
    PyObject *tensor_type;  /* torch.Tensor */
    PyObject *reference;    /* a weakref.ref with an attribute `address` */
    PyObject *name_of;      /* name_of(shape, dtype) -> id */
    PyObject *device_of;    /* device_of(tensor) -> 0, or 1 + index of an accelerator */
    PyObject *ops;          /* by func */
    PyObject *names;        /* ids by (shape, dtype) */
    PyObject *live;         /* references by address */
    PyObject *present;      /* addresses of storages from before the recording; NULL: not known */
    PyObject *on_freed;     /* our own method */
    uint32_t call;          /* operator calls so far */
    uint8_t phase;          /* enum hr_memory_phase */
    uint8_t on_accelerator; /* tensors may lie there */
};

static struct memory *self_of(PyObject *object)
{
    return (struct memory *)object;
}

/* ---- blocks ---- */

static void record(struct memory *m, struct hr_memory_event event)
{
    /* Another thread may have ended the recording while Python code ran. */
    if (!m->recorder)
        return;
    event.phase = m->phase;
    if (event.device)
        event.flags |= HR_MEMORY_HOST_TIME;
    hr_memory_record(m->recorder, &event);
}

/* An attribute as a number; -1 with an exception. */
static long long call_number(PyObject *object, const char *method)
{
    PyObject *found = PyObject_CallMethod(object, method, NULL);
    long long value = found ? PyLong_AsLongLong(found) : -1;
    Py_XDECREF(found);
    return value;
}

/* The id of a tensor's shape and dtype; 0: none, without an exception. */
static uint32_t describe_tensor(struct memory *m, PyObject *tensor)
{
    PyObject *shape = PyObject_GetAttrString(tensor, "shape");
    PyObject *dtype = shape ? PyObject_GetAttrString(tensor, "dtype") : NULL;
    PyObject *key = dtype ? PyTuple_Pack(2, shape, dtype) : NULL;
    PyObject *id = key ? PyDict_GetItemWithError(m->names, key) : NULL;
    uint32_t value = 0;
    Py_XINCREF(id);
    if (key && !id && !PyErr_Occurred()) {
        id = PyObject_CallFunctionObjArgs(m->name_of, shape, dtype, NULL);
        if (id && PyDict_SetItem(m->names, key, id) < 0)
            Py_CLEAR(id);
    }
    if (id)
        value = (uint32_t)PyLong_AsUnsignedLong(id);
    Py_XDECREF(id);
    Py_XDECREF(key);
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    PyErr_Clear();
    return value;
}

/* A leaf that has gradients: a parameter. */
static int is_parameter(PyObject *tensor)
{
    int is = 1;
    static const char *const asked[] = {"requires_grad", "is_leaf"};
    for (int i = 0; i < 2 && is; i++) {
        PyObject *value = PyObject_GetAttrString(tensor, asked[i]);
        is = value == Py_True;
        Py_XDECREF(value);
    }
    PyErr_Clear();
    return is;
}

static uint8_t device_of(struct memory *m, PyObject *tensor)
{
    if (!m->on_accelerator)
        return 0;
    PyObject *device = PyObject_CallFunctionObjArgs(m->device_of, tensor, NULL);
    long value = device ? PyLong_AsLong(device) : 0;
    Py_XDECREF(device);
    PyErr_Clear();
    return value > 0 && value < 256 ? (uint8_t)value : 0;
}

/* What a tensor's storage is. */
static void describe_block(struct memory *m, PyObject *tensor, unsigned long long address,
                           enum hr_memory_category category)
{
    record(m, (struct hr_memory_event){
                  .address = address,
                  .bytes = category,
                  .what = describe_tensor(m, tensor),
                  .kind = HR_MEMORY_DESCRIBE,
                  .device = device_of(m, tensor),
              });
}

/* Follows a storage from now on; 0, or -1 with an exception. */
static int follow(struct memory *m, PyObject *tensor, PyObject *address, int is_new,
                  uint64_t time_ns)
{
    PyObject *storage = PyObject_CallMethod(tensor, "untyped_storage", NULL), *reference = NULL;
    long long bytes = storage ? call_number(storage, "nbytes") : -1;
    if (bytes >= 0)
        reference = PyObject_CallFunctionObjArgs(m->reference, storage, m->on_freed, NULL);
    Py_XDECREF(storage);
    uint8_t device = reference ? device_of(m, tensor) : 0;
    PyObject *index = reference ? PyLong_FromLong(device) : NULL;
    int r = index && PyObject_SetAttrString(reference, "address", address) >= 0 &&
                    PyObject_SetAttrString(reference, "device", index) >= 0 &&
                    PyDict_SetItem(m->live, address, reference) >= 0
                ? 0
                : -1;
    Py_XDECREF(index);
    Py_XDECREF(reference);
    if (r)
        return r;
    /* What was not there at the beginning came from outside: of a loader, another thread. */
    int was = m->present ? PySet_Discard(m->present, address) : 1;
    int came = !is_new && was == 0;
    record(m, (struct hr_memory_event){
                  .time_ns = time_ns,
                  .address = PyLong_AsUnsignedLongLong(address),
                  .bytes = (uint64_t)bytes,
                  .kind = is_new || came ? HR_MEMORY_ALLOC : HR_MEMORY_PRESENT,
                  .device = device,
              });
    enum hr_memory_category category = HR_MEMORY_UNKNOWN;
    if (came && m->phase <= HR_MEMORY_FORWARD)
        category = HR_MEMORY_INPUT;
    else if (!is_new && !came && is_parameter(tensor))
        category = HR_MEMORY_PARAMETER;
    describe_block(m, tensor, PyLong_AsUnsignedLongLong(address), category);
    return 0;
}

/* ---- accesses ---- */

/* One access of what an operator was given or gave. */
struct access {
    uint8_t kind; /* 0: none, but what is new is followed */
    int is_new;   /* what is not known yet was allocated by the operator */
    int only_new; /* what is known already was not accessed */
    uint64_t time_ns;
    uint32_t op;
};

static void touch_tensor(struct memory *m, PyObject *tensor, const struct access *access)
{
    PyObject *address = PyObject_CallFunctionObjArgs(m->address_of, tensor, NULL);
    unsigned long long value = address ? PyLong_AsUnsignedLongLong(address) : 0;
    int known = value ? PyDict_Contains(m->live, address) : 0;
    if (value && !known)
        known = !follow(m, tensor, address, access->is_new, access->time_ns);
    else if (access->only_new)
        known = 0;
    if (known > 0 && access->kind)
        record(m, (struct hr_memory_event){
                      .time_ns = access->time_ns,
                      .address = value,
                      .bytes = hr_memory_access(m->call, 0),
                      .what = access->op,
                      .kind = access->kind,
                      .device = device_of(m, tensor),
                  });
    Py_XDECREF(address);
    /* Of tensors without a storage (sparse ones, those of other systems). */
    PyErr_Clear();
}

static void touch(struct memory *m, PyObject *object, const struct access *access)
{
    if (PyObject_TypeCheck(object, (PyTypeObject *)m->tensor_type)) {
        touch_tensor(m, object, access);
    } else if (PyTuple_Check(object)) {
        for (Py_ssize_t i = 0, n = PyTuple_Size(object); i < n; i++)
            touch(m, PyTuple_GetItem(object, i), access);
    } else if (PyList_Check(object)) {
        for (Py_ssize_t i = 0; i < PyList_Size(object); i++) {
            PyObject *item = PyList_GetItem(object, i);
            Py_INCREF(item);
            touch(m, item, access);
            Py_DECREF(item);
        }
    }
}

/* The arguments that an operator reads (written: 0) or writes (1). */
static void touch_arguments(struct memory *m, const struct op *op, PyObject *args, PyObject *kwargs,
                            int written, const struct access *access)
{
    for (Py_ssize_t i = 0, n = PyTuple_Size(args); i < n; i++)
        if ((int)(i < 64 && op->written_args >> i & 1) == written)
            touch(m, PyTuple_GetItem(args, i), access);
    if (!(op->flags & OP_KWARGS) || !kwargs)
        return;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(kwargs, &at, &key, &value)) {
        PyObject *spaced = PyUnicode_FromFormat(" %U ", key);
        PyObject *text = spaced ? PyUnicode_AsUTF8String(spaced) : NULL;
        int is_out = text && strstr(op->written_names, PyBytes_AsString(text));
        Py_XDECREF(text);
        Py_XDECREF(spaced);
        if (is_out == written)
            touch(m, value, access);
    }
    PyErr_Clear();
}

/* ---- operators ---- */

/* What is known of an operator; NULL with an exception. */
static const struct op *op_of(struct memory *m, PyObject *func)
{
    PyObject *bytes = PyDict_GetItemWithError(m->ops, func);
    if (!bytes && !PyErr_Occurred()) {
        bytes = PyObject_CallFunctionObjArgs(m->describe, func, NULL);
        if (bytes && (!PyBytes_Check(bytes) || PyBytes_Size(bytes) != sizeof(struct op)))
            PyErr_SetString(PyExc_TypeError, "describe gives the bytes of an operator");
        if (bytes && !PyErr_Occurred())
            PyDict_SetItem(m->ops, func, bytes);
        Py_XDECREF(bytes); /* the dictionary has it */
        if (PyErr_Occurred())
            return NULL;
    }
    return bytes ? (const struct op *)(const void *)PyBytes_AsString(bytes) : NULL;
}

static PyObject *run(struct memory *m, const struct op *op, PyObject *func, PyObject *args,
                     PyObject *kwargs)
{
    struct access access = {.kind = HR_MEMORY_READ, .op = op->name};
    access.time_ns = hr_memory_now_ns(m->recorder);
    m->call++;
    if (!(op->flags & (OP_NO_READ | OP_MAYBE)))
        touch_arguments(m, op, args, kwargs, 0, &access);
    uint32_t call = m->call;
    PyObject *result = PyObject_Call(func, args, kwargs);
    if (!result) {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        /* Until 3.11 it may be the message alone. */
        PyErr_NormalizeException(&type, &value, &trace);
        Py_XDECREF(PyObject_CallFunctionObjArgs(m->failed, value ? value : Py_None, NULL));
        PyErr_Clear();
        PyErr_Restore(type, value, trace);
        return NULL;
    }
    if (!m->recorder)
        return result;
    access.time_ns = hr_memory_now_ns(m->recorder);
    access.kind = HR_MEMORY_WRITE;
    /* What the operator called in turn has numbers of its own: this is still the first's. */
    uint32_t latest = m->call;
    m->call = call;
    if (op->flags & OP_MAYBE)
        access.only_new = 1;
    else
        touch_arguments(m, op, args, kwargs, 1, &access);
    if (!(op->flags & OP_ALIASES) || op->flags & OP_MAYBE) {
        access.is_new = 1;
        if (op->flags & OP_NO_WRITE)
            access.kind = 0;
        touch(m, result, &access);
    }
    m->call = latest;
    return result;
}

/* Whether one of the types has a dispatch of its own: a tensor that is made of others. */
static int has_subclass(struct memory *m, PyObject *types)
{
    int has = 0;
    for (Py_ssize_t i = 0, n = PyTuple_Check(types) ? PyTuple_Size(types) : 0; i < n && !has; i++) {
        PyObject *type = PyTuple_GetItem(types, i);
        if (type == m->tensor_type)
            continue;
        PyObject *its = PyObject_GetAttrString(type, "__torch_dispatch__");
        PyObject *plain = PyObject_GetAttrString(m->tensor_type, "__torch_dispatch__");
        has = its && plain && its != plain;
        Py_XDECREF(its);
        Py_XDECREF(plain);
    }
    PyErr_Clear();
    return has;
}

static PyObject *memory_dispatch(PyObject *object, PyObject *arguments)
{
    struct memory *m = self_of(object);
    PyObject *func, *types, *args = NULL, *kwargs = NULL;
    if (!PyArg_UnpackTuple(arguments, "__torch_dispatch__", 2, 4, &func, &types, &args, &kwargs))
        return NULL;
    /* A subclass's own operator comes back here, of the tensors that it is made of. */
    if (m->tensor_type && has_subclass(m, types))
        return Py_NewRef(Py_NotImplemented);
    PyErr_Clear();
    PyObject *empty = NULL;
    if (!args && !(args = empty = PyTuple_New(0)))
        return NULL;
    if (kwargs == Py_None)
        kwargs = NULL;
    const struct op *op = m->recorder ? op_of(m, func) : NULL;
    struct op copy;
    PyObject *result = NULL;
    if (op && !(op->flags & OP_IGNORED)) {
        copy = *op; /* the dictionary may change meanwhile */
        result = run(m, &copy, func, args, kwargs);
    } else if (op || !PyErr_Occurred()) {
        result = PyObject_Call(func, args, kwargs);
    }
    Py_XDECREF(empty);
    return result;
}

/* A storage was freed: the callback of its reference. */
static PyObject *memory_freed(PyObject *object, PyObject *reference)
{
    struct memory *m = self_of(object);
    PyObject *address = PyObject_GetAttrString(reference, "address");
    if (!address)
        return NULL;
    PyObject *now = PyDict_GetItemWithError(m->live, address);
    if (now == reference) {
        PyObject *index = PyObject_GetAttrString(reference, "device");
        long device = index ? PyLong_AsLong(index) : 0;
        Py_XDECREF(index);
        PyErr_Clear();
        record(m, (struct hr_memory_event){.address = PyLong_AsUnsignedLongLong(address),
                                           .kind = HR_MEMORY_FREE,
                                           .device = (uint8_t)device});
        if (PyDict_DelItem(m->live, address) < 0)
            PyErr_Clear();
    }
    Py_DECREF(address);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* ---- the recording ---- */

/* The module's state: subclasses made in Python have none of their own. */
static struct core_state *state_of(PyTypeObject *type)
{
    struct core_state *state = NULL;
    while (type && !(state = PyType_GetModuleState(type))) {
        PyErr_Clear();
        type = (PyTypeObject *)PyType_GetSlot(type, Py_tp_base);
    }
    return state;
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
    m->ops = PyDict_New();
    m->names = PyDict_New();
    m->live = PyDict_New();
    if (!m->ops || !m->names || !m->live)
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
    Py_VISIT(m->reference);
    Py_VISIT(m->name_of);
    Py_VISIT(m->device_of);
    Py_VISIT(m->ops);
    Py_VISIT(m->names);
    Py_VISIT(m->live);
    Py_VISIT(m->present);
    Py_VISIT(m->on_freed);
    return 0;
}

static int memory_clear(PyObject *object)
{
    struct memory *m = self_of(object);
    Py_CLEAR(m->describe);
    Py_CLEAR(m->failed);
    Py_CLEAR(m->address_of);
    Py_CLEAR(m->tensor_type);
    Py_CLEAR(m->reference);
    Py_CLEAR(m->name_of);
    Py_CLEAR(m->device_of);
    Py_CLEAR(m->ops);
    Py_CLEAR(m->names);
    Py_CLEAR(m->live);
    Py_CLEAR(m->present);
    Py_CLEAR(m->on_freed);
    return 0;
}

static void memory_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    hr_memory_recorder_destroy(&self_of(object)->recorder);
    memory_clear(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* The Python half hands over what it is made of. */
static PyObject *memory_prepare(PyObject *object, PyObject *args, PyObject *kwargs)
{
    struct memory *m = self_of(object);
    static char *names[] = {"describe", "failed",    "address_of",     "tensor_type", "reference",
                            "name_of",  "device_of", "on_accelerator", NULL};
    PyObject *given[7];
    int on_accelerator;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOOOp", names, &given[0], &given[1],
                                     &given[2], &given[3], &given[4], &given[5], &given[6],
                                     &on_accelerator))
        return NULL;
    if (!PyType_Check(given[3])) {
        PyErr_SetString(PyExc_TypeError, "tensor_type is a type");
        return NULL;
    }
    PyObject *freed = PyObject_GetAttrString(object, "_freed");
    if (!freed)
        return NULL;
    PyObject **places[7] = {&m->describe,  &m->failed,  &m->address_of, &m->tensor_type,
                            &m->reference, &m->name_of, &m->device_of};
    for (int i = 0; i < 7; i++) {
        PyObject *before = *places[i];
        *places[i] = Py_NewRef(given[i]);
        Py_XDECREF(before);
    }
    Py_XDECREF(m->on_freed);
    m->on_freed = freed;
    m->on_accelerator = on_accelerator != 0;
    Py_RETURN_NONE;
}

static PyObject *memory_close(PyObject *object, PyObject *none)
{
    hr_memory_recorder_destroy(&self_of(object)->recorder);
    PyDict_Clear(self_of(object)->live);
    Py_RETURN_NONE;
}

static struct hr_memory_recorder *open_of(PyObject *object)
{
    struct hr_memory_recorder *recorder = self_of(object)->recorder;
    if (!recorder)
        PyErr_SetString(PyExc_ValueError, "the recording has ended");
    return recorder;
}

static PyObject *memory_name(PyObject *object, PyObject *arg)
{
    struct hr_memory_recorder *recorder = open_of(object);
    PyObject *text = recorder ? PyUnicode_AsEncodedString(arg, "utf-8", "backslashreplace") : NULL;
    if (!text)
        return NULL;
    uint32_t id = hr_memory_name(recorder, PyBytes_AsString(text));
    Py_DECREF(text);
    return PyLong_FromUnsignedLong(id);
}

static PyObject *memory_fact(PyObject *object, PyObject *args)
{
    struct hr_memory_recorder *recorder = open_of(object);
    const char *name, *value;
    if (!recorder || !PyArg_ParseTuple(args, "ss", &name, &value))
        return NULL;
    hr_memory_fact(recorder, name, value);
    Py_RETURN_NONE;
}

static PyObject *memory_mark(PyObject *object, PyObject *args)
{
    struct hr_memory_recorder *recorder = open_of(object);
    unsigned int name;
    unsigned long long number;
    if (!recorder || !PyArg_ParseTuple(args, "IK", &name, &number))
        return NULL;
    record(self_of(object),
           (struct hr_memory_event){.bytes = number, .what = name, .kind = HR_MEMORY_MARK});
    Py_RETURN_NONE;
}

static PyObject *memory_refused(PyObject *object, PyObject *arg)
{
    struct hr_memory_recorder *recorder = open_of(object);
    unsigned long long bytes = recorder ? PyLong_AsUnsignedLongLong(arg) : 0;
    if (!recorder || PyErr_Occurred())
        return NULL;
    record(self_of(object), (struct hr_memory_event){.bytes = bytes, .kind = HR_MEMORY_FAILED});
    Py_RETURN_NONE;
}

static PyObject *memory_describe(PyObject *object, PyObject *args)
{
    struct memory *m = self_of(object);
    PyObject *tensor;
    int category;
    if (!open_of(object) || !PyArg_ParseTuple(args, "Oi", &tensor, &category))
        return NULL;
    PyObject *address = PyObject_CallFunctionObjArgs(m->address_of, tensor, NULL);
    unsigned long long value = address ? PyLong_AsUnsignedLongLong(address) : 0;
    int known = value ? PyDict_Contains(m->live, address) : 0;
    if (value && !known)
        known = !follow(m, tensor, address, 0, 0);
    if (known > 0)
        describe_block(m, tensor, value, (enum hr_memory_category)category);
    Py_XDECREF(address);
    PyErr_Clear();
    Py_RETURN_NONE;
}

static PyObject *memory_surveyed(PyObject *object, PyObject *addresses)
{
    PyObject *before = self_of(object)->present, *present = PySet_New(addresses);
    if (!present)
        return NULL;
    self_of(object)->present = present;
    Py_XDECREF(before);
    Py_RETURN_NONE;
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
    return PyLong_FromLong(self_of(object)->phase);
}

static int set_phase(PyObject *object, PyObject *value, void *closure)
{
    long phase = value ? PyLong_AsLong(value) : -1;
    if (phase < HR_MEMORY_OUTSIDE || phase > HR_MEMORY_OPTIMIZER) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a phase is 0 to 3");
        return -1;
    }
    self_of(object)->phase = (uint8_t)phase;
    return 0;
}

static PyObject *get_calls(PyObject *object, void *closure)
{
    return PyLong_FromUnsignedLong(self_of(object)->call);
}

static PyMethodDef memory_methods[] = {
    {"__torch_dispatch__", memory_dispatch, METH_VARARGS, NULL},
    {"_freed", memory_freed, METH_O, NULL},
    {"prepare", (PyCFunction)(void (*)(void))memory_prepare, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("prepare(describe, failed, address_of, tensor_type, reference, name_of, device_of, "
               "on_accelerator)\n--\n\nWhat __torch_dispatch__ calls.")},
    {"close", memory_close, METH_NOARGS, PyDoc_STR("close()\n--\n\nEnds the recording.")},
    {"name", memory_name, METH_O, PyDoc_STR("name(text)\n--\n\nIts id; 0: there is no room.")},
    {"fact", memory_fact, METH_VARARGS, PyDoc_STR("fact(name, value)\n--\n\nOf the run.")},
    {"mark", memory_mark, METH_VARARGS, PyDoc_STR("mark(name_id, number)\n--\n\nA moment.")},
    {"refused", memory_refused, METH_O,
     PyDoc_STR("refused(bytes)\n--\n\nAn allocation that failed.")},
    {"describe", memory_describe, METH_VARARGS,
     PyDoc_STR("describe(tensor, category)\n--\n\nWhat its storage is.")},
    {"surveyed", memory_surveyed, METH_O,
     PyDoc_STR("surveyed(addresses)\n--\n\nOf all storages that there are by now.")},
    {"counts", memory_counts, METH_NOARGS, PyDoc_STR("counts()\n--\n\nEvents recorded, and lost.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef memory_getset[] = {
    {"phase", get_phase, set_phase, PyDoc_STR("0 outside, 1 forward, 2 backward, 3 optimizer."),
     NULL},
    {"calls", get_calls, NULL, PyDoc_STR("Operator calls so far."), NULL},
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
        core_raise(PyModule_GetState(module), r, &error, path);
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
