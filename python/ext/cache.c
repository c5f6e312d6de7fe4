/*
 * headrace._core.Cache: a cache for the program's own values; headrace._core.CacheValue: a
 * cached value, as a read-only buffer over the cache's memory.
 *
 * Any thread may use a cache, so it has no `busy` flag. It counts the calls in progress and
 * the values that Python holds; after close(), the last of them closes the library's handle.
 * A value keeps its cache alive. get() waits without the GIL; a signal interrupts the wait
 * while Python's handlers run.
 */
#include "core.h"

#include <errno.h>
#include <limits.h>
#include <time.h>

struct cache {
    PyObject_HEAD struct hr_cache *handle; /* NULL once closed by the last user */
    Py_ssize_t users; /* calls in progress and values; the GIL guards all members */
    bool closed;
    bool has_hosts; /* it is on several hosts */
};

struct value {
    PyObject_HEAD struct cache *cache; /* owned */
    struct hr_cache_value value;
};

/* Closes the library's handle if close() was called and no user is left. */
static void end_if_idle(struct cache *self)
{
    if (!self->closed || self->users || !self->handle)
        return;
    struct hr_cache *handle = self->handle;
    self->handle = NULL;
    Py_BEGIN_ALLOW_THREADS
        hr_cache_close(&handle);
    Py_END_ALLOW_THREADS
}

static int enter(struct cache *self)
{
    if (self->closed) {
        PyErr_SetString(PyExc_RuntimeError, "this cache is closed");
        return -1;
    }
    self->users++;
    return 0;
}

static void leave(struct cache *self)
{
    self->users--;
    core_log_drain(core_state_of((PyObject *)self));
    end_if_idle(self);
}

static PyObject *cache_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"spec", "identity", "run", "items", NULL};
    struct core_state *state = PyType_GetModuleState(type);
    struct hr_cache_options options;
    hr_cache_options_default(&options);
    unsigned long long items = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ss|$zK", names, &options.spec,
                                     &options.identity, &options.run, &items))
        return NULL;
    options.items = items;
    struct hr_cache *handle = NULL;
    struct hr_error error = {0};
    int r;
    Py_BEGIN_ALLOW_THREADS
        r = hr_cache_open(&handle, &options, &error);
    Py_END_ALLOW_THREADS
    core_log_drain(state);
    if (r)
        return core_raise_cache(state, r, &error);
    struct cache *self = PyObject_New(struct cache, type);
    if (!self) {
        hr_cache_close(&handle);
        return NULL;
    }
    self->handle = handle;
    self->users = 0;
    self->closed = false;
    self->has_hosts = hr_cache_kind(options.spec) == HR_CACHE_HOSTS;
    return (PyObject *)self;
}

static void cache_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    struct hr_cache *handle = ((struct cache *)object)->handle;
    Py_BEGIN_ALLOW_THREADS
        hr_cache_close(&handle);
    Py_END_ALLOW_THREADS
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Values */

static PyObject *value_new(struct core_state *state, struct cache *cache,
                           struct hr_cache_value *found)
{
    struct value *self = PyObject_New(struct value, state->cache_value_type);
    if (!self) {
        hr_cache_value_clear(found);
        return NULL;
    }
    self->cache = (struct cache *)Py_NewRef((PyObject *)cache);
    self->value = *found;
    cache->users++;
    return (PyObject *)self;
}

static void value_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    struct value *self = (struct value *)object;
    hr_cache_value_clear(&self->value);
    CORE_LOCK(self->cache);
    self->cache->users--;
    end_if_idle(self->cache);
    CORE_UNLOCK;
    Py_DECREF((PyObject *)self->cache);
    PyObject_Free(object);
    Py_DECREF(type);
}

static int value_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    struct value *self = (struct value *)object;
    return PyBuffer_FillInfo(view, object, (void *)self->value.bytes,
                             (Py_ssize_t)self->value.length, 1, flags);
}

static Py_ssize_t value_length(PyObject *object)
{
    return (Py_ssize_t)((struct value *)object)->value.length;
}

static PyObject *value_is_whole(PyObject *object, PyObject *none)
{
    struct value *self = (struct value *)object;
    int is_whole = hr_cache_value_is_whole(self->cache->handle, &self->value);
    core_log_drain(core_state_of((PyObject *)self->cache));
    return PyBool_FromLong(is_whole);
}

/* Using a cache */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static PyObject *cache_get(PyObject *object, PyObject *args)
{
    struct cache *self = (struct cache *)object;
    struct core_state *state = core_state_of(object);
    Py_buffer key;
    int wait_ms = 0, r;
    if (!PyArg_ParseTuple(args, "y*|i", &key, &wait_ms))
        return NULL;
    if (enter(self) < 0) {
        PyBuffer_Release(&key);
        return NULL;
    }
    struct hr_cache_value value = {0};
    int64_t end = now_ms() + (wait_ms > 0 ? wait_ms : 0);
    for (;;) {
        int64_t left = end - now_ms();
        Py_BEGIN_ALLOW_THREADS
            r = hr_cache_get(self->handle, key.buf, (size_t)key.len, left > 0 ? (int)left : 0,
                             &value);
        Py_END_ALLOW_THREADS
        if (r != -EINTR || PyErr_CheckSignals() < 0)
            break;
    }
    PyBuffer_Release(&key);
    PyObject *result = NULL;
    if (r == 1)
        result = value_new(state, self, &value);
    else if (r == 0)
        result = Py_NewRef(Py_None);
    else
        core_raise(state, r, NULL, NULL);
    leave(self);
    return result;
}

