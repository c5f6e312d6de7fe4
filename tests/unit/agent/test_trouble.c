/*
 * Faults between an agent and its jobs: files that outlive their use, queues that end early,
 * viewers that stay connected, children that inherit a job's socket, batches that are kept while
 * others are copied. Uses jobs by hand (peer.h) and loaders that attach.
 */
#include "peer.h"

#include "../consumer.h"

#include "cache/capacity.h"

#include <headrace/agent.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 200

static void attached(struct peer *p, const struct served *s, const struct fixture *f,
                     const char *stream, int batch_size)
{
    peer_connect(p, s, 0);
    peer_options(p, f, stream);
    p->attach.batch_size = batch_size;
    assert_int_equal(peer_attach(p), 0);
}

static void placed(struct peer *p, const struct served *s, const struct fixture *f,
                   const char *stream)
{
    attached(p, s, f, stream, 16);
    peer_seek(p, 0, 0, 1);
    peer_sit(p);
}

/* Waits until `key` of the status has the given value. */
static void wait_for(const struct served *s, const char *key, int64_t value)
{
    for (int i = 0;; i++) {
        json_t *status = served_status(s);
        const json_t *found = json_object_get(status, key);
        int64_t is =
            json_is_array(found) ? (int64_t)json_array_size(found) : json_integer_value(found);
        json_decref(status);
        if (is == value)
            return;
        assert_true(i < 12000);
        test_pause_ms(10);
    }
}

static struct hr_loader *loader_make(const struct served *s, const struct fixture *f,
                                     const char *stream, int batch_size)
{
    struct hr_loader_options o;
    fixture_options(&o);
    o.agent = s->socket;
    o.stream = stream;
    o.batch_size = batch_size;
    return fixture_loader(f, &o);
}

int __real_hr__wire_send(int socket, const struct hr__wire_message *message);
int __wrap_hr__wire_send(int socket, const struct hr__wire_message *message);

/* The type of message that the agent cannot send, and its next errors. */
static struct {
    _Atomic int type; /* enum hr__wire_type; 0: all can be sent */
    _Atomic int at;
    int failures[4]; /* ended by 0 */
} untold;

int __wrap_hr__wire_send(int socket, const struct hr__wire_message *message)
{
    if ((int)message->type != untold.type || !untold.failures[untold.at])
        return __real_hr__wire_send(socket, message);
    return untold.failures[untold.at++];
}

void __real_hr__memory_limits_read(struct hr__memory_limits *out, const char *root, int directory);
void __wrap_hr__memory_limits_read(struct hr__memory_limits *out, const char *root, int directory);

static _Atomic uint64_t memory_left; /* 0: the real amount */

void __wrap_hr__memory_limits_read(struct hr__memory_limits *out, const char *root, int directory)
{
    __real_hr__memory_limits_read(out, root, directory);
    if (memory_left)
        out->available = memory_left;
}

/* Reading long lists takes many times their length: they are refused if there is not enough
 * memory. */
static void test_lists_beyond_memory(void **state)
{
    struct fixture f;
    struct served s;
    struct peer p;
    served_begin(&s, &f, SAMPLES, NULL);
    peer_connect(&p, &s, 0);
    peer_options(&p, &f, "");
    memory_left = SAMPLES * 64;
    assert_int_equal(peer_attach(&p), -ENOMEM);
    memory_left = 0;
    assert_int_equal(peer_attach(&p), 0);
    peer_seek(&p, 0, 0, 1);
    peer_sit(&p);
    assert_int_equal(peer_rest(&p, 16), SAMPLES);
    peer_leave(&p);
    served_end(&s, &f);
}

/* The agent closes the connection of a job that it cannot write to, since the job would wait for
 * the message for ever. The other jobs of its stream continue. */
