/*
 * The agent over its real socket, with jobs by hand (peer.h). Every sample of every epoch is
 * compared bit for bit with the order and the recipe, while jobs are slow, late or killed.
 */
#include "peer.h"

#include "base/clock.h"

#include <headrace/agent.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 200

static void job(struct peer *p, const struct served *s, const struct fixture *f, const char *stream)
{
    peer_connect(p, s, 0);
    peer_options(p, f, stream);
}

/* Attaches a job and places it at the beginning. */
static void started(struct peer *p, const struct served *s, const struct fixture *f,
                    const char *stream)
{
    job(p, s, f, stream);
    assert_int_equal(peer_attach(p), 0);
    peer_seek(p, 0, 0, 1);
    peer_sit(p);
}

static json_t *queue_of(json_t *status, int stream, int queue)
{
    json_t *queues = json_object_get(
        json_array_get(json_object_get(status, "streams"), (size_t)stream), "queues");
    return json_array_get(queues, (size_t)queue);
}

static int64_t number(const json_t *json, const char *key)
{
    assert_true(json_is_integer(json_object_get(json, key)));
    return json_integer_value(json_object_get(json, key));
}

/* Waits until `key` of the status has that value; returns the status. */
static json_t *status_when(const struct served *s, const char *key, int64_t value)
{
    for (int i = 0;; i++) {
        json_t *status = served_status(s);
        const json_t *found = json_object_get(status, key);
        int64_t is =
            json_is_array(found) ? (int64_t)json_array_size(found) : json_integer_value(found);
        if (is == value)
            return status;
        json_decref(status);
        assert_true(i < 12000); /* two minutes: it hangs */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

static void test_one_job(void **state)
{
    struct fixture f;
    struct served s;
    struct peer p;
    served_begin(&s, &f, SAMPLES, NULL);
    started(&p, &s, &f, "");
    assert_int_equal(p.placed.samples, SAMPLES);
    assert_int_equal(p.placed.missed, 0);
    assert_int_equal(peer_rest(&p, 16), SAMPLES);
    for (uint64_t epoch = 1; epoch < 4; epoch++) {
        peer_seek(&p, epoch, 0, 0);
        peer_sit(&p);
        assert_int_equal(p.placed.is_new, 0);
        assert_int_equal(p.placed.is_alone, 0);
        assert_int_equal(p.placed.epoch, epoch);
        assert_int_equal(peer_rest(&p, 16), SAMPLES);
    }
    /* To the middle of an epoch, and on to the next one. */
    peer_seek(&p, 7, 48, 0);
    peer_sit(&p);
    assert_int_equal(p.placed.samples, SAMPLES - 48);
    assert_int_equal(peer_take(&p, 16, 0), 16);
    peer_seek(&p, 9, 0, 0);
    peer_sit(&p);
    assert_int_equal(peer_rest(&p, 16), SAMPLES);
    peer_seek(&p, 9, SAMPLES, 0);
    peer_sit(&p);
    assert_int_equal(p.placed.samples, 0);
    json_t *status = served_status(&s);
    assert_int_equal(number(status, "jobs"), 1);
    assert_int_equal(number(status, "expelled"), 0);
    assert_true(number(queue_of(status, 0, 0), "chunk_samples") == 16);
    json_decref(status);
    peer_leave(&p);
    json_decref(status_when(&s, "streams", 0));
    served_end(&s, &f);
}

/* Different batch sizes, one preparation. */
static void test_shared(void **state)
{
    static const int batches[] = {16, 24, 7, 16};
    struct fixture f;
    struct served s;
    struct peer p[4];
    served_begin(&s, &f, SAMPLES, NULL);
    for (int i = 0; i < 4; i++) {
        job(&p[i], &s, &f, "shared");
        p[i].attach.batch_size = batches[i];
        p[i].attach.lag = HR_LAG_WAIT;
        p[i].attach.epochs = 3;
        assert_int_equal(peer_attach(&p[i]), 0);
        peer_seek(&p[i], 0, 0, 1);
        peer_sit(&p[i]);
        assert_int_equal(p[i].placed.missed, 0);
    }
    int left = 4, taken[4] = {0}, epochs[4] = {0};
    for (unsigned turn = 0; left; turn++) {
        int i = (int)(turn * 2654435761u >> 16) % 4;
        if (epochs[i] == 3 || p[i].next + (uint64_t)batches[i] > atomic_load(&p[i].header->head)) {
            if (epochs[i] == 3 || p[i].end > atomic_load(&p[i].header->head))
                continue;
        }
        int n = peer_take(&p[i], batches[i], 0);
        assert_true(n >= 0);
        taken[i] += n;
        if (n)
            continue;
        assert_int_equal(taken[i], SAMPLES);
        taken[i] = 0;
        left -= ++epochs[i] == 3;
        if (epochs[i] == 3) {
            peer_leave(&p[i]);
            continue;
        }
        peer_seek(&p[i], (uint64_t)epochs[i], 0, 0);
        peer_sit(&p[i]);
        assert_int_equal(p[i].placed.is_alone, 0);
        if (epochs[i] == 2 && left == 4) {
            json_t *status = served_status(&s);
            assert_true(number(queue_of(status, 0, 0), "prepared") <= 3 * SAMPLES);
            assert_int_equal(json_array_size(json_object_get(
                                 json_array_get(json_object_get(status, "streams"), 0), "queues")),
                             1);
            json_decref(status);
        }
    }
    served_end(&s, &f);
}

static void test_joins(void **state)
{
    struct fixture f;
    struct served s;
    struct peer first, now, later;
    struct hr__wire_message message;
    served_begin(&s, &f, SAMPLES, NULL);
    started(&first, &s, &f, "x");
    for (int i = 0; i < 6; i++)
        assert_int_equal(peer_take(&first, 16, 0), 16);
    job(&now, &s, &f, "x");
    now.attach.join = HR_JOIN_NOW;
    assert_int_equal(peer_attach(&now), 0);
    peer_seek(&now, 0, 0, 1);
    peer_sit(&now);
    assert_int_equal(now.placed.epoch, 0);
    assert_int_equal(now.placed.position, 96);
    assert_int_equal(now.placed.missed, 96);
    assert_int_equal(now.placed.is_alone, 0);
    job(&later, &s, &f, "x");
    later.attach.batch_size = 20;
    assert_int_equal(peer_attach(&later), 0);
    peer_seek(&later, 0, 0, 1);
    peer_expect(&later, HR__WIRE_WAITING, &message);
    assert_int_equal(message.waiting.epoch, 0);
    while (first.next < first.end) {
        assert_true(peer_take(&first, 16, 0) > 0);
        assert_true(peer_take(&now, 16, 0) > 0);
    }
    peer_seek(&first, 1, 0, 0);
    peer_sit(&first);
    peer_sit(&later);
    assert_int_equal(later.placed.epoch, 1);
    assert_int_equal(later.placed.position, 0);
    assert_int_equal(later.placed.missed, 0);
    peer_seek(&now, 1, 0, 0);
    peer_sit(&now);
    while (first.next < first.end) {
        peer_take(&first, 16, 0);
        peer_take(&now, 16, 0);
        peer_take(&later, 20, 0);
    }
    peer_rest(&later, 20);
    /* A job that waits for others must not wait for ever if they leave. */
    struct peer last;
    job(&last, &s, &f, "x");
    assert_int_equal(peer_attach(&last), 0);
    peer_seek(&last, 0, 0, 1);
    peer_expect(&last, HR__WIRE_WAITING, &message);
    peer_leave(&first);
    peer_leave(&now);
    peer_leave(&later);
    peer_sit(&last);
    assert_int_equal(last.placed.epoch, 0);
    assert_int_equal(peer_rest(&last, 16), SAMPLES);
    peer_leave(&last);
    served_end(&s, &f);
}

/* Between two epochs of the others: a job that joins with "now" begins the next one; another waits
 * for it, and the status shows that. */
static void test_joins_between_epochs(void **state)
{
    struct fixture f;
    struct served s;
    struct peer first, now, later;
    struct hr__wire_message message;
    served_begin(&s, &f, SAMPLES, NULL);
    started(&first, &s, &f, "x");
    assert_int_equal(peer_rest(&first, 16), SAMPLES);
    job(&later, &s, &f, "x");
    assert_int_equal(peer_attach(&later), 0);
    peer_seek(&later, 0, 0, 1);
    peer_expect(&later, HR__WIRE_WAITING, &message);
    assert_int_equal(message.waiting.position, SAMPLES);
    json_t *status = served_status(&s), *waiting = json_object_get(status, "waiting");
    assert_int_equal(json_array_size(waiting), 1);
    waiting = json_array_get(waiting, 0);
    assert_string_equal(json_string_value(json_object_get(waiting, "waits_for")), "epoch");
    assert_string_equal(json_string_value(json_object_get(waiting, "stream")), "x");
    assert_int_equal(number(waiting, "pid"), s.pid);
    json_decref(status);
    job(&now, &s, &f, "x");
    now.attach.join = HR_JOIN_NOW;
    assert_int_equal(peer_attach(&now), 0);
    peer_seek(&now, 0, 0, 1);
    peer_sit(&now);
    assert_int_equal(now.placed.epoch, 1);
    assert_int_equal(now.placed.position, 0);
    peer_sit(&later);
    assert_int_equal(later.placed.epoch, 1);
    for (int taken = 0; taken < SAMPLES; taken += 16) {
        assert_true(peer_take(&now, 16, 0) > 0);
        assert_true(peer_take(&later, 16, 0) > 0);
    }
    peer_seek(&first, 1, 0, 0);
    peer_sit(&first);
    assert_int_equal(peer_rest(&first, 16), SAMPLES);
    peer_leave(&first);
    peer_leave(&now);
    peer_leave(&later);
    served_end(&s, &f);
}

/* A job that lags gets its samples prepared separately, from its very next one, and returns to the
 * others later. */
static void test_lags_and_catches_up(void **state)
{
    struct fixture f;
    struct served s;
    struct peer fast, slow;
    struct hr__wire_message message;
    served_begin(&s, &f, 600, NULL);
    started(&fast, &s, &f, "x");
    started(&slow, &s, &f, "x");
    int taken = 0;
    for (int i = 0; i < 3; i++)
        taken += peer_take(&slow, 16, 0);
    for (int i = 0; i < 16; i++)
        assert_int_equal(peer_take(&fast, 16, 0), 16);
    peer_expect(&slow, HR__WIRE_EXPELLED, &message);
    assert_int_equal(message.expelled.cursor, slow.placed.cursor);
    int r;
    while ((r = peer_take(&slow, 16, 0)) > 0)
        taken += r;
    assert_int_equal(r, -ESTALE);
    uint32_t was = slow.placed.cursor;
    peer_seek(&slow, 0, slow.position, 0);
    peer_sit(&slow);
    assert_int_equal(slow.placed.is_alone, 1);
    assert_int_equal(slow.placed.position, taken);
    assert_true(slow.placed.cursor != was);
    /* Alone it continues where it was, then with the others. */
    while (slow.position < fast.position)
        taken += peer_take(&slow, 16, 0);
    json_t *status = served_status(&s);
    assert_int_equal(number(status, "expelled"), 1);
    json_decref(status);
    peer_seek(&slow, 0, slow.position, 0);
    peer_sit(&slow);
    assert_int_equal(slow.placed.is_alone, 0);
    assert_int_equal(slow.placed.cursor, was);
    struct hr__wire_message leave = {.type = HR__WIRE_LEAVE, .leave.cursor = was + 1};
    assert_int_equal(hr__wire_send(slow.socket, &leave), 0);
    while (slow.next < slow.end) {
        taken += peer_take(&slow, 16, 0);
        peer_take(&fast, 16, 0);
    }
    assert_int_equal(taken, 600);
    assert_int_equal(peer_take(&fast, 16, 0), 0);
    peer_leave(&slow);
    peer_leave(&fast);
    served_end(&s, &f);
}

/* A job that stops while it holds batches delays nobody, and keeps them. */
static void test_stands_still(void **state)
{
    struct fixture f;
    struct served s;
    struct peer fast, still;
    served_begin(&s, &f, 600, NULL);
    started(&fast, &s, &f, "x");
    started(&still, &s, &f, "x");
    assert_int_equal(peer_take(&still, 16, 1), 16);
    const struct hr__header *b = still.header;
    const struct hr__header_place *places = (const void *)((const uint8_t *)b + b->places_offset);
    uint64_t first = still.placed.sequence / b->chunk_samples % b->places;
    const uint8_t *held = still.data + atomic_load(&places[first].offset);
    size_t bytes = 16 * b->sample_bytes;
    void *copy = malloc(bytes);
    memcpy(copy, held, bytes);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        if (epoch) {
            peer_seek(&fast, epoch, 0, 0);
            peer_sit(&fast);
        }
        assert_int_equal(peer_rest(&fast, 16), 600);
    }
    assert_memory_equal(held, copy, bytes);
    json_t *status = served_status(&s);
    assert_int_equal(number(status, "expelled"), 1);
    assert_int_equal(number(queue_of(status, 0, 0), "leased_bytes"), b->chunk_bytes);
    json_decref(status);
    free(copy);
    peer_leave(&still);
    peer_leave(&fast);
    served_end(&s, &f);
}

/* A job that joins does not wait for ever for one that has stopped; the latter is alone
 * afterwards. */
static void test_joins_beside_still(void **state)
{
    struct fixture f;
    struct served s;
    struct peer still, late;
    struct hr__wire_message message;
    served_begin(&s, &f, 600, NULL);
    started(&still, &s, &f, "x");
    for (int i = 0; i < 6; i++)
        assert_int_equal(peer_take(&still, 16, 0), 16);
    job(&late, &s, &f, "x");
    assert_int_equal(peer_attach(&late), 0);
    peer_seek(&late, 0, 0, 1);
    peer_expect(&late, HR__WIRE_WAITING, &message);
    peer_sit(&late); /* after five seconds */
    assert_int_equal(late.placed.epoch, 1);
    assert_int_equal(late.placed.is_alone, 0);
    assert_int_equal(peer_rest(&late, 16), 600);
    peer_expect(&still, HR__WIRE_EXPELLED, &message);
    peer_seek(&still, 0, still.position, 0);
    peer_sit(&still);
    assert_int_equal(still.placed.is_alone, 1);
    assert_int_equal(peer_rest(&still, 16), 600 - 96);
    peer_leave(&still);
    peer_leave(&late);
    served_end(&s, &f);
}

/* Rank r takes r, r + W, ...; the end is padded from the start. */
static void test_ranks(void **state)
{
    struct fixture f;
    struct served s;
    struct peer p[3];
    served_begin(&s, &f, SAMPLES, NULL);
    for (int r = 0; r < 3; r++) {
        job(&p[r], &s, &f, "ranks");
        p[r].attach.rank = r;
        p[r].attach.world_size = 3;
        assert_int_equal(peer_attach(&p[r]), 0);
    }
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        for (int r = 0; r < 3; r++) {
            peer_seek(&p[r], epoch, 0, epoch == 0);
            peer_sit(&p[r]);
            assert_int_equal(p[r].placed.samples, (SAMPLES + 2) / 3);
            assert_int_equal(p[r].placed.is_alone, 0);
        }
        for (int left = 3; left;) {
            left = 0;
            for (int r = 0; r < 3; r++)
                left += peer_take(&p[r], 8, 0) > 0;
        }
    }
    json_t *status = served_status(&s);
    assert_int_equal(json_array_size(json_object_get(
                         json_array_get(json_object_get(status, "streams"), 0), "queues")),
                     3);
    json_decref(status);
    for (int r = 0; r < 3; r++)
        peer_leave(&p[r]);
    served_end(&s, &f);
}

