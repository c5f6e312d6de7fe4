/* The report kit: numbers for people, wrapped text, escapes, growing texts, events. */
#include "../test.h"

#include "base/memory.h"
#include "report/events.h"
#include "report/format.h"
#include "report/table.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static void test_numbers(void **state)
{
    char a[HR__FORMAT_BYTES], b[2 * HR__FORMAT_BYTES];
    assert_string_equal(hr__format_fixed(a, 1234567.891, 2, true), "1,234,567.89");
    assert_string_equal(hr__format_fixed(a, -0.004, 2, true), "0.00");
    assert_string_equal(hr__format_fixed(a, -1234.5, 1, true), "-1,234.5");
    assert_string_equal(hr__format_fixed(a, 0.999, 2, false), "1.00");
    assert_string_equal(hr__format_fixed(a, 1e30, 2, false), "a lot");
    assert_string_equal(hr__format_fixed(a, INFINITY, 0, false), "a lot");
    assert_string_equal(hr__format_rate(a, 9.994), "9.99");
    assert_string_equal(hr__format_rate(a, 9.996), "10.0");
    assert_string_equal(hr__format_rate(a, 99.96), "100");
    assert_string_equal(hr__format_rate(a, NAN), "-");
    assert_string_equal(hr__format_share(a, 0.4116), "41.2 %");
    assert_string_equal(hr__format_time(a, 61.2e-6), "61.2 us");
    assert_string_equal(hr__format_time(a, 0.9996), "1.00 s");
    assert_string_equal(hr__format_time(a, 0), "0 s");
    assert_string_equal(hr__format_speed(a, 1.5e9), "1.50 GB/s");
    assert_string_equal(hr__format_bytes(a, 1536), "1.50 KiB");
    assert_string_equal(hr__format_bytes(a, 12), "12 B");
    assert_string_equal(hr__format_range(b, 0.4, 0.6, hr__format_share), "40.0 to 60.0 %");
    assert_string_equal(hr__format_range(b, 0.9e-3, 1.1e-3, hr__format_time), "900 us to 1.10 ms");
    assert_string_equal(hr__format_range(b, NAN, 1.1e-3, hr__format_time), "-");
}

static void test_wrap(void **state)
{
    struct hr__draft d = {.text = NULL};
    hr__text_wrap("one two  three fourteen-letters x", 7, 2, &d);
    assert_string_equal(d.text, "one two\n  three\n  fourt\n  een-l\n  etter\n  s x\n");
    hr__draft_clear(&d);
    hr__text_wrap("\xC3\xA4\xC3\xB6\xC3\xBC\xC3\xA4", 3, 0, &d);
    assert_string_equal(d.text, "\xC3\xA4\xC3\xB6\xC3\xBC\n\xC3\xA4\n");
    hr__draft_clear(&d);
    hr__text_wrap("waits 59 % of it", 8, 0, &d);
    assert_string_equal(d.text, "waits\n59 % of\nit\n");
    hr__draft_clear(&d);
    hr__text_wrap("", 10, 0, &d);
    assert_string_equal(d.text, "\n");
    hr__draft_clear(&d);
}

static void test_escapes(void **state)
{
    struct hr__draft d = {.text = NULL};
    hr__draft_html(&d, "<a href='x'>&\"\x01\xFF");
    assert_string_equal(d.text, "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\\x01\\xFF");
    hr__draft_clear(&d);
    hr__draft_json(&d, "\"</script>\\\n\xC3\xA4");
    assert_string_equal(d.text, "\"\\\"\\u003c/script\\u003e\\\\\\\\x0A\xC3\xA4\"");
    hr__draft_clear(&d);
    const double numbers[] = {0, -0.5, 1.25, 1e-12, 123456789012.7, NAN, INFINITY, 100, 1e300};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        hr__draft_number(&d, numbers[i], 3);
        hr__draft_put(&d, " ");
    }
    assert_string_equal(d.text, "0 -0.5 1.25 0 123456789013 null null 100 null ");
    hr__draft_clear(&d);
    assert_int_equal(hr__allocated(HR__TAG_REPORT), 0);
}

/* Texts longer than the initial memory, and the end of one. */
static void test_grows(void **state)
{
    struct hr__draft d = {.text = NULL};
    struct hr_error error = {0};
    char long_name[5000], *text;
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    for (int i = 0; i < 3; i++)
        hr__draft_print(&d, "%d%s,", i, long_name);
    assert_int_equal(d.length, 3 * (sizeof long_name + 1));
    assert_int_equal(hr__draft_finish(&d, &text, &error), 0);
    assert_int_equal(strlen(text), 3 * (sizeof long_name + 1));
    assert_int_equal(text[sizeof long_name + 1], '1');
    hr__free(text);
    assert_int_equal(hr__draft_finish(&d, &text, &error), 0);
    assert_string_equal(text, "");
    hr__free(text);
    hr__alloc_fail_at(1, 0);
    hr__draft_print(&d, "%s", long_name);
    hr__alloc_fail_at(0, 0);
    assert_int_equal(hr__draft_finish(&d, &text, &error), -ENOMEM);
    assert_int_equal(hr__allocated(HR__TAG_REPORT), 0);
}

static void test_events(void **state)
{
    struct hr__events e = {.begun = false};
    hr__event_name(&e, "thread_name", 7, 2, "a \"b\"");
    hr__event_begin(&e, "C", 7, -1);
    hr__event_time_ns(&e, "ts", 1234005);
    hr__event_number(&e, "speed", 1.5, 3);
    hr__draft_put(&e.draft, "}");
    assert_string_equal(e.draft.text, "{\"ph\":\"M\",\"pid\":7,\"tid\":2,\"name\":\"thread_name\","
                                      "\"args\":{\"name\":\"a \\\"b\\\"\"}},\n"
                                      "{\"ph\":\"C\",\"pid\":7,\"ts\":1234.005,\"speed\":1.5}");
    hr__draft_clear(&e.draft);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_escapes), cmocka_unit_test(test_grows),
        cmocka_unit_test(test_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
