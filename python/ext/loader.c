/*
 * headrace._core.Loader: owns a library loader.
 *
 * next() waits without the GIL. The library interrupts the wait with -EINTR from
 * time to time, so that Python's signal handlers can run (Ctrl-C); then the wait
 * resumes. One thread at a time may make a call that advances the loader. Any
 * thread may read statistics meanwhile.
 */
#include "core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct loader {
    PyObject_HEAD struct hr_loader *handle; /* NULL once closed */
    bool busy;                /* an advancing call is in progress; guarded by the GIL */
    struct core_watch *watch; /* progress_arg of the library: for calls that wait for an agent */
    PyObject *watcher;        /* called while next() waits; NULL: none */
};

/* Returns the index of an option's value in the NULL-terminated `words`; -1 with an exception. */
static int place_of(const char *option, const char *text, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (PyOS_stricmp(text, words[i]) == 0)
            return i;
    char listed[160] = "";
    for (int i = 0; words[i]; i++) {
        size_t length = strlen(listed);
        const char *before = !i ? "" : words[i + 1] ? ", " : " or ";
        snprintf(listed + length, sizeof listed - length, "%s'%s'", before, words[i]);
    }
    PyErr_Format(PyExc_ValueError, "%s must be %s, not '%s'", option, listed, text);
    return -1;
}

/* Options as given that are not the library's, and the bytes objects that own the paths among them.
 */
struct loader_words {
    const char *on_error, *cache_form, *join, *lag, *assignment;
    PyObject *agent, *agent_command; /* bytes, or NULL */
    PyObject *cache_of;              /* a Loader, or None; borrowed */
};

static int parse_words(const struct loader_words *words, struct hr_loader_options *options)
{
    options->agent = words->agent ? PyBytes_AsString(words->agent) : NULL;
    options->agent_command = words->agent_command ? PyBytes_AsString(words->agent_command) : NULL;
    /* Each list has the order of its enum. */
    static const char *const on_error[] = {"raise", "skip", NULL};
    const char *forms[HR_FORMS + 2] = {"auto"};
    static const char *const joins[] = {"epoch", "now", NULL}, *const lags[] = {"alone", "wait",
                                                                                NULL};
    static const char *const assignments[] = {"auto", "local", "exact", NULL};
    for (int form = 0; form < HR_FORMS; form++)
        forms[1 + form] = hr_form_name((enum hr_form)form);
    const int places[] = {
        place_of("on_error", words->on_error, on_error),
        place_of("cache_form", words->cache_form, forms),
        place_of("join", words->join, joins),
        place_of("lag", words->lag, lags),
        place_of("assignment", words->assignment, assignments),
    };
    options->on_error = places[0];
    options->cache_form = HR_FORM_AUTO + places[1];
    options->join = places[2];
    options->lag = places[3];
    options->assignment = places[4];
    return PyErr_Occurred() ? -1 : 0;
}

/* Library options in error messages, and the DataLoader's names for them. */
static const struct {
    const char *option, *argument;
} renamed[] = {
    {"batches_ahead", "prefetch_factor"},
    {"threads = ", "num_workers = "},
    {"`threads`", "`num_workers`"},
    {"`pinned`", "`pin_memory`"},
};

/* Raises a library error, with options renamed to the DataLoader's arguments. */
static PyObject *raise_renamed(struct core_state *state, int code, const struct hr_error *error)
{
    struct hr_error copy = {.code = error->code};
    size_t length = 0;
    for (const char *p = error->message; *p && length + 1 < sizeof copy.message;) {
        const char *word = NULL;
        for (size_t i = 0; !word && i < sizeof renamed / sizeof *renamed; i++)
            if (!strncmp(p, renamed[i].option, strlen(renamed[i].option))) {
                word = renamed[i].argument;
                p += strlen(renamed[i].option);
            }
        if (!word) {
            copy.message[length++] = *p++;
            continue;
        }
        int n = snprintf(copy.message + length, sizeof copy.message - length, "%s", word);
        length =
            length + (size_t)n < sizeof copy.message ? length + (size_t)n : sizeof copy.message - 1;
    }
    /* -EEXIST: two entries of a list of hosts are this machine. FileExistsError would mislead.
     * -EOVERFLOW lists bad samples: file names in it must not be rewritten. */
    if (code == -EEXIST)
        code = -EINVAL;
    return core_raise_cache(state, code, code == -EOVERFLOW ? error : &copy);
}

