/*
 * Assigns jobs to queues and positions.
 *
 * A stream has one main queue for each rank that its jobs have, and extra queues for jobs that
 * are elsewhere. A job that seeks a position gets the first of these that is possible:
 *
 *   a queue that has the position, or will have it soon; the main queue is tried first;
 *   the main queue, started at the position, if no other job takes from it;
 *   the main queue at its next epoch, once all of the present epoch was published;
 *   a queue of its own.
 *
 * A job that joins (is_first) gets its position if the main queue has it. Otherwise its option
 * `join` decides: the position of the rearmost other job, or the others' next epoch. Ranks that
 * one process started join at one place; the first of them decides for all.
 *
 * A job with an external order has a stream and a queue of its own. That queue is started anew for
 * each request, because it contains only what the job pushed since.
 *
 * A request that cannot be met yet is tried again whenever something has changed.
 */
#include "agent/server/inside.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* A job that joins at the others' next epoch stops waiting for the others after this time: if they
 * do not advance (stopped processes), and if they are between two epochs. */
#define PATIENCE_NS      UINT64_C(5000000000)
#define PATIENCE_OVER_NS UINT64_C(60000000000)
#define LOOK_NS          UINT64_C(1000000000)

static bool is_same(const struct hr__stream *s, const struct hr__agent_job *job)
{
    return s->source == job->source;
}

/* Returns what differs between the datasets and recipes of two jobs. */
static const char *source_difference(const struct hr__source *a, const struct hr__source *b)
{
    const struct hr__produced *p = a->dataset->produced, *q = b->dataset->produced;
    if (!p || !q)
        return "dataset, recipe, rows or masks";
    if (strcmp(p->name, q->name))
        return "class of dataset";
    if (hr_dataset_count(a->dataset) != hr_dataset_count(b->dataset))
        return "number of samples";
    if (p->sample_bytes != q->sample_bytes || memcmp(p->layout, q->layout, sizeof p->layout))
        return "shape or element type of samples";
    return "dataset: the transforms' texts, share_key or the first sample's bytes differ. If it is "
           "the same data nevertheless, give all jobs the same share_key; else";
}

/* Returns 0, or -EINVAL with the first difference. */
static int check_same(const struct hr__stream *s, const struct hr__agent_job *job,
                      struct hr_error *error)
{
    const struct hr__wire_attach *a = &s->as, *b = &job->attach;
    const char *what = !is_same(s, job)                 ? source_difference(s->source, job->source)
                       : a->seed != b->seed             ? "seed"
                       : a->shuffle != b->shuffle       ? "shuffle"
                       : a->world_size != b->world_size ? "world_size"
                       : a->on_error != b->on_error     ? "on_error"
                                                        : NULL;
    if (!what)
        return 0;
    return hr__fail(error, -EINVAL,
                    "stream \"%s\" is used by a job with another %s: give this one another "
                    "stream's name",
                    a->stream, what);
}

/* Adds the job to the party of the process that started it. */
static int join_party(struct hr__agent_job *job, struct hr_error *error)
{
    struct hr__stream *s = job->stream;
    if (job->attach.world_size == 1)
        return 0;
    struct hr__party *party = s->parties;
    while (party && party->key != job->party_key)
        party = party->next;
    if (!party) {
        party = hr__alloc(HR__TAG_AGENT, 1, sizeof *party);
        if (!party)
            return hr__fail(error, -ENOMEM, "the agent is out of memory for a job");
        party->key = job->party_key;
        party->place[0] = UINT64_MAX;
        party->next = s->parties;
        s->parties = party;
    }
    party->jobs++;
    job->party = party;
    return 0;
}

static void leave_party(struct hr__agent_job *job)
{
    struct hr__party *party = job->party;
    job->party = NULL;
    if (!party || --party->jobs)
        return;
    struct hr__party **link = &job->stream->parties;
    while (*link != party)
        link = &(*link)->next;
    *link = party->next;
    hr__free(party);
}

