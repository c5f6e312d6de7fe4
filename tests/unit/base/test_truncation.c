/*
 * Guarded mappings of files that are truncated read as zeros. Every other SIGBUS has the same
 * effect as without the handler. Each case runs in a process of its own, in which nothing was
 * mapped before.
 */
#include "../test.h"

#include "base/own_fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE    4096
#define PAGES   8
#define BYTES   (PAGES * PAGE)
#define THREADS 4
#define ROUNDS  100
#define HANDLED 77 /* exit status of the program's own handler */

/* Opens a file of PAGES pages of 'x' without a name. */
static void make_file(struct hr__own_fd *own)
{
    char path[] = "/dev/shm/headrace-test-truncation-XXXXXX", bytes[BYTES];
    int fd = mkstemp(path);
    memset(bytes, 'x', sizeof bytes);
    if (fd < 0 || write(fd, bytes, sizeof bytes) != BYTES ||
        hr__own_fd_open(own, AT_FDCWD, path, O_RDWR, 0))
        _exit(90);
    unlink(path);
    close(fd);
}

static char *make_mapping(struct hr__own_fd *own)
{
    make_file(own);
    char *memory = hr__own_fd_map(own, BYTES, PROT_READ | PROT_WRITE, 0);
    if (memory == MAP_FAILED || memory[0] != 'x')
        _exit(91);
    return memory;
}

static void truncate_it(const struct hr__own_fd *own, off_t length)
{
    if (ftruncate(own->fd, length))
        _exit(92);
}

/* Reads the program's own mapping of a file that is truncated. */
static void fault_elsewhere(void)
{
    struct hr__own_fd own;
    make_file(&own);
    volatile char *memory = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, own.fd, 0);
    truncate_it(&own, 0);
    (void)memory[0];
}

static int run(void (*work)(void))
{
    int status;
    pid_t child = fork();
    if (!child) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGBUS, SIG_DFL); /* cmocka installs a handler of its own */
        work();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void expect_success(void (*work)(void))
{
    assert_int_equal(run(work), 0);
}

static void expect_sigbus(void (*work)(void))
{
    int status = run(work);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

static void expect_handled(void (*work)(void))
{
    int status = run(work);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == HANDLED);
}

/* ---- guarded mappings ---- */

static void read_what_was_cut(void)
{
    struct hr__own_fd own, other;
    char *memory = make_mapping(&own), *whole = make_mapping(&other);
    truncate_it(&own, PAGE);
    for (int i = PAGE; i < BYTES; i++)
        if (memory[i])
            _exit(1);
    memory[BYTES - 1] = 'y'; /* it is writable */
    if (memory[0] || memory[BYTES - 1] != 'y' || whole[0] != 'x')
        _exit(2);
    hr__own_fd_unmap(memory, BYTES);
    hr__own_fd_unmap(whole, BYTES);
}

static void write_what_was_cut(void)
{
    struct hr__own_fd own;
    char *memory = make_mapping(&own);
    truncate_it(&own, 0);
    memset(memory, 'y', BYTES);
    if (memory[0] != 'y' || memory[BYTES - 1] != 'y')
        _exit(1);
}

static void read_in_a_child(void)
{
    struct hr__own_fd own;
    volatile char *memory = make_mapping(&own);
    int status;
    truncate_it(&own, 0);
    pid_t child = fork();
    if (!child)
        _exit(memory[0] != 0);
    waitpid(child, &status, 0);
    _exit(status || memory[PAGE]);
}

static void *map_and_cut(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct hr__own_fd own;
        volatile char *memory = make_mapping(&own);
        truncate_it(&own, i % PAGES * PAGE);
        if (memory[BYTES - 1])
            _exit(3);
        hr__own_fd_unmap((void *)memory, BYTES);
        hr__own_fd_close(&own);
    }
    return NULL;
}

static void map_in_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, map_and_cut, NULL))
            _exit(4);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void test_guarded(void **state)
{
    expect_success(read_what_was_cut);
    expect_success(write_what_was_cut);
    expect_success(read_in_a_child);
    expect_success(map_in_threads);
}

/* ---- every other SIGBUS ---- */

static void fault_with_a_guard(void)
{
    struct hr__own_fd own;
    make_mapping(&own);
    fault_elsewhere();
}

static void send_with_a_guard(void)
{
    struct hr__own_fd own;
    make_mapping(&own);
    raise(SIGBUS);
}

static void fault_where_a_guard_was(void)
{
    struct hr__own_fd own;
    char *memory = make_mapping(&own);
    hr__own_fd_unmap(memory, BYTES);
    volatile char *again =
        mmap(memory, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, own.fd, 0);
    truncate_it(&own, 0);
    (void)again[0];
}

static void test_others_end_the_process(void **state)
{
    expect_sigbus(fault_elsewhere);
    expect_sigbus(fault_with_a_guard);
    expect_sigbus(send_with_a_guard);
    expect_sigbus(fault_where_a_guard_was);
}

static void own_handler(int number, siginfo_t *info, void *context)
{
    _exit(number == SIGBUS && info->si_code == BUS_ADRERR && info->si_addr ? HANDLED : 5);
}

static void own_plain_handler(int number)
{
    _exit(number == SIGBUS ? HANDLED : 5);
}

static void fault_with_a_handler(void)
{
    struct sigaction action = {.sa_sigaction = own_handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    read_what_was_cut();
    fault_elsewhere();
}

static void send_with_a_plain_handler(void)
{
    struct hr__own_fd own;
    signal(SIGBUS, own_plain_handler);
    make_mapping(&own);
    raise(SIGBUS);
}

static void ignore_what_is_sent(void)
{
    struct hr__own_fd own;
    signal(SIGBUS, SIG_IGN);
    make_mapping(&own);
    raise(SIGBUS);
    read_what_was_cut();
}

static void fault_where_it_is_ignored(void)
{
    ignore_what_is_sent();
    fault_elsewhere();
}

/* As torch does in the workers of its DataLoader. */
static void use_another_handler_in_a_child(void)
{
    struct hr__own_fd own;
    int status;
    make_mapping(&own);
    pid_t child = fork();
    if (!child) {
        signal(SIGBUS, own_plain_handler);
        read_what_was_cut();
        fault_elsewhere();
        _exit(0);
    }
    waitpid(child, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 6);
}

static void test_others_are_passed_on(void **state)
{
    expect_handled(use_another_handler_in_a_child);
    expect_handled(fault_with_a_handler);
    expect_handled(send_with_a_plain_handler);
    expect_success(ignore_what_is_sent);
    expect_sigbus(fault_where_it_is_ignored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guarded),
        cmocka_unit_test(test_others_end_the_process),
        cmocka_unit_test(test_others_are_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