/* Fills in *options from the arguments. *words owns strings that *options points to. */
static int loader_options(struct core_state *state, PyObject *args, PyObject *kwargs,
                          PyObject *sources[2], struct loader_words *words,
                          struct hr_loader_options *options)
{
    static char *names[] = {"dataset",
                            "recipe",
                            "batch_size",
                            "shuffle",
                            "drop_last",
                            "seed",
                            "rank",
                            "world_size",
                            "threads",
                            "local_world_size",
                            "batches_ahead",
                            "staging_bytes",
                            "direct_io",
                            "no_io_uring",
                            "on_error",
                            "max_bad_share",
                            "external_order",
                            "pinned",
                            "cache",
                            "cache_form",
                            "epochs",
                            "agent",
                            "stream",
                            "join",
                            "lag",
                            "window",
                            "agent_command",
                            "assignment",
                            "mixup_alpha",
                            "cutmix_alpha",
                            "mix_share",
                            "cutmix_share",
                            "metrics",
                            "metrics_rank",
                            "cache_evicts",
                            "cache_of",
                            NULL};
    struct hr_loader_options *o = options;
    unsigned long long seed = o->seed, staging_bytes = o->staging_bytes, epochs = o->epochs;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!O!|$ippKiiiiiKppsdppzsKO&zssiO&sddddzipO", names, state->dataset_type,
            &sources[0], state->recipe_type, &sources[1], &o->batch_size, &o->shuffle,
            &o->drop_last, &seed, &o->rank, &o->world_size, &o->threads, &o->local_world_size,
            &o->batches_ahead, &staging_bytes, &o->direct_io, &o->no_io_uring, &words->on_error,
            &o->max_bad_share, &o->external_order, &o->pinned, &o->cache, &words->cache_form,
            &epochs, PyUnicode_FSConverter, &words->agent, &o->stream, &words->join, &words->lag,
            &o->window, PyUnicode_FSConverter, &words->agent_command, &words->assignment,
            &o->mixup_alpha, &o->cutmix_alpha, &o->mix_share, &o->cutmix_share, &o->metrics,
            &o->metrics_rank, &o->cache_evicts, &words->cache_of))
        return -1;
    o->epochs = epochs;
    o->seed = seed;
    o->staging_bytes = staging_bytes;
    o->wait_ms = 100; /* bounds the delay of Ctrl-C if another thread received the signal */
    return parse_words(words, o);
}

static int enter(struct loader *self);

/* Finds the loader whose cache another one is to share, and enters it, so that no thread closes it
 * meanwhile. *out: it, or NULL for none. Returns 0, or -1 with an exception. */
static int enter_cache_of(PyTypeObject *type, PyObject *given, struct loader **out)
{
    if (!given || given == Py_None)
        return 0;
    if (!PyObject_TypeCheck(given, type)) {
        PyErr_Format(PyExc_TypeError, "cache_of must be a Loader, got %R", given);
        return -1;
    }
    if (enter((struct loader *)given) < 0)
        return -1;
    *out = (struct loader *)given;
    return 0;
}

