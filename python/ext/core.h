/*
 * What the files of the extension module headrace._core share.
 *
 * One C file per Python type. The extension is a thin layer: objects own one
 * library handle each, arguments are checked by the library, and everything
 * that is convenience lives in the pure Python package above it. All types are
 * heap types kept in the module's state; none holds Python references, so none
 * takes part in garbage collection.
 *
 * The GIL is released around whatever may block. An object whose library
 * handle serves one thread at a time has a `busy` mark, set and cleared under
 * the GIL: a second thread gets an exception instead of a race.
 */
#ifndef HEADRACE_PYTHON_CORE_H
#define HEADRACE_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <headrace/headrace.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core_state {
    PyTypeObject *array_type;
    PyTypeObject *batch_type;
    PyTypeObject *dataset_type;
    PyTypeObject *recipe_type;
    PyTypeObject *preparer_type;
    PyTypeObject *converter_type;
    PyTypeObject *loader_type;
    PyTypeObject *cache_type;
    PyTypeObject *agent_type;
    PyTypeObject *cache_value_type;
    PyTypeObject *stalls_schedule_type;
    PyTypeObject *storage_hold_type;
    PyTypeObject *memory_recorder_type;
    PyTypeObject *stalls_type;
    PyObject *sample_error;         /* headrace.SampleError */
    PyObject *too_many_bad_samples; /* headrace.TooManyBadSamples */
    PyObject *emit_log;             /* headrace._log.emit(level, message) */
};

/* errors.c: the state of the module that `self`'s type belongs to. */
struct core_state *core_state_of(PyObject *self);

/* errors.c: raises the Python exception for a library error. `filename` is a
 * str or bytes for OSErrors, or NULL. Always returns NULL. */
PyObject *core_raise(struct core_state *state, int code, const struct hr_error *error,
                     PyObject *filename);

/* errors.c: the same where a lack of room is the system's answer, an OSError. */
PyObject *core_raise_cache(struct core_state *state, int code, const struct hr_error *error);

/* errors.c: bytes of the library to str: UTF-8, anything else escaped. */
PyObject *core_text(const char *text);

/* values.c: sets an entry of a dictionary; takes `value` over, which may be NULL with an
 * exception. 0; -1 with an exception. */
int core_put(PyObject *dict, const char *key, PyObject *value);

/* values.c: the same of several numbers. */
struct core_number {
    const char *name;
    uint64_t value;
};
int core_put_numbers(PyObject *dict, const struct core_number *numbers, size_t count);

/* values.c: a list. */
PyObject *core_numbers(const uint64_t *values, size_t count);

/* log.c: the library's messages wait in a queue until a Python thread that
 * holds the GIL anyway passes them on; a pending exception is kept. */
int core_log_install(void);
void core_log_drain(struct core_state *state);

/* array.c */

enum core_dtype { CORE_UINT8, CORE_FLOAT16, CORE_BFLOAT16, CORE_FLOAT32, CORE_INT64 };

#define CORE_MAX_DIMENSIONS 4

/* Where an array's elements live: a batch of a loader, or a block of ours.
 * Counted without the GIL, because DLPack consumers drop theirs on any thread. */
struct core_memory;

/* A holder of one more reference to `batch` / of a new block of `bytes`, 64-byte
 * aligned, at *data. One reference for the caller; NULL: out of memory. */
struct core_memory *core_memory_of_batch(struct hr_batch *batch);
struct core_memory *core_memory_of_block(size_t bytes, void **data);
void core_memory_unref(struct core_memory *memory);

/* A C-contiguous array at `data`; takes over the caller's reference to
 * `memory`, on failure too. */
PyObject *core_array_new(struct core_state *state, struct core_memory *memory, void *data,
                         enum core_dtype dtype, int dimensions, const Py_ssize_t *shape);

enum core_dtype core_dtype_of(enum hr_dtype dtype);
const char *core_dtype_name(enum core_dtype dtype);

/* An array of one sample or, with count >= 0, of `count` samples. */
PyObject *core_array_of_spec(struct core_state *state, struct core_memory *memory, void *data,
                             const struct hr_tensor_spec *spec, Py_ssize_t count);

