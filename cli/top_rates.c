/* Computes rates from differences of two statuses; see top_rates.h. */
#include "top_rates.h"

#include <math.h>
#include <string.h>

double top_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static double change(const json_t *after, const json_t *before, const char *key)
{
    double d = top_number(after, key) - top_number(before, key);
    return d >= 0 ? d : (double)NAN; /* negative: the counter was restarted */
}

static double share(double part, double of)
{
    return of > 0 ? fmin(fmax(part / of, 0), 1) : (double)NAN;
}

static int add(json_t *object, const char *key, double value)
{
    return json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null());
}

/* Finds the object of an array whose values of all `keys` equal those of `like`. If several match,
 * returns number `nth` of them. */
static const json_t *find(const json_t *array, const json_t *like, size_t nth,
                          const char *const *keys)
{
    size_t i;
    json_t *found;
    json_array_foreach(array, i, found)
    {
        int is_same = 1;
        for (const char *const *key = keys; *key; key++)
            is_same &= json_equal(json_object_get(found, *key), json_object_get(like, *key));
        if (is_same && !nth--)
            return found;
    }
    return NULL;
}

/* Returns how many objects before the i-th match it; 0 if its keys are missing. */
static size_t count_before(const json_t *array, size_t i, const char *const *keys)
{
    const json_t *own = json_array_get(array, i), *found;
    size_t count = 0;
    while ((found = find(array, own, count, keys)) && found != own)
        count++;
    return count;
}

/* Finds the queue with that number in any stream; NULL: none. */
static const json_t *find_queue(const json_t *status, const json_t *queue)
{
    static const char *const keys[] = {"queue", NULL};
    const json_t *found = NULL;
    size_t i;
    json_t *stream;
    json_array_foreach(json_object_get(status, "streams"), i, stream)
    {
        if (!found)
            found = find(json_object_get(stream, "queues"), queue, 0, keys);
    }
    return found;
}

/*
 * Returns the share of time that training waited. A wait is counted when it ends; one that lasts
 * longer than the interval is detected by the flag `waiting`.
 */
static double wait_share(const json_t *after, const json_t *before)
{
    double wait = change(after, before, "wait_s"), step = change(after, before, "step_s");
    if (wait + step > 0)
        return share(wait, wait + step);
    return before && json_is_true(json_object_get(after, "waiting")) ? 1 : (double)NAN;
}

static int add_to_subscribers(const json_t *queue, const json_t *before, double seconds)
{
    static const char *const keys[] = {"pid", "rank", NULL};
    const json_t *subscribers = json_object_get(queue, "subscribers");
    size_t i;
    int bad = 0;
    json_t *s;
    json_array_foreach(subscribers, i, s)
    {
        const json_t *was = find(json_object_get(before, "subscribers"), s,
                                 count_before(subscribers, i, keys), keys);
        bad |= add(s, "samples_per_s", change(s, was, "samples") / seconds);
        bad |= add(s, "wait_share", wait_share(s, was));
    }
    return bad;
}

struct top_rates_sums {
    double samples_per_s, read_bytes_per_s;
};

static void sum(double *total, double value)
{
    *total += isfinite(value) ? value : 0;
}

static int add_to_queue(json_t *queue, const json_t *before, double seconds,
                        struct top_rates_sums *sums)
{
    double samples = change(queue, before, "prepared"), read = change(queue, before, "bytes_read");
    double hits = change(queue, before, "cache_hits");
    double prepare = change(queue, before, "prepare_s"), fetch = change(queue, before, "fetch_s");
    int bad = add(queue, "samples_per_s", samples / seconds);
    bad |= add(queue, "read_bytes_per_s", read / seconds);
    bad |= add(queue, "hit_share", share(hits, samples));
    bad |= add(queue, "fetch_per_sample_s", fetch / samples);
    bad |= add(queue, "prepare_per_sample_s", prepare / samples);
    bad |= add(queue, "busy_threads", prepare / seconds);
    sum(&sums->samples_per_s, samples / seconds);
    sum(&sums->read_bytes_per_s, read / seconds);
    return bad | add_to_subscribers(queue, before, seconds);
}

/*
 * Adds the rates of a loader. It publishes its status itself, at its own times: if it has published
 * nothing since the last query, in a long step, its rates stay.
 */
static int add_to_loader(json_t *loader, const json_t *before)
{
    static const char *const rates[] = {"seconds",    "samples_per_s",      "read_bytes_per_s",
                                        "hit_share",  "fetch_per_sample_s", "prepare_per_sample_s",
                                        "wait_share", "busy_threads",       NULL};
    double seconds = change(loader, before, "published_s");
    double samples = change(loader, before, "prepared"),
           hits = change(loader, before, "cache_hits");
    double prepare = change(loader, before, "prepare_s");
    int bad = 0;
    if (before && seconds == 0) {
        for (const char *const *key = rates; *key; key++)
            bad |= json_object_set(loader, *key, json_object_get(before, *key));
        return bad;
    }
    if (!(seconds > 0))
        seconds = (double)NAN;
    bad |= add(loader, "seconds", seconds);
    bad |= add(loader, "samples_per_s", samples / seconds);
    bad |= add(loader, "read_bytes_per_s", change(loader, before, "bytes_read") / seconds);
    bad |= add(loader, "hit_share", share(hits, samples));
    bad |= add(loader, "fetch_per_sample_s", change(loader, before, "fetch_s") / samples);
    bad |= add(loader, "prepare_per_sample_s", prepare / samples);
    bad |= add(loader, "wait_share", wait_share(loader, before));
    return bad | add(loader, "busy_threads", prepare / seconds);
}

static int add_to_loaders(const json_t *after, const json_t *before)
{
    static const char *const keys[] = {"pid", "loader", "begun_s", NULL};
    const json_t *loaders = json_object_get(after, "loaders");
    size_t i;
    int bad = 0;
    json_t *loader;
    json_array_foreach(loaders, i, loader)
    {
        if (json_is_object(loader))
            bad |= add_to_loader(loader, find(json_object_get(before, "loaders"), loader, 0, keys));
    }
    return bad;
}

int top_add_rates(json_t *after, const json_t *before)
{
    struct top_rates_sums sums = {0, 0};
    size_t i, k;
    json_t *stream, *queue;
    int bad = add_to_loaders(after, before);
    if (!json_object_get(after, "pid"))
        return bad ? -1 : 0; /* there is no agent */
    /* Another agent may serve the socket now; its counters cannot be compared. */
    if (!json_equal(json_object_get(after, "pid"), json_object_get(before, "pid")))
        before = NULL;
    double seconds = change(after, before, "uptime_s");
    if (!(seconds > 0))
        seconds = (double)NAN;
    json_array_foreach(json_object_get(after, "streams"), i, stream)
    {
        json_array_foreach(json_object_get(stream, "queues"), k, queue)
        {
            bad |= add_to_queue(queue, find_queue(before, queue), seconds, &sums);
        }
    }
    bad |= add(after, "seconds", seconds);
    bad |= add(after, "cpu_cores", change(after, before, "cpu_s") / seconds);
    bad |= add(after, "samples_per_s", isnan(seconds) ? seconds : sums.samples_per_s);
    bad |= add(after, "read_bytes_per_s", isnan(seconds) ? seconds : sums.read_bytes_per_s);
    return bad ? -1 : 0;
}
