/*
 * The operations of a loader whose batches an agent prepares (see attached.h).
 *
 * Nothing here decides the order of samples. A queue of the agent is the sequence of this rank's
 * samples, independent of batch sizes; order/order.h cuts it into batches, as in an embedded
 * loader.
 */
#include "agent/client/attach.h"

#include "agent/client/attached.h"
#include "base/error.h"
#include "base/memory.h"
#include "cache/spec.h"
#include "loader/attach.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Refuses a relative key file: the agent has another working directory. */
static int check_key_file(const char *cache, struct hr_error *error)
{
    char here[PATH_MAX];
    struct hr__cache_tiers tiers;
    /* Other errors in the text are the agent's to report. */
    if (!*cache || hr__cache_tiers_parse(&tiers, cache, NULL))
        return 0;
    const char *file = tiers.first.key_file;
    if (!*file || *file == '/')
        file = tiers.disk.key_file;
    if (!*file || *file == '/')
        return 0;
    if (!getcwd(here, sizeof here))
        strcpy(here, "");
    return hr__fail(error, -EINVAL,
                    "cache: key_file=%s begins at the working directory, and an agent has another "
                    "one: write key_file=%.300s/%s",
                    file, here, file);
}

/* Describes the loader to the agent. */
static int describe(struct hr__wire_attach *out, const struct hr_loader *l, struct hr_error *error)
{
    const struct hr_loader_options *o = &l->options;
    const char *stream = o->stream ? o->stream : "", *cache = o->cache ? o->cache : "";
    *out = (struct hr__wire_attach){
        .seed = l->seed,
        .epochs = o->epochs,
        .staging_bytes = o->staging_bytes,
        .batch_size = o->batch_size,
        .batches_ahead = o->batches_ahead,
        .window = o->window,
        .rank = o->external_order ? 0 : o->rank,
        .world_size = o->external_order ? 1 : o->world_size,
        .external_order = o->external_order != 0,
        .shuffle = l->shuffle != 0,
        .on_error = (int32_t)o->on_error,
        .join = (int32_t)o->join,
        .lag = (int32_t)o->lag,
        .cache_form = o->cache_form,
        .direct_io = o->direct_io != 0,
        .no_io_uring = o->no_io_uring != 0,
        .node = l->home.node,
    };
    if (strlen(cache) >= sizeof out->cache)
        return hr__fail(error, -EINVAL,
                        "cache: %zu characters are too many for an agent, it takes "
                        "%zu",
                        strlen(cache), sizeof out->cache - 1);
    if (strlen(stream) >= sizeof out->stream)
        return hr__fail(error, -EINVAL, "stream: a name has %zu characters at most",
                        sizeof out->stream - 1);
    strcpy(out->cache, cache);
    strcpy(out->stream, stream);
    return check_key_file(cache, error);
}

static int create(struct hr_loader *l, struct hr_error *error)
{
    struct hr__attached *a = hr__alloc(HR__TAG_AGENT, 1, sizeof *a);
    if (!a)
        return hr__fail(error, -ENOMEM, "out of memory for a loader that is attached");
    a->loader = l;
    a->socket = -1;
    pthread_mutex_init(&a->lock, NULL);
    int r = describe(&a->attach, l, error);
    if (!r)
        r = hr__session_open(a, error);
    if (r) {
        hr__session_close(a);
        pthread_mutex_destroy(&a->lock);
        hr__free(a);
        return r;
    }
    l->attached = a;
    return 0;
}

static void destroy(struct hr_loader *l)
{
    struct hr__attached *a = l->attached;
    l->attached = NULL;
    hr__attached_drop_partial(a);
    hr__pushed_clear(a);
    hr__session_close(a);
    pthread_mutex_destroy(&a->lock);
    hr__free(a->seen.instead);
    hr__free(a);
}

