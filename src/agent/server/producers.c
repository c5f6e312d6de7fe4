/* See producers.h. */
#include "agent/server/producers.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/round.h"
#include "base/thread.h"
#include "storage/backend.h"

#include <headrace/producer.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* A producer has as many requests as it answers in this time, and at least OWED_MIN: so many small
 * samples travel at a time, and no producer idles while another has a long queue. */
#define OWED_NS  UINT64_C(10000000)
#define OWED_MIN 2
/* The usual time of a sample is the mean over about as many. */
#define USUAL_OVER 64
/* So often may producers end over one sample. */
#define DEATHS_MAX 3
/* How long requests wait without any producer: a job whose processes ended may start others, and
 * after the agent was replaced they connect again. */
#define LONELY_NS UINT64_C(30000000000)
/* A producer does not answer if it takes so long, and so many times the usual time. */
#define SILENT_NS    UINT64_C(5000000000)
#define SILENT_TIMES 8
/* So long after a producer ended it shows whether its job ended, too: then the sample is not the
 * reason. */
#define SHOW_NS UINT64_C(300000000)
/* How often waiting threads look for what time has decided. */
#define LOOK_NS UINT64_C(100000000)

struct request {
    struct request *next;
    uint64_t number;
    struct production *by;
    struct hr__read *read;
    bool is_urgent;   /* a worker waits for it */
    int owers;        /* producers that have it */
    int deaths;       /* of producers that had it, of jobs that lived on */
    int32_t died_of;  /* job of the producer that ended last over it; 0: none, or counted */
    uint64_t wait_ns; /* not sent again before this time */
};

enum producer_slot_state { SLOT_FREE, SLOT_ASKED, SLOT_HELD };

struct producer_slot {
    struct shared_slots *memory;
    enum producer_slot_state state;
    uint64_t request; /* ASKED: its number */
    uint64_t asked_ns;
};

/* The memory of one producer. Kept by it and by each HELD slot. */
struct shared_slots {
    struct hr__producers *producers;
    int refs;
    const uint8_t *bytes;
    size_t length;
    uint32_t count;
    struct producer_slot slots[];
};

struct hr__producer {
    struct hr__producer *next;
    struct shared_slots *memory;
    int socket;
    int32_t job;
    int owed;             /* its slots that are ASKED */
    uint64_t answered_ns; /* its last answer */
    bool is_trying;       /* a sample over which a producer ended, and nothing else */
    bool is_silent;       /* it does not answer */
    bool is_leaving;      /* it said so */
    bool is_broken;       /* sending failed; its connection will end */
};

/* One user of the sample source: a fetcher, or a worker that waits for one sample. */
struct production {
    struct hr__producers *producers;
    struct hr__read_list *out; /* the reader's list */
    struct hr__read_list done; /* completed, not in the reader's list yet */
    bool is_worker;
};

struct hr__producers {
    struct hr__sample_source source;
    uint64_t sample_bytes, slot_bytes;
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t done;
    struct hr__producer *first; /* oldest first */
    struct request *requests, **requests_end;
    uint64_t next_number;
    uint64_t usual_ns;  /* mean time that a producer takes for a sample; 0: unknown */
    uint64_t answers;   /* of which it is the mean, up to USUAL_OVER */
    uint64_t look_ns;   /* when to look again for producers that do not answer */
    uint64_t lonely_ns; /* since when there is no producer; 0: there is one */
    int count, active;  /* producers; those of them that get requests */
    int jobs;           /* that need samples */
    int32_t *pids;      /* of these */
};

/* Completing requests */

static void unref_memory_locked(struct shared_slots *memory)
{
    if (--memory->refs)
        return;
    munmap((void *)(uintptr_t)memory->bytes, memory->length);
    hr__free(memory);
}

static void unlink_request(struct hr__producers *p, struct request *request)
{
    struct request **link = &p->requests;
    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    if (!*link)
        p->requests_end = link;
    hr__free(request);
}

