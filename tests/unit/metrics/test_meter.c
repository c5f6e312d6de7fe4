/*
 * The loaders of a process, as others see them: the text for Prometheus, numbers, one address, and
 * status files that killed processes leave.
 */
#include "../test.h"

#include "base/memory.h"
#include "client.h"
#include "metrics/meter.h"
#include "metrics/status_file.h"
#include "prometheus.h"

#include <headrace/loader.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char status_text[] =
    "{\"loaders\":[{\"loader\":0,\"rank\":3,\"program\":\"python a\\\"b\",\"dataset\":\"/data/x\","
    "\"prepared_by\":\"threads\",\"running\":true,\"waiting\":false,\"prepared\":12345678901,"
    "\"wait_s\":0.25,\"waits_for\":\"fetch\",\"epoch_samples\":null},"
    "{\"loader\":1,\"rank\":3,\"prepared\":7,\"waits_for\":null}]}";

static struct prometheus figures;

static void is(const char *series, double value)
{
    assert_float_equal(prometheus_value(&figures, series), value, 0);
}

static void test_text(void **state)
{
    char *text = NULL;
    assert_int_equal(hr__loaders_text(&text, status_text, NULL), 0);
    prometheus_read(&figures, text);
    hr__free(text);
    is("headrace_loader_info{rank=\"3\",loader=\"0\",dataset=\"/data/x\",program=\"python "
       "a\\\"b\",prepared_by=\"threads\"}",
       1);
    is("headrace_loader_prepared_samples_total{rank=\"3\",loader=\"0\"}", 12345678901.0);
    is("headrace_loader_prepared_samples_total{rank=\"3\",loader=\"1\"}", 7);
    is("headrace_loader_running{rank=\"3\",loader=\"0\"}", 1);
    is("headrace_loader_wait_seconds_total{rank=\"3\",loader=\"0\"}", 0.25);
    is("headrace_loader_waits_for{rank=\"3\",loader=\"0\",reason=\"fetch\"}", 1);
    is("headrace_loader_waits_for{rank=\"3\",loader=\"0\",reason=\"room\"}", 0);
    is("headrace_loader_waits_for{rank=\"3\",loader=\"1\",reason=\"room\"}", 0);
    for (size_t i = 0; i < figures.count; i++)
        assert_string_not_equal(figures.samples[i].name, "headrace_loader_epoch_samples");
}

static void test_odd_text(void **state)
{
    static const char *const odd[] = {"{}", "{\"loaders\":3}", "{\"loaders\":[1,null,[],{}]}"};
    static const char *const bad[] = {"", "[]", "{", "{\"a\":\xff}"};
    char *text = NULL;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(hr__loaders_text(&text, odd[i], NULL), 0);
        hr__free(text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hr__loaders_text(&text, bad[i], NULL), -EPROTO);
    if (system("promtool --version > /dev/null 2>&1"))
        return;
    assert_int_equal(hr__loaders_text(&text, status_text, NULL), 0);
    FILE *tool = popen("promtool check metrics", "w");
    fputs(text, tool);
    hr__free(text);
    assert_int_equal(pclose(tool), 0);
}

/* ---- a place of its own for each test ---- */

static char place[64], files[128];

static int setup(void **state)
{
    strcpy(place, "/dev/shm/headrace-test-XXXXXX");
    assert_non_null(mkdtemp(place));
    setenv("HEADRACE_SHM", place, 1);
    unsetenv("HEADRACE_METRICS");
    snprintf(files, sizeof files, "%s/headrace-%u-loaders", place, (unsigned)geteuid());
    return 0;
}

static int teardown(void **state)
{
    hr_log_set(NULL, NULL);
    /* Nothing is left, the directory of files least of all. */
    return rmdir(place);
}

static struct hr_meter *begin(const char *metrics)
{
    struct hr_meter *m = NULL;
    struct hr_error error = {0};
    int r = hr_meter_begin(&m, metrics, 0, 1, &error);
    if (r == -ENOTSUP)
        skip();
    assert_int_equal(r, 0);
    return m;
}

/* Without an address, too; in a process without loaders each family has no samples. */
static void test_text_of_the_process(void **state)
{
    char *text = NULL;
    for (int i = 0; i < 2; i++) {
        struct hr_meter *m = i ? begin("") : NULL;
        if (m)
            hr_meter_publish(m, "{\"loader\":0,\"rank\":1,\"prepared\":5}");
        assert_int_equal(hr_metrics_text(&text, NULL), 0);
        assert_non_null(strstr(text, "\n# TYPE headrace_loader_prepared_samples_total counter\n"));
        prometheus_read(&figures, text);
        hr__free(text);
        if (m)
            is("headrace_loader_prepared_samples_total{rank=\"1\",loader=\"0\"}", 5);
        else
            assert_int_equal(figures.count, 0);
        hr_meter_end(&m);
    }
}

