/*
 * Records a trace for a viewer; see recording.h. The recorder itself is trace.c.
 *
 * Writing the text of a long recording takes about a second, so a background task does it. If the
 * viewer is gone by then, the text is dropped and the next viewer may record.
 */
#include "agent/server/recording.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int hr__recording_create(struct hr_agent *agent, struct hr_error *error)
{
    struct hr__recording *r = &agent->recording;
    int code = hr__trace_create(&r->trace, agent->threads, error);
    if (!code)
        hr__crew_watch(agent->crew, hr__trace_watch, r->trace);
    return code;
}

void hr__recording_destroy(struct hr_agent *agent)
{
    hr__trace_destroy(&agent->recording.trace);
}

void hr__recording_queue(struct hr__queue *queue)
{
    const struct hr__stream *stream = queue->stream;
    struct hr__trace *trace = stream->agent->recording.trace;
    char title[200];
    if (!hr__trace_is_on(trace) || !queue->loader)
        return;
    snprintf(title, sizeof title, "%s%s, rank %d of %d%s",
             stream->has_name ? "stream " : "a job's own stream",
             stream->has_name ? stream->as.stream : "", queue->rank, (int)stream->as.world_size,
             queue->is_main ? "" : ", alone");
    hr__trace_queue(trace, queue->loader, queue->number, title);
}

void hr__recording_published(struct hr__queue *queue, const struct hr__chunk_done *done)
{
    hr__trace_published(queue->stream->agent->recording.trace, queue->number,
                        done->number * queue->places->chunk_samples, done->count);
}

void hr__recording_begin(struct hr__agent_job *viewer, double seconds)
{
    struct hr_agent *agent = viewer->agent;
    struct hr__recording *r = &agent->recording;
    struct hr_error error;
    if (hr__trace_start(r->trace, &error)) {
        hr__job_refuse(viewer, &error);
        return;
    }
    r->viewer = viewer;
    r->look_ns = hr__now_ns();
    r->end_ns = r->look_ns + (uint64_t)(seconds * 1e9);
    for (struct hr__stream *s = agent->streams; s; s = s->next)
        for (struct hr__queue *queue = s->queues; queue; queue = queue->next)
            if (queue->state != HR__QUEUE_MAKING)
                hr__recording_queue(queue);
}

void hr__recording_forget(struct hr__agent_job *job)
{
    struct hr__recording *r = &job->agent->recording;
    if (r->viewer != job)
        return;
    r->viewer = NULL;
    if (!r->is_out)
        hr__trace_cancel(r->trace);
}

uint64_t hr__recording_due_ns(const struct hr_agent *agent)
{
    const struct hr__recording *r = &agent->recording;
    if (!hr__trace_is_on(r->trace))
        return UINT64_MAX;
    return r->look_ns < r->end_ns ? r->look_ns : r->end_ns;
}

static void look_at(struct hr__recording *r, const struct hr__agent_job *job)
{
    const struct hr__job_cursor *cursor = job->cursor;
    struct hr__place_cursor_status s;
    hr__places_cursor_status(cursor->queue->places, cursor->place, &s);
    hr__trace_cursor(r->trace, &(struct hr__trace_cursor){
                                   .number = (uint64_t)job->pid << 32 ^
                                             cursor->queue->number << 12 ^ cursor->number,
                                   .queue = cursor->queue->number,
                                   .pid = (int)job->pid,
                                   .rank = job->attach.rank,
                                   .program = job->program,
                                   .head = s.next + s.behind_samples,
                                   .mark = s.mark,
                                   .next = s.next,
                                   .wait_ns = s.wait_ns,
                               });
}

static void write_run(struct hr__task *task)
{
    struct hr__recording *r = HR__OF(struct hr__recording, task, task);
    r->file = -1;
    r->failed = hr__trace_write(r->trace, &r->json, &r->error);
    if (r->failed)
        return;
    r->bytes = strlen(r->json);
    r->file = hr__wire_text_file(r->json, r->bytes);
    hr__free(r->json);
    if (r->file < 0)
        r->failed =
            hr__fail(&r->error, r->file, "a file for the trace: %s", hr__errno_text(r->file));
}

static void write_done(struct hr__task *task)
{
    struct hr__recording *r = HR__OF(struct hr__recording, task, task);
    struct hr__agent_job *viewer = r->viewer;
    r->is_out = false;
    r->viewer = NULL;
    if (viewer && r->failed)
        hr__job_refuse(viewer, &r->error);
    else if (viewer)
        hr__job_send(viewer, &(struct hr__wire_message){.type = HR__WIRE_TEXT,
                                                        .text.bytes = r->bytes,
                                                        .files = {r->file},
                                                        .file_count = 1});
    if (r->file >= 0)
        close(r->file);
}

void hr__recording_turn(struct hr_agent *agent)
{
    struct hr__recording *r = &agent->recording;
    uint64_t now = hr__now_ns();
    if (now < hr__recording_due_ns(agent))
        return;
    for (const struct hr__agent_job *job = agent->jobs; job; job = job->next)
        if (job->cursor)
            look_at(r, job);
    r->look_ns = now + HR__TRACE_LOOK_MS * UINT64_C(1000000);
    if (now < r->end_ns)
        return;
    hr__trace_stop(r->trace);
    r->is_out = true;
    r->task.run = write_run;
    r->task.done = write_done;
    hr__task_start(&agent->tasks, &r->task);
}
