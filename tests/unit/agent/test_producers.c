/*
 * The agent's side of producers, without an agent: requests, answers, memory, deaths.
 */
#include "../test.h"

#include "agent/server/producers.h"

#include <headrace/producer.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES UINT64_C(100)
#define SLOT  UINT64_C(128)
#define SLOTS 4u

/* A producer: its end of the connection, and its memory. */
struct made_by {
    struct hr__producer *producer;
    int ends[2], file;
    uint32_t slots;
    uint8_t *bytes;
};

struct producing {
    struct hr__producers *all;
    struct hr__reader *reader;
    struct made_by a, b;
    struct hr__read reads[4]; /* the reader may have them to its end */
};

static int memory_file(uint64_t bytes, int seals)
{
    int file = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)bytes), 0);
    assert_int_equal(fcntl(file, F_ADD_SEALS, seals), 0);
    return file;
}

static int join_of(struct producing *w, struct made_by *out, int job, uint32_t slots)
{
    const struct hr__wire_produce produce = {.text_bytes = 1, .slots = slots, .job = job};
    struct hr__wire_message m;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, out->ends), 0);
    out->slots = slots;
    out->file = memory_file(slots * SLOT, F_SEAL_SHRINK | F_SEAL_GROW);
    out->bytes = mmap(NULL, slots * SLOT, PROT_READ | PROT_WRITE, MAP_SHARED, out->file, 0);
    assert_ptr_not_equal(out->bytes, MAP_FAILED);
    int r = hr__producers_join(w->all, &out->producer, &produce, out->ends[0], out->file, NULL);
    assert_int_equal(hr__wire_receive(out->ends[1], 0, &m, NULL), 1);
    assert_int_equal(m.type, HR__WIRE_PRODUCING);
    return r;
}

static int join(struct producing *w, struct made_by *out, int job)
{
    return join_of(w, out, job, SLOTS);
}

static void leave(struct producing *w, struct made_by *p)
{
    hr__producers_leave(w->all, &p->producer);
    munmap(p->bytes, p->slots * SLOT);
    close(p->file);
    close(p->ends[0]);
    close(p->ends[1]);
}

/* Receives a request; as slot the number of slots: none is here. */
static struct hr__wire_make asked(const struct made_by *p)
{
    struct hr__wire_message m;
    if (hr__wire_receive(p->ends[1], MSG_DONTWAIT, &m, NULL) != 1)
        return (struct hr__wire_make){.slot = p->slots};
    assert_int_equal(m.type, HR__WIRE_MAKE);
    return m.make;
}

static void answer(struct producing *w, struct made_by *p, const struct hr__wire_make *make,
                   int value)
{
    const struct hr__wire_made made = {
        .request = make->request, .slot = make->slot, .label = -value};
    memset(p->bytes + make->slot * SLOT, value, BYTES);
    assert_int_equal(hr__producers_made(w->all, p->producer, &made), 1);
}

static int set_up(void **state)
{
    struct producing *w = calloc(1, sizeof *w);
    assert_int_equal(hr__producers_create(&w->all, BYTES, NULL), 0);
    const struct hr__reader_options options = {.depth = 8, .source = hr__producers_source(w->all)};
    assert_int_equal(hr__reader_create(&w->reader, &options, NULL), 0);
    assert_int_equal(hr__producers_enter(w->all, 5, NULL), 0);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct producing *w = *state;
    hr__reader_destroy(&w->reader);
    hr__producers_destroy(&w->all);
    free(w);
    return 0;
}

static void submit(struct producing *w, struct hr__read *read, uint64_t index)
{
    *read = (struct hr__read){.sample = {.index = index, .epoch = 1, .seed = 2}};
    assert_int_equal(hr__reader_submit(w->reader, read), 0);
}

static int wait_for(struct producing *w, struct hr__read **done, int64_t ms)
{
    return hr__reader_wait(w->reader, done, 1, ms * 1000000);
}

