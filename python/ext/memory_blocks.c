/*
 * Tracks tensor storages and their memory for headrace._core.MemoryRecorder.
 *
 * A storage is identified by the address of its StorageImpl, which is cheap to get, and tracked
 * until a weak reference reports that it was freed (PyTorch keeps a storage's Python object
 * alive as long as the storage). A block is identified by the address of its memory. A storage
 * may change its block (resize_, out=), and several storages may share one (from_numpy,
 * from_blob); the block is freed with the last of them.
 *
 * Allocations and frees that the tap or PyTorch's memory history reports are not recorded here.
 */
#include "memory_inside.h"

/* Calls a method that returns an int; -1 with an exception. */
static long long call_number(PyObject *object, PyObject *method)
{
    PyObject *found = PyObject_CallMethodObjArgs(object, method, NULL);
    long long value = found ? (long long)PyLong_AsUnsignedLongLong(found) : -1;
    Py_XDECREF(found);
    return value;
}

/* ---- types and descriptions of tensors ---- */

/* Returns the kind of a tensor type that is not in m->types yet. */
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

/* Returns text as "[64, 10] float32", or NULL with an exception. */
static PyObject *describe_text(PyObject *shape, PyObject *dtype)
{
    PyObject *list = PySequence_List(shape), *type = list ? PyObject_Str(dtype) : NULL;
    PyObject *prefix = type ? PyUnicode_FromString("torch.") : NULL;
    PyObject *nothing = prefix ? PyUnicode_FromString("") : NULL;
    PyObject *bare = nothing ? PyUnicode_Replace(type, prefix, nothing, 1) : NULL;
    PyObject *text = bare ? PyUnicode_FromFormat("%R %U", list, bare) : NULL;
    Py_XDECREF(bare);
    Py_XDECREF(nothing);
    Py_XDECREF(prefix);
    Py_XDECREF(type);
    Py_XDECREF(list);
    return text;
}

/* Returns the name id of a text; 0 on failure, with or without an exception. */
static uint32_t name_id(struct memory *m, PyObject *text)
{
    PyObject *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
    uint32_t id = bytes && m->recorder ? hr_memory_name(m->recorder, PyBytes_AsString(bytes)) : 0;
    Py_XDECREF(bytes);
    return id;
}

uint32_t memory_shape(struct memory *m, PyObject *tensor)
{
    PyObject *shape = PyObject_GetAttr(tensor, m->shape);
    PyObject *dtype = shape ? PyObject_GetAttr(tensor, m->dtype) : NULL;
    PyObject *key = dtype ? PyTuple_Pack(2, shape, dtype) : NULL;
    PyObject *id = key ? PyDict_GetItemWithError(m->names, key) : NULL;
    uint32_t value = 0;
    if (id) {
        value = (uint32_t)PyLong_AsUnsignedLong(id);
    } else if (key && !PyErr_Occurred()) {
        PyObject *text = describe_text(shape, dtype);
        value = name_id(m, text);
        PyObject *number = text ? PyLong_FromUnsignedLong(value) : NULL;
        if (number)
            PyDict_SetItem(m->names, key, number);
        Py_XDECREF(number);
        Py_XDECREF(text);
    }
    Py_XDECREF(key);
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    memory_forget();
    return value;
}

static int is_true(PyObject *object, const char *attribute)
{
    PyObject *value = PyObject_GetAttrString(object, attribute);
    int is = value == Py_True;
    Py_XDECREF(value);
    memory_forget();
    return is;
}

/* Returns a tensor's device as in struct hr_memory_event; -1 if its memory is not recorded. */
static int device_of(struct memory *m, PyObject *tensor)
{
    PyObject *on_cpu = PyObject_GetAttr(tensor, m->is_cpu);
    int is_cpu = on_cpu == Py_True;
    Py_XDECREF(on_cpu);
    if (is_cpu)
        return 0;
    PyObject *device = PyObject_GetAttrString(tensor, "device");
    PyObject *type = device ? PyObject_GetAttrString(device, "type") : NULL;
    PyObject *index = type ? PyObject_GetAttrString(device, "index") : NULL;
    long number = index && index != Py_None ? PyLong_AsLong(index) : 0;
    if (!type || PyUnicode_CompareWithASCIIString(type, "meta") == 0 || number < 0 || number > 15)
        number = -2;
    Py_XDECREF(index);
    Py_XDECREF(type);
    Py_XDECREF(device);
    memory_forget();
    return (int)number + 1;
}