/* Returns the number of loaders that are seen; *last is the member "a" of the last one, or -1. */
static size_t seen(int *last)
{
    char *text = NULL;
    assert_int_equal(hr_loaders_status(&text, NULL), 0);
    json_t *root = json_loads(text, 0, NULL), *loaders = json_object_get(root, "loaders");
    hr__free(text);
    size_t count = json_array_size(loaders);
    const json_t *a = json_object_get(json_array_get(loaders, count - 1), "a");
    if (last)
        *last = count && a ? (int)json_integer_value(a) : -1;
    json_decref(root);
    return count;
}

static int file_count(void)
{
    int count = 0;
    DIR *entries = opendir(files);
    for (struct dirent *e; entries && (e = readdir(entries));)
        count += *e->d_name != '.';
    if (entries)
        closedir(entries);
    return count;
}

static void test_numbers(void **state)
{
    int last;
    struct hr_meter *a = begin(""), *b = begin(NULL), *c = begin("");
    assert_int_equal(hr_meter_number(a), 0);
    assert_int_equal(hr_meter_number(b), 1);
    assert_int_equal(hr_meter_number(c), 2);
    hr_meter_end(&b);
    b = begin("");
    assert_int_equal(hr_meter_number(b), 1);
    assert_int_equal(seen(NULL), 0); /* nothing published yet */
    hr_meter_publish(b, "{\"a\":5, \"long\":\"-----------------------\"}");
    assert_int_equal(seen(&last), 1);
    assert_int_equal(last, 5);
    hr_meter_publish(b, "{\"a\":6}");
    hr_meter_publish(c, "no JSON");
    assert_int_equal(seen(&last), 1);
    assert_int_equal(last, 6);
    hr_meter_end(&a);
    hr_meter_end(&b);
    hr_meter_end(&c);
    hr_meter_end(&c);
    assert_int_equal(seen(NULL), 0);
}

static void test_too_long(void **state)
{
    struct hr_meter *m = begin("");
    char *text = hr__alloc(HR__TAG_METRICS, HR__STATUS_BYTES + 2, 1);
    memset(text, ' ', HR__STATUS_BYTES + 1);
    memcpy(text, "{}", 2);
    hr_meter_publish(m, text);
    hr__free(text);
    assert_int_equal(seen(NULL), 0);
    hr_meter_publish(m, "{}");
    assert_int_equal(seen(NULL), 1);
    hr_meter_end(&m);
}

/* ---- the address ---- */

static char logged[1024];

static void keep_log(void *arg, enum hr_log_level level, const char *message)
{
    if (level == HR_LOG_WARNING)
        snprintf(logged, sizeof logged, "%s", message);
}

static void test_address(void **state)
{
    static char answer[100000];
    struct hr_error error = {0};
    struct hr_meter *other = NULL, *a = begin("127.0.0.1:0"), *b = begin("127.0.0.1:0");
    struct hr_meter *without = begin("");
    int port = client_listening_port();
    assert_int_not_equal(port, 0);
    hr_meter_publish(a, "{\"loader\":0,\"rank\":0,\"prepared\":11}");
    hr_meter_publish(without, "{\"loader\":2,\"rank\":0,\"prepared\":13}");
    client_get(port, answer, sizeof answer);
    assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
    prometheus_read(&figures, strstr(answer, "\r\n\r\n") + 4);
    is("headrace_loader_prepared_samples_total{rank=\"0\",loader=\"0\"}", 11);
    is("headrace_loader_prepared_samples_total{rank=\"0\",loader=\"2\"}", 13);
    assert_int_equal(hr_meter_begin(&other, ":1", 0, 1, &error), -EINVAL);
    assert_non_null(strstr(error.message, "127.0.0.1:0"));
    assert_null(other);
    /* The environment's is no error. */
    hr_log_set(keep_log, NULL);
    setenv("HEADRACE_METRICS", "nonsense", 1);
    other = begin(NULL);
    assert_non_null(strstr(logged, "HEADRACE_METRICS"));
    hr_meter_end(&other);
    hr_meter_end(&a);
    assert_int_equal(client_listening_port(), port);
    hr_meter_end(&b);
    assert_int_equal(client_listening_port(), 0);
    hr_meter_end(&without);
    setenv("HEADRACE_METRICS", "127.0.0.1:0", 1);
    other = begin(NULL);
    assert_int_not_equal(client_listening_port(), 0);
    hr_meter_end(&other);
}

/* ---- processes ---- */

static void expect_end(pid_t child, int is_killed)
{
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    if (is_killed)
        assert_true(WIFSIGNALED(how));
    else
        assert_true(WIFEXITED(how) && !WEXITSTATUS(how));
}