static void test_refusals(void **state)
{
    struct fixture f;
    struct served s;
    struct peer good, other;
    struct hr__wire_message message;
    struct hr_error error;
    served_begin(&s, &f, SAMPLES, NULL);
    started(&good, &s, &f, "x");
    job(&other, &s, &f, "x");
    other.attach.seed++;
    assert_int_equal(peer_attach(&other), -EINVAL);
    other.attach.seed--;
    other.attach.shuffle = 0;
    assert_int_equal(peer_attach(&other), -EINVAL);
    strcpy(other.attach.stream, "y"); /* another name, and it may continue */
    assert_int_equal(peer_attach(&other), 0);
    peer_seek(&other, 0, SAMPLES + 1, 0);
    peer_expect(&other, HR__WIRE_REFUSED, &message);
    assert_int_equal(message.refused.code, -EINVAL);
    /* An unexpected message: the connection ends. */
    message = (struct hr__wire_message){.type = HR__WIRE_LEAVE, .leave.cursor = 5};
    assert_int_equal(hr__wire_send(other.socket, &message), 0);
    peer_expect(&other, HR__WIRE_REFUSED, &message);
    assert_int_equal(message.refused.code, -EPROTO);
    assert_int_equal(peer_receive(&other, &message), 0);
    peer_leave(&other);
    /* Random bytes of all lengths. */
    for (int length = 1; length < 400; length += 57) {
        job(&other, &s, &f, "");
        char noise[400];
        memset(noise, length, sizeof noise);
        assert_int_equal(send(other.socket, noise, (size_t)length, MSG_NOSIGNAL), length);
        assert_int_equal(peer_receive(&other, &message), 1);
        assert_int_equal(message.type, HR__WIRE_REFUSED);
        assert_int_equal(peer_receive(&other, &message), 0);
        peer_leave(&other);
    }
    /* Files that do not exist. */
    job(&other, &s, &f, "");
    fixture_spoil(&f, 3, NULL);
    assert_int_equal(peer_attach(&other), 0);
    peer_leave(&other);
    struct hr_agent *second;
    struct hr_agent_options options;
    hr_agent_options_default(&options);
    options.socket = s.socket;
    assert_int_equal(hr_agent_create(&second, &options, &error), -EADDRINUSE);
    assert_null(second);
    options.threads = -1;
    assert_int_equal(hr_agent_create(&second, &options, &error), -EINVAL);
    assert_true(peer_take(&good, 1, 0) == 1);
    peer_leave(&good);
    served_end(&s, &f);
}