/* Gets the buffers of a sequence of objects and sets *count. The caller frees them with
 * release_pieces. Returns NULL with an exception. */
static Py_buffer *get_pieces(PyObject *sequence, Py_ssize_t *count)
{
    Py_ssize_t n = PySequence_Size(sequence);
    *count = 0;
    if (n < 0)
        return NULL;
    Py_buffer *views = PyMem_Calloc((size_t)n + 1, sizeof *views);
    if (!views)
        return (Py_buffer *)PyErr_NoMemory();
    for (; *count < n; ++*count) {
        PyObject *piece = PySequence_GetItem(sequence, *count);
        int r = piece ? PyObject_GetBuffer(piece, &views[*count], PyBUF_SIMPLE) : -1;
        Py_XDECREF(piece);
        if (r == 0)
            continue;
        while (*count)
            PyBuffer_Release(&views[--*count]);
        PyMem_Free(views);
        return NULL;
    }
    return views;
}

static void release_pieces(Py_buffer *views, Py_ssize_t count)
{
    while (count)
        PyBuffer_Release(&views[--count]);
    PyMem_Free(views);
}

static PyObject *cache_put(PyObject *object, PyObject *args)
{
    struct cache *self = (struct cache *)object;
    struct hr_cache_piece *pieces = NULL;
    Py_buffer key;
    PyObject *sequence;
    Py_ssize_t count = 0;
    int r = -ENOMEM;
    if (!PyArg_ParseTuple(args, "y*O", &key, &sequence))
        return NULL;
    Py_buffer *views = get_pieces(sequence, &count);
    if (!views || enter(self) < 0)
        goto end;
    pieces = PyMem_Calloc((size_t)count + 1, sizeof *pieces);
    if (pieces) {
        for (Py_ssize_t i = 0; i < count; i++) {
            pieces[i].bytes = views[i].buf;
            pieces[i].length = (size_t)views[i].len;
        }
        Py_BEGIN_ALLOW_THREADS
            r = hr_cache_put(self->handle, key.buf, (size_t)key.len, pieces, (size_t)count);
        Py_END_ALLOW_THREADS
    }
    if (r == -EFBIG)
        PyErr_SetString(PyExc_OverflowError,
                        self->has_hosts
                            ? "its server's items may not be so large (raise memcached's -I)"
                            : "items of the cache are smaller than 4 GiB");
    else if (r < 0)
        core_raise(core_state_of(object), r, NULL, NULL);
    leave(self);
end:
    PyMem_Free(pieces);
    if (views)
        release_pieces(views, count);
    PyBuffer_Release(&key);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(r > 0);
}

