/* Parses the address, listens, and answers requests; see endpoint.h. */
#include "metrics/endpoint.h"

#include "base/error.h"
#include "base/memory.h"
#include "metrics/http.h"
#include "metrics/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct hr__endpoint {
    void *server; /* of hr__http */
    hr__endpoint_text_fn text;
    void *arg;
};

static void answer(void *arg, const char *path, struct hr__http_reply *reply)
{
    struct hr__endpoint *e = arg;
    struct hr_error error = {0};
    if (strcmp(path, "/metrics") != 0) {
        reply->status = 404;
        reply->body = hr__strdup(HR__TAG_METRICS, "the figures are at /metrics\n");
    } else if (e->text(e->arg, &reply->body, &error)) {
        reply->status = 503;
        reply->body = hr__strdup(HR__TAG_METRICS, error.message);
    } else {
        reply->type = HR__METRICS_TYPE;
    }
}

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static int not_an_address(const char *address, struct hr_error *error)
{
    return hr__fail(error, -EINVAL,
                    "metrics \"%s\": it must be ADDRESS:PORT in numbers, e.g. 127.0.0.1:9400 "
                    "(this machine only) or 0.0.0.0:9400 (everybody)",
                    address);
}

/* Splits the address at the last colon and parses both parts. Does not look up names. */
static int parse_address(union address *out, const char *address, int offset,
                         struct hr_error *error)
{
    char host[64] = "127.0.0.1";
    const char *colon = strrchr(address, ':'), *digits = colon ? colon + 1 : address;
    char *end;
    long port = strtol(digits, &end, 10);
    if (*digits < '0' || *digits > '9' || *end || strlen(digits) > 5 || port > 65535)
        return not_an_address(address, error);
    if (port && (offset < 0 || offset > 65535 - port))
        return hr__fail(error, -EINVAL,
                        "metrics \"%s\": rank %d of this machine serves %d ports higher, and ports "
                        "end at 65535: give a smaller one",
                        address, offset, offset);
    port += port ? offset : 0;
    size_t length = colon ? (size_t)(colon - address) : 0;
    if (length >= sizeof host)
        return not_an_address(address, error);
    if (length) {
        memcpy(host, address, length);
        host[length] = 0;
    }
    if (!strcmp(host, "localhost"))
        strcpy(host, "127.0.0.1");
    memset(out, 0, sizeof *out);
    if (host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = 0;
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons((uint16_t)port);
        if (inet_pton(AF_INET6, host + 1, &out->v6.sin6_addr) == 1)
            return 0;
    }
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, host, &out->v4.sin_addr) == 1 ? 0 : not_an_address(address, error);
}

static int listen_at(int *out, const struct hr__endpoint_options *options, struct hr_error *error)
{
    union address at;
    int on = 1, r = parse_address(&at, options->address, options->port_offset, error);
    if (r)
        return r;
    socklen_t length = at.any.sa_family == AF_INET6 ? sizeof at.v6 : sizeof at.v4;
    int fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* SO_REUSEADDR: old connections may linger after a restart. A second listener still fails. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(fd, &at.any, length) || listen(fd, 16)) {
        int code = -errno;
        if (fd >= 0)
            close(fd);
        return hr__fail(error, code, "metrics \"%s\": port %d: %s%s", options->address,
                        ntohs(at.v4.sin_port), hr__errno_text(code),
                        code == -EADDRINUSE ? "; give another port" : "");
    }
    *out = fd;
    return 0;
}

int hr__endpoint_start(struct hr__endpoint **out, const struct hr__endpoint_options *options,
                       struct hr_error *error)
{
    int listener = -1;
    struct hr__endpoint *e = hr__alloc(HR__TAG_METRICS, 1, sizeof *e);
    if (!e)
        return hr__fail(error, -ENOMEM, "out of memory for the metrics endpoint");
    e->text = options->text;
    e->arg = options->arg;
    int r = listen_at(&listener, options, error);
    if (!r)
        r = hr__http.start(&e->server, listener, answer, e, error);
    if (r)
        goto fail;
    *out = e;
    return 0;
fail:
    if (listener >= 0)
        close(listener);
    hr__free(e);
    return r;
}

int hr__endpoint_check(const char *address, struct hr_error *error)
{
    union address at;
    return parse_address(&at, address, 0, error);
}

void hr__endpoint_close(struct hr__endpoint *endpoint)
{
    hr__http.close(endpoint->server);
}

void hr__endpoint_abandon(struct hr__endpoint *endpoint)
{
    hr__http.abandon(endpoint->server);
}

void hr__endpoint_stop(struct hr__endpoint **endpoint)
{
    if (!*endpoint)
        return;
    hr__http.stop((*endpoint)->server);
    hr__free(*endpoint);
    *endpoint = NULL;
}