/* A job that repeats a message endlessly does not delay the others. */
static void test_flood(void **state)
{
    struct fixture f;
    struct served s;
    struct peer good, flood;
    served_begin(&s, &f, SAMPLES, NULL);
    job(&flood, &s, &f, "");
    assert_int_equal(peer_attach(&flood), 0);
    assert_int_equal(fcntl(flood.socket, F_SETFL, O_NONBLOCK), 0);
    struct hr__wire_message seek = {.type = HR__WIRE_SEEK, .seek.number = 1};
    for (int i = 0; i < 5000; i++)
        if (hr__wire_send(flood.socket, &seek) == -EAGAIN)
            break;
    started(&good, &s, &f, "good");
    assert_int_equal(peer_rest(&good, 16), SAMPLES);
    peer_leave(&flood);
    peer_leave(&good);
    json_decref(status_when(&s, "jobs", 0));
    served_end(&s, &f);
}

static void test_bad_samples(void **state)
{
    struct fixture f;
    struct served s;
    struct peer p, late;
    struct hr__wire_message message;
    fixture_make(&f, SAMPLES);
    fixture_spoil(&f, 11, "no image at all");
    served_start(&s, NULL);
    job(&p, &s, &f, "skips");
    p.attach.on_error = HR_ON_ERROR_SKIP;
    assert_int_equal(peer_attach(&p), 0);
    peer_seek(&p, 0, 0, 1);
    peer_sit(&p);
    assert_int_equal(peer_rest(&p, 16), SAMPLES);
    peer_expect(&p, HR__WIRE_BAD, &message);
    assert_int_equal(message.bad.index, 11);
    assert_true(strlen(message.bad.reason) > 5);
    peer_leave(&p);
    /* The other jobs must be notified of the end, too. */
    started(&p, &s, &f, "raises");
    started(&late, &s, &f, "raises");
    int n, taken = 0;
    while ((n = peer_take(&p, 1, 0)) > 0)
        taken++;
    assert_int_equal(n, -ECANCELED);
    peer_expect(&p, HR__WIRE_HALT, &message);
    assert_int_equal(message.halt.error.code, -ENOTSUP); /* of no known format */
    assert_int_equal(message.halt.has_sample, 1);
    assert_int_equal(message.halt.index, 11);
    assert_int_equal(message.halt.sequence, p.placed.sequence + (uint64_t)taken);
    assert_non_null(strstr(message.halt.path, "00011.jpg"));
    peer_expect(&late, HR__WIRE_HALT, &message);
    struct peer later;
    started(&later, &s, &f, "raises");
    if (later.placed.epoch == 0 && later.placed.position == 0)
        peer_expect(&later, HR__WIRE_HALT, &message);
    /* The next epoch is tried again, up to the same sample. */
    peer_seek(&p, 1, 0, 0);
    peer_sit(&p);
    assert_int_equal(p.placed.epoch, 1);
    while ((n = peer_take(&p, 1, 0)) > 0)
        taken++;
    assert_int_equal(n, -ECANCELED);
    peer_leave(&p);
    peer_leave(&late);
    peer_leave(&later);
    served_end(&s, &f);
}

