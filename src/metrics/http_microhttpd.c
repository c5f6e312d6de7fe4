/*
 * The HTTP server on libmicrohttpd: one thread of that library, few connections, short timeouts.
 * A client that connects and sends nothing uses up one descriptor for ten seconds.
 */
#include "metrics/http.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define CONNECTIONS      16
#define TIMEOUT_S        10
#define CONNECTION_BYTES ((size_t)16 << 10)

struct server {
    struct MHD_Daemon *daemon;
    hr__http_answer_fn answer;
    void *arg;
    int listener; /* the daemon's; -1: closed */
};

static enum MHD_Result reply(struct MHD_Connection *connection, const struct hr__http_reply *r,
                             const char *allow)
{
    size_t length = r->body ? strlen(r->body) : 0;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, r->body, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO; /* closes the connection */
    enum MHD_Result done = MHD_add_response_header(response, "Content-Type", r->type);
    if (done == MHD_YES && allow)
        done = MHD_add_response_header(response, "Allow", allow);
    if (done == MHD_YES)
        done = MHD_queue_response(connection, r->status, response);
    MHD_destroy_response(response);
    return done;
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **seen)
{
    static int mark; /* its address only */
    struct server *server = arg;
    struct hr__http_reply r = {.status = MHD_HTTP_OK, .type = "text/plain; charset=utf-8"};
    /* The first call comes with the headers, the next ones with a body, which we ignore. */
    if (!*seen) {
        *seen = &mark;
        return MHD_YES;
    }
    if (*upload_bytes) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (strcmp(method, "GET") != 0) {
        r.status = MHD_HTTP_METHOD_NOT_ALLOWED;
        return reply(connection, &r, "GET");
    }
    server->answer(server->arg, path, &r);
    enum MHD_Result done = reply(connection, &r, NULL);
    hr__free(r.body);
    return done;
}

static int http_start(void **out, int listener, hr__http_answer_fn answer, void *arg,
                      struct hr_error *error)
{
    struct server *server = hr__alloc(HR__TAG_METRICS, 1, sizeof *server);
    if (!server)
        return hr__fail(error, -ENOMEM, "out of memory for the metrics endpoint");
    server->answer = answer;
    server->arg = arg;
    /* Whether a daemon that fails to start closes its socket depends on the failure. So it gets a
     * duplicate, and ours stays the caller's until the daemon runs. */
    int own = fcntl(listener, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
        int code = -errno;
        hr__free(server);
        return hr__fail(error, code, "the metrics endpoint could not be started: %s",
                        hr__errno_text(code));
    }
    sigset_t before = hr__signals_block();
    errno = 0;
    server->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO | MHD_USE_ITC, 0, NULL, NULL, handle, server,
        MHD_OPTION_LISTEN_SOCKET, own, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        CONNECTION_BYTES, MHD_OPTION_END);
    int code = errno ? -errno : -EAGAIN;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!server->daemon) {
        hr__free(server);
        return hr__fail(error, code, "the metrics endpoint could not be started: %s",
                        hr__errno_text(code));
    }
    close(listener);
    server->listener = own;
    *out = server;
    return 0;
}

static void http_abandon(void *arg)
{
    struct server *server = arg;
    if (server->listener >= 0)
        close(server->listener);
    server->listener = -1;
}

static void http_close(void *arg)
{
    struct server *server = arg;
    /* The daemon keeps a socket that it cannot stop using. */
    if (server->listener >= 0 && MHD_quiesce_daemon(server->daemon) >= 0)
        http_abandon(server);
}

static void http_stop(void *arg)
{
    struct server *server = arg;
    http_close(server);
    MHD_stop_daemon(server->daemon);
    hr__free(server);
}

const struct hr__http hr__http = {http_start, http_close, http_stop, http_abandon};
