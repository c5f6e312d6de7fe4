/*
 * Rows: what a dataset knows of its samples besides their bytes. Columns come in as buffers, and go
 * out as arrays that are copies, so that keeping them keeps no batch.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

static const char *const role_names[] = {"value", "box", "points", "sample"};
static const char *const dtype_names[] = {
    [HR_UINT8] = "uint8",     [HR_FLOAT16] = "float16", [HR_BFLOAT16] = "bfloat16",
    [HR_FLOAT32] = "float32", [HR_INT64] = "int64",     [HR_INT32] = "int32",
    [HR_FLOAT64] = "float64", [HR_BOOL] = "bool"};

/* Returns the index of a word; -1 with ValueError. */
static int find_word(const char *word, const char *const *words, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(word, words[i]))
            return (int)i;
    PyErr_Format(PyExc_ValueError, "%s '%s' is unknown", what, word);
    return -1;
}

/* Columns that were given, and their buffers. */
struct given {
    struct hr_column column[HR_COLUMNS_MAX];
    const void *data[HR_COLUMNS_MAX];
    Py_buffer view[HR_COLUMNS_MAX];
    size_t count; /* with a buffer that has to be released */
};

static int take_shape(struct hr_column *column, PyObject *shape)
{
    Py_ssize_t dims = PyTuple_Size(shape);
    if (dims < 0)
        return -1;
    if (dims > HR_COLUMN_DIMS_MAX) {
        PyErr_Format(PyExc_ValueError, "column %s has %zd dimensions: at most %d", column->name,
                     dims, HR_COLUMN_DIMS_MAX);
        return -1;
    }
    column->dims = (int)dims;
    for (Py_ssize_t i = 0; i < dims; i++) {
        long side = PyLong_AsLong(PyTuple_GetItem(shape, i));
        if (side == -1 && PyErr_Occurred())
            return -1;
        column->shape[i] = side < 0 || side > INT32_MAX ? 0 : (int)side;
    }
    return 0;
}

