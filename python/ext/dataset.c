/*
 * headrace._core.Dataset: holds one reference to a library dataset.
 *
 * Paths are decoded with the file system's encoding (surrogateescape), so that
 * names that are not UTF-8 survive the round trip through Python. Opening and
 * verifying release the GIL; Ctrl-C cancels them through the library's progress
 * callback.
 */
#include "core.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dataset {
    PyObject_HEAD struct hr_dataset *handle;
};

struct hr_dataset *core_dataset_handle(PyObject *self)
{
    return ((struct dataset *)self)->handle;
}

/* Takes over the caller's reference to `handle`, even on failure. */
static PyObject *dataset_new(PyTypeObject *type, struct hr_dataset *handle)
{
    struct dataset *self = PyObject_New(struct dataset, type);
    if (!self) {
        hr_dataset_unref(&handle);
        return NULL;
    }
    self->handle = handle;
    return (PyObject *)self;
}

PyObject *core_dataset_wrap(struct core_state *state, struct hr_dataset *handle)
{
    return dataset_new(state->dataset_type, handle);
}

static void dataset_dealloc(PyObject *object)
{
    struct dataset *self = (struct dataset *)object;
    PyTypeObject *type = Py_TYPE(object);
    /* May wait for background work of the library, which never needs the GIL. */
    hr_dataset_unref(&self->handle);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Does nothing on threads other than the caller's: the library may call this on its
 * own threads, and Python runs signal handlers on the main thread only. */
int core_watch_signals(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    struct core_watch *watch = arg;
    if (!pthread_equal(watch->caller, pthread_self()))
        return 0;
    PyEval_RestoreThread(watch->saved);
    int stop = PyErr_CheckSignals();
    watch->saved = PyEval_SaveThread();
    return stop;
}

void core_watch_begin(struct core_watch *watch)
{
    watch->caller = pthread_self();
    watch->saved = PyEval_SaveThread();
}

void core_watch_end(struct core_watch *watch)
{
    PyEval_RestoreThread(watch->saved);
}

typedef int (*opener)(struct hr_dataset **, const char *, const struct hr_dataset_options *,
                      struct hr_error *);

/* Opens a dataset and makes a Python object of it. `open`: for one path; NULL: Parquet files. */
static PyObject *open_paths(PyTypeObject *type, opener open, const char *const *paths, size_t count,
                            struct hr_dataset_options *options)
{
    struct core_state *state = PyType_GetModuleState(type);
    struct hr_dataset *handle = NULL;
    struct hr_error error = {0};
    struct core_watch watch;
    options->progress = core_watch_signals;
    options->progress_arg = &watch;
    core_watch_begin(&watch);
    int r = open ? open(&handle, paths[0], options, &error)
                 : hr_dataset_open_parquet(&handle, paths, count, options, &error);
    core_watch_end(&watch);
    core_log_drain(state);
    if (!r)
        return dataset_new(type, handle);
    PyObject *name = count ? PyUnicode_DecodeFSDefault(paths[0]) : NULL;
    core_raise(state, r, &error, name);
    Py_XDECREF(name);
    return NULL;
}

static PyObject *open_with(PyObject *type, PyObject *args, PyObject *kwargs, opener open)
{
    static char *names[] = {"path",        "index", "threads", "wait_sizes",
                            "allow_empty", "label", "sounds",  NULL};
    struct hr_dataset_options options;
    hr_dataset_options_default(&options);
    PyObject *path = NULL;
    int index = HR_INDEX_USER_CACHE, sounds = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|$iippzp", names, PyUnicode_FSConverter,
                                     &path, &index, &options.threads, &options.wait_sizes,
                                     &options.allow_empty_classes, &options.label, &sounds))
        return NULL;
    options.media = sounds                    ? HR_MEDIA_SOUNDS
                    : open == hr_dataset_open ? HR_MEDIA_ANY
                                              : HR_MEDIA_IMAGES;
    options.index = (enum hr_index_policy)index;
    const char *text = PyBytes_AsString(path);
    PyObject *result = open_paths((PyTypeObject *)type, open, &text, 1, &options);
    Py_DECREF(path);
    return result;
}