static PyObject *loader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct core_state *state = PyType_GetModuleState(type);
    struct hr_loader_options options;
    hr_loader_options_default(&options);
    struct loader_words words = {.on_error = "raise",
                                 .cache_form = "auto",
                                 .join = "epoch",
                                 .lag = "alone",
                                 .assignment = "auto"};
    PyObject *sources[2];
    struct loader *beside = NULL;
    struct hr_loader *handle = NULL;
    struct core_watch *watch = NULL;
    struct hr_error error = {0};
    PyObject *result = NULL;
    int r;
    if (loader_options(state, args, kwargs, sources, &words, &options) < 0 ||
        enter_cache_of(type, words.cache_of, &beside) < 0)
        goto out;
    options.cache_of = beside ? beside->handle : NULL;
    watch = PyMem_Malloc(sizeof *watch);
    if (!watch) {
        PyErr_NoMemory();
        goto out;
    }
    options.progress = core_watch_signals;
    options.progress_arg = watch;
    core_watch_begin(watch);
    r = hr_loader_create(&handle, core_dataset_handle(sources[0]), core_recipe_handle(sources[1]),
                         &options, &error);
    core_watch_end(watch);
    core_log_drain(state);
    if (r) {
        raise_renamed(state, r, &error);
        goto out;
    }
    struct loader *self = PyObject_New(struct loader, type);
    if (!self) {
        hr_loader_destroy(&handle);
        goto out;
    }
    self->handle = handle;
    self->busy = false;
    self->watch = watch;
    self->watcher = NULL;
    watch = NULL;
    result = (PyObject *)self;
out:
    if (beside)
        beside->busy = false;
    PyMem_Free(watch);
    Py_XDECREF(words.agent);
    Py_XDECREF(words.agent_command);
    return result;
}

static void loader_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    struct hr_loader *handle = ((struct loader *)object)->handle;
    /* Waits for workers to finish their samples, and for copies to a device, which
     * may be queued behind work that needs the GIL. */
    Py_BEGIN_ALLOW_THREADS
        hr_loader_destroy(&handle);
    Py_END_ALLOW_THREADS
    PyMem_Free(((struct loader *)object)->watch);
    Py_XDECREF(((struct loader *)object)->watcher);
    PyObject_Free(object);
    Py_DECREF(type);
}

static int check_open(struct loader *self)
{
    if (self->handle)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "this loader is closed");
    return -1;
}

static int enter(struct loader *self)
{
    if (check_open(self) < 0)
        return -1;
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this loader is being read by another thread: one reader at a time");
        return -1;
    }
    self->busy = true;
    return 0;
}

/* Ends an advancing call. Returns None, or NULL with an exception if r is not 0. */
static PyObject *leave(struct loader *self, int r, const struct hr_error *error)
{
    struct core_state *state = core_state_of((PyObject *)self);
    self->busy = false;
    core_log_drain(state);
    if (r)
        return raise_renamed(state, r, error);
    Py_RETURN_NONE;
}

static PyObject *loader_start_epoch(PyObject *object, PyObject *number)
{
    struct loader *self = (struct loader *)object;
    struct hr_error error = {0};
    unsigned long long epoch = PyLong_AsUnsignedLongLong(number);
    if ((epoch == (unsigned long long)-1 && PyErr_Occurred()) || enter(self) < 0)
        return NULL;
    core_watch_begin(self->watch);
    int r = hr_loader_start_epoch(self->handle, epoch, &error);
    core_watch_end(self->watch);
    return leave(self, r, &error);
}

/* Raises SampleError(path, index, reason) if the library knows the failed sample, otherwise the
 * library's error. */
static PyObject *raise_failed(struct loader *self, int r, const struct hr_error *error)
{
    struct core_state *state = core_state_of((PyObject *)self);
    struct hr_skipped_sample failed;
    if (r == -ECHILD || r == -EAGAIN || r == -EOVERFLOW || r == -ENOMEM ||
        hr_loader_failed_get(self->handle, &failed) != 0)
        return raise_renamed(state, r, error);
    PyObject *path = PyUnicode_DecodeFSDefault(failed.path);
    PyObject *reason = core_text(failed.reason);
    PyObject *exception = path && reason
                              ? PyObject_CallFunction(state->sample_error, "OKO", path,
                                                      (unsigned long long)failed.index, reason)
                              : NULL;
    if (exception)
        PyErr_SetObject(state->sample_error, exception);
    Py_XDECREF(exception);
    Py_XDECREF(path);
    Py_XDECREF(reason);
    return NULL;
}

