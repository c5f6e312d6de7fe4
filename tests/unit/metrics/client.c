/* See client.h. */
#include "../test.h"

#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

int client_connect(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 30};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

void client_request(int port, const char *text, size_t length, char *answer, size_t capacity)
{
    int fd = client_connect(port);
    size_t got = 0;
    ssize_t n = 0;
    /* The server may close before it has read everything. */
    while (length && (n = send(fd, text, length, MSG_NOSIGNAL)) > 0) {
        text += n;
        length -= (size_t)n;
    }
    while ((n = recv(fd, answer + got, capacity - 1 - got, 0)) > 0)
        got += (size_t)n;
    assert_true(n == 0 || errno == ECONNRESET);
    answer[got] = 0;
    close(fd);
}

void client_get(int port, char *answer, size_t capacity)
{
    static const char text[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    client_request(port, text, sizeof text - 1, answer, capacity);
}

int client_listening_port(void)
{
    for (int fd = 0; fd < 256; fd++) {
        struct sockaddr_in6 at;
        int on = 0;
        socklen_t length = sizeof at, size = sizeof on;
        if (!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &size) && on &&
            !getsockname(fd, (struct sockaddr *)&at, &length))
            return ntohs(at.sin6_port); /* where sockaddr_in has it, too */
    }
    return 0;
}