static PyObject *cache_give_up(PyObject *object, PyObject *key)
{
    struct cache *self = (struct cache *)object;
    Py_buffer view;
    if (PyObject_GetBuffer(key, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (enter(self) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
        hr_cache_give_up(self->handle, view.buf, (size_t)view.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    leave(self);
    Py_RETURN_NONE;
}

static PyObject *cache_close(PyObject *object, PyObject *none)
{
    struct cache *self = (struct cache *)object;
    self->closed = true;
    end_if_idle(self);
    core_log_drain(core_state_of(object));
    Py_RETURN_NONE;
}

/* Information about a cache segment */

static PyObject *form_name(int form)
{
    const char *name = form == HR_FORM_AUTO ? "auto" : hr_form_name((enum hr_form)form);
    return PyUnicode_FromString(name ? name : "unknown");
}

static int add_numbers(PyObject *dict, const struct hr_cache_info *info)
{
    const struct core_number table[] = {
        {"size_bytes", info->size_bytes},
        {"budget_bytes", info->budget_bytes},
        {"allocated_bytes", info->allocated_bytes},
        {"used_bytes", info->used_bytes},
        {"staged", info->staged},
        {"source_bytes", info->source_bytes},
        {"hits", info->hits},
        {"misses", info->misses},
        {"saved_bytes", info->saved_bytes},
        {"refused", info->refused},
        {"foreign", info->foreign},
        {"huge_bytes", info->huge_bytes},
        {"users", (uint64_t)info->users},
        {"orders", info->orders},
        {"evicted", info->evicted},
    };
    return core_put_numbers(dict, table, sizeof table / sizeof *table);
}

static PyObject *info_dict(const struct hr_cache_info *info)
{
    uint64_t pids[HR_CACHE_PIDS];
    size_t users = 0;
    while (users < HR_CACHE_PIDS && info->pids[users] > 0) {
        pids[users] = (uint64_t)info->pids[users];
        users++;
    }
    uint64_t items[HR_FORMS];
    for (int form = 0; form < HR_FORMS; form++)
        items[form] = info->forms[form].items;
    PyObject *dict = PyDict_New();
    if (!dict || core_put(dict, "name", core_text(info->name)) < 0 ||
        core_put(dict, "dataset", core_text(info->dataset)) < 0 ||
        core_put(dict, "path", PyUnicode_DecodeFSDefault(info->path)) < 0 ||
        core_put(dict, "problem", info->damaged ? core_text(info->problem) : Py_NewRef(Py_None)) <
            0 ||
        add_numbers(dict, info) < 0 || core_put(dict, "items", core_numbers(items, HR_FORMS)) < 0 ||
        core_put(dict, "pids", core_numbers(pids, users)) < 0 ||
        core_put(dict, "node_bytes", core_numbers(info->node_bytes, HR_CACHE_NODES)) < 0 ||
        core_put(dict, "form", form_name(info->form)) < 0)
        Py_CLEAR(dict);
    return dict;
}

static PyObject *cache_info(PyObject *object, PyObject *none)
{
    struct cache *self = (struct cache *)object;
    struct hr_cache_info info = {.size = sizeof info};
    if (enter(self) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
        hr_cache_get_info(self->handle, &info);
    Py_END_ALLOW_THREADS
    leave(self);
    return info_dict(&info);
}

PyObject *core_cache_run(PyObject *module, PyObject *world_size)
{
    char run[HR_CACHE_RUN];
    long ranks = PyLong_AsLong(world_size);
    if (ranks == -1 && PyErr_Occurred())
        return NULL;
    hr_cache_run(run, ranks > INT_MAX ? INT_MAX : (int)ranks);
    return core_text(run);
}

PyObject *core_cache_bytes(PyObject *module, PyObject *text)
{
    uint64_t bytes;
    struct hr_error error = {0};
    const char *words = PyUnicode_AsUTF8AndSize(text, NULL);
    if (!words)
        return NULL;
    int r = hr_cache_bytes(words, &bytes, &error);
    if (r)
        return core_raise(PyModule_GetState(module), r, &error, NULL);
    return PyLong_FromUnsignedLongLong(bytes);
}

PyObject *core_cache_kind(PyObject *module, PyObject *text)
{
    static const char *const names[] = {"private", "kept", "hosts", "disk"};
    const char *words = PyUnicode_AsUTF8AndSize(text, NULL);
    return words ? PyUnicode_FromString(names[hr_cache_kind(words)]) : NULL;
}

CORE_METHOD(cache_get);
CORE_METHOD(cache_put);
CORE_METHOD(cache_give_up);
CORE_METHOD(cache_info);
CORE_METHOD(cache_close);

static PyMethodDef cache_methods[] = {
    {"get", CORE_LOCKED(cache_get), METH_VARARGS,
     PyDoc_STR("get(key, wait_ms=0)\n--\n\n"
               "The value, or None: then the caller makes it, and says put or give_up.")},
    {"put", CORE_LOCKED(cache_put), METH_VARARGS,
     PyDoc_STR("put(key, pieces)\n--\n\n"
               "Keeps a value made of buffers, one behind the other; whether it did.")},
    {"give_up", CORE_LOCKED(cache_give_up), METH_O,
     PyDoc_STR("give_up(key)\n--\n\nThe value will not come.")},
    {"info", CORE_LOCKED(cache_info), METH_NOARGS, PyDoc_STR("info()\n--\n\nThe segment, a dict.")},
    {"close", CORE_LOCKED(cache_close), METH_NOARGS,
     PyDoc_STR("close()\n--\n\nEnds the use, when the last value is gone.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cache_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Cache(spec, identity, *, run=None, items=0)\n--\n\n"
                                  "A cache for values of one's own.")},
    {Py_tp_new, cache_new},
    {Py_tp_dealloc, cache_dealloc},
    {Py_tp_methods, cache_methods},
    {0, NULL},
};

static PyMethodDef value_methods[] = {
    {"is_whole", value_is_whole, METH_NOARGS,
     PyDoc_STR("is_whole()\n--\n\n"
               "Whether its bytes were its own until now: ask after their last use.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot value_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A value of a cache: a read-only buffer.")},
    {Py_tp_dealloc, value_dealloc},
    {Py_tp_methods, value_methods},
    {Py_sq_length, value_length},
    {Py_bf_getbuffer, value_getbuffer},
    {0, NULL},
};

PyType_Spec core_cache_spec = {
    .name = "headrace._core.Cache",
    .basicsize = sizeof(struct cache),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = cache_slots,
};

PyType_Spec core_cache_value_spec = {
    .name = "headrace._core.CacheValue",
    .basicsize = sizeof(struct value),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = value_slots,
};
