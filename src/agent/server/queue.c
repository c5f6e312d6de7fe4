/*
 * A queue of the agent: a loader that publishes into shared memory. Slow work runs in background
 * tasks; while a queue's task is running, the loop does not touch the queue.
 */
#include "agent/server/inside.h"
#include "agent/server/recording.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/numa.h"
#include "dataset/row_table.h"
#include "loader/publisher.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define STAGING_UNLIMITED (UINT64_C(1) << 62)

static int acquire(void *self, uint64_t number, struct hr__chunk *out)
{
    return hr__places_acquire(((struct hr__queue *)self)->places, number, out);
}

static void drop(void *self, uint64_t number)
{
    hr__places_drop(((struct hr__queue *)self)->places, number);
}

static void publish(void *self, const struct hr__chunk_done *done)
{
    struct hr__queue *queue = self;
    hr__places_publish(queue->places, done);
    hr__recording_published(queue, done);
}

static double ahead(void *self)
{
    return hr__places_ahead(((struct hr__queue *)self)->places);
}

static const struct hr__publisher_ops ops = {
    .acquire = acquire, .drop = drop, .publish = publish, .ahead = ahead};

/* Called on the crew's threads too. */
static void notify(void *arg)
{
    struct hr__queue *queue = arg;
    if (!atomic_exchange(&queue->is_notified, true))
        hr__agent_wake(queue->stream->agent);
}

/* Returns the job that may push batches to the queue now (external order); NULL: none. */
static struct hr__agent_job *pusher(const struct hr__queue *queue)
{
    struct hr__agent_job *job = queue->stream->agent->jobs;
    if (!queue->stream->as.external_order || queue->state != HR__QUEUE_READY || queue->failed)
        return NULL;
    while (job && (job->is_lost || !job->cursor || job->cursor->queue != queue))
        job = job->next;
    return job;
}

/* Moves batches that the job has pushed to the queue's loader. Ends a job that pushed invalid
 * data. */
static void take_pushed(struct hr__queue *queue)
{
    struct hr__agent_job *job = pusher(queue);
    struct hr_error error;
    size_t count = 0;
    int r = job != NULL;
    while (r == 1) {
        r = hr__places_pushed(queue->places, job->cursor->place, queue->pushed, queue->indices,
                              &count, &error);
        if (r == 1)
            r = hr_loader_push(queue->loader, queue->indices, count, &error) ? error.code : 1;
        if (r == 1) {
            queue->is_fresh = false;
            queue->pushed++;
            queue->pushed_samples += count;
        }
    }
    if (r >= 0)
        return;
    hr__job_refuse(job, &error);
    hr__job_lose(job);
}

static void room_ready(struct hr__watched *watched, uint32_t events)
{
    struct hr__queue *queue = HR__OF(struct hr__queue, room, watched);
    uint64_t count;
    ssize_t n = read(queue->places->room, &count, sizeof count);
    (void)n; /* it may have been read already: a spurious wake-up */
    if (queue->state != HR__QUEUE_ENDING && hr__places_take_room(queue->places))
        hr__publisher_room(queue->loader);
    take_pushed(queue);
}

/* Makes the loader's options from those of the stream's first job, with chunks as batches. */
static void queue_options(const struct hr__queue *queue, struct hr_loader_options *o)
{
    const struct hr__wire_attach *as = &queue->stream->as;
    const struct hr__places *places = queue->places;
    uint64_t chunk = places->chunk_samples;
    uint64_t open = ((uint64_t)as->batches_ahead * (uint64_t)as->batch_size + chunk - 1) / chunk;
    /* At least as many samples as there are workers, and one more chunk. */
    uint64_t busy = (uint64_t)queue->stream->agent->threads / chunk + 2;
    open = open < busy ? busy : open;
    hr_loader_options_default(o);
    o->batch_size = (int)chunk;
    o->batches_ahead = (int)(open < places->places ? open : places->places);
    o->external_order = as->external_order;
    o->shuffle = as->shuffle;
    o->seed = as->seed;
    o->rank = queue->rank;
    o->world_size = as->world_size;
    /* Producers keep what they made in memory of their own. */
    o->staging_bytes = queue->stream->source->producers ? STAGING_UNLIMITED : as->staging_bytes;
    o->direct_io = as->direct_io;
    o->no_io_uring = as->no_io_uring;
    o->on_error = (enum hr_on_error)as->on_error;
    o->epochs = as->epochs;
    o->cache = hr__stream_cache(queue->stream);
    /* The form is part of the agent's own cache text, if it has one. */
    o->cache_form = queue->stream->agent->cache ? HR_FORM_AUTO : as->cache_form;
}