/* After an agent was lost, the jobs come back one after the other, each at its own position. */
static void test_comes_back_behind(void **state)
{
    struct fixture f;
    struct served s;
    struct peer ahead, behind;
    struct hr__wire_message message;
    served_begin(&s, &f, 600, NULL);
    job(&ahead, &s, &f, "x");
    assert_int_equal(peer_attach(&ahead), 0);
    peer_seek(&ahead, 2, 320, 0);
    peer_sit(&ahead);
    job(&behind, &s, &f, "x");
    assert_int_equal(peer_attach(&behind), 0);
    peer_seek(&behind, 2, 304, 0);
    peer_sit(&behind);
    assert_int_equal(behind.placed.is_alone, 0);
    assert_int_equal(behind.placed.position, 304);
    peer_expect(&ahead, HR__WIRE_EXPELLED, &message);
    assert_int_equal(peer_take(&ahead, 16, 0), -ESTALE);
    peer_seek(&ahead, 2, 320, 0);
    peer_sit(&ahead);
    assert_int_equal(ahead.placed.is_alone, 0);
    assert_int_equal(ahead.placed.position, 320);
    int taken = peer_take(&behind, 16, 0);
    while (behind.next < behind.end) {
        peer_take(&ahead, 16, 0);
        taken += peer_take(&behind, 16, 0);
    }
    assert_int_equal(taken, 600 - 304);
    peer_leave(&ahead);
    peer_leave(&behind);
    served_end(&s, &f);
}

