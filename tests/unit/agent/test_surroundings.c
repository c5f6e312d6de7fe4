/* The restrictions of a process, read from /proc, and how an agent reports them to a job. */
#include "../test.h"

#include "agent/server/surroundings.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_of_processes(void **state)
{
    struct hr__surroundings own, other;
    hr__surroundings_read(&own, 0);
    assert_int_equal(own.nice, getpriority(PRIO_PROCESS, 0));
    assert_true(own.cores >= 1);
    pid_t child = fork();
    if (!child) {
        pause();
        _exit(0);
    }
    assert_int_equal(setpriority(PRIO_PROCESS, (id_t)child, 19), 0);
    hr__surroundings_read(&other, child);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(other.nice, 19);
    assert_int_equal(other.cores, own.cores);
    assert_string_equal(other.group, own.group);
    hr__surroundings_read(&other, child); /* it has ended */
    assert_int_equal(other.nice, 0);
    assert_int_equal(other.cores, 0);
}

static void test_differences(void **state)
{
    struct hr__surroundings job = {.cores = 8, .group = "/user", .memory_limit = UINT64_MAX};
    struct hr__surroundings agent = job;
    char text[400];
    hr__surroundings_differ(&agent, &job, text, sizeof text);
    assert_string_equal(text, "");
    agent.memory_limit = UINT64_C(2) << 30; /* of the same control group */
    hr__surroundings_differ(&agent, &job, text, sizeof text);
    assert_string_equal(text, "");
    agent.nice = 10;
    agent.cores = 2;
    agent.filters = 1;
    strcpy(agent.group, "/job_1");
    hr__surroundings_differ(&agent, &job, text, sizeof text);
    assert_string_equal(text,
                        "priority nice 10 (here 0), 2 cores (here 8), a filter of system calls "
                        "(seccomp), at most 2048 MiB of memory (control group /job_1)");
    hr__surroundings_differ(&agent, &job, text, 10);
    assert_int_equal(strlen(text), 9);
    hr__surroundings_differ(&job, &agent, text, sizeof text); /* no warning if the job has the same
                                                                 restrictions or more */
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_of_processes),
                                       cmocka_unit_test(test_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