static void make_run(struct hr__task *task)
{
    struct hr__queue *queue = HR__OF(struct hr__queue, task, task);
    struct hr__stream *stream = queue->stream;
    struct hr__places_wish wish = {
        .queue = queue->number,
        .sample_bytes = stream->source->spec.bytes,
        .record_bytes = hr__record_bytes(stream->source->dataset, &stream->source->spec),
        .dims = stream->source->spec.dims,
        .batch_samples = (uint64_t)stream->as.batch_size,
        .window = (uint64_t)stream->as.window,
        .is_pushed = stream->as.external_order != 0,
        .node = queue->node,
        .notify = notify,
        .arg = queue,
    };
    queue->outcome = hr__places_create(&queue->places, &wish, &queue->error);
    if (!queue->outcome && wish.is_pushed) {
        queue->indices = hr__alloc(HR__TAG_AGENT, wish.batch_samples, sizeof *queue->indices);
        if (!queue->indices)
            queue->outcome =
                hr__fail(&queue->error, -ENOMEM, "out of memory for a batch's indices");
    }
    if (!queue->outcome && queue->kept == NULL)
        queue->outcome = hr__kept_open(&queue->kept, stream, &queue->error);
    if (queue->outcome)
        return;
    struct hr_loader_options options;
    queue_options(queue, &options);
    queue->outcome =
        hr__publisher_create(&queue->loader, stream->agent->crew, stream->source->dataset,
                             stream->source->recipe, &options, &ops, queue, &queue->error);
    if (!queue->outcome && stream->source->producers)
        hr__publisher_set_samples(queue->loader, hr__producers_source(stream->source->producers));
    if (!queue->outcome)
        hr__publisher_set_home(queue->loader, (struct hr__home){.node = queue->node});
}

static void end_start(struct hr__queue *queue);

static void make_done(struct hr__task *task)
{
    struct hr__queue *queue = HR__OF(struct hr__queue, task, task);
    struct hr__stream *stream = queue->stream;
    queue->is_out = false;
    queue->failed = queue->outcome;
    hr__kept_add(stream->agent, &queue->kept);
    if (!queue->failed) {
        hr__places_set_waiting(queue->places, stream->is_waiting);
        int r = hr__agent_watch(stream->agent, queue->places->room, &queue->room, EPOLLIN);
        if (r)
            queue->failed = hr__fail(&queue->error, r, "a queue: %s", hr__errno_text(r));
    }
    if (queue->state == HR__QUEUE_ENDING) {
        end_start(queue);
        return;
    }
    queue->state = HR__QUEUE_READY;
    hr__recording_queue(queue);
    stream->has_changed = true;
}

static void send_out(struct hr__queue *queue, void (*run)(struct hr__task *),
                     void (*done)(struct hr__task *))
{
    queue->is_out = true;
    queue->task.run = run;
    queue->task.done = done;
    hr__task_start(&queue->stream->agent->tasks, &queue->task);
}

struct hr__queue *hr__queue_make(const struct hr__agent_job *job, bool is_main)
{
    struct hr__stream *stream = job->stream;
    struct hr__queue *queue = hr__alloc(HR__TAG_AGENT, 1, sizeof *queue);
    if (!queue)
        return NULL;
    queue->stream = stream;
    queue->rank = job->attach.rank;
    queue->node = hr__numa_home_at("", job->attach.node).node;
    queue->is_main = is_main;
    queue->number = ++stream->agent->next_queue;
    queue->state = HR__QUEUE_MAKING;
    queue->room.ready = room_ready;
    queue->next = stream->queues;
    stream->queues = queue;
    send_out(queue, make_run, make_done);
    return queue;
}

static void start_run(struct hr__task *task)
{
    struct hr__queue *queue = HR__OF(struct hr__queue, task, task);
    queue->outcome = hr__publisher_start(queue->loader, queue->epoch, queue->position, queue->first,
                                         &queue->samples, &queue->error);
}

static void start_done(struct hr__task *task)
{
    struct hr__queue *queue = HR__OF(struct hr__queue, task, task);
    queue->is_out = false;
    queue->failed = queue->outcome;
    if (queue->state == HR__QUEUE_ENDING) {
        end_start(queue);
        return;
    }
    queue->state = HR__QUEUE_READY;
    hr__places_set_waiting(queue->places, queue->stream->is_waiting);
    if (!queue->failed)
        hr__places_begin(queue->places, queue->epoch, queue->position, queue->first,
                         queue->samples);
    queue->is_fresh = !queue->failed;
    queue->pushed = queue->first;
    queue->pushed_samples = 0;
    queue->stream->has_changed = true;
}

void hr__queue_set_out(struct hr__queue *queue, uint64_t epoch, uint64_t position)
{
    queue->state = HR__QUEUE_STARTING;
    queue->epoch = epoch;
    queue->position = position;
    queue->first = hr__places_stop(queue->places);
    send_out(queue, start_run, start_done);
}

static void end_run(struct hr__task *task)
{
    struct hr__queue *queue = HR__OF(struct hr__queue, task, task);
    hr_loader_destroy(&queue->loader);
}

