/*
 * headrace._core.Stalls: the result of a measuring run. It is immutable, so any thread may
 * use it. The GIL is released while the library computes or writes.
 *
 * The library's structs become dicts with their members' names. An interval becomes
 * (value, low, high), with NaN for unknown numbers. Phases and causes are named by strings.
 */
#include "core.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SUGGESTIONS 64

struct stalls {
    PyObject_HEAD struct hr_stalls *handle;
};

static struct hr_stalls *handle_of(PyObject *object)
{
    return ((struct stalls *)object)->handle;
}

/* Takes over `handle`. */
static PyObject *stalls_new(PyTypeObject *type, struct hr_stalls *handle)
{
    struct stalls *self = PyObject_New(struct stalls, type);
    if (!self) {
        hr_stalls_destroy(&handle);
        return NULL;
    }
    self->handle = handle;
    return (PyObject *)self;
}

static void stalls_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    hr_stalls_destroy(&((struct stalls *)object)->handle);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* ---- constructors ---- */

/* An array of records for the library. */
struct record_list {
    const char **texts;
    size_t *lengths;
    PyObject *list; /* owns the bytes objects */
    Py_ssize_t count;
};

static void records_clear(struct record_list *records)
{
    free(records->texts);
    free(records->lengths);
    Py_CLEAR(records->list);
}

/* Takes a sequence of str, or of bytes in UTF-8. */
static int records_take(struct record_list *records, PyObject *sequence)
{
    *records = (struct record_list){0};
    if (PyUnicode_Check(sequence) || PyBytes_Check(sequence)) {
        PyErr_SetString(PyExc_TypeError, "records must be a sequence of texts, not one text");
        return -1;
    }
    records->list = PySequence_List(sequence);
    if (!records->list)
        return -1;
    records->count = PyList_Size(records->list);
    size_t room = records->count ? (size_t)records->count : 1;
    records->texts = calloc(room, sizeof *records->texts);
    records->lengths = calloc(room, sizeof *records->lengths);
    if (!records->texts || !records->lengths || records->count > INT_MAX) {
        PyErr_NoMemory();
        goto fail;
    }
    for (Py_ssize_t i = 0; i < records->count; i++) {
        PyObject *text = PyList_GetItem(records->list, i);
        Py_ssize_t length = 0;
        char *bytes = NULL;
        if (PyUnicode_Check(text))
            records->texts[i] = PyUnicode_AsUTF8AndSize(text, &length);
        else if (PyBytes_AsStringAndSize(text, &bytes, &length) == 0)
            records->texts[i] = bytes;
        if (!records->texts[i])
            goto fail;
        records->lengths[i] = (size_t)length;
    }
    return 0;
fail:
    records_clear(records);
    return -1;
}

static PyObject *stalls_analyse(PyObject *type, PyObject *sequence)
{
    struct hr_stalls *handle = NULL;
    struct hr_error error = {0};
    struct record_list records;
    int r;
    if (records_take(&records, sequence) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
        r = hr_stalls_analyse(&handle, records.texts, records.lengths, (int)records.count, &error);
    Py_END_ALLOW_THREADS
    records_clear(&records);
    if (r)
        return core_raise(PyType_GetModuleState((PyTypeObject *)type), r, &error, NULL);
    return stalls_new((PyTypeObject *)type, handle);
}

static PyObject *stalls_read(PyObject *type, PyObject *path)
{
    struct hr_stalls *handle = NULL;
    struct hr_error error = {0};
    PyObject *bytes = NULL;
    int r;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    const char *name = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS
        r = hr_stalls_read(&handle, name, &error);
    Py_END_ALLOW_THREADS
    Py_DECREF(bytes);
    if (r)
        return core_raise(PyType_GetModuleState((PyTypeObject *)type), r, &error, path);
    return stalls_new((PyTypeObject *)type, handle);
}

static PyObject *stalls_merge(PyObject *type, PyObject *sequence)
{
    struct hr_stalls *handle = NULL;
    struct hr_error error = {0};
    PyObject *result = NULL, *list = PySequence_List(sequence);
    if (!list)
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    const struct hr_stalls **parts = calloc(count ? (size_t)count : 1, sizeof *parts);
    int r;
    if (!parts || count > INT_MAX) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *part = PyList_GetItem(list, i);
        if (!PyObject_TypeCheck(part, (PyTypeObject *)type)) {
            PyErr_SetString(PyExc_TypeError, "merge takes results: read() gives them");
            goto done;
        }
        parts[i] = handle_of(part);
    }
    Py_BEGIN_ALLOW_THREADS
        r = hr_stalls_merge(&handle, parts, (int)count, &error);
    Py_END_ALLOW_THREADS
    result = r ? core_raise(PyType_GetModuleState((PyTypeObject *)type), r, &error, NULL)
               : stalls_new((PyTypeObject *)type, handle);
done:
    free(parts);
    Py_DECREF(list);
    return result;
}