/* A job dies while its child has the socket: the end of its process is detected. */
static void test_death(void **state)
{
    struct fixture f;
    struct served s;
    struct peer p;
    int ready[2];
    served_begin(&s, &f, SAMPLES, NULL);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (!child) {
        started(&p, &s, &f, "x");
        assert_int_equal(peer_take(&p, 16, 1), 16);
        if (!fork()) {
            close(ready[1]);
            close(STDOUT_FILENO); /* whoever reads these waits for their end */
            close(STDERR_FILENO);
            sleep(30);
            _exit(0);
        }
        assert_int_equal(write(ready[1], "x", 1), 1);
        for (;;)
            pause();
    }
    close(ready[1]);
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    json_decref(status_when(&s, "jobs", 1));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    json_t *status = status_when(&s, "jobs", 0);
    json_decref(status);
    json_decref(status_when(&s, "streams", 0));
    close(ready[0]);
    served_end(&s, &f);
}

/* For an agent that ends after so many hours without jobs. */
static struct hr_agent_options idle_options(int hours)
{
    struct hr_agent_options options;
    hr_agent_options_default(&options);
    options.threads = 1;
    options.idle_ms = hours * 3600000;
    return options;
}

static void test_idle_end(void **state)
{
    struct fixture f;
    struct served s;
    struct peer p;
    struct hr_agent_options options = idle_options(3);
    char *json;
    served_begin(&s, &f, 40, &options);
    started(&p, &s, &f, "");
    served_pass_hours(4);
    json_decref(status_when(&s, "jobs", 1));
    assert_int_equal(peer_rest(&p, 16), 40);
    peer_leave(&p);
    json_decref(status_when(&s, "jobs", 0));
    served_pass_hours(2);
    json_decref(served_status(&s));
    served_pass_hours(2);
    while (!hr_agent_status(s.socket, &json, NULL))
        hr_text_free(json);
    served_join(&s);
    /* The agent is stopped meanwhile: jobs notice that by the closed connection. */
    options.idle_ms = -1;
    served_start(&s, &options);
    started(&p, &s, &f, "");
    assert_int_equal(peer_take(&p, 16, 1), 16);
    served_stop(&s);
    struct hr__wire_message message;
    assert_int_equal(peer_receive(&p, &message), 0);
    peer_leave(&p);
    fixture_remove(&f);
}

