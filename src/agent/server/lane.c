/*
 * A lane of the agent: a loader over a memory of its own. What takes long is done
 * on errands; a lane that has one under way is left alone until it is back.
 */
#include "agent/server/inside.h"
#include "agent/server/recording.h"

#include "base/error.h"
#include "base/memory.h"
#include "loader/lane.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int acquire(void *self, uint64_t number, struct hr__chunk *out)
{
    return hr__places_acquire(((struct hr__agent_lane *)self)->places, number, out);
}

static void drop(void *self, uint64_t number)
{
    hr__places_drop(((struct hr__agent_lane *)self)->places, number);
}

static void publish(void *self, const struct hr__chunk_done *done)
{
    struct hr__agent_lane *lane = self;
    hr__places_publish(lane->places, done);
    hr__recording_published(lane, done);
}

static double ahead(void *self)
{
    return hr__places_ahead(((struct hr__agent_lane *)self)->places);
}

static const struct hr__lane_ops ops = {
    .acquire = acquire, .drop = drop, .publish = publish, .ahead = ahead};

/* On the crew's threads too. */
static void tell(void *arg)
{
    struct hr__agent_lane *lane = arg;
    if (!atomic_exchange(&lane->is_told, true))
        hr__agent_wake(lane->stream->agent);
}

/* The one job of a lane whose order is the job's own, where it may push. */
static struct hr__agent_job *pusher(const struct hr__agent_lane *lane)
{
    struct hr__agent_job *job = lane->stream->agent->jobs;
    if (!lane->stream->as.external_order || lane->state != HR__LANE_READY || lane->failed)
        return NULL;
    while (job && (!job->seat || job->seat->lane != lane))
        job = job->next;
    return job;
}

/* Hands the lane what the job has pushed. A job that pushed nonsense is ended. */
static void take_pushed(struct hr__agent_lane *lane)
{
    struct hr__agent_job *job = pusher(lane);
    struct hr_error error;
    size_t count = 0;
    int r = job != NULL;
    while (r == 1) {
        r = hr__places_pushed(lane->places, job->seat->place, lane->pushed, lane->indices, &count,
                              &error);
        if (r == 1)
            r = hr_loader_push(lane->loader, lane->indices, count, &error) ? error.code : 1;
        if (r == 1) {
            lane->is_fresh = false;
            lane->pushed++;
            lane->pushed_samples += count;
        }
    }
    if (r >= 0)
        return;
    hr__job_refuse(job, &error);
    hr__job_end(job);
}

static void room_ready(struct hr__watched *watched, uint32_t events)
{
    struct hr__agent_lane *lane = HR__OF(struct hr__agent_lane, room, watched);
    uint64_t count;
    ssize_t n = read(lane->places->room, &count, sizeof count);
    (void)n; /* another read it: a spurious wake-up */
    if (lane->state != HR__LANE_ENDING && hr__places_take_room(lane->places))
        hr__lane_room(lane->loader);
    take_pushed(lane);
}

/* What the lane's loader is asked for: the first job's wishes, cut into chunks. */
static void lane_options(const struct hr__agent_lane *lane, struct hr_loader_options *o)
{
    const struct hr__wire_attach *as = &lane->stream->as;
    const struct hr__places *places = lane->places;
    uint64_t chunk = places->chunk_samples;
    uint64_t open = ((uint64_t)as->batches_ahead * (uint64_t)as->batch_size + chunk - 1) / chunk;
    /* As many samples as there are workers, and a chunk to go on with. */
    uint64_t busy = (uint64_t)lane->stream->agent->threads / chunk + 2;
    open = open < busy ? busy : open;
    hr_loader_options_default(o);
    o->batch_size = (int)chunk;
    o->batches_ahead = (int)(open < places->places ? open : places->places);
    o->external_order = as->external_order;
    o->shuffle = as->shuffle;
    o->seed = as->seed;
    o->rank = lane->rank;
    o->world_size = as->world_size;
    o->staging_bytes = as->staging_bytes;
    o->direct_io = as->direct_io;
    o->no_io_uring = as->no_io_uring;
    o->on_error = (enum hr_on_error)as->on_error;
    o->epochs = as->epochs;
    o->cache = hr__stream_cache(lane->stream);
    /* The agent's own text says the form, or leaves it open. */
    o->cache_form = lane->stream->agent->cache ? HR_FORM_AUTO : as->cache_form;
}