/* ---- summary ---- */

static PyObject *interval(const struct hr_interval *interval)
{
    return Py_BuildValue("(ddd)", interval->value, interval->low, interval->high);
}

static PyObject *by_cause(const struct hr_interval *shares, int count)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < count; i++)
        if (core_put(dict, hr_stalls_share_name(i), interval(&shares[i])) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *rates_by_phase(const struct hr_interval *rates)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < HR_STALLS_PHASES; i++)
        if (core_put(dict, hr_stalls_phase_name((enum hr_stalls_phase)i), interval(&rates[i])) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *flags_by_phase(const int *flags)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < HR_STALLS_PHASES; i++)
        if (core_put(dict, hr_stalls_phase_name((enum hr_stalls_phase)i),
                     PyBool_FromLong(flags[i])) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *stalls_summary(PyObject *object, PyObject *none)
{
    struct hr_stalls_summary s = {.size = sizeof s};
    struct hr_error error = {0};
    int r = hr_stalls_get_summary(handle_of(object), &s, &error);
    if (r)
        return core_raise(core_state_of(object), r, &error, NULL);
    return Py_BuildValue("{s:i,s:i,s:K,s:K,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N}", "ranks", s.ranks,
                         "cores", s.cores, "samples", (unsigned long long)s.samples, "bytes",
                         (unsigned long long)s.bytes, "measured", flags_by_phase(s.measured),
                         "rate", rates_by_phase(s.rate), "device_rate", interval(&s.device_rate),
                         "prepare_rate", interval(&s.prepare_rate), "fetch_rate",
                         interval(&s.fetch_rate), "share", by_cause(s.share, 4), "warm_share",
                         by_cause(s.warm_share, 3), "contradicts", PyBool_FromLong(s.contradicts));
}

static PyObject *stalls_sentence(PyObject *object, void *closure)
{
    return core_text(hr_stalls_sentence(handle_of(object)));
}

/* ---- writing ---- */

typedef int (*writer)(const struct hr_stalls *, const char *, struct hr_error *);

static PyObject *wrote(PyObject *object, int r, const struct hr_error *error, PyObject *path)
{
    if (r == -ENOSPC) /* a full disk: OSError, not ValueError */
        return core_raise_cache(core_state_of(object), r, error);
    if (r)
        return core_raise(core_state_of(object), r, error, path);
    Py_RETURN_NONE;
}

static PyObject *write_with(PyObject *object, PyObject *path, writer write)
{
    struct hr_error error = {0};
    PyObject *bytes = NULL;
    int r;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    const char *name = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS
        r = write(handle_of(object), name, &error);
    Py_END_ALLOW_THREADS
    Py_DECREF(bytes);
    return wrote(object, r, &error, path);
}

static PyObject *stalls_write(PyObject *object, PyObject *path)
{
    return write_with(object, path, hr_stalls_write);
}

static PyObject *stalls_write_page(PyObject *object, PyObject *path)
{
    return write_with(object, path, hr_stalls_write_page);
}

static PyObject *stalls_write_trace(PyObject *object, PyObject *path)
{
    return write_with(object, path, hr_stalls_write_trace);
}

static PyObject *stalls_write_text(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path", "columns", NULL};
    struct hr_error error = {0};
    PyObject *path, *bytes = NULL;
    int columns = 80, r;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|i", names, &path, &columns) ||
        !PyUnicode_FSConverter(path, &bytes))
        return NULL;
    const char *name = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS
        r = hr_stalls_write_text(handle_of(object), name, columns, &error);
    Py_END_ALLOW_THREADS
    Py_DECREF(bytes);
    return wrote(object, r, &error, path);
}