static void test_unwritable_job(void **state)
{
    static const int ways[][4] = {
        {-ENOMEM, 0}, {-EAGAIN, -ENOMEM, 0}, {-EAGAIN, -EAGAIN, -ETOOMANYREFS}};
    struct fixture f;
    struct served s;
    struct peer other, p;
    struct hr__wire_message message;
    served_begin(&s, &f, SAMPLES, NULL);
    placed(&other, &s, &f, "told");
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        attached(&p, &s, &f, "told", 16);
        memcpy(untold.failures, ways[way], sizeof untold.failures);
        untold.at = 0;
        untold.type = HR__WIRE_PLACED;
        peer_seek(&p, 0, 0, 1);
        assert_int_equal(peer_receive(&p, &message), 0);
        untold.type = 0;
        assert_int_equal(untold.at, way + 1);
        peer_leave(&p);
        wait_for(&s, "jobs", 1);
    }
    assert_int_equal(peer_rest(&other, 16), SAMPLES);
    peer_leave(&other);
    served_end(&s, &f);
}

/* A job that has the eventfd of a queue may signal it long after the queue was freed. */
static void test_rings_a_queue_that_is_gone(void **state)
{
    struct fixture f;
    struct served s;
    struct peer p, other;
    uint64_t one = 1;
    served_begin(&s, &f, SAMPLES, NULL);
    placed(&p, &s, &f, "");
    assert_int_equal(peer_take(&p, 16, 0), 16);
    int room = fcntl(p.room, F_DUPFD_CLOEXEC, 0);
    assert_true(room >= 0);
    peer_leave(&p);
    wait_for(&s, "streams", 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(write(room, &one, sizeof one), sizeof one);
        wait_for(&s, "streams", 0);
    }
    close(room);
    placed(&other, &s, &f, "");
    assert_int_equal(peer_rest(&other, 16), SAMPLES);
    peer_leave(&other);
    served_end(&s, &f);
}

/* Viewers, staying or coming repeatedly, do not keep an agent alive that was started for jobs. */
static void test_viewers_do_not_keep_it(void **state)
{
    struct fixture f;
    struct served s;
    struct peer viewer;
    struct hr__wire_message message;
    struct hr_agent_options options;
    struct timespec used[2];
    clockid_t clock;
    char *json;
    fixture_make(&f, 16);
    hr_agent_options_default(&options);
    options.threads = 1;
    options.idle_ms = 3 * 3600000;
    served_start(&s, &options);
    peer_connect(&viewer, &s, 1);
    for (int hours = 0; hours < 3; hours++) {
        json_decref(peer_status(&viewer));
        assert_int_equal(hr_agent_status(s.socket, &json, NULL), 0);
        hr_text_free(json);
        served_pass_hours(1);
    }
    while (!hr_agent_status(s.socket, &json, NULL))
        hr_text_free(json);
    assert_int_equal(peer_receive(&viewer, &message), 0);
    served_join(&s);
    peer_leave(&viewer);
    /* The agent waits for a viewer that sends nothing, without polling. */
    served_start(&s, &options);
    assert_int_equal(pthread_getcpuclockid(s.thread, &clock), 0);
    peer_connect(&viewer, &s, 0);
    int64_t used_ns;
    do { /* a thread that polls would never stop using CPU time */
        clock_gettime(clock, &used[0]);
        test_pause_ms(200);
        clock_gettime(clock, &used[1]);
        used_ns = (used[1].tv_sec - used[0].tv_sec) * INT64_C(1000000000) + used[1].tv_nsec -
                  used[0].tv_nsec;
    } while (used_ns > 2000000);
    peer_leave(&viewer);
    wait_for(&s, "jobs", 0);
    served_pass_hours(4);
    while (!hr_agent_status(s.socket, &json, NULL))
        hr_text_free(json);
    served_join(&s);
    fixture_remove(&f);
}

/* A queue ended with an error at a sample. One job has seen it and starts the next epoch while
 * another has not reached that sample: the latter still gets the samples before it, then the
 * error. */
