/* Error details, the log callback, printable text. */
#include "../test.h"

#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail_fills_and_returns(void **state)
{
    struct hr_error e = {0};
    assert_int_equal(hr__fail(&e, -EINVAL, "bad %s at %d", "thing", 7), -EINVAL);
    assert_int_equal(e.code, -EINVAL);
    assert_string_equal(e.message, "bad thing at 7");
    assert_int_equal(hr__fail(NULL, -EIO, "nobody listens"), -EIO);
}

static void long_messages_are_cut(void **state)
{
    struct hr_error e;
    char text[4000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    hr__fail(&e, -EIO, "%s", text);
    assert_int_equal(strlen(e.message), HR_ERROR_MESSAGE_BYTES - 1);
}

/* File names are any bytes; in a message they become one line of UTF-8. */
static void messages_are_one_line_of_utf8(void **state)
{
    struct hr_error e;
    hr__fail(&e, -ENOENT, "cannot open %s: %s", "a\nb\xE9\x1B[31m.jpg", "gone");
    assert_string_equal(e.message, "cannot open a\\x0Ab\\xE9\\x1B[31m.jpg: gone");
    /* printable text is unchanged */
    hr__fail(&e, -ENOENT, "caf\xC3\xA9 \\x0A");
    assert_string_equal(e.message, "caf\xC3\xA9 \\x0A");
}

static void cuts_fall_between_characters(void **state)
{
    struct hr_error e;
    char text[HR_ERROR_MESSAGE_BYTES + 100];
    for (size_t before = 0; before < 2; before++) {
        memset(text, 'x', before);
        for (size_t i = before; i + 2 < sizeof text; i += 2)
            memcpy(text + i, "\xC3\xA9", 3);
        hr__fail(&e, -EIO, "%s", text);
        size_t length = strlen(e.message);
        assert_true(length >= HR_ERROR_MESSAGE_BYTES - 2);
        assert_memory_equal(e.message + length - 2, "\xC3\xA9", 2);
    }
}

static void a_message_may_quote_the_one_before(void **state)
{
    struct hr_error e;
    hr__fail(&e, -EIO, "the inner reason");
    hr__fail(&e, -EBADMSG, "photo.jpg: %s (sample %d)", e.message, 3);
    assert_string_equal(e.message, "photo.jpg: the inner reason (sample 3)");
}

static int lines;
static void count_lines(void *arg, enum hr_log_level level, const char *message)
{
    assert_ptr_equal(arg, &lines);
    assert_int_equal(level, HR_LOG_WARNING);
    assert_string_equal(message, "seen 1");
    lines++;
}

static int printable_seen;
static void see_printable(void *arg, enum hr_log_level level, const char *message)
{
    assert_string_equal(message, "index \\xFF\\x0A");
    printable_seen = 1;
}

static void log_goes_to_the_callback_only(void **state)
{
    hr__log(HR_LOG_WARNING, "seen %d", 0);
    hr_log_set(count_lines, &lines);
    hr__log(HR_LOG_WARNING, "seen %d", 1);
    hr_log_set(see_printable, NULL);
    hr__log(HR_LOG_INFO, "index \xFF\n");
    assert_true(printable_seen);
    hr_log_set(NULL, NULL);
    hr__log(HR_LOG_WARNING, "seen %d", 2);
    assert_int_equal(lines, 1);
}

static void *log_until_told(void *arg)
{
    atomic_int *is_over = arg;
    while (!atomic_load(is_over))
        hr__log(HR_LOG_INFO, "from the other thread");
    return NULL;
}

/* A child that is forked while another thread logs can log. */
static void children_log(void **state)
{
    atomic_int is_over = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, log_until_told, &is_over), 0);
    for (int i = 0, status; i < 100; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            alarm(60); /* ends the child if it hangs */
            hr__log(HR_LOG_INFO, "from the child");
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&is_over, 1);
    pthread_join(thread, NULL);
}

static void printable(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain.jpg", "plain.jpg"},
        {"caf\xC3\xA9.jpg", "caf\xC3\xA9.jpg"},
        {"caf\xE9.jpg", "caf\\xE9.jpg"},
        {"a\nb\x1B[0m", "a\\x0Ab\\x1B[0m"},
        {"\xED\xA0\x80", "\\xED\\xA0\\x80"}, /* a surrogate */
        {"\xC0\xAF", "\\xC0\\xAF"},          /* over-long */
        {"\xF0\x9F\x98", "\\xF0\\x9F\\x98"}, /* cut short */
        {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
    };
    char out[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hr__printable(out, sizeof out, cases[i].in);
        assert_string_equal(out, cases[i].out);
    }
    hr__printable(out, 5, "abc\xC3\xA9");
    assert_string_equal(out, "abc");
    hr__printable(out, 1, "abc");
    assert_string_equal(out, "");
}

static void texts_of_codes(void **state)
{
    assert_string_equal(hr__errno_text(-ENOENT), "No such file or directory");
    assert_string_equal(hr__errno_text(ENOENT), "No such file or directory");
    assert_non_null(strstr(hr__errno_text(-EMFILE), "ulimit -n"));
    assert_non_null(strstr(hr__errno_text(-ENFILE), "fs.file-max"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_fills_and_returns),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(messages_are_one_line_of_utf8),
        cmocka_unit_test(cuts_fall_between_characters),
        cmocka_unit_test(a_message_may_quote_the_one_before),
        cmocka_unit_test(log_goes_to_the_callback_only),
        cmocka_unit_test(children_log),
        cmocka_unit_test(printable),
        cmocka_unit_test(texts_of_codes),
    };
    return cmocka_run_group_tests_name("base-error", tests, NULL, NULL);
}