static PyObject *dataset_open_parquet(PyObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"paths", "label", "image", NULL};
    struct hr_dataset_options options;
    struct core_paths paths = {0};
    PyObject *sequence;
    hr_dataset_options_default(&options);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$zz", names, &sequence, &options.label,
                                     &options.image) ||
        core_paths_take(&paths, sequence) < 0)
        return NULL;
    PyObject *result =
        open_paths((PyTypeObject *)type, NULL, paths.text, (size_t)paths.count, &options);
    core_paths_clear(&paths);
    return result;
}

static PyObject *dataset_open_folder(PyObject *type, PyObject *args, PyObject *kwargs)
{
    return open_with(type, args, kwargs, hr_dataset_open_folder);
}

static PyObject *dataset_open_list(PyObject *type, PyObject *args, PyObject *kwargs)
{
    return open_with(type, args, kwargs, hr_dataset_open_list);
}

static PyObject *dataset_open_pack(PyObject *type, PyObject *args, PyObject *kwargs)
{
    return open_with(type, args, kwargs, hr_dataset_open_pack);
}

static PyObject *dataset_open_tar(PyObject *type, PyObject *args, PyObject *kwargs)
{
    return open_with(type, args, kwargs, hr_dataset_open_tar);
}

static PyObject *dataset_open(PyObject *type, PyObject *args, PyObject *kwargs)
{
    return open_with(type, args, kwargs, hr_dataset_open);
}

static PyObject *dataset_open_coco(PyObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"images",    "annotations", "contiguous_labels",
                            "keypoints", "skip_crowds", "skip_empty",
                            NULL};
    struct core_state *state = PyType_GetModuleState((PyTypeObject *)type);
    struct hr_dataset *handle = NULL;
    struct hr_error error = {0};
    struct hr_coco_options options;
    struct core_watch watch;
    PyObject *images = NULL, *file = NULL;
    hr_coco_options_default(&options);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&|$pppp", names, PyUnicode_FSConverter,
                                     &images, PyUnicode_FSConverter, &file,
                                     &options.contiguous_labels, &options.keypoints,
                                     &options.skip_crowds, &options.skip_empty))
        return NULL;
    const char *folder = PyBytes_AsString(images), *path = PyBytes_AsString(file);
    options.progress = core_watch_signals;
    options.progress_arg = &watch;
    core_watch_begin(&watch);
    int r = hr_dataset_open_coco(&handle, folder, path, &options, &error);
    core_watch_end(&watch);
    core_log_drain(state);
    PyObject *result = r ? NULL : dataset_new((PyTypeObject *)type, handle);
    if (r) {
        PyObject *name = PyUnicode_DecodeFSDefault(path);
        core_raise(state, r, &error, name);
        Py_XDECREF(name);
    }
    Py_DECREF(images);
    Py_DECREF(file);
    return result;
}

static PyObject *dataset_from_paths(PyObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"paths", "labels", NULL};
    PyObject *sequence, *labels, *result = NULL;
    struct core_paths paths = {0};
    Py_buffer view;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", names, &sequence, &labels) ||
        core_get_int64(labels, "labels", &view) < 0)
        return NULL;
    struct core_state *state = PyType_GetModuleState((PyTypeObject *)type);
    if (core_paths_take(&paths, sequence) < 0)
        goto done;
    if (view.len != paths.count * 8) {
        PyErr_Format(PyExc_ValueError, "%zd paths but %zd labels", paths.count, view.len / 8);
        goto done;
    }
    struct hr_dataset *handle = NULL;
    struct hr_error error = {0};
    int r;
    Py_BEGIN_ALLOW_THREADS
        r = hr_dataset_from_paths(&handle, paths.text, view.buf, (size_t)paths.count, &error);
    Py_END_ALLOW_THREADS
    core_log_drain(state);
    result = r ? core_raise(state, r, &error, NULL) : dataset_new((PyTypeObject *)type, handle);