void memory_say(struct memory *m, uint32_t storage, uint32_t shape, uint32_t category,
                uint32_t part)
{
    struct memory_storage *s = &m->storages.all[storage];
    if (!s->data)
        return;
    part = part ? part : s->part;
    s->category = (uint8_t)category;
    s->part = part;
    struct hr_memory_event event = {
        .address = s->data,
        .bytes = hr_memory_about((enum hr_memory_category)category, part),
        .kind = HR_MEMORY_DESCRIBE,
        .what = shape,
        .device = s->device,
    };
    memory_record(m, event);
}

/* ---- blocks ---- */

/* Removes a storage from the chain of its block, and records the free if it was the last. */
static void leave_block(struct memory *m, uint32_t index, uint64_t time_ns)
{
    struct memory_storages *all = &m->storages;
    struct memory_storage *s = &all->all[index];
    if (!s->data)
        return;
    uint32_t first = memory_map_get(&all->by_data, s->data);
    if (first == index && s->next == MEMORY_NONE) {
        memory_map_remove(&all->by_data, s->data);
        if (s->is_recorded)
            memory_record(m, (struct hr_memory_event){.time_ns = time_ns,
                                                      .address = s->data,
                                                      .bytes = s->bytes,
                                                      .kind = HR_MEMORY_FREE,
                                                      .device = s->device});
    } else if (first == index) {
        /* Cannot fail: replaces an existing entry. */
        memory_map_put(&all->by_data, s->data, s->next);
    } else {
        while (first != MEMORY_NONE && all->all[first].next != index)
            first = all->all[first].next;
        if (first != MEMORY_NONE)
            all->all[first].next = s->next;
    }
    s->data = 0;
    s->next = MEMORY_NONE;
}

/* Returns nonzero if a storage is alive and still has the memory address in s->data. */
static int is_there(struct memory *m, const struct memory_storage *s)
{
    uint64_t data = s->data;
    PyObject *object = PyObject_CallNoArgs(s->reference);
    int is = object && object != Py_None && (uint64_t)call_number(object, m->data_ptr) == data;
    Py_XDECREF(object);
    memory_forget();
    return is;
}

/* Removes storages from a block that were freed or got other memory unnoticed. Returns the first
 * storage left, or MEMORY_NONE. */
static uint32_t leave_stale(struct memory *m, uint64_t data, uint64_t time_ns)
{
    struct memory_storages *all = &m->storages;
    uint32_t at = memory_map_get(&all->by_data, data);
    while (at != MEMORY_NONE) {
        uint32_t next = all->all[at].next;
        if (!is_there(m, &all->all[at]) && all->all[at].data == data)
            leave_block(m, at, time_ns);
        at = next;
    }
    return memory_map_get(&all->by_data, data);
}

/* Adds a storage to the block at its `data`, and records the allocation if the block is new (or
 * its presence, if it was_there before the recording) and nothing else reports it. */
