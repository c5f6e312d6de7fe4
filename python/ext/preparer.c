/*
 * headrace._core.Preparer: decodes image bytes to pixels or to a recipe's tensor,
 * on the calling thread with the GIL released.
 */
#include "core.h"

#include <errno.h>

struct preparer {
    PyObject_HEAD struct hr_preparer *handle;
    struct core_pool *pool; /* of results */
    bool busy;              /* a call is in progress without the GIL; guarded by the GIL */
};

static PyObject *preparer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "", names))
        return NULL;
    struct hr_preparer *handle = NULL;
    struct hr_error error = {0};
    int r = hr_preparer_create(&handle, &error);
    if (r)
        return core_raise(PyType_GetModuleState(type), r, &error, NULL);
    struct core_pool *pool = core_pool_new();
    struct preparer *self = pool ? PyObject_New(struct preparer, type) : NULL;
    if (!self) {
        hr_preparer_destroy(&handle);
        core_pool_close(pool);
        return PyErr_NoMemory();
    }
    self->handle = handle;
    self->pool = pool;
    self->busy = false;
    return (PyObject *)self;
}

static void preparer_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    hr_preparer_destroy(&((struct preparer *)object)->handle);
    core_pool_close(((struct preparer *)object)->pool);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *preparer_info(PyObject *object, PyObject *data)
{
    struct preparer *self = (struct preparer *)object;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    struct hr_image_info info;
    struct hr_error error = {0};
    int r = core_enter(&self->busy, "Preparer");
    if (r == 0) {
        r = hr_preparer_info(self->handle, view.buf, (size_t)view.len, &info, &error);
        self->busy = false;
    }
    PyBuffer_Release(&view);
    if (r)
        return core_raise(core_state_of(object), r, &error, NULL);
    PyObject *name = PyUnicode_FromString(hr_image_format_name(info.format));
    if (!name)
        return NULL;
    PyObject *lower = PyObject_CallMethod(name, "lower", NULL);
    Py_DECREF(name);
    return Py_BuildValue("{s:N,s:i,s:i,s:i,s:i}", "format", lower, "width", info.width, "height",
                         info.height, "channels", info.channels, "orientation", info.orientation);
}

/* Decodes a region, or the whole image if *region is empty. The caller owns the memory. */
static int decode(struct preparer *self, const Py_buffer *view, struct hr_region *region,
                  struct core_memory **memory, void **pixels, struct hr_error *error)
{
    struct hr_image_info info;
    int r = hr_preparer_info(self->handle, view->buf, (size_t)view->len, &info, error);
    if (r)
        return r;
    if (!region->width)
        *region = (struct hr_region){0, 0, info.width, info.height};
    struct hr_recipe_options limits;
    hr_recipe_options_default(&limits);
    size_t bytes = 3;
    /* Allocate only for a plausible size; the library refuses others. */
    if (region->width > 0 && region->height > 0 &&
        (uint64_t)info.width * (uint64_t)info.height <= limits.max_pixels &&
        region->width <= info.width && region->height <= info.height)
        bytes = (size_t)region->width * (size_t)region->height * 3;
    *memory = core_memory_of_block(bytes, pixels);
    if (!*memory)
        return -ENOMEM;
    return hr_preparer_decode(self->handle, view->buf, (size_t)view->len, region, *pixels, bytes,
                              error);
}

static int parse_region(PyObject *where, struct hr_region *region)
{
    if (where == Py_None)
        return 0;
    if (PyTuple_Check(where) && PyTuple_Size(where) == 4)
        return PyArg_ParseTuple(where, "iiii", &region->x, &region->y, &region->width,
                                &region->height)
                   ? 0
                   : -1;
    PyErr_Format(PyExc_TypeError, "region must be (x, y, width, height), not %R", where);
    return -1;
}

static PyObject *preparer_decode(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "region", NULL};
    struct preparer *self = (struct preparer *)object;
    Py_buffer view;
    struct hr_region region = {0};
    PyObject *where = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*|O", names, &view, &where))
        return NULL;
    struct core_memory *memory = NULL;
    void *pixels = NULL;
    struct hr_error error = {0};
    int r = -1;
    if (parse_region(where, &region) == 0 && core_enter(&self->busy, "Preparer") == 0) {
        Py_BEGIN_ALLOW_THREADS
            r = decode(self, &view, &region, &memory, &pixels, &error);
        Py_END_ALLOW_THREADS
        self->busy = false;
    }
    PyBuffer_Release(&view);
    if (r) {
        if (memory)
            core_memory_unref(memory);
        return core_raise(core_state_of(object), r, &error, NULL);
    }
    Py_ssize_t shape[3] = {region.height, region.width, 3};
    return core_array_new(core_state_of(object), memory, pixels, CORE_UINT8, 3, shape);
}

