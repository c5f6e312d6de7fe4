/* See fake_agent.h. */
#include "fake_agent.h"

#include "agent/launch.h"
#include "agent/statement.h"
#include "base/error.h"
#include "base/memory.h"
#include "order/order.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define QUEUES      4
#define CONNECTIONS 64

struct fake_agent_options fake_agent;
struct fake_agent_seen fake_agent_seen;

static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER; /* guards fake_agent_seen.attach */
static pthread_t threads[CONNECTIONS];
static int thread_count;

/* One queue of a connection. */
struct fake_agent_row {
    struct fake_queue queue;
    struct connection *of;
    int is_alone, is_sent;
    uint64_t epoch, position; /* in the order, at `first` */
    uint64_t first;           /* sequence number of the first sample */
    uint64_t samples;         /* samples from `first` on */
    uint64_t done;            /* samples that are published */
    int is_halted;
};

struct connection {
    int socket, number;
    struct hr__wire_attach attach;
    struct fake_agent_row *rows[QUEUES];
    int row_count, current;
    struct hr__order *order;
    uint64_t order_epoch;
    uint64_t chunks;
    int was_expelled;
    int is_attaching; /* the agent still has to send ATTACHED */
    int is_over;
};

unsigned char fake_sample_byte(uint64_t epoch, uint64_t index, uint64_t byte)
{
    return fake_byte(epoch * 1000003 + index, byte);
}

static void send_it(struct connection *c, struct hr__wire_message *m)
{
    int r = hr__wire_send(c->socket, m);
    if (r && r != -EPIPE && r != -ECONNRESET)
        fprintf(stderr, "fake agent: %s\n", strerror(-r));
}

static void send_garbled(struct connection *c)
{
    char bytes[HR__WIRE_BYTES_MAX];
    const struct hr__wire_message m = {.type = HR__WIRE_WAITING};
    size_t length = hr__wire_pack(&m, bytes);
    bytes[4] ^= 0x40; /* the version */
    (void)!send(c->socket, bytes, length, MSG_NOSIGNAL);
}

static int is_bad(uint64_t index)
{
    return fake_agent.bad_every && index % fake_agent.bad_every == 0;
}

static uint64_t index_at(struct connection *c, uint64_t epoch, uint64_t position)
{
    struct hr_error error;
    if (!c->order || c->order_epoch != epoch) {
        hr__order_destroy(&c->order);
        if (hr__order_create(&c->order, fake_agent.samples, c->attach.shuffle, c->attach.seed,
                             epoch, &error))
            abort();
        c->order_epoch = epoch;
    }
    return hr__order_at(c->order, position % fake_agent.samples);
}

static void fill(struct fake_queue *queue, uint64_t sequence, unsigned char *image,
                 struct hr__header_sample *sample)
{
    struct fake_agent_row *row = queue->arg;
    struct connection *c = row->of;
    uint64_t position = row->position + (sequence - row->first) * (uint64_t)c->attach.world_size +
                        (uint64_t)c->attach.rank;
    uint64_t index = index_at(c, row->epoch, position);
    *sample = (struct hr__header_sample){.index = (int64_t)index, .instead = -1};
    if (is_bad(index)) {
        sample->instead = (int64_t)index;
        sample->index = (int64_t)(index + 1);
        struct hr__wire_message m = {.type = HR__WIRE_BAD,
                                     .bad = {.sequence = sequence, .index = index}};
        for (int i = 0; i < c->row_count; i++)
            if (c->rows[i] == row)
                m.bad.cursor = (uint32_t)i;
        snprintf(m.bad.reason, sizeof m.bad.reason, "reason %d", (int)index);
        send_it(c, &m);
    }
    sample->label = sample->index % 7;
    for (uint64_t b = 0; b < queue->sample_bytes; b++)
        image[b] = fake_sample_byte(row->epoch, (uint64_t)sample->index, b);
}

