/* Forked children do not keep the locks of their parent, though they keep its mappings. */
#include "../test.h"

#include "base/own_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[] = "/tmp/headrace-own-fd-XXXXXX";

/* Returns non-zero if another open file has the lock. */
static int is_locked(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_OFD_GETLK, &lock), 0);
    close(fd);
    return lock.l_type != F_UNLCK;
}

static void lock_it(const struct hr__own_fd *own)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    assert_int_equal(fcntl(own->fd, F_OFD_SETLK, &lock), 0);
}

static void test_child_keeps_no_lock(void **state)
{
    struct hr__own_fd own = HR__OWN_FD_NONE, copy = HR__OWN_FD_NONE;
    int pipes[2], status;
    assert_int_equal(hr__own_fd_open(&own, AT_FDCWD, path, O_RDWR, 0), 0);
    assert_true(fcntl(own.fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(hr__own_fd_copy(&copy, own.fd), 0);
    lock_it(&own);
    char *memory = hr__own_fd_map(&own, 4096, PROT_READ | PROT_WRITE, 0);
    assert_true(memory != MAP_FAILED);
    memory[0] = 'a';
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (!child) {
        int is_right = own.fd == -1 && copy.fd == -1 && memory[0] == 'a';
        hr__own_fd_close(&own);
        hr__own_fd_close(&copy);
        memory[0] = 'b'; /* the mapping is shared */
        if (write(pipes[1], is_right ? "y" : "n", 1) == 1)
            pause();
        _exit(0);
    }
    char answer = 0;
    assert_int_equal(read(pipes[0], &answer, 1), 1);
    assert_int_equal(answer, 'y');
    assert_int_equal(memory[0], 'b');
    assert_true(is_locked()); /* the child closed only its own descriptor */
    hr__own_fd_close(&own);
    assert_true(is_locked()); /* a duplicate shares the open file */
    hr__own_fd_close(&copy);
    assert_false(is_locked()); /* although the child and both mappings are alive */
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    hr__own_fd_unmap(memory, 4096);
    close(pipes[0]);
    close(pipes[1]);
}

static void test_errors(void **state)
{
    struct hr__own_fd own = HR__OWN_FD_NONE;
    assert_int_equal(hr__own_fd_open(&own, AT_FDCWD, "/nowhere/at/all", O_RDONLY, 0), -ENOENT);
    assert_int_equal(own.fd, -1);
    assert_int_equal(hr__own_fd_copy(&own, -1), -EBADF);
    hr__own_fd_close(&own);
    hr__own_fd_close(&own);
}

static int set_up(void **state)
{
    int fd = mkstemp(path);
    return fd < 0 || ftruncate(fd, 4096) || close(fd);
}

static int tear_down(void **state)
{
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_child_keeps_no_lock),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