/* Memory for the tensors of one sample. */
struct outputs {
    size_t count;
    struct core_memory *memory[HR_RECIPE_MAX_VIEWS];
    void *out[HR_RECIPE_MAX_VIEWS];
};

static void free_outputs(struct outputs *o)
{
    for (size_t v = 0; v < o->count; v++)
        core_memory_unref(o->memory[v]);
    o->count = 0;
}

static int make_outputs(struct outputs *o, const struct hr_recipe *recipe, struct core_pool *pool)
{
    for (o->count = 0; o->count < hr_recipe_views(recipe); o->count++) {
        struct hr_tensor_spec spec;
        hr_recipe_view_output(recipe, o->count, &spec);
        o->memory[o->count] = core_memory_of_pool(pool, spec.bytes, &o->out[o->count]);
        if (!o->memory[o->count]) {
            free_outputs(o);
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

/* Returns an Array, or a tuple of one for each view. Takes the memory over. */
static PyObject *wrap_outputs(struct core_state *state, struct outputs *o,
                              const struct hr_recipe *recipe)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)o->count);
    if (!tuple) {
        free_outputs(o);
        return NULL;
    }
    for (size_t v = 0; v < o->count; v++) {
        struct hr_tensor_spec spec;
        hr_recipe_view_output(recipe, v, &spec);
        PyObject *array = core_array_of_spec(state, o->memory[v], o->out[v], &spec, -1);
        if (!array) {
            for (size_t rest = v + 1; rest < o->count; rest++)
                core_memory_unref(o->memory[rest]);
            Py_DECREF(tuple);
            return NULL;
        }
        PyTuple_SetItem(tuple, (Py_ssize_t)v, array);
    }
    if (o->count > 1)
        return tuple;
    PyObject *only = Py_NewRef(PyTuple_GetItem(tuple, 0));
    Py_DECREF(tuple);
    return only;
}

/* Returns (what run returns, {column: Array}). */
static PyObject *run_sample(struct preparer *self, const struct hr_recipe *recipe,
                            const struct hr_sample *sample, const struct hr_draw_key *key)
{
    struct core_state *state = core_state_of((PyObject *)self);
    struct outputs outputs = {0};
    struct hr_error error = {0};
    struct core_columns columns;
    size_t rows = 0;
    int r = -1;
    if (core_columns_make(&columns, sample->dataset) < 0)
        return NULL;
    struct core_memory *mask_memory = NULL;
    void *mask = NULL;
    struct hr_tensor_spec spec;
    hr_recipe_output(recipe, &spec);
    if (hr_dataset_masks(sample->dataset)) {
        mask_memory = core_memory_of_block((size_t)spec.height * (size_t)spec.width, &mask);
        if (!mask_memory)
            r = -ENOMEM;
    }
    if (r != -ENOMEM && make_outputs(&outputs, recipe, self->pool) == 0 &&
        core_enter(&self->busy, "Preparer") == 0) {
        const struct hr_sample_room room = {outputs.out, columns.data, &rows, mask};
        Py_BEGIN_ALLOW_THREADS
            r = hr_preparer_run_sample(self->handle, recipe, sample, key, &room, &error);
        Py_END_ALLOW_THREADS
        self->busy = false;
    }
    if (r) {
        free_outputs(&outputs);
        core_columns_free(&columns);
        if (mask_memory)
            core_memory_unref(mask_memory);
        return core_raise(state, r, &error, NULL);
    }
    PyObject *dict = core_columns_wrap(state, &columns, sample->dataset, rows);
    const Py_ssize_t shape[2] = {spec.height, spec.width};
    if (mask_memory &&
        (!dict || core_put(dict, "masks",
                           core_array_new(state, mask_memory, mask, CORE_UINT8, 2, shape)) < 0))
        Py_CLEAR(dict);
    PyObject *images = wrap_outputs(state, &outputs, recipe);
    PyObject *result = dict && images ? PyTuple_Pack(2, images, dict) : NULL;
    Py_XDECREF(images);
    Py_XDECREF(dict);
    return result;
}

/* Returns an Array, or a tuple of one for each view. */
static PyObject *run_bytes(struct preparer *self, const struct hr_recipe *recipe,
                           const Py_buffer *view, const struct hr_draw_key *key)
{
    struct outputs outputs = {0};
    struct hr_error error = {0};
    int r = -1;
    if (make_outputs(&outputs, recipe, self->pool) == 0 &&
        core_enter(&self->busy, "Preparer") == 0) {
        Py_BEGIN_ALLOW_THREADS
            r = hr_preparer_run_views(self->handle, recipe, view->buf, (size_t)view->len, key,
                                      outputs.out, &error);
        Py_END_ALLOW_THREADS
        self->busy = false;
    }
    struct core_state *state = core_state_of((PyObject *)self);
    if (!r)
        return wrap_outputs(state, &outputs, recipe);
    free_outputs(&outputs);
    return core_raise(state, r, &error, NULL);
}