static struct fake_agent_row *add_row(struct connection *c, int is_alone)
{
    struct fake_agent_row *row = calloc(1, sizeof *row);
    uint64_t batch = (uint64_t)c->attach.batch_size;
    if (!row || c->row_count == QUEUES)
        abort();
    uint64_t ring =
        fake_agent.ring_samples ? fake_agent.ring_samples : batch * (uint64_t)c->attach.window;
    fake_queue_make(&row->queue, fake_agent.spec.bytes, 0, batch, ring);
    row->queue.fill = fill;
    row->queue.arg = row;
    row->of = c;
    row->is_alone = is_alone;
    c->rows[c->row_count++] = row;
    return row;
}

static void begin(struct fake_agent_row *row, uint64_t epoch, uint64_t position)
{
    uint64_t left = fake_agent.samples - position, ranks = (uint64_t)row->of->attach.world_size;
    row->epoch = epoch;
    row->position = position;
    row->first = row->queue.next_chunk * row->queue.chunk_samples;
    row->samples = left / ranks + (left % ranks != 0);
    row->done = 0;
    row->is_halted = 0;
    atomic_store(&row->queue.header->halt, HR__SEQUENCE_NONE);
    atomic_store(&row->queue.header->epoch, epoch);
}

/* Returns non-zero if the queue has the position, from its floor on. */
static int has(const struct fake_agent_row *row, uint64_t epoch, uint64_t position)
{
    uint64_t ranks = (uint64_t)row->of->attach.world_size;
    if (row->is_halted || !row->samples || row->epoch != epoch || position < row->position ||
        (position - row->position) % ranks)
        return 0;
    uint64_t sequence = row->first + (position - row->position) / ranks;
    return sequence >= atomic_load(&row->queue.header->tail) &&
           sequence <= row->first + row->samples;
}

static void cursor(struct connection *c, const struct hr__wire_seek *seek)
{
    uint64_t epoch = seek->epoch, position = seek->position;
    uint64_t ranks = (uint64_t)c->attach.world_size;
    if (seek->is_first && fake_agent.join_epoch) {
        epoch = fake_agent.join_epoch;
        position = fake_agent.join_position;
    }
    int sits_alone = c->was_expelled && position < fake_agent.return_at;
    int which = sits_alone ? 1 : 0;
    while (c->row_count <= which)
        add_row(c, c->row_count > 0);
    struct fake_agent_row *row = c->rows[which];
    if (!has(row, epoch, position))
        begin(row, epoch, position);
    c->current = which;
    struct hr__wire_message m = {
        .type = HR__WIRE_PLACED,
        .placed = {.number = seek->number,
                   .cursor = (uint32_t)which,
                   .is_new = !row->is_sent,
                   .is_alone = (uint32_t)row->is_alone,
                   .epoch = epoch,
                   .position = position,
                   .sequence = row->first + (position - row->position) / ranks,
                   .missed = seek->is_first ? position : 0}};
    m.placed.samples = row->samples - (m.placed.sequence - row->first);
    if (!row->is_sent) {
        fake_queue_files(&row->queue, m.files);
        m.file_count = 4;
    }
    row->is_sent = 1;
    atomic_store(&row->queue.control->floor, 0);
    atomic_fetch_add(row->is_alone ? &fake_agent_seen.alone_cursors : &fake_agent_seen.main_cursors,
                     1);
    send_it(c, &m);
    hr__wire_close_files(&m);
}

static void halt(struct fake_agent_row *row, int64_t index)
{
    struct connection *c = row->of;
    uint64_t sequence = row->first + row->done;
    struct hr__wire_message m = {.type = HR__WIRE_HALT,
                                 .halt = {.has_sample = 1,
                                          .sequence = sequence,
                                          .index = (uint64_t)index,
                                          .error = {.code = -EBADMSG}}};
    snprintf(m.halt.error.message, sizeof m.halt.error.message, "sample %d is spoilt", (int)index);
    snprintf(m.halt.path, sizeof m.halt.path, "path");
    snprintf(m.halt.reason, sizeof m.halt.reason, "spoilt");
    send_it(c, &m);
    row->is_halted = 1;
    atomic_store(&row->queue.header->halt, sequence);
    atomic_fetch_add(&row->queue.header->bell, 1);
}

