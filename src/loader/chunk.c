/*
 * The chunks of a publisher (publisher.h): opens and publishes them.
 *
 * A chunk is a batch of the window whose memory is acquired when it is opened. No consumer takes
 * batches: the worker that completes the first chunk of the window publishes it and the complete
 * chunks after it, while the others go on preparing.
 */
#include "base/error.h"
#include "base/memory.h"
#include "loader/batch_rows.h"
#include "loader/publisher_inside.h"
#include "loader/schedule.h"
#include "recipe/recipe.h"

#include <errno.h>
#include <inttypes.h>

void hr__chunk_free(struct hr_batch *batch)
{
    hr__batch_rows_destroy(&batch->rows);
    hr__free(batch->positions);
    hr__free(batch);
}

static void drop(struct hr_batch *batch);

static const struct hr__batch_owner chunk_owner = {.give_back = drop};

static struct hr_batch *make_description(struct hr__publisher *publisher)
{
    struct hr_batch *batch = hr__alloc(HR__TAG_LOADER, 1, sizeof *batch);
    struct hr__row_table *table = publisher->loader->dataset->rows;
    if (!batch)
        return NULL;
    batch->owner = &chunk_owner;
    batch->publisher = publisher;
    batch->spec = &publisher->loader->spec;
    batch->positions = hr__alloc(HR__TAG_LOADER, (size_t)publisher->loader->options.batch_size,
                                 sizeof *batch->positions);
    /* Without room of its own: the records belong to the chunk's owner. */
    int r = table ? hr__batch_rows_create(&batch->rows, table, 0, NULL) : 0;
    if (!r && batch->positions)
        return batch;
    hr__chunk_free(batch);
    return NULL;
}

static struct hr_batch *take_spare_locked(struct hr__publisher *publisher)
{
    struct hr_batch *batch = publisher->spare;
    if (batch)
        publisher->spare = batch->next;
    return batch;
}

static void put_spare_locked(struct hr_batch *batch)
{
    struct hr__publisher *publisher = batch->publisher;
    batch->images = NULL;
    batch->labels = batch->indices = batch->extents = NULL;
    batch->next = publisher->spare;
    publisher->spare = batch;
}

static void put_spare(struct hr_batch *batch)
{
    struct hr_loader *l = batch->publisher->loader;
    pthread_mutex_lock(&l->lock);
    put_spare_locked(batch);
    pthread_mutex_unlock(&l->lock);
}

/* Gives back a chunk that will not be published. */
static void drop(struct hr_batch *batch)
{
    batch->publisher->ops->drop(batch->publisher->self, batch->chunk);
    put_spare(batch);
}

int hr__chunk_open(struct hr_loader *l, uint64_t number, struct hr_batch **out,
                   struct hr_error *error)
{
    struct hr__publisher *publisher = l->publisher;
    pthread_mutex_lock(&l->lock);
    uint64_t room_asked = publisher->room_asked;
    struct hr_batch *batch = take_spare_locked(publisher);
    pthread_mutex_unlock(&l->lock);
    if (!batch)
        batch = make_description(publisher);
    if (!batch)
        return hr__fail(error, -ENOMEM, "out of memory for chunk %" PRIu64 " of a publisher",
                        number);
    struct hr__chunk chunk = {0};
    int r = publisher->ops->acquire(publisher->self, number, &chunk);
    if (r) {
        pthread_mutex_lock(&l->lock);
        put_spare_locked(batch);
        /* Room may have come meanwhile, and the workers that looked for work then saw an opening in
         * progress. */
        publisher->no_room = r == -EAGAIN && publisher->room_asked == room_asked;
        pthread_mutex_unlock(&l->lock);
        return r == -EAGAIN ? r
                            : hr__fail(error, r, "no memory for %d samples ahead: %s",
                                       l->options.batch_size, hr__errno_text(r));
    }
    batch->chunk = number;
    batch->next = NULL;
    batch->images = chunk.images;
    batch->labels = chunk.labels;
    batch->indices = chunk.indices;
    if (hr__recipe_options(l->recipe)->padded)
        batch->extents = chunk.extents;
    /* The memory may hold anything. */
    size_t numbers = batch->extents ? (size_t)l->options.batch_size * l->spec.dims : 0;
    for (size_t i = 0; i < numbers; i++)
        batch->extents[i] = l->spec.shape[i % l->spec.dims];
    if (batch->rows)
        batch->rows->records = chunk.records;
    if (l->dataset->masks)
        batch->masks = chunk.records;
    *out = batch;
    return 0;
}