static PyObject *preparer_run(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"recipe", "data", "seed", "epoch", "index", "dataset", "mask", NULL};
    struct preparer *self = (struct preparer *)object;
    struct core_state *state = core_state_of(object);
    PyObject *of, *dataset = NULL;
    Py_buffer view, mask = {0};
    unsigned long long seed = 0, epoch = 0, index = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!y*|KKKO!z*", names, state->recipe_type, &of,
                                     &view, &seed, &epoch, &index, state->dataset_type, &dataset,
                                     &mask))
        return NULL;
    const struct hr_recipe *recipe = core_recipe_handle(of);
    const struct hr_draw_key key = {seed, epoch, index};
    PyObject *result;
    if (dataset) {
        const struct hr_sample sample = {core_dataset_handle(dataset),
                                         index,
                                         view.buf,
                                         (size_t)view.len,
                                         mask.buf,
                                         (size_t)mask.len};
        result = run_sample(self, recipe, &sample, &key);
    } else {
        result = run_bytes(self, recipe, &view, &key);
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&mask);
    return result;
}

/* Of a sound that is decoded as a whole. */
#define MOST_FRAMES (UINT64_C(1) << 28)

static PyObject *preparer_sound_info(PyObject *object, PyObject *data)
{
    struct preparer *self = (struct preparer *)object;
    struct hr_sound_info info = {0};
    struct hr_error error = {0};
    Py_buffer view;
    int r = -1;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (core_enter(&self->busy, "Preparer") == 0) {
        Py_BEGIN_ALLOW_THREADS
            r = hr_preparer_sound_info(self->handle, view.buf, (size_t)view.len, &info, &error);
        Py_END_ALLOW_THREADS
        self->busy = false;
    }
    PyBuffer_Release(&view);
    if (r)
        return PyErr_Occurred() ? NULL : core_raise(core_state_of(object), r, &error, NULL);
    return Py_BuildValue("{s:s,s:i,s:i,s:K}", "format", hr_sound_format_name(info.format), "rate",
                         info.rate, "channels", info.channels, "frames",
                         (unsigned long long)info.frames);
}

static PyObject *preparer_sound_decode(PyObject *object, PyObject *args)
{
    struct preparer *self = (struct preparer *)object;
    struct core_state *state = core_state_of(object);
    struct hr_error error = {0};
    Py_buffer view;
    unsigned long long first, count, channels;
    void *out;
    int r = -1;
    if (!PyArg_ParseTuple(args, "y*KKK", &view, &first, &count, &channels))
        return NULL;
    struct core_memory *memory = NULL;
    if (channels > HR_SOUND_MAX_CHANNELS || count > MOST_FRAMES)
        PyErr_Format(PyExc_ValueError,
                     "the clip of %llu frames is too long to decode as a whole, at most %llu: use "
                     "a RandomWindow or CenterWindow",
                     count, MOST_FRAMES);
    else if (!(memory = core_memory_of_block((size_t)(count * channels) * sizeof(float), &out)))
        PyErr_NoMemory();
    if (memory && core_enter(&self->busy, "Preparer") == 0) {
        struct hr_sound_info info;
        Py_BEGIN_ALLOW_THREADS
            r = hr_preparer_sound_info(self->handle, view.buf, (size_t)view.len, &info, &error);
            if (!r && (unsigned long long)info.channels != channels)
                r = -ERANGE;
            if (!r)
                r = hr_preparer_sound_decode(self->handle, view.buf, (size_t)view.len, first, count,
                                             out, &error);
        Py_END_ALLOW_THREADS
        self->busy = false;
    }
    PyBuffer_Release(&view);
    if (r) {
        if (memory)
            core_memory_unref(memory);
        return PyErr_Occurred() ? NULL : core_raise(state, r, &error, NULL);
    }
    Py_ssize_t shape[2] = {(Py_ssize_t)channels, (Py_ssize_t)count};
    return core_array_new(state, memory, out, CORE_FLOAT32, 2, shape);
}