/* Takes (name, dtype, role, shape, data). values: for each row and for each sample. */
static int take_column(struct given *given, PyObject *tuple, const uint64_t values[2])
{
    struct hr_column *column = &given->column[given->count];
    Py_buffer *view = &given->view[given->count];
    const char *dtype, *role;
    PyObject *shape, *data;
    if (!PyArg_ParseTuple(tuple, "sssO!O", &column->name, &dtype, &role, &PyTuple_Type, &shape,
                          &data))
        return -1;
    int type = find_word(dtype, dtype_names, sizeof dtype_names / sizeof *dtype_names, "type");
    int kind =
        type < 0 ? -1 : find_word(role, role_names, sizeof role_names / sizeof *role_names, "role");
    if (kind < 0 || take_shape(column, shape) < 0)
        return -1;
    column->dtype = (enum hr_dtype)type;
    column->role = (enum hr_column_role)kind;
    if (PyObject_GetBuffer(data, view, PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    given->data[given->count++] = view->buf;
    size_t bytes = hr_dtype_bytes(column->dtype), wanted;
    for (int i = 0; i < column->dims && bytes <= HR_COLUMN_BYTES_MAX; i++)
        bytes *= (size_t)column->shape[i];
    if (__builtin_mul_overflow(bytes, values[kind == HR_COLUMN_SAMPLE], &wanted) ||
        wanted != (size_t)view->len) {
        PyErr_Format(PyExc_ValueError,
                     "column %s has %zd bytes of data, which is another number "
                     "of values than there are %s",
                     column->name, view->len, kind == HR_COLUMN_SAMPLE ? "samples" : "rows");
        return -1;
    }
    return 0;
}

static int take_columns(struct given *given, PyObject *list, const uint64_t values[2])
{
    Py_ssize_t count = PyList_Size(list);
    if (count > HR_COLUMNS_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd columns are too many: at most %d", count,
                     HR_COLUMNS_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (take_column(given, PyList_GetItem(list, i), values) < 0)
            return -1;
    return 0;
}

PyObject *core_dataset_with_rows(PyObject *object, PyObject *args)
{
    struct core_state *state = core_state_of(object);
    struct hr_dataset *parent = core_dataset_handle(object), *handle = NULL;
    struct hr_error error = {0};
    PyObject *list, *numbers, *result = NULL;
    Py_buffer offsets;
    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &list, &numbers) ||
        core_get_int64(numbers, "offsets", &offsets) < 0)
        return NULL;
    struct given *given = calloc(1, sizeof *given);
    uint64_t samples = hr_dataset_count(parent);
    if (!given) {
        PyErr_NoMemory();
    } else if ((uint64_t)offsets.len / 8 != samples + 1) {
        PyErr_Format(PyExc_ValueError, "there are %zd offsets for %llu samples: one more is needed",
                     offsets.len / 8, (unsigned long long)samples);
    } else {
        const uint64_t *at = offsets.buf;
        const uint64_t values[2] = {at[samples], samples};
        if (!take_columns(given, list, values)) {
            int r;
            Py_BEGIN_ALLOW_THREADS
                r = hr_dataset_with_rows(&handle, parent, given->column, given->count, at,
                                         given->data, &error);
            Py_END_ALLOW_THREADS
            result = r ? core_raise(state, r, &error, NULL) : core_dataset_wrap(state, handle);
        }
    }
    for (size_t i = 0; given && i < given->count; i++)
        PyBuffer_Release(&given->view[i]);
    free(given);
    PyBuffer_Release(&offsets);
    return result;
}

/* Returns (name, dtype, role, shape) of a column, and behind it `data`, a reference that this
 * takes, unless it is NULL. */
static PyObject *describe_column(const struct hr_column *column, PyObject *data)
{
    PyObject *shape = PyTuple_New(column->dims);
    for (int i = 0; shape && i < column->dims; i++)
        if (PyTuple_SetItem(shape, i, PyLong_FromLong(column->shape[i])) < 0)
            Py_CLEAR(shape);
    PyObject *name = core_text(column->name), *entry = NULL;
    if (shape && name)
        entry = Py_BuildValue(data ? "(OssOO)" : "(OssO)", name, dtype_names[column->dtype],
                              role_names[column->role], shape, data);
    Py_XDECREF(name);
    Py_XDECREF(shape);
    Py_XDECREF(data);
    return entry;
}

PyObject *core_dataset_columns(PyObject *object, PyObject *none)
{
    const struct hr_dataset *handle = core_dataset_handle(object);
    PyObject *list = PyList_New(0);
    for (size_t c = 0; list && c < hr_dataset_column_count(handle); c++) {
        struct hr_column column;
        hr_dataset_column(handle, c, &column);
        PyObject *entry = describe_column(&column, NULL);
        if (!entry || PyList_Append(list, entry) < 0)
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}

static size_t value_bytes(const struct hr_column *column)
{
    size_t bytes = hr_dtype_bytes(column->dtype);
    for (int i = 0; i < column->dims; i++)
        bytes *= (size_t)column->shape[i];
    return bytes;
}

/* Returns the values of a column for all samples, as bytes. */
static PyObject *column_values(const struct hr_dataset *dataset, size_t c, size_t bytes)
{
    size_t samples = hr_dataset_count(dataset), total = 0, count;
    for (size_t i = 0; i < samples; i++) {
        (void)hr_dataset_rows(dataset, i, c, &count);
        total += count;
    }
    PyObject *values = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(total * bytes));
    if (!values)
        return NULL;
    char *at = PyBytes_AsString(values);
    for (size_t i = 0; i < samples; i++) {
        const void *from = hr_dataset_rows(dataset, i, c, &count);
        if (count)
            memcpy(at, from, count * bytes);
        at += count * bytes;
    }
    return values;
}

/* Returns where the rows of each sample begin, and their end, as bytes. `c`: a column that has
 * rows; if none has, as many as there are columns. */
static PyObject *row_offsets(const struct hr_dataset *dataset, size_t c)
{
    size_t samples = hr_dataset_count(dataset), count = 0;
    PyObject *offsets =
        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((samples + 1) * sizeof(int64_t)));
    char *to = offsets ? PyBytes_AsString(offsets) : NULL;
    int64_t at = 0;
    for (size_t i = 0; to && i <= samples; i++) {
        memcpy(to + i * sizeof at, &at, sizeof at);
        if (i < samples && c < hr_dataset_column_count(dataset))
            (void)hr_dataset_rows(dataset, i, c, &count);
        at += (int64_t)count;
    }
    return offsets;
}