static void join_block(struct memory *m, uint32_t index, int was_there, uint64_t time_ns)
{
    struct memory_storages *all = &m->storages;
    uint64_t data = all->all[index].data;
    uint32_t first = memory_map_get(&all->by_data, data);
    if (first != MEMORY_NONE)
        first = leave_stale(m, data, time_ns);
    struct memory_storage *s = &all->all[index];
    s->next = first;
    if (first != MEMORY_NONE) {
        s->device = all->all[first].device;
        s->is_recorded = all->all[first].is_recorded;
        s->part = s->part ? s->part : all->all[first].part;
    }
    if (memory_map_put(&all->by_data, data, index) < 0) {
        PyErr_Clear();
        s->data = 0;
        return;
    }
    if (first != MEMORY_NONE)
        return;
    uint8_t device = s->device;
    uint64_t bytes = memory_tap_bytes(m, data, &device);
    s->device = device;
    s->is_recorded = !bytes && !(s->device && m->history_reports);
    if (s->is_recorded)
        memory_record(m, (struct hr_memory_event){
                             .time_ns = time_ns,
                             .address = data,
                             .bytes = s->bytes,
                             .what = was_there ? 0 : atomic_load(&m->alloc_stack),
                             .kind = was_there ? HR_MEMORY_PRESENT : HR_MEMORY_ALLOC,
                             .device = s->device,
                         });
}

/* ---- storages ---- */

/* Returns a free entry; MEMORY_NONE if out of memory. */
static uint32_t make_place(struct memory_storages *all)
{
    uint32_t index = all->free;
    if (index != MEMORY_NONE) {
        all->free = all->all[index].next;
        return index;
    }
    if (all->count == all->room) {
        uint32_t room = all->room ? 2 * all->room : 256;
        struct memory_storage *grown = PyMem_Realloc(all->all, room * sizeof *grown);
        if (!grown)
            return MEMORY_NONE;
        all->all = grown;
        all->room = room;
    }
    return all->count++;
}

static void give_place(struct memory_storages *all, uint32_t index)
{
    all->all[index] = (struct memory_storage){.next = all->free};
    all->free = index;
}

/* Starts tracking a storage and takes over its weak reference. Returns its index; MEMORY_NONE if
 * out of memory, and then the reference stays the caller's. */
static uint32_t follow(struct memory *m, const struct memory_storage *storage)
{
    struct memory_storages *all = &m->storages;
    uint64_t reference = (uint64_t)(uintptr_t)storage->reference;
    uint32_t index = make_place(all);
    if (index == MEMORY_NONE)
        return index;
    if (memory_map_put(&all->by_impl, storage->impl, index) < 0 ||
        memory_map_put(&all->by_reference, reference, index) < 0) {
        memory_map_remove(&all->by_impl, storage->impl);
        give_place(all, index);
        return MEMORY_NONE;
    }
    all->all[index] = *storage;
    return index;
}

/* A tensor: a Python object or the observer's; the other is NULL. */
struct source {
    PyObject *object;
    const struct observed_tensor *observed;
};

/* Returns the address of a tensor's StorageImpl; 0 if it has none. */
static uint64_t impl_of(struct memory *m, const struct source *tensor)
{
    if (tensor->observed)
        return tensor->observed->impl;
    PyObject *address = PyObject_CallFunctionObjArgs(m->address_of, tensor->object, NULL);
    uint64_t impl = address ? PyLong_AsUnsignedLongLong(address) : 0;
    Py_XDECREF(address);
    return impl;
}

/* Returns a new reference to a tensor's Python storage; NULL with an exception. */
static PyObject *storage_object(struct memory *m, const struct source *tensor)
{
    return tensor->observed ? m->torch->storage(tensor->observed->tensor)
                            : PyObject_CallMethodObjArgs(tensor->object, m->untyped_storage, NULL);
}

static uint32_t shape_of(struct memory *m, const struct source *tensor)
{
    char text[512];
    if (!tensor->observed)
        return memory_shape(m, tensor->object);
    m->torch->text(tensor->observed->tensor, text, sizeof text);
    return text[0] && m->recorder ? hr_memory_name(m->recorder, text) : 0;
}

/* Fills in address, size and device of a storage. Returns 0; -1 with or without an exception. */
static int look(struct memory *m, const struct source *tensor, PyObject *storage,
                struct observed_storage *out)
{
    if (tensor->observed) {
        m->torch->look(tensor->observed->tensor, out);
        return 0;
    }
    long long bytes = call_number(storage, m->nbytes);
    long long data = bytes >= 0 ? call_number(storage, m->data_ptr) : -1;
    *out = (struct observed_storage){.bytes = (uint64_t)bytes, .data = (uint64_t)data};
    out->device = data >= 0 || !PyErr_Occurred() ? device_of(m, tensor->object) : -1;
    return data != -1 && bytes >= 0 ? 0 : -1;
}

