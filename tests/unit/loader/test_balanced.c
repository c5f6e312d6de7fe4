/*
 * Ranks of one machine that are processes of their own, with unequal costs, whose consumers wait
 * for each other after each batch, as in synchronous training: the expensive one gets workers of
 * the others and waits less, batches are the same, and who is killed neither holds the others up
 * nor leaves anything behind.
 *
 * Costs are sleeps in the workers, so that they do not depend on how busy this machine is.
 */
#include "fixture.h"

#include "base/clock.h"
#include "base/memory.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define RANKS   3
#define THREADS 3
#define BATCH   8
#define STEPS   30
#define EPOCHS  5
#define SAMPLES (2 * STEPS * BATCH)

FIXTURE(SAMPLES)

/* What a rank is to do, and what it did. */
struct job {
    int rank, world, is_balanced, no_io_uring, direct;
    long prepare_us; /* that a sample costs more */
    uint64_t epochs;
    uint64_t digest, wait_ns[EPOCHS], moves;
    int workers; /* that it had in the end */
    char message[256];
    _Atomic uint64_t steps;
    _Atomic int is_gone;
};

/* Seen by all processes. */
static struct {
    struct job jobs[RANKS];
} * common;

static char shm[64];
static struct job *mine; /* of a process that is a rank */

static void pause_us(long us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

static void cost(uint64_t index)
{
    if (mine)
        pause_us(mine->prepare_us);
}

static int begin(void **state)
{
    int r = setup(state);
    strcpy(shm, "/dev/shm/hr-test-XXXXXX");
    assert_non_null(mkdtemp(shm));
    setenv("HEADRACE_SHM", shm, 1);
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(common != MAP_FAILED);
    fixture_before_prepare = cost;
    return r;
}

static int end(void **state)
{
    fixture_before_prepare = NULL;
    munmap(common, sizeof *common);
    assert_int_equal(rmdir(shm), 0);
    return teardown(state);
}

/* Waits for the other ranks' consumers, as for their gradients. */
static void meet(const struct job *job)
{
    for (int i = 0; i < job->world; i++) {
        const struct job *other = &common->jobs[i];
        while (!other->is_gone && other->steps < job->steps)
            pause_us(200);
    }
}

static void note_stats(struct job *job, const struct hr_loader *loader, uint64_t epoch)
{
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(loader, &stats);
    job->wait_ns[epoch] = stats.wait_ns;
    for (uint64_t i = 0; i < epoch; i++)
        job->wait_ns[epoch] -= job->wait_ns[i];
    job->workers = stats.workers_now;
    job->moves = stats.balanced;
    assert_int_equal(stats.threads, THREADS);
}

static int consume(struct job *job, struct hr_loader *loader, struct hr_error *error)
{
    struct hr_batch *batch;
    int r = 0;
    for (uint64_t epoch = 0; !r && epoch < job->epochs; epoch++) {
        r = hr_loader_start_epoch(loader, epoch, error);
        while (!r && (r = hr_loader_next(loader, &batch, error)) == 1) {
            struct hr_batch_view view;
            hr_batch_get(batch, &view);
            job->digest =
                XXH3_64bits_withSeed(view.images, view.count * view.spec.bytes, job->digest);
            job->digest =
                XXH3_64bits_withSeed(view.indices, view.count * sizeof *view.indices, job->digest);
            hr_batch_release(&batch);
            job->steps++;
            meet(job);
            pause_us(2000);
            r = 0;
            if (job->steps % hr_loader_batches(loader) == 0)
                break;
        }
        note_stats(job, loader, epoch);
    }
    return r;
}

static void run(struct job *job)
{
    struct hr_loader_options options;
    struct hr_loader *loader = NULL;
    struct hr_error error = {0};
    mine = job;
    fixture_options(&options);
    options.batch_size = BATCH;
    options.threads = THREADS;
    options.rank = job->rank;
    options.world_size = job->world;
    options.local_world_size = job->is_balanced ? job->world : 1;
    options.no_io_uring = job->no_io_uring;
    options.direct_io = job->direct;
    options.drop_last = 1;
    int r = hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error);
    if (!r)
        r = consume(job, loader, &error);
    if (r < 0)
        snprintf(job->message, sizeof job->message, "%.250s", error.message);
    job->is_gone = 1;
    hr_loader_destroy(&loader);
}

static pid_t spawn(struct job *job)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    run(job);
    _exit(job->message[0] != 0);
}

static void wait_for(pid_t pid, const struct job *job)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status)
        fail_msg("rank %d: status %x: %s", job->rank, (unsigned)status, job->message);
}

/* Ranks of which the first has samples that cost four times as much. */
static void set_up(int world, int balanced, uint64_t epochs)
{
    memset(common, 0, sizeof *common);
    for (int i = 0; i < world; i++)
        common->jobs[i] = (struct job){
            .rank = i,
            .world = world,
            .is_balanced = balanced,
            .prepare_us = i ? 5000 : 20000,
            .epochs = epochs,
        };
}

