/*
 * Connections to servers (peer_link.h).
 *
 * Connecting tries the addresses of a name in turn, each with its share of the time left. A server
 * that restarts closes idle connections, which is noticed at their next use: such a request is
 * repeated on a new connection and does not count as a failure.
 */
#include "cluster/peer_link.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The most parts for one sendmsg. */
#define PARTS_MAX 64

int hr__peer_link_open(struct hr__peer_link *link, const char *address, uint16_t port,
                       struct hr_error *error)
{
    size_t length = strlen(address);
    link->socket = -1;
    pthread_mutex_init(&link->lock, NULL);
    if (!length || length >= sizeof link->address ||
        (!port && length >= sizeof((struct sockaddr_un *)0)->sun_path))
        return hr__fail(error, -EINVAL, "the address of a server is too long: %s", address);
    memcpy(link->address, address, length + 1);
    link->port = port;
    if (!port)
        snprintf(link->label, sizeof link->label, "%s", address);
    else
        snprintf(link->label, sizeof link->label, strchr(address, ':') ? "[%s]:%u" : "%s:%u",
                 address, port);
    return 0;
}

/* Replaces the link's socket by `fd`, or by none (-1); closes the old one. */
static void set_socket(struct hr__peer_link *link, int fd)
{
    pthread_mutex_lock(&link->lock);
    if (link->socket >= 0)
        close(link->socket);
    link->socket = fd;
    /* After cancel, nothing may wait on a socket, also if cancel came before the socket. */
    if (fd >= 0 && atomic_load(&link->is_cancelled))
        shutdown(fd, SHUT_RDWR);
    pthread_mutex_unlock(&link->lock);
}

static void drop(struct hr__peer_link *link)
{
    set_socket(link, -1);
    link->begin = link->end = 0;
    link->is_used = link->is_logged_in = 0;
}

void hr__peer_link_close(struct hr__peer_link *link)
{
    drop(link);
    pthread_mutex_destroy(&link->lock);
    hr__peer_lookup_clear(&link->lookup);
}

void hr__peer_link_cancel(struct hr__peer_link *link)
{
    pthread_mutex_lock(&link->lock);
    atomic_store(&link->is_cancelled, 1);
    if (link->socket >= 0)
        shutdown(link->socket, SHUT_RDWR);
    pthread_mutex_unlock(&link->lock);
}

int hr__peer_link_garbage(struct hr__peer_link *link, const char *text, struct hr_error *error)
{
    char shown[96];
    hr__printable(shown, sizeof shown, text);
    return hr__fail(error, -EPROTO,
                    "%s does not answer like a memcached server: \"%s\"; is it one?", link->label,
                    shown);
}

/* Returns an error if the request was cancelled or is late, whatever was received. */
static int check(struct hr__peer_link *link, struct hr_error *error)
{
    if (atomic_load(&link->is_cancelled))
        return hr__fail(error, -ECANCELED, "the request to %s was cancelled", link->label);
    if (hr__now_ns() >= link->deadline_ns)
        return hr__fail(error, -ETIMEDOUT,
                        "%s did not answer in time: is it overloaded or stopped, or the network "
                        "slow? timeout= gives it longer",
                        link->label);
    return 0;
}

/* Reports a failed system call or a closed connection. */
static int broken(struct hr__peer_link *link, int code, struct hr_error *error)
{
    if (atomic_load(&link->is_cancelled))
        return check(link, error);
    switch (code) {
    case -ECONNREFUSED:
        return hr__fail(error, code,
                        "%s refuses connections: is memcached running there, and does it listen "
                        "on that address (-l)?",
                        link->label);
    case -ENOENT:
        return hr__fail(error, -ECONNREFUSED,
                        "%s is not there: is memcached running, with -s %s and a mode (-a) that "
                        "lets this user in?",
                        link->label, link->label);
    case -EPIPE:
    case -ECONNRESET:
        return hr__fail(
            error, -ECONNRESET,
            link->is_used || link->has_answered
                ? "%s closed the connection: was it stopped or restarted?"
                : "%s closes connections at once: was it started for SASL (-S), which is not "
                  "supported (use -Y FILE instead), or has it no connection left (-c)?",
            link->label);
    case -ENETUNREACH:
    case -EHOSTUNREACH:
        return hr__fail(error, -EHOSTUNREACH, "%s cannot be reached: %s", link->label,
                        hr__errno_text(code));
    default:
        return hr__fail(error, code, "cannot talk to %s: %s", link->label, hr__errno_text(code));
    }
}

