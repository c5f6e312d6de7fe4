/*
 * A seccomp filter refuses io_uring, as containers do, at its setup or only at its use. The reader
 * falls back to pread, logs that once, and reads.
 */
#include "../test.h"

#include "base/memory.h"
#include "files.h"
#include "refuse.h"
#include "storage/reader.h"

#include <sys/wait.h>

static int messages;

static void count_message(void *arg, enum hr_log_level level, const char *message)
{
    messages += level == HR_LOG_INFO && strstr(message, "io_uring") != NULL;
}

/* Returns the line that failed, as exit status; 0: everything is right. */
static int read_when_refused(const char *path, int number, int code)
{
    hr_log_set(count_message, NULL);
    if (refuse(number, code))
        return __LINE__;
    for (int i = 0; i < 3; i++) {
        struct hr__reader *reader;
        struct hr__reader_options options = {.depth = 4};
        struct hr__read read = {.path = path, .expected = -1}, *done;
        if (hr__reader_create(&reader, &options, NULL))
            return __LINE__;
        if (hr__reader_is_io_uring(reader))
            return __LINE__;
        if (hr__reader_submit(reader, &read) || hr__reader_wait(reader, &done, 1, -1) != 1)
            return __LINE__;
        if (read.result || read.length != 7777 || files_differ(read.bytes, 7777, 1) != 7777)
            return __LINE__;
        hr__free(read.bytes);
        hr__reader_destroy(&reader);
    }
    return messages == 1 && !hr__allocated(HR__TAG_STORAGE) ? 0 : __LINE__;
}

/* The filter is installed while reads are in the kernel: destroy ends, and frees no memory that the
 * kernel may still write to. */
static int destroy_when_refused(const char *path, int number, int code)
{
    struct hr__reader *reader;
    struct hr__reader_options options = {.depth = 4};
    struct hr__read reads[4], *done;
    if (hr__reader_create(&reader, &options, NULL))
        return __LINE__;
    if (!hr__reader_is_io_uring(reader))
        return 0; /* this machine refuses it anyway */
    for (int i = 0; i < 4; i++) {
        reads[i] = (struct hr__read){.path = path, .expected = -1};
        if (hr__reader_submit(reader, &reads[i]))
            return __LINE__;
    }
    if (refuse(number, code))
        return __LINE__;
    if (hr__reader_wait(reader, &done, 1, -1) >= 0)
        return __LINE__;
    hr__reader_destroy(&reader);
    for (int i = 0; i < 4; i++)
        if (reads[i].result != -ECANCELED || reads[i].bytes)
            return __LINE__;
    return 0;
}

static void in_child(int (*body)(const char *, int, int), int number, int code)
{
    char *path = files_make("refused", 1, 7777);
    pid_t child = fork();
    if (!child) {
        alarm(300);
        int line = body(path, number, code);
        if (line)
            fprintf(stderr, "line %d failed\n", line);
        _exit(line != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    free(path);
}

static void setup_refused(void **state)
{
    in_child(read_when_refused, SYS_io_uring_setup, EPERM);
    in_child(read_when_refused, SYS_io_uring_setup, ENOSYS);
    in_child(read_when_refused, SYS_io_uring_setup, ENOMEM);
}

static void enter_refused(void **state)
{
    in_child(read_when_refused, SYS_io_uring_enter, EPERM);
}

static void register_refused(void **state)
{
    in_child(read_when_refused, SYS_io_uring_register, EPERM);
}

static void enter_refused_later(void **state)
{
    in_child(destroy_when_refused, SYS_io_uring_enter, EPERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setup_refused),
        cmocka_unit_test(enter_refused),
        cmocka_unit_test(register_refused),
        cmocka_unit_test(enter_refused_later),
    };
    return cmocka_run_group_tests_name("storage-refused", tests, files_setup, files_teardown);
}
