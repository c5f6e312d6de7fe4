/* See yard.h. */
#include "yard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 1000000

static void wrong_locked(struct yard *y, const char *what)
{
    if (!y->wrong)
        y->wrong = what;
}

static unsigned random_locked(struct yard *y)
{
    y->random = y->random * 1664525u + 1013904223u;
    return y->random >> 8;
}

static int acquire(void *self, uint64_t number, struct hr__chunk *out)
{
    struct yard *y = self;
    int r = 0;
    pthread_mutex_lock(&y->lock);
    if (number != y->next)
        wrong_locked(y, "acquire: out of order");
    if (number >= y->limit || (y->refuse_every && random_locked(y) % y->refuse_every == 0))
        r = -EAGAIN;
    else if (number >= y->broken_from)
        r = -ENOSPC;
    y->refused += r == -EAGAIN;
    struct yard_chunk *chunk = &y->chunks[number];
    if (chunk->state != YARD_NEW)
        wrong_locked(y, "acquire: that chunk was here before");
    if (!r) {
        chunk->state = YARD_ACQUIRED;
        size_t bytes = (y->chunk_samples * y->sample_bytes + 63) / 64 * 64;
        chunk->memory.images = aligned_alloc(64, bytes);
        chunk->memory.labels = calloc(y->chunk_samples, sizeof(int64_t));
        chunk->memory.indices = calloc(y->chunk_samples, sizeof(int64_t));
        *out = chunk->memory;
        y->next = number + 1;
        y->acquired++;
    }
    long pause_ns = r ? y->refuse_us * 1000L : 0;
    pthread_mutex_unlock(&y->lock);
    if (pause_ns)
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    return r;
}

static void free_memory(struct yard_chunk *chunk)
{
    free(chunk->memory.images);
    free(chunk->memory.labels);
    free(chunk->memory.indices);
    chunk->memory = (struct hr__chunk){0};
}

static void drop(void *self, uint64_t number)
{
    struct yard *y = self;
    pthread_mutex_lock(&y->lock);
    struct yard_chunk *chunk = &y->chunks[number];
    if (chunk->state != YARD_ACQUIRED)
        wrong_locked(y, "drop: of a chunk that is not acquired");
    chunk->state = YARD_DROPPED;
    /* A sanitizer reports any later write to it. */
    free_memory(chunk);
    y->dropped++;
    pthread_cond_broadcast(&y->moved);
    pthread_mutex_unlock(&y->lock);
}

static void keep_end_locked(struct yard *y, const struct hr__chunk_done *done)
{
    if (y->ended.code)
        wrong_locked(y, "publish: after the end");
    if (!done->error.code)
        return;
    y->ended = done->error;
    y->ended_index = done->failed.index;
    if (done->failed.path && done->failed.place != done->count)
        wrong_locked(y, "publish: the failure is elsewhere");
    snprintf(y->ended_path, sizeof y->ended_path, "%s", done->failed.path ? done->failed.path : "");
    snprintf(y->ended_reason, sizeof y->ended_reason, "%s",
             done->failed.reason ? done->failed.reason : "");
}

static void keep_bad_locked(struct yard *y, const struct hr__chunk_done *done)
{
    for (size_t i = 0; i < done->bad_count; i++) {
        if (done->bad[i].place >= done->count ||
            (i && done->bad[i].place <= done->bad[i - 1].place))
            wrong_locked(y, "publish: bad samples out of place");
        if (!done->bad[i].path || !done->bad[i].reason || !*done->bad[i].reason)
            wrong_locked(y, "publish: a bad sample without path or reason");
        if (y->bad < sizeof y->bad_index / sizeof *y->bad_index)
            y->bad_index[y->bad] = done->bad[i].index;
        y->bad++;
    }
}