/* A logout removes the directory of the socket, and jobs that come then start another agent. The
 * old one ends when it is idle, and leaves the new one's files alone. */
static void test_idle_end_without_socket(void **state)
{
    struct fixture f;
    struct served s;
    struct peer p, viewer;
    struct hr_agent_options options = idle_options(3);
    fixture_make(&f, 40);
    for (int is_replaced = 0; is_replaced < 2; is_replaced++) {
        served_start(&s, &options);
        started(&p, &s, &f, "");
        peer_connect(&viewer, &s, 1);
        assert_int_equal(unlink(s.socket), 0);
        char lock[160];
        snprintf(lock, sizeof lock, "%s/agent.lock", s.dir);
        (void)unlink(lock);
        if (is_replaced)
            close(open(s.socket, O_CREAT | O_WRONLY, 0600));
        else
            assert_int_equal(rmdir(s.dir), 0);
        assert_int_equal(peer_rest(&p, 16), 40);
        peer_leave(&p);
        for (int64_t jobs = 1; jobs;) {
            json_t *status = peer_status(&viewer);
            jobs = number(status, "jobs");
            json_decref(status);
        }
        /* The clock goes on once the turn is over in which the agent noticed that. */
        json_decref(peer_status(&viewer));
        served_pass_hours(4);
        peer_leave(&viewer); /* the event after which the agent looks at the clock */
        pthread_join(s.thread, NULL);
        hr_agent_destroy(&s.agent);
        assert_int_equal(access(s.dir, F_OK), is_replaced - 1);
        if (is_replaced) {
            assert_int_equal(unlink(s.socket), 0);
            assert_int_equal(rmdir(s.dir), 0);
        }
    }
    fixture_remove(&f);
}

