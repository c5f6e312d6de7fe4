/*
 * Reading ahead in bulk, where the reader refuses requests: what was claimed for it is read all the
 * same. Objects come from a small web server of this test's.
 */
#include "loader/sample.h"
#include "storage/http.h"

#include <headrace/cache.h>
#include <headrace/dataset.h>

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define OBJECTS 40
#define BYTES   1000

/* ---- the reader that refuses ---- */

static atomic_int refuses; /* every so manieth request; 0: none */
static atomic_int submitted, refused;

int __real_hr__reader_submit(struct hr__reader *reader, struct hr__read *read);
int __wrap_hr__reader_submit(struct hr__reader *reader, struct hr__read *read);

int __wrap_hr__reader_submit(struct hr__reader *reader, struct hr__read *read)
{
    int each = atomic_load(&refuses);
    if (!each || atomic_fetch_add(&submitted, 1) % each)
        return __real_hr__reader_submit(reader, read);
    atomic_fetch_add(&refused, 1);
    return -ENOMEM;
}

static atomic_int breaks; /* the reader is broken */

int __real_hr__reader_wait(struct hr__reader *reader, struct hr__read **done, int capacity,
                           int64_t timeout_ns);
int __wrap_hr__reader_wait(struct hr__reader *reader, struct hr__read **done, int capacity,
                           int64_t timeout_ns);

int __wrap_hr__reader_wait(struct hr__reader *reader, struct hr__read **done, int capacity,
                           int64_t timeout_ns)
{
    return atomic_load(&breaks) ? -ENOMEM
                                : __real_hr__reader_wait(reader, done, capacity, timeout_ns);
}

static atomic_int claims;

enum hr__claim __real_hr__cache_claim(struct hr__cache *cache, uint64_t index,
                                      struct hr__cache_ticket *ticket);
enum hr__claim __wrap_hr__cache_claim(struct hr__cache *cache, uint64_t index,
                                      struct hr__cache_ticket *ticket);

enum hr__claim __wrap_hr__cache_claim(struct hr__cache *cache, uint64_t index,
                                      struct hr__cache_ticket *ticket)
{
    atomic_fetch_add(&claims, 1);
    return __real_hr__cache_claim(cache, index, ticket);
}

/* ---- the server ---- */

static void *answer(void *arg)
{
    int link = (int)(intptr_t)arg;
    char request[8192], head[200], body[BYTES];
    size_t length = 0;
    ssize_t n;
    while ((n = read(link, request + length, sizeof request - 1 - length)) > 0) {
        request[length += (size_t)n] = 0;
        if (!strstr(request, "\r\n\r\n"))
            continue;
        /* each object has bytes and an ETag of its own */
        memset(body, request[5], sizeof body);
        body[0] = request[6];
        int used = snprintf(head, sizeof head,
                            "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: \"%.2s\"\r\n\r\n",
                            BYTES, request + 5);
        struct iovec parts[] = {{head, (size_t)used}, {body, sizeof body}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        if (sendmsg(link, &message, MSG_NOSIGNAL) < 0)
            break;
        length = 0;
    }
    close(link);
    return NULL;
}

struct url_server {
    int socket, port;
    pthread_t thread;
};

static void *serve(void *arg)
{
    struct url_server *s = arg;
    for (int link; (link = accept(s->socket, NULL, NULL)) >= 0;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, answer, (void *)(intptr_t)link))
            close(link);
        else
            pthread_detach(thread);
    }
    return NULL;
}

static void start(struct url_server *s)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    s->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s->socket >= 0);
    assert_int_equal(bind(s->socket, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(s->socket, 128), 0);
    assert_int_equal(getsockname(s->socket, (struct sockaddr *)&address, &length), 0);
    s->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(struct url_server *s)
{
    shutdown(s->socket, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->socket);
}

/* ---- the dataset ---- */

static int open_list(struct hr_dataset **out, int port)
{
    char texts[OBJECTS][64];
    const char *paths[OBJECTS];
    int64_t labels[OBJECTS] = {0};
    struct hr_error error = {0};
    for (int i = 0; i < OBJECTS; i++) {
        snprintf(texts[i], sizeof texts[i], "http://127.0.0.1:%d/%02d.jpg", port, i);
        paths[i] = texts[i];
    }
    int r = hr_dataset_from_paths(out, paths, labels, OBJECTS, &error);
    if (r && r != -ENOTSUP)
        fail_msg("%s", error.message);
    return r;
}

static void warm(struct hr_dataset *dataset, const char *name)
{
    struct hr_cache_warm_report report = {.size = sizeof report};
    struct hr_error error = {0};
    char spec[64];
    snprintf(spec, sizeof spec, "shm:%s-%d?size=4MiB&form=encoded", name, (int)getpid());
    atomic_store(&claims, 0);
    int r = hr_cache_warm(dataset, spec, 2, NULL, NULL, &report, &error);
    if (r)
        fail_msg("%s", error.message);
    assert_int_equal(report.bad, 0);
    assert_int_equal(report.cached, OBJECTS);
    assert_int_equal(report.read_bytes, OBJECTS * BYTES);
    snprintf(spec, sizeof spec, "%s-%d", name, (int)getpid());
    assert_int_equal(hr_cache_drop(spec, NULL, 0, NULL, NULL, NULL), 0);
}

static void test_refused_requests(void **state)
{
    struct url_server server;
    struct hr_dataset *dataset;
    start(&server);
    if (open_list(&dataset, server.port)) {
        stop(&server);
        skip(); /* built without libcurl */
    }
    /* the first run learns the versions: from then on samples are claimed before they are read */
    warm(dataset, "hr-test-ahead-1");
    for (int i = 0; i < 3; i++) {
        atomic_store(&refuses, i == 0 ? 3 : i == 1);
        atomic_store(&breaks, i == 2);
        warm(dataset, "hr-test-ahead-2");
        /* a claim that was left is followed by a second one */
        assert_int_equal(atomic_load(&claims), OBJECTS);
    }
    assert_true(atomic_load(&refused) > OBJECTS);
    atomic_store(&breaks, 0);
    hr_dataset_unref(&dataset);
    stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