/* Waits until `until_ns` for one of `events`. Returns 0 if one has come. */
static int wait_for(struct hr__peer_link *link, short events, uint64_t until_ns)
{
    for (;;) {
        struct pollfd fds = {.fd = link->socket, .events = events};
        uint64_t now = hr__now_ns();
        struct timespec left = hr__timespec(until_ns > now ? until_ns - now : 0);
        int n = ppoll(&fds, 1, &left, NULL);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (atomic_load(&link->is_cancelled))
            return -ECANCELED;
        if (n > 0)
            return 0;
        if (hr__now_ns() >= until_ns)
            return -ETIMEDOUT;
    }
}

/* Connects the link to an address. Returns 0 on success. */
static int connect_to(struct hr__peer_link *link, const struct sockaddr *address, socklen_t length,
                      uint64_t until_ns)
{
    int one = 1, code = 0;
    socklen_t size = sizeof code;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    set_socket(link, fd);
    if (address->sa_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    int r = connect(fd, address, length) ? -errno : 0;
    while (r == -EAGAIN && address->sa_family == AF_UNIX) {
        /* The server's backlog is full. poll does not report when that ends. */
        uint64_t now = hr__now_ns();
        if (now >= until_ns || atomic_load(&link->is_cancelled))
            break;
        uint64_t step = until_ns - now < 5000000 ? until_ns - now : 5000000;
        struct timespec pause = hr__timespec(step);
        nanosleep(&pause, NULL);
        r = connect(fd, address, length) ? -errno : 0;
    }
    if (r == -EINPROGRESS) {
        r = wait_for(link, POLLOUT, until_ns);
        if (!r && getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size))
            code = errno;
        if (!r)
            r = -code;
    }
    if (!r)
        return 0;
    if (atomic_load(&link->is_cancelled))
        r = -ECANCELED;
    set_socket(link, -1);
    return r == -EAGAIN ? -ETIMEDOUT : r;
}

static int connect_path(struct hr__peer_link *link)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, link->address, strlen(link->address) + 1);
    return connect_to(link, (struct sockaddr *)&address, sizeof address, link->deadline_ns);
}

static int connect_list(struct hr__peer_link *link, const struct addrinfo *list)
{
    int left = 0, r = -EHOSTUNREACH;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        left++;
    for (const struct addrinfo *a = list; a && r < 0 && r != -ECANCELED; a = a->ai_next, left--) {
        uint64_t now = hr__now_ns();
        if (now >= link->deadline_ns)
            return -ETIMEDOUT;
        r = connect_to(link, a->ai_addr, a->ai_addrlen,
                       now + (link->deadline_ns - now) / (uint64_t)left);
    }
    return r;
}

static int connect_any(struct hr__peer_link *link, struct hr_error *error)
{
    struct addrinfo *list = NULL;
    const char *reason = NULL;
    int r = link->port ? hr__peer_lookup(&link->lookup, link->address, link->port,
                                         link->deadline_ns, &link->is_cancelled, &list, &reason)
                       : 0;
    if (r == -EHOSTUNREACH)
        return hr__fail(error, r,
                        "%s: the name has no address (%s); is it spelt right, and does "
                        "DNS or /etc/hosts know it?",
                        link->label, reason);
    if (r == -ETIMEDOUT)
        return hr__fail(error, r,
                        "%s: the name lookup took too long: do the name servers of "
                        "/etc/resolv.conf answer?",
                        link->label);
    if (!r)
        r = link->port ? connect_list(link, list) : connect_path(link);
    if (list)
        freeaddrinfo(list);
    if (!r)
        return 0;
    if (r == -ETIMEDOUT)
        return hr__fail(error, r,
                        "%s does not answer: is the host up, and does a firewall block the port?",
                        link->label);
    return r == -ECANCELED ? check(link, error) : broken(link, r, error);
}

int hr__peer_link_begin(struct hr__peer_link *link, uint64_t deadline_ns, struct hr_error *error)
{
    link->deadline_ns = deadline_ns;
    link->has_answered = 0;
    int r = check(link, error);
    if (!r && link->socket < 0)
        r = connect_any(link, error);
    return r;
}

int hr__peer_link_end(struct hr__peer_link *link, int result)
{
    int again = result == -ECONNRESET && link->is_used && !link->has_answered;
    /* Left-over bytes would be taken for the next answer. */
    if (result || link->begin < link->end)
        drop(link);
    else
        link->is_used = 1;
    return again;
}