/* The chunk that is due. */
struct turn {
    struct hr_batch *batch;   /* taken out of the window; NULL: it could not be opened */
    struct hr_batch *dropped; /* later chunks, if this one ended the publisher */
    struct hr__chunk_done done;
};

static void describe_bad(const struct hr__bad *bad, struct hr__chunk_bad *out)
{
    *out = (struct hr__chunk_bad){
        .place = bad->place,
        .taken = bad->taken,
        .index = bad->index,
        .path = bad->path,
        .reason = bad->reason,
    };
}

/* Describes a chunk, up to the place where the publisher ended if it did. */
static void describe(struct hr__publisher *publisher, const struct hr_batch *batch,
                     struct hr__chunk_done *done)
{
    size_t unused = batch->count - done->count;
    done->number = batch->chunk;
    done->epoch = batch->epoch;
    done->padding = batch->padding > unused ? batch->padding - unused : 0;
    done->bad = publisher->bad;
    for (const struct hr__bad *bad = batch->skipped; bad && bad->place < done->count;
         bad = bad->next)
        describe_bad(bad, &publisher->bad[done->bad_count++]);
    if (batch->failed)
        describe_bad(batch->failed, &done->failed);
}

/* Takes the chunk that is due. The same rule as for a consumer (loader.c): the error of opening the
 * next chunk is reported when that chunk is due, or at once if the first chunk cannot be completed
 * either. */
static int take_turn_locked(struct hr__publisher *publisher, struct turn *turn)
{
    struct hr_loader *l = publisher->loader;
    struct hr_batch *batch = l->window;
    if (l->stop || l->over || !l->plan)
        return 0;
    int is_complete = batch && batch->done == batch->count;
    int is_broken = l->broken.code &&
                    (!batch || (batch->claimed < batch->count && batch->done == batch->claimed));
    if (!is_complete && !is_broken)
        return 0;
    *turn = (struct turn){.batch = batch};
    struct hr__chunk_done *done = &turn->done;
    if (!is_complete)
        done->error = l->broken;
    if (batch) {
        done->count = batch->claimed;
        if (batch->error.code) {
            done->error = batch->error;
            done->count = batch->error_place;
        }
        hr__window_pop_locked(l);
        describe(publisher, batch, done);
    } else {
        done->number = l->plan->first_chunk + l->opened - 1;
        done->epoch = l->plan->epoch;
    }
    if (done->error.code) {
        l->over = l->no_more = 1;
        turn->dropped = hr__cancel_locked(l);
    }
    return 1;
}

static void publish(struct hr__publisher *publisher, struct turn *turn)
{
    struct hr__counters *c = hr__counters_here(publisher->loader);
    hr__count(&c->batches, 1);
    for (size_t i = 0; i < turn->done.bad_count; i++)
        hr__count(turn->done.bad[i].taken ? &c->damaged_samples : &c->bad_samples, 1);
    hr__count(&c->padded_samples, turn->done.padding);
    publisher->ops->publish(publisher->self, &turn->done);
    if (turn->batch) {
        hr__batch_reset(turn->batch);
        put_spare(turn->batch);
    }
    hr__return_slots(turn->dropped);
}

void hr__publisher_publish(struct hr__publisher *publisher)
{
    struct hr_loader *l = publisher->loader;
    struct turn turn;
    pthread_mutex_lock(&l->lock);
    if (publisher->publishing) {
        pthread_mutex_unlock(&l->lock);
        return;
    }
    publisher->publishing = 1;
    while (!publisher->starting && take_turn_locked(publisher, &turn)) {
        if (hr__can_claim_locked(l))
            hr__wake_claimers_locked(l);
        pthread_mutex_unlock(&l->lock);
        publish(publisher, &turn);
        pthread_mutex_lock(&l->lock);
    }
    publisher->turn = 0;
    publisher->publishing = 0;
    if (publisher->starting)
        pthread_cond_broadcast(&publisher->quiet);
    pthread_mutex_unlock(&l->lock);
}
