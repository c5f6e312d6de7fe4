/*
 * Messages to a job. The loop never blocks on a job: messages that its socket does not take are
 * kept, up to HR__JOB_UNREAD of them. Only a job that does not read at all reaches that and is
 * disconnected.
 */
#include "agent/server/inside.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static void free_unread(struct hr__unread *unread)
{
    hr__wire_close_files(&unread->message);
    hr__free(unread);
}

/* Returns a copy that owns duplicates of the files; NULL: out of memory or descriptors. */
static struct hr__unread *keep_message(const struct hr__wire_message *message)
{
    struct hr__unread *unread = hr__alloc(HR__TAG_AGENT, 1, sizeof *unread);
    if (!unread)
        return NULL;
    unread->message = *message;
    unread->message.file_count = 0;
    for (int i = 0; i < message->file_count; i++) {
        int file = fcntl(message->files[i], F_DUPFD_CLOEXEC, 0);
        if (file < 0) {
            free_unread(unread);
            return NULL;
        }
        unread->message.files[unread->message.file_count++] = file;
    }
    return unread;
}

/* Returns whether the socket is broken. epoll reports that, too, so it needs no handling here. */
static bool is_broken(int r)
{
    return r == -EPIPE || r == -ECONNRESET;
}

void hr__job_lose(struct hr__agent_job *job)
{
    job->is_lost = true;
    hr__agent_wake(job->agent);
}

void hr__job_send(struct hr__agent_job *job, const struct hr__wire_message *message)
{
    if (job->state == HR__JOB_ENDED || job->is_lost)
        return;
    int r = job->unread ? -EAGAIN : hr__wire_send(job->socket, message);
    if (r && r != -EAGAIN && !is_broken(r))
        hr__job_lose(job);
    if (r != -EAGAIN)
        return;
    struct hr__unread *unread = job->unread_count < HR__JOB_UNREAD ? keep_message(message) : NULL;
    if (!unread) {
        hr__job_lose(job);
        return;
    }
    if (job->unread_last)
        job->unread_last->next = unread;
    else
        job->unread = unread;
    job->unread_last = unread;
    if (!job->unread_count++ &&
        hr__agent_rewatch(job->agent, job->socket, &job->socket_ready, EPOLLIN | EPOLLOUT))
        hr__job_lose(job);
}

void hr__job_send_unread(struct hr__agent_job *job)
{
    while (job->unread) {
        int r = hr__wire_send(job->socket, &job->unread->message);
        if (r == -EAGAIN)
            break;
        if (r && !is_broken(r)) {
            hr__job_lose(job);
            return;
        }
        struct hr__unread *unread = job->unread;
        job->unread = unread->next;
        job->unread_count--;
        free_unread(unread);
    }
    if (job->unread)
        return;
    job->unread_last = NULL;
    if (hr__agent_rewatch(job->agent, job->socket, &job->socket_ready, EPOLLIN))
        hr__job_lose(job);
}

void hr__job_refuse(struct hr__agent_job *job, const struct hr_error *error)
{
    struct hr__wire_message message = {.type = HR__WIRE_REFUSED, .refused.code = error->code};
    memcpy(message.refused.message, error->message, sizeof message.refused.message);
    job->agent->refused++;
    hr__job_send(job, &message);
}

void hr__job_drop_unread(struct hr__agent_job *job)
{
    while (job->unread) {
        struct hr__unread *unread = job->unread;
        job->unread = unread->next;
        free_unread(unread);
    }
}