static void complete_locked(struct hr__producers *p, struct request *request, int result)
{
    request->read->result = result;
    request->read->completed_ns = hr__now_ns();
    hr__read_list_append(&request->by->done, request->read);
    unlink_request(p, request);
    pthread_cond_broadcast(&p->done);
}

static void fail_locked(struct hr__producers *p, struct request *request, int result,
                        const char *reason)
{
    request->read->reason = hr__strdup(HR__TAG_AGENT, reason);
    complete_locked(p, request, request->read->reason ? result : -ENOMEM);
}

static struct request *find_request(struct hr__producers *p, uint64_t number)
{
    struct request *request = p->requests;
    while (request && request->number != number)
        request = request->next;
    return request;
}

/* Sending requests */

static uint64_t silent_after_ns(const struct hr__producers *p)
{
    uint64_t ns = p->usual_ns * SILENT_TIMES;
    return ns > SILENT_NS ? ns : SILENT_NS;
}

static bool may_work(const struct hr__producer *producer)
{
    return !producer->is_silent && !producer->is_leaving && !producer->is_broken;
}

/* Returns how many requests producers have at a time. */
static int owed_most(const struct hr__producers *p)
{
    uint64_t most = p->usual_ns ? OWED_NS / p->usual_ns : OWED_MIN;
    if (most > HR__WIRE_SLOTS_MAX)
        most = HR__WIRE_SLOTS_MAX;
    return most > OWED_MIN ? (int)most : OWED_MIN;
}

/* Returns how many requests this producer has at a time. Beyond OWED_MIN, as many samples may wait
 * in its memory to be copied, and one slot is for workers. */
static int owed_most_of(const struct hr__producers *p, const struct hr__producer *producer)
{
    int most = owed_most(p), room = ((int)producer->memory->count - 1) / 2;
    room = room > OWED_MIN ? room : OWED_MIN;
    return most < room ? most : room;
}

static struct producer_slot *free_slot(struct hr__producer *producer)
{
    struct shared_slots *memory = producer->memory;
    for (uint32_t i = 0; i < memory->count; i++)
        if (memory->slots[i].state == SLOT_FREE)
            return &memory->slots[i];
    return NULL;
}

/* Returns whether a producer has a slot for the request. Its last free one is for workers: the
 * other slots may hold samples that wait for these very workers. */
static bool has_room(const struct hr__producer *producer, const struct request *request)
{
    int needed = request->is_urgent ? 1 : 2;
    for (uint32_t i = 0; i < producer->memory->count && needed; i++)
        needed -= producer->memory->slots[i].state == SLOT_FREE;
    return !needed;
}

/* Returns the active producer that owes least and has room; NULL: there is none. A sample over
 * which a producer ended goes to one that owes nothing: then it is clear what ends that one. */
static struct hr__producer *choose(struct hr__producers *p, const struct request *request)
{
    struct hr__producer *found = NULL;
    int left = p->active;
    for (struct hr__producer *producer = p->first; producer && left; producer = producer->next) {
        if (!may_work(producer))
            continue;
        left--;
        int most = request->deaths ? 1 : owed_most_of(p, producer);
        if (!producer->is_trying && producer->owed < most &&
            (!found || producer->owed < found->owed) && has_room(producer, request))
            found = producer;
    }
    return found;
}

/* Returns whether the request was sent. */
static bool send_locked(struct hr__producer *producer, struct request *request)
{
    struct producer_slot *slot = free_slot(producer);
    const struct hr__read *read = request->read;
    const struct hr__wire_message message = {
        .type = HR__WIRE_MAKE,
        .make = {.request = request->number,
                 .index = read->sample.index,
                 .epoch = read->sample.epoch,
                 .seed = read->sample.seed,
                 .slot = (uint32_t)(slot - producer->memory->slots)}};
    if (hr__wire_send(producer->socket, &message)) {
        producer->is_broken = true;
        shutdown(producer->socket, SHUT_RDWR); /* the loop will see its connection end */
        return false;
    }
    slot->state = SLOT_ASKED;
    slot->request = request->number;
    slot->asked_ns = hr__now_ns();
    producer->owed++;
    producer->is_trying = request->deaths > 0;
    request->owers++;
    return true;
}

