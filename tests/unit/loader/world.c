/* See world.h. */
#include "world.h"

#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void world_make(struct world *w, struct fixture *f, int hosts, int ranks)
{
    memset(w, 0, sizeof *w);
    w->fixture = f;
    w->hosts = hosts;
    w->ranks = ranks;
    w->ranks_a_host = 1;
    strcpy(w->rest, "size=16MiB");
    fixture_options(&w->options);
    w->options.world_size = ranks;
    for (int i = 0; i < hosts; i++)
        if (memcached_start(&w->servers[i], 0, 64)) {
            for (int before = 0; before < i; before++)
                memcached_stop(&w->servers[before]);
            print_message("no memcached on this machine\n");
            fixture_end(f);
            skip();
        }
}

void world_remove(struct world *w)
{
    world_close(w);
    for (int i = 0; i < w->hosts; i++)
        memcached_stop(&w->servers[i]);
    for (int i = 0; i < WORLD_RANKS; i++) {
        free(w->all[i].indices);
        free(w->all[i].numbers);
        free(w->all[i].images);
    }
    free(w->reference);
}

void world_text(const struct world *w, int rank, char *out, size_t room)
{
    int at = snprintf(out, room, "memcached:");
    for (int i = 0; i < w->hosts; i++)
        at += snprintf(out + at, room - (size_t)at, "%s%s", i ? "," : "", w->servers[i].address);
    /* Servers of a busy machine may be slow: only a test of timeouts has a short one. */
    snprintf(out + at, room - (size_t)at, "?%s%s&self=%d", w->rest,
             strstr(w->rest, "&timeout=") ? "" : "&timeout=20s", rank / w->ranks_a_host % w->hosts);
}

void world_open(struct world *w)
{
    char text[1024];
    for (int i = 0; i < w->ranks; i++) {
        struct world_rank *r = &w->all[i];
        r->world = w;
        r->rank = i;
        if (r->loader)
            continue;
        struct hr_loader_options options = w->options;
        world_text(w, i, text, sizeof text);
        options.rank = i;
        options.world_size = w->ranks;
        options.cache = text;
        r->loader = fixture_loader(w->fixture, &options);
    }
}

void world_close(struct world *w)
{
    for (int i = 0; i < WORLD_RANKS; i++)
        hr_loader_destroy(&w->all[i].loader);
}

static void keep(struct world_rank *r, const struct hr_batch *batch)
{
    size_t bytes = r->world->fixture->spec.bytes;
    struct hr_batch_view view;
    hr_batch_get(batch, &view);
    size_t count = view.count - view.padding;
    if (r->count + count > r->room) {
        r->room = (r->count + count) * 2;
        r->indices = realloc(r->indices, r->room * sizeof *r->indices);
        r->numbers = realloc(r->numbers, r->room * sizeof *r->numbers);
        r->images = realloc(r->images, r->room * bytes);
    }
    for (size_t i = 0; i < count; i++) {
        r->indices[r->count] = view.indices[i];
        r->numbers[r->count] = view.number;
        memcpy(r->images + r->count * bytes, (char *)view.images + i * bytes, bytes);
        r->count++;
    }
    r->padding += view.padding;
    r->replaced += view.replaced;
    r->epoch = view.epoch;
}

static void *consume(void *arg)
{
    struct world_rank *r = arg;
    struct hr_batch *batch;
    r->result = 1;
    while (r->result == 1 && r->batches < r->most) {
        do
            r->result = hr_loader_next(r->loader, &batch, &r->error);
        while (r->result == -EINTR);
        if (r->result != 1)
            break;
        keep(r, batch);
        r->batches++;
        hr_batch_release(&batch);
        if (r->between)
            r->between(r);
    }
    struct hr_error error;
    if (hr_loader_get_state(r->loader, &r->state, &error))
        r->result = -EINVAL;
    return NULL;
}

void world_consume(struct world *w)
{
    pthread_t threads[WORLD_RANKS];
    for (int i = 0; i < w->ranks; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, consume, &w->all[i]), 0);
    for (int i = 0; i < w->ranks; i++)
        pthread_join(threads[i], NULL);
}

