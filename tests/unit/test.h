/* What every unit test includes: cmocka, the headers it needs before it, and small helpers. */
#ifndef HR_TEST_H
#define HR_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Whether an emulator runs this program: it says so in HEADRACE_TEST_EMULATED. */
static inline int test_is_emulated(void)
{
    return getenv("HEADRACE_TEST_EMULATED") != NULL;
}

/* Whether code is some ten times slower than usual: with a sanitizer, or under an emulator. */
static inline int test_is_slow(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return 1;
#else
    return test_is_emulated();
#endif
}

/* How many of these random cases a test tries. `make test` tries all of them. A sanitizer, which
 * looks for other faults, gets a quarter of them, and an emulator, which is for the kernels of
 * another machine, a tenth. */
static inline int test_rounds(int rounds)
{
    return test_is_emulated() ? (rounds + 9) / 10 : test_is_slow() ? (rounds + 3) / 4 : rounds;
}

/* At the beginning of a long test whose processes have one thread each: ThreadSanitizer, which is
 * ten times slower, has nothing to find in it. */
static inline void test_has_one_thread(void)
{
#ifdef __SANITIZE_THREAD__
    print_message("skipped with ThreadSanitizer: there is one thread\n");
    skip();
#endif
}

#endif