/* ---- predictions ---- */

static const char *form_name(int form)
{
    return form == HR_FORM_AUTO ? "auto" : hr_form_name((enum hr_form)form);
}

/* Sets *form to the enum hr_form or HR_FORM_AUTO of a name. Returns 0, or -1 with an exception. */
static int form_of(const char *name, int *form)
{
    for (*form = HR_FORM_AUTO; *form < HR_FORMS; ++*form)
        if (!strcmp(name, form_name(*form)))
            return 0;
    PyErr_Format(PyExc_ValueError,
                 "form is \"%s\": auto, encoded, indexed, coefficients and planes are known", name);
    return -1;
}

static int loader_of(const char *name, enum hr_stalls_loader *loader)
{
    *loader = strcmp(name, "headrace") ? HR_STALLS_LOADER_SAME : HR_STALLS_LOADER_HEADRACE;
    if (*loader == HR_STALLS_LOADER_HEADRACE || !strcmp(name, "same"))
        return 0;
    PyErr_Format(PyExc_ValueError, "loader is \"%s\": same and headrace are known", name);
    return -1;
}

/* Parses the keywords of predict(). Returns 0, or -1 with an exception. */
static int change_take(struct hr_stalls_change *change, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"cache_share",
                            "cache_bytes",
                            "page_cache",
                            "cores",
                            "storage_bytes_per_s",
                            "storage_factor",
                            "device_speedup",
                            "ranks",
                            "workers",
                            "loader",
                            "form",
                            NULL};
    const char *loader = "same", *form = "auto";
    long long cache_bytes = 0;
    hr_stalls_change_default(change);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$dLpidddiiss", names, &change->cache_share,
                                     &cache_bytes, &change->page_cache, &change->cores,
                                     &change->storage_bytes_per_s, &change->storage_factor,
                                     &change->device_speedup, &change->ranks, &change->workers,
                                     &loader, &form))
        return -1;
    if (cache_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "cache_bytes is not negative");
        return -1;
    }
    change->cache_bytes = (uint64_t)cache_bytes;
    return loader_of(loader, &change->loader) < 0 ? -1 : form_of(form, &change->form);
}

static PyObject *change_dict(const struct hr_stalls_change *c)
{
    return Py_BuildValue(
        "{s:d,s:K,s:N,s:i,s:d,s:d,s:d,s:i,s:i,s:s,s:s}", "cache_share", c->cache_share,
        "cache_bytes", (unsigned long long)c->cache_bytes, "page_cache",
        PyBool_FromLong(c->page_cache), "cores", c->cores, "storage_bytes_per_s",
        c->storage_bytes_per_s, "storage_factor", c->storage_factor, "device_speedup",
        c->device_speedup, "ranks", c->ranks, "workers", c->workers, "loader",
        c->loader == HR_STALLS_LOADER_HEADRACE ? "headrace" : "same", "form", form_name(c->form));
}

static PyObject *prediction_dict(const struct hr_stalls_prediction *p)
{
    PyObject *shares = PyDict_New();
    for (int i = 0; shares && i < HR_STALLS_SHARES; i++)
        if (core_put(shares, hr_stalls_share_name(i), PyFloat_FromDouble(p->share[i])) < 0)
            Py_CLEAR(shares);
    return Py_BuildValue(
        "{s:d,s:d,s:d,s:N,s:d,s:d,s:d,s:d,s:d,s:N,s:N}", "rate", p->rate, "low", p->low, "high",
        p->high, "share", shares, "reference_rate", p->reference_rate, "device_rate",
        p->device_rate, "prepare_rate", p->prepare_rate, "fetch_rate", p->fetch_rate, "core_share",
        p->core_share, "extrapolated", PyBool_FromLong(p->extrapolated), "why", core_text(p->why));
}

