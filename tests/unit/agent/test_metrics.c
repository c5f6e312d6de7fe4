/* The agent's metrics: a strict reader parses the text. If promtool is installed it checks the
 * text, too. */
#include "../test.h"

#include "../metrics/prometheus.h"
#include "agent/server/metrics.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_odd_status),
        cmocka_unit_test(test_promtool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