/* Publishes a chunk if there is room. */
static int publish(struct connection *c, struct fake_agent_row *row)
{
    uint64_t n = row->samples - row->done;
    if (!n || row->is_halted ||
        (fake_agent.stops_after && c->chunks >= (uint64_t)fake_agent.stops_after))
        return 0;
    if (n > row->queue.chunk_samples)
        n = row->queue.chunk_samples;
    /* A job that is to be expelled must not advance too far before it sees that. */
    if (fake_agent.expel_at && !c->was_expelled && row->done >= fake_agent.expel_at + 32)
        return 0;
    uint64_t ranks = (uint64_t)c->attach.world_size;
    for (uint64_t i = 0; i < n && fake_agent.halt_index >= 0; i++) {
        uint64_t position = row->position + (row->done + i) * ranks + (uint64_t)c->attach.rank;
        if (index_at(c, row->epoch, position) != (uint64_t)fake_agent.halt_index)
            continue;
        if (i && !fake_queue_publish(&row->queue, i, 0))
            return 0;
        row->done += i;
        halt(row, fake_agent.halt_index);
        return 1;
    }
    if (fake_agent.pause_us)
        usleep((unsigned)fake_agent.pause_us);
    if (!fake_queue_publish(&row->queue, n, 0))
        return 0;
    row->done += n;
    c->chunks++;
    return 1;
}

static void expel(struct connection *c)
{
    struct fake_agent_row *row = c->rows[0];
    uint64_t next = atomic_load(&row->queue.control->next);
    if (c->was_expelled || c->current || !fake_agent.expel_at || !row->is_sent ||
        next < row->first + fake_agent.expel_at)
        return;
    c->was_expelled = 1;
    atomic_store(&row->queue.control->floor, next + row->queue.places * row->queue.chunk_samples);
    /* As if the other jobs had advanced meanwhile. */
    atomic_store(&row->queue.header->tail, next + row->queue.chunk_samples);
    struct hr__wire_message m = {.type = HR__WIRE_EXPELLED, .expelled = {.cursor = 0}};
    send_it(c, &m);
    atomic_fetch_add(&row->queue.header->bell, 1);
}

static void welcome(struct connection *c)
{
    struct hr__wire_message m = {
        .type = HR__WIRE_ATTACHED,
        .attached = {.samples = fake_agent.samples, .spec = fake_agent.spec},
    };
    c->is_attaching = 0;
    send_it(c, &m);
}

static void handle(struct connection *c, struct hr__wire_message *m)
{
    struct hr__wire_message answer = {.type = HR__WIRE_WELCOME,
                                      .welcome = {.pid = getpid(), .threads = 3}};
    switch (m->type) {
    case HR__WIRE_HELLO:
        if (c->number < fake_agent.garbles)
            send_garbled(c);
        else
            send_it(c, &answer);
        break;
    case HR__WIRE_ATTACH:
        c->attach = m->attach;
        pthread_mutex_lock(&seen_lock);
        fake_agent_seen.attach = m->attach;
        pthread_mutex_unlock(&seen_lock);
        if (c->number < fake_agent.deaths && !fake_agent.die_after) {
            c->is_over = 1;
            break;
        }
        if (fake_agent.refuses) {
            answer =
                (struct hr__wire_message){.type = HR__WIRE_REFUSED, .refused = {.code = -EINVAL}};
            strcpy(answer.refused.message, "another recipe");
            send_it(c, &answer);
            c->is_over = 1;
            break;
        }
        c->is_attaching = 1;
        break;
    case HR__WIRE_SEEK:
        atomic_fetch_add(&fake_agent_seen.seeks, 1);
        atomic_fetch_add(&fake_agent_seen.first_seeks, m->seek.is_first != 0);
        atomic_store(&fake_agent_seen.last_seek_epoch, m->seek.epoch);
        atomic_store(&fake_agent_seen.last_seek_position, m->seek.position);
        if (m->seek.is_first && fake_agent.waits_first) {
            answer = (struct hr__wire_message){.type = HR__WIRE_WAITING};
            send_it(c, &answer);
            usleep(100000);
        }
        if (fake_agent_seen.seeks > 1 && fake_agent_seen.seeks <= 1 + fake_agent.garbled_cursors)
            send_garbled(c);
        else
            cursor(c, &m->seek);
        break;
    case HR__WIRE_LEAVE:
        atomic_fetch_add(&fake_agent_seen.leaves, 1);
        c->rows[m->leave.cursor % QUEUES]->is_sent = 0;
        break;
    default:
        fprintf(stderr, "fake agent: message %d\n", (int)m->type);
        c->is_over = 1;
    }
}