static void end_done(struct hr__task *task)
{
    struct hr__queue *queue = HR__OF(struct hr__queue, task, task);
    struct hr__stream *stream = queue->stream;
    struct hr__queue **link = &stream->queues;
    queue->is_out = false;
    /* The jobs share this eventfd: without unwatch it would stay in epoll. */
    if (queue->places)
        hr__agent_unwatch(stream->agent, queue->places->room);
    while (*link != queue)
        link = &(*link)->next;
    *link = queue->next;
    queue->next = stream->agent->ended_queues;
    stream->agent->ended_queues = queue;
    stream->has_changed = true;
}

static void end_start(struct hr__queue *queue)
{
    if (queue->places)
        hr__places_stop(queue->places);
    send_out(queue, end_run, end_done);
}

void hr__queue_end(struct hr__queue *queue)
{
    if (queue->state == HR__QUEUE_ENDING)
        return;
    queue->state = HR__QUEUE_ENDING;
    if (!queue->is_out)
        end_start(queue);
}

void hr__queues_reap(struct hr_agent *agent)
{
    while (agent->ended_queues) {
        struct hr__queue *queue = agent->ended_queues;
        agent->ended_queues = queue->next;
        hr__places_destroy(&queue->places);
        hr__free(queue->indices);
        hr__free(queue);
    }
}

void hr__queue_run(struct hr__queue *queue, bool is_running)
{
    if (!is_running)
        hr__places_stop(queue->places);
    else if (hr__places_go_on(queue->places))
        hr__publisher_room(queue->loader);
}

/* The receivers of a record. */
struct recipients {
    struct hr__queue *queue;
    struct hr__agent_job *job;     /* NULL: all jobs that take from the queue */
    struct hr__job_cursor *cursor; /* of `job` */
};

static void send_record(struct hr__agent_job *job, const struct hr__job_cursor *cursor,
                        const struct hr__place_record *record)
{
    struct hr__wire_message message = {.type = record->is_halt ? HR__WIRE_HALT : HR__WIRE_BAD};
    if (record->is_halt) {
        struct hr__wire_halt *halt = &message.halt;
        halt->cursor = cursor->number;
        halt->has_sample = record->has_sample;
        halt->sequence = record->sequence;
        halt->index = record->index;
        halt->error = record->error;
        strncpy(halt->path, record->path, sizeof halt->path - 1);
        strncpy(halt->reason, record->reason, sizeof halt->reason - 1);
    } else {
        struct hr__wire_bad *bad = &message.bad;
        bad->cursor = cursor->number;
        bad->sequence = record->sequence;
        bad->index = record->index;
        strncpy(bad->reason, record->reason, sizeof bad->reason - 1);
    }
    hr__job_send(job, &message);
}

static void pass_record(void *arg, const struct hr__place_record *record)
{
    struct recipients *recipients = arg;
    if (recipients->job) {
        send_record(recipients->job, recipients->cursor, record);
        return;
    }
    for (struct hr__agent_job *job = recipients->queue->stream->agent->jobs; job; job = job->next)
        if (job->cursor && job->cursor->queue == recipients->queue &&
            job->cursor->place->is_taking && record->sequence >= job->cursor->place->base &&
            record->sequence <= job->cursor->place->end)
            send_record(job, job->cursor, record);
}

void hr__queue_recall(struct hr__queue *queue, struct hr__agent_job *job,
                      const struct hr__span *span, uint64_t sequence)
{
    struct recipients recipients = {.queue = queue, .job = job, .cursor = job->cursor};
    hr__places_recall(queue->places, sequence, span->end, pass_record, &recipients);
}

static void look_for_expelled(struct hr__queue *queue)
{
    struct hr_agent *agent = queue->stream->agent;
    for (struct hr__agent_job *job = agent->jobs; job; job = job->next) {
        struct hr__job_cursor *cursor = job->cursor;
        if (!cursor || cursor->queue != queue ||
            !hr__places_was_expelled(queue->places, cursor->place))
            continue;
        agent->expelled++;
        job->cursor = NULL;
        hr__job_send(job, &(struct hr__wire_message){.type = HR__WIRE_EXPELLED,
                                                     .expelled = {.cursor = cursor->number}});
    }
}

/* Handles what the queue's memory has notified the loop of. */
static void look(struct hr__queue *queue)
{
    /* While the background task is running, places and loader belong to the task. */
    if (queue->is_out || queue->state == HR__QUEUE_ENDING || !queue->places || !queue->loader ||
        !atomic_exchange(&queue->is_notified, false))
        return;
    struct recipients recipients = {.queue = queue};
    hr__places_publish_records(queue->places, pass_record, &recipients);
    look_for_expelled(queue);
    if (hr__places_take_room(queue->places))
        hr__publisher_room(queue->loader);
    queue->stream->has_changed = true;
}

void hr__queues_look(struct hr_agent *agent)
{
    for (struct hr__stream *s = agent->streams; s; s = s->next)
        for (struct hr__queue *queue = s->queues; queue; queue = queue->next)
            look(queue);
}
