/*
 * headrace._core.Preparer: decodes image bytes to pixels or to a recipe's tensor,
 * on the calling thread with the GIL released.
 */
#include "core.h"

#include <errno.h>

struct preparer {
    PyObject_HEAD struct hr_preparer *handle;
    bool busy; /* a call is in progress without the GIL; guarded by the GIL */
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
    struct preparer *self = PyObject_New(struct preparer, type);
    if (!self) {
        hr_preparer_destroy(&handle);
        return NULL;
    }
    self->handle = handle;
    self->busy = false;
    return (PyObject *)self;
}

static void preparer_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    hr_preparer_destroy(&((struct preparer *)object)->handle);
    PyObject_Free(object);
    Py_DECREF(type);
}

static const char *format_name(enum hr_image_format format)
{
    switch (format) {
    case HR_IMAGE_JPEG:
        return "jpeg";
    case HR_IMAGE_PNG:
        return "png";
    case HR_IMAGE_COEFFICIENTS:
        return hr_form_name(HR_FORM_COEFFICIENTS);
    case HR_IMAGE_PLANES:
        return hr_form_name(HR_FORM_PLANES);
    case HR_IMAGE_INDEXED:
        return hr_form_name(HR_FORM_INDEXED);
    case HR_IMAGE_UNKNOWN:
        break;
    }
    return "unknown";
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
    return Py_BuildValue("{s:s,s:i,s:i,s:i,s:i}", "format", format_name(info.format), "width",
                         info.width, "height", info.height, "channels", info.channels,
                         "orientation", info.orientation);
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

static PyObject *preparer_run(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"recipe", "data", "seed", "epoch", "index", NULL};
    struct preparer *self = (struct preparer *)object;
    struct core_state *state = core_state_of(object);
    PyObject *recipe;
    Py_buffer view;
    unsigned long long seed = 0, epoch = 0, index = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!y*|KKK", names, state->recipe_type, &recipe,
                                     &view, &seed, &epoch, &index))
        return NULL;
    struct hr_tensor_spec spec;
    hr_recipe_output(core_recipe_handle(recipe), &spec);
    void *out;
    struct core_memory *memory = core_memory_of_block(spec.bytes, &out);
    struct hr_error error = {0};
    struct hr_draw_key key = {seed, epoch, index};
    int r = -1;
    if (!memory) {
        PyErr_NoMemory();
    } else if (core_enter(&self->busy, "Preparer") == 0) {
        Py_BEGIN_ALLOW_THREADS
            r = hr_preparer_run(self->handle, core_recipe_handle(recipe), view.buf,
                                (size_t)view.len, &key, out, &error);
        Py_END_ALLOW_THREADS
        self->busy = false;
    }
    PyBuffer_Release(&view);
    if (r) {
        if (memory)
            core_memory_unref(memory);
        return core_raise(state, r, &error, NULL);
    }
    return core_array_of_spec(state, memory, out, &spec, -1);
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

static PyMethodDef preparer_methods[] = {
    {"info", preparer_info, METH_O,
     PyDoc_STR("info(data)\n--\n\nWhat the header says: format, width, height, channels, ...")},
    {"decode", (PyCFunction)(void (*)(void))preparer_decode, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("decode(data, region=None)\n--\n\nA uint8 Array (height, width, 3).")},
    {"run", (PyCFunction)(void (*)(void))preparer_run, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("run(recipe, data, seed=0, epoch=0, index=0)\n--\n\nOne sample's Array.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef preparer_getset[] = {
    {"damage", preparer_damage, NULL, PyDoc_STR("What was wrong with the last image, or None."),
     NULL},
    {"scale", preparer_scale, NULL, PyDoc_STR("The last image was decoded at 1 / scale."), NULL},
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