done:
    core_paths_clear(&paths);
    PyBuffer_Release(&view);
    return result;
}

static PyObject *dataset_from_ranges(PyObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"paths", "ranges", NULL};
    PyObject *sequence, *ranges, *result = NULL;
    struct core_paths paths = {0};
    Py_buffer view;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", names, &sequence, &ranges) ||
        core_get_int64(ranges, "ranges", &view) < 0)
        return NULL;
    struct core_state *state = PyType_GetModuleState((PyTypeObject *)type);
    if (view.len % (Py_ssize_t)sizeof(struct hr_dataset_range)) {
        PyErr_SetString(PyExc_ValueError, "ranges must be four numbers for each sample");
        goto done;
    }
    if (core_paths_take(&paths, sequence) < 0)
        goto done;
    const struct hr_dataset_ranges given = {
        .size = sizeof given,
        .files = paths.text,
        .file_count = (size_t)paths.count,
        .ranges = view.buf,
        .count = (size_t)view.len / sizeof *given.ranges,
    };
    struct hr_dataset *handle = NULL;
    struct hr_error error = {0};
    int r;
    Py_BEGIN_ALLOW_THREADS
        r = hr_dataset_from_ranges(&handle, &given, &error);
    Py_END_ALLOW_THREADS
    core_log_drain(state);
    result = r ? core_raise(state, r, &error, NULL) : dataset_new((PyTypeObject *)type, handle);
done:
    core_paths_clear(&paths);
    PyBuffer_Release(&view);
    return result;
}

static PyObject *dataset_subset(PyObject *object, PyObject *indices)
{
    Py_buffer view;
    if (core_get_int64(indices, "indices", &view) < 0)
        return NULL;
    struct hr_dataset *handle = NULL;
    struct hr_error error = {0};
    int r;
    Py_BEGIN_ALLOW_THREADS
        r = hr_dataset_subset(&handle, core_dataset_handle(object), view.buf, (size_t)view.len / 8,
                              &error);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return r ? core_raise(core_state_of(object), r, &error, NULL)
             : dataset_new(Py_TYPE(object), handle);
}

/* Converts a sample number. Returns 0; -1 with IndexError if it is negative or too large. */
static int check_index(PyObject *object, PyObject *number, size_t *out)
{
    Py_ssize_t i = PyNumber_AsSsize_t(number, PyExc_IndexError);
    if (i == -1 && PyErr_Occurred())
        return -1;
    size_t count = hr_dataset_count(core_dataset_handle(object));
    if (i < 0 || (size_t)i >= count) {
        PyErr_Format(PyExc_IndexError, "sample %zd of %zu", i, count);
        return -1;
    }
    *out = (size_t)i;
    return 0;
}

typedef size_t (*text_getter)(const struct hr_dataset *, size_t, char *, size_t);

static PyObject *text_of(PyObject *object, PyObject *number, text_getter get)
{
    size_t i;
    char small[512];
    if (check_index(object, number, &i) < 0)
        return NULL;
    const struct hr_dataset *handle = core_dataset_handle(object);
    size_t length = get(handle, i, small, sizeof small);
    if (length < sizeof small)
        return PyUnicode_DecodeFSDefaultAndSize(small, (Py_ssize_t)length);
    char *large = malloc(length + 1);
    if (!large)
        return PyErr_NoMemory();
    get(handle, i, large, length + 1);
    PyObject *text = PyUnicode_DecodeFSDefaultAndSize(large, (Py_ssize_t)length);
    free(large);
    return text;
}

static PyObject *dataset_path(PyObject *object, PyObject *number)
{
    return text_of(object, number, hr_dataset_path);
}

static PyObject *dataset_key(PyObject *object, PyObject *number)
{
    return text_of(object, number, hr_dataset_key);
}

