/* What every unit test includes: cmocka, the headers it needs before it, and small helpers. */
#ifndef HR_TEST_H
#define HR_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* The forms of images are the first ones. */
#define IMAGE_FORMS (HR_FORM_INDEXED + 1)

/* Writes a file, which replaces an older one. */
static inline void test_write(const char *path, const void *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static inline void test_write_text(const char *path, const char *text)
{
    test_write(path, text, strlen(text));
}

static inline void test_pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

#endif