static void abandon(struct hr_loader *l)
{
    struct hr__attached *a = l->attached;
    l->attached = NULL;
    hr__session_abandon(a);
    hr__pushed_clear(a);
    hr__free(a->seen.instead);
    hr__free(a);
}

/* Sets the position from which the next batch is to come. */
static void aim(struct hr__attached *a, const struct hr_loader_state *from, int is_restored)
{
    hr__pushed_clear(a);
    if (is_restored || hr__attached_is_pushed(a)) {
        a->is_placed = 1;
        a->ahead = 0;
    }
    a->is_known = 0;
    a->own_epoch = from->epoch;
    a->filled = 0;
    a->delivered = 0;
    if (a->is_placed)
        hr__attached_begin(a, from->epoch + a->ahead, from->position);
    pthread_mutex_lock(&a->lock);
    a->cursor = NULL;
    pthread_mutex_unlock(&a->lock);
    a->main = NULL;
    a->is_expelled = 0;
    a->futile = 0;
    a->garbled.code = 0;
    a->is_started = 1;
    a->over = 0;
    a->broken.code = 0;
}

static int start(struct hr_loader *l, const struct hr_loader_state *from, int is_restored,
                 struct hr_error *error)
{
    struct hr__attached *a = l->attached;
    int r = 0;
    if (a->attach.seed != from->seed || (a->attach.shuffle != 0) != (from->shuffle != 0)) {
        /* Another order means another stream. */
        hr__session_close(a);
        a->attach.seed = from->seed;
        a->attach.shuffle = from->shuffle != 0;
        a->is_placed = 0;
    } else if (a->state != HR__CLOSED) {
        r = hr__session_receive(a, error);
        if (!r && a->is_hung_up)
            hr__session_close(a);
    }
    if (r)
        return r;
    hr__attached_drop_partial(a);
    aim(a, from, is_restored);
    if (a->state == HR__CLOSED)
        return hr__session_open(a, error);
    hr__session_seek(a);
    return 0;
}

static int get_state(const struct hr_loader *l, struct hr_loader_state *state,
                     struct hr_error *error)
{
    const struct hr__attached *a = l->attached;
    (void)error;
    *state = (struct hr_loader_state){
        .version = 1,
        .shuffle = (uint32_t)a->attach.shuffle,
        .seed = a->attach.seed,
        .samples = hr_dataset_count(l->dataset),
    };
    if (a->is_known) {
        state->epoch = a->epoch;
        state->position = hr__attached_is_pushed(a) ? a->cut.start + a->taken
                                                    : hr__cut_position(&a->cut, a->delivered);
    } else if (a->is_started) {
        state->epoch = a->own_epoch;
    }
    return 0;
}

static void get_stats(const struct hr_loader *l, struct hr_loader_stats *stats)
{
    struct hr__attached *a = l->attached;
    stats->missed = atomic_load_explicit(&a->missed, memory_order_relaxed);
    stats->alone = atomic_load_explicit(&a->alone, memory_order_relaxed);
    stats->reattached = atomic_load_explicit(&a->reattached, memory_order_relaxed);
    stats->threads = atomic_load_explicit(&a->threads, memory_order_relaxed);
    pthread_mutex_lock(&a->lock);
    if (a->cursor) {
        uint64_t next = atomic_load_explicit(&a->cursor->control->next, memory_order_relaxed);
        uint64_t batch = (uint64_t)l->options.batch_size, ready = hr__cursor_ready(a->cursor, next);
        /* A pushed batch is one chunk, even if it has fewer samples. */
        stats->ready_batches = (ready + (l->options.external_order ? batch - 1 : 0)) / batch;
    }
    pthread_mutex_unlock(&a->lock);
}

const struct hr__attachment hr__attachment_agent = {
    .create = create,
    .destroy = destroy,
    .abandon = abandon,
    .start = start,
    .next = hr__turn_next,
    .push = hr__pushed_add,
    .push_end = hr__pushed_end,
    .get_state = get_state,
    .get_stats = get_stats,
};