/* Starts tracking a tensor's storage. Returns its index; MEMORY_NONE on failure. */
static uint32_t meet(struct memory *m, const struct source *tensor, uint64_t impl,
                     const struct memory_access *access)
{
    struct memory_storage new = {.impl = impl, .next = MEMORY_NONE};
    struct observed_storage found;
    PyObject *storage = storage_object(m, tensor);
    if (storage && !look(m, tensor, storage, &found))
        new.reference = PyWeakref_NewRef(storage, m->on_freed);
    Py_XDECREF(storage);
    if (!new.reference)
        return MEMORY_NONE;
    new.bytes = found.bytes;
    new.data = found.device < 0 || !found.bytes ? 0 : found.data;
    new.device = found.device < 0 ? 0 : (uint8_t)found.device;
    uint32_t index = follow(m, &new);
    if (index == MEMORY_NONE) {
        Py_DECREF(new.reference);
        return index;
    }
    if (!new.data)
        return index;
    /* Neither new nor from before the recording: a loader or another thread made it. */
    int came = !access->is_new && !m->is_surveying;
    uint8_t phase = atomic_load(&m->phase);
    join_block(m, index, m->is_surveying, access->time_ns);
    uint32_t category = HR_MEMORY_UNKNOWN, part = 0;
    if (came && phase <= HR_MEMORY_FORWARD)
        category = HR_MEMORY_INPUT;
    else if (m->is_surveying && is_true(tensor->object, "requires_grad") &&
             is_true(tensor->object, "is_leaf"))
        category = HR_MEMORY_PARAMETER;
    else if (access->is_new)
        part = m->part;
    memory_say(m, index, shape_of(m, tensor), category, part);
    return index;
}

void memory_moved(struct memory *m, uint32_t index, PyObject *object, uint64_t time_ns)
{
    long long bytes = call_number(object, m->nbytes);
    long long data = bytes >= 0 ? call_number(object, m->data_ptr) : -1;
    struct memory_storage *s = &m->storages.all[index];
    if (data != -1 && bytes >= 0 && ((uint64_t)data != s->data || (uint64_t)bytes != s->bytes) &&
        (s->data || data)) {
        leave_block(m, index, time_ns);
        s = &m->storages.all[index];
        s->bytes = (uint64_t)bytes;
        s->data = bytes ? (uint64_t)data : 0;
        if (s->data)
            join_block(m, index, 0, time_ns);
    }
    memory_forget();
}

/* As memory_storage_of, for a tensor that is not of a subclass. */
static uint32_t place_of(struct memory *m, const struct source *tensor,
                         const struct memory_access *access)
{
    uint64_t impl = impl_of(m, tensor);
    /* Sparse tensors and those of other backends have no storage. */
    if (!impl) {
        m->without_storage++;
        memory_forget();
        return MEMORY_NONE;
    }
    uint32_t index = memory_map_get(&m->storages.by_impl, impl);
    if (index == MEMORY_NONE) {
        index = meet(m, tensor, impl, access);
    } else if (access->moves) {
        PyObject *storage = storage_object(m, tensor);
        if (storage)
            memory_moved(m, index, storage, access->time_ns);
        Py_XDECREF(storage);
    } else if (access->only_new) {
        index = MEMORY_NONE;
    }
    memory_forget();
    return index;
}

uint32_t memory_storage_of(struct memory *m, PyObject *tensor, const struct memory_access *access)
{
    if (PyErr_Occurred()) /* raised by a signal handler: skip the remaining tensors */
        return MEMORY_NONE;
    if (memory_kind_of(m, (PyObject *)Py_TYPE(tensor)))
        return MEMORY_NONE;
    return place_of(m, &(struct source){.object = tensor}, access);
}

