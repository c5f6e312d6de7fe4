/*
 * A job's connection: handles its messages and its end.
 *
 * wire.c checks the contents of messages; a message out of turn ends the connection.
 */
#include "agent/server/inside.h"

#include "agent/launch.h"
#include "agent/server/recording.h"
#include "agent/server/surroundings.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "cache/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Since Linux 6.5. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

void hr__job_end(struct hr__agent_job *job)
{
    if (job->state == HR__JOB_ENDED)
        return;
    job->state = HR__JOB_ENDED;
    struct hr__agent_job **link = &job->agent->jobs;
    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
    hr__recording_forget(job);
    hr__stream_leave(job);
    if (job->producer)
        hr__producers_leave(job->source->producers, &job->producer);
    hr__source_unref(&job->source);
    /* Without this they stay in epoll while a forked child of this process has them. */
    hr__agent_unwatch(job->agent, job->socket);
    shutdown(job->socket, SHUT_RDWR); /* a child may share it: the job would not see it close */
    close(job->socket);
    if (job->process >= 0) {
        hr__agent_unwatch(job->agent, job->process);
        close(job->process);
    }
    job->next = job->agent->ended_jobs;
    job->agent->ended_jobs = job;
}

void hr__jobs_reap(struct hr_agent *agent)
{
    struct hr__agent_job **link = &agent->ended_jobs;
    while (*link) {
        struct hr__agent_job *job = *link;
        if (job->is_out) {
            link = &job->next;
            continue;
        }
        *link = job->next;
        hr__job_drop_unread(job);
        if (job->text_file >= 0)
            close(job->text_file);
        if (job->rows_file >= 0)
            close(job->rows_file);
        if (job->memory_file >= 0)
            close(job->memory_file);
        hr__free(job->text);
        hr__free(job);
    }
}

static void out_of_turn(struct hr__agent_job *job, const char *what)
{
    struct hr_error error;
    hr__fail(&error, -EPROTO, "the agent was sent %s out of turn", what);
    hr__job_refuse(job, &error);
    hr__job_end(job);
}

static void greet(struct hr__agent_job *job, const struct hr__wire_hello *hello)
{
    if (job->state != HR__JOB_NEW) {
        out_of_turn(job, "a second HELLO");
        return;
    }
    job->state = HR__JOB_GREETED;
    job->is_viewer = hello->is_viewer != 0;
    hr__printable(job->program, sizeof job->program, hello->program);
    hr__job_send(job,
                 &(struct hr__wire_message){.type = HR__WIRE_WELCOME,
                                            .welcome = {.pid = (int32_t)getpid(),
                                                        .threads = (uint32_t)job->agent->threads}});
}

static void read_run(struct hr__task *task)
{
    struct hr__agent_job *job = HR__OF(struct hr__agent_job, task, task);
    job->failed = hr__wire_text_read(job->text_file, job->text_bytes, &job->text, &job->error);
    if (!job->failed)
        hr__text_digest(job->digest, job->text, strlen(job->text));
}

static void read_done(struct hr__task *task)
{
    struct hr__agent_job *job = HR__OF(struct hr__agent_job, task, task);
    job->is_out = false;
    close(job->text_file);
    job->text_file = -1;
    if (job->state != HR__JOB_OPENING)
        return;
    if (!job->failed) {
        job->source = hr__source_get(job->agent, job);
        if (!job->source)
            job->failed = hr__fail(&job->error, -ENOMEM, "the agent is out of memory");
    }
    if (job->rows_file >= 0) /* another job's rows, which are the same, are in use */
        close(job->rows_file);
    job->rows_file = -1;
}

/* Writes a warning if the agent runs under restrictions that the job does not have: they may slow
 * down or end what the agent does for the job. */
static void notice(const struct hr__agent_job *job, char *out, size_t capacity)
{
    struct hr__surroundings own, its;
    char differences[300];
    *out = 0;
    if (job->pid <= 0)
        return;
    hr__surroundings_read(&own, 0);
    hr__surroundings_read(&its, job->pid);
    hr__surroundings_differ(&own, &its, differences, sizeof differences);
    if (*differences)
        snprintf(out, capacity,
                 "the agent (process %d) runs under %s, inherited from the process that started "
                 "it. If that matters, end it (headrace agent --stop) and start it from here",
                 (int)getpid(), differences);
}