static void make_run(struct hr__errand *errand)
{
    struct hr__agent_lane *lane = HR__OF(struct hr__agent_lane, errand, errand);
    struct hr__stream *stream = lane->stream;
    struct hr__places_wish wish = {
        .lane = lane->number,
        .sample_bytes = stream->source->spec.bytes,
        .batch_samples = (uint64_t)stream->as.batch_size,
        .window = (uint64_t)stream->as.window,
        .is_pushed = stream->as.external_order != 0,
        .tell = tell,
        .arg = lane,
    };
    lane->outcome = hr__places_create(&lane->places, &wish, &lane->error);
    if (!lane->outcome && wish.is_pushed) {
        lane->indices = hr__alloc(HR__TAG_AGENT, wish.batch_samples, sizeof *lane->indices);
        if (!lane->indices)
            lane->outcome = hr__fail(&lane->error, -ENOMEM, "out of memory for a batch's indices");
    }
    if (!lane->outcome && lane->kept == NULL)
        lane->outcome = hr__kept_open(&lane->kept, stream, &lane->error);
    if (lane->outcome)
        return;
    struct hr_loader_options options;
    lane_options(lane, &options);
    lane->outcome = hr__lane_create(&lane->loader, stream->agent->crew, stream->source->dataset,
                                    stream->source->recipe, &options, &ops, lane, &lane->error);
}

static void end_start(struct hr__agent_lane *lane);

static void make_done(struct hr__errand *errand)
{
    struct hr__agent_lane *lane = HR__OF(struct hr__agent_lane, errand, errand);
    struct hr__stream *stream = lane->stream;
    lane->is_out = false;
    lane->failed = lane->outcome;
    hr__kept_add(stream->agent, &lane->kept);
    if (!lane->failed) {
        hr__places_set_waiting(lane->places, stream->is_waiting);
        int r = hr__agent_watch(stream->agent, lane->places->room, &lane->room, EPOLLIN);
        if (r)
            lane->failed = hr__fail(&lane->error, r, "a lane: %s", hr__errno_text(r));
    }
    if (lane->state == HR__LANE_ENDING) {
        end_start(lane);
        return;
    }
    lane->state = HR__LANE_READY;
    hr__recording_lane(lane);
    hr__stream_settle(stream);
}

static void send_out(struct hr__agent_lane *lane, void (*run)(struct hr__errand *),
                     void (*done)(struct hr__errand *))
{
    lane->is_out = true;
    lane->errand.run = run;
    lane->errand.done = done;
    hr__errand_start(&lane->stream->agent->errands, &lane->errand);
}

struct hr__agent_lane *hr__agent_lane_make(struct hr__stream *stream, int rank, bool is_main)
{
    struct hr__agent_lane *lane = hr__alloc(HR__TAG_AGENT, 1, sizeof *lane);
    if (!lane)
        return NULL;
    lane->stream = stream;
    lane->rank = rank;
    lane->is_main = is_main;
    lane->number = ++stream->agent->next_lane;
    lane->state = HR__LANE_MAKING;
    lane->room.ready = room_ready;
    lane->next = stream->lanes;
    stream->lanes = lane;
    send_out(lane, make_run, make_done);
    return lane;
}

static void start_run(struct hr__errand *errand)
{
    struct hr__agent_lane *lane = HR__OF(struct hr__agent_lane, errand, errand);
    lane->outcome = hr__lane_start(lane->loader, lane->epoch, lane->position, lane->first,
                                   &lane->samples, &lane->error);
}

static void start_done(struct hr__errand *errand)
{
    struct hr__agent_lane *lane = HR__OF(struct hr__agent_lane, errand, errand);
    lane->is_out = false;
    lane->failed = lane->outcome;
    if (lane->state == HR__LANE_ENDING) {
        end_start(lane);
        return;
    }
    lane->state = HR__LANE_READY;
    hr__places_set_waiting(lane->places, lane->stream->is_waiting);
    if (!lane->failed)
        hr__places_begin(lane->places, lane->epoch, lane->position, lane->first, lane->samples);
    lane->is_fresh = !lane->failed;
    lane->pushed = lane->first;
    lane->pushed_samples = 0;
    hr__stream_settle(lane->stream);
}

void hr__agent_lane_set_out(struct hr__agent_lane *lane, uint64_t epoch, uint64_t position)
{
    lane->state = HR__LANE_STARTING;
    lane->epoch = epoch;
    lane->position = position;
    lane->first = hr__places_stop(lane->places);
    send_out(lane, start_run, start_done);
}

static void end_run(struct hr__errand *errand)
{
    struct hr__agent_lane *lane = HR__OF(struct hr__agent_lane, errand, errand);
    hr_loader_destroy(&lane->loader);
}