static PyObject *preparer_waveform(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "form", "mono", "rate", NULL};
    struct preparer *self = (struct preparer *)object;
    struct hr_sound_head head = {0};
    struct hr_error error = {0};
    struct hr_item item;
    Py_buffer view;
    PyObject *result = NULL;
    int form = HR_FORM_WAVEFORM;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*|ipi", names, &view, &form, &head.mono,
                                     &head.rate))
        return NULL;
    if (core_enter(&self->busy, "Preparer") == 0) {
        int r;
        Py_BEGIN_ALLOW_THREADS
            r = hr_preparer_waveform(self->handle, (enum hr_form)form, &head, view.buf,
                                     (size_t)view.len, &item, &error);
        Py_END_ALLOW_THREADS
        result = r ? core_raise(core_state_of(object), r, &error, NULL)
                   : PyBytes_FromStringAndSize(item.bytes, (Py_ssize_t)item.length);
        self->busy = false;
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *preparer_damage(PyObject *object, void *closure)
{
    struct preparer *self = (struct preparer *)object;
    if (core_enter(&self->busy, "Preparer") < 0)
        return NULL;
    self->busy = false;
    const char *damage = hr_preparer_damage(self->handle);
    return damage ? core_text(damage) : Py_NewRef(Py_None);
}

static PyObject *preparer_scale(PyObject *object, void *closure)
{
    struct preparer *self = (struct preparer *)object;
    if (core_enter(&self->busy, "Preparer") < 0)
        return NULL;
    self->busy = false;
    return PyLong_FromLong(hr_preparer_scale(self->handle));
}

static PyObject *preparer_extents(PyObject *object, void *closure)
{
    struct preparer *self = (struct preparer *)object;
    int64_t extents[HR_TENSOR_MAX_DIMS];
    if (core_enter(&self->busy, "Preparer") < 0)
        return NULL;
    self->busy = false;
    size_t dims = hr_preparer_extents(self->handle, extents);
    PyObject *shape = PyTuple_New((Py_ssize_t)dims);
    for (size_t i = 0; shape && i < dims; i++) {
        PyObject *side = PyLong_FromLongLong(extents[i]);
        if (!side || PyTuple_SetItem(shape, (Py_ssize_t)i, side) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

CORE_KEYWORDS(preparer_decode);
CORE_KEYWORDS(preparer_run);
CORE_METHOD(preparer_info);
CORE_METHOD(preparer_sound_info);
CORE_METHOD(preparer_sound_decode);
CORE_KEYWORDS(preparer_waveform);

static PyMethodDef preparer_methods[] = {
    {"info", CORE_LOCKED(preparer_info), METH_O,
     PyDoc_STR("info(data)\n--\n\nWhat the header says: format, width, height, channels, ...")},
    {"decode", (PyCFunction)(void (*)(void))CORE_LOCKED(preparer_decode),
     METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("decode(data, region=None)\n--\n\nA uint8 Array (height, width, 3).")},
    {"run", (PyCFunction)(void (*)(void))CORE_LOCKED(preparer_run), METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("run(recipe, data, seed=0, epoch=0, index=0, dataset=None)\n--\n\n"
               "One sample's Array; a tuple of them if the recipe has several views. With its\n"
               "dataset: that, and a dict of its rows.")},
    {"sound_info", CORE_LOCKED(preparer_sound_info), METH_O,
     PyDoc_STR("sound_info(data)\n--\n\nformat, rate, channels and frames.")},
    {"waveform", (PyCFunction)(void (*)(void))CORE_LOCKED(preparer_waveform),
     METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("waveform(data, form=4, mono=False, rate=0)\n--\n\nA sound as an item of the form "
               "waveform (4) or waveform16 (5).")},
    {"sound_decode", CORE_LOCKED(preparer_sound_decode), METH_VARARGS,
     PyDoc_STR("sound_decode(data, first, count, channels)\n--\n\nA float32 Array (channels, "
               "count).")},
    {NULL, NULL, 0, NULL},
};

CORE_GETTER(preparer_damage);
CORE_GETTER(preparer_extents);
CORE_GETTER(preparer_scale);

static PyGetSetDef preparer_getset[] = {
    {"damage", CORE_LOCKED(preparer_damage), NULL,
     PyDoc_STR("What was wrong with the last image, or None."), NULL},
    {"extents", CORE_LOCKED(preparer_extents), NULL,
     PyDoc_STR("The shape of the last result: less than the Array's of a padded recipe."), NULL},
    {"scale", CORE_LOCKED(preparer_scale), NULL,
     PyDoc_STR("The last image was decoded at 1 / scale."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot preparer_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Preparer()\n--\n\nDecoder state of one thread.")},
    {Py_tp_new, preparer_new},
    {Py_tp_dealloc, preparer_dealloc},
    {Py_tp_methods, preparer_methods},
    {Py_tp_getset, preparer_getset},
    {0, NULL},
};

PyType_Spec core_preparer_spec = {
    .name = "headrace._core.Preparer",
    .basicsize = sizeof(struct preparer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = preparer_slots,
};