static void test_samples(void **state)
{
    struct producing *w = *state;
    struct hr__read *reads = w->reads, *done;
    assert_int_equal(join(w, &w->a, 5), 0);
    for (uint64_t i = 0; i < 4; i++)
        submit(w, &reads[i], 10 + i);
    /* two at a time */
    struct hr__wire_make first = asked(&w->a), second = asked(&w->a);
    assert_int_equal(asked(&w->a).slot, SLOTS);
    assert_int_equal(first.index, 10);
    assert_int_equal(first.epoch, 1);
    assert_int_equal(first.seed, 2);
    assert_int_not_equal(first.slot, second.slot);
    answer(w, &w->a, &second, 7);
    assert_int_equal(wait_for(w, &done, 1000), 1);
    assert_ptr_equal(done, &reads[1]);
    assert_int_equal(done->result, 0);
    assert_int_equal(done->length, BYTES);
    assert_int_equal(done->label, -7);
    assert_int_equal(done->bytes[BYTES - 1], 7);
    /* its slot is not used again before it is released */
    struct hr__wire_make third = asked(&w->a);
    assert_int_equal(third.index, 12);
    assert_int_not_equal(third.slot, second.slot);
    assert_int_not_equal(third.slot, first.slot);
    answer(w, &w->a, &first, 1);
    assert_int_equal(wait_for(w, &done, 1000), 1);
    hr__read_drop(done);
    hr__read_drop(&reads[1]);
    /* an answer to what was not asked for */
    const struct hr__wire_made again = {.request = first.request, .slot = first.slot};
    assert_int_equal(hr__producers_made(w->all, w->a.producer, &again), 0);
    const struct hr__wire_made beyond = {.request = third.request, .slot = SLOTS};
    assert_int_equal(hr__producers_made(w->all, w->a.producer, &beyond), 0);
    /* a bad one, whose reason is the read's */
    struct hr__wire_made bad = {.request = third.request, .slot = third.slot, .is_bad = 1};
    strcpy(bad.reason, "ValueError: no");
    assert_int_equal(hr__producers_made(w->all, w->a.producer, &bad), 1);
    assert_int_equal(wait_for(w, &done, 1000), 1);
    assert_int_equal(done->result, -EBADMSG);
    assert_string_equal(done->reason, "ValueError: no");
    hr__read_drop(done);
    leave(w, &w->a);
}

/* What one owed, the other makes; samples of one that has gone stay readable. */
static void test_one_ends(void **state)
{
    struct producing *w = *state;
    struct hr__read *reads = w->reads, *done;
    assert_int_equal(join(w, &w->a, 5), 0);
    submit(w, &reads[0], 1);
    submit(w, &reads[1], 2);
    struct hr__wire_make first = asked(&w->a), second = asked(&w->a);
    assert_int_equal(second.index, 2);
    answer(w, &w->a, &first, 3);
    assert_int_equal(wait_for(w, &done, 1000), 1);
    assert_int_equal(join(w, &w->b, 6), 0);
    leave(w, &w->a);
    assert_int_equal(done->bytes[0], 3);
    hr__read_drop(done);
    assert_int_equal(wait_for(w, &done, 500), 0);
    second = asked(&w->b);
    assert_int_equal(second.index, 2);
    answer(w, &w->b, &second, 4);
    assert_int_equal(wait_for(w, &done, 1000), 1);
    assert_int_equal(done->bytes[0], 4);
    hr__read_drop(done);
    leave(w, &w->b);
}

/* A sample is bad if it ends one process after the other, but not if their jobs end. */
static void test_deaths(void **state)
{
    struct producing *w = *state;
    struct hr__read *done;
    submit(w, &w->reads[0], 9);
    for (int job = 100; job < 105; job++) {
        assert_int_equal(join(w, &w->a, job), 0);
        assert_int_equal(wait_for(w, &done, 350), 0);
        assert_int_equal(asked(&w->a).index, 9);
        leave(w, &w->a);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(join(w, &w->a, 5), 0);
        assert_int_equal(wait_for(w, &done, 350), 0);
        assert_int_equal(asked(&w->a).index, 9);
        leave(w, &w->a);
    }
    assert_int_equal(join(w, &w->a, 5), 0);
    assert_int_equal(wait_for(w, &done, 1000), 1);
    assert_int_equal(done->result, -EBADMSG);
    hr__read_drop(done);
    leave(w, &w->a);
}

/* Each sample that a producer owed when it ended is made alone from then on. */
static void test_suspects_are_made_alone(void **state)
{
    struct producing *w = *state;
    struct hr__read *done;
    uint64_t indices = 0;
    assert_int_equal(join(w, &w->a, 5), 0);
    for (uint64_t i = 0; i < 3; i++)
        submit(w, &w->reads[i], i);
    assert_int_equal(asked(&w->a).index, 0);
    assert_int_equal(asked(&w->a).index, 1);
    leave(w, &w->a);
    assert_int_equal(join(w, &w->a, 5), 0);
    assert_int_equal(asked(&w->a).index, 2); /* the others wait for their job's end to show */
    assert_int_equal(asked(&w->a).slot, SLOTS);
    assert_int_equal(join(w, &w->b, 6), 0); /* stands by */
    assert_int_equal(wait_for(w, &done, 350), 0);
    assert_int_equal(asked(&w->a).slot, SLOTS);
    struct hr__wire_make make = {.request = 3, .index = 2, .slot = 0};
    for (int i = 0; i < 3; i++) {
        answer(w, &w->a, &make, 1);
        assert_int_equal(wait_for(w, &done, 1000), 1);
        assert_int_equal(done->result, 0);
        indices |= UINT64_C(1) << done->sample.index;
        hr__read_drop(done);
        make = asked(&w->a);
        assert_true((make.slot == SLOTS) == (i == 2));
        assert_int_equal(asked(&w->a).slot, SLOTS);
    }
    assert_int_equal(indices, 7);
    leave(w, &w->a);
    leave(w, &w->b);
}

