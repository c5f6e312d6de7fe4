/*
 * The tap preloaded into a program whose allocations are known (preloaded.c): checks the record.
 * Arguments: the library and the program.
 */
#include "../../test.h"

#include "memory/record/record.h"

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *library, *program;
static char folder[64];

struct preload_seen {
    uint8_t kind, device;
    uint64_t address, bytes;
};

/* Events of a record. */
struct story {
    struct hr__record_about about;
    struct preload_seen *events;
    size_t count;
    char command[256];
};

/* Runs a part of the program with the tap preloaded; returns its wait status. */
static int run(const char *part, const char *record, const char *least)
{
    int status = -1;
    pid_t pid = fork();
    if (!pid) {
        setenv("LD_PRELOAD", library, 1);
        if (record)
            setenv("HEADRACE_TAP_RECORD", record, 1);
        if (least)
            setenv("HEADRACE_TAP_LEAST", least, 1);
        execl(program, program, part, NULL);
        _exit(9);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static const char *file(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void read_story(struct story *story, const char *path)
{
    struct hr__record *record = NULL;
    struct hr_error error = {0};
    const struct hr_memory_event *events;
    int n;
    memset(story, 0, sizeof *story);
    if (hr__record_open(&record, path, &error))
        fail_msg("%s", error.message);
    hr__record_about(record, &story->about);
    story->events = calloc(story->about.events + 1, sizeof *story->events);
    assert_non_null(story->events);
    while ((n = hr__record_next(record, &events, &error)) > 0)
        for (int i = 0; i < n; i++)
            story->events[story->count++] = (struct preload_seen){.kind = events[i].kind,
                                                                  .device = events[i].device,
                                                                  .address = events[i].address,
                                                                  .bytes = events[i].bytes};
    assert_int_equal(n, 0);
    const char *command = hr__record_fact(record, "command");
    snprintf(story->command, sizeof story->command, "%s", command ? command : "");
    assert_string_equal(hr__record_fact(record, "allocations"), "allocator");
    assert_int_equal(story->about.lost, 0);
    hr__record_close(&record);
}

/* Runs a part, which must succeed, and reads its record. */
static void run_and_read(struct story *story, const char *part, const char *least)
{
    const char *path = file(part);
    assert_int_equal(run(part, path, least), 0);
    read_story(story, path);
    assert_int_equal(story->about.is_ended, 1);
    assert_int_equal(story->about.problem, 0);
}

static void expect(const struct story *story, const struct preload_seen *expected, size_t count)
{
    assert_int_equal(story->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(story->events[i].kind, expected[i].kind);
        assert_int_equal(story->events[i].bytes, expected[i].bytes);
        assert_int_equal(story->events[i].device, 0);
        /* This event ends the block that began before. */
        if (expected[i].kind == HR_MEMORY_FREE)
            assert_int_equal(story->events[i].address, story->events[i - 1].address);
    }
}

#define LIFE(n)                                                                                    \
    {.kind = HR_MEMORY_ALLOC, .bytes = (n)},                                                       \
    {                                                                                              \
        .kind = HR_MEMORY_FREE, .bytes = (n)                                                       \
    }
static const struct preload_seen each[] = {LIFE(100000), LIFE(300000), LIFE(200000), LIFE(70000),
                                           LIFE(70001),  LIFE(131072), LIFE(70003),  LIFE(70004)};

static void test_each(void **unused)
{
    (void)unused;
    struct story story;
    run_and_read(&story, "each", NULL);
    expect(&story, each, sizeof each / sizeof each[0]);
    assert_non_null(strstr(story.command, "preloaded each"));
    free(story.events);
}

static void test_refusals(void **unused)
{
    (void)unused;
    static const struct preload_seen expected[] = {
        {.kind = HR_MEMORY_ALLOC, .bytes = 90000},
        {.kind = HR_MEMORY_FAILED, .bytes = PTRDIFF_MAX},
        {.kind = HR_MEMORY_FAILED, .bytes = SIZE_MAX},
        /* realloc reports the end of the block before it knows the result, then the beginning
         * again */
        {.kind = HR_MEMORY_FREE, .bytes = 90000},
        {.kind = HR_MEMORY_FAILED, .bytes = PTRDIFF_MAX},
        {.kind = HR_MEMORY_ALLOC, .bytes = 90000},
        {.kind = HR_MEMORY_FAILED, .bytes = SIZE_MAX},
        {.kind = HR_MEMORY_FREE, .bytes = 90000},
    };
    struct story story;
    run_and_read(&story, "refusals", NULL);
    assert_int_equal(story.count, sizeof expected / sizeof expected[0]);
    for (size_t i = 0; i < story.count; i++) {
        assert_int_equal(story.events[i].kind, expected[i].kind);
        assert_int_equal(story.events[i].bytes, expected[i].bytes);
    }
    free(story.events);
}

static void test_least(void **unused)
{
    (void)unused;
    struct story story;
    run_and_read(&story, "small", NULL);
    assert_int_equal(story.count, 0);
    free(story.events);
    run_and_read(&story, "each", "70004");
    assert_int_equal(story.count, 10);
    free(story.events);
    run_and_read(&story, "small", "770");
    assert_true(story.count > 20000);
    for (size_t i = 0; i < story.count; i++)
        assert_true(story.events[i].bytes >= 770 && story.events[i].bytes < 5000);
    free(story.events);
}

static int by_address(const void *a, const void *b)
{
    const struct preload_seen *x = *(const struct preload_seen *const *)a,
                              *y = *(const struct preload_seen *const *)b;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return x < y ? -1 : 1;
}

/* At each address allocations and frees alternate: no two blocks overlap in time. */
static void check_lives(const struct story *story)
{
    const struct preload_seen **sorted = calloc(story->count, sizeof *sorted);
    assert_non_null(sorted);
    for (size_t i = 0; i < story->count; i++)
        sorted[i] = &story->events[i];
    qsort(sorted, story->count, sizeof *sorted, by_address);
    for (size_t i = 0; i < story->count; i += 2) {
        assert_int_equal(sorted[i]->kind, HR_MEMORY_ALLOC);
        assert_int_equal(sorted[i + 1]->kind, HR_MEMORY_FREE);
        assert_int_equal(sorted[i]->address, sorted[i + 1]->address);
        assert_int_equal(sorted[i]->bytes, sorted[i + 1]->bytes);
    }
    free(sorted);
}

static void test_threads(void **unused)
{
    (void)unused;
    struct story story;
    run_and_read(&story, "threads", NULL);
    assert_true(story.count > 10000 && story.count % 2 == 0);
    check_lives(&story);
    free(story.events);
}

/* Children record nothing, and leave the parent's record unchanged. */
static void test_fork(void **unused)
{
    (void)unused;
    struct story story;
    run_and_read(&story, "fork", NULL);
    assert_true(story.count > 1000);
    check_lives(&story);
    for (size_t i = 0; i < story.count; i++)
        assert_int_not_equal(story.events[i].bytes, 80002);
    free(story.events);
}

/* Programs that the program starts: no record, or one for each. */
static void test_programs(void **unused)
{
    (void)unused;
    struct story story;
    glob_t found;
    run_and_read(&story, "programs", NULL);
    assert_int_equal(story.count, 1);
    assert_int_equal(story.events[0].bytes, 123456);
    free(story.events);
    assert_int_equal(run("programs", file("of-%p.hrm"), NULL), 0);
    assert_int_equal(glob(file("of-*.hrm"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 2);
    size_t events = 0;
    for (size_t i = 0; i < 2; i++) {
        read_story(&story, found.gl_pathv[i]);
        events += story.count;
        free(story.events);
        unlink(found.gl_pathv[i]);
    }
    assert_int_equal(events, 1 + sizeof each / sizeof each[0]);
    globfree(&found);
}

static void test_killed(void **unused)
{
    (void)unused;
    struct story story;
    int status = run("killed", file("killed"), NULL);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    read_story(&story, file("killed"));
    assert_int_equal(story.about.is_ended, 0);
    assert_int_equal(story.count, 1);
    assert_int_equal(story.events[0].bytes, 123456);
    free(story.events);
}

/* No recording is requested, or it is impossible: the program runs nevertheless. */
static void test_no_record(void **unused)
{
    (void)unused;
    assert_int_equal(run("each", NULL, NULL), 0);
    assert_int_equal(run("threads", NULL, "1"), 0);
    assert_int_equal(run("each", "/nonexistent/run.hrm", NULL), 0);
    assert_int_equal(run("each", NULL, "many"), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_least),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),   cmocka_unit_test(test_programs),
        cmocka_unit_test(test_killed), cmocka_unit_test(test_no_record),
    };
    if (argc != 3)
        return fprintf(stderr, "usage: test_tap_preload LIBRARY PROGRAM\n"), 2;
    library = argv[1];
    program = argv[2];
    snprintf(folder, sizeof folder, "/tmp/headrace-tap-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    static const char *const names[] = {"each", "refusals", "small", "threads",
                                        "fork", "programs", "killed"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(file(names[i]));
    rmdir(folder);
    return failed;
}