static void record_access(struct memory *m, uint32_t index, const struct memory_access *access)
{
    if (index == MEMORY_NONE || !access->kind || !m->storages.all[index].data)
        return;
    memory_record(m, (struct hr_memory_event){
                         .time_ns = access->time_ns,
                         .address = m->storages.all[index].data,
                         .bytes = hr_memory_access(access->call, access->stack),
                         .what = access->op,
                         .kind = access->kind,
                         .device = m->storages.all[index].device,
                     });
}

int memory_is_parameter_observed(const struct memory *m, const struct observed_tensor *tensor)
{
    uint32_t index =
        tensor->impl ? memory_map_get(&m->storages.by_impl, tensor->impl) : MEMORY_NONE;
    return index != MEMORY_NONE && m->storages.all[index].category == HR_MEMORY_PARAMETER;
}

int memory_is_parameter(struct memory *m, PyObject *object)
{
    int is = 0;
    if (PyObject_TypeCheck(object, (PyTypeObject *)m->tensor_type)) {
        const struct observed_tensor tensor = {.impl = impl_of(m, &(struct source){object, NULL})};
        memory_forget();
        return memory_is_parameter_observed(m, &tensor);
    }
    for (Py_ssize_t i = 0; PyTuple_Check(object) && i < PyTuple_Size(object) && !is; i++)
        is = memory_is_parameter(m, PyTuple_GetItem(object, i));
    for (Py_ssize_t i = 0; PyList_Check(object) && i < PyList_Size(object) && !is; i++)
        is = memory_is_parameter(m, PyList_GetItem(object, i));
    return is;
}

void memory_touch_observed(struct memory *m, const struct observed_tensor *tensor,
                           const struct memory_access *access)
{
    if (!PyErr_Occurred())
        record_access(m, place_of(m, &(struct source){.observed = tensor}, access), access);
}

void memory_touch(struct memory *m, PyObject *object, const struct memory_access *access)
{
    if (PyObject_TypeCheck(object, (PyTypeObject *)m->tensor_type)) {
        record_access(m, memory_storage_of(m, object, access), access);
    } else if (PyTuple_Check(object)) {
        for (Py_ssize_t i = 0, n = PyTuple_Size(object); i < n; i++)
            memory_touch(m, PyTuple_GetItem(object, i), access);
    } else if (PyList_Check(object)) {
        for (Py_ssize_t i = 0; i < PyList_Size(object); i++) {
            PyObject *item = Py_NewRef(PyList_GetItem(object, i));
            memory_touch(m, item, access);
            Py_DECREF(item);
        }
    }
}

void memory_ended(struct memory *m, PyObject *reference)
{
    struct memory_storages *all = &m->storages;
    uint32_t index = memory_map_get(&all->by_reference, (uint64_t)(uintptr_t)reference);
    if (index == MEMORY_NONE)
        return;
    leave_block(m, index, 0);
    memory_map_remove(&all->by_reference, (uint64_t)(uintptr_t)reference);
    /* Another storage may have the address already. */
    if (memory_map_get(&all->by_impl, all->all[index].impl) == index)
        memory_map_remove(&all->by_impl, all->all[index].impl);
    PyObject *ours = all->all[index].reference;
    give_place(all, index);
    Py_DECREF(ours);
}

int memory_storages_visit(struct memory *m, visitproc visit, void *arg)
{
    for (uint32_t i = 0; i < m->storages.count; i++)
        Py_VISIT(m->storages.all[i].reference);
    return 0;
}

void memory_storages_clear(struct memory *m)
{
    struct memory_storages all = m->storages;
    m->storages = (struct memory_storages){.free = MEMORY_NONE};
    for (uint32_t i = 0; i < all.count; i++)
        Py_XDECREF(all.all[i].reference);
    memory_map_clear(&all.by_impl);
    memory_map_clear(&all.by_reference);
    memory_map_clear(&all.by_data);
    PyMem_Free(all.all);
}