static PyObject *stalls_predict(PyObject *object, PyObject *args, PyObject *kwargs)
{
    struct hr_stalls_change change;
    struct hr_stalls_prediction prediction = {.size = sizeof prediction};
    struct hr_error error = {0};
    int r;
    if (change_take(&change, args, kwargs) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
        r = hr_stalls_predict(handle_of(object), &change, &prediction, &error);
    Py_END_ALLOW_THREADS
    return r ? core_raise(core_state_of(object), r, &error, NULL) : prediction_dict(&prediction);
}

static PyObject *suggestion_dict(const struct hr_stalls_suggestion *suggestion)
{
    return Py_BuildValue("{s:N,s:N,s:N}", "text", core_text(suggestion->text), "change",
                         change_dict(&suggestion->change), "prediction",
                         prediction_dict(&suggestion->prediction));
}

static PyObject *stalls_suggest(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stall", "capacity", NULL};
    struct hr_error error = {0};
    double stall = 0.02;
    int capacity = 8, count;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|di", names, &stall, &capacity))
        return NULL;
    if (capacity < 1 || capacity > MOST_SUGGESTIONS) {
        PyErr_Format(PyExc_ValueError, "capacity is %d; it must be 1 to %d", capacity,
                     MOST_SUGGESTIONS);
        return NULL;
    }
    struct hr_stalls_suggestion *suggestions = calloc((size_t)capacity, sizeof *suggestions);
    if (!suggestions)
        return PyErr_NoMemory();
    for (int i = 0; i < capacity; i++)
        suggestions[i].size = sizeof suggestions[i];
    Py_BEGIN_ALLOW_THREADS
        count = hr_stalls_suggest(handle_of(object), stall, suggestions, capacity, &error);
    Py_END_ALLOW_THREADS
    PyObject *list =
        count < 0 ? core_raise(core_state_of(object), count, &error, NULL) : PyList_New(0);
    for (int i = 0; list && i < count; i++) {
        PyObject *one = suggestion_dict(&suggestions[i]);
        if (!one || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    free(suggestions);
    return list;
}

static PyMethodDef stalls_methods[] = {
    {"analyse", stalls_analyse, METH_O | METH_CLASS,
     PyDoc_STR("analyse(records)\n--\n\nThe result of the records of a run, one text a rank.")},
    {"read", stalls_read, METH_O | METH_CLASS,
     PyDoc_STR("read(path)\n--\n\nThe result in a stalls.json.")},
    {"merge", stalls_merge, METH_O | METH_CLASS,
     PyDoc_STR("merge(results)\n--\n\nOne result of those of several hosts.")},
    {"summary", stalls_summary, METH_NOARGS,
     PyDoc_STR("summary()\n--\n\nRates and shares, each (value, low, high).")},
    {"write", stalls_write, METH_O, PyDoc_STR("write(path)\n--\n\nWrites stalls.json.")},
    {"write_text", (PyCFunction)(void (*)(void))stalls_write_text, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("write_text(path, columns=80)\n--\n\nWrites the sentence and the table.")},
    {"write_page", stalls_write_page, METH_O,
     PyDoc_STR("write_page(path)\n--\n\nWrites one HTML file.")},
    {"write_trace", stalls_write_trace, METH_O,
     PyDoc_STR("write_trace(path)\n--\n\nWrites a trace for Perfetto.")},
    {"predict", (PyCFunction)(void (*)(void))stalls_predict, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("predict(*, cache_share=-1.0, cache_bytes=0, page_cache=False, cores=0,\n"
               "        storage_bytes_per_s=0.0, storage_factor=0.0, device_speedup=0.0, ranks=0,\n"
               "        workers=0, loader='same', form='auto')\n--\n\n"
               "Training under a change.")},
    {"suggest", (PyCFunction)(void (*)(void))stalls_suggest, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("suggest(stall=0.02, capacity=8)\n--\n\n"
               "The cheapest changes that leave at most this share to waiting.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stalls_getset[] = {
    {"sentence", stalls_sentence, NULL, PyDoc_STR("The result in one plain sentence."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stalls_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A result of a measuring run: analyse, read or merge makes it.")},
    {Py_tp_dealloc, stalls_dealloc},
    {Py_tp_methods, stalls_methods},
    {Py_tp_getset, stalls_getset},
    {0, NULL},
};

PyType_Spec core_stalls_spec = {
    .name = "headrace._core.Stalls",
    .basicsize = sizeof(struct stalls),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = stalls_slots,
};