/* Updates is_waiting: whether some job of the stream has lag="wait". */
static void count_waiting(struct hr__stream *s)
{
    s->is_waiting = false;
    for (struct hr__agent_job *job = s->agent->jobs; job; job = job->next)
        s->is_waiting |= job->stream == s && job->attach.lag == HR_LAG_WAIT;
    for (struct hr__queue *queue = s->queues; queue; queue = queue->next)
        if (!queue->is_out && queue->places) /* else the background task's end does it */
            hr__places_set_waiting(queue->places, s->is_waiting);
}

static void free_if_unused(struct hr__stream *s)
{
    if (s->jobs || s->queues)
        return;
    struct hr__stream **link = &s->agent->streams;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    hr__source_unref(&s->source);
    hr__free(s);
}

int hr__stream_enter(struct hr__agent_job *job, struct hr_error *error)
{
    struct hr_agent *agent = job->agent;
    struct hr__stream *s = NULL;
    if (job->attach.stream[0])
        for (s = agent->streams; s; s = s->next)
            if (s->has_name && s->jobs && !strcmp(s->as.stream, job->attach.stream))
                break;
    int r = s ? check_same(s, job, error) : 0;
    if (r)
        return r;
    if (!s) {
        s = hr__alloc(HR__TAG_AGENT, 1, sizeof *s);
        if (!s)
            return hr__fail(error, -ENOMEM, "the agent is out of memory for a stream");
        s->agent = agent;
        s->as = job->attach;
        s->has_name = job->attach.stream[0] != 0;
        s->source = job->source;
        s->source->refs++;
        s->next = agent->streams;
        agent->streams = s;
    }
    job->stream = s;
    s->jobs++;
    count_waiting(s);
    if (s->source->producers) {
        r = hr__producers_enter(s->source->producers, (int32_t)job->pid, error);
        if (r)
            return r;
        job->is_served = true;
    }
    return join_party(job, error);
}

/* Drops the job's open request, and its wait for a queue. */
static void forget(struct hr__agent_job *job)
{
    job->is_seeking = false;
    job->awaits_behind = false;
    if (job->awaited)
        job->awaited->refs--;
    job->awaited = NULL;
}

void hr__job_cursor_end(struct hr__agent_job *job, struct hr__job_cursor *cursor)
{
    struct hr__job_cursor **link = &job->cursors;
    while (*link != cursor)
        link = &(*link)->next;
    *link = cursor->next;
    if (job->cursor == cursor)
        job->cursor = NULL;
    struct hr__queue *queue = cursor->queue;
    hr__places_cursor_destroy(queue->places, &cursor->place);
    queue->refs--;
    hr__free(cursor);
    /* The queue may have waited for this cursor. */
    atomic_store(&queue->is_notified, true);
    hr__agent_wake(job->agent);
}

static struct hr__queue *main_queue(const struct hr__stream *s, int rank)
{
    struct hr__queue *queue = s->queues;
    while (queue && (!queue->is_main || queue->rank != rank || queue->state == HR__QUEUE_ENDING))
        queue = queue->next;
    return queue;
}

static void await(struct hr__agent_job *job, struct hr__queue *queue, bool behind)
{
    if (job->awaited != queue) {
        queue->refs++;
        if (job->awaited)
            job->awaited->refs--;
        job->awaited = queue;
    }
    job->awaits_behind = behind;
}

static void refuse_seek(struct hr__agent_job *job, const struct hr_error *error)
{
    forget(job);
    hr__job_refuse(job, error);
}

static struct hr__job_cursor *cursor_in(struct hr__agent_job *job, const struct hr__queue *queue)
{
    struct hr__job_cursor *cursor = job->cursors;
    while (cursor && cursor->queue != queue)
        cursor = cursor->next;
    return cursor;
}

static struct hr__job_cursor *make_cursor(struct hr__agent_job *job, struct hr__queue *queue,
                                          struct hr_error *error)
{
    struct hr__job_cursor *cursor = hr__alloc(HR__TAG_AGENT, 1, sizeof *cursor);
    if (!cursor) {
        hr__fail(error, -ENOMEM, "the agent is out of memory for a cursor");
        return NULL;
    }
    if (hr__places_cursor_create(queue->places, &cursor->place, (uint64_t)job->attach.batch_size,
                                 error)) {
        hr__free(cursor);
        return NULL;
    }
    cursor->queue = queue;
    cursor->number = ++job->next_cursor;
    cursor->next = job->cursors;
    job->cursors = cursor;
    queue->refs++;
    return cursor;
}

