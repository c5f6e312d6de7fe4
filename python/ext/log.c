/*
 * Forwards the library's log messages to Python's logging, without taking the
 * GIL on the library's threads.
 *
 * The library may call the log callback on any of its threads at any time, even
 * while the interpreter shuts down. The callback therefore only copies the
 * message into a bounded queue. Python threads inside this extension drain the
 * queue into headrace._log.emit. Messages that find the queue full are counted
 * and dropped.
 *
 * The queue is process-wide because the library's log hook is.
 */
#include "core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_LINES 64

struct log_line {
    enum hr_log_level level;
    char *text; /* malloc'ed */
};

/* Protected by `lock`, except `waiting`: a hint that lets an empty queue skip the lock. */
static struct {
    pthread_mutex_t lock;
    struct log_line line[QUEUE_LINES];
    int count;
    unsigned long dropped;
    atomic_int waiting;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_log(void *arg, enum hr_log_level level, const char *message)
{
    char *copy = strdup(message);
    pthread_mutex_lock(&queue.lock);
    if (copy && queue.count < QUEUE_LINES) {
        queue.line[queue.count++] = (struct log_line){level, copy};
        copy = NULL;
    } else {
        queue.dropped++;
    }
    atomic_store_explicit(&queue.waiting, 1, memory_order_release);
    pthread_mutex_unlock(&queue.lock);
    free(copy);
}

/* Takes the lock around fork(): otherwise the child might inherit it locked by another thread. */
static void before_fork(void)
{
    pthread_mutex_lock(&queue.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&queue.lock);
}

static void install_once(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
    hr_log_set(on_log, NULL);
}

int core_log_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    return pthread_once(&once, install_once);
}

static void emit(struct core_state *state, int level, const char *text)
{
    PyObject *message = core_text(text);
    PyObject *result =
        message ? PyObject_CallFunction(state->emit_log, "iO", level, message) : NULL;
    if (!result && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        /* Ctrl-C during logging: raise it again at the caller's next check for signals. */
        PyErr_Clear();
        PyErr_SetInterrupt();
    } else if (!result) {
        PyErr_WriteUnraisable(state->emit_log);
    }
    Py_XDECREF(result);
    Py_XDECREF(message);
}

void core_log_drain(struct core_state *state)
{
    if (!state->emit_log || !atomic_load_explicit(&queue.waiting, memory_order_acquire))
        return;
    struct log_line line[QUEUE_LINES];
    pthread_mutex_lock(&queue.lock);
    int count = queue.count;
    unsigned long dropped = queue.dropped;
    memcpy(line, queue.line, (size_t)count * sizeof *line);
    queue.count = 0;
    queue.dropped = 0;
    atomic_store_explicit(&queue.waiting, 0, memory_order_relaxed);
    pthread_mutex_unlock(&queue.lock);

    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    for (int i = 0; i < count; i++) {
        emit(state, (int)line[i].level, line[i].text);
        free(line[i].text);
    }
    if (dropped) {
        char text[96];
        PyOS_snprintf(text, sizeof text, "%lu further messages were dropped", dropped);
        emit(state, HR_LOG_WARNING, text);
    }
    PyErr_Restore(type, value, traceback);
}
