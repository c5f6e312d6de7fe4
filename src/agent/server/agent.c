/*
 * The agent's event loop: connections, messages, notifications of queues, and the agent's end.
 *
 * One thread runs the loop on epoll and never blocks on a job or on storage. An agent that was
 * started automatically ends when it has had no job for a while. It ends under the lock that
 * starters take (agent/launch.h), and checks for new connections once more there, so that no job
 * connects to a socket that is about to disappear.
 */
#include "agent/server/inside.h"

#include "agent/launch.h"
#include "agent/server/recording.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "cache/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_THREADS 4096
/* Events handled in one turn of the loop. */
#define TURN_EVENTS 64
/* Connections accepted in one turn. */
#define TURN_ACCEPTS 16
/* Interval of a check of queues that wait for room, in case a job's notification got lost. */
#define NET_MS 50
/* Pause before accepting again after an error such as too many open files. */
#define ACCEPT_AGAIN_MS 100
/* A connection is closed if HELLO has not come within this time. */
#define HELLO_NS UINT64_C(5000000000)

void hr_agent_options_init(struct hr_agent_options *options, size_t size)
{
    static const struct hr_agent_options defaults = {.listener = -1, .idle_ms = -1};
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

static void wake_ready(struct hr__watched *watched, uint32_t events)
{
    struct hr_agent *agent = HR__OF(struct hr_agent, wake_ready, watched);
    uint64_t count;
    ssize_t n = read(agent->wake, &count, sizeof count);
    (void)n;
}

/* Out of descriptors: closes the spare one to accept and refuse one connection. Returns false if
 * that fails. */
static bool refuse_one(struct hr_agent *a)
{
    if (a->spare < 0)
        return false;
    close(a->spare);
    int socket = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket >= 0) {
        struct hr__wire_message message = {.type = HR__WIRE_REFUSED, .refused.code = -EMFILE};
        snprintf(message.refused.message, sizeof message.refused.message,
                 "the agent at %s has as many open files as it may: end some of its jobs, or "
                 "start it with a higher limit (ulimit -n)",
                 a->socket_path);
        (void)hr__wire_send(socket, &message);
        close(socket);
        a->refused++;
    }
    a->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return socket >= 0;
}

/* Accepts up to TURN_ACCEPTS connections. Returns how many. */
static int accept_some(struct hr_agent *agent)
{
    int count = 0;
    /* The listener may have been closed after this event. */
    while (agent->listener >= 0 && count < TURN_ACCEPTS) {
        int socket = accept4(agent->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket >= 0) {
            hr__job_create(agent, socket);
            count++;
        } else if ((errno == EMFILE || errno == ENFILE) && refuse_one(agent)) {
            count++;
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            /* Level-triggered: the same error would come again at once. */
            epoll_ctl(agent->epoll, EPOLL_CTL_DEL, agent->listener, NULL);
            agent->accept_again_ns = hr__now_ns() + ACCEPT_AGAIN_MS * UINT64_C(1000000);
            break;
        }
    }
    return count;
}

static void listener_ready(struct hr__watched *watched, uint32_t events)
{
    accept_some(HR__OF(struct hr_agent, listener_ready, watched));
}

static int check_options(const struct hr_agent_options *o, struct hr_error *error)
{
    struct hr__cache_tiers tiers;
    if (o->threads < 0 || o->threads > MAX_THREADS)
        return hr__fail(error, -EINVAL, "threads = %d: must be from 0 to %d", o->threads,
                        MAX_THREADS);
    return o->cache && *o->cache ? hr__cache_tiers_parse(&tiers, o->cache, error) : 0;
}

/* Returns the path that a listening socket is bound to, owned by the caller; NULL: none. */
static char *path_of(int listener)
{
    struct sockaddr_un address = {0};
    socklen_t length = sizeof address;
    if (getsockname(listener, (struct sockaddr *)&address, &length) ||
        address.sun_family != AF_UNIX || length <= offsetof(struct sockaddr_un, sun_path))
        return NULL;
    char path[sizeof address.sun_path + 1] = {0};
    memcpy(path, address.sun_path, sizeof address.sun_path);
    return *path ? hr__strdup(HR__TAG_AGENT, path) : NULL;
}