int hr__peer_link_push(struct hr__peer_link *link, struct iovec **parts, size_t *count,
                       struct hr_error *error)
{
    while (*count) {
        size_t some = *count < PARTS_MAX ? *count : PARTS_MAX;
        struct msghdr message = {.msg_iov = *parts, .msg_iovlen = some};
        ssize_t sent = sendmsg(link->socket, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN ? 0 : broken(link, -errno, error);
        size_t rest = (size_t)sent;
        while (*count && rest >= (*parts)->iov_len) {
            rest -= (*parts)->iov_len;
            (*parts)++, (*count)--;
        }
        if (*count) {
            (*parts)->iov_base = (char *)(*parts)->iov_base + rest;
            (*parts)->iov_len -= rest;
        }
        int r = check(link, error);
        if (r)
            return r;
    }
    return 0;
}

/* Receives what is there into `first`, which may be empty, and the rest into the buffer. The buffer
 * must be empty if `first` is not. Returns the number of bytes, 0: nothing yet, or an error. */
static ssize_t receive(struct hr__peer_link *link, void *first, size_t first_length,
                       struct hr_error *error)
{
    if (link->begin) {
        memmove(link->buffer, link->buffer + link->begin, link->end - link->begin);
        link->end -= link->begin;
        link->begin = 0;
    }
    struct iovec parts[2] = {{first, first_length},
                             {link->buffer + link->end, sizeof link->buffer - 1 - link->end}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t got;
    do
        got = recvmsg(link->socket, &message, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EAGAIN ? 0 : broken(link, -errno, error);
    if (!got)
        return broken(link, -ECONNRESET, error);
    link->has_answered = 1;
    if ((size_t)got > first_length)
        link->end += (size_t)got - first_length;
    return got;
}

static int wait_turn(struct hr__peer_link *link, short events, struct hr_error *error)
{
    int r = wait_for(link, events, link->deadline_ns);
    if (r == -ETIMEDOUT || r == -ECANCELED)
        return check(link, error);
    return r ? broken(link, r, error) : check(link, error);
}

int hr__peer_link_turn(struct hr__peer_link *link, int is_sending, struct hr_error *error)
{
    ssize_t got = receive(link, NULL, 0, error);
    if (got)
        return got < 0 ? (int)got : check(link, error);
    int r = wait_turn(link, is_sending ? POLLIN | POLLOUT : POLLIN, error);
    if (!r && (got = receive(link, NULL, 0, error)) < 0)
        r = (int)got;
    return r;
}

int hr__peer_link_send(struct hr__peer_link *link, struct iovec *parts, size_t count,
                       struct hr_error *error)
{
    int r;
    while (!(r = hr__peer_link_push(link, &parts, &count, error)) && count) {
        r = wait_turn(link, POLLOUT, error);
        if (r)
            break;
    }
    return r;
}

int hr__peer_link_has_line(struct hr__peer_link *link, char **line, struct hr_error *error)
{
    size_t length = link->end - link->begin;
    char *at = link->buffer + link->begin, *end = memchr(at, '\n', length);
    if (end ? end - at >= HR__PEER_LINK_LINE : length >= HR__PEER_LINK_LINE) {
        at[HR__PEER_LINK_LINE - 1] = 0;
        return hr__peer_link_garbage(link, at, error);
    }
    if (!end)
        return 0;
    link->begin = (size_t)(end + 1 - link->buffer);
    if (end > at && end[-1] == '\r')
        end--;
    *end = 0;
    *line = at;
    return 1;
}

int hr__peer_link_line(struct hr__peer_link *link, char **line, struct hr_error *error)
{
    int r;
    while (!(r = hr__peer_link_has_line(link, line, error))) {
        r = hr__peer_link_turn(link, 0, error);
        if (r)
            return r;
    }
    return r < 0 ? r : 0;
}

int hr__peer_link_read(struct hr__peer_link *link, void *out, size_t length, struct hr_error *error)
{
    size_t there = link->end - link->begin, done = there < length ? there : length;
    memcpy(out, link->buffer + link->begin, done);
    link->begin += done;
    while (done < length) {
        /* The same call also receives what follows the value, into the buffer, which is empty. */
        ssize_t got = receive(link, (char *)out + done, length - done, error);
        if (got < 0)
            return (int)got;
        done += (size_t)got < length - done ? (size_t)got : length - done;
        int r = got ? check(link, error) : wait_turn(link, POLLIN, error);
        if (r)
            return r;
    }
    return 0;
}