static PyObject *dataset_read(PyObject *object, PyObject *number)
{
    size_t i, length;
    if (check_index(object, number, &i) < 0)
        return NULL;
    void *bytes = NULL;
    struct hr_error error = {0};
    int r;
    Py_BEGIN_ALLOW_THREADS
        r = hr_dataset_read(core_dataset_handle(object), i, &bytes, &length, &error);
    Py_END_ALLOW_THREADS
    if (r) {
        /* With a file name, core_raise would turn -ENODATA into FileNotFoundError. */
        PyObject *path = r == -ENODATA ? NULL : dataset_path(object, number);
        PyErr_Clear();
        core_raise(core_state_of(object), r, &error, path);
        Py_XDECREF(path);
        return NULL;
    }
    PyObject *result = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)length);
    hr_bytes_free(bytes);
    return result;
}

static PyObject *dataset_label(PyObject *object, PyObject *number)
{
    size_t i;
    if (check_index(object, number, &i) < 0)
        return NULL;
    return PyLong_FromLongLong(hr_dataset_label(core_dataset_handle(object), i));
}

static PyObject *dataset_sample_bytes(PyObject *object, PyObject *number)
{
    size_t i;
    if (check_index(object, number, &i) < 0)
        return NULL;
    int64_t bytes = hr_dataset_sample_bytes(core_dataset_handle(object), i);
    if (bytes == HR_SIZE_UNKNOWN)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(bytes);
}

static PyObject *dataset_labels(PyObject *object, PyObject *none)
{
    const struct hr_dataset *handle = core_dataset_handle(object);
    size_t count = hr_dataset_count(handle);
    void *data;
    struct core_memory *memory = core_memory_of_block(count * sizeof(int64_t), &data);
    if (!memory)
        return PyErr_NoMemory();
    int64_t *labels = data;
    for (size_t i = 0; i < count; i++)
        labels[i] = hr_dataset_label(handle, i);
    Py_ssize_t shape = (Py_ssize_t)count;
    return core_array_new(core_state_of(object), memory, labels, CORE_INT64, 1, &shape);
}

static PyObject *dataset_names_digest(PyObject *object, PyObject *none)
{
    uint8_t digest[16];
    char text[2 * sizeof digest + 1];
    Py_BEGIN_ALLOW_THREADS
        hr_dataset_names_digest(core_dataset_handle(object), digest);
    Py_END_ALLOW_THREADS
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return PyUnicode_FromString(text);
}

