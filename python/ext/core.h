/*
 * Internal header of the extension module headrace._core.
 *
 * Each Python type has a C file. The extension is a thin layer: an object owns
 * one library handle, the library checks the arguments, and the pure Python
 * package adds everything convenient. The types are heap types stored in the
 * module's state. Only MemoryRecorder (memory.c) takes part in garbage
 * collection: no other type holds references that can form a cycle.
 *
 * The GIL is released around calls that may block. An object whose library
 * handle allows one thread at a time has a `busy` flag, set and cleared under
 * the GIL: a second thread gets an exception instead of a race. Python without the
 * GIL: see locked.h.
 */
#ifndef HEADRACE_PYTHON_CORE_H
#define HEADRACE_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "locked.h"

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
    PyTypeObject *producer_type;
    PyTypeObject *cache_value_type;
    PyTypeObject *stalls_schedule_type;
    PyTypeObject *storage_hold_type;
    PyTypeObject *meter_type;
    PyTypeObject *memory_recorder_type;
    PyTypeObject *stalls_type;
    PyTypeObject *replay_type;
    PyTypeObject *scenario_type;
    PyObject *sample_error;         /* headrace.SampleError */
    PyObject *too_many_bad_samples; /* headrace.TooManyBadSamples */
    PyObject *emit_log;             /* headrace._log.emit(level, message) */
};

/* errors.c: returns the state of the module that defines `self`'s type. */
struct core_state *core_state_of(PyObject *self);

/* errors.c: raises the Python exception for a library error code. `filename` is
 * the str or bytes to put in an OSError, or NULL. Always returns NULL. */
PyObject *core_raise(struct core_state *state, int code, const struct hr_error *error,
                     PyObject *filename);

/* errors.c: as core_raise, but -ENOSPC raises OSError instead of ValueError. */
PyObject *core_raise_cache(struct core_state *state, int code, const struct hr_error *error);

/* errors.c: converts text of the library to str: decodes UTF-8, escapes other bytes. */
PyObject *core_text(const char *text);

/* values.c: sets dict[key] = value and steals the reference to `value`, which may be NULL if an
 * exception is set. Returns 0, or -1 with an exception. */
int core_put(PyObject *dict, const char *key, PyObject *value);

/* values.c: sets several integer entries. Returns 0, or -1 with an exception. */
struct core_number {
    const char *name;
    uint64_t value;
};
int core_put_numbers(PyObject *dict, const struct core_number *numbers, size_t count);

/* values.c: returns a list of ints, or NULL with an exception. */
PyObject *core_numbers(const uint64_t *values, size_t count);

/* log.c: core_log_install queues the library's log messages; core_log_drain
 * passes queued messages to Python's logging. Call it with the GIL held; it
 * preserves a pending exception. */
int core_log_install(void);
void core_log_drain(struct core_state *state);

/* array.c */

enum core_dtype {
    CORE_UINT8,
    CORE_FLOAT16,
    CORE_BFLOAT16,
    CORE_FLOAT32,
    CORE_INT64,
    CORE_INT32,
    CORE_FLOAT64,
    CORE_BOOL,
};

#define CORE_MAX_DIMENSIONS 5

/* The memory of an array's elements: a loader's batch, or a block allocated here.
 * References are counted atomically, without the GIL, because DLPack consumers
 * drop theirs on any thread. */
struct core_memory;

/* core_memory_of_batch takes one more reference to `batch`; core_memory_of_block
 * allocates `bytes` bytes, 64-byte aligned, and sets *data. Both return one
 * reference, which the caller owns, or NULL if out of memory. */
struct core_memory *core_memory_of_batch(struct hr_batch *batch);
struct core_memory *core_memory_of_block(size_t bytes, void **data);

/* Blocks that are kept when they are no longer used, for the next ones of the same size. Memory
 * from a pool goes back to it, in any thread, even after the pool was closed. Takes the GIL
 * nowhere. */
struct core_pool;
struct core_pool *core_pool_new(void); /* NULL: out of memory */
void core_pool_close(struct core_pool *pool);

/* As core_memory_of_block, from a pool. */
struct core_memory *core_memory_of_pool(struct core_pool *pool, size_t bytes, void **data);