/* All queues share one cache, which outlives them. */
static void test_cache(void **state)
{
    struct fixture f;
    struct served s;
    struct peer p;
    struct hr_agent_options options;
    fixture_make(&f, SAMPLES);
    hr_agent_options_default(&options);
    options.threads = 2;
    options.cache = "64MB";
    served_start(&s, &options);
    for (int i = 0; i < 3; i++) {
        job(&p, &s, &f, i ? "" : "a name");
        p.attach.seed = FIXTURE_SEED;
        assert_int_equal(peer_attach(&p), 0);
        peer_seek(&p, (uint64_t)i, 0, 1);
        peer_sit(&p);
        assert_int_equal(peer_rest(&p, 16), SAMPLES);
        json_t *status = served_status(&s);
        json_t *queue = queue_of(status, 0, 0);
        assert_int_equal(number(queue, "prepared"), SAMPLES);
        assert_int_equal(number(queue, "cache_hits"), i ? SAMPLES : 0);
        assert_true(number(queue, "cache_bytes") > 0);
        assert_int_equal(number(queue, "cache_budget_bytes"), 64000000);
        json_decref(status);
        peer_leave(&p);
        json_decref(status_when(&s, "streams", 0));
    }
    served_end(&s, &f);
}

/* Attaches a job with an order of its own, and places it. */
static void started_own(struct peer *p, const struct served *s, const struct fixture *f)
{
    job(p, s, f, "");
    p->attach.external_order = 1;
    assert_int_equal(peer_attach(p), 0);
    peer_seek(p, 0, 0, 0);
    peer_sit(p);
    assert_int_equal(p->header->chunk_samples, 16);
    assert_int_equal(p->next % 16, 0);
    assert_int_equal(atomic_load(&p->control->pushed), p->next / 16);
}

/* Writes `count` indices from `first` on into the slot of chunk `number`. */
static void fill_slot(struct peer *p, uint64_t number, uint64_t count, int64_t first)
{
    struct hr__control_batch *batch =
        hr__control_batch(p->control, p->header->page_bytes, 16, number % p->header->places);
    atomic_store(&batch->count, count);
    for (int i = 0; i < 16; i++)
        batch->indices[i] = first + i;
}