static void forget(struct world_rank *r, uint64_t most)
{
    r->count = r->padding = r->replaced = 0;
    r->batches = 0;
    r->most = most;
}

void world_run(struct world *w, uint64_t epoch, uint64_t most)
{
    struct hr_error error;
    world_open(w);
    for (int i = 0; i < w->ranks; i++) {
        forget(&w->all[i], most);
        if (hr_loader_start_epoch(w->all[i].loader, epoch, &error))
            fail_msg("%s", error.message);
    }
    world_consume(w);
    for (int i = 0; i < w->ranks; i++)
        if (w->all[i].result < 0)
            fail_msg("rank %d: %s", i, w->all[i].error.message);
}

/* Returns the images of an epoch, by index, from a plain loader. */
static const uint8_t *reference_of(struct world *w, uint64_t epoch)
{
    size_t bytes = w->fixture->spec.bytes;
    if (w->reference && w->reference_epoch == epoch)
        return w->reference;
    struct hr_loader_options options;
    struct hr_error error;
    fixture_options(&options);
    options.on_error = HR_ON_ERROR_SKIP;
    options.max_bad_share = 1;
    struct hr_loader *loader = fixture_loader(w->fixture, &options);
    struct hr_batch *batch;
    w->reference = realloc(w->reference, w->fixture->count * bytes);
    w->reference_epoch = epoch;
    if (hr_loader_start_epoch(loader, epoch, &error))
        fail_msg("%s", error.message);
    while (hr_loader_next(loader, &batch, &error) == 1) {
        struct hr_batch_view view;
        hr_batch_get(batch, &view);
        for (size_t i = 0; i < view.count; i++)
            memcpy(w->reference + (size_t)view.indices[i] * bytes, (char *)view.images + i * bytes,
                   bytes);
        hr_batch_release(&batch);
    }
    hr_loader_destroy(&loader);
    return w->reference;
}

void world_check(struct world *w, size_t missing)
{
    size_t bytes = w->fixture->spec.bytes, seen = 0;
    unsigned *times = calloc(w->fixture->count, sizeof *times);
    for (int i = 0; i < w->ranks; i++) {
        struct world_rank *r = &w->all[i];
        if (!r->count)
            continue;
        const uint8_t *reference = reference_of(w, r->epoch);
        for (size_t k = 0; k < r->count; k++) {
            if (memcmp(r->images + k * bytes, reference + (size_t)r->indices[k] * bytes, bytes))
                fail_msg("rank %d: sample %ld has another image", i, (long)r->indices[k]);
            times[r->indices[k]]++;
        }
    }
    for (size_t i = 0; i < w->fixture->count; i++) {
        seen += times[i] != 0;
        if (times[i] > 1 && !missing)
            fail_msg("sample %zu came %u times", i, times[i]);
    }
    free(times);
    assert_int_equal(seen, w->fixture->count - missing);
}

void world_stats(const struct world *w, struct hr_loader_stats *sum)
{
    memset(sum, 0, sizeof *sum);
    for (int i = 0; i < w->ranks; i++) {
        struct hr_loader_stats s = {.size = sizeof s};
        hr_loader_get_stats(w->all[i].loader, &s);
        sum->bytes_read += s.bytes_read;
        sum->samples += s.samples;
        sum->own_hits += s.own_hits;
        sum->own_bytes += s.own_bytes;
        sum->peer_hits += s.peer_hits;
        sum->peer_bytes += s.peer_bytes;
        sum->cache_hits += s.cache_hits;
        sum->stored += s.stored;
        sum->stored_bytes += s.stored_bytes;
        sum->refused += s.refused;
        sum->read_ahead += s.read_ahead;
        sum->bad_samples += s.bad_samples;
        sum->converted += s.converted;
    }
}

uint64_t world_bytes(const struct world *w)
{
    uint64_t bytes = 0;
    assert_int_equal(hr_dataset_wait_sizes(w->fixture->dataset), 0);
    for (size_t i = 0; i < w->fixture->count; i++)
        bytes += (uint64_t)hr_dataset_sample_bytes(w->fixture->dataset, i);
    return bytes;
}