/* For core_memory alone: blocks of a multiple of 64 bytes; NULL if out of memory. */
void *core_pool_take(struct core_pool *pool, size_t bytes);
void core_pool_return(struct core_pool *pool, void *block, size_t bytes);

/* Returns `memory`, with one reference more. */
struct core_memory *core_memory_ref(struct core_memory *memory);
void core_memory_unref(struct core_memory *memory);

/* Returns a new C-contiguous array at `data`. Takes over the caller's reference
 * to `memory`, even on failure. */
PyObject *core_array_new(struct core_state *state, struct core_memory *memory, void *data,
                         enum core_dtype dtype, int dimensions, const Py_ssize_t *shape);

enum core_dtype core_dtype_of(enum hr_dtype dtype);
const char *core_dtype_name(enum core_dtype dtype);

/* As core_array_new, with type and shape from `spec`: one sample if count < 0,
 * otherwise `count` samples. */
PyObject *core_array_of_spec(struct core_state *state, struct core_memory *memory, void *data,
                             const struct hr_tensor_spec *spec, Py_ssize_t count);

/* Gets a one-dimensional contiguous buffer of int64. Returns 0; -1 with an
 * exception, TypeError for other shapes and types. */
int core_get_int64(PyObject *object, const char *what, Py_buffer *view);

/* batch.c: takes over the caller's reference to the batch, even on failure. */
PyObject *core_batch_new(struct core_state *state, struct hr_batch *batch);

/* rows.c: methods of Dataset: with_rows(columns, offsets), columns() and rows(index); and what
 * Batch.rows returns. */
PyObject *core_dataset_with_rows(PyObject *dataset, PyObject *args);
PyObject *core_dataset_columns(PyObject *dataset, PyObject *none);
PyObject *core_dataset_rows(PyObject *dataset, PyObject *number);
PyObject *core_dataset_table(PyObject *dataset, PyObject *none);

/* Room for the rows of one sample of a dataset, and what is made of it. core_columns_make returns
 * -1 with an exception; core_columns_wrap takes the memory over and returns a dict. */
struct core_columns {
    struct core_memory *memory[HR_COLUMNS_MAX];
    void *data[HR_COLUMNS_MAX];
};
int core_columns_make(struct core_columns *columns, const struct hr_dataset *dataset);
void core_columns_free(struct core_columns *columns);
PyObject *core_columns_wrap(struct core_state *state, struct core_columns *columns,
                            const struct hr_dataset *dataset, size_t rows);
PyObject *core_batch_rows(struct core_state *state, const struct hr_batch *batch);

/* loader_hosts.c: core_hosts_of returns a list of dicts, core_rates_of a dict. core_rates_take
 * converts a sequence of tuples to an array that the caller frees with PyMem_Free. All return
 * NULL with an exception. */
PyObject *core_hosts_of(const struct hr_loader *loader);
PyObject *core_rates_of(struct core_state *state, const struct hr_loader *loader);
struct hr_loader_rates *core_rates_take(PyObject *ranks, int *count);

/* converter.c: module function form_of(data). */
PyObject *core_form_of(PyObject *module, PyObject *data);
PyObject *core_is_sound(PyObject *module, PyObject *data);

/* order.c: module functions order(samples, shuffle, seed, epoch) and
 * order_replacement(samples, seed, epoch, position, attempt). */
PyObject *core_order(PyObject *module, PyObject *args);
PyObject *core_order_replacement(PyObject *module, PyObject *args);

/* cache.c: module functions cache_run(world_size), cache_bytes(text) and cache_kind(text). */
PyObject *core_cache_run(PyObject *module, PyObject *world_size);
PyObject *core_cache_bytes(PyObject *module, PyObject *text);
PyObject *core_cache_kind(PyObject *module, PyObject *text);

/* meter.c: the module function metrics_text(). */
PyObject *core_metrics_text(PyObject *module, PyObject *none);

/* agent.c: module functions agent_socket() and agent_status(path). */
PyObject *core_agent_socket(PyObject *module, PyObject *none);
PyObject *core_agent_status(PyObject *module, PyObject *path);

