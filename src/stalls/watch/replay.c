/*
 * Keeps the batches for replay: the last ones of the warm-up, in their own slots. So the loop gets
 * the same kind of memory as from the loader (page-locked if requested) and releases it as usual.
 * The ring plans for the slots that are kept, so that the loader's window is as large as without a
 * watch.
 *
 * A loop may write into its batches. Such a batch would change from step to step when replayed,
 * finally to infinities, which take a different time to compute with than images. So each batch is
 * compared with a copy of its original contents; once one has changed, all are restored before they
 * are handed out, outside the measured time.
 */
#include "stalls/watch/inside.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <string.h>

/* Returns the i-th part of a batch that its owner may write to, from 0; NULL: no more. */
static void *part(struct hr_batch *batch, int i, size_t *bytes)
{
    struct hr_field field;
    if (hr_batch_field(batch, (size_t)i, &field))
        return NULL;
    *bytes = hr_dtype_bytes(field.dtype);
    for (int d = 0; d < field.dims; d++)
        *bytes *= (size_t)field.shape[d];
    return field.data;
}

static size_t whole_bytes(struct hr_batch *batch)
{
    size_t bytes, sum = 0;
    for (int i = 0; part(batch, i, &bytes); i++)
        sum += bytes;
    return sum;
}

static void drop(struct hr_stalls_watch *w, int i)
{
    hr_batch_release(&w->kept[i]);
    hr__free(w->original[i]);
    w->original[i] = NULL;
}

int hr__watch_keep(struct hr_stalls_watch *w, struct hr_batch *batch, struct hr_error *error)
{
    char *copy = hr__alloc(HR__TAG_SLOT, 1, whole_bytes(batch));
    if (!copy)
        return hr__fail(error, -ENOMEM, "out of memory for the copy of a batch that is replayed");
    if (w->kept_count == HR__WATCH_KEPT) {
        drop(w, 0);
        w->kept[0] = w->kept[1];
        w->original[0] = w->original[1];
        w->kept_count--;
    } else {
        hr__ring_plan(w->loader->ring, 1);
    }
    size_t bytes, at = 0;
    void *from;
    for (int i = 0; (from = part(batch, i, &bytes)); i++) {
        memcpy(copy + at, from, bytes);
        at += bytes;
    }
    w->kept[w->kept_count] = hr_batch_ref(batch);
    w->original[w->kept_count++] = copy;
    return 0;
}

static bool is_changed(struct hr_stalls_watch *w, int k)
{
    const char *copy = w->original[k];
    size_t bytes, at = 0;
    void *now;
    for (int i = 0; (now = part(w->kept[k], i, &bytes)); i++) {
        if (memcmp(now, copy + at, bytes))
            return true;
        at += bytes;
    }
    return false;
}

static void restore(struct hr_stalls_watch *w, int k)
{
    const char *copy = w->original[k];
    size_t bytes, at = 0;
    void *now;
    for (int i = 0; (now = part(w->kept[k], i, &bytes)); i++) {
        memcpy(now, copy + at, bytes);
        at += bytes;
    }
}

struct hr_batch *hr__watch_replay(struct hr_stalls_watch *w)
{
    int k = w->replayed;
    w->replayed = (k + 1) % w->kept_count;
    if (w->restoring) {
        uint64_t start_ns = hr__now_ns(), start_cpu_ns = hr__thread_cpu_ns();
        restore(w, k);
        w->excluded_cpu_ns += hr__thread_cpu_ns() - start_cpu_ns;
        w->excluded_ns += hr__now_ns() - start_ns;
    }
    return hr_batch_ref(w->kept[k]);
}

void hr__watch_inspect(struct hr_stalls_watch *w)
{
    for (int k = 0; k < w->kept_count; k++) {
        if (!is_changed(w, k))
            continue;
        restore(w, k);
        w->restoring = true;
    }
    if (w->restoring)
        hr__watch_note(w, "the loop writes into its batches: those that are replayed are restored "
                          "before each step, outside the measured time");
}

void hr__watch_keep_none(struct hr_stalls_watch *w)
{
    /* In a forked child the ring's lock may be held forever. */
    if (w->kept_count && !hr__in_child(w->loader))
        hr__ring_plan(w->loader->ring, -w->kept_count);
    for (int k = 0; k < w->kept_count; k++)
        drop(w, k);
    w->kept_count = 0;
}