static void test_goes_on_after_a_halt(void **state)
{
    struct fixture f;
    struct served s;
    struct peer fast, late;
    struct hr__wire_message message;
    int n, before = 0, taken = 0;
    fixture_make(&f, SAMPLES);
    fixture_spoil(&f, 11, "no image at all");
    served_start(&s, NULL);
    placed(&fast, &s, &f, "raises");
    placed(&late, &s, &f, "raises");
    while ((n = peer_take(&fast, 1, 0)) > 0) {
        before++;
        if (before % 16 == 0 && late.next + 32 < fast.next)
            taken += peer_take(&late, 16, 0);
    }
    assert_int_equal(n, -ECANCELED);
    peer_expect(&fast, HR__WIRE_HALT, &message);
    peer_expect(&late, HR__WIRE_HALT, &message);
    peer_seek(&fast, 1, 0, 0);
    peer_sit(&fast);
    assert_int_equal(fast.placed.is_alone, 0);
    while ((n = peer_take(&late, 1, 0)) > 0)
        taken++;
    if (n == -ESTALE) {
        peer_expect(&late, HR__WIRE_EXPELLED, &message);
        peer_seek(&late, 0, late.position, 0);
        peer_sit(&late);
        assert_int_equal(late.placed.position, taken);
        while ((n = peer_take(&late, 1, 0)) > 0)
            taken++;
    }
    assert_int_equal(n, -ECANCELED);
    assert_int_equal(taken, before);
    peer_leave(&fast);
    peer_leave(&late);
    served_end(&s, &f);
}

/* A leased batch, the last of an epoch, does not change while batches larger than the ring are
 * copied, for more than a round of the ring, and the queue needs memory for held batches. */
static void test_keeps_lent_one_while_others_are_copied(void **state)
{
    struct fixture f;
    struct served s;
    struct peer first;
    struct hr_batch *batch, *kept = NULL;
    struct hr_error error;
    served_begin(&s, &f, SAMPLES, NULL);
    attached(&first, &s, &f, "small", 8);
    struct hr_loader *loader = loader_make(&s, &f, "small", 48);
    start(loader, 0);
    while (hr_loader_next(loader, &batch, &error) == 1) {
        hr_batch_release(&kept);
        kept = batch;
    }
    for (uint64_t epoch = 1; epoch < 3; epoch++) {
        start(loader, epoch);
        if (epoch == 2) {
            peer_seek(&first, epoch, 0, 0);
            peer_sit(&first);
            assert_int_equal(peer_take(&first, 8, 1), 8);
        }
        for (int i = 0; i < 3; i++) {
            batch = fixture_next(loader);
            fixture_check(&f, batch, 0, 0);
            fixture_check(&f, kept, 0, 0);
            hr_batch_release(&batch);
        }
    }
    hr_batch_release(&kept);
    hr_loader_destroy(&loader);
    peer_leave(&first);
    served_end(&s, &f);
}

/* Keeps the first batches of many epochs that are left early. */
static void test_keeps_first_ones(void **state)
{
    struct fixture f;
    struct served s;
    struct hr_batch *kept[12];
    served_begin(&s, &f, SAMPLES, NULL);
    struct hr_loader *loader = loader_make(&s, &f, "", 16);
    for (uint64_t epoch = 0; epoch < 12; epoch++) {
        start(loader, epoch);
        kept[epoch] = fixture_next(loader);
        for (uint64_t e = 0; e <= epoch; e++)
            fixture_check(&f, kept[e], 0, 0);
    }
    for (int epoch = 0; epoch < 12; epoch++) {
        fixture_check(&f, kept[epoch], 0, 0);
        hr_batch_release(&kept[epoch]);
    }
    hr_loader_destroy(&loader);
    served_end(&s, &f);
}

/* A loader that has ended counts as ended, although a child has its socket, too. */
static void test_child_has_the_socket(void **state)
{
    struct fixture f;
    struct served s;
    served_begin(&s, &f, SAMPLES, NULL);
    struct hr_loader *loader = loader_make(&s, &f, "", 16);
    start(loader, 0);
    struct hr_batch *batch = fixture_next(loader);
    hr_batch_release(&batch);
    pid_t child = fork();
    if (!child) {
        sleep(20);
        _exit(0);
    }
    hr_loader_destroy(&loader);
    wait_for(&s, "jobs", 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    served_end(&s, &f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rings_a_queue_that_is_gone),
        cmocka_unit_test(test_viewers_do_not_keep_it),
        cmocka_unit_test(test_unwritable_job),
        cmocka_unit_test(test_lists_beyond_memory),
        cmocka_unit_test(test_goes_on_after_a_halt),
        cmocka_unit_test(test_keeps_lent_one_while_others_are_copied),
        cmocka_unit_test(test_keeps_first_ones),
        cmocka_unit_test(test_child_has_the_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