/* Announces that all slots before chunk `number` are filled. */
static void say_pushed(struct peer *p, uint64_t number)
{
    uint64_t one = 1;
    atomic_store(&p->control->pushed, number);
    assert_int_equal(write(p->room, &one, sizeof one), sizeof one);
}

static void await_head(const struct peer *p, uint64_t sequence)
{
    for (int i = 0; atomic_load(&p->header->head) != sequence; i++) {
        assert_true(i < 12000); /* two minutes: it hangs */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

static const struct hr__header_sample *sample_at(const struct peer *p, uint64_t sequence)
{
    const char *samples = (const char *)p->header + p->header->samples_offset;
    return (const struct hr__header_sample *)(const void *)samples +
           sequence % (16 * p->header->places);
}

/* The agent checks what jobs write behind their control blocks: a job that pushes invalid indices
 * gets an error and is disconnected, and the others are not affected. Indices pushed for one place
 * are dropped with the next. */
static void test_pushed(void **state)
{
    static const struct {
        uint64_t ahead, count;
        int64_t first;
        const char *words;
    } lies[] = {
        {1, 0, 0, "a batch of 0 samples"},
        {1, 17, 0, "a batch of 17 samples"},
        {1, UINT64_MAX, 0, "samples: from 1 to 16"},
        {1, 16, SAMPLES - 8, "there is no sample 200"},
        {1, 1, -1, "there is no sample -1"},
        {9, 16, 0, "more than 4 batches ahead"}, /* the ring has 4, and they may be there already */
        {UINT64_MAX / 2, 16, 0, "more than 4 batches ahead"},
    };
    struct fixture f;
    struct served s;
    struct peer good, bad;
    struct hr__wire_message message;
    served_begin(&s, &f, SAMPLES, NULL);
    started_own(&good, &s, &f);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        started_own(&bad, &s, &f);
        uint64_t at = bad.next / 16;
        for (uint64_t k = 0; k < 4; k++)
            fill_slot(&bad, at + k, lies[i].count, lies[i].first);
        say_pushed(&bad, at + lies[i].ahead);
        peer_expect(&bad, HR__WIRE_REFUSED, &message);
        assert_int_equal(message.refused.code,
                         lies[i].first == 0 || lies[i].ahead > 1 ? -EPROTO : -ERANGE);
        if (!strstr(message.refused.message, lies[i].words))
            fail_msg("no \"%s\" in: %s", lies[i].words, message.refused.message);
        assert_int_equal(peer_receive(&bad, &message), 0);
        peer_leave(&bad);
    }
    /* Batches of 16 and of 3, and a new place where another batch begins. */
    uint64_t at = good.next / 16;
    fill_slot(&good, at, 16, 40);
    fill_slot(&good, at + 1, 3, 7);
    say_pushed(&good, at + 2);
    await_head(&good, 16 * at + 19);
    assert_int_equal(sample_at(&good, 16 * at + 15)->index, 55);
    assert_int_equal(sample_at(&good, 16 * at + 18)->index, 9);
    for (uint64_t k = 2; k < 5; k++)
        fill_slot(&good, at + k, 4, 100);
    say_pushed(&good, at + 4);
    peer_seek(&good, 0, 19, 0);
    peer_sit(&good);
    assert_int_equal(good.placed.position, 19);
    at = good.next / 16;
    assert_int_equal(atomic_load(&good.control->pushed), at);
    fill_slot(&good, at, 2, 30);
    say_pushed(&good, at + 1);
    await_head(&good, 16 * at + 2);
    assert_int_equal(sample_at(&good, 16 * at + 1)->index, 31);
    peer_leave(&good);
    json_decref(status_when(&s, "streams", 0));
    served_end(&s, &f);
}

/* With an argument: only tests whose names match it. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_job),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_joins),
        cmocka_unit_test(test_joins_between_epochs),
        cmocka_unit_test(test_lags_and_catches_up),
        cmocka_unit_test(test_stands_still),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_bad_samples),
        cmocka_unit_test(test_comes_back_behind),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_idle_end),
        cmocka_unit_test(test_idle_end_without_socket),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_joins_beside_still),
        cmocka_unit_test(test_pushed),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
