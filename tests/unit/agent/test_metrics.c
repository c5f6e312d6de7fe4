/*
 * The agent's metrics: a strict reader parses the text, and the endpoint answers only valid
 * requests. If promtool is installed it checks the text, too.
 */
#include "../test.h"

#include "agent/server/metrics.h"
#include "base/memory.h"
#include "prometheus.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char status_text[] =
    "{\"version\":1,\"pid\":100,\"socket\":\"/run/a.sock\",\"uptime_s\":12.5,\"threads\":3,"
    "\"cpu_s\":7.000000001,\"idle_ms\":0,\"cache\":null,\"jobs\":2,\"expelled\":1,\"refused\":0,"
    "\"streams\":[{\"name\":\"a\\\"b\\\\c\\nd\\u00e9\",\"dataset\":\"/data/set\",\"samples\":100,"
    "\"queues\":[{\"queue\":4,\"rank\":1,\"world_size\":2,\"epoch\":3,\"position\":10,"
    "\"epoch_samples\":50,\"prepared\":12345678901,\"alone\":false,\"chunk_samples\":8,"
    "\"window_samples\":64,\"ready_samples\":24,\"staged_bytes\":1000,\"bytes_read\":2000,"
    "\"fetch_s\":0.25,\"prepare_s\":1.5,\"cache_hits\":7,\"cache_bytes\":8,"
    "\"cache_budget_bytes\":9,\"bad_samples\":0,\"waits_for\":\"room\",\"memory_bytes\":4096,"
    "\"leased_bytes\":0,\"subscribers\":["
    "{\"pid\":201,\"program\":\"python\",\"rank\":1,\"batch_samples\":8,\"batches\":5,"
    "\"samples\":40,\"wait_s\":0.125,\"step_s\":2,\"behind_samples\":0,\"held\":1,"
    "\"waiting\":true,\"copied\":0},"
    "{\"pid\":201,\"program\":\"python\",\"rank\":1,\"batches\":6,\"waiting\":false},"
    "{\"pid\":202,\"program\":\"python\",\"rank\":1,\"batches\":7}]}]},"
    "{\"name\":null,\"dataset\":\"/data/other\",\"queues\":[{\"queue\":5,\"rank\":0,"
    "\"world_size\":1,\"alone\":true,\"waits_for\":null,\"subscribers\":[]}]}]}";

static struct prometheus figures;

static void read_status(const char *status)
{
    char *text = NULL;
    struct hr_error error = {0};
    assert_int_equal(hr__metrics_text(&text, status, &error), 0);
    prometheus_read(&figures, text);
    hr__free(text);
}

static int count_of(const char *name)
{
    int count = 0;
    for (size_t i = 0; i < figures.count; i++)
        count += !strcmp(figures.samples[i].name, name);
    return count;
}

static void is(const char *series, double value)
{
    double found = prometheus_value(&figures, series);
    if (found != value)
        fail_msg("%s is %.17g, not %.17g", series, found, value);
}

#define LANE4  "{stream=\"a\\\"b\\\\c\\nd\xc3\xa9\",queue=\"4\",rank=\"1\""
#define LANE5  "{stream=\"\",queue=\"5\",rank=\"0\""
#define FIRST  LANE4 ",pid=\"201\",loader=\"0\"}"
#define SECOND LANE4 ",pid=\"201\",loader=\"1\"}"
#define THIRD  LANE4 ",pid=\"202\",loader=\"0\"}"

static void test_text(void **state)
{
    read_status(status_text);
    is("headrace_agent_uptime_seconds", 12.5);
    is("headrace_agent_cpu_seconds_total", 7.000000001);
    is("headrace_agent_info{socket=\"/run/a.sock\",cache=\"\"}", 1);
    is("headrace_agent_expelled_total", 1);
    is("headrace_queue_info" LANE4 ",dataset=\"/data/set\",world_size=\"2\"}", 1);
    is("headrace_queue_prepared_samples_total" LANE4 "}", 12345678901.0);
    is("headrace_queue_fetch_seconds_total" LANE4 "}", 0.25);
    is("headrace_queue_alone" LANE4 "}", 0);
    is("headrace_queue_alone" LANE5 "}", 1);
    is("headrace_queue_waits_for" LANE4 ",reason=\"room\"}", 1);
    is("headrace_queue_waits_for" LANE4 ",reason=\"fetch\"}", 0);
    is("headrace_queue_waits_for" LANE5 ",reason=\"room\"}", 0);
    is("headrace_subscriber_info" LANE4 ",pid=\"201\",loader=\"0\",program=\"python\"}", 1);
    is("headrace_subscriber_wait_seconds_total" FIRST, 0.125);
    is("headrace_subscriber_waiting" FIRST, 1);
    is("headrace_subscriber_waiting" SECOND, 0);
    is("headrace_subscriber_batches_total" SECOND, 6);
    is("headrace_subscriber_batches_total" THIRD, 7);
    /* Unknown values are left out. */
    assert_int_equal(count_of("headrace_subscriber_waiting"), 2);
    assert_int_equal(count_of("headrace_queue_cache_bytes"), 1);
    assert_int_equal(count_of("headrace_queue_waits_for"), 8);
}

