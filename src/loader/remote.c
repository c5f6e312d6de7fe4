/*
 * Loaders whose batches an agent prepares (attach.h): checks their options and finds the
 * implementation. What all loaders have in common (wait counters, the list of bad samples, seed and
 * shuffle of a restored state) is in loader.c.
 */
#include "loader/remote.h"

#include "base/error.h"
#include "base/memory.h"
#include "cache/spec.h"
#include "loader/inside.h"
#include "recipe/recipe.h"

#include <errno.h>
#include <string.h>

/* Size of a stream's name, with its terminator. */
#define STREAM_NAME_BYTES 128

#define WINDOW_MAX 65538

static int is_set(const char *text)
{
    return text && *text;
}

int hr__remote_check(const struct hr_loader_options *o, struct hr_error *error)
{
    struct hr__cache_tiers tiers;
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
    int ahead = o->batches_ahead ? o->batches_ahead : 2; /* the least that is chosen */
    if (o->window < ahead + 2 || o->window > WINDOW_MAX)
        return hr__fail(error, -EINVAL,
                        "window = %d: must be from %d (batches_ahead = %d and 2 more) to %d",
                        o->window, ahead + 2, ahead, WINDOW_MAX);
    return is_set(o->cache) ? hr__cache_tiers_parse(&tiers, o->cache, error) : 0;
}

int hr__remote_is_wanted(const struct hr_loader_options *options)
{
    return is_set(options->agent);
}

int hr__remote_check_samples(const struct hr_loader *l, struct hr_error *error)
{
    size_t views = hr_recipe_views(l->recipe);
    if (!hr__remote_is_wanted(&l->options))
        return 0;
    if (views > 1)
        return hr__fail(error, -EINVAL,
                        "an agent prepares one view of a sample, and the recipe has %zu: leave the "
                        "agent out",
                        views);
    return 0;
}

/* Copies *text; sets it to NULL if it is "" or NULL. */
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
    /* Copy all, even after a failure, so that no text is left that the caller owns. */
    r |= keep_text(l, 0, &o->agent);
    r |= keep_text(l, 1, &o->stream);
    r |= keep_text(l, 2, &o->agent_command);
    r |= keep_text(l, 3, &o->cache);
    return r ? hr__fail(error, -ENOMEM, "out of memory for a loader's options") : 0;
}

int hr__remote_create(struct hr_loader *l, struct hr_error *error)
{
    const struct hr__attachment *attachment = hr__library_attachment();
    if (!attachment)
        return hr__fail(error, -ENOTSUP,
                        "agent = \"%s\": this library was built without agents; leave it out",
                        l->options.agent);
    int r = keep_texts(l, error);
    if (r)
        return r;
    /* From here on a forked child can be recognized. */
    atomic_store(&l->pid, getpid());
    hr__ring_set_owner(l->ring, getpid());
    r = attachment->create(l, error);
    if (!r)
        l->attachment = attachment;
    return r;
}

void hr__remote_free_texts(struct hr_loader *l)
{
    for (size_t i = 0; i < sizeof l->texts / sizeof *l->texts; i++)
        hr__free(l->texts[i]);
}