static PyObject *loader_set_watcher(PyObject *object, PyObject *watcher)
{
    struct loader *self = (struct loader *)object;
    PyObject *old = self->watcher;
    self->watcher = Py_NewRef(watcher);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

/* Runs Python's signal handlers and the watcher. Returns 0, or -1 with an exception. */
static int look_around(const struct loader *self)
{
    if (PyErr_CheckSignals())
        return -1;
    PyObject *watcher = Py_XNewRef(self->watcher); /* it may set another */
    PyObject *result = watcher ? PyObject_CallNoArgs(watcher) : Py_NewRef(Py_None);
    Py_XDECREF(watcher);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static PyObject *loader_next(PyObject *object, PyObject *none)
{
    struct loader *self = (struct loader *)object;
    struct core_state *state = core_state_of(object);
    if (enter(self) < 0)
        return NULL;
    struct hr_batch *batch = NULL;
    struct hr_error error;
    int r;
    do {
        error.code = 0;
        Py_BEGIN_ALLOW_THREADS
            r = hr_loader_next(self->handle, &batch, &error);
        Py_END_ALLOW_THREADS
        core_log_drain(state); /* messages may explain why the wait is long */
    } while (r == -EINTR && look_around(self) == 0);
    self->busy = false;
    if (r > 0)
        return core_batch_new(state, batch);
    if (r == 0)
        Py_RETURN_NONE;
    return r == -EINTR ? NULL : raise_failed(self, r, &error);
}

static PyObject *loader_push(PyObject *object, PyObject *indices)
{
    struct loader *self = (struct loader *)object;
    struct hr_error error = {0};
    Py_buffer view;
    if (core_get_int64(indices, "indices", &view) < 0)
        return NULL;
    PyObject *result = NULL;
    if (enter(self) == 0) {
        int r = hr_loader_push(self->handle, view.buf, (size_t)view.len / 8, &error);
        result = leave(self, r, &error);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *loader_push_end(PyObject *object, PyObject *none)
{
    struct loader *self = (struct loader *)object;
    struct hr_error error = {0};
    if (enter(self) < 0)
        return NULL;
    return leave(self, hr_loader_push_end(self->handle, &error), &error);
}

static PyObject *loader_expect(PyObject *object, PyObject *args)
{
    struct loader *self = (struct loader *)object;
    struct hr_error error = {0};
    PyObject *indices;
    Py_ssize_t first;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "On", &indices, &first) ||
        core_get_int64(indices, "indices", &view) < 0)
        return NULL;
    PyObject *result = NULL;
    if (first < 0) {
        PyErr_Format(PyExc_ValueError, "%zd samples are expected in this epoch", first);
    } else if (enter(self) == 0) {
        int r;
        Py_BEGIN_ALLOW_THREADS
            r = hr_loader_expect(self->handle, view.buf, (size_t)view.len / 8, (size_t)first,
                                 &error);
        Py_END_ALLOW_THREADS
        result = leave(self, r, &error);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *loader_get_state(PyObject *object, PyObject *none)
{
    struct loader *self = (struct loader *)object;
    struct hr_loader_state s = {0};
    struct hr_error error = {0};
    if (check_open(self) < 0)
        return NULL;
    int r = hr_loader_get_state(self->handle, &s, &error);
    if (r)
        return core_raise(core_state_of(object), r, &error, NULL);
    return Py_BuildValue("{s:I,s:I,s:K,s:K,s:K,s:K}", "version", s.version, "shuffle", s.shuffle,
                         "seed", (unsigned long long)s.seed, "epoch", (unsigned long long)s.epoch,
                         "position", (unsigned long long)s.position, "samples",
                         (unsigned long long)s.samples);
}

static PyObject *loader_restore(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"version", "shuffle", "seed", "epoch", "position", "samples", NULL};
    struct loader *self = (struct loader *)object;
    struct hr_loader_state s = {0};
    struct hr_error error = {0};
    unsigned int version, shuffle;
    unsigned long long seed, epoch, position, samples;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$IIKKKK", names, &version, &shuffle, &seed,
                                     &epoch, &position, &samples) ||
        enter(self) < 0)
        return NULL;
    s.version = version;
    s.shuffle = shuffle;
    s.seed = seed;
    s.epoch = epoch;
    s.position = position;
    s.samples = samples;
    core_watch_begin(self->watch);
    int r = hr_loader_restore(self->handle, &s, &error);
    core_watch_end(self->watch);
    return leave(self, r, &error);
}

static PyObject *histogram(const struct hr_histogram *h)
{
    PyObject *buckets = core_numbers(h->buckets, HR_HISTOGRAM_BUCKETS);
    return buckets ? Py_BuildValue("{s:K,s:K,s:N}", "count", (unsigned long long)h->count, "sum_ns",
                                   (unsigned long long)h->sum_ns, "buckets", buckets)
                   : NULL;
}

static PyObject *loader_stats(PyObject *object, PyObject *none)
{
    struct loader *self = (struct loader *)object;
    struct hr_loader_stats s = {.size = sizeof s};
    if (check_open(self) < 0)
        return NULL;
    hr_loader_get_stats(self->handle, &s);
    const struct core_number counters[] = {
        {"samples", s.samples},
        {"batches", s.batches},
        {"bad_samples", s.bad_samples},
        {"damaged_samples", s.damaged_samples},
        {"scaled_samples", s.scaled_samples},
        {"padded_samples", s.padded_samples},
        {"bytes_read", s.bytes_read},
        {"wait_ns", s.wait_ns},
        {"step_ns", s.step_ns},
        {"grown_slots", s.grown_slots},
        {"slots", s.slots},
        {"slot_bytes", s.slot_bytes},
        {"staged_bytes", s.staged_bytes},
        {"ready_batches", s.ready_batches},
        {"batches_ahead", (uint64_t)s.batches_ahead},
        {"threads", (uint64_t)s.threads},
        {"cache_hits", s.cache_hits},
        {"cache_bytes", s.cache_bytes},
        {"cache_source_bytes", s.cache_source_bytes},
        {"cache_encoded", s.cache_encoded},
        {"cache_coefficients", s.cache_coefficients},
        {"cache_planes", s.cache_planes},
        {"cache_indexed", s.cache_indexed},
        {"cache_waveforms", s.cache_waveforms},
        {"cache_waiting", s.cache_waiting},
        {"converted", s.converted},
        {"conversion_ns", s.conversion_ns},
        {"missed", s.missed},
        {"alone", s.alone},
        {"reattached", s.reattached},
        {"own_hits", s.own_hits},
        {"own_bytes", s.own_bytes},
        {"peer_hits", s.peer_hits},
        {"peer_bytes", s.peer_bytes},
        {"stored", s.stored},
        {"stored_bytes", s.stored_bytes},
        {"disk_hits", s.disk_hits},
        {"disk_bytes", s.disk_bytes},
        {"disk_items", s.disk_items},
        {"disk_used_bytes", s.disk_used_bytes},
        {"refused", s.refused},
        {"read_ahead", s.read_ahead},
        {"object_requests", s.object_requests},
        {"object_lists", s.object_lists},
        {"object_retries", s.object_retries},
        {"object_hedges", s.object_hedges},
        {"object_refusals", s.object_refusals},
        {"object_bytes", s.object_bytes},
    };
    PyObject *dict =
        Py_BuildValue("{s:O,s:N,s:N,s:N,s:d}", "io_uring", s.io_uring ? Py_True : Py_False, "fetch",
                      histogram(&s.fetch), "prepare", histogram(&s.prepare), "wait",
                      histogram(&s.wait), "object_cost_usd", s.object_cost_usd);
    if (dict && core_put_numbers(dict, counters, sizeof counters / sizeof *counters) < 0)
        Py_CLEAR(dict);
    return dict;
}

/* Returns [(epoch, index, path, reason), ...]. */
static PyObject *list_samples(struct loader *self, int (*get)(const struct hr_loader *, uint64_t,
                                                              struct hr_skipped_sample *))
{
    if (check_open(self) < 0)
        return NULL;
    PyObject *list = PyList_New(0);
    struct hr_skipped_sample s;
    for (uint64_t i = 0; list && get(self->handle, i, &s) == 0; i++) {
        PyObject *path = PyUnicode_DecodeFSDefault(s.path);
        PyObject *reason = core_text(s.reason);
        PyObject *entry = path && reason ? Py_BuildValue("(KKOO)", (unsigned long long)s.epoch,
                                                         (unsigned long long)s.index, path, reason)
                                         : NULL;
        if (!entry || PyList_Append(list, entry) < 0)
            Py_CLEAR(list);
        Py_XDECREF(entry);
        Py_XDECREF(path);
        Py_XDECREF(reason);
    }
    return list;
}

static PyObject *loader_skipped(PyObject *object, PyObject *none)
{
    return list_samples((struct loader *)object, hr_loader_skipped_get);
}

static PyObject *loader_damaged(PyObject *object, PyObject *none)
{
    return list_samples((struct loader *)object, hr_loader_damaged_get);
}

static PyObject *loader_hosts(PyObject *object, PyObject *none)
{
    struct loader *self = (struct loader *)object;
    return check_open(self) < 0 ? NULL : core_hosts_of(self->handle);
}

static PyObject *loader_rates(PyObject *object, PyObject *none)
{
    struct loader *self = (struct loader *)object;
    return check_open(self) < 0 ? NULL : core_rates_of(core_state_of(object), self->handle);
}

static PyObject *loader_set_rates(PyObject *object, PyObject *args)
{
    struct loader *self = (struct loader *)object;
    struct hr_error error = {0};
    unsigned long long epoch;
    PyObject *ranks;
    int count = 0;
    if (!PyArg_ParseTuple(args, "KO", &epoch, &ranks))
        return NULL;
    struct hr_loader_rates *rates = core_rates_take(ranks, &count);
    if (!rates)
        return NULL;
    PyObject *result = NULL;
    if (enter(self) == 0) {
        int r = hr_loader_set_rates(self->handle, epoch, rates, count, &error);
        result = leave(self, r, &error);
    }
    PyMem_Free(rates);
    return result;
}

static PyObject *loader_set_hosts(PyObject *object, PyObject *args)
{
    struct loader *self = (struct loader *)object;
    struct hr_error error = {0};
    unsigned long long epoch;
    const char *cache;
    if (!PyArg_ParseTuple(args, "Ks", &epoch, &cache) || enter(self) < 0)
        return NULL;
    int r;
    Py_BEGIN_ALLOW_THREADS
        r = hr_loader_set_hosts(self->handle, epoch, cache, &error);
    Py_END_ALLOW_THREADS
    return leave(self, r, &error);
}

static PyObject *loader_close(PyObject *object, PyObject *none)
{
    struct loader *self = (struct loader *)object;
    if (!self->handle)
        Py_RETURN_NONE;
    if (enter(self) < 0)
        return NULL;
    struct hr_loader *handle = self->handle;
    self->handle = NULL;
    Py_BEGIN_ALLOW_THREADS
        hr_loader_destroy(&handle);
    Py_END_ALLOW_THREADS
    return leave(self, 0, NULL);
}

static PyObject *loader_batches(PyObject *object, void *closure)
{
    struct loader *self = (struct loader *)object;
    if (check_open(self) < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(hr_loader_batches(self->handle));
}

CORE_KEYWORDS(loader_restore);
CORE_METHOD(loader_start_epoch);
CORE_METHOD(loader_next);
CORE_METHOD(loader_set_watcher);
CORE_METHOD(loader_push);
CORE_METHOD(loader_push_end);
CORE_METHOD(loader_expect);
CORE_METHOD(loader_get_state);
CORE_METHOD(loader_stats);
CORE_METHOD(loader_skipped);
CORE_METHOD(loader_damaged);
CORE_METHOD(loader_hosts);
CORE_METHOD(loader_rates);
CORE_METHOD(loader_set_rates);
CORE_METHOD(loader_set_hosts);
CORE_METHOD(loader_close);

static PyMethodDef loader_methods[] = {
    {"start_epoch", CORE_LOCKED(loader_start_epoch), METH_O,
     PyDoc_STR("start_epoch(epoch)\n--\n\nStarts at the beginning of an epoch.")},
    {"next", CORE_LOCKED(loader_next), METH_NOARGS,
     PyDoc_STR("next()\n--\n\nThe next Batch, or None at the end of the epoch. Blocks.")},
    {"set_watcher", CORE_LOCKED(loader_set_watcher), METH_O,
     PyDoc_STR("set_watcher(function)\n--\n\nCalls it several times a second while next() waits.")},
    {"push", CORE_LOCKED(loader_push), METH_O,
     PyDoc_STR("push(indices)\n--\n\nExternal order: one more batch, an int64 buffer.")},
    {"push_end", CORE_LOCKED(loader_push_end), METH_NOARGS,
     PyDoc_STR("push_end()\n--\n\nExternal order: the epoch has no more batches.")},
    {"expect", CORE_LOCKED(loader_expect), METH_VARARGS,
     PyDoc_STR(
         "expect(indices, of_this_epoch)\n--\n\nExternal order: what will be pushed, an int64 "
         "buffer,\nthe first of_this_epoch of it in this epoch.")},
    {"get_state", CORE_LOCKED(loader_get_state), METH_NOARGS,
     PyDoc_STR("get_state()\n--\n\nWhere the reader stands, a dict of ints.")},
    {"restore", (PyCFunction)(void (*)(void))CORE_LOCKED(loader_restore),
     METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("restore(*, version, shuffle, seed, epoch, position, samples)\n--\n\n"
               "Goes on where get_state stood.")},
    {"stats", CORE_LOCKED(loader_stats), METH_NOARGS,
     PyDoc_STR("stats()\n--\n\nCounters and histograms.")},
    {"skipped", CORE_LOCKED(loader_skipped), METH_NOARGS,
     PyDoc_STR("skipped()\n--\n\n[(epoch, index, path, reason), ...], the newest 10,000.")},
    {"damaged", CORE_LOCKED(loader_damaged), METH_NOARGS,
     PyDoc_STR("damaged()\n--\n\nThe same of damaged samples that were taken.")},
    {"hosts", CORE_LOCKED(loader_hosts), METH_NOARGS,
     PyDoc_STR("hosts()\n--\n\nThose that keep the items.")},
    {"rates", CORE_LOCKED(loader_rates), METH_NOARGS,
     PyDoc_STR("rates()\n--\n\nHow fast this rank's host has been of late.")},
    {"set_rates", CORE_LOCKED(loader_set_rates), METH_VARARGS,
     PyDoc_STR("set_rates(epoch, ranks)\n--\n\nThe plan goes by these rates from an epoch on.")},
    {"set_hosts", CORE_LOCKED(loader_set_hosts), METH_VARARGS,
     PyDoc_STR("set_hosts(epoch, cache)\n--\n\nOther hosts keep the items from an epoch on.")},
    {"close", CORE_LOCKED(loader_close), METH_NOARGS,
     PyDoc_STR("close()\n--\n\nStops the threads; batches stay valid.")},
    {NULL, NULL, 0, NULL},
};

CORE_GETTER(loader_batches);

static PyGetSetDef loader_getset[] = {
    {"batches", CORE_LOCKED(loader_batches), NULL, PyDoc_STR("Of a whole epoch, for this rank."),
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot loader_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Loader(dataset, recipe, **options)\n\n"
                                  "Options are those of struct hr_loader_options.")},
    {Py_tp_new, loader_new},
    {Py_tp_dealloc, loader_dealloc},
    {Py_tp_methods, loader_methods},
    {Py_tp_getset, loader_getset},
    {0, NULL},
};

PyType_Spec core_loader_spec = {
    .name = "headrace._core.Loader",
    .basicsize = sizeof(struct loader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = loader_slots,
};