/* Makes the job a producer of its source. Errors: as hr__producers_join. */
static int begin_producing(struct hr__agent_job *job, struct hr_error *error)
{
    if (!job->source->producers)
        return hr__fail(error, -EINVAL, "PRODUCE names a dataset whose samples are files");
    int r = hr__producers_join(job->source->producers, &job->producer, &job->produce, job->socket,
                               job->memory_file, error);
    close(job->memory_file);
    job->memory_file = -1;
    return r;
}

/* A produced dataset has the loader's own order: the order that a job gives is nobody else's. */
static int check_attach(const struct hr__agent_job *job, struct hr_error *error)
{
    if (!job->source->producers || !job->attach.external_order)
        return 0;
    return hr__fail(error, -EINVAL,
                    "samples that a job's code makes go with the loader's own order, not with a "
                    "sampler: leave the agent or the sampler out");
}

/* Answers ATTACH. */
static void answer_attach(struct hr__agent_job *job)
{
    struct hr_error error = job->error;
    int r = job->failed;
    if (!r && job->source->failed) {
        r = job->source->failed;
        error = job->source->error;
    }
    if (!r && job->is_producer) {
        r = begin_producing(job, &error);
        job->state = HR__JOB_PRODUCING;
        if (!r)
            return;
        hr__job_refuse(job, &error);
        hr__job_lose(job);
        return;
    }
    job->state = HR__JOB_ATTACHED;
    if (!r)
        r = check_attach(job, &error);
    if (!r)
        r = hr__stream_enter(job, &error);
    if (!r) {
        struct hr__wire_message message = {
            .type = HR__WIRE_ATTACHED,
            .attached = {.samples = hr_dataset_count(job->source->dataset),
                         .spec = job->source->spec}};
        notice(job, message.attached.notice, sizeof message.attached.notice);
        hr__job_send(job, &message);
        return;
    }
    hr__stream_leave(job);
    hr__source_unref(&job->source);
    job->failed = 0;
    job->state = HR__JOB_GREETED;
    hr__job_refuse(job, &error);
}

void hr__jobs_attach(struct hr_agent *agent)
{
    for (struct hr__agent_job *job = agent->jobs; job; job = job->next)
        if (job->state == HR__JOB_OPENING && !job->is_out && (job->failed || job->source->is_open))
            answer_attach(job);
}

/* ATTACH or PRODUCE. */
static void attach(struct hr__agent_job *job, struct hr__wire_message *message)
{
    if (job->state != HR__JOB_GREETED || job->is_viewer) {
        out_of_turn(job, "ATTACH or PRODUCE");
        return;
    }
    job->state = HR__JOB_OPENING;
    job->asked_ns = hr__now_ns();
    job->is_producer = message->type == HR__WIRE_PRODUCE;
    if (job->is_producer) {
        job->produce = message->produce;
        job->memory_file = message->files[1];
    } else {
        job->attach = message->attach;
        job->rows_file = message->attach.rows_bytes ? message->files[1] : -1;
    }
    job->text_bytes = job->is_producer ? job->produce.text_bytes : job->attach.text_bytes;
    job->text_file = message->files[0];
    message->file_count = 0;
    job->is_out = true;
    job->task.run = read_run;
    job->task.done = read_done;
    hr__task_start(&job->agent->tasks, &job->task);
}

static void leave_cursor(struct hr__agent_job *job, uint32_t number)
{
    struct hr__job_cursor *cursor = job->cursors;
    while (cursor && cursor->number != number)
        cursor = cursor->next;
    /* The job still takes from this cursor: it would wait for ever. */
    if (!cursor || cursor == job->cursor) {
        out_of_turn(job, "LEAVE");
        return;
    }
    hr__job_cursor_end(job, cursor);
}

static void show_status(struct hr__agent_job *job)
{
    struct hr_error error;
    char *json = NULL;
    int file = -1, r = hr__status_write(job->agent, &json, &error);
    if (!r) {
        file = hr__wire_text_file(json, strlen(json));
        r = file < 0 ? hr__fail(&error, file, "a file for the status: %s", hr__errno_text(file))
                     : 0;
    }
    if (r)
        hr__job_refuse(job, &error);
    else
        hr__job_send(job, &(struct hr__wire_message){.type = HR__WIRE_TEXT,
                                                     .text.bytes = strlen(json),
                                                     .files = {file},
                                                     .file_count = 1});
    if (file >= 0)
        close(file);
    hr__free(json);
}

static void handle_viewer(struct hr__agent_job *job, const struct hr__wire_message *message)
{
    if (message->type == HR__WIRE_STATUS)
        show_status(job);
    else if (message->type == HR__WIRE_TRACE)
        hr__recording_begin(job, message->trace.seconds);
    else if (message->type == HR__WIRE_END)
        hr_agent_stop(job->agent);
    else
        out_of_turn(job, "a viewer's message");
}

