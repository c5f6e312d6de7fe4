/*
 * Loaders whose batches an agent prepares (attach.h): their options, and finding who implements
 * them. What happens then is the implementation's; what is the same for all loaders (counters of
 * waiting, bad samples that are kept, seed and shuffle of a restored state) is loader.c's.
 */
#include "base/error.h"
#include "base/memory.h"
#include "cache/spec.h"
#include "loader/loader.h"

#include <errno.h>
#include <string.h>

/* Bytes of a stream's name, its terminating zero included. */
#define STREAM_NAME_BYTES 128

#define WINDOW_MAX 65538

static int is_set(const char *text)
{
    return text && *text;
}

int hr__remote_check(const struct hr_loader_options *o, struct hr_error *error)
{
    struct hr__cache_spec spec;
    if ((int)o->join < HR_JOIN_EPOCH || (int)o->join > HR_JOIN_NOW)
        return hr__fail(error, -EINVAL, "join = %d: must be %d (at an epoch's beginning) or %d",
                        (int)o->join, HR_JOIN_EPOCH, HR_JOIN_NOW);
    if ((int)o->lag < HR_LAG_ALONE || (int)o->lag > HR_LAG_WAIT)
        return hr__fail(error, -EINVAL, "lag = %d: must be %d (alone) or %d (wait)", (int)o->lag,
                        HR_LAG_ALONE, HR_LAG_WAIT);
    if (!is_set(o->agent))
        return is_set(o->stream)
                   ? hr__fail(error, -EINVAL,
                              "stream = \"%s\" needs an agent, which prepares it for all who name "
                              "it: set agent, for example to \"auto\"",
                              o->stream)
                   : 0;
    if (is_set(o->stream) && o->external_order)
        return hr__fail(
            error, -EINVAL,
            "stream = \"%s\": an order that the caller pushes is this loader's alone, and "
            "cannot be shared with others; leave stream out",
            o->stream);
    if (is_set(o->stream) && strlen(o->stream) >= STREAM_NAME_BYTES)
        return hr__fail(error, -EINVAL, "stream: a name of %zu bytes: it may have %d",
                        strlen(o->stream), STREAM_NAME_BYTES - 1);
    if (o->window < o->batches_ahead + 2 || o->window > WINDOW_MAX)
        return hr__fail(error, -EINVAL,
                        "window = %d: must be from %d (batches_ahead = %d and 2 more) to %d",
                        o->window, o->batches_ahead + 2, o->batches_ahead, WINDOW_MAX);
    return is_set(o->cache) ? hr__cache_spec_parse(&spec, o->cache, error) : 0;
}

int hr__remote_is_wanted(const struct hr_loader_options *options)
{
    return is_set(options->agent);
}

/* Copies *text; NULL where there is none. */
static int keep_text(struct hr_loader *l, size_t i, const char **text)
{
    if (!is_set(*text)) {
        *text = NULL;
        return 0;
    }
    l->texts[i] = hr__strdup(HR__TAG_LOADER, *text);
    *text = l->texts[i];
    return *text ? 0 : -ENOMEM;
}

static int keep_texts(struct hr_loader *l, struct hr_error *error)
{
    struct hr_loader_options *o = &l->options;
    int r = 0;
    /* All are taken over, so that none is left that is the caller's. */
    r |= keep_text(l, 0, &o->agent);
    r |= keep_text(l, 1, &o->stream);
    r |= keep_text(l, 2, &o->agent_command);
    r |= keep_text(l, 3, &o->cache);
    return r ? hr__fail(error, -ENOMEM, "out of memory for a loader's options") : 0;
}

int hr__remote_create(struct hr_loader *l, struct hr_error *error)
{
    if (!&hr__attachment_agent)
        return hr__fail(error, -ENOTSUP,
                        "agent = \"%s\": this library was built without agents; leave it out",
                        l->options.agent);
    int r = keep_texts(l, error);
    if (r)
        return r;
    /* From here on a forked child is told from the process that is attached. */
    atomic_store(&l->pid, getpid());
    hr__ring_set_owner(l->ring, getpid());
    r = hr__attachment_agent.create(l, error);
    if (!r)
        l->attachment = &hr__attachment_agent;
    return r;
}

int hr__remote_start(struct hr_loader *l, const struct hr_loader_state *from, int is_restored,
                     struct hr_error *error)
{
    int r = l->attachment->start(l, from, is_restored, error);
    if (r)
        return r;
    pthread_mutex_lock(&l->lock);
    struct hr__bad *failed = l->failed;
    l->failed = NULL;
    l->seed = from->seed;
    l->shuffle = from->shuffle != 0;
    l->epoch_seen = l->epoch_bad = 0;
    pthread_mutex_unlock(&l->lock);
    hr__free(failed);
    return 0;
}

void hr__remote_free_texts(struct hr_loader *l)
{
    for (size_t i = 0; i < sizeof l->texts / sizeof *l->texts; i++)
        hr__free(l->texts[i]);
}
