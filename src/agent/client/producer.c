/* Produced datasets and producers: see headrace/producer.h, and agent/server/producers.h for the
 * other end. */
#include "agent/launch.h"
#include "agent/statement.h"
#include "agent/wire.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/round.h"
#include "base/versioned.h"
#include "dataset/dataset.h"
#include "recipe/recipe.h"

#include <headrace/producer.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOT_ALIGN 64
#define WAIT_MS    500
/* How long the agent may take to answer. */
#define ANSWER_NS UINT64_C(30000000000)

struct hr_producer {
    int socket;
    uint32_t slots;
    uint64_t request[HR__WIRE_SLOTS_MAX]; /* of each slot; 0: not asked for */
};

void hr_produced_options_init(struct hr_produced_options *options, size_t size)
{
    static const struct hr_produced_options defaults = {.sample_bytes = 1};
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

static int check_produced(const struct hr_produced_options *o, struct hr_error *error)
{
    if (!o->count || o->count > INT64_MAX)
        return hr__fail(error, -EINVAL, "count = %" PRIu64 ": must be from 1 to 2^63 - 1",
                        o->count);
    if (!o->sample_bytes || o->sample_bytes > HR_PRODUCED_BYTES_MAX)
        return hr__fail(error, -EINVAL, "sample_bytes = %" PRIu64 ": must be from 1 to %" PRIu64,
                        o->sample_bytes, HR_PRODUCED_BYTES_MAX);
    if (!o->name || !*o->name || strlen(o->name) > 200)
        return hr__fail(error, -EINVAL, "name: must have 1 to 200 bytes");
    return 0;
}

int hr_produced_create(struct hr_dataset **dataset, struct hr_recipe **recipe,
                       const struct hr_produced_options *options, struct hr_error *error)
{
    struct hr_produced_options o;
    struct hr__produced what = {0};
    *dataset = NULL;
    *recipe = NULL;
    hr_produced_options_default(&o);
    int r = hr__versioned_take(&o, sizeof o, options, "hr_produced_options", error);
    if (!r)
        r = check_produced(&o, error);
    if (r)
        return r;
    what.sample_bytes = o.sample_bytes;
    hr__printable(what.name, sizeof what.name, o.name);
    memcpy(what.layout, o.layout, sizeof what.layout);
    memcpy(what.digest, o.digest, sizeof what.digest);
    r = hr__dataset_create_produced(dataset, o.count, &what, error);
    if (!r)
        r = hr__recipe_create_raw(recipe, o.sample_bytes, error);
    if (r)
        hr_dataset_unref(dataset);
    return r;
}

uint64_t hr_producer_slot_bytes(uint64_t sample_bytes)
{
    return hr__round_up(sample_bytes, SLOT_ALIGN);
}

/* Receives one message. `until_ns` 0: one that is here already. Returns 1; 0: none; -ECONNRESET;
 * other errors. */
static int receive(int socket, struct hr__wire_message *m, uint64_t until_ns,
                   struct hr_error *error)
{
    for (;;) {
        int r = hr__wire_receive(socket, MSG_DONTWAIT, m, error);
        if (!r || r == -ECONNRESET || r == -EPIPE)
            return hr__fail(error, -ECONNRESET, "the agent has ended");
        if (r == 1 && m->type == HR__WIRE_REFUSED)
            return hr__fail(error, m->refused.code, "%s", m->refused.message);
        if (r != -EAGAIN && r != -EINTR)
            return r;
        uint64_t now_ns = hr__now_ns();
        if (now_ns >= until_ns)
            return 0;
        struct pollfd wanted = {.fd = socket, .events = POLLIN};
        (void)poll(&wanted, 1, (int)((until_ns - now_ns) / 1000000 + 1));
    }
}

/* Waits for a message of this type. */
static int expect(int socket, enum hr__wire_type type, struct hr_error *error)
{
    struct hr__wire_message m;
    int r = receive(socket, &m, hr__now_ns() + ANSWER_NS, error);
    if (!r)
        return hr__fail(error, -ETIMEDOUT, "the agent does not answer: is it stopped?");
    if (r < 0)
        return r;
    hr__wire_close_files(&m);
    return m.type == type ? 0
                          : hr__fail(error, -EPROTO,
                                     "the agent sent an unexpected answer to a producer: do it and "
                                     "this process have the same version?");
}

static int greet(int socket, struct hr_error *error)
{
    struct hr__wire_message m = {.type = HR__WIRE_HELLO, .hello = {.pid = getpid()}};
    snprintf(m.hello.program, sizeof m.hello.program, "producer");
    /* If sending fails, the error of receiving says why. */
    (void)hr__wire_send(socket, &m);
    return expect(socket, HR__WIRE_WELCOME, error);
}

static int send_produce(struct hr_producer *p, const struct hr_dataset *dataset, int memory,
                        struct hr_error *error)
{
    char *text = NULL;
    int r = hr__statement_write(&text, dataset, NULL, error);
    if (r)
        return r;
    struct hr__wire_message m = {
        .type = HR__WIRE_PRODUCE,
        .produce = {.text_bytes = strlen(text), .slots = p->slots, .job = (int32_t)getppid()},
        .files = {hr__wire_text_file(text, strlen(text)), memory},
        .file_count = 2};
    hr__free(text);
    if (m.files[0] < 0)
        return hr__fail(error, m.files[0], "no memory for a message to the agent: %s",
                        hr__errno_text(m.files[0]));
    (void)hr__wire_send(p->socket, &m);
    close(m.files[0]);
    return expect(p->socket, HR__WIRE_PRODUCING, error);
}

static int count_slots(uint32_t *slots, const struct hr_dataset *dataset, int memory,
                       struct hr_error *error)
{
    struct stat st;
    uint64_t slot = hr_producer_slot_bytes(dataset->produced->sample_bytes);
    uint64_t bytes = fstat(memory, &st) ? 0 : (uint64_t)st.st_size;
    *slots = (uint32_t)(bytes / slot);
    if (bytes % slot || bytes / slot < HR__WIRE_SLOTS_MIN || bytes / slot > HR__WIRE_SLOTS_MAX)
        return hr__fail(error, -EINVAL,
                        "a producer's memory of %" PRIu64
                        " bytes must be %u to %u slots of %" PRIu64,
                        bytes, HR__WIRE_SLOTS_MIN, HR__WIRE_SLOTS_MAX, slot);
    return 0;
}

int hr_producer_connect(struct hr_producer **out, const char *agent,
                        const struct hr_dataset *dataset, int memory, struct hr_error *error)
{
    uint32_t slots = 0;
    *out = NULL;
    if (!dataset->produced)
        return hr__fail(error, -EINVAL, "a producer is for datasets of hr_produced_create");
    int r = count_slots(&slots, dataset, memory, error);
    if (r)
        return r;
    struct hr_producer *p = hr__alloc(HR__TAG_AGENT, 1, sizeof *p);
    if (!p)
        return hr__fail(error, -ENOMEM, "out of memory for a producer");
    p->slots = slots;
    p->socket = -1;
    r = hr__launch_connect(&p->socket, agent && strcmp(agent, "auto") ? agent : NULL, error);
    if (!r)
        r = greet(p->socket, error);
    if (!r)
        r = send_produce(p, dataset, memory, error);
    if (r)
        hr_producer_destroy(&p);
    *out = p;
    return r;
}

void hr_producer_destroy(struct hr_producer **producer)
{
    struct hr_producer *p = *producer;
    if (!p)
        return;
    *producer = NULL;
    if (p->socket >= 0) {
        const struct hr__wire_message m = {.type = HR__WIRE_LEAVE};
        (void)hr__wire_send(p->socket, &m);
        shutdown(p->socket, SHUT_RDWR); /* a forked child may have it too */
        close(p->socket);
    }
    hr__free(p);
}

/* Takes a task that is here. Returns 1; 0: none; errors. */
static int take_one(struct hr_producer *p, struct hr_producer_task *task, struct hr_error *error)
{
    struct hr__wire_message m;
    int r = receive(p->socket, &m, 0, error);
    if (r != 1)
        return r;
    hr__wire_close_files(&m);
    if (m.type != HR__WIRE_MAKE || m.make.slot >= p->slots || !m.make.request ||
        p->request[m.make.slot])
        return hr__fail(error, -EPROTO, "the agent sent a producer an unexpected message");
    p->request[m.make.slot] = m.make.request;
    *task = (struct hr_producer_task){
        .index = m.make.index, .epoch = m.make.epoch, .seed = m.make.seed, .slot = m.make.slot};
    return 1;
}

int hr_producer_take(struct hr_producer *p, struct hr_producer_task *tasks, int most, int stop,
                     struct hr_error *error)
{
    if (most < 1)
        return hr__fail(error, -EINVAL, "most = %d: must be at least 1", most);
    int count = take_one(p, tasks, error);
    if (!count) {
        struct pollfd wanted[2] = {{.fd = p->socket, .events = POLLIN},
                                   {.fd = stop, .events = POLLIN}};
        int n = poll(wanted, 2, WAIT_MS);
        if (n < 0)
            return hr__fail(error, -errno, "waiting for the agent: %s", hr__errno_text(-errno));
        if (!n || wanted[1].revents)
            return 0;
        count = take_one(p, tasks, error);
    }
    for (int r = count; r == 1 && count < most; count += r)
        if ((r = take_one(p, &tasks[count], error)) < 0)
            return r;
    return count;
}

int hr_producer_next(struct hr_producer *p, struct hr_producer_task *task, int stop,
                     struct hr_error *error)
{
    return hr_producer_take(p, task, 1, stop, error);
}

static int answer(struct hr_producer *p, struct hr__wire_message *m, struct hr_error *error)
{
    uint32_t slot = m->made.slot;
    if (slot >= p->slots || !p->request[slot])
        return hr__fail(error, -EINVAL, "slot %" PRIu32 " of a producer has no task", slot);
    m->type = HR__WIRE_MADE;
    m->made.request = p->request[slot];
    p->request[slot] = 0;
    int r = hr__wire_send(p->socket, m);
    return r ? hr__fail(error, -ECONNRESET, "the agent has ended") : 0;
}

int hr_producer_done(struct hr_producer *p, uint32_t slot, int64_t label, struct hr_error *error)
{
    struct hr__wire_message m = {.made = {.slot = slot, .label = label}};
    return answer(p, &m, error);
}

int hr_producer_failed(struct hr_producer *p, uint32_t slot, const char *reason,
                       struct hr_error *error)
{
    struct hr__wire_message m = {.made = {.slot = slot, .is_bad = 1}};
    hr__printable(m.made.reason, sizeof m.made.reason, reason);
    return answer(p, &m, error);
}