static void start_all(int world, pid_t *pids)
{
    for (int i = 0; i < world; i++)
        pids[i] = spawn(&common->jobs[i]);
}

static void run_all(int world)
{
    pid_t pids[RANKS];
    start_all(world, pids);
    for (int i = 0; i < world; i++)
        wait_for(pids[i], &common->jobs[i]);
}

/* All balanced ranks have at most the workers together that they began with. */
static void check_workers(int world)
{
    int sum = 0;
    for (int i = 0; i < world; i++) {
        assert_in_range(common->jobs[i].workers, 1, world * THREADS);
        sum += common->jobs[i].workers;
    }
    assert_in_range(sum, world, world * THREADS);
}

static void test_two_ranks(void **state)
{
    uint64_t digests[2], waited_ns;
    set_up(2, 0, 2);
    run_all(2);
    waited_ns = common->jobs[0].wait_ns[1];
    for (int i = 0; i < 2; i++) {
        digests[i] = common->jobs[i].digest;
        assert_int_equal(common->jobs[i].workers, THREADS);
        assert_int_equal(common->jobs[i].moves, 0);
    }
    /* By each way of reading. */
    for (int way = 0; way < 2; way++) {
        set_up(2, 1, 2);
        for (int i = 0; i < 2; i++)
            common->jobs[i].no_io_uring = common->jobs[i].direct = way;
        run_all(2);
        check_workers(2);
        for (int i = 0; i < 2; i++)
            assert_int_equal(common->jobs[i].digest, digests[i]);
        assert_in_range(common->jobs[0].workers, THREADS + 1, 2 * THREADS - 1);
        assert_in_range(common->jobs[1].workers, 1, THREADS - 1);
        /* 160 ms of work for a batch, by 4 or 5 workers and not by 3. */
        assert_true(common->jobs[0].wait_ns[1] < waited_ns * 9 / 10);
    }
}

/* The same costs: nothing moves, or one worker where the machine is busy with something else. */
static void test_equal_ranks(void **state)
{
    set_up(3, 1, 1);
    for (int i = 0; i < 3; i++)
        common->jobs[i].prepare_us = 6000;
    run_all(3);
    check_workers(3);
    for (int i = 0; i < 3; i++)
        assert_in_range(common->jobs[i].workers, THREADS - 1, THREADS + 1);
}

static void wait_for_steps(const struct job *job, uint64_t steps)
{
    uint64_t end_ns = hr__now_ns() + UINT64_C(60000000000);
    while (job->steps < steps && !job->is_gone && hr__now_ns() < end_ns)
        pause_us(1000);
    assert_true(job->steps >= steps);
}

static void kill_job(pid_t pid, struct job *job)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    job->is_gone = 1;
}

/* Killed in the middle, whoever it is: the others end their epochs, and get their workers back. */
static void test_kill(void **state)
{
    for (int victim = 0; victim < 2; victim++) {
        pid_t pids[RANKS];
        set_up(3, 1, EPOCHS);
        start_all(3, pids);
        wait_for_steps(&common->jobs[victim], STEPS / 2);
        kill_job(pids[victim], &common->jobs[victim]);
        int sum = 0;
        for (int i = 0; i < 3; i++) {
            if (i == victim)
                continue;
            wait_for(pids[i], &common->jobs[i]);
            assert_true(common->jobs[i].steps > STEPS);
            sum += common->jobs[i].workers;
        }
        assert_in_range(sum, 2, 2 * THREADS);
        /* The two that are left after the first was killed are equal. */
        if (victim == 0)
            assert_int_equal(sum, 2 * THREADS);
    }
}

/* All are killed: the next start removes what they left. */
static void test_kill_all(void **state)
{
    pid_t pids[RANKS];
    set_up(2, 1, 1);
    start_all(2, pids);
    for (int i = 0; i < 2; i++)
        wait_for_steps(&common->jobs[i], 2);
    for (int i = 0; i < 2; i++)
        kill_job(pids[i], &common->jobs[i]);
    assert_int_equal(rmdir(shm), -1);
    set_up(2, 1, 1);
    run_all(2);
}

/* A process that forks a child while its loader is at work: the child can drop the loader. */
static void test_fork(void **state)
{
    struct hr_loader_options options;
    fixture_options(&options);
    options.world_size = options.local_world_size = 2;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 0, NULL), 0);
    struct hr_batch *batch = fixture_next(loader);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        hr_loader_destroy(&loader);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    fixture_check(&fixture, batch, 0, 0);
    hr_batch_release(&batch);
    hr_loader_destroy(&loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_ranks, begin, end),
        cmocka_unit_test_setup_teardown(test_equal_ranks, begin, end),
        cmocka_unit_test_setup_teardown(test_kill, begin, end),
        cmocka_unit_test_setup_teardown(test_kill_all, begin, end),
        cmocka_unit_test_setup_teardown(test_fork, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
