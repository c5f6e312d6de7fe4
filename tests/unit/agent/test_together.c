/*
 * Attached loaders with a real agent get the same samples, bit for bit, in the same batches as
 * loaders that prepare for themselves: alone, beside others of different batch sizes and speeds,
 * while jobs write to batches or keep them, and when jobs are killed.
 */
#include "peer.h"

#include "../consumer.h"

#include "codec/png_write.h"
#include "loader/attach.h"

#include <headrace/headrace.h>

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 150

static void set_options(struct hr_loader_options *o, const struct served *s, const char *stream)
{
    fixture_options(o);
    o->agent = s ? s->socket : NULL;
    o->stream = s ? stream : NULL;
    o->window = 4;
    o->threads = 1;
}

static void check_same(const struct hr_batch *a, const struct hr_batch *b)
{
    struct hr_batch_view x, y;
    hr_batch_get(a, &x);
    hr_batch_get(b, &y);
    assert_int_equal(x.count, y.count);
    assert_int_equal(x.epoch, y.epoch);
    assert_int_equal(x.number, y.number);
    assert_int_equal(x.padding, y.padding);
    assert_int_equal(x.replaced, y.replaced);
    assert_int_equal(x.spec.bytes, y.spec.bytes);
    assert_memory_equal(x.labels, y.labels, x.count * sizeof *x.labels);
    assert_memory_equal(x.indices, y.indices, x.count * sizeof *x.indices);
    assert_memory_equal(x.images, y.images, x.count * x.spec.bytes);
}

/* Compares two epochs, and one that is resumed in its middle. */
static void compare(const struct fixture *f, const struct hr_loader_options *attached)
{
    struct hr_loader_options own = *attached;
    struct hr_batch *a, *b, *kept = NULL;
    struct hr_batch_view v;
    struct hr_loader_state at, same;
    struct hr_error error;
    own.agent = own.stream = NULL;
    struct hr_loader *l = fixture_loader(f, attached), *m = fixture_loader(f, &own);
    int count = 0;
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        if (epoch < 2) {
            start(l, epoch);
            start(m, epoch);
        } else {
            assert_int_equal(hr_loader_restore(l, &at, &error), 0);
            assert_int_equal(hr_loader_restore(m, &at, &error), 0);
        }
        for (;;) {
            int r = next(l, &a);
            assert_int_equal(next(m, &b), r);
            if (!r)
                break;
            check_same(a, b);
            assert_int_equal(hr_loader_get_state(l, &same, &error), 0);
            assert_int_equal(hr_loader_get_state(m, &at, &error), 0);
            assert_memory_equal(&same, &at, sizeof at);
            hr_batch_get(a, &v);
            memset(v.images, 0xAB, v.count * v.spec.bytes / 2);
            hr_batch_release(&b);
            hr_batch_release(&kept);
            kept = a;
            count++;
        }
        at.position /= 2;
        at.position -= at.position % (uint64_t)(own.batch_size * own.world_size);
    }
    hr_batch_release(&kept);
    assert_true(count >= 3);
    hr_loader_destroy(&l);
    hr_loader_destroy(&m);
}

static void test_same(void **state)
{
    static const int jobs[][4] = {/* batch, rank, ranks, drop_last */
                                  {8, 0, 1, 0}, {7, 0, 1, 1}, {16, 1, 2, 0},
                                  {9, 3, 4, 0}, {1, 0, 1, 0}, {100, 0, 1, 0}};
    struct fixture f;
    struct served s;
    served_begin(&s, &f, SAMPLES, NULL);
    for (size_t j = 0; j < sizeof jobs / sizeof *jobs; j++) {
        struct hr_loader_options o;
        set_options(&o, &s, j % 2 ? "same" : NULL);
        o.batch_size = jobs[j][0];
        o.rank = jobs[j][1];
        o.world_size = jobs[j][2];
        o.drop_last = jobs[j][3];
        o.shuffle = j != 2;
        compare(&f, &o);
    }
    served_end(&s, &f);
}

#define BATCH_MOST 12

/* Makes batch `number` of 1 to BATCH_MOST samples, with repeats: always the same for the same
 * number. */
static size_t some_batch(uint64_t number, const struct fixture *f, int64_t indices[BATCH_MOST])
{
    uint64_t random = number * UINT64_C(0x9E3779B97F4A7C15) ^ UINT64_C(0xD1B54A32D192ED03);
    size_t count = 1 + (size_t)(random >> 33) % BATCH_MOST;
    for (size_t i = 0; i < count; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        indices[i] = (int64_t)((random >> 33) % f->count);
    }
    return count;
}