/* Sends PLACED to the job. */
static void answer(struct hr__agent_job *job, struct hr__job_cursor *cursor,
                   const struct hr__span *span, uint64_t sequence)
{
    struct hr__queue *queue = cursor->queue;
    uint64_t behind = (sequence - span->first) * (uint64_t)job->attach.world_size;
    uint64_t position = span->position + behind, samples = hr_dataset_count(job->source->dataset);
    struct hr__wire_message message = {
        .type = HR__WIRE_PLACED,
        .placed =
            {
                .number = job->seek.number,
                .cursor = cursor->number,
                .is_new = !cursor->is_known,
                .is_alone = !queue->is_main,
                .epoch = span->epoch,
                .position = position < samples || job->attach.external_order ? position : samples,
                .sequence = sequence,
                .samples = span->end - sequence,
            },
    };
    if (job->seek.is_first &&
        (span->epoch != job->seek.epoch || message.placed.position != job->seek.position))
        message.placed.missed = message.placed.position;
    if (!cursor->is_known) {
        message.files[0] = queue->places->header_file;
        message.files[1] = queue->places->data_file;
        message.files[2] = cursor->place->file;
        message.files[3] = queue->places->room;
        message.file_count = 4;
    }
    if (job->seek.is_first)
        job->epochs_ahead = span->epoch - job->seek.epoch;
    uint64_t epochs = job->attach.epochs;
    hr__places_set_last(queue->places, cursor->place,
                        epochs && span->epoch - job->epochs_ahead + 1 >= epochs);
    job->cursor = cursor;
    forget(job);
    hr__job_send(job, &message);
    if (!cursor->is_known)
        hr__places_cursor_hand_over(queue->places, cursor->place);
    cursor->is_known = true;
    hr__queue_recall(queue, job, span, sequence);
}

/* Places the job in a queue at a position. Returns true if the job was answered. */
static bool sit(struct hr__agent_job *job, struct hr__queue *queue, const uint64_t place[2])
{
    struct hr__span span;
    uint64_t sequence, step = (uint64_t)job->attach.world_size;
    struct hr__job_cursor *cursor = cursor_in(job, queue);
    if (queue->state != HR__QUEUE_READY || queue->failed ||
        !hr__places_sit(queue->places, cursor ? cursor->place : NULL, place, step, &span,
                        &sequence))
        return false;
    if (!cursor) {
        struct hr_error error;
        cursor = make_cursor(job, queue, &error);
        if (!cursor) {
            refuse_seek(job, &error);
            return true;
        }
        if (!hr__places_sit(queue->places, cursor->place, place, step, &span, &sequence)) {
            hr__job_cursor_end(job, cursor);
            return false;
        }
    }
    answer(job, cursor, &span, sequence);
    return true;
}

/* Returns how many other jobs take from the queue. */
static int others(const struct hr__agent_job *job, const struct hr__queue *queue)
{
    return hr__places_takers(
        queue->places, job->cursor && job->cursor->queue == queue ? job->cursor->place : NULL);
}

/* Returns whether another job of the same rank has a place in the stream. A job between two epochs
 * has one, although it takes from no queue until its request is answered. */
static bool has_others(const struct hr__agent_job *job)
{
    for (const struct hr__agent_job *other = job->agent->jobs; other; other = other->next)
        if (other != job && other->stream == job->stream &&
            other->attach.rank == job->attach.rank &&
            (other->cursor || (other->is_seeking && !other->seek.is_first)))
            return true;
    return false;
}