/* dataset.c: runs a library call without the GIL but with Python's signal handlers. Call
 * core_watch_begin before the library and core_watch_end after it, and pass core_watch_signals as
 * the hr_progress_fn with the watch as its argument: it runs the handlers and cancels the call if
 * one raises. A watch serves one call at a time. */
struct core_watch {
    pthread_t caller;
    PyThreadState *saved;
};
void core_watch_begin(struct core_watch *watch);
void core_watch_end(struct core_watch *watch);
int core_watch_signals(void *arg, uint64_t done, uint64_t total, const char *stage);

/* Return the library handle of an object, borrowed. */
struct hr_dataset *core_dataset_handle(PyObject *self);
struct hr_recipe *core_recipe_handle(PyObject *self);

/* Return a new object that owns the caller's reference, which is dropped on failure. */
PyObject *core_dataset_wrap(struct core_state *state, struct hr_dataset *handle);
PyObject *core_recipe_wrap(struct core_state *state, struct hr_recipe *handle);

/* producer.c: a module function. */
PyObject *core_produced(PyObject *module, PyObject *args, PyObject *kwargs);

/* pack.c: module functions. */
PyObject *core_pack_write(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *core_pack_unpack(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *core_pack_inspect(PyObject *module, PyObject *path);

/* paths.c: an array of paths as C strings, and the bytes objects that own them. */
struct core_paths {
    const char **text;
    PyObject *owners; /* list */
    Py_ssize_t count;
};

/* Converts a sequence of str, bytes or os.PathLike. Returns 0; -1 with an exception, and then
 * there is nothing to clear. */
int core_paths_take(struct core_paths *paths, PyObject *sequence);
void core_paths_clear(struct core_paths *paths);

/* storage.c: module functions. */
PyObject *core_storage_check(PyObject *module, PyObject *paths);
PyObject *core_storage_drop(PyObject *module, PyObject *paths);
PyObject *core_storage_preread(PyObject *module, PyObject *paths);
PyObject *core_storage_measure(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *core_storage_measure_samples(PyObject *module, PyObject *args, PyObject *kwargs);

/* errors.c: marks an object that works without the GIL as busy; `type` names it. Returns 0, or -1
 * with an exception if it is already. */
int core_enter(bool *busy, const char *type);

/* segment.c: module functions; core_stalls_again is a method of StallsSchedule. */
PyObject *core_stalls_judge(PyObject *module, PyObject *evidence);
PyObject *core_stalls_again(struct hr_stalls_schedule *schedule, PyObject *evidence);
PyObject *core_stalls_notes(PyObject *module, PyObject *args);
PyObject *core_stalls_pauses(PyObject *module, PyObject *args);
PyObject *core_stalls_load(PyObject *module, PyObject *root);
/* schedule.c: a module function. */
PyObject *core_stalls_lengths(PyObject *module, PyObject *args, PyObject *kwargs);

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
extern PyType_Spec core_producer_spec;
extern PyType_Spec core_stalls_schedule_spec;
/* memory.c */
extern PyType_Spec core_memory_recorder_spec;

/* Module function memory_analyse(path, h2d, d2h): returns an analysis as JSON text. */
PyObject *core_memory_analyse(PyObject *module, PyObject *args);

/* memory_report.c: module functions memory_write_text(paths, out, columns, h2d, d2h),
 * memory_write_page(paths, out, h2d, d2h), memory_compare([before, after]) and
 * memory_import(from, to). */
PyObject *core_memory_write_text(PyObject *module, PyObject *args);
PyObject *core_memory_write_page(PyObject *module, PyObject *args);
PyObject *core_memory_compare(PyObject *module, PyObject *sequence);
PyObject *core_memory_import(PyObject *module, PyObject *args);

/* plan.c: module function plan(text, page, trace, *, gpus, batch, ...): returns JSON text. */
PyObject *core_plan(PyObject *module, PyObject *args, PyObject *kwargs);

/* replay.c: returns the library handle, borrowed. scenario.c uses it. */
struct hr_replay *core_replay_handle(PyObject *self);
extern PyType_Spec core_replay_spec;
extern PyType_Spec core_scenario_spec;

extern PyType_Spec core_storage_hold_spec;
extern PyType_Spec core_meter_spec;
extern PyType_Spec core_stalls_spec;

#endif