static bool is_attached(const struct hr__producers *p, int32_t pid)
{
    for (int i = 0; i < p->jobs; i++)
        if (p->pids[i] == pid)
            return true;
    return false;
}

/* Decides whether a sample is the reason why a producer ended. Returns true if it is bad. */
static bool is_fatal_locked(struct hr__producers *p, struct request *request)
{
    if (request->died_of && is_attached(p, request->died_of))
        request->deaths++;
    request->died_of = 0;
    if (request->deaths < DEATHS_MAX)
        return false;
    fail_locked(p, request, -EBADMSG,
                "the processes that made it ended, one after the other: look for a crash or the "
                "kernel's out-of-memory killer (dmesg)");
    return true;
}

/* Sends the waiting requests that producers have room for. */
static void send_waiting_locked(struct hr__producers *p)
{
    for (struct request *request = p->requests, *next; request; request = next) {
        next = request->next;
        if (!request->owers && request->wait_ns &&
            (request->wait_ns > hr__now_ns() || is_fatal_locked(p, request)))
            continue;
        request->wait_ns = 0;
        while (!request->owers) {
            struct hr__producer *producer = choose(p, request);
            if (!producer)
                return;
            send_locked(producer, request);
        }
    }
}

/* Returns whether a producer owes an answer for longer than this. */
static bool is_late(const struct hr__producer *producer, uint64_t now_ns, uint64_t limit_ns)
{
    for (uint32_t i = 0; i < producer->memory->count; i++) {
        const struct producer_slot *slot = &producer->memory->slots[i];
        if (slot->state == SLOT_ASKED && now_ns - slot->asked_ns > limit_ns &&
            now_ns - producer->answered_ns > limit_ns)
            return true;
    }
    return false;
}

/* Requests what a producer owes that does not answer from others. */
static void ask_others_locked(struct hr__producers *p, const struct hr__producer *silent)
{
    for (uint32_t i = 0; i < silent->memory->count; i++) {
        const struct producer_slot *slot = &silent->memory->slots[i];
        struct request *request = slot->state == SLOT_ASKED ? find_request(p, slot->request) : NULL;
        struct hr__producer *other = request && request->owers == 1 ? choose(p, request) : NULL;
        if (other)
            send_locked(other, request);
    }
}

/* Finds producers that do not answer. */
static void look_for_silent_locked(struct hr__producers *p, uint64_t now_ns)
{
    uint64_t limit_ns = silent_after_ns(p);
    if (now_ns < p->look_ns)
        return;
    p->look_ns = now_ns + LOOK_NS;
    for (struct hr__producer *producer = p->first; producer; producer = producer->next)
        producer->is_silent = producer->is_silent || is_late(producer, now_ns, limit_ns);
    for (struct hr__producer *producer = p->first; producer; producer = producer->next)
        if (producer->is_silent)
            ask_others_locked(p, producer);
}

/* Does what is due by now. */
static void look_locked(struct hr__producers *p)
{
    uint64_t now_ns = hr__now_ns();
    if (p->first) {
        look_for_silent_locked(p, now_ns);
        send_waiting_locked(p);
        return;
    }
    for (struct request *request = p->requests, *next; request; request = next) {
        next = request->next;
        uint64_t since_ns = request->read->submitted_ns;
        since_ns = since_ns > p->lonely_ns ? since_ns : p->lonely_ns;
        if (p->jobs && now_ns < since_ns + LONELY_NS)
            continue;
        fail_locked(p, request, p->jobs ? -ESRCH : -ECANCELED,
                    "no process is left that makes the samples: the worker processes of all jobs "
                    "have ended. Look for a crash or the kernel's out-of-memory killer (dmesg)");
    }
}

/* The sample source */