static int take_listener(struct hr_agent *a, struct hr_error *error)
{
    int is_listening = 0;
    socklen_t length = sizeof is_listening;
    if (getsockopt(a->listener, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &length) || !is_listening)
        return hr__fail(error, -EINVAL, "listener = %d: no listening socket", a->listener);
    fcntl(a->listener, F_SETFD, FD_CLOEXEC);
    fcntl(a->listener, F_SETFL, fcntl(a->listener, F_GETFL) | O_NONBLOCK);
    a->socket_path = path_of(a->listener);
    if (!a->socket_path)
        return hr__fail(error, -EINVAL, "listener = %d: no Unix socket with a path", a->listener);
    struct stat st;
    if (!stat(a->socket_path, &st)) {
        a->socket_device = st.st_dev;
        a->socket_inode = st.st_ino;
    }
    return 0;
}

static int make_loop(struct hr_agent *a, struct hr_error *error)
{
    a->epoll = epoll_create1(EPOLL_CLOEXEC);
    a->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    a->listener_ready.ready = listener_ready;
    a->wake_ready.ready = wake_ready;
    if (a->epoll < 0 || a->wake < 0)
        return hr__fail(error, -errno, "an agent: %s", hr__errno_text(errno));
    int r = hr__agent_watch(a, a->wake, &a->wake_ready, EPOLLIN);
    if (!r)
        r = hr__agent_watch(a, a->listener, &a->listener_ready, EPOLLIN);
    return r ? hr__fail(error, r, "an agent: %s", hr__errno_text(r)) : 0;
}

/* Writes the metrics, on the endpoint's thread: asks as any viewer, so the loop answers. */
static int metrics_of(void *arg, char **text, struct hr_error *error)
{
    const struct hr_agent *a = arg;
    char *json = NULL;
    int r = hr_agent_status(a->socket_path, &json, error);
    if (!r)
        r = hr__metrics_text(text, json, error);
    hr__free(json);
    return r;
}

static int serve_metrics(struct hr_agent *a, const char *address, struct hr_error *error)
{
    const struct hr__endpoint_options options = {.address = address, .text = metrics_of, .arg = a};
    return hr__endpoint_start(&a->metrics, &options, error);
}

int hr_agent_create(struct hr_agent **out, const struct hr_agent_options *options,
                    struct hr_error *error)
{
    *out = NULL;
    struct hr_agent_options taken;
    hr_agent_options_default(&taken);
    int r =
        options ? hr__versioned_take(&taken, sizeof taken, options, "hr_agent_options", error) : 0;
    if (!r)
        r = check_options(&taken, error);
    if (r)
        return r;
    struct hr_agent *a = hr__alloc(HR__TAG_AGENT, 1, sizeof *a);
    if (!a)
        return hr__fail(error, -ENOMEM, "out of memory for an agent");
    a->options = taken;
    a->listener = taken.listener;
    a->epoll = a->wake = -1;
    a->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    a->started_ns = a->idle_since_ns = hr__now_ns();
    a->threads = taken.threads ? taken.threads : hr_cores() - 1;
    a->threads = a->threads < 1 ? 1 : a->threads;
    if (taken.cache && *taken.cache && !(a->cache = hr__strdup(HR__TAG_AGENT, taken.cache)))
        r = hr__fail(error, -ENOMEM, "out of memory for an agent");
    if (!r && a->listener < 0)
        r = hr__launch_listen(&a->listener, taken.socket, error);
    if (!r)
        r = take_listener(a, error);
    if (!r)
        r = make_loop(a, error);
    hr__tasks_init(&a->tasks, a->wake);
    if (!r)
        r = hr__crew_create(&a->crew, a->threads, error);
    if (!r)
        r = hr__recording_create(a, error);
    if (!r && taken.metrics && *taken.metrics)
        r = serve_metrics(a, taken.metrics, error);
    if (r) {
        hr_agent_destroy(&a);
        return r;
    }
    *out = a;
    return 0;
}