PyObject *core_dataset_table(PyObject *object, PyObject *none)
{
    const struct hr_dataset *handle = core_dataset_handle(object);
    size_t columns = hr_dataset_column_count(handle), with_rows = columns;
    if (!columns)
        Py_RETURN_NONE;
    PyObject *list = PyList_New(0);
    for (size_t c = 0; list && c < columns; c++) {
        struct hr_column column;
        hr_dataset_column(handle, c, &column);
        if (column.role != HR_COLUMN_SAMPLE)
            with_rows = c;
        PyObject *values = column_values(handle, c, value_bytes(&column));
        PyObject *entry = values ? describe_column(&column, values) : NULL;
        if (!entry || PyList_Append(list, entry) < 0)
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    PyObject *offsets = list ? row_offsets(handle, with_rows) : NULL;
    PyObject *result = offsets ? PyTuple_Pack(2, list, offsets) : NULL;
    Py_XDECREF(list);
    Py_XDECREF(offsets);
    return result;
}

/* Returns a new array of `dims` dimensions with a copy of `data`. */
static PyObject *copy_array(struct core_state *state, const void *data, enum hr_dtype dtype,
                            int dims, const Py_ssize_t *shape)
{
    size_t bytes = hr_dtype_bytes(dtype);
    void *copy;
    for (int i = 0; i < dims; i++)
        bytes *= (size_t)shape[i];
    struct core_memory *memory = core_memory_of_block(bytes, &copy);
    if (!memory)
        return PyErr_NoMemory();
    if (bytes)
        memcpy(copy, data, bytes);
    return core_array_new(state, memory, copy, core_dtype_of(dtype), dims, shape);
}

PyObject *core_dataset_rows(PyObject *object, PyObject *number)
{
    const struct hr_dataset *handle = core_dataset_handle(object);
    Py_ssize_t index = PyNumber_AsSsize_t(number, PyExc_IndexError);
    if (index == -1 && PyErr_Occurred())
        return NULL;
    if (index < 0 || (size_t)index >= hr_dataset_count(handle))
        return PyErr_Format(PyExc_IndexError, "sample %zd of %zu", index, hr_dataset_count(handle));
    PyObject *dict = PyDict_New();
    for (size_t c = 0; dict && c < hr_dataset_column_count(handle); c++) {
        struct hr_column column;
        Py_ssize_t shape[1 + HR_COLUMN_DIMS_MAX];
        size_t count;
        hr_dataset_column(handle, c, &column);
        const void *data = hr_dataset_rows(handle, (size_t)index, c, &count);
        int first = column.role != HR_COLUMN_SAMPLE;
        shape[0] = (Py_ssize_t)count;
        for (int i = 0; i < column.dims; i++)
            shape[first + i] = column.shape[i];
        PyObject *array =
            copy_array(core_state_of(object), data, column.dtype, first + column.dims, shape);
        if (core_put(dict, column.name, array) < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

static size_t field_bytes(const struct hr_field *field)
{
    size_t bytes = hr_dtype_bytes(field->dtype);
    for (int i = 0; i < field->dims; i++)
        bytes *= (size_t)field->shape[i];
    return bytes;
}

/* The copies of all columns of a batch: one block of memory. */
struct copies {
    struct core_state *state;
    struct core_memory *memory;
    char *at; /* the place of the next one */
};

static size_t place_bytes(const struct hr_field *field)
{
    return (field_bytes(field) + 63) & ~(size_t)63;
}

/* Returns an array of the next copy. */
static PyObject *copy_field(struct copies *copies, const struct hr_field *field)
{
    Py_ssize_t shape[CORE_MAX_DIMENSIONS];
    char *at = copies->at;
    for (int i = 0; i < field->dims; i++)
        shape[i] = (Py_ssize_t)field->shape[i];
    if (field_bytes(field))
        memcpy(at, field->data, field_bytes(field));
    copies->at += place_bytes(field);
    return core_array_new(copies->state, core_memory_ref(copies->memory), at,
                          core_dtype_of(field->dtype), field->dims, shape);
}

/* Adds a column to the dict of arrays, and its name to the list of those with rows. */
static int add_field(struct copies *copies, const struct hr_field *field, PyObject *columns,
                     PyObject *with_rows)
{
    PyObject *name = core_text(field->name), *array = name ? copy_field(copies, field) : NULL;
    int r = array ? PyDict_SetItem(columns, name, array) : -1;
    if (!r && field->offsets)
        r = PyList_Append(with_rows, name);
    Py_XDECREF(name);
    Py_XDECREF(array);
    return r;
}

/* Returns the number of the first field that is a column, and their bytes with those of offsets,
 * which are set. */
static size_t find_columns(const struct hr_batch *batch, size_t *bytes, struct hr_field *offsets)
{
    struct hr_batch_view view;
    struct hr_field field;
    size_t first = 0;
    hr_batch_get(batch, &view);
    while (!hr_batch_field(batch, first, &field) && strcmp(field.name, "indices"))
        first++;
    *offsets = (struct hr_field){.dtype = HR_INT64, .dims = 1, .shape = {(int64_t)view.count + 1}};
    *bytes = place_bytes(offsets);
    for (size_t i = ++first; !hr_batch_field(batch, i, &field); i++) {
        *bytes += place_bytes(&field);
        if (field.offsets)
            offsets->data = (void *)(uintptr_t)field.offsets;
    }
    return first;
}

PyObject *core_batch_rows(struct core_state *state, const struct hr_batch *batch)
{
    struct hr_field field, offsets;
    struct copies copies = {.state = state};
    size_t bytes, i = find_columns(batch, &bytes, &offsets);
    void *block;
    if (hr_batch_field(batch, i, &field))
        Py_RETURN_NONE;
    copies.memory = core_memory_of_block(bytes, &block);
    if (!copies.memory)
        return PyErr_NoMemory();
    copies.at = block;
    PyObject *columns = PyDict_New(), *with_rows = PyList_New(0), *result = NULL, *places = NULL;
    int r = columns && with_rows ? 0 : -1;
    for (; !r && !hr_batch_field(batch, i, &field); i++)
        r = add_field(&copies, &field, columns, with_rows);
    if (!r)
        places = offsets.data ? copy_field(&copies, &offsets) : Py_NewRef(Py_None);
    if (places)
        result = PyTuple_Pack(3, columns, with_rows, places);
    Py_XDECREF(columns);
    Py_XDECREF(with_rows);
    Py_XDECREF(places);
    core_memory_unref(copies.memory);
    return result;
}

int core_columns_make(struct core_columns *columns, const struct hr_dataset *dataset)
{
    memset(columns, 0, sizeof *columns);
    for (size_t c = 0; c < hr_dataset_column_count(dataset); c++) {
        struct hr_column column;
        hr_dataset_column(dataset, c, &column);
        size_t most = hr_dataset_most_rows(dataset);
        columns->memory[c] =
            core_memory_of_block((most + 1) * value_bytes(&column), &columns->data[c]);
        if (!columns->memory[c]) {
            core_columns_free(columns);
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

void core_columns_free(struct core_columns *columns)
{
    for (size_t c = 0; c < HR_COLUMNS_MAX; c++)
        if (columns->memory[c])
            core_memory_unref(columns->memory[c]);
}

PyObject *core_columns_wrap(struct core_state *state, struct core_columns *columns,
                            const struct hr_dataset *dataset, size_t rows)
{
    PyObject *dict = PyDict_New();
    for (size_t c = 0; dict && c < hr_dataset_column_count(dataset); c++) {
        struct hr_column column;
        Py_ssize_t shape[1 + HR_COLUMN_DIMS_MAX] = {(Py_ssize_t)rows};
        hr_dataset_column(dataset, c, &column);
        int first = column.role != HR_COLUMN_SAMPLE;
        for (int i = 0; i < column.dims; i++)
            shape[first + i] = column.shape[i];
        struct core_memory *memory = columns->memory[c];
        columns->memory[c] = NULL;
        if (core_put(dict, column.name,
                     core_array_new(state, memory, columns->data[c], core_dtype_of(column.dtype),
                                    first + column.dims, shape)) < 0)
            Py_CLEAR(dict);
    }
    core_columns_free(columns);
    return dict;
}
