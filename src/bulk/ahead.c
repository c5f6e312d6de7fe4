/* Reading ahead of threads in bulk (ahead.h). */
#include "bulk/ahead.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "dataset/dataset.h"
#include "storage/http.h"

#include <errno.h>
#include <pthread.h>

/* How many bytes may be in flight or wait to be taken; one sample is always let in. */
#define AHEAD_BYTES (UINT64_C(64) << 20)

/* Assumed for a sample of unknown size. */
#define TYPICAL_BYTES (UINT64_C(128) << 10)

/* How long the thread waits for answers before it looks for room again. */
#define WAIT_NS INT64_C(2000000)

enum ahead_state { FREE, FLYING, READ, PASSED };

struct ahead_place {
    struct hr__sample sample;
    uint64_t index;
    uint64_t bytes; /* charged to the limit */
    enum ahead_state state;
};

struct hr__ahead {
    struct hr__ahead_options options;
    uint64_t count; /* of the dataset's samples */
    struct hr__reader *reader;
    pthread_t thread;
    uint64_t next;   /* the next sample to read; the thread's */
    unsigned flying; /* likewise */

    pthread_mutex_t lock;  /* guards what follows, and the places' states */
    pthread_cond_t taken;  /* signalled when a place becomes free, and at stop */
    pthread_cond_t landed; /* signalled when a sample was read or passed over */
    uint64_t bytes;        /* charged by samples in flight or waiting */
    int stop;
    struct ahead_place places[HR__AHEAD_SAMPLES]; /* sample i is at i % HR__AHEAD_SAMPLES */
};

static struct ahead_place *place_of(struct hr__ahead *a, uint64_t index)
{
    return &a->places[index % HR__AHEAD_SAMPLES];
}

static void set_state(struct hr__ahead *a, struct ahead_place *place, enum ahead_state state)
{
    pthread_mutex_lock(&a->lock);
    if (state != FLYING)
        pthread_cond_broadcast(&a->landed);
    if (state == PASSED) {
        a->bytes -= place->bytes;
        place->bytes = 0;
    } else if (state == READ && place->sample.read.length > place->bytes) {
        /* it was of unknown size */
        a->bytes += place->sample.read.length - place->bytes;
        place->bytes = place->sample.read.length;
    }
    place->state = state;
    pthread_mutex_unlock(&a->lock);
}

/* Returns non-zero if there is room for the next sample, which is charged then. */
static int take_room_locked(struct hr__ahead *a)
{
    struct ahead_place *place = place_of(a, a->next);
    if (a->next >= a->count || place->state != FREE || a->flying >= HR__HTTP_MOST)
        return 0;
    int64_t size = hr_dataset_sample_bytes(a->options.dataset, a->next);
    uint64_t bytes = size < 0 ? TYPICAL_BYTES : (uint64_t)size;
    if (a->bytes && a->bytes + bytes > AHEAD_BYTES)
        return 0;
    a->bytes += bytes;
    place->bytes = bytes;
    place->index = a->next;
    return 1;
}

/* Reads a sample on this thread, because the reader does not take it: the caller may have claimed
 * it, so it is not passed over. */
static void read_here(struct hr__ahead *a, struct ahead_place *place)
{
    place->sample.read.result = hr__read_file(&place->sample.read, 0);
    set_state(a, place, READ);
}

/* Submits the read of the next sample, or passes it over. */
static void begin(struct hr__ahead *a)
{
    uint64_t index = a->next++;
    struct ahead_place *place = place_of(a, index);
    place->sample.read.user = place;
    /* asked last: the caller may have claimed what it wants */
    if (hr__sample_aim(&place->sample, a->options.dataset, index, 0, NULL) ||
        !place->sample.read.http ||
        (a->options.wants && !a->options.wants(a->options.arg, index))) {
        set_state(a, place, PASSED);
        return;
    }
    set_state(a, place, FLYING);
    if (hr__reader_submit(a->reader, &place->sample.read))
        read_here(a, place);
    else
        a->flying++;
}

/* Takes answers. Returns a negative errno if the reader is broken. */
static int collect(struct hr__ahead *a)
{
    struct hr__read *done[64];
    int n = hr__reader_wait(a->reader, done, sizeof done / sizeof *done, WAIT_NS);
    for (int i = 0; i < n; i++)
        set_state(a, done[i]->user, READ);
    a->flying -= n > 0 ? (unsigned)n : 0;
    return n < 0 && n != -EINTR ? n : 0;
}