/* Returns whether there are jobs. Viewers do not count; connections without HELLO count if
 * with_new. */
static bool has_jobs(const struct hr_agent *a, bool with_new)
{
    for (const struct hr__agent_job *job = a->jobs; job; job = job->next)
        if (!job->is_viewer && (with_new || job->state != HR__JOB_NEW))
            return true;
    return false;
}

/* Gives queues whose jobs freed memory something to do, in case a notification was lost. */
static void refill(struct hr_agent *a)
{
    for (struct hr__stream *s = a->streams; s; s = s->next)
        for (struct hr__queue *queue = s->queues; queue; queue = queue->next)
            if (queue->state == HR__QUEUE_READY && queue->loader &&
                hr__places_take_room(queue->places))
                hr__publisher_room(queue->loader);
}

/* Returns the milliseconds until the next turn is due even without an event. */
static int next_turn_ms(struct hr_agent *a)
{
    uint64_t now = hr__now_ns(), due = now + UINT64_C(60000000000);
    if (a->accept_again_ns && a->accept_again_ns < due)
        due = a->accept_again_ns;
    if (a->options.idle_ms >= 0 && a->idle_since_ns) {
        uint64_t end = a->idle_since_ns + (uint64_t)a->options.idle_ms * 1000000;
        /* If it could not end just now, it tries again a little later. */
        uint64_t again = now + NET_MS * UINT64_C(1000000);
        end = end < again ? again : end;
        due = end < due ? end : due;
    }
    uint64_t look = hr__recording_due_ns(a);
    due = look < due ? look : due;
    due = a->watch_ns < due ? a->watch_ns : due;
    for (const struct hr__agent_job *job = a->jobs; job; job = job->next)
        if (job->state == HR__JOB_NEW && job->asked_ns + HELLO_NS < due)
            due = job->asked_ns + HELLO_NS;
    for (struct hr__stream *s = a->streams; s; s = s->next)
        for (struct hr__queue *queue = s->queues; queue; queue = queue->next)
            if (queue->state == HR__QUEUE_READY && queue->places &&
                hr__places_wants_room(queue->places) && a->net_ns < due)
                due = a->net_ns;
    return due <= now ? 0 : (int)((due - now + 999999) / 1000000);
}

/* Ends jobs that do not read their messages or never sent HELLO. */
static void end_lost(struct hr_agent *a, uint64_t now)
{
    struct hr__agent_job *next;
    for (struct hr__agent_job *job = a->jobs; job; job = next) {
        next = job->next;
        if (job->is_lost || (job->state == HR__JOB_NEW && now >= job->asked_ns + HELLO_NS))
            hr__job_end(job);
    }
}

static void turn(struct hr_agent *a)
{
    struct epoll_event events[TURN_EVENTS];
    int n = epoll_wait(a->epoll, events, TURN_EVENTS, next_turn_ms(a));
    for (int i = 0; i < n; i++) {
        struct hr__watched *watched = events[i].data.ptr;
        watched->ready(watched, events[i].events);
    }
    uint64_t now = hr__now_ns();
    if (a->accept_again_ns && now >= a->accept_again_ns)
        a->accept_again_ns = hr__agent_watch(a, a->listener, &a->listener_ready, EPOLLIN)
                                 ? now + ACCEPT_AGAIN_MS * UINT64_C(1000000)
                                 : 0;
    hr__tasks_collect(&a->tasks);
    hr__jobs_attach(a);
    hr__queues_look(a);
    hr__streams_settle(a);
    if (now >= a->net_ns) {
        a->net_ns = now + NET_MS * UINT64_C(1000000);
        refill(a);
    }
    hr__recording_turn(a);
    hr__streams_watch(a, now);
    end_lost(a, now);
    hr__jobs_reap(a);
    hr__queues_reap(a);
    a->idle_since_ns = has_jobs(a, false) ? 0 : a->idle_since_ns ? a->idle_since_ns : now;
}

