/* libcurl found while the program runs, as in wheels (src/storage/curl_late.h): an exchange with a
 * server of this process, and what is said of a machine without libcurl. */
#include "../test.h"
#include "base/memory.h"
#include "storage/web.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Answers one request. */
static void *serve(void *listening)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    char request[4096];
    int one = accept(*(int *)listening, NULL, NULL);
    if (one < 0 || read(one, request, sizeof request) <= 0 ||
        write(one, answer, sizeof answer - 1) != (ssize_t)sizeof answer - 1)
        return "the server failed";
    close(one);
    return NULL;
}

static void test_an_exchange(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(getsockname(listening, (struct sockaddr *)&at, &size), 0);
    struct hr__web *web;
    struct hr_error error;
    if (hr__web_create(&web, NULL, &error))
        fail_msg("%s", error.message);
    pthread_t server;
    assert_int_equal(pthread_create(&server, NULL, serve, &listening), 0);
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/a", ntohs(at.sin_port));
    struct hr__web_exchange exchange = {
        .method = "GET", .url = url, .connect_ms = 60000, .stall_ms = 60000, .is_near = 1};
    struct hr__web_answer answer;
    if (hr__web_ask(web, &exchange, &answer, &error))
        fail_msg("%s", error.message);
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer.text, "hello");
    hr__free(answer.text);
    hr__web_destroy(&web);
    void *problem;
    pthread_join(server, &problem);
    assert_null(problem);
    close(listening);
}

/* In a child, as a process looks once. */
static void test_without_libcurl(void **state)
{
    (void)state;
    pid_t child = fork();
    if (!child) {
        struct hr__web *web;
        struct hr_error error;
        setenv("HEADRACE_LIBCURL", "/nowhere/libcurl.so.4", 1);
        for (int i = 0; i < 2; i++)
            if (hr__web_create(&web, NULL, &error) != -ENOTSUP || web ||
                !strstr(error.message, "HEADRACE_LIBCURL") ||
                !strstr(error.message, "/nowhere/libcurl.so.4"))
                _exit(1);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_libcurl),
        cmocka_unit_test(test_an_exchange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
