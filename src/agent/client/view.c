/*
 * The functions of viewers: status, trace and end, each over a connection of its own. If the agent
 * does not answer, a viewer gives up after two seconds (a trace and an end may take longer).
 */
#include "agent/launch.h"
#include "agent/wire.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <headrace/agent.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ANSWER_MS       2000
#define END_MS          10000
#define TRACE_S_MOST    600
#define TRACE_WRITE_MS  30000 /* to write the text of a long recording */
#define SOCKET_PATH_MAX 256

/* A viewer's connection. */
struct view {
    int socket;
    int pid; /* of the agent */
    char path[SOCKET_PATH_MAX];
};

/* Like hr__launch_connect, takes "" for the default socket, too. */
static void name_socket(struct view *v, const char *socket)
{
    if (socket && *socket)
        snprintf(v->path, sizeof v->path, "%s", socket);
    else
        hr_agent_default_socket(v->path, sizeof v->path);
}

/*
 * Waits for the next message until `until_ns`. Returns 1; 0: the agent has closed the connection;
 * the code and message of REFUSED; -ETIMEDOUT.
 */
static int receive(const struct view *v, struct hr__wire_message *m, uint64_t until_ns,
                   struct hr_error *error)
{
    for (;;) {
        struct pollfd ready = {.fd = v->socket, .events = POLLIN};
        uint64_t now = hr__now_ns();
        int ms = now < until_ns ? (int)((until_ns - now) / 1000000 + 1) : 0;
        int n = poll(&ready, 1, ms);
        if (n < 0 && errno != EINTR)
            return hr__fail(error, -errno, "agent at %s: %s", v->path, hr__errno_text(errno));
        if (n == 0 && ms == 0)
            return hr__fail(error, -ETIMEDOUT,
                            "the agent at %s does not answer: is it stopped (process %d)?", v->path,
                            v->pid);
        if (n <= 0)
            continue;
        int r = hr__wire_receive(v->socket, MSG_DONTWAIT, m, error);
        if (r == -EAGAIN || r == -EINTR)
            continue;
        if (r == -ECONNRESET)
            return 0;
        if (r == 1 && m->type == HR__WIRE_REFUSED) {
            hr__wire_close_files(m);
            return hr__fail(error, m->refused.code, "%s", m->refused.message);
        }
        return r;
    }
}

static int send_message(const struct view *v, const struct hr__wire_message *m,
                        struct hr_error *error)
{
    int r = hr__wire_send(v->socket, m);
    if (r == -EPIPE || r == -ECONNRESET)
        return hr__fail(error, -ECONNREFUSED, "the agent at %s has ended", v->path);
    return r ? hr__fail(error, r, "agent at %s: %s", v->path, hr__errno_text(r)) : 0;
}

static int unexpected(const struct view *v, const struct hr__wire_message *m,
                      struct hr_error *error)
{
    return hr__fail(error, -EPROTO,
                    "the agent at %s answers with a message of type %d: is it of another version?",
                    v->path, (int)m->type);
}

static int hello(struct view *v, uint64_t until_ns, struct hr_error *error)
{
    struct hr__wire_message m = {.type = HR__WIRE_HELLO};
    m.hello.pid = (int32_t)getpid();
    m.hello.is_viewer = 1;
    snprintf(m.hello.program, sizeof m.hello.program, "viewer");
    /* If sending fails, the error of receiving says why. */
    (void)hr__wire_send(v->socket, &m);
    int r = receive(v, &m, until_ns, error);
    if (r == 0)
        r = hr__fail(error, -ECONNREFUSED, "the agent at %s has ended", v->path);
    if (r < 0)
        return r;
    hr__wire_close_files(&m);
    if (m.type != HR__WIRE_WELCOME)
        return unexpected(v, &m, error);
    v->pid = m.welcome.pid;
    return 0;
}

static int open_view(struct view *v, const char *socket, struct hr_error *error)
{
    v->socket = -1;
    v->pid = 0;
    name_socket(v, socket);
    int r = hr__launch_connect(&v->socket, socket, error);
    if (r == -ENOENT || r == -ECONNREFUSED)
        r = hr__fail(error, r,
                     "no agent serves %s: headrace agent starts one, and so does a loader with "
                     "agent \"auto\"",
                     v->path);
    if (!r)
        r = hello(v, hr__now_ns() + ANSWER_MS * UINT64_C(1000000), error);
    if (r && v->socket >= 0)
        close(v->socket);
    return r;
}

/* Sends the request `m` and waits for the text that answers it. */
static int ask(const char *socket, struct hr__wire_message *m, uint64_t wait_ms, char **json,
               struct hr_error *error)
{
    struct view v;
    int r = open_view(&v, socket, error);
    if (r)
        return r;
    r = send_message(&v, m, error);
    if (!r)
        r = receive(&v, m, hr__now_ns() + wait_ms * UINT64_C(1000000), error);
    if (r == 0)
        r = hr__fail(error, -ECONNREFUSED, "the agent at %s ended before it answered", v.path);
    if (r == 1) {
        if (m->type != HR__WIRE_TEXT || m->file_count != 1)
            r = unexpected(&v, m, error);
        else
            r = hr__wire_text_read(m->files[0], m->text.bytes, json, error);
        hr__wire_close_files(m);
    }
    close(v.socket);
    return r;
}

int hr_agent_status(const char *socket, char **json, struct hr_error *error)
{
    struct hr__wire_message m = {.type = HR__WIRE_STATUS};
    return ask(socket, &m, ANSWER_MS, json, error);
}

int hr_agent_trace(const char *socket, double seconds, char **json, struct hr_error *error)
{
    struct hr__wire_message m = {.type = HR__WIRE_TRACE};
    if (!(seconds > 0 && seconds <= TRACE_S_MOST))
        return hr__fail(error, -EINVAL, "a trace is of more than 0 and at most %d seconds",
                        TRACE_S_MOST);
    m.trace.seconds = seconds;
    return ask(socket, &m, (uint64_t)(seconds * 1000) + TRACE_WRITE_MS, json, error);
}

/* Waits until the process, which has closed its socket, has ended, or until `until_ns`: a process
 * that does more than serve lives on. */
static void wait_for_process(int process, uint64_t until_ns)
{
    struct pollfd ended = {.fd = process, .events = POLLIN};
    for (;;) {
        uint64_t now = hr__now_ns();
        int n = now < until_ns ? poll(&ended, 1, (int)((until_ns - now) / 1000000 + 1)) : 0;
        if (n >= 0 || errno != EINTR)
            return;
    }
}

int hr_agent_end(const char *socket, struct hr_error *error)
{
    struct view v;
    struct hr__wire_message m = {.type = HR__WIRE_END};
    int r = open_view(&v, socket, error);
    if (r)
        return r;
    /* Before sending END, while the process id is surely the agent's. Not for our own process. */
    int process = v.pid > 0 && v.pid != (int)getpid() ? (int)syscall(SYS_pidfd_open, v.pid, 0) : -1;
    r = send_message(&v, &m, error);
    uint64_t until_ns = hr__now_ns() + END_MS * UINT64_C(1000000);
    while (!r) {
        r = receive(&v, &m, until_ns, error);
        if (r <= 0)
            break;
        hr__wire_close_files(&m); /* ignore other messages before the end */
        r = 0;
    }
    if (!r && process >= 0)
        wait_for_process(process, hr__now_ns() + ANSWER_MS * UINT64_C(1000000));
    if (process >= 0)
        close(process);
    close(v.socket);
    return r;
}

void hr_text_free(char *text)
{
    hr__free(text);
}