/* Gives the job a queue of its own: one that it has already, or a new one. */
static void go_alone(struct hr__agent_job *job, const uint64_t place[2])
{
    for (struct hr__queue *queue = job->stream->queues; queue; queue = queue->next) {
        bool is_mine = job->awaited == queue || cursor_in(job, queue);
        if (queue->is_main || !is_mine || queue->state != HR__QUEUE_READY || others(job, queue))
            continue;
        if (queue->failed) {
            struct hr_error error = queue->error;
            refuse_seek(job, &error);
            return;
        }
        hr__queue_set_out(queue, place[0], place[1]);
        await(job, queue, false);
        return;
    }
    struct hr__queue *queue = hr__queue_make(job, false);
    if (queue) {
        await(job, queue, false);
        return;
    }
    struct hr_error error;
    hr__fail(&error, -ENOMEM, "the agent is out of memory for a queue");
    refuse_seek(job, &error);
}

/* Returns whether so little is left of the present span that a job should wait for its end. */
static bool ends_soon(const struct hr__agent_job *job, const struct hr__queue *queue,
                      const struct hr__span *span)
{
    uint64_t left = span->end - span->published;
    return job->stream->is_waiting ||
           left <= 2 * (uint64_t)job->attach.batch_size + queue->places->chunk_samples;
}

/* After an agent was lost, the others may have been placed just now, ahead of this job. Returns
 * whether the queue can go back to this job's position: all samples since fit in the ring. Else the
 * job would be alone for the rest of the epoch. */
static bool rewinds(const struct hr__agent_job *job, const struct hr__queue *queue,
                    const struct hr__span *span, const uint64_t place[2])
{
    uint64_t step = (uint64_t)job->attach.world_size, back = span->position - place[1];
    struct hr__places_status now;
    if (job->seek.is_first || place[0] != span->epoch || place[1] >= span->position || back % step)
        return false;
    hr__places_get_status(queue->places, &now);
    return back / step + now.position_samples - now.ready_samples <= queue->places->ring_samples;
}

/* Makes all other jobs of the queue seek their positions again. */
static void expel_others(struct hr__queue *queue)
{
    hr__places_expel_all(queue->places);
    atomic_store(&queue->is_notified, true);
    hr__agent_wake(queue->stream->agent);
}

/* Tries to bring the main queue to a position that it lacks. Returns true if it will have it. */
static bool bring_main(struct hr__agent_job *job, struct hr__queue *queue, const uint64_t place[2])
{
    struct hr__span span;
    bool is_begun = hr__places_span(queue->places, &span);
    bool is_next = place[0] == span.epoch + 1 && !place[1];
    bool is_over = span.is_halted || span.published == span.end;
    if (!is_begun || !others(job, queue) || (is_next && is_over)) {
        /* The new start clears the header's halt. A job that has not reached the halt yet would
         * take what comes after it for samples, so expel such jobs. */
        if (is_begun && span.is_halted)
            expel_others(queue);
        hr__queue_set_out(queue, place[0], place[1]);
    } else if (rewinds(job, queue, &span, place)) {
        expel_others(queue);
        hr__queue_set_out(queue, place[0], place[1]);
    } else if (is_next && ends_soon(job, queue, &span)) {
        await(job, queue, true);
        return true;
    } else {
        return false;
    }
    await(job, queue, false);
    return true;
}

static void seek_exact(struct hr__agent_job *job, struct hr__queue *main, const uint64_t place[2])
{
    if (sit(job, main, place))
        return;
    for (struct hr__queue *queue = job->stream->queues; queue; queue = queue->next) {
        if (queue->is_main || queue->rank != job->attach.rank)
            continue;
        if (sit(job, queue, place))
            return;
        if (job->awaited == queue && queue->is_out && queue->state != HR__QUEUE_ENDING)
            return; /* the queue is being made or started for this job */
    }
    if (!bring_main(job, main, place))
        go_alone(job, place);
}

/* Places a job that joins; its party then joins at the same place. */
static bool sit_first(struct hr__agent_job *job, struct hr__queue *main, const uint64_t place[2])
{
    if (!sit(job, main, place))
        return false;
    if (job->party)
        memcpy(job->party->place, place, sizeof job->party->place);
    return true;
}

/* Returns whether no active cursor of the queue has advanced for PATIENCE_NS, or for over_ns if all
 * have finished their epoch: jobs do other work between two epochs. */