static int open_production(struct hr__sample_source *source, void **self,
                           struct hr__read_list *done)
{
    struct production *production = hr__alloc(HR__TAG_AGENT, 1, sizeof *production);
    if (!production)
        return -ENOMEM;
    production->producers = (struct hr__producers *)source; /* its first member */
    production->out = done;
    *self = production;
    return 0;
}

static int submit(void *self, struct hr__read *read)
{
    struct production *production = self;
    struct hr__producers *p = production->producers;
    struct request *request = hr__alloc(HR__TAG_AGENT, 1, sizeof *request);
    if (!request)
        return -ENOMEM;
    request->by = production;
    request->read = read;
    read->submitted_ns = hr__now_ns();
    pthread_mutex_lock(&p->lock);
    request->number = ++p->next_number;
    request->is_urgent = production->is_worker;
    struct request **link = request->is_urgent ? &p->requests : p->requests_end;
    request->next = *link;
    *link = request;
    if (!request->next)
        p->requests_end = &request->next;
    look_locked(p);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static void take_done_locked(struct production *production)
{
    for (struct hr__read *read; (read = hr__read_list_take(&production->done));)
        hr__read_list_append(production->out, read);
}

static int progress(void *self, int64_t timeout_ns)
{
    struct production *production = self;
    struct hr__producers *p = production->producers;
    uint64_t now_ns = hr__now_ns();
    uint64_t until_ns = timeout_ns < 0 ? UINT64_MAX : now_ns + (uint64_t)timeout_ns;
    pthread_mutex_lock(&p->lock);
    while (!production->done.first && now_ns < until_ns) {
        uint64_t look_ns = now_ns + LOOK_NS;
        struct timespec due = hr__timespec(look_ns < until_ns ? look_ns : until_ns);
        pthread_cond_timedwait(&p->done, &p->lock, &due);
        now_ns = hr__now_ns();
        if (!production->done.first)
            look_locked(p);
    }
    take_done_locked(production);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

/* Forgets the requests in flight. What producers still make of them is not used. */
static void close_production(void *self)
{
    struct production *production = self;
    struct hr__producers *p = production->producers;
    pthread_mutex_lock(&p->lock);
    for (struct request *request = p->requests, *next; request; request = next) {
        next = request->next;
        if (request->by == production)
            complete_locked(p, request, -ECANCELED);
    }
    take_done_locked(production);
    pthread_mutex_unlock(&p->lock);
    hr__free(production);
}

static int read_one(struct hr__sample_source *source, struct hr__read *read)
{
    struct hr__read_list done = {NULL, NULL};
    void *self;
    int r = open_production(source, &self, &done);
    if (r)
        return read->result = r;
    ((struct production *)self)->is_worker = true;
    r = submit(self, read);
    while (!r && !done.first)
        r = progress(self, -1);
    close_production(self);
    return r ? (read->result = r) : read->result;
}

static const struct hr__reader_backend backend = {
    .submit = submit, .progress = progress, .destroy = close_production};

struct hr__sample_source *hr__producers_source(struct hr__producers *producers)
{
    return &producers->source;
}

/* Producers */

int hr__producers_create(struct hr__producers **out, uint64_t sample_bytes, struct hr_error *error)
{
    struct hr__producers *p = *out = hr__alloc(HR__TAG_AGENT, 1, sizeof *p);
    if (!p)
        return hr__fail(error, -ENOMEM, "the agent is out of memory for producers");
    pthread_mutex_init(&p->lock, NULL);
    hr__cond_init(&p->done);
    p->source =
        (struct hr__sample_source){.backend = &backend, .open = open_production, .read = read_one};
    atomic_init(&p->source.depth, 1);
    p->sample_bytes = sample_bytes;
    p->slot_bytes = hr_producer_slot_bytes(sample_bytes);
    p->requests_end = &p->requests;
    p->lonely_ns = hr__now_ns();
    return 0;
}

void hr__producers_destroy(struct hr__producers **producers)
{
    if (!*producers)
        return;
    pthread_cond_destroy(&(*producers)->done);
    pthread_mutex_destroy(&(*producers)->lock);
    hr__free((*producers)->pids);
    hr__free(*producers);
    *producers = NULL;
}

int hr__producers_enter(struct hr__producers *p, int32_t pid, struct hr_error *error)
{
    pthread_mutex_lock(&p->lock);
    int32_t *pids = hr__realloc(HR__TAG_AGENT, p->pids, (size_t)p->jobs + 1, sizeof *pids);
    if (pids) {
        p->pids = pids;
        p->pids[p->jobs++] = pid;
    }
    pthread_mutex_unlock(&p->lock);
    return pids ? 0 : hr__fail(error, -ENOMEM, "the agent is out of memory for a job");
}

void hr__producers_exit(struct hr__producers *p, int32_t pid)
{
    int i = 0;
    pthread_mutex_lock(&p->lock);
    while (p->pids[i] != pid)
        i++;
    p->pids[i] = p->pids[--p->jobs];
    look_locked(p);
    pthread_mutex_unlock(&p->lock);
}

int hr__producers_count(struct hr__producers *p)
{
    pthread_mutex_lock(&p->lock);
    int count = p->count;
    pthread_mutex_unlock(&p->lock);
    return count;
}

/* Lets readers have enough requests that each producer has its next ones, and some are on their
 * way. */
static void set_depth_locked(struct hr__producers *p)
{
    unsigned depth = (unsigned)(p->active + 1) * (unsigned)(owed_most(p) + 1);
    if (atomic_load(&p->source.depth) != depth)
        atomic_store(&p->source.depth, depth);
}

/* Counts the producers, and how many of them may work at a time. */
static void count_locked(struct hr__producers *p)
{
    p->count = p->active = 0;
    for (const struct hr__producer *one = p->first; one; one = one->next) {
        int same = 0;
        for (const struct hr__producer *other = p->first; other; other = other->next)
            same += other->job == one->job;
        p->active = same > p->active ? same : p->active;
        p->count++;
    }
    set_depth_locked(p);
}

static int map_memory(struct hr__producers *p, struct shared_slots **out, uint32_t slots, int file,
                      struct hr_error *error)
{
    const int sealed = F_SEAL_SHRINK | F_SEAL_GROW;
    struct stat st;
    size_t length = slots * p->slot_bytes;
    int seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || (seals & sealed) != sealed || fstat(file, &st) ||
        (uint64_t)st.st_size != length)
        return hr__fail(error, -EINVAL,
                        "a producer's memory must be a memfd of %zu bytes (%" PRIu32
                        " slots of %" PRIu64 "), sealed against shrinking and growing",
                        length, slots, p->slot_bytes);
    struct shared_slots *memory =
        hr__alloc(HR__TAG_AGENT, 1, sizeof *memory + slots * sizeof *memory->slots);
    void *bytes = memory ? mmap(NULL, length, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    if (bytes == MAP_FAILED) {
        hr__free(memory);
        return hr__fail(error, -ENOMEM, "the agent has no memory for a producer's samples");
    }
    memory->producers = p;
    memory->refs = 1;
    memory->bytes = bytes;
    memory->length = length;
    memory->count = slots;
    for (uint32_t i = 0; i < slots; i++)
        memory->slots[i].memory = memory;
    *out = memory;
    return 0;
}

int hr__producers_join(struct hr__producers *p, struct hr__producer **out,
                       const struct hr__wire_produce *produce, int socket, int memory,
                       struct hr_error *error)
{
    struct hr__producer *producer = *out = hr__alloc(HR__TAG_AGENT, 1, sizeof *producer);
    if (!producer)
        return hr__fail(error, -ENOMEM, "the agent is out of memory for a producer");
    int r = map_memory(p, &producer->memory, produce->slots, memory, error);
    if (r) {
        hr__free(producer);
        *out = NULL;
        return r;
    }
    producer->socket = socket;
    producer->job = produce->job;
    /* Before its first request. */
    producer->is_broken =
        hr__wire_send(socket, &(struct hr__wire_message){.type = HR__WIRE_PRODUCING}) != 0;
    if (producer->is_broken)
        shutdown(socket, SHUT_RDWR);
    pthread_mutex_lock(&p->lock);
    struct hr__producer **link = &p->first;
    while (*link)
        link = &(*link)->next;
    *link = producer;
    p->lonely_ns = 0;
    count_locked(p);
    send_waiting_locked(p);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

void hr__producers_excuse(struct hr__producers *p, struct hr__producer *producer)
{
    pthread_mutex_lock(&p->lock);
    producer->is_leaving = true;
    pthread_mutex_unlock(&p->lock);
}

/* A producer ended. Each sample that it owed may be the reason. */
static void give_up_locked(struct hr__producers *p, struct hr__producer *producer)
{
    for (uint32_t i = 0; i < producer->memory->count; i++) {
        struct producer_slot *slot = &producer->memory->slots[i];
        struct request *request = slot->state == SLOT_ASKED ? find_request(p, slot->request) : NULL;
        if (!request || --request->owers || producer->is_leaving)
            continue;
        request->died_of = producer->job;
        request->wait_ns = hr__now_ns() + SHOW_NS;
    }
}

void hr__producers_leave(struct hr__producers *p, struct hr__producer **out)
{
    struct hr__producer *producer = *out;
    *out = NULL;
    pthread_mutex_lock(&p->lock);
    struct hr__producer **link = &p->first;
    while (*link != producer)
        link = &(*link)->next;
    *link = producer->next;
    if (!p->first)
        p->lonely_ns = hr__now_ns();
    count_locked(p);
    give_up_locked(p, producer);
    unref_memory_locked(producer->memory);
    look_locked(p);
    pthread_mutex_unlock(&p->lock);
    hr__free(producer);
}

/* A worker has copied the sample. */
static void release_slot(void *arg)
{
    struct producer_slot *slot = arg;
    struct shared_slots *memory = slot->memory;
    struct hr__producers *p = memory->producers;
    pthread_mutex_lock(&p->lock);
    slot->state = SLOT_FREE;
    unref_memory_locked(memory);
    send_waiting_locked(p);
    pthread_mutex_unlock(&p->lock);
}

/* Adds the time that a producer took for a sample to the usual time. Samples that arrive together
 * were made together: the first of them took the time of all. */
static void note_answer_locked(struct hr__producers *p, struct hr__producer *producer,
                               uint64_t asked_ns)
{
    uint64_t now_ns = hr__now_ns();
    uint64_t since_ns = asked_ns > producer->answered_ns ? asked_ns : producer->answered_ns;
    producer->answered_ns = now_ns;
    p->answers += p->answers < USUAL_OVER;
    p->usual_ns = (p->usual_ns * (p->answers - 1) + (now_ns - since_ns)) / p->answers;
    set_depth_locked(p);
}

int hr__producers_made(struct hr__producers *p, struct hr__producer *producer,
                       const struct hr__wire_made *made)
{
    struct shared_slots *memory = producer->memory;
    struct producer_slot *slot = made->slot < memory->count ? &memory->slots[made->slot] : NULL;
    pthread_mutex_lock(&p->lock);
    bool was_asked = slot && slot->state == SLOT_ASKED && slot->request == made->request;
    if (was_asked) {
        note_answer_locked(p, producer, slot->asked_ns);
        slot->state = SLOT_FREE;
        if (!--producer->owed)
            producer->is_trying = false;
        producer->is_silent = false;
        struct request *request = find_request(p, made->request);
        if (request && made->is_bad) {
            fail_locked(p, request, -EBADMSG, made->reason);
        } else if (request) {
            struct hr__read *read = request->read;
            slot->state = SLOT_HELD;
            memory->refs++;
            read->bytes = (uint8_t *)(uintptr_t)(memory->bytes + made->slot * p->slot_bytes);
            read->length = p->sample_bytes;
            read->label = made->label;
            read->release = release_slot;
            read->release_arg = slot;
            complete_locked(p, request, 0);
        }
        send_waiting_locked(p);
    }
    pthread_mutex_unlock(&p->lock);
    return was_asked;
}