static void push_some(struct hr_loader *l, const struct fixture *f, uint64_t number)
{
    int64_t indices[BATCH_MOST];
    struct hr_error error;
    size_t count = some_batch(number, f, indices);
    if (hr_loader_push(l, indices, count, &error))
        fail_msg("%s", error.message);
}

/* Takes `count` batches from both loaders, pushing `ahead` batches ahead, and keeps those of l. */
static void take_pushed(struct hr_loader *l, struct hr_loader *m, const struct fixture *f,
                        uint64_t from, int count, int ahead, struct hr_batch **kept)
{
    struct hr_loader_state x, y;
    struct hr_batch *other;
    struct hr_error error;
    int pushed = 0;
    for (int n = 0; n < count; n++) {
        for (; pushed < count && pushed <= n + ahead; pushed++) {
            push_some(l, f, from + (uint64_t)pushed);
            push_some(m, f, from + (uint64_t)pushed);
        }
        assert_int_equal(next(l, &kept[n]), 1);
        assert_int_equal(next(m, &other), 1);
        check_same(kept[n], other);
        hr_batch_release(&other);
        assert_int_equal(hr_loader_get_state(l, &x, &error), 0);
        assert_int_equal(hr_loader_get_state(m, &y, &error), 0);
        assert_memory_equal(&x, &y, sizeof x);
    }
}

/* Checks that all batches are unchanged although others came, overwrites them, and releases
 * them. */
static void give_back(struct hr_batch **kept, int count)
{
    for (int n = 0; n < count; n++) {
        struct hr_batch_view v;
        hr_batch_get(kept[n], &v);
        memset(v.images, n, v.count * v.spec.bytes);
        hr_batch_release(&kept[n]);
    }
}

static void end_both(struct hr_loader *l, struct hr_loader *m)
{
    struct hr_batch *batch;
    struct hr_error error;
    assert_int_equal(hr_loader_next(l, &batch, &error), -EAGAIN);
    assert_int_equal(hr_loader_next(m, &batch, &error), -EAGAIN);
    assert_int_equal(hr_loader_push_end(l, NULL), 0);
    assert_int_equal(hr_loader_push_end(m, NULL), 0);
    assert_int_equal(hr_loader_push(l, (int64_t[]){0}, 1, &error), -EINVAL);
    assert_int_equal(next(l, &batch), 0);
    assert_int_equal(next(m, &batch), 0);
}

/* of the only job */
static int batches_copied(const struct served *s)
{
    json_t *status = served_status(s);
    const json_t *stream = json_array_get(json_object_get(status, "streams"), 0);
    const json_t *queue = json_array_get(json_object_get(stream, "queues"), 0);
    const json_t *job = json_array_get(json_object_get(queue, "subscribers"), 0);
    assert_non_null(job);
    int copied = (int)json_integer_value(json_object_get(job, "copied"));
    json_decref(status);
    return copied;
}

/* Compares batches that the caller pushes with those of a loader without an agent: of any size, few
 * or many ahead, kept or released, in epochs that end, are left early, or are resumed. */
static void compare_pushed(int is_copied)
{
    struct fixture f;
    struct served s;
    struct hr_loader_options o;
    struct hr_batch *kept[40];
    struct hr_error error;
    fixture_make(&f, SAMPLES);
    fixture_spoil(&f, 20, "no picture");
    served_start(&s, NULL);
    set_options(&o, &s, NULL);
    o.external_order = 1;
    o.batch_size = BATCH_MOST;
    o.on_error = HR_ON_ERROR_SKIP;
    o.max_bad_share = 0.5;
    struct hr_loader *l = fixture_loader(&f, &o);
    o.agent = NULL;
    struct hr_loader *m = fixture_loader(&f, &o);
    assert_int_equal(hr_loader_push(l, (int64_t[]){0}, 1, &error), -EINVAL);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        start(l, epoch);
        start(m, epoch);
        take_pushed(l, m, &f, 100 * epoch, 40, epoch == 0 ? 2 : 30, kept);
        if (epoch < 2)
            end_both(l, m);
        give_back(kept, 40);
    }
    /* Batches that were pushed and not taken are dropped. */
    for (uint64_t n = 0; n < 3; n++)
        push_some(l, &f, 1000 + n);
    struct hr_loader_state at;
    assert_int_equal(hr_loader_get_state(m, &at, &error), 0);
    assert_int_equal(hr_loader_restore(l, &at, &error), 0);
    assert_int_equal(hr_loader_restore(m, &at, &error), 0);
    take_pushed(l, m, &f, 500, 40, 2, kept);
    end_both(l, m);
    give_back(kept, 40);
    assert_true(hr_loader_skipped_count(l) > 0);
    assert_int_equal(hr_loader_skipped_count(l), hr_loader_skipped_count(m));
    for (uint64_t i = 0; i < hr_loader_skipped_count(l); i++) {
        struct hr_skipped_sample x, y;
        assert_int_equal(hr_loader_skipped_get(l, i, &x), 0);
        assert_int_equal(hr_loader_skipped_get(m, i, &y), 0);
        assert_memory_equal(&x, &y, sizeof x);
    }
    assert_int_equal(batches_copied(&s), is_copied ? 160 : 0);
    hr_loader_destroy(&l);
    hr_loader_destroy(&m);
    served_end(&s, &f);
}