/* Gets a one-dimensional contiguous buffer of int64; raises TypeError else. */
int core_get_int64(PyObject *object, const char *what, Py_buffer *view);

/* batch.c: takes over the caller's reference to the batch. */
PyObject *core_batch_new(struct core_state *state, struct hr_batch *batch);

/* loader_hosts.c: a list of dicts; a dict; and rates of ranks out of a sequence of tuples, which
 * are PyMem_Free's. NULL with an exception. */
PyObject *core_hosts_of(const struct hr_loader *loader);
PyObject *core_rates_of(struct core_state *state, const struct hr_loader *loader);
struct hr_loader_rates *core_rates_take(PyObject *ranks, int *count);

/* converter.c: form_of(data) of the module. */
PyObject *core_form_of(PyObject *module, PyObject *data);

/* cache.c: cache_run(world_size) of the module. */
PyObject *core_cache_run(PyObject *module, PyObject *world_size);
/* cache.c: cache_bytes(text) and cache_kind(text) of the module. */
PyObject *core_cache_bytes(PyObject *module, PyObject *text);
PyObject *core_cache_kind(PyObject *module, PyObject *text);

/* agent.c: functions of the module. */
PyObject *core_agent_socket(PyObject *module, PyObject *none);
PyObject *core_agent_status(PyObject *module, PyObject *path);

/* dataset.c: a call into the library without the GIL, in which core_watch_signals (hr_progress_fn,
 * with the watch for its argument) runs Python's signal handlers and ends the call where one
 * raises. Calls with one watch come one after the other. */
struct core_watch {
    pthread_t caller;
    PyThreadState *saved;
};
void core_watch_begin(struct core_watch *watch);
void core_watch_end(struct core_watch *watch);
int core_watch_signals(void *arg, uint64_t done, uint64_t total, const char *stage);

/* Handles of other types' objects, borrowed. */
struct hr_dataset *core_dataset_handle(PyObject *self);
struct hr_recipe *core_recipe_handle(PyObject *self);

/* pack.c: functions of the module. */
PyObject *core_pack_write(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *core_pack_unpack(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *core_pack_inspect(PyObject *module, PyObject *path);

/* paths.c: paths as the library takes them, and the bytes objects that hold them. */
struct core_paths {
    const char **text;
    PyObject *owners; /* list */
    Py_ssize_t count;
};

/* Of a sequence of str, bytes or os.PathLike. 0; -1 with an exception, and nothing to clear. */
int core_paths_take(struct core_paths *paths, PyObject *sequence);
void core_paths_clear(struct core_paths *paths);

/* storage.c: functions of the module. */
PyObject *core_storage_check(PyObject *module, PyObject *paths);
PyObject *core_storage_drop(PyObject *module, PyObject *paths);
PyObject *core_storage_preread(PyObject *module, PyObject *paths);
PyObject *core_storage_measure(PyObject *module, PyObject *args, PyObject *kwargs);

extern PyType_Spec core_array_spec;
extern PyType_Spec core_batch_spec;
extern PyType_Spec core_dataset_spec;
extern PyType_Spec core_recipe_spec;
extern PyType_Spec core_preparer_spec;
extern PyType_Spec core_converter_spec;
extern PyType_Spec core_loader_spec;
extern PyType_Spec core_cache_spec;
extern PyType_Spec core_cache_value_spec;
extern PyType_Spec core_agent_spec;
extern PyType_Spec core_stalls_schedule_spec;
/* memory.c */
extern PyType_Spec core_memory_recorder_spec;

/* memory_analyse(path, h2d, d2h): the JSON text of an analysis. */
PyObject *core_memory_analyse(PyObject *module, PyObject *args);

/* memory_report.c: memory_write_text(paths, out, columns, h2d, d2h),
 * memory_write_page(paths, out, h2d, d2h), memory_compare([before, after]),
 * memory_import(from, to). */
PyObject *core_memory_write_text(PyObject *module, PyObject *args);
PyObject *core_memory_write_page(PyObject *module, PyObject *args);
PyObject *core_memory_compare(PyObject *module, PyObject *sequence);
PyObject *core_memory_import(PyObject *module, PyObject *args);

extern PyType_Spec core_storage_hold_spec;
extern PyType_Spec core_stalls_spec;

#endif