static void test_odd_status(void **state)
{
    static const char *const odd[] = {
        "{}", "{\"streams\":3,\"threads\":\"x\"}", "{\"streams\":[1,null,{\"queues\":[[],{}]}]}",
        "{\"streams\":[{\"queues\":[{\"subscribers\":[7,{}],\"waits_for\":12}]}]}"};
    static const char *const bad[] = {"", "[]", "{", "12", "{\"a\":\xff}"};
    char *text = NULL;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(hr__metrics_text(&text, odd[i], NULL), 0);
        hr__free(text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hr_error error = {0};
        assert_int_equal(hr__metrics_text(&text, bad[i], &error), -EPROTO);
        assert_non_null(strstr(error.message, "no JSON object"));
    }
    uint64_t before = hr__allocated(HR__TAG_AGENT);
    for (int n = 1; n < 3; n++) {
        hr__alloc_fail_at((uint64_t)n, 1);
        int r = hr__metrics_text(&text, status_text, NULL);
        hr__alloc_fail_at(0, 0);
        assert_int_equal(r, -ENOMEM);
    }
    assert_int_equal(hr__allocated(HR__TAG_AGENT), before);
}

static void test_promtool(void **state)
{
    if (system("promtool --version > /dev/null 2>&1"))
        skip();
    char *text = NULL;
    assert_int_equal(hr__metrics_text(&text, status_text, NULL), 0);
    FILE *tool = popen("promtool check metrics", "w");
    assert_non_null(tool);
    fputs(text, tool);
    hr__free(text);
    assert_int_equal(pclose(tool), 0);
}

/* ---- the endpoint ---- */

static int give(void *arg, char **json, struct hr_error *error)
{
    const char *text = *(const char **)arg;
    if (!text) {
        snprintf(error->message, sizeof error->message, "the agent is about to end\n");
        return error->code = -ECONNREFUSED;
    }
    *json = hr__strdup(HR__TAG_AGENT, text);
    return *json ? 0 : -ENOMEM;
}

/* Returns the whole answer to a request. */
static void request(int port, const char *text, char *answer, size_t capacity)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    size_t length = 0;
    ssize_t n;
    while ((n = recv(fd, answer + length, capacity - 1 - length, 0)) > 0)
        length += (size_t)n;
    assert_int_equal(n, 0);
    answer[length] = 0;
    close(fd);
}

/* The port that a socket of this process listens on; 0: none. */
static int listening_port(void)
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

#define REST " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

static void test_endpoint(void **state)
{
    static char answer[200000];
    const char *status = status_text;
    struct hr__metrics *m = NULL;
    struct hr_error error = {0};
    int r = hr__metrics_start(&m, "127.0.0.1:0", give, &status, &error);
    if (r == -ENOTSUP) {
        assert_non_null(strstr(error.message, "libmicrohttpd"));
        skip();
    }
    assert_int_equal(r, 0);
    int port = listening_port();
    request(port, "GET /metrics" REST, answer, sizeof answer);
    assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
    assert_non_null(strstr(answer, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    prometheus_read(&figures, strstr(answer, "\r\n\r\n") + 4);
    is("headrace_agent_threads", 3);
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
    status = NULL;
    request(port, "GET /metrics" REST, answer, sizeof answer);
    assert_memory_equal(answer, "HTTP/1.1 503 ", 13);
    assert_non_null(strstr(answer, "about to end"));
    /* Only one agent can have a port. */
    struct hr__metrics *second = NULL;
    char address[64];
    snprintf(address, sizeof address, "localhost:%d", port);
    assert_int_equal(hr__metrics_start(&second, address, give, &status, &error), -EADDRINUSE);
    assert_non_null(strstr(error.message, address));
    hr__metrics_stop(&m);
    assert_null(m);
    assert_int_equal(hr__metrics_start(&m, address, give, &status, &error), 0);
    assert_int_equal(listening_port(), port);
    hr__metrics_stop(&m);
    hr__metrics_stop(&m);
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
    const char *status = status_text;
    struct hr__metrics *m = NULL;
    struct hr_error error = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hr__metrics_start(&m, bad[i], give, &status, &error), -EINVAL);
        assert_non_null(strstr(error.message, "ADDRESS:PORT"));
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int r = hr__metrics_start(&m, good[i], give, &status, &error);
        if (r == -EADDRNOTAVAIL || r == -EAFNOSUPPORT || r == -ENOTSUP)
            continue; /* no IPv6 here, or built without the endpoint */
        assert_int_equal(r, 0);
        assert_in_range(listening_port(), 1, 65535);
        hr__metrics_stop(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),      cmocka_unit_test(test_odd_status),
        cmocka_unit_test(test_promtool),  cmocka_unit_test(test_endpoint),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