/* Ends reading ahead. If the reader is broken, reads what it had in flight on this thread. */
static void give_up(struct hr__ahead *a, int is_broken)
{
    hr__reader_destroy(&a->reader);
    for (size_t i = 0; i < HR__AHEAD_SAMPLES; i++) {
        struct ahead_place *place = &a->places[i];
        pthread_mutex_lock(&a->lock);
        int is_flying = place->state == FLYING;
        pthread_mutex_unlock(&a->lock);
        if (!is_flying)
            continue;
        if (is_broken)
            read_here(a, place);
        else
            set_state(a, place, PASSED);
    }
    pthread_mutex_lock(&a->lock);
    a->stop = 1;
    pthread_cond_broadcast(&a->landed);
    pthread_mutex_unlock(&a->lock);
}

static void *read_ahead(void *arg)
{
    struct hr__ahead *a = arg;
    int r = 0;
    pthread_setname_np(pthread_self(), "hr-ahead");
    pthread_mutex_lock(&a->lock);
    while (!a->stop && !r && (a->next < a->count || a->flying)) {
        if (take_room_locked(a)) {
            pthread_mutex_unlock(&a->lock);
            begin(a);
        } else if (a->flying) {
            pthread_mutex_unlock(&a->lock);
            r = collect(a);
        } else {
            pthread_cond_wait(&a->taken, &a->lock);
            continue;
        }
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    give_up(a, r != 0);
    return NULL;
}

static void free_ahead(struct hr__ahead *a)
{
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->taken);
    pthread_cond_destroy(&a->landed);
    hr__free(a);
}

int hr__ahead_create(struct hr__ahead **out, const struct hr__ahead_options *options,
                     struct hr_error *error)
{
    *out = NULL;
    if (!hr__dataset_origin(options->dataset)->http)
        return 0;
    struct hr__ahead *a = hr__alloc(HR__TAG_LOADER, 1, sizeof *a);
    if (!a)
        return hr__fail(error, -ENOMEM, "out of memory for reading ahead");
    a->options = *options;
    a->next = options->first;
    a->count = hr_dataset_count(options->dataset);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->taken, NULL);
    pthread_cond_init(&a->landed, NULL);
    struct hr__reader_options reader = {.depth = HR__HTTP_MOST, .no_io_uring = 1};
    int r = hr__reader_create(&a->reader, &reader, NULL);
    if (!r)
        r = hr__thread_create(&a->thread, read_ahead, a);
    if (!r) {
        *out = a;
        return 0;
    }
    hr__reader_destroy(&a->reader);
    free_ahead(a);
    return 0;
}

void hr__ahead_destroy(struct hr__ahead **ahead)
{
    struct hr__ahead *a = *ahead;
    *ahead = NULL;
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = 1;
    pthread_cond_signal(&a->taken);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    for (size_t i = 0; i < HR__AHEAD_SAMPLES; i++) {
        if (a->places[i].state == READ)
            hr__read_drop(&a->places[i].sample.read);
        hr__sample_clear(&a->places[i].sample);
    }
    free_ahead(a);
}

int hr__ahead_wait(struct hr__ahead *a, uint64_t index)
{
    if (!a)
        return 0;
    struct ahead_place *place = place_of(a, index);
    pthread_mutex_lock(&a->lock);
    while (!a->stop && (place->index != index || place->state == FREE || place->state == FLYING))
        pthread_cond_wait(&a->landed, &a->lock);
    int is_read = place->index == index && place->state == READ;
    if (!is_read && place->index == index && place->state == PASSED) {
        place->state = FREE;
        pthread_cond_signal(&a->taken);
    }
    pthread_mutex_unlock(&a->lock);
    return is_read;
}

void hr__ahead_take(struct hr__ahead *a, uint64_t index, struct hr__read *read)
{
    struct ahead_place *place = place_of(a, index);
    const struct hr__read *from = &place->sample.read;
    read->result = from->result;
    read->bytes = from->result ? NULL : from->bytes;
    read->length = from->length;
    read->version = from->version;
    read->reason = from->reason;
    read->release = from->release;
    read->release_arg = from->release_arg;
    pthread_mutex_lock(&a->lock);
    place->sample.read.bytes = NULL;
    place->sample.read.reason = NULL;
    a->bytes -= place->bytes;
    place->bytes = 0;
    place->state = FREE;
    pthread_cond_signal(&a->taken);
    pthread_mutex_unlock(&a->lock);
}

int hr__ahead_sample(struct hr__ahead *a, struct hr__sample *sample, uint64_t index,
                     struct hr_error *error)
{
    int r = hr__sample_aim(sample, a->options.dataset, index, 0, error);
    hr__ahead_take(a, index, &sample->read);
    if (!r)
        return hr__sample_finish(sample, error);
    hr__read_drop(&sample->read);
    return r;
}
