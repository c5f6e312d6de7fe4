/* See peer.h. */
#include "peer.h"

#include "agent/launch.h"
#include "agent/statement.h"
#include "base/clock.h"
#include "base/memory.h"

#include <headrace/agent.h>

#include <errno.h>
#include <jansson.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t ahead_ns; /* of the kernel's clock */

/* The one that the library calls, too. */
int clock_gettime(clockid_t clock, struct timespec *out)
{
    int r = (int)syscall(SYS_clock_gettime, clock, out);
    if (!r && clock == CLOCK_MONOTONIC) {
        uint64_t ns = (uint64_t)out->tv_sec * 1000000000u + (uint64_t)out->tv_nsec;
        *out = hr__timespec(ns + atomic_load(&ahead_ns));
    }
    return r;
}

void served_pass_hours(int hours)
{
    atomic_fetch_add(&ahead_ns, (uint64_t)hours * UINT64_C(3600000000000));
}

/* The longest time that a test waits for something. */
#define PATIENCE_MS 120000

static void *serve(void *arg)
{
    struct served *s = arg;
    struct hr_error error;
    s->result = hr_agent_run(s->agent, &error);
    return NULL;
}

void served_start(struct served *s, const struct hr_agent_options *options)
{
    struct hr_agent_options o;
    struct hr_error error;
    hr_agent_options_default(&o);
    if (options)
        o = *options;
    else
        o.threads = 2;
    strcpy(s->dir, "/tmp/headrace-agent-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->socket, sizeof s->socket, "%s/agent.sock", s->dir);
    o.socket = s->socket;
    s->pid = (int)getpid();
    if (hr_agent_create(&s->agent, &o, &error))
        fail_msg("%s", error.message);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

void served_join(struct served *s)
{
    pthread_join(s->thread, NULL);
    assert_int_equal(s->result, 0);
    hr_agent_destroy(&s->agent);
    assert_null(s->agent);
    /* the folder is empty */
    assert_int_equal(rmdir(s->dir), 0);
}

void served_stop(struct served *s)
{
    hr_agent_stop(s->agent);
    served_join(s);
}

void served_begin(struct served *s, struct fixture *f, int samples,
                  const struct hr_agent_options *options)
{
    fixture_make(f, samples);
    served_start(s, options);
}

void served_end(struct served *s, struct fixture *f)
{
    served_stop(s);
    fixture_remove(f);
}

static void send_message(const struct peer *p, const struct hr__wire_message *message)
{
    assert_int_equal(hr__wire_send(p->socket, message), 0);
}

void peer_connect(struct peer *p, const struct served *s, int is_viewer)
{
    struct hr_error error;
    memset(p, 0, sizeof *p);
    p->room = -1;
    if (hr__launch_connect(&p->socket, s->socket, &error))
        fail_msg("%s", error.message);
    struct hr__wire_message hello = {.type = HR__WIRE_HELLO};
    hello.hello.pid = (int32_t)getpid();
    hello.hello.is_viewer = (uint32_t)is_viewer;
    strcpy(hello.hello.program, "peer");
    send_message(p, &hello);
    struct hr__wire_message message;
    peer_expect(p, HR__WIRE_WELCOME, &message);
    assert_int_equal(message.welcome.pid, s->pid);
    assert_true(message.welcome.threads >= 1);
}

int peer_receive(struct peer *p, struct hr__wire_message *message)
{
    struct pollfd poller = {.fd = p->socket, .events = POLLIN};
    struct hr_error error;
    assert_int_equal(poll(&poller, 1, PATIENCE_MS), 1);
    int r = hr__wire_receive(p->socket, 0, message, &error);
    return r == -ECONNRESET ? 0 : r;
}

void peer_expect(struct peer *p, enum hr__wire_type type, struct hr__wire_message *message)
{
    assert_int_equal(peer_receive(p, message), 1);
    if (message->type == HR__WIRE_REFUSED && type != HR__WIRE_REFUSED)
        fail_msg("refused: %s", message->refused.message);
    assert_int_equal(message->type, type);
}

void peer_options(struct peer *p, const struct fixture *f, const char *stream)
{
    p->f = f;
    p->attach = (struct hr__wire_attach){
        .seed = FIXTURE_SEED,
        .staging_bytes = 16 << 20,
        .batch_size = 16,
        .batches_ahead = 2,
        .window = 4,
        .world_size = 1,
        .shuffle = 1,
        .on_error = HR_ON_ERROR_RAISE,
        .cache_form = HR_FORM_AUTO,
    };
    strcpy(p->attach.stream, stream);
}

int peer_attach(struct peer *p)
{
    char *text = NULL;
    struct hr_error error;
    if (hr__statement_write(&text, p->f->dataset, p->f->recipe, &error))
        fail_msg("%s", error.message);
    struct hr__wire_message message = {.type = HR__WIRE_ATTACH, .attach = p->attach};
    message.attach.text_bytes = strlen(text);
    message.files[0] = hr__wire_text_file(text, strlen(text));
    message.file_count = 1;
    assert_true(message.files[0] >= 0);
    send_message(p, &message);
    hr__wire_close_files(&message);
    hr__free(text);
    assert_int_equal(peer_receive(p, &message), 1);
    if (message.type == HR__WIRE_REFUSED)
        return message.refused.code;
    assert_int_equal(message.type, HR__WIRE_ATTACHED);
    assert_int_equal(message.attached.samples, p->f->count);
    assert_int_equal(message.attached.spec.bytes, p->f->spec.bytes);
    return 0;
}

void peer_seek(struct peer *p, uint64_t epoch, uint64_t position, int is_first)
{
    struct hr__wire_message seek = {.type = HR__WIRE_SEEK};
    seek.seek = (struct hr__wire_seek){.epoch = epoch,
                                       .position = position,
                                       .is_first = (uint32_t)is_first,
                                       .number = ++p->requests};
    send_message(p, &seek);
}

static void *map_file(int file, uint64_t bytes, int protection)
{
    void *at = mmap(NULL, bytes, protection, MAP_SHARED, file, 0);
    assert_true(at != MAP_FAILED);
    close(file);
    return at;
}

static uint64_t control_bytes(const struct peer *p, const struct peer_cursor *cursor)
{
    const struct hr__header *b = cursor->header;
    return p->attach.external_order ? hr__control_bytes(b->page_bytes, b->places, b->chunk_samples)
                                    : b->page_bytes;
}

void peer_placed(struct peer *p, struct hr__wire_message *message)
{
    const struct hr__wire_placed *placed = &message->placed;
    assert_int_equal(message->type, HR__WIRE_PLACED);
    assert_int_equal(placed->number, p->requests);
    assert_true(placed->cursor < 16);
    struct peer_cursor *cursor = &p->cursors[placed->cursor];
    assert_int_equal(placed->is_new, cursor->header == NULL);
    assert_int_equal(message->file_count, placed->is_new ? 4 : 0);
    if (placed->is_new) {
        struct stat st;
        assert_int_equal(fstat(message->files[0], &st), 0);
        cursor->header = map_file(message->files[0], (uint64_t)st.st_size, PROT_READ);
        assert_int_equal(cursor->header->header_bytes, st.st_size);
        assert_int_equal(cursor->header->magic, HR__HEADER_MAGIC);
        cursor->data = map_file(message->files[1], cursor->header->data_bytes, PROT_READ);
        cursor->control =
            map_file(message->files[2], control_bytes(p, cursor), PROT_READ | PROT_WRITE);
        assert_int_equal(cursor->control->magic, HR__CONTROL_MAGIC);
        cursor->room = message->files[3];
    }
    p->header = cursor->header;
    p->data = cursor->data;
    p->control = cursor->control;
    p->room = cursor->room;
    p->placed = *placed;
    p->next = placed->sequence;
    p->end = placed->sequence + placed->samples;
    p->epoch = placed->epoch;
    p->position = placed->position;
    assert_true(atomic_load(&p->control->floor) <= p->next);
    assert_int_equal(atomic_load(&p->control->next), p->next);
    atomic_store(&p->control->mark, p->next);
}

void peer_sit(struct peer *p)
{
    struct hr__wire_message message;
    peer_expect(p, HR__WIRE_PLACED, &message);
    peer_placed(p, &message);
}

static void ring(struct peer *p)
{
    uint64_t one = 1;
    if (atomic_load(&p->header->wants_room))
        assert_int_equal(write(p->room, &one, sizeof one), sizeof one);
}

void peer_release(struct peer *p)
{
    atomic_store(&p->control->mark, p->next);
    ring(p);
}

/* Checks samples that were taken. `samples` is a copy made before that. */
static void check(struct peer *p, const struct hr__header_sample *samples, const void **images,
                  int count)
{
    struct hr__order *order;
    struct hr_error error;
    assert_int_equal(
        hr__order_create(&order, p->f->count, p->attach.shuffle, p->attach.seed, p->epoch, &error),
        0);
    for (int i = 0; i < count; i++) {
        uint64_t at = p->position + (uint64_t)i * (uint64_t)p->attach.world_size;
        /* placed.position counts the samples of all ranks; this rank's samples follow by its
         * number. */
        at = (at + (uint64_t)p->attach.rank) % p->f->count;
        if (samples[i].instead < 0)
            assert_int_equal(samples[i].index, hr__order_at(order, at));
        else
            assert_int_equal(samples[i].instead, hr__order_at(order, at));
        fixture_check_sample(p->f, p->epoch, samples[i].index, samples[i].label, images[i]);
    }
    hr__order_destroy(&order);
    p->position += (uint64_t)count * (uint64_t)p->attach.world_size;
}

/* Waits until the head has passed `to`. Returns 0; -ESTALE if the floor has passed it; -ECANCELED
 * if the head never will. */
static int wait_for(struct peer *p, uint64_t to)
{
    uint64_t until = hr__now_ns() + PATIENCE_MS * UINT64_C(1000000);
    atomic_store(&p->control->wants, to);
    ring(p);
    for (;;) {
        uint32_t bell = atomic_load(&p->header->bell);
        uint64_t head = atomic_load(&p->header->head);
        int r = atomic_load(&p->control->floor) > p->next ? -ESTALE
                : head >= to                              ? 0
                : atomic_load(&p->header->halt) <= to     ? -ECANCELED
                                                          : 1;
        if (r <= 0) {
            atomic_store(&p->control->wants, 0);
            return r;
        }
        assert_true(hr__now_ns() < until);
        struct timespec slice = {.tv_nsec = 20000000};
        syscall(SYS_futex, &p->header->bell, FUTEX_WAIT, bell, &slice, NULL, 0);
    }
}

int peer_take(struct peer *p, int count, int hold)
{
    const struct hr__header *b = p->header;
    uint64_t to = p->next + (uint64_t)count;
    if (to > p->end)
        to = p->end;
    count = (int)(to - p->next);
    if (!count)
        return 0;
    int r = wait_for(p, to);
    if (r)
        return r;
    struct hr__header_sample *samples = calloc((size_t)count, sizeof *samples);
    const void **images = calloc((size_t)count, sizeof *images);
    const struct hr__header_sample *all = (const void *)((const uint8_t *)b + b->samples_offset);
    const struct hr__header_place *places = (const void *)((const uint8_t *)b + b->places_offset);
    for (int i = 0; i < count; i++) {
        uint64_t s = p->next + (uint64_t)i;
        samples[i] = all[s % (b->places * b->chunk_samples)];
        images[i] = p->data + atomic_load(&places[s / b->chunk_samples % b->places].offset) +
                    s % b->chunk_samples * b->sample_bytes;
    }
    atomic_store(&p->control->next, to);
    if (atomic_load(&p->control->floor) > p->next) {
        atomic_store(&p->control->next, p->next);
        count = -ESTALE;
    } else {
        p->next = to;
        check(p, samples, images, count);
        atomic_fetch_add(&p->control->batches, 1);
        if (!hold)
            peer_release(p);
    }
    free(samples);
    free(images);
    return count;
}

int peer_rest(struct peer *p, int count)
{
    int taken = 0, n;
    while ((n = peer_take(p, count, 0)) > 0)
        taken += n;
    assert_int_equal(n, 0);
    return taken;
}

void peer_leave(struct peer *p)
{
    for (int i = 0; i < 16; i++) {
        struct peer_cursor *cursor = &p->cursors[i];
        if (!cursor->header)
            continue;
        munmap((void *)(uintptr_t)cursor->data, cursor->header->data_bytes);
        munmap(cursor->control, control_bytes(p, cursor));
        munmap((void *)(uintptr_t)cursor->header, cursor->header->header_bytes);
        close(cursor->room);
    }
    close(p->socket);
}

struct json_t *peer_status(struct peer *viewer)
{
    struct hr__wire_message message;
    struct hr_error error;
    char *text;
    json_error_t bad;
    send_message(viewer, &(struct hr__wire_message){.type = HR__WIRE_STATUS});
    peer_expect(viewer, HR__WIRE_TEXT, &message);
    assert_int_equal(hr__wire_text_read(message.files[0], message.text.bytes, &text, &error), 0);
    hr__wire_close_files(&message);
    json_t *json = json_loads(text, 0, &bad);
    if (!json)
        fail_msg("%s", bad.text);
    hr__free(text);
    return json;
}

struct json_t *served_status(const struct served *s)
{
    struct peer viewer;
    peer_connect(&viewer, s, 1);
    json_t *json = peer_status(&viewer);
    peer_leave(&viewer);
    return json;
}