static void test_pushed(void **state)
{
    compare_pushed(0);
}

/* A process that locks its memory gets copies. */
static void test_pushed_and_copied(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* with sanitizers, mlockall does nothing */
#endif
    if (mlockall(MCL_CURRENT | MCL_FUTURE))
        skip(); /* not permitted */
    compare_pushed(1);
    munlockall();
}

/* A job in a process of its own: checks all of its batches; its exit status is 0 if all are
 * right. */
struct together_job {
    int batch, epochs, pause_us, changes;
    enum hr_lag lag;
    enum hr_join join;
    _Atomic int *ahead; /* batches of the job that is to be ahead */
    int is_ahead;       /* this one is; else, after its first batch, it waits for AHEAD of them, and
                         * fails unless some batches are prepared for this job alone */
};

#define AHEAD 100 /* three windows */

static int run_job(const struct fixture *f, const struct served *s, const struct together_job *j)
{
    struct hr_loader_options o;
    struct hr_batch *batch;
    set_options(&o, s, "together");
    o.batch_size = j->batch;
    o.lag = j->lag;
    o.join = j->join;
    struct hr_loader *l = fixture_loader(f, &o);
    unsigned char *seen = calloc(f->count, 1);
    assert_non_null(seen);
    for (int epoch = 0; epoch < j->epochs; epoch++) {
        start(l, (uint64_t)epoch);
        memset(seen, 0, f->count);
        size_t count = 0, expected = f->count;
        for (int n = 0; next(l, &batch); n++) {
            struct hr_batch_view v;
            hr_batch_get(batch, &v);
            if (!count)
                expected = f->count - v.number * (size_t)j->batch;
            fixture_check(f, batch, 0, 0);
            for (size_t i = 0; i < v.count; i++)
                assert_int_equal(seen[v.indices[i]]++, 0);
            count += v.count;
            if (j->changes)
                memset(v.images, n, v.count * v.spec.bytes);
            if (j->pause_us)
                usleep((unsigned)j->pause_us);
            hr_batch_release(&batch);
            if (j->ahead && j->is_ahead)
                atomic_fetch_add(j->ahead, 1);
            while (j->ahead && atomic_load(j->ahead) < AHEAD && !j->is_ahead)
                usleep(1000);
        }
        assert_int_equal(count, expected);
    }
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(l, &stats);
    hr_loader_destroy(&l);
    free(seen);
    return j->ahead && !j->is_ahead && !stats.alone ? 2 : 0;
}

static pid_t fork_job(const struct fixture *f, const struct served *s, const struct together_job *j)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(600);
        _exit(run_job(f, s, j));
    }
    return child;
}

static void wait_for(pid_t child, int expected)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, expected);
}

