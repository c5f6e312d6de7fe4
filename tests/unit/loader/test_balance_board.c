/*
 * The board of ranks: who joins, what others hear, who died, and what is left of it.
 */
#include "../test.h"

#include "base/memory.h"
#include "loader/balance_board.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN "00000000-1-1"

static char shm[64], file[128];

static int setup(void **state)
{
    strcpy(shm, "/dev/shm/hr-test-XXXXXX");
    assert_non_null(mkdtemp(shm));
    setenv("HEADRACE_SHM", shm, 1);
    snprintf(file, sizeof file, "%s/headrace-%u/board+" RUN, shm, (unsigned)geteuid());
    return 0;
}

/* Nothing is left: the directories are empty. */
static int teardown(void **state)
{
    assert_int_equal(rmdir(shm), 0);
    assert_int_equal(hr__allocated(HR__TAG_LOADER), 0);
    return 0;
}

static struct hr__board *board_open(void)
{
    struct hr__board *board = NULL;
    struct hr_error error = {0};
    if (hr__board_open(&board, RUN, &error))
        fail_msg("%s", error.message);
    return board;
}

static int board_fails(void)
{
    struct hr__board *board = NULL;
    struct hr_error error = {0};
    int r = hr__board_open(&board, RUN, &error);
    assert_null(board);
    assert_true(r < 0 && error.message[0]);
    return r;
}

static void test_what_is_said_is_heard(void **state)
{
    struct hr__board *one = board_open(), *two = board_open();
    struct hr__balance_rank ranks[HR__BALANCE_RANKS];
    const struct hr__balance_rank said = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    assert_int_not_equal(hr__board_self(one), hr__board_self(two));
    hr__board_say(two, &said);
    hr__board_hear(one, ranks);
    assert_memory_equal(&ranks[hr__board_self(two)], &said, sizeof said);
    assert_int_equal(ranks[hr__board_self(one)].updated_ns, 0);
    int entry = hr__board_self(two);
    hr__board_close(&two);
    hr__board_hear(one, ranks);
    assert_int_equal(ranks[entry].updated_ns, 0);
    assert_int_equal(access(file, F_OK), 0);
    hr__board_close(&one);
    assert_int_equal(access(file, F_OK), -1);
    hr__board_close(&one);
}

static void test_full(void **state)
{
    struct hr__board *boards[HR__BALANCE_RANKS];
    for (int i = 0; i < HR__BALANCE_RANKS; i++)
        boards[i] = board_open();
    assert_int_equal(board_fails(), -EUSERS);
    int entry = hr__board_self(boards[5]);
    hr__board_close(&boards[5]);
    boards[5] = board_open();
    assert_int_equal(hr__board_self(boards[5]), entry);
    for (int i = 0; i < HR__BALANCE_RANKS; i++)
        hr__board_close(&boards[i]);
}

/* A child joins, says something and is killed. */
static void join_and_die(void)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        struct hr__board *board = board_open();
        hr__board_say(board, &(struct hr__balance_rank){.updated_ns = 100, .base = 4});
        if (write(ready[1], "!", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ready[0]);
    close(ready[1]);
}

static void test_the_dead_are_buried(void **state)
{
    struct hr__board *mine = board_open(), *other = board_open();
    struct hr__balance_rank ranks[HR__BALANCE_RANKS];
    hr__board_say(other, &(struct hr__balance_rank){.updated_ns = 100, .base = 3});
    join_and_die();
    hr__board_hear(mine, ranks);
    int there = 0;
    for (int i = 0; i < HR__BALANCE_RANKS; i++)
        there += ranks[i].updated_ns == 100;
    assert_int_equal(there, 2);
    hr__board_bury(mine, 100); /* it may have spoken just now */
    hr__board_hear(mine, ranks);
    there = 0;
    for (int i = 0; i < HR__BALANCE_RANKS; i++)
        there += ranks[i].updated_ns == 100;
    assert_int_equal(there, 2);
    hr__board_bury(mine, 101);
    hr__board_hear(mine, ranks);
    for (int i = 0; i < HR__BALANCE_RANKS; i++)
        assert_int_equal(ranks[i].updated_ns, i == hr__board_self(other) ? 100 : 0);
    hr__board_close(&other);
    hr__board_close(&mine);
}

/* What a killed one left: the next of the run begins anew, one of another run removes it. */
static void test_leftovers(void **state)
{
    struct hr__balance_rank ranks[HR__BALANCE_RANKS];
    join_and_die();
    assert_int_equal(access(file, F_OK), 0);
    struct hr__board *board = board_open();
    hr__board_hear(board, ranks);
    for (int i = 0; i < HR__BALANCE_RANKS; i++)
        assert_int_equal(ranks[i].updated_ns, 0);
    hr__board_close(&board);
    join_and_die();
    struct hr_error error = {0};
    assert_int_equal(hr__board_open(&board, "00000000-2-2", &error), 0);
    assert_int_equal(access(file, F_OK), -1);
    hr__board_close(&board);
}

/* A child that was forked does not keep its parent alive, and can close what it inherited. */
static void test_fork(void **state)
{
    struct hr__board *mine = board_open(), *other = board_open();
    hr__board_say(other, &(struct hr__balance_rank){.updated_ns = 100});
    int hold[2], forked[2];
    char byte;
    assert_int_equal(pipe(hold), 0);
    assert_int_equal(pipe(forked), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        close(hold[1]);
        hr__board_close(&mine);
        if (write(forked[1], "!", 1) != 1)
            _exit(1);
        _exit(read(hold[0], &byte, 1) != 0);
    }
    assert_int_equal(read(forked[0], &byte, 1), 1);
    int entry = hr__board_self(other);
    struct hr__balance_rank ranks[HR__BALANCE_RANKS];
    hr__board_bury(mine, 101);
    hr__board_hear(mine, ranks);
    assert_int_equal(ranks[entry].updated_ns, 100);
    hr__board_close(&other);
    hr__board_close(&mine);
    assert_int_equal(access(file, F_OK), -1);
    int status;
    close(hold[0]);
    close(hold[1]);
    close(forked[0]);
    close(forked[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void write_over(const char *bytes, size_t length)
{
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, length, f), length);
    fclose(f);
}

static void test_wrong_files(void **state)
{
    struct hr__board *board = board_open();
    write_over("HRBOARD\0\2", 9);
    assert_int_equal(board_fails(), -EPROTO);
    assert_int_equal(truncate(file, 8192), 0);
    assert_int_equal(board_fails(), -EPROTO);
    assert_int_equal(chmod(file, 0644), 0);
    assert_int_equal(board_fails(), -EACCES);
    assert_int_equal(chmod(file, 0600), 0);
    hr__board_close(&board);
    /* Nobody uses it: whatever it is, it becomes one. */
    board = board_open();
    struct hr__board *other = board_open();
    hr__board_close(&board);
    /* Another file in its place is not removed with it. */
    assert_int_equal(unlink(file), 0);
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    fclose(f);
    hr__board_close(&other);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkdir(file, 0700), 0);
    assert_true(board_fails() < 0);
    assert_int_equal(rmdir(file), 0);
    *strrchr(file, '/') = 0;
    assert_int_equal(rmdir(file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_said_is_heard, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_dead_are_buried, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leftovers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_files, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