static PyObject *dataset_classes(PyObject *object, PyObject *none)
{
    const struct hr_dataset *handle = core_dataset_handle(object);
    size_t count = hr_dataset_class_count(handle);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *name = PyUnicode_DecodeFSDefault(hr_dataset_class_name(handle, i));
        if (!name || PyList_SetItem(list, (Py_ssize_t)i, name) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *dataset_wait_sizes(PyObject *object, PyObject *none)
{
    int r;
    Py_BEGIN_ALLOW_THREADS
        r = hr_dataset_wait_sizes(core_dataset_handle(object));
    Py_END_ALLOW_THREADS
    if (r)
        return core_raise(core_state_of(object), r, NULL, NULL);
    Py_RETURN_NONE;
}

static PyObject *dataset_info(PyObject *object, PyObject *none)
{
    struct hr_dataset_info info = {.size = sizeof info};
    hr_dataset_get_info(core_dataset_handle(object), &info);
    PyObject *path = PyUnicode_DecodeFSDefault(info.index_path);
    return path ? Py_BuildValue("{s:O,s:K,s:K,s:N}", "from_index",
                                info.from_index ? Py_True : Py_False, "directories",
                                (unsigned long long)info.directories, "memory_bytes",
                                (unsigned long long)info.memory_bytes, "index_path", path)
                : NULL;
}

static PyObject *report_list(const struct hr_verify_report *report)
{
    size_t count = hr_verify_report_count(report);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        struct hr_bad_sample bad;
        hr_verify_report_get(report, i, &bad);
        PyObject *path = PyUnicode_DecodeFSDefault(bad.path);
        PyObject *reason = core_text(bad.reason);
        PyObject *entry = path && reason
                              ? Py_BuildValue("(KOO)", (unsigned long long)bad.index, path, reason)
                              : NULL;
        Py_XDECREF(path);
        Py_XDECREF(reason);
        if (!entry || PyList_SetItem(list, (Py_ssize_t)i, entry) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *dataset_verify(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"threads", NULL};
    int threads = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$i", names, &threads))
        return NULL;
    struct hr_verify_report *report = NULL;
    struct hr_error error = {0};
    struct core_watch watch;
    core_watch_begin(&watch);
    int r = hr_dataset_verify(core_dataset_handle(object), threads, core_watch_signals, &watch,
                              &report, &error);
    core_watch_end(&watch);
    core_log_drain(core_state_of(object));
    if (r)
        return core_raise(core_state_of(object), r, &error, NULL);
    PyObject *list = report_list(report);
    hr_verify_report_destroy(&report);
    return list;
}

static PyObject *dataset_root(PyObject *object, void *closure)
{
    return PyUnicode_DecodeFSDefault(hr_dataset_root(core_dataset_handle(object)));
}

static Py_ssize_t dataset_length(PyObject *object)
{
    return (Py_ssize_t)hr_dataset_count(core_dataset_handle(object));
}

#define KEYWORDS(f) (PyCFunction)(void (*)(void)) f, METH_VARARGS | METH_KEYWORDS

static PyObject *dataset_with_masks(PyObject *object, PyObject *masks)
{
    struct core_state *state = core_state_of(object);
    struct hr_dataset *handle = NULL;
    struct hr_error error = {0};
    if (!PyObject_TypeCheck(masks, state->dataset_type))
        return PyErr_Format(PyExc_TypeError, "masks must be a Dataset, not %R", masks);
    int r = hr_dataset_with_masks(&handle, core_dataset_handle(object), core_dataset_handle(masks),
                                  &error);
    return r ? core_raise(state, r, &error, NULL) : core_dataset_wrap(state, handle);
}

/* The masks as a dataset, or None. */
static PyObject *dataset_masks(PyObject *object, void *closure)
{
    const struct hr_dataset *masks = hr_dataset_masks(core_dataset_handle(object));
    if (!masks)
        Py_RETURN_NONE;
    return core_dataset_wrap(core_state_of(object), hr_dataset_ref((struct hr_dataset *)masks));
}

static PyMethodDef dataset_methods[] = {
    {"open_folder", (PyCFunction)(void (*)(void))dataset_open_folder,
     METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("open_folder(path, *, index=0, threads=0, wait_sizes=False, allow_empty=False)\n"
               "--\n\nAn image folder, root/class/...; index: 0 user cache, 1 beside, 2 none.")},
    {"open_list", (PyCFunction)(void (*)(void))dataset_open_list,
     METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("open_list(path, *, index=0, threads=0, wait_sizes=False, allow_empty=False)\n"
               "--\n\nA file of lines 'path label'.")},
    {"open_pack", (PyCFunction)(void (*)(void))dataset_open_pack,
     METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("open_pack(path, *, index=0, threads=0, wait_sizes=False, allow_empty=False)\n"
               "--\n\nA pack: one file that holds a dataset.")},
    {"open_tar", (PyCFunction)(void (*)(void))dataset_open_tar,
     METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("open_tar(path, *, index=0, threads=0, wait_sizes=False, allow_empty=False, "
               "label=None)\n--\n\nTar files: one file that holds a dataset.")},
    {"open_parquet", (PyCFunction)(void (*)(void))dataset_open_parquet,
     METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR(
         "open_parquet(paths, *, label=None, image=None)\n--\n\nParquet tables with images.")},
    {"open_coco", (PyCFunction)(void (*)(void))dataset_open_coco,
     METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("open_coco(images, annotations, *, contiguous_labels=False, keypoints=False, "
               "skip_crowds=False, skip_empty=False)\n--\n\nImages with boxes of a COCO file.")},
    {"open", (PyCFunction)(void (*)(void))dataset_open, METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("open(path, *, index=0, threads=0, wait_sizes=False, allow_empty=False)\n"
               "--\n\nWhat the path is: a folder, a pack or a list.")},
    {"from_paths", (PyCFunction)(void (*)(void))dataset_from_paths,
     METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("from_paths(paths, labels)\n--\n\nThe given samples; labels: int64 buffer.")},
    {"from_ranges", (PyCFunction)(void (*)(void))dataset_from_ranges,
     METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("from_ranges(paths, ranges)\n--\n\nRanges of files; ranges: int64 buffer, the path, "
               "offset, bytes and label of each.")},
    {"subset", dataset_subset, METH_O,
     PyDoc_STR("subset(indices)\n--\n\nThe samples at `indices`, an int64 buffer.")},
    {"with_rows", core_dataset_with_rows, METH_VARARGS,
     PyDoc_STR(
         "with_rows(columns, offsets)\n--\n\nThe same samples with rows. columns: (name, dtype, "
         "role, shape of a value, buffer); offsets: int64 buffer.")},
    {"with_masks", dataset_with_masks, METH_O,
     PyDoc_STR("with_masks(masks)\n--\n\nThe same samples; the mask of each is that of `masks`, a "
               "Dataset.")},
    {"columns", core_dataset_columns, METH_NOARGS,
     PyDoc_STR("columns()\n--\n\n[(name, dtype, role, shape of a value), ...] of the rows.")},
    {"rows", core_dataset_rows, METH_O,
     PyDoc_STR("rows(index)\n--\n\nThe rows of one sample as they are stored, by column.")},
    {"table", core_dataset_table, METH_NOARGS,
     PyDoc_STR(
         "table()\n--\n\nThe rows of all samples: (columns, offsets) as with_rows takes them, as\n"
         "bytes. None: it has no rows.")},
    {"path", dataset_path, METH_O, PyDoc_STR("path(index)\n--\n\nA path that can be opened.")},
    {"key", dataset_key, METH_O, PyDoc_STR("key(index)\n--\n\nThe path relative to the root.")},
    {"read", dataset_read, METH_O,
     PyDoc_STR("read(index)\n--\n\nThe sample's bytes, verified where it has a checksum.")},
    {"label", dataset_label, METH_O, PyDoc_STR("label(index)\n--\n\nThe label of one sample.")},
    {"labels", dataset_labels, METH_NOARGS,
     PyDoc_STR("labels()\n--\n\nAn int64 Array of all labels.")},
    {"names_digest", dataset_names_digest, METH_NOARGS,
     PyDoc_STR("names_digest()\n--\n\nOf all names and labels in their order: 32 digits.")},
    {"classes", dataset_classes, METH_NOARGS, PyDoc_STR("classes()\n--\n\nNames, sorted.")},
    {"sample_bytes", dataset_sample_bytes, METH_O,
     PyDoc_STR("sample_bytes(index)\n--\n\nSize of the file, or None while it is not known.")},
    {"wait_sizes", dataset_wait_sizes, METH_NOARGS,
     PyDoc_STR("wait_sizes()\n--\n\nWaits until all sizes are known.")},
    {"info", dataset_info, METH_NOARGS,
     PyDoc_STR("info()\n--\n\nHow the dataset came to be: from_index, directories, ...")},
    {"verify", KEYWORDS(dataset_verify),
     PyDoc_STR("verify(*, threads=0)\n--\n\nDecodes everything: [(index, path, reason), ...].")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef dataset_getset[] = {
    {"masks", dataset_masks, NULL, PyDoc_STR("The masks, a Dataset, or None."), NULL},
    {"root", dataset_root, NULL, PyDoc_STR("The directory as given, or ''."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot dataset_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A list of samples; made by its class methods.")},
    {Py_tp_dealloc, dataset_dealloc},
    {Py_tp_methods, dataset_methods},
    {Py_tp_getset, dataset_getset},
    {Py_sq_length, dataset_length},
    {0, NULL},
};

PyType_Spec core_dataset_spec = {
    .name = "headrace._core.Dataset",
    .basicsize = sizeof(struct dataset),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = dataset_slots,
};