static void publish(void *self, const struct hr__chunk_done *done)
{
    struct yard *y = self;
    pthread_mutex_lock(&y->lock);
    if (y->publishing++)
        wrong_locked(y, "publish: two at a time");
    long pause_ns = y->publish_us ? (long)(random_locked(y) % (unsigned)y->publish_us) * 1000 : 0;
    struct yard_chunk *chunk = &y->chunks[done->number];
    int is_unacquired = done->error.code && !done->count && chunk->state == YARD_NEW;
    if (done->number < y->shown)
        wrong_locked(y, "publish: out of order");
    if (chunk->state != YARD_ACQUIRED && !is_unacquired)
        wrong_locked(y, "publish: of a chunk that is not acquired");
    if (done->count > y->chunk_samples || done->padding > done->count)
        wrong_locked(y, "publish: too many samples");
    chunk->state = is_unacquired ? YARD_NEW : YARD_PUBLISHED;
    chunk->epoch = done->epoch;
    chunk->count = done->count;
    chunk->padding = done->padding;
    y->shown = is_unacquired ? y->shown : done->number + 1;
    y->published += !is_unacquired;
    y->samples += done->count;
    keep_bad_locked(y, done);
    keep_end_locked(y, done);
    pthread_mutex_unlock(&y->lock);
    if (pause_ns)
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    pthread_mutex_lock(&y->lock);
    y->publishing--;
    pthread_cond_broadcast(&y->moved);
    pthread_mutex_unlock(&y->lock);
}

static double ahead(void *self)
{
    return atomic_load(&((struct yard *)self)->ahead);
}

static const struct hr__publisher_ops ops = {
    .acquire = acquire,
    .drop = drop,
    .publish = publish,
    .ahead = ahead,
};

void yard_make(struct yard *y, struct hr__crew *crew, const struct fixture *f,
               const struct hr_loader_options *options)
{
    struct hr_error error;
    memset(y, 0, sizeof *y);
    y->chunk_samples = (size_t)options->batch_size;
    y->sample_bytes = f->spec.bytes;
    y->limit = y->broken_from = UINT64_MAX;
    y->random = 7;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&y->lock, NULL);
    pthread_cond_init(&y->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (hr__publisher_create(&y->publisher, crew, f->dataset, f->recipe, options, &ops, y, &error))
        fail_msg("%s", error.message);
}

uint64_t yard_read(struct yard *y, const uint64_t *number)
{
    pthread_mutex_lock(&y->lock);
    uint64_t value = *number;
    pthread_mutex_unlock(&y->lock);
    return value;
}

void yard_check(struct yard *y)
{
    pthread_mutex_lock(&y->lock);
    const char *what = y->wrong;
    pthread_mutex_unlock(&y->lock);
    if (what)
        fail_msg("%s", what);
}

void yard_remove(struct yard *y)
{
    hr_loader_destroy(&y->publisher);
    assert_null(y->publisher);
    yard_check(y);
    assert_int_equal(y->acquired, y->published + y->dropped);
    for (size_t i = 0; i < YARD_CHUNKS; i++) {
        assert_int_not_equal(y->chunks[i].state, YARD_ACQUIRED);
        free_memory(&y->chunks[i]);
    }
    pthread_mutex_destroy(&y->lock);
    pthread_cond_destroy(&y->moved);
}

uint64_t yard_start(struct yard *y, uint64_t epoch, uint64_t position)
{
    struct hr_error error;
    uint64_t samples = 0;
    /* No chunk is acquired before the counters are those of this start. */
    pthread_mutex_lock(&y->lock);
    uint64_t first = y->next, limit = y->limit;
    y->limit = 0;
    pthread_mutex_unlock(&y->lock);
    if (hr__publisher_start(y->publisher, epoch, position, first, &samples, &error))
        fail_msg("%s", error.message);
    pthread_mutex_lock(&y->lock);
    if (y->publishing)
        wrong_locked(y, "start: something is being published");
    y->samples = y->bad = 0;
    y->ended.code = 0;
    pthread_mutex_unlock(&y->lock);
    yard_open(y, limit);
    return samples;
}

void yard_open(struct yard *y, uint64_t limit)
{
    pthread_mutex_lock(&y->lock);
    y->limit = limit;
    pthread_mutex_unlock(&y->lock);
    hr__publisher_room(y->publisher);
}

