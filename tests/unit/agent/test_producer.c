/*
 * The job's side of producers, against an agent that the test plays: a thread of it accepts the
 * connection, and then the test itself sends tasks and receives answers.
 */
#include "../test.h"

#include "agent/wire.h"

#include <headrace/producer.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BYTES UINT64_C(100)
#define SLOTS 8u

struct played {
    char folder[32];
    struct sockaddr_un address;
    int listener, end; /* the agent's end of the connection */
    int memory;
    int stop[2];
    struct hr_dataset *dataset;
    struct hr_recipe *recipe;
    struct hr_producer *producer;
};

static void *welcome(void *arg)
{
    struct played *w = arg;
    struct hr__wire_message m;
    w->end = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(w->end >= 0);
    assert_int_equal(hr__wire_receive(w->end, 0, &m, NULL), 1);
    assert_int_equal(m.type, HR__WIRE_HELLO);
    m = (struct hr__wire_message){.type = HR__WIRE_WELCOME, .welcome = {.pid = getpid()}};
    assert_int_equal(hr__wire_send(w->end, &m), 0);
    assert_int_equal(hr__wire_receive(w->end, 0, &m, NULL), 1);
    assert_int_equal(m.type, HR__WIRE_PRODUCE);
    assert_int_equal(m.produce.slots, SLOTS);
    hr__wire_close_files(&m);
    m = (struct hr__wire_message){.type = HR__WIRE_PRODUCING};
    assert_int_equal(hr__wire_send(w->end, &m), 0);
    return NULL;
}

static int set_up(void **state)
{
    struct played *w = calloc(1, sizeof *w);
    struct hr_produced_options options;
    pthread_t thread;
    hr_produced_options_default(&options);
    options.count = 1000;
    options.sample_bytes = BYTES;
    options.name = "numbers";
    assert_int_equal(hr_produced_create(&w->dataset, &w->recipe, &options, NULL), 0);

    strcpy(w->folder, "/tmp/headrace-test-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    w->address.sun_family = AF_UNIX;
    snprintf(w->address.sun_path, sizeof w->address.sun_path, "%s/agent", w->folder);
    w->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(w->listener, (struct sockaddr *)&w->address, sizeof w->address), 0);
    assert_int_equal(listen(w->listener, 1), 0);
    w->memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(w->memory, (off_t)(SLOTS * hr_producer_slot_bytes(BYTES))), 0);
    assert_int_equal(fcntl(w->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    assert_int_equal(pipe2(w->stop, O_CLOEXEC), 0);

    assert_int_equal(pthread_create(&thread, NULL, welcome, w), 0);
    assert_int_equal(
        hr_producer_connect(&w->producer, w->address.sun_path, w->dataset, w->memory, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct played *w = *state;
    const int files[] = {w->end, w->listener, w->memory, w->stop[0], w->stop[1]};
    hr_producer_destroy(&w->producer);
    hr_dataset_unref(&w->dataset);
    hr_recipe_unref(&w->recipe);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i] >= 0)
            close(files[i]);
    unlink(w->address.sun_path);
    rmdir(w->folder);
    free(w);
    return 0;
}

static void ask(struct played *w, uint32_t slot, uint64_t request)
{
    const struct hr__wire_message m = {
        .type = HR__WIRE_MAKE,
        .make = {.request = request, .index = 10 + slot, .epoch = 3, .seed = 4, .slot = slot}};
    assert_int_equal(hr__wire_send(w->end, &m), 0);
}

static struct hr__wire_made answered(struct played *w)
{
    struct hr__wire_message m;
    assert_int_equal(hr__wire_receive(w->end, 0, &m, NULL), 1);
    assert_int_equal(m.type, HR__WIRE_MADE);
    return m.made;
}

static void test_takes_what_is_here(void **state)
{
    struct played *w = *state;
    struct hr_producer_task tasks[SLOTS];
    for (uint32_t slot = 0; slot < 5; slot++)
        ask(w, slot, 100 + slot);
    /* no more than asked for; the rest stays */
    assert_int_equal(hr_producer_take(w->producer, tasks, 3, -1, NULL), 3);
    assert_int_equal(hr_producer_take(w->producer, &tasks[3], SLOTS - 3, -1, NULL), 2);
    for (uint32_t slot = 0; slot < 5; slot++) {
        assert_int_equal(tasks[slot].slot, slot);
        assert_int_equal(tasks[slot].index, 10 + slot);
        assert_int_equal(tasks[slot].epoch, 3);
        assert_int_equal(tasks[slot].seed, 4);
    }
    /* answered in another order */
    assert_int_equal(hr_producer_done(w->producer, 4, -7, NULL), 0);
    assert_int_equal(hr_producer_failed(w->producer, 1, "ValueError: no", NULL), 0);
    struct hr__wire_made made = answered(w);
    assert_int_equal(made.request, 104);
    assert_int_equal(made.slot, 4);
    assert_int_equal(made.label, -7);
    assert_int_equal(made.is_bad, 0);
    made = answered(w);
    assert_int_equal(made.request, 101);
    assert_int_equal(made.is_bad, 1);
    assert_string_equal(made.reason, "ValueError: no");
    /* a slot without a task cannot be answered, and one with an answer gets another task */
    assert_int_equal(hr_producer_done(w->producer, 4, 0, NULL), -EINVAL);
    ask(w, 4, 200);
    assert_int_equal(hr_producer_next(w->producer, tasks, -1, NULL), 1);
    assert_int_equal(tasks[0].slot, 4);
}

static void *ask_later(void *arg)
{
    test_pause_ms(50);
    ask(arg, 2, 7);
    return NULL;
}

static void test_waits_for_the_first(void **state)
{
    struct played *w = *state;
    struct hr_producer_task tasks[SLOTS];
    pthread_t thread;
    int count = 0;
    assert_int_equal(pthread_create(&thread, NULL, ask_later, w), 0);
    while (!count) /* it waits for half a second at a time */
        count = hr_producer_take(w->producer, tasks, SLOTS, w->stop[0], NULL);
    assert_int_equal(count, 1);
    assert_int_equal(tasks[0].slot, 2);
    assert_int_equal(pthread_join(thread, NULL), 0);
    /* nothing comes, or the caller is to stop */
    assert_int_equal(hr_producer_take(w->producer, tasks, SLOTS, w->stop[0], NULL), 0);
    close(w->stop[1]);
    w->stop[1] = -1;
    assert_int_equal(hr_producer_take(w->producer, tasks, SLOTS, w->stop[0], NULL), 0);
}

static void test_refuses_and_reports(void **state)
{
    struct played *w = *state;
    struct hr_producer_task tasks[SLOTS];
    struct hr_error error;
    assert_int_equal(hr_producer_take(w->producer, tasks, 0, -1, &error), -EINVAL);
    assert_string_equal(error.message, "most = 0: must be at least 1");
    /* a slot that has a task gets no other one */
    ask(w, 1, 5);
    ask(w, 1, 6);
    assert_int_equal(hr_producer_take(w->producer, tasks, SLOTS, -1, &error), -EPROTO);
    close(w->end);
    w->end = -1;
    assert_int_equal(hr_producer_take(w->producer, tasks, SLOTS, -1, &error), -ECONNRESET);
    assert_string_equal(error.message, "the agent has ended");
    assert_int_equal(hr_producer_done(w->producer, 1, 0, &error), -ECONNRESET);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_takes_what_is_here),
        TEST(test_waits_for_the_first),
        TEST(test_refuses_and_reports),
    };
    return cmocka_run_group_tests_name("agent producer", tests, NULL, NULL);
}