static bool is_stuck(struct hr__queue *queue, uint64_t now_ns, uint64_t over_ns)
{
    bool is_stuck, is_over;
    uint64_t progress = hr__places_progress(queue->places, &is_stuck, &is_over);
    if (progress != queue->progress || !is_stuck || !queue->progress_ns) {
        queue->progress = progress;
        queue->progress_ns = now_ns;
    }
    return now_ns - queue->progress_ns >= (is_over ? over_ns : PATIENCE_NS);
}

static void wait_for_epoch(struct hr__agent_job *job, struct hr__queue *main,
                           const struct hr__span *span)
{
    if (job->party && job->attach.join == HR_JOIN_EPOCH) {
        job->party->place[0] = span->epoch + 1;
        job->party->place[1] = 0;
    }
    await(job, main, false);
    if (!job->was_notified)
        main->progress_ns = 0;
    /* join="now": begin the next epoch at once, as the others have not. */
    uint64_t over_ns = job->attach.join == HR_JOIN_NOW ? 0 : PATIENCE_OVER_NS;
    if (!job->stream->is_waiting && is_stuck(main, hr__now_ns(), over_ns)) {
        hr__places_expel_all(main->places);
        atomic_store(&main->is_notified, true);
        hr__agent_wake(job->agent);
        hr__queue_set_out(main, span->epoch + 1, 0);
        return;
    }
    if (job->was_notified)
        return;
    job->was_notified = true;
    uint64_t behind = (span->published - span->first) * (uint64_t)job->attach.world_size;
    hr__job_send(job, &(struct hr__wire_message){
                          .type = HR__WIRE_WAITING,
                          .waiting = {.epoch = span->epoch, .position = span->position + behind}});
}

static void seek_first(struct hr__agent_job *job, struct hr__queue *main)
{
    struct hr__span span;
    uint64_t asked[2] = {job->seek.epoch, job->seek.position}, sequence;
    bool is_begun = hr__places_span(main->places, &span);
    if (job->party && job->party->place[0] != UINT64_MAX) {
        uint64_t place[2] = {job->party->place[0], job->party->place[1]};
        if (is_begun && others(job, main) && place[0] > span.epoch && !place[1] &&
            !sit(job, main, place))
            wait_for_epoch(job, main, &span);
        else if (job->is_seeking)
            seek_exact(job, main, place);
        return;
    }
    if (sit_first(job, main, asked))
        return;
    /* The epoch that it waited for may have begun, even if the others have not come to it. */
    uint64_t begin[2] = {span.epoch, 0};
    bool is_joining = is_begun && (has_others(job) || job->was_notified);
    bool may_begin = is_joining && !span.position;
    if (may_begin && job->attach.join == HR_JOIN_EPOCH && sit_first(job, main, begin))
        return;
    if (!is_begun || !has_others(job)) {
        if (job->party)
            memcpy(job->party->place, asked, sizeof job->party->place);
        seek_exact(job, main, asked);
        return;
    }
    if (job->attach.join == HR_JOIN_NOW && hr__places_back(main->places, &sequence)) {
        uint64_t step = (uint64_t)job->attach.world_size;
        uint64_t back[2] = {span.epoch, span.position + (sequence - span.first) * step};
        if (sit_first(job, main, back))
            return;
    }
    if (may_begin && job->attach.join == HR_JOIN_NOW && sit_first(job, main, begin))
        return;
    wait_for_epoch(job, main, &span);
}

/* External order: the job gets the queue if that was started for this request and nothing was
 * pushed since; else the queue is started anew. */
static void seek_own(struct hr__agent_job *job, struct hr__queue *main, const uint64_t place[2])
{
    bool is_for_it = main->is_fresh && main->epoch == place[0] && main->position == place[1];
    if (is_for_it && sit(job, main, place))
        return;
    hr__queue_set_out(main, place[0], place[1]);
    await(job, main, false);
}