void yard_wait(struct yard *y, uint64_t samples)
{
    struct timespec until;
    pthread_mutex_lock(&y->lock);
    while (y->samples < samples && !y->ended.code && !y->wrong) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        unsigned asks = y->refuse_every;
        if (!asks) {
            pthread_cond_wait(&y->moved, &y->lock);
            continue;
        }
        pthread_cond_timedwait(&y->moved, &y->lock, &until);
        pthread_mutex_unlock(&y->lock);
        hr__publisher_room(y->publisher);
        pthread_mutex_lock(&y->lock);
    }
    /* Until the last callback has returned. */
    while (y->publishing)
        pthread_cond_wait(&y->moved, &y->lock);
    pthread_mutex_unlock(&y->lock);
    yard_check(y);
}

void embedded_options(struct hr_loader_options *out, const struct hr_loader_options *publisher)
{
    *out = *publisher;
    out->batch_size = 5;
    out->batches_ahead = 2;
    out->cache = NULL;
    out->max_bad_share = 1;
}

void samples_make(struct samples *out, const struct fixture *f,
                  const struct hr_loader_options *options, uint64_t epoch, uint64_t position)
{
    struct hr_loader_state state = {.version = 1,
                                    .shuffle = options->shuffle != 0,
                                    .seed = options->seed,
                                    .epoch = epoch,
                                    .position = position,
                                    .samples = f->count};
    struct hr_batch *batch;
    struct hr_error error;
    size_t most = f->count + (size_t)options->world_size;
    memset(out, 0, sizeof *out);
    out->labels = calloc(most, sizeof *out->labels);
    out->indices = calloc(most, sizeof *out->indices);
    out->images = malloc(most * f->spec.bytes);
    struct hr_loader *loader = fixture_loader(f, options);
    if (hr_loader_restore(loader, &state, &error))
        fail_msg("%s", error.message);
    int r;
    while ((r = hr_loader_next(loader, &batch, &error)) == 1) {
        struct hr_batch_view view;
        hr_batch_get(batch, &view);
        assert_true(out->count + view.count <= most);
        memcpy(out->labels + out->count, view.labels, view.count * sizeof *view.labels);
        memcpy(out->indices + out->count, view.indices, view.count * sizeof *view.indices);
        memcpy(out->images + out->count * f->spec.bytes, view.images, view.count * f->spec.bytes);
        out->count += view.count;
        out->padding += view.padding;
        hr_batch_release(&batch);
    }
    assert_int_equal(r, 0);
    hr_loader_destroy(&loader);
}

void samples_free(struct samples *s)
{
    free(s->labels);
    free(s->indices);
    free(s->images);
}

void samples_compare(const struct samples *expected, struct yard *y, uint64_t first, uint64_t epoch)
{
    size_t at = 0, padding = 0;
    for (uint64_t n = first; n < YARD_CHUNKS && y->chunks[n].state == YARD_PUBLISHED; n++) {
        const struct yard_chunk *chunk = &y->chunks[n];
        size_t count = chunk->count;
        assert_true(at + count <= expected->count);
        assert_int_equal(chunk->epoch, epoch);
        if (at + count < expected->count)
            assert_int_equal(count, y->chunk_samples);
        assert_memory_equal(chunk->memory.labels, expected->labels + at, count * sizeof(int64_t));
        assert_memory_equal(chunk->memory.indices, expected->indices + at, count * sizeof(int64_t));
        assert_memory_equal(chunk->memory.images, expected->images + at * y->sample_bytes,
                            count * y->sample_bytes);
        at += count;
        padding += chunk->padding;
    }
    assert_int_equal(at, expected->count);
    assert_int_equal(padding, expected->padding);
}

int yard_node = -1;

/* Linked with --wrap: a node that this machine need not have. */
struct hr__home __wrap_hr__numa_spread(const char *root, int number);

struct hr__home __wrap_hr__numa_spread(const char *root, int number)
{
    return (struct hr__home){.node = yard_node};
}

struct hr__crew *crew_make(int threads)
{
    struct hr__crew *crew;
    struct hr_error error;
    if (hr__crew_create(&crew, threads, &error))
        fail_msg("%s", error.message);
    assert_int_equal(hr__crew_threads(crew), threads);
    return crew;
}