static void handle_producer(struct hr__agent_job *job, const struct hr__wire_message *message)
{
    if (!job->producer)
        return; /* it was refused, and is being lost */
    if (message->type == HR__WIRE_LEAVE)
        hr__producers_excuse(job->source->producers, job->producer);
    else if (message->type != HR__WIRE_MADE ||
             !hr__producers_made(job->source->producers, job->producer, &message->made))
        out_of_turn(job, "a producer's message");
}

static void handle(struct hr__agent_job *job, struct hr__wire_message *message)
{
    if (message->type == HR__WIRE_HELLO)
        greet(job, &message->hello);
    else if (message->type == HR__WIRE_ATTACH || message->type == HR__WIRE_PRODUCE)
        attach(job, message);
    else if (job->state != HR__JOB_NEW && job->is_viewer)
        handle_viewer(job, message);
    else if (job->state == HR__JOB_PRODUCING)
        handle_producer(job, message);
    else if (job->state != HR__JOB_ATTACHED)
        out_of_turn(job, "a message");
    else if (message->type == HR__WIRE_SEEK) {
        job->seek = message->seek;
        hr__stream_seek(job);
    } else if (message->type == HR__WIRE_LEAVE)
        leave_cursor(job, message->leave.cursor);
    else
        out_of_turn(job, "a message");
    hr__wire_close_files(message);
}

static void socket_ready(struct hr__watched *watched, uint32_t events)
{
    struct hr__agent_job *job = HR__OF(struct hr__agent_job, socket_ready, watched);
    if (job->state != HR__JOB_ENDED && (events & EPOLLOUT))
        hr__job_send_unread(job);
    for (int i = 0; i < HR__JOB_MESSAGES && job->state != HR__JOB_ENDED; i++) {
        struct hr__wire_message message;
        struct hr_error error;
        int r = hr__wire_receive(job->socket, MSG_DONTWAIT, &message, &error);
        if (r == -EAGAIN || r == -EINTR)
            return;
        if (r == 1) {
            handle(job, &message);
            continue;
        }
        if (r == -EPROTO || r == -EPROTONOSUPPORT)
            hr__job_refuse(job, &error);
        hr__job_end(job);
    }
}

static void process_ready(struct hr__watched *watched, uint32_t events)
{
    hr__job_end(HR__OF(struct hr__agent_job, process_ready, watched));
}

static int peer_process(int socket, pid_t pid)
{
    int file;
    socklen_t length = sizeof file;
    if (!getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &file, &length)) {
        fcntl(file, F_SETFD, FD_CLOEXEC);
        return file;
    }
    return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

/* Identifies the process that started `pid`, by its id and start time: the ranks of a job share
 * it. */
static uint64_t party_of(pid_t pid)
{
    char path[64], text[1024];
    uint64_t key = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
        hr__read_text(path, text, sizeof text);
        const char *at = strrchr(text, ')');
        if (i == 1)
            return key ^ hr__run_started(text) << 24;
        /* Fields 3 and 4 of proc(5): state, parent. */
        pid = at && strlen(at) > 4 ? (pid_t)strtol(at + 4, NULL, 10) : 0;
        key = (uint64_t)pid;
    }
    return key;
}

void hr__job_create(struct hr_agent *agent, int socket)
{
    struct hr__agent_job *job = hr__alloc(HR__TAG_AGENT, 1, sizeof *job);
    if (!job) {
        close(socket);
        return;
    }
    struct ucred peer = {0};
    socklen_t length = sizeof peer;
    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length);
    job->agent = agent;
    job->asked_ns = hr__now_ns();
    job->socket = socket;
    job->pid = peer.pid;
    job->party_key = party_of(peer.pid);
    job->process = peer_process(socket, peer.pid);
    job->text_file = job->rows_file = job->memory_file = -1;
    job->socket_ready.ready = socket_ready;
    job->process_ready.ready = process_ready;
    job->next = agent->jobs;
    agent->jobs = job;
    int r = hr__launch_is_ours(socket) ? 0 : -EACCES;
    if (r) {
        struct hr_error error;
        hr__fail(&error, r, "this agent serves another user");
        hr__job_refuse(job, &error);
    }
    if (!r)
        r = hr__agent_watch(agent, socket, &job->socket_ready, EPOLLIN);
    if (!r && job->process >= 0)
        r = hr__agent_watch(agent, job->process, &job->process_ready, EPOLLIN);
    if (r)
        hr__job_end(job);
}