/* Runs the agent in a process without threads, from which jobs can be forked. */
static pid_t serve_apart(struct served *s)
{
    int ready[2];
    strcpy(s->dir, "/tmp/headrace-agent-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->socket, sizeof s->socket, "%s/agent.sock", s->dir);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct hr_agent_options o;
        struct hr_agent *agent = NULL;
        struct hr_error error;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(600);
        hr_agent_options_default(&o);
        o.socket = s->socket;
        o.threads = 2;
        close(ready[0]);
        int r = hr_agent_create(&agent, &o, &error);
        if (write(ready[1], "x", 1) != 1 || r || hr_agent_run(agent, &error))
            _exit(1);
        hr_agent_destroy(&agent);
        _exit(0);
    }
    char byte;
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static void end_served(const struct served *s, pid_t agent, int is_killed)
{
    struct hr_error error;
    char path[256];
    if (!is_killed) {
        if (hr_agent_end(s->socket, &error))
            fail_msg("%s", error.message);
        wait_for(agent, 0);
    }
    static const char *const left[] = {"agent.sock", "agent.lock", "agent.log"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", s->dir, left[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(s->dir), 0);
}

static uint64_t prepared(const struct served *s)
{
    char *text = NULL;
    struct hr_error error;
    if (hr_agent_status(s->socket, &text, &error))
        fail_msg("%s", error.message);
    json_t *json = json_loads(text, 0, NULL);
    hr_text_free(text);
    assert_non_null(json);
    uint64_t sum = 0;
    size_t i, k;
    json_t *stream, *queue;
    json_array_foreach(json_object_get(json, "streams"), i, stream)
        json_array_foreach(json_object_get(stream, "queues"), k, queue) sum +=
        (uint64_t)json_integer_value(json_object_get(queue, "prepared"));
    json_decref(json);
    return sum;
}

/* Jobs with different batch sizes that wait for each other; some of them overwrite their
 * batches. */
static void test_jobs(void **state)
{
    struct fixture f;
    struct served s;
    struct together_job jobs[] = {{.batch = 8, .epochs = 4, .lag = HR_LAG_WAIT},
                                  {.batch = 24, .epochs = 4, .lag = HR_LAG_WAIT, .changes = 1},
                                  {.batch = 5, .epochs = 4, .lag = HR_LAG_WAIT, .changes = 1}};
    pid_t children[3];
    fixture_make(&f, SAMPLES);
    pid_t agent = serve_apart(&s);
    for (int i = 0; i < 3; i++)
        children[i] = fork_job(&f, &s, &jobs[i]);
    for (int i = 0; i < 3; i++)
        wait_for(children[i], 0);
    end_served(&s, agent, 0);
    fixture_remove(&f);
}

/* One job is slow: its samples are prepared for it alone, each once, and the others keep their
 * pace. */
static void test_slow(void **state)
{
    struct fixture f;
    struct served s;
    _Atomic int *ahead =
        mmap(NULL, sizeof *ahead, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(ahead != MAP_FAILED);
    struct together_job fast = {.batch = 8,
                                .epochs = 20,
                                .join = HR_JOIN_NOW,
                                .ahead = ahead,
                                .is_ahead = 1},
                        slow = {.batch = 8, .epochs = 3, .pause_us = 1000, .ahead = ahead};
    fixture_make(&f, SAMPLES);
    pid_t agent = serve_apart(&s);
    pid_t one = fork_job(&f, &s, &slow);
    while (!prepared(&s))
        usleep(10000);
    pid_t two = fork_job(&f, &s, &fast);
    wait_for(two, 0);
    wait_for(one, 0);
    munmap(ahead, sizeof *ahead);
    end_served(&s, agent, 0);
    fixture_remove(&f);
}

/* Jobs that are killed or stopped delay no other. */
static void test_killed(void **state)
{
    struct fixture f;
    struct served s;
    struct together_job waits = {.batch = 8, .epochs = 1000, .pause_us = 2000, .lag = HR_LAG_WAIT},
                        stopped = {.batch = 8, .epochs = 1000}, good = {.batch = 8, .epochs = 20};
    fixture_make(&f, SAMPLES);
    pid_t agent = serve_apart(&s);
    pid_t one = fork_job(&f, &s, &waits), two = fork_job(&f, &s, &stopped),
          three = fork_job(&f, &s, &good);
    while (!prepared(&s))
        usleep(10000);
    kill(one, SIGKILL);
    wait_for(one, SIGKILL);
    kill(two, SIGSTOP);
    wait_for(three, 0);
    kill(two, SIGKILL);
    wait_for(two, SIGKILL);
    end_served(&s, agent, 0);
    fixture_remove(&f);
}

/* The agent is killed: the error is clear, and all batches handed out stay valid. */
static void test_agent_killed(void **state)
{
    struct fixture f;
    struct served s;
    struct hr_loader_options o;
    struct hr_batch *held[3], *batch;
    struct hr_error error = {0};
    fixture_make(&f, SAMPLES);
    pid_t agent = serve_apart(&s);
    set_options(&o, &s, NULL);
    struct hr_loader *l = fixture_loader(&f, &o);
    start(l, 0);
    for (int i = 0; i < 3; i++)
        held[i] = fixture_next(l);
    kill(agent, SIGKILL);
    wait_for(agent, SIGKILL);
    int r;
    while ((r = hr_loader_next(l, &batch, &error)) == 1) {
        fixture_check(&f, batch, 0, 0);
        hr_batch_release(&batch);
    }
    assert_int_equal(r, -ECONNRESET);
    assert_non_null(strstr(error.message, s.socket));
    for (int i = 0; i < 3; i++) {
        fixture_check(&f, held[i], 0, 0);
        hr_batch_release(&held[i]);
    }
    hr_loader_destroy(&l);
    end_served(&s, agent, 1);
    fixture_remove(&f);
}

/* Bad files are replaced and listed as without an agent, or end the epoch. */
static void test_bad(void **state)
{
    struct fixture f;
    struct served s;
    struct hr_loader_options o;
    struct hr_batch *a, *b;
    struct hr_skipped_sample x, y;
    struct hr_error e1 = {0}, e2 = {0};
    fixture_make(&f, SAMPLES);
    fixture_spoil(&f, 20, "no picture");
    fixture_spoil(&f, 77, NULL);
    served_start(&s, NULL);
    for (int raises = 0; raises < 2; raises++) {
        set_options(&o, &s, NULL);
        o.on_error = raises ? HR_ON_ERROR_RAISE : HR_ON_ERROR_SKIP;
        o.max_bad_share = 0.5;
        struct hr_loader *l = fixture_loader(&f, &o);
        o.agent = NULL;
        struct hr_loader *m = fixture_loader(&f, &o);
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            int r, q;
            start(l, epoch);
            start(m, epoch);
            for (;;) {
                r = hr_loader_next(l, &a, &e1);
                q = hr_loader_next(m, &b, &e2);
                assert_int_equal(r, q);
                if (r != 1)
                    break;
                check_same(a, b);
                hr_batch_release(&a);
                hr_batch_release(&b);
            }
            assert_int_equal(r < 0, raises);
            if (raises) {
                assert_string_equal(e1.message, e2.message);
                assert_int_equal(hr_loader_failed_get(l, &x), 0);
                assert_int_equal(hr_loader_failed_get(m, &y), 0);
                assert_memory_equal(&x, &y, sizeof x);
            }
        }
        assert_int_equal(hr_loader_skipped_count(l), hr_loader_skipped_count(m));
        assert_int_equal(hr_loader_skipped_count(l), raises ? 0 : 4);
        for (uint64_t i = 0; i < hr_loader_skipped_count(l); i++) {
            assert_int_equal(hr_loader_skipped_get(l, i, &x), 0);
            assert_int_equal(hr_loader_skipped_get(m, i, &y), 0);
            assert_memory_equal(&x, &y, sizeof x);
        }
        hr_loader_destroy(&l);
        hr_loader_destroy(&m);
    }
    served_end(&s, &f);
}

/* Each sample of an epoch is prepared once for all jobs that take it at the same time. */
static void test_once(void **state)
{
    struct fixture f;
    struct served s;
    struct hr_loader_options o;
    struct hr_loader *l[3];
    struct hr_batch *batch;
    served_begin(&s, &f, SAMPLES, NULL);
    for (int i = 0; i < 3; i++) {
        set_options(&o, &s, "once");
        o.batch_size = 8 + 2 * i;
        o.lag = HR_LAG_WAIT;
        o.join = HR_JOIN_NOW;
        l[i] = fixture_loader(&f, &o);
    }
    /* In step; all are placed before the first one takes a sample. */
    size_t at[3] = {0};
    for (int i = 0; i < 3; i++)
        start(l[i], 0);
    for (int moves = 1; moves;) {
        moves = 0;
        for (int i = 0; i < 3; i++) {
            if (at[i] > at[(i + 1) % 3] || at[i] > at[(i + 2) % 3])
                continue;
            if (!next(l[i], &batch)) {
                at[i] = SIZE_MAX;
                continue;
            }
            struct hr_batch_view v;
            hr_batch_get(batch, &v);
            fixture_check(&f, batch, 0, 0);
            at[i] += v.count;
            moves++;
            hr_batch_release(&batch);
        }
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(at[i], SIZE_MAX);
    uint64_t count = prepared(&s);
    /* The first job may have begun before the others attached; no sample came twice. */
    assert_int_equal(count, SAMPLES);
    for (int i = 0; i < 3; i++)
        hr_loader_destroy(&l[i]);
    served_end(&s, &f);
}

#define MASKED 20
#define LARGE  100 /* no side of the fixture's images is longer */

/* Returns the fixture's images with masks, whose files get these paths. */
static struct hr_dataset *with_masks(const struct fixture *f, char paths[MASKED][128])
{
    static _Alignas(64) uint8_t zeros[LARGE * 128];
    struct hr__planar pixels = {.plane = {zeros, zeros, zeros}, .stride = 128};
    struct hr__png_writer *writer;
    struct hr_dataset *masks, *both;
    const char *list[MASKED];
    int64_t labels[MASKED] = {0};
    assert_int_equal(hr__png_writer_create(&writer, NULL), 0);
    for (size_t i = 0; i < MASKED; i++) {
        struct hr_image_info info;
        char jpeg[16384];
        const void *png;
        size_t length;
        FILE *file = fopen(f->paths[i], "rb");
        assert_non_null(file);
        length = fread(jpeg, 1, sizeof jpeg, file);
        fclose(file);
        assert_int_equal(hr_preparer_info(f->preparer, jpeg, length, &info, NULL), 0);
        pixels.width = info.width;
        pixels.height = info.height;
        info.channels = 1;
        assert_int_equal(hr__png_write(writer, &pixels, &info, &png, &length, NULL), 0);
        snprintf(paths[i], sizeof paths[i], "%s.png", f->paths[i]);
        list[i] = paths[i];
        file = fopen(paths[i], "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(png, 1, length, file), length);
        fclose(file);
    }
    hr__png_writer_destroy(&writer);
    assert_int_equal(hr_dataset_from_paths(&masks, list, labels, MASKED, NULL), 0);
    assert_int_equal(hr_dataset_with_masks(&both, f->dataset, masks, NULL), 0);
    hr_dataset_unref(&masks);
    return both;
}

/* The field of a padded batch's masks tells the sizes of the images. Returns non-zero if one is
 * smaller than its place. */
static int check_mask_sizes(const struct hr_batch *batch)
{
    struct hr_field images, masks;
    int is_smaller = 0;
    assert_int_equal(hr_batch_field(batch, 0, &images), 0);
    assert_int_equal(hr_batch_field(batch, 1, &masks), 0);
    assert_string_equal(masks.name, "masks");
    assert_non_null(masks.extents);
    for (int64_t i = 0; i < masks.shape[0]; i++) {
        assert_int_equal(masks.extents[2 * i], images.extents[3 * i + 1]);
        assert_int_equal(masks.extents[2 * i + 1], images.extents[3 * i + 2]);
        is_smaller |= masks.extents[2 * i] < masks.shape[1];
    }
    return is_smaller;
}

/* Masks of images of several sizes, of one job whose batches are lent and of another whose batches
 * are copied, as they cross chunks. */
static void test_sizes_of_masks(void **state)
{
    struct fixture f;
    struct served s;
    struct hr_operation flip;
    struct hr_recipe_options padded;
    struct hr_recipe *recipe;
    struct hr_loader *l[2];
    struct hr_batch *batch;
    char paths[MASKED][128];
    int smaller = 0, left = 3;
    served_begin(&s, &f, MASKED, NULL);
    struct hr_dataset *both = with_masks(&f, paths);
    hr_operation_default(&flip, HR_RANDOM_HORIZONTAL_FLIP);
    hr_recipe_options_default(&padded);
    padded.padded = 1;
    padded.max_height = padded.max_width = LARGE;
    assert_int_equal(hr_recipe_create(&recipe, &flip, 1, &padded, NULL), 0);
    for (int i = 0; i < 2; i++) {
        struct hr_loader_options o;
        set_options(&o, &s, "masks");
        o.batch_size = 4 - i;
        assert_int_equal(hr_loader_create(&l[i], both, recipe, &o, NULL), 0);
        start(l[i], 0);
    }
    while (left)
        for (int i = 0; i < 2; i++) {
            if (!(left & 1 << i))
                continue;
            if (next(l[i], &batch)) {
                smaller |= check_mask_sizes(batch) << i;
                hr_batch_release(&batch);
            } else {
                left &= ~(1 << i);
            }
        }
    assert_int_equal(smaller, 3);
    for (int i = 0; i < 2; i++)
        hr_loader_destroy(&l[i]);
    for (size_t i = 0; i < MASKED; i++)
        assert_int_equal(unlink(paths[i]), 0);
    hr_recipe_unref(&recipe);
    hr_dataset_unref(&both);
    served_end(&s, &f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_agent_killed),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_pushed),
        cmocka_unit_test(test_pushed_and_copied),
        cmocka_unit_test(test_sizes_of_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
