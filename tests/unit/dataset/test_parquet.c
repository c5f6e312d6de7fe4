/*
 * Footers of Parquet tables that no library writes. Tables of libraries:
 * tests/python/test_parquet.py.
 */
#include "../test.h"

#include "dataset/parquet_footer.h"
#include "storage/source.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Reads a file with this footer. */
static int read_footer(const void *footer, uint8_t length)
{
    struct hr__parquet_footer out;
    struct hr_error error = {0};
    uint8_t file[256] = "PAR1";
    size_t bytes = 4;
    memcpy(file + bytes, footer, length);
    bytes += length;
    memcpy(file + bytes, (const uint8_t[]){length, 0, 0, 0, 'P', 'A', 'R', '1'}, 8);
    bytes += 8;
    int fd = memfd_create("parquet", MFD_CLOEXEC);
    assert_int_equal(write(fd, file, bytes), bytes);
    struct hr__byte_source source;
    assert_int_equal(hr__source_of_file(&source, "table", fd), 0);
    int r = hr__parquet_footer_read(&out, &source, &error);
    hr__source_close(&source);
    hr__parquet_footer_clear(&out);
    return r;
}

/* The schema: a list of a root with so many columns, and one column of numbers; 0 rows. */
#define FOOTER(...)                                                                                \
    {                                                                                              \
        0x29, 0x2C, 0x55, __VA_ARGS__, 0, 0x15, 2, 0x38, 1, 'a', 0, 0x16, 0, 0                     \
    }

static void test_children(void **state)
{
    const uint8_t one[] = FOOTER(2), minus_one[] = FOOTER(1);
    const uint8_t least[] = FOOTER(0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01);
    assert_int_equal(read_footer(one, sizeof one), 0);
    assert_int_equal(read_footer(minus_one, sizeof minus_one), -EBADMSG);
    assert_int_equal(read_footer(least, sizeof least), -EBADMSG);
}

static void test_column_without_a_name(void **state)
{
    const uint8_t nameless[] = {0x29, 0x2C, 0x55, 2, 0, 0x15, 2, 0, 0x16, 0, 0};
    assert_int_equal(read_footer(nameless, sizeof nameless), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_children),
                                       cmocka_unit_test(test_column_without_a_name)};
    return cmocka_run_group_tests_name("dataset parquet", tests, NULL, NULL);
}