static bool is_idle_too_long(const struct hr_agent *a)
{
    return a->options.idle_ms >= 0 && a->idle_since_ns &&
           hr__now_ns() >= a->idle_since_ns + (uint64_t)a->options.idle_ms * 1000000;
}

static void stop_listening(struct hr_agent *a)
{
    if (a->listener < 0)
        return;
    /* The process that started us may still have the listener open. */
    hr__agent_unwatch(a, a->listener);
    close(a->listener);
    a->listener = -1;
    a->accept_again_ns = 0;
}

/* Returns whether jobs can still find this agent: its directory may be gone (a logout), or the
 * socket there may be another agent's. */
static bool has_socket(const struct hr_agent *a)
{
    struct stat st;
    return a->listener >= 0 && !stat(a->socket_path, &st) && st.st_dev == a->socket_device &&
           st.st_ino == a->socket_inode;
}

/* Removes the socket if it is still ours. The lock is held. */
static void unbind(struct hr_agent *a)
{
    if (has_socket(a))
        hr__launch_clean(a->socket_path);
    stop_listening(a);
}

/* Tries to end. Returns true if nobody has connected meanwhile; then nobody can any more. */
static bool end_idle(struct hr_agent *a)
{
    int lock = -1;
    int r = has_socket(a) ? hr__launch_lock(&lock, a->socket_path, NULL) : 0;
    /* A process that holds the lock so long may be about to connect. If no lock is possible at all,
     * the connection of a job that connects right now is closed, and it starts another agent. */
    bool is_over = r != -ETIMEDOUT && !accept_some(a) && !has_jobs(a, true);
    if (is_over)
        unbind(a);
    if (r)
        a->idle_since_ns = hr__now_ns();
    hr__launch_unlock(&lock);
    return is_over;
}

/* Ends all jobs and waits for background tasks. */
static void end_all(struct hr_agent *a)
{
    int lock;
    if (has_socket(a) && !hr__launch_lock(&lock, a->socket_path, NULL)) {
        unbind(a);
        hr__launch_unlock(&lock);
    }
    /* Without the lock the socket file stays, but nobody answers there. */
    stop_listening(a);
    while (a->jobs)
        hr__job_end(a->jobs);
    while (a->streams || a->tasks.out)
        turn(a);
    hr__jobs_reap(a);
    hr__queues_reap(a);
}

int hr_agent_run(struct hr_agent *agent, struct hr_error *error)
{
    if (agent->was_run)
        return hr__fail(error, -EINVAL, "this agent has already served: make another");
    agent->was_run = true;
    for (;;) {
        if (atomic_load(&agent->is_stopping))
            break;
        if (is_idle_too_long(agent) && end_idle(agent))
            break;
        turn(agent);
    }
    end_all(agent);
    return 0;
}

void hr_agent_destroy(struct hr_agent **agent)
{
    struct hr_agent *a = *agent;
    *agent = NULL;
    if (!a)
        return;
    if (a->listener >= 0 && a->socket_path)
        end_all(a);
    /* Its requests fail by now: all connections are closed. */
    hr__endpoint_stop(&a->metrics);
    hr__crew_destroy(&a->crew);
    hr__recording_destroy(a);
    hr__kept_free(&a->kept);
    hr__tasks_end(&a->tasks);
    if (a->listener >= 0)
        close(a->listener);
    if (a->wake >= 0)
        close(a->wake);
    if (a->spare >= 0)
        close(a->spare);
    if (a->epoll >= 0)
        close(a->epoll);
    hr__free(a->socket_path);
    hr__free(a->cache);
    hr__free(a);
}