static void end_done(struct hr__errand *errand)
{
    struct hr__agent_lane *lane = HR__OF(struct hr__agent_lane, errand, errand);
    struct hr__stream *stream = lane->stream;
    struct hr__agent_lane **link = &stream->lanes;
    lane->is_out = false;
    /* Jobs have it, too. */
    if (lane->places)
        hr__agent_unwatch(stream->agent, lane->places->room);
    while (*link != lane)
        link = &(*link)->next;
    *link = lane->next;
    lane->next = stream->agent->ended_lanes;
    stream->agent->ended_lanes = lane;
    hr__stream_settle(stream);
}

static void end_start(struct hr__agent_lane *lane)
{
    if (lane->places)
        hr__places_stop(lane->places);
    send_out(lane, end_run, end_done);
}

void hr__agent_lane_end(struct hr__agent_lane *lane)
{
    if (lane->state == HR__LANE_ENDING)
        return;
    lane->state = HR__LANE_ENDING;
    if (!lane->is_out)
        end_start(lane);
}

void hr__agent_lanes_bury(struct hr_agent *agent)
{
    while (agent->ended_lanes) {
        struct hr__agent_lane *lane = agent->ended_lanes;
        agent->ended_lanes = lane->next;
        hr__places_destroy(&lane->places);
        hr__free(lane->indices);
        hr__free(lane);
    }
}

void hr__agent_lane_run(struct hr__agent_lane *lane, bool is_running)
{
    if (!is_running)
        hr__places_stop(lane->places);
    else if (hr__places_go_on(lane->places))
        hr__lane_room(lane->loader);
}

/* Who is told of records. */
struct telling {
    struct hr__agent_lane *lane;
    struct hr__agent_job *job; /* NULL: all that take from the lane */
    struct hr__job_seat *seat; /* its seat */
};

static void send_record(struct hr__agent_job *job, const struct hr__job_seat *seat,
                        const struct hr__place_record *record)
{
    struct hr__wire_message message = {.type = record->is_halt ? HR__WIRE_HALT : HR__WIRE_BAD};
    if (record->is_halt) {
        struct hr__wire_halt *halt = &message.halt;
        halt->seat = seat->number;
        halt->has_sample = record->has_sample;
        halt->sequence = record->sequence;
        halt->index = record->index;
        halt->error = record->error;
        strncpy(halt->path, record->path, sizeof halt->path - 1);
        strncpy(halt->reason, record->reason, sizeof halt->reason - 1);
    } else {
        struct hr__wire_bad *bad = &message.bad;
        bad->seat = seat->number;
        bad->sequence = record->sequence;
        bad->index = record->index;
        strncpy(bad->reason, record->reason, sizeof bad->reason - 1);
    }
    hr__job_send(job, &message);
}

static void tell_record(void *arg, const struct hr__place_record *record)
{
    struct telling *telling = arg;
    if (telling->job) {
        send_record(telling->job, telling->seat, record);
        return;
    }
    for (struct hr__agent_job *job = telling->lane->stream->agent->jobs; job; job = job->next)
        if (job->seat && job->seat->lane == telling->lane && job->seat->place->is_taking &&
            record->sequence >= job->seat->place->base && record->sequence <= job->seat->place->end)
            send_record(job, job->seat, record);
}

void hr__agent_lane_recall(struct hr__agent_lane *lane, struct hr__agent_job *job,
                           const struct hr__span *span, uint64_t sequence)
{
    struct telling telling = {.lane = lane, .job = job, .seat = job->seat};
    hr__places_recall(lane->places, sequence, span->end, tell_record, &telling);
}

static void look_for_expelled(struct hr__agent_lane *lane)
{
    struct hr_agent *agent = lane->stream->agent;
    for (struct hr__agent_job *job = agent->jobs; job; job = job->next) {
        struct hr__job_seat *seat = job->seat;
        if (!seat || seat->lane != lane || !hr__places_was_expelled(lane->places, seat->place))
            continue;
        agent->expelled++;
        job->seat = NULL;
        hr__job_send(job, &(struct hr__wire_message){.type = HR__WIRE_EXPELLED,
                                                     .expelled = {.seat = seat->number}});
    }
}

bool hr__agent_lane_look(struct hr__agent_lane *lane)
{
    /* While an errand is out, its memory and its loader are the errand's. */
    if (lane->is_out || lane->state == HR__LANE_ENDING || !lane->places || !lane->loader ||
        !atomic_exchange(&lane->is_told, false))
        return false;
    struct telling telling = {.lane = lane};
    hr__places_tell(lane->places, tell_record, &telling);
    look_for_expelled(lane);
    if (hr__places_take_room(lane->places))
        hr__lane_room(lane->loader);
    hr__stream_settle(lane->stream);
    return true;
}