/* One that answers at once gets more requests than two at a time. */
static void test_quick_ones_get_many(void **state)
{
    struct producing *w = *state;
    struct hr__wire_make makes[4];
    struct hr__read *done;
    int most = 0;
    assert_int_equal(join_of(w, &w->a, 5, 16), 0);
    while (most < 4) {
        int count = 0;
        for (uint64_t i = 0; i < 4; i++)
            submit(w, &w->reads[i], i);
        for (int made = 0; made < 4; made += count) {
            for (count = 0; count < 4; count++)
                if ((makes[count] = asked(&w->a)).slot == 16)
                    break;
            most = count > most ? count : most;
            for (int i = 0; i < count; i++) {
                answer(w, &w->a, &makes[i], 1);
                assert_int_equal(wait_for(w, &done, 1000), 1);
                hr__read_drop(done);
            }
        }
    }
    leave(w, &w->a);
}

/* One that leaves is not to blame. */
static void test_leaving(void **state)
{
    struct producing *w = *state;
    struct hr__read *done;
    submit(w, &w->reads[0], 9);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(join(w, &w->a, 5), 0);
        assert_int_equal(asked(&w->a).index, 9);
        hr__producers_excuse(w->all, w->a.producer);
        leave(w, &w->a);
    }
    hr__producers_exit(w->all, 5);
    assert_int_equal(wait_for(w, &done, 1000), 1);
    assert_int_equal(done->result, -ECANCELED);
    hr__read_drop(done);
}

/* Only as many work as the job with the most of them has. */
static void test_standing_by(void **state)
{
    struct producing *w = *state;
    struct hr__read *reads = w->reads;
    assert_int_equal(join(w, &w->a, 5), 0);
    assert_int_equal(join(w, &w->b, 6), 0);
    for (uint64_t i = 0; i < 3; i++)
        submit(w, &reads[i], i);
    assert_int_equal(asked(&w->a).index, 0);
    assert_int_equal(asked(&w->a).index, 1);
    assert_int_equal(asked(&w->b).slot, SLOTS);
    assert_int_equal(hr__producers_count(w->all), 2);
    hr__reader_destroy(&w->reader); /* forgets what is in flight */
    leave(w, &w->a);
    leave(w, &w->b);
}

static void *read_one(void *arg)
{
    struct producing *w = arg;
    struct hr__sample_source *source = hr__producers_source(w->all);
    w->reads[3] = (struct hr__read){.sample = {.index = 99}};
    assert_int_equal(source->read(source, &w->reads[3]), 0);
    hr__read_drop(&w->reads[3]);
    return NULL;
}

/* A worker gets its sample while all others wait for workers. */
static void test_a_worker_goes_first(void **state)
{
    struct producing *w = *state;
    struct hr__read *done[3];
    struct hr__wire_make make = {.slot = 0};
    pthread_t thread;
    assert_int_equal(join(w, &w->a, 5), 0);
    for (uint64_t i = 0; i < 3; i++)
        submit(w, &w->reads[i], i);
    for (int i = 0; i < 3; i++) {
        make = asked(&w->a);
        answer(w, &w->a, &make, 1);
        assert_int_equal(wait_for(w, &done[i], 1000), 1);
    }
    struct hr__read more;
    submit(w, &more, 50);
    assert_int_equal(asked(&w->a).slot, SLOTS);
    pthread_create(&thread, NULL, read_one, w);
    do
        make = asked(&w->a);
    while (make.slot == SLOTS);
    assert_int_equal(make.index, 99);
    answer(w, &w->a, &make, 2);
    pthread_join(thread, NULL);
    for (int i = 0; i < 3; i++)
        hr__read_drop(done[i]);
    assert_int_equal(asked(&w->a).index, 50);
    hr__reader_destroy(&w->reader);
    leave(w, &w->a);
}

static void test_memory_is_checked(void **state)
{
    struct producing *w = *state;
    const struct hr__wire_produce produce = {.text_bytes = 1, .slots = SLOTS, .job = 5};
    const int seals[] = {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW};
    struct hr__producer *producer;
    struct hr_error error;
    for (int i = 0; i < 3; i++) {
        int file = memory_file(SLOTS * SLOT + (i == 2), seals[i]);
        assert_int_equal(hr__producers_join(w->all, &producer, &produce, -1, file, &error),
                         -EINVAL);
        assert_null(producer);
        close(file);
    }
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(hr__producers_join(w->all, &producer, &produce, -1, file, &error), -EINVAL);
    close(file);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_samples),
        TEST(test_one_ends),
        TEST(test_deaths),
        TEST(test_leaving),
        TEST(test_standing_by),
        TEST(test_a_worker_goes_first),
        TEST(test_memory_is_checked),
        TEST(test_suspects_are_made_alone),
        TEST(test_quick_ones_get_many),
    };
    return cmocka_run_group_tests_name("agent producers", tests, NULL, NULL);
}