/* A forked child has neither the parent's loaders nor its address, and takes nothing from it. */
static void test_fork(void **state)
{
    static char answer[100000];
    struct hr_meter *m = begin("127.0.0.1:0");
    int port = client_listening_port(), last;
    hr_meter_publish(m, "{\"a\":1}");
    pid_t child = fork();
    if (!child) {
        struct hr_meter *own = NULL;
        int bad = client_listening_port() != 0;
        bad |= hr_meter_begin(&own, "", 0, 1, NULL) || hr_meter_number(own) != 0;
        hr_meter_publish(m, "{\"a\":2}");
        hr_meter_end(&m);
        hr_meter_publish(own, "{\"a\":3}");
        bad |= seen(NULL) != 2;
        hr_meter_end(&own);
        _exit(bad);
    }
    expect_end(child, 0);
    assert_int_equal(seen(&last), 1);
    assert_int_equal(last, 1);
    client_get(port, answer, sizeof answer);
    assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
    hr_meter_end(&m);
}

/* A killed process is not shown, not even while a child of its own lives, and the next loader
 * removes what it left. */
static void test_killed(void **state)
{
    int ready[2], stay[2];
    char byte;
    assert_int_equal(pipe(ready) | pipe(stay), 0);
    pid_t child = fork();
    if (!child) {
        close(stay[1]);
        hr_meter_publish(begin(""), "{\"a\":4}");
        if (!fork()) { /* which has no lock by now */
            (void)!write(ready[1], "x", 1);
            (void)!read(stay[0], &byte, 1);
            _exit(0);
        }
        for (;;)
            pause();
    }
    close(stay[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(seen(NULL), 1);
    kill(child, SIGKILL);
    expect_end(child, 1);
    assert_int_equal(seen(NULL), 0);
    assert_int_equal(file_count(), 1);
    struct hr_meter *m = begin("");
    assert_int_equal(file_count(), 1);
    hr_meter_end(&m);
    assert_int_equal(file_count(), 0);
    close(stay[1]);
    close(ready[0]);
    close(ready[1]);
}

/* Many processes that begin and end at once remove no file of a living one. */
static void test_many(void **state)
{
    enum { PROCESSES = 8, TIMES = 40 };
    pid_t children[PROCESSES];
    struct hr_meter *m = begin("");
    hr_meter_publish(m, "{\"a\":9}");
    for (int i = 0; i < PROCESSES; i++)
        if (!(children[i] = fork())) {
            int bad = 0;
            hr_meter_end(&m);
            for (int k = 0; k < TIMES && !bad; k++) {
                m = NULL;
                bad = hr_meter_begin(&m, "", 0, 1, NULL) != 0;
                hr_meter_publish(m, "{}");
                bad |= seen(NULL) < 2; /* the parent's and its own */
                hr_meter_end(&m);
            }
            _exit(bad);
        }
    for (int i = 0; i < PROCESSES; i++)
        expect_end(children[i], 0);
    assert_int_equal(seen(NULL), 1);
    hr_meter_end(&m);
}

static void test_odd_files(void **state)
{
    char path[256];
    struct hr_meter *m = begin("");
    hr_meter_publish(m, "{}");
    /* A file of nobody, a folder, a link and a pipe. */
    snprintf(path, sizeof path, "%s/folder", files);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/link", files);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    snprintf(path, sizeof path, "%s/pipe", files);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%s/file", files);
    test_write_text(path, "HRLOADER");
    assert_int_equal(seen(NULL), 1);
    struct hr_meter *n = begin("");
    assert_int_equal(access(path, F_OK), -1);
    hr_meter_end(&n);
    hr_meter_end(&m);
    for (const char *const *name = (const char *const[]){"folder", "link", "pipe", NULL}; *name;
         name++) {
        snprintf(path, sizeof path, "%s/%s", files, *name);
        assert_int_equal(remove(path), 0);
    }
    /* A directory that others may enter is not used, and is no error. */
    assert_int_equal(chmod(files, 0755), 0);
    m = begin("");
    hr_meter_publish(m, "{}");
    assert_int_equal(file_count(), 0);
    assert_int_equal(seen(NULL), 0);
    hr_meter_end(&m);
    assert_int_equal(rmdir(files), 0);
    setenv("HEADRACE_SHM", "/nonexistent", 1);
    m = begin("");
    hr_meter_publish(m, "{}");
    assert_int_equal(seen(NULL), 0);
    hr_meter_end(&m);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_odd_text),
        TEST(test_text_of_the_process),
        TEST(test_numbers),
        TEST(test_too_long),
        TEST(test_address),
        TEST(test_fork),
        TEST(test_killed),
        TEST(test_many),
        TEST(test_odd_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