/* Tries to answer one job's request. */
static void try_seek(struct hr__agent_job *job)
{
    struct hr__queue *main = main_queue(job->stream, job->attach.rank);
    struct hr_error error;
    if (!main) {
        main = hr__queue_make(job, true);
        if (main) {
            await(job, main, false);
        } else {
            hr__fail(&error, -ENOMEM, "the agent is out of memory for a queue");
            refuse_seek(job, &error);
        }
        return;
    }
    if (main->state != HR__QUEUE_READY) {
        await(job, main, false);
        return;
    }
    if (main->failed) {
        error = main->error;
        refuse_seek(job, &error);
        return;
    }
    uint64_t place[2] = {job->seek.epoch, job->seek.position};
    if (job->attach.external_order)
        seek_own(job, main, place);
    else if (job->seek.is_first)
        seek_first(job, main);
    else
        seek_exact(job, main, place);
}

static bool has_rank(const struct hr__stream *s, int rank)
{
    for (const struct hr__agent_job *job = s->agent->jobs; job; job = job->next)
        if (job->stream == s && job->attach.rank == rank)
            return true;
    return false;
}

/* Stops a queue that nobody takes from; ends one that nobody refers to. */
static void keep_up(struct hr__queue *queue)
{
    if (queue->state != HR__QUEUE_READY)
        return;
    if (!queue->refs &&
        (queue->failed || !queue->is_main || !has_rank(queue->stream, queue->rank))) {
        hr__queue_end(queue);
        return;
    }
    if (queue->failed) {
        /* Jobs that waited for it were notified; the next start may succeed. */
        queue->failed = queue->loader ? 0 : queue->failed;
        return;
    }
    bool behind = false;
    for (const struct hr__agent_job *job = queue->stream->agent->jobs; job; job = job->next)
        behind |= job->awaited == queue && job->awaits_behind;
    hr__places_await(queue->places, behind);
    hr__queue_run(queue, behind || hr__places_takers(queue->places, NULL));
}

static void settle(struct hr__stream *stream)
{
    stream->has_changed = false;
    for (struct hr__agent_job *job = stream->agent->jobs; job; job = job->next)
        if (job->stream == stream && job->is_seeking)
            try_seek(job);
    for (struct hr__queue *queue = stream->queues, *next; queue; queue = next) {
        next = queue->next;
        keep_up(queue);
    }
    free_if_unused(stream);
}

void hr__stream_leave(struct hr__agent_job *job)
{
    struct hr__stream *s = job->stream;
    if (!s)
        return;
    forget(job);
    while (job->cursors)
        hr__job_cursor_end(job, job->cursors);
    leave_party(job);
    job->stream = NULL;
    s->jobs--;
    if (job->is_served)
        hr__producers_exit(s->source->producers, (int32_t)job->pid);
    job->is_served = false;
    count_waiting(s);
    settle(s);
}

void hr__streams_settle(struct hr_agent *agent)
{
    for (struct hr__stream *s = agent->streams, *next; s; s = next) {
        next = s->next;
        if (s->has_changed)
            settle(s);
    }
}

void hr__stream_seek(struct hr__agent_job *job)
{
    struct hr_error error;
    uint64_t samples = hr_dataset_count(job->source->dataset);
    if (job->cursor)
        hr__places_rise(job->cursor->queue->places, job->cursor->place);
    job->cursor = NULL;
    job->was_notified = job->awaits_behind = false;
    job->is_seeking = true;
    job->asked_ns = hr__now_ns();
    if (job->seek.position > samples && !job->attach.external_order) {
        hr__fail(&error, -EINVAL, "position %" PRIu64 " is beyond the epoch's %" PRIu64 " samples",
                 job->seek.position, samples);
        refuse_seek(job, &error);
    }
    settle(job->stream);
}

void hr__streams_watch(struct hr_agent *agent, uint64_t now_ns)
{
    if (agent->watch_ns != UINT64_MAX && now_ns < agent->watch_ns)
        return;
    agent->watch_ns = UINT64_MAX;
    for (struct hr__agent_job *job = agent->jobs; job; job = job->next) {
        if (!job->is_seeking || !job->was_notified)
            continue;
        agent->watch_ns = now_ns + LOOK_NS;
        try_seek(job);
    }
}
