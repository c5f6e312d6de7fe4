/* The streaming JSON reader: numbers that a double cannot hold, texts that end anywhere in a word
 * or a buffer, gzipped files. test_coco.c and test_trace.c test it with whole formats. */
#include "../test.h"

#include "base/json_reader.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

static int64_t fixed(const char *text, int decimals, int *code)
{
    struct hr__json_reader *s;
    struct hr_error error = {0};
    int64_t value;
    assert_int_equal(hr__json_reader_of(&s, text, strlen(text), "text", &error), 0);
    hr__json_reader_fixed(s, decimals, &value);
    *code = hr__json_reader_error(s, &error);
    hr__json_reader_close(&s);
    return value;
}

static void fixed_numbers(void **state)
{
    int code;
    assert_int_equal(fixed("1712195495519689.813", 3, &code), 1712195495519689813);
    assert_int_equal(fixed("1712195495519689.8", 3, &code), 1712195495519689800);
    assert_int_equal(fixed("1695835542514261", 3, &code), 1695835542514261000);
    assert_int_equal(fixed("-12.3456", 3, &code), -12346);
    assert_int_equal(fixed("0.0004", 3, &code), 0);
    assert_int_equal(fixed("7.5", 0, &code), 8);
    assert_int_equal(fixed("-1", 0, &code), -1);
    assert_int_equal(code, 0);
    assert_int_equal(fixed("99999999999999999999999", 0, &code), INT64_MAX);
    assert_int_equal(code, 0);
    fixed("1e5", 3, &code);
    assert_int_equal(code, -EBADMSG);
    fixed("-", 3, &code);
    assert_int_equal(code, -EBADMSG);
    fixed("\"1\"", 3, &code);
    assert_int_equal(code, -EBADMSG);
}

/* A text of any length with one special byte at any place. */
static void texts_of_any_length(void **state)
{
    static const char *const specials[] = {"", "\\n", "\\u00e9", "\xc3\xa9", "\\\\", "\\\""};
    static const char *const meant[] = {"", "\n", "\xc3\xa9", "\xc3\xa9", "\\", "\""};
    for (size_t k = 0; k < sizeof specials / sizeof *specials; k++)
        for (int before = 0; before < 20; before++)
            for (int after = 0; after < 20; after += 3) {
                struct hr__json_reader *s;
                char text[128], want[128], got[128];
                snprintf(text, sizeof text, "[\"%.*s%s%.*s\", \"%.*s%s\"]", before,
                         "abcdefghijklmnopqrstu", specials[k], after, "ABCDEFGHIJKLMNOPQRSTU",
                         before, "abcdefghijklmnopqrstu", specials[k]);
                snprintf(want, sizeof want, "%.*s%s%.*s", before, "abcdefghijklmnopqrstu", meant[k],
                         after, "ABCDEFGHIJKLMNOPQRSTU");
                assert_int_equal(hr__json_reader_of(&s, text, strlen(text), "text", NULL), 0);
                hr__json_reader_array(s);
                assert_true(hr__json_reader_more(s));
                assert_true(hr__json_reader_text(s, got, sizeof got));
                assert_string_equal(got, want);
                assert_true(hr__json_reader_more(s));
                assert_true(hr__json_reader_skip(s));
                assert_false(hr__json_reader_more(s));
                assert_true(hr__json_reader_end(s));
                assert_int_equal(hr__json_reader_error(s, NULL), 0);
                hr__json_reader_close(&s);
            }
}

static void long_texts_are_cut(void **state)
{
    struct hr__json_reader *s;
    char got[8];
    assert_int_equal(hr__json_reader_of(&s, "[\"abcdefghij\", \"xyz\"]", 21, "text", NULL), 0);
    hr__json_reader_array(s);
    hr__json_reader_more(s);
    assert_true(hr__json_reader_text_cut(s, got, sizeof got));
    assert_true(strlen(got) < sizeof got);
    assert_memory_equal(got, "abcdefg", strlen(got));
    hr__json_reader_more(s);
    assert_true(hr__json_reader_text(s, got, sizeof got));
    assert_string_equal(got, "xyz");
    hr__json_reader_close(&s);
}

/* Texts across the ends of the reader's buffer, plain and gzipped. */
static void files(void **state)
{
    char path[] = "/tmp/headrace-json-XXXXXX", line[64], got[64];
    const int count = 60000;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (int is_packed = 0; is_packed < 2; is_packed++) {
        struct hr__json_reader *s;
        struct hr_error error = {0};
        uint64_t length;
        gzFile file = gzopen(path, is_packed ? "wb" : "wbT");
        assert_non_null(file);
        gzputs(file, "[");
        for (int i = 0; i < count; i++) {
            snprintf(line, sizeof line, "%s\"text %d \\u2192\"", i ? "," : "", i);
            gzputs(file, line);
        }
        gzputs(file, "]");
        assert_int_equal(gzclose(file), Z_OK);
        assert_int_equal(hr__json_reader_open(&s, path, &error), 0);
        hr__json_reader_array(s);
        for (int i = 0; i < count; i++) {
            assert_true(hr__json_reader_more(s));
            assert_true(hr__json_reader_text(s, got, sizeof got));
            snprintf(line, sizeof line, "text %d \xe2\x86\x92", i);
            assert_string_equal(got, line);
        }
        assert_false(hr__json_reader_more(s));
        assert_true(hr__json_reader_end(s));
        uint64_t place = hr__json_reader_place(s, &length);
        assert_true(place > 1000000);
        assert_true(length == (is_packed ? 0 : place));
        hr__json_reader_close(&s);
        assert_int_equal(truncate(path, 5000), 0);
        assert_int_equal(hr__json_reader_open(&s, path, &error), 0);
        hr__json_reader_array(s);
        while (hr__json_reader_more(s))
            hr__json_reader_skip(s);
        assert_int_equal(hr__json_reader_error(s, &error), -EBADMSG);
        assert_non_null(strstr(error.message, path));
        hr__json_reader_close(&s);
    }
    unlink(path);
    struct hr__json_reader *s;
    assert_int_equal(hr__json_reader_open(&s, path, NULL), -ENOENT);
    assert_int_equal(hr__json_reader_open(&s, "/tmp", NULL), -EISDIR);
    assert_int_equal(hr__allocated(HR__TAG_BASE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_numbers),
        cmocka_unit_test(texts_of_any_length),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests_name("json reader", tests, NULL, NULL);
}