/* After the connection has ended, its memory is reused. */
static void overwrite(struct connection *c)
{
    for (int i = 0; i < c->row_count; i++) {
        struct fake_queue *queue = &c->rows[i]->queue;
        memset(queue->data, 0xEE, queue->file_bytes);
        atomic_fetch_add(&fake_agent_seen.overwritten, 1);
    }
}

static void *serve(void *arg)
{
    struct connection *c = arg;
    int dies = c->number < fake_agent.deaths;
    while (!c->is_over) {
        struct hr__wire_message m;
        struct hr_error error;
        int r = hr__wire_receive(c->socket, MSG_DONTWAIT, &m, &error);
        if (r == 1) {
            handle(c, &m);
            hr__wire_close_files(&m);
        }
        if (c->is_attaching && !atomic_load(&fake_agent.is_silent))
            welcome(c);
        if (r == 1)
            continue;
        if (r != -EAGAIN) {
            atomic_fetch_add(&fake_agent_seen.hung_up, 1);
            overwrite(c);
            break;
        }
        int did = 0;
        if (c->row_count)
            expel(c);
        for (int i = 0; i < c->row_count; i++)
            did |= publish(c, c->rows[i]);
        if (dies && c->chunks >= fake_agent.die_after)
            break;
        struct pollfd wanted = {.fd = c->socket, .events = POLLIN};
        if (!did)
            poll(&wanted, 1, 1);
    }
    close(c->socket);
    for (int i = 0; i < c->row_count; i++) {
        fake_queue_remove(&c->rows[i]->queue);
        free(c->rows[i]);
    }
    hr__order_destroy(&c->order);
    free(c);
    return NULL;
}

static int connect_to_fake(int *out)
{
    int ends[2];
    struct connection *c = calloc(1, sizeof *c);
    if (!c || thread_count == CONNECTIONS ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        abort();
    c->socket = ends[1];
    c->number = atomic_fetch_add(&fake_agent_seen.connections, 1);
    if (pthread_create(&threads[thread_count++], NULL, serve, c))
        abort();
    *out = ends[0];
    return 0;
}

int __wrap_hr__launch_connect(int *out, const char *path, struct hr_error *error);
int __wrap_hr__launch_auto(int *out, const char *command, struct hr_error *error);
int __wrap_hr__statement_write(char **text, const struct hr_dataset *dataset,
                               const struct hr_recipe *recipe, struct hr_error *error);

int __wrap_hr__launch_connect(int *out, const char *path, struct hr_error *error)
{
    (void)path, (void)error;
    return connect_to_fake(out);
}

int __wrap_hr__launch_auto(int *out, const char *command, struct hr_error *error)
{
    (void)command, (void)error;
    return connect_to_fake(out);
}

int __wrap_hr__statement_write(char **text, const struct hr_dataset *dataset,
                               const struct hr_recipe *recipe, struct hr_error *error)
{
    (void)dataset, (void)recipe, (void)error;
    *text = hr__strdup(HR__TAG_AGENT, "{}");
    return *text ? 0 : -ENOMEM;
}

struct hr__wire_attach fake_agent_attach(void)
{
    pthread_mutex_lock(&seen_lock);
    struct hr__wire_attach attach = fake_agent_seen.attach;
    pthread_mutex_unlock(&seen_lock);
    return attach;
}

void fake_agent_reset(uint64_t samples, const struct hr_tensor_spec *spec)
{
    fake_agent = (struct fake_agent_options){.samples = samples, .spec = *spec, .halt_index = -1};
    memset(&fake_agent_seen, 0, sizeof fake_agent_seen);
}

void fake_agent_join(void)
{
    for (int i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
    thread_count = 0;
}
