/* The endpoint answers valid requests only, whatever other clients do meanwhile. */
#include "../test.h"

#include "base/memory.h"
#include "client.h"
#include "metrics/endpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char served[] = "# HELP headrace_x X.\n# TYPE headrace_x gauge\nheadrace_x 3\n";

static int give(void *arg, char **out, struct hr_error *error)
{
    const char *text = *(const char **)arg;
    if (!text) {
        snprintf(error->message, sizeof error->message, "the agent is about to end\n");
        return error->code = -ECONNREFUSED;
    }
    *out = hr__strdup(HR__TAG_METRICS, text);
    return *out ? 0 : -ENOMEM;
}

static int begin(struct hr__endpoint **e, const char *address, int offset, const char **text,
                 struct hr_error *error)
{
    const struct hr__endpoint_options options = {
        .address = address, .port_offset = offset, .text = give, .arg = text};
    return hr__endpoint_start(e, &options, error);
}

static void request(int port, const char *text, char *answer, size_t capacity)
{
    client_request(port, text, strlen(text), answer, capacity);
}

#define REST " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

static void test_endpoint(void **state)
{
    static char answer[200000];
    const char *text = served;
    struct hr__endpoint *e = NULL;
    struct hr_error error = {0};
    int r = begin(&e, "127.0.0.1:0", 0, &text, &error);
    if (r == -ENOTSUP) {
        assert_non_null(strstr(error.message, "libmicrohttpd"));
        skip();
    }
    assert_int_equal(r, 0);
    int port = client_listening_port();
    request(port, "GET /metrics" REST, answer, sizeof answer);
    assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
    assert_non_null(strstr(answer, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert_string_equal(strstr(answer, "\r\n\r\n") + 4, served);
    request(port, "GET /" REST, answer, sizeof answer);
    assert_memory_equal(answer, "HTTP/1.1 404 ", 13);
    request(port, "GET /metrics2" REST, answer, sizeof answer);
    assert_memory_equal(answer, "HTTP/1.1 404 ", 13);
    request(
        port,
        "POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
        answer, sizeof answer);
    assert_memory_equal(answer, "HTTP/1.1 405 ", 13);
    assert_non_null(strstr(answer, "Allow: GET\r\n"));
    text = NULL;
    request(port, "GET /metrics" REST, answer, sizeof answer);
    assert_memory_equal(answer, "HTTP/1.1 503 ", 13);
    assert_non_null(strstr(answer, "about to end"));
    /* Only one can have a port. */
    struct hr__endpoint *second = NULL;
    char address[64];
    snprintf(address, sizeof address, "localhost:%d", port);
    assert_int_equal(begin(&second, address, 0, &text, &error), -EADDRINUSE);
    assert_non_null(strstr(error.message, address));
    hr__endpoint_stop(&e);
    assert_null(e);
    assert_int_equal(begin(&e, address, 0, &text, &error), 0);
    assert_int_equal(client_listening_port(), port);
    hr__endpoint_stop(&e);
    hr__endpoint_stop(&e);
}

static void test_addresses(void **state)
{
    static const char *const bad[] = {"",
                                      "x",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      "1.2.3:80",
                                      "[::1:80",
                                      "::1:80",
                                      "a.example:80",
                                      "[]:1",
                                      "1.2.3.4:-1",
                                      "1.2.3.4:65536",
                                      "1.2.3.4:8x",
                                      "[1.2.3.4]:1",
                                      "1.2.3.4: 80"};
    static const char *const good[] = {"127.0.0.1:0", "[::1]:0", ":0", "0", "localhost:0"};
    const char *text = served;
    struct hr__endpoint *e = NULL;
    struct hr_error error = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(begin(&e, bad[i], 0, &text, &error), -EINVAL);
        assert_non_null(strstr(error.message, "ADDRESS:PORT"));
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int r = begin(&e, good[i], 0, &text, &error);
        if (r == -EADDRNOTAVAIL || r == -EAFNOSUPPORT || r == -ENOTSUP)
            continue; /* no IPv6 here, or built without the endpoint */
        assert_int_equal(r, 0);
        assert_in_range(client_listening_port(), 1, 65535);
        hr__endpoint_stop(&e);
    }
}

/* Clients that say nothing, much, or nonsense cost an honest one nothing but time. */
static void test_hostile(void **state)
{
    enum { SILENT = 10, LONG = 1 << 20 };
    static char answer[200000], big[LONG];
    const char *text = served;
    struct hr__endpoint *e = NULL;
    struct hr_error error = {0};
    if (begin(&e, "127.0.0.1:0", 0, &text, &error) == -ENOTSUP)
        skip();
    int port = client_listening_port(), silent[SILENT];
    for (int i = 0; i < SILENT; i++)
        silent[i] = client_connect(port);
    /* Half a request, and no more. */
    assert_true(send(silent[0], "GET /met", 8, MSG_NOSIGNAL) == 8);
    client_get(port, answer, sizeof answer);
    assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
    /* A path, a header and a body without end; bytes that are no HTTP; many requests at once. */
    memset(big, 'a', sizeof big);
    memcpy(big, "GET /", 5);
    client_request(port, big, sizeof big, answer, sizeof answer);
    assert_null(strstr(answer, "headrace_x"));
    memset(big, 'a', sizeof big);
    memcpy(big, "GET /metrics HTTP/1.1\r\nHost: ", 30);
    client_request(port, big, sizeof big, answer, sizeof answer);
    assert_null(strstr(answer, "headrace_x"));
    memset(big, 0xff, sizeof big);
    memcpy(big + 4092, "\r\n\r\n", 4);
    client_request(port, big, 4096, answer, sizeof answer);
    assert_null(strstr(answer, "headrace_x"));
    size_t length = 0;
    for (int i = 0; i < 100; i++)
        length += (size_t)sprintf(big + length, "GET /metrics HTTP/1.1\r\nHost: x\r\n%s\r\n",
                                  i == 99 ? "Connection: close\r\n" : "");
    client_request(port, big, length, answer, sizeof answer);
    assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
    client_get(port, answer, sizeof answer);
    assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    hr__endpoint_stop(&e);
}

/* Each rank of a machine serves at a port of its own. */
static void test_offset(void **state)
{
    const char *text = served;
    struct hr__endpoint *first = NULL, *second = NULL;
    struct hr_error error = {0};
    char address[64];
    if (begin(&first, "127.0.0.1:0", 3, &text, &error) == -ENOTSUP)
        skip();
    int port = client_listening_port();
    hr__endpoint_stop(&first);
    /* The two ports before it are most likely free. */
    snprintf(address, sizeof address, ":%d", port - 2);
    assert_int_equal(begin(&second, address, 2, &text, &error), 0);
    assert_int_equal(client_listening_port(), port);
    hr__endpoint_stop(&second);
    assert_int_equal(begin(&second, ":65535", 1, &text, &error), -EINVAL);
    assert_non_null(strstr(error.message, "65535"));
    assert_int_equal(hr__endpoint_check(":65535", NULL), 0);
    assert_int_equal(hr__endpoint_check("x", &error), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_endpoint),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
