/*
 * Simulates flows packet by packet; see network.h.
 *
 * Time is counted in ticks, of which a byte takes 64 on a link: sums are exact. All links and paths
 * have one rate, so a queue is known by the time until which it is busy, and a packet costs four
 * moments: its link is free again, it reaches the queue of its receiver, it is there, and it is
 * acknowledged; a path's queue is one more.
 */
#include "replay/network.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/memory.h"
#include "base/random.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define TICKS        64
#define NO_FLOW      UINT32_MAX
#define NO_LOSS      UINT32_MAX
#define LATER        3 /* acknowledgements of later packets that show a loss */
#define DOUBLED_MOST 6 /* times that a timeout doubles */
#define ALPHA        (1.0 / 16)

enum net_moment_kind { NET_FREE, NET_PATH, NET_PORT, NET_ARRIVED, NET_KNOWN, NET_TIMEOUT };

struct net_moment {
    int64_t at;
    uint64_t order;        /* of its making; breaks ties */
    uint32_t flow, packet; /* NET_FREE: the host instead of a flow */
    uint32_t number;       /* of the flow's sends */
    uint8_t kind, is_marked;
    uint16_t attempt;
};

/* A packet that was lost. */
struct net_loss {
    uint32_t packet, number, next;
    uint16_t attempt;
};

/* Losses, the first one first. */
struct net_list {
    uint32_t first, last;
};

struct net_flow {
    uint32_t packets, needed;
    uint32_t fresh;        /* the first one that was not sent yet */
    uint32_t alive;        /* packets that arrived, or are on their way and will */
    uint32_t arrived;      /* packets */
    uint32_t flight, sent; /* not acknowledged and not known as lost; sends */
    uint32_t path, next;   /* of its host's */
    double window, alpha;
    uint32_t known, marks;        /* acknowledgements in this window; of these, marked */
    struct net_list lost, resend; /* not yet known; known */
};

struct net {
    const struct hr__network *n;
    const struct hr__network_flow *flows;
    struct net_flow *state;
    uint32_t count, hosts, barrier; /* barrier: flows that an `all` still waits for */
    int64_t *link_free, *port_free, *path_free;
    uint32_t *queue; /* by host: its first flow that is not complete */
    struct net_moment *heap;
    size_t heap_count;
    struct net_loss *losses;
    size_t loss_count;
    uint32_t spare; /* losses that are not used */
    uint64_t order;
    int64_t latency, timeout, packet, now;
    double *finish;
    struct hr__network_result *out;
    int no_memory;
};

/* ---- moments ---- */

static int is_before(const void *one, const void *other)
{
    const struct net_moment *a = one, *b = other;
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct net *m, struct net_moment moment)
{
    if (hr__reserve(HR__TAG_REPLAY, &m->heap, m->heap_count + 1)) {
        m->no_memory = 1;
        return;
    }
    moment.order = m->order++;
    hr__heap_push(m->heap, &m->heap_count, &moment, sizeof moment, is_before);
}

/* ---- draws ---- */

/* Returns a number from 0 to 1 that belongs to a packet's attempt, or to anything else. */
static double draw(const struct net *m, uint32_t a, uint32_t b, uint32_t c, uint32_t what)
{
    const uint32_t counter[4] = {a, b, c, what};
    const uint32_t key[2] = {(uint32_t)m->n->seed, (uint32_t)(m->n->seed >> 32)};
    uint32_t out[4];
    hr__philox(counter, key, out);
    return out[0] / 4294967296.0;
}

enum net_draw { NET_DRAW_LOSS, NET_DRAW_SMALL, NET_DRAW_PATH };

static int64_t ticks_of(const struct net *m, uint32_t flow, uint32_t packet)
{
    uint64_t begin = (uint64_t)packet * m->n->packet, bytes = m->flows[flow].bytes - begin;
    return TICKS * (int64_t)(bytes < m->n->packet ? bytes : m->n->packet);
}

/* ---- losses ---- */

static void append(struct net *m, struct net_list *list, uint32_t loss)
{
    m->losses[loss].next = NO_LOSS;
    if (list->first == NO_LOSS)
        list->first = loss;
    else
        m->losses[list->last].next = loss;
    list->last = loss;
}

static uint32_t take_first(struct net *m, struct net_list *list)
{
    uint32_t loss = list->first;
    list->first = m->losses[loss].next;
    return loss;
}

/* Notes that a packet, which was counted as alive, is lost. */
static void lose(struct net *m, const struct net_moment *sent)
{
    struct net_flow *f = &m->state[sent->flow];
    uint32_t at = m->spare;
    if (at != NO_LOSS) {
        m->spare = m->losses[at].next;
    } else if (m->loss_count >= NO_LOSS ||
               hr__reserve(HR__TAG_REPLAY, &m->losses, m->loss_count + 1)) {
        m->no_memory = 1;
        return;
    } else {
        at = (uint32_t)m->loss_count++;
    }
    m->losses[at] =
        (struct net_loss){.packet = sent->packet, .number = sent->number, .attempt = sent->attempt};
    append(m, &f->lost, at);
    f->alive--;
    struct net_moment moment = *sent;
    uint16_t doubled = sent->attempt < DOUBLED_MOST ? sent->attempt : DOUBLED_MOST;
    moment.kind = NET_TIMEOUT;
    moment.at = m->now + (m->timeout << doubled);
    push(m, moment);
}

/* The sender learns of the first loss. */
static void learn(struct net *m, struct net_flow *f)
{
    append(m, &f->resend, take_first(m, &f->lost));
    f->flight--;
}

/* Returns whether the packets that were not sent yet are too few for the receiver. */
static int must_resend(const struct net_flow *f)
{
    return f->alive + (f->packets - f->fresh) < f->needed && f->resend.first != NO_LOSS;
}

/* ---- sending ---- */

/* Sends a packet of a flow on its host's link, which is free. */
static void send_packet(struct net *m, uint32_t flow)
{
    struct net_flow *f = &m->state[flow];
    const struct hr__network *n = m->n;
    struct net_moment moment = {
        .flow = flow, .kind = n->paths ? NET_PATH : NET_PORT, .number = f->sent++};
    if (must_resend(f)) {
        uint32_t loss = take_first(m, &f->resend);
        moment.packet = m->losses[loss].packet;
        moment.attempt = m->losses[loss].attempt;
        moment.attempt += moment.attempt < UINT16_MAX;
        m->out->resent++;
        m->losses[loss].next = m->spare;
        m->spare = loss;
    } else {
        moment.packet = f->fresh++;
    }
    f->alive++;
    m->out->sent++;
    f->flight++;
    uint32_t host = m->flows[flow].from;
    m->link_free[host] = m->now + ticks_of(m, flow, moment.packet);
    push(m, (struct net_moment){.at = m->link_free[host], .flow = host, .kind = NET_FREE});
    if (n->loss > 0 && draw(m, flow, moment.packet, moment.attempt, NET_DRAW_LOSS) < n->loss) {
        m->out->lost++;
        lose(m, &moment);
        return;
    }
    moment.at = m->now + m->latency;
    push(m, moment);
}

/* Gives a host's link to its first flow that has something to send. */
static void try_send(struct net *m, uint32_t host)
{
    if (m->link_free[host] > m->now)
        return;
    for (uint32_t i = m->queue[host]; i != NO_FLOW; i = m->state[i].next) {
        const struct net_flow *f = &m->state[i];
        int has = must_resend(f) || (f->fresh < f->packets && f->alive < f->needed);
        if (has && f->flight < f->window) {
            send_packet(m, i);
            return;
        }
    }
}

static void begin(struct net *m, uint32_t flow)
{
    uint32_t *at = &m->queue[m->flows[flow].from];
    while (*at != NO_FLOW)
        at = &m->state[*at].next;
    *at = flow;
    try_send(m, m->flows[flow].from);
}

static void complete(struct net *m, uint32_t flow)
{
    const struct hr__network_flow *it = &m->flows[flow];
    uint32_t *at = &m->queue[it->from];
    while (*at != flow)
        at = &m->state[*at].next;
    *at = m->state[flow].next;
    double seconds = (double)m->now / TICKS / m->n->bytes_per_s;
    if (m->finish)
        m->finish[flow] = seconds;
    m->out->seconds = seconds;
    if (it->then != NO_FLOW)
        begin(m, it->then);
    if (it->all != NO_FLOW && !--m->barrier)
        for (uint32_t i = it->all; i < m->count; i++)
            begin(m, i);
}

/* ---- moments of a packet ---- */

/* Puts a packet into a queue. Returns when it has gone through; -1: it is dropped. */
static int64_t pass(struct net *m, int64_t *free, struct net_moment *moment)
{
    const struct hr__network *n = m->n;
    int64_t waiting = *free > m->now ? *free - m->now : 0;
    int is_full = waiting > (int64_t)n->queue * m->packet;
    int is_long = waiting > (int64_t)n->mark * m->packet;
    if (is_long && !is_full && n->small > 0)
        is_full = draw(m, moment->flow, moment->packet, 0, NET_DRAW_SMALL) < n->small;
    if (is_full) {
        m->out->dropped++;
        lose(m, moment);
        try_send(m, m->flows[moment->flow].from);
        return -1;
    }
    moment->is_marked |= (uint8_t)is_long;
    *free = m->now + waiting + ticks_of(m, moment->flow, moment->packet);
    return *free;
}

/* A packet has reached the path that it takes. */
static void reach_path(struct net *m, struct net_moment moment)
{
    uint32_t path = m->state[moment.flow].path;
    if (m->n->is_sprayed)
        path = (path + moment.number) % m->n->paths;
    int64_t through = pass(m, &m->path_free[path], &moment);
    if (through < 0)
        return;
    moment.kind = NET_PORT;
    /* it goes on while it still comes */
    moment.at = through - ticks_of(m, moment.flow, moment.packet);
    push(m, moment);
}

static void reach_port(struct net *m, struct net_moment moment)
{
    int64_t through = pass(m, &m->port_free[m->flows[moment.flow].to], &moment);
    if (through < 0)
        return;
    moment.kind = NET_ARRIVED;
    moment.at = through;
    push(m, moment);
}

static void arrive(struct net *m, struct net_moment moment)
{
    struct net_flow *f = &m->state[moment.flow];
    m->out->delivered++;
    m->out->marked += moment.is_marked;
    if (++f->arrived == f->needed) {
        complete(m, moment.flow);
        return;
    }
    moment.kind = NET_KNOWN;
    moment.at = m->now + m->latency;
    push(m, moment);
}

/* Adapts a window to the share of marked packets (DCTCP). */
static void adapt(struct net_flow *f, int is_marked)
{
    f->known++;
    f->marks += (uint32_t)is_marked;
    if (f->known < f->window)
        return;
    f->alpha += ALPHA * ((double)f->marks / f->known - f->alpha);
    f->window = f->marks ? f->window * (1 - f->alpha / 2) : f->window + 1;
    f->window = f->window < 2 ? 2 : f->window;
    f->known = f->marks = 0;
}

static void acknowledge(struct net *m, const struct net_moment *moment)
{
    struct net_flow *f = &m->state[moment->flow];
    f->flight--;
    adapt(f, moment->is_marked);
    while (f->lost.first != NO_LOSS && m->losses[f->lost.first].number + LATER <= moment->number)
        learn(m, f);
    try_send(m, m->flows[moment->flow].from);
}

static void time_out(struct net *m, const struct net_moment *moment)
{
    struct net_flow *f = &m->state[moment->flow];
    while (f->lost.first != NO_LOSS && m->losses[f->lost.first].number <= moment->number) {
        m->out->timeouts++;
        learn(m, f);
    }
    try_send(m, m->flows[moment->flow].from);
}

static void step(struct net *m)
{
    struct net_moment moment;
    hr__heap_pop(m->heap, &m->heap_count, &moment, sizeof moment, is_before);
    m->now = moment.at;
    if (moment.kind == NET_FREE)
        try_send(m, moment.flow);
    else if (moment.kind == NET_PATH)
        reach_path(m, moment);
    else if (moment.kind == NET_PORT)
        reach_port(m, moment);
    else if (m->state[moment.flow].arrived == m->state[moment.flow].needed)
        return; /* the sender has stopped */
    else if (moment.kind == NET_ARRIVED)
        arrive(m, moment);
    else if (moment.kind == NET_KNOWN)
        acknowledge(m, &moment);
    else
        time_out(m, &moment);
}

/* ---- all ---- */

/* Fills the state of flows. The windows are those that earlier collectives have found: all flows
 * to a receiver keep its link busy, and its queue below the mark. */
static void prepare(struct net *m, uint32_t *senders)
{
    const struct hr__network *n = m->n;
    double flying = ceil(2 * (double)m->latency / (double)m->packet) + 2;
    for (uint32_t i = 0; i < m->count; i++)
        senders[m->flows[i].to] += m->flows[i].all != NO_FLOW;
    for (uint32_t i = 0; i < m->count; i++) {
        const struct hr__network_flow *it = &m->flows[i];
        struct net_flow *f = &m->state[i];
        uint64_t packets = it->bytes ? (it->bytes - 1) / n->packet + 1 : 1;
        *f = (struct net_flow){.packets = (uint32_t)packets,
                               .next = NO_FLOW,
                               .lost = {NO_LOSS, NO_LOSS},
                               .resend = {NO_LOSS, NO_LOSS}};
        double needed = ceil((1 - n->tolerance) * (double)packets * (1 - 1e-12));
        f->needed = needed < 1 ? 1 : (uint32_t)needed;
        uint32_t share = senders[it->to] > 1 && it->all != NO_FLOW ? senders[it->to] : 1;
        f->window = fmax(2, ceil((flying + n->mark) / share));
        if (n->paths)
            f->path = (uint32_t)(n->paths * draw(m, it->from, it->to, 0, NET_DRAW_PATH));
        m->barrier += it->all != NO_FLOW;
    }
}

static int allocate(struct net *m, uint32_t **senders)
{
    m->state = hr__alloc(HR__TAG_REPLAY, m->count, sizeof *m->state);
    m->link_free = hr__alloc(HR__TAG_REPLAY, m->hosts, sizeof *m->link_free);
    m->port_free = hr__alloc(HR__TAG_REPLAY, m->hosts, sizeof *m->port_free);
    m->path_free = hr__alloc(HR__TAG_REPLAY, m->n->paths + 1u, sizeof *m->path_free);
    m->queue = hr__alloc(HR__TAG_REPLAY, m->hosts, sizeof *m->queue);
    *senders = hr__alloc(HR__TAG_REPLAY, m->hosts, sizeof **senders);
    return m->state && m->link_free && m->port_free && m->path_free && m->queue && *senders;
}

static void clear(struct net *m)
{
    hr__free(m->state);
    hr__free(m->link_free);
    hr__free(m->port_free);
    hr__free(m->path_free);
    hr__free(m->queue);
    hr__free(m->heap);
    hr__free(m->losses);
}

int hr__network_run(struct hr__network_result *out, const struct hr__network *n,
                    const struct hr__network_flows *flows, double *finish, struct hr_error *error)
{
    double rate = TICKS * n->bytes_per_s;
    struct net m = {.n = n,
                    .flows = flows->flows,
                    .count = flows->count,
                    .hosts = flows->hosts,
                    .spare = NO_LOSS,
                    .latency = llround(n->latency_s * rate),
                    .timeout = llround(n->timeout_s * rate),
                    .packet = (int64_t)TICKS * n->packet,
                    .finish = finish,
                    .out = out};
    uint32_t *senders;
    int code = 0;
    *out = (struct hr__network_result){.seconds = 0};
    if (!allocate(&m, &senders)) {
        code = hr__fail(error, -ENOMEM, "out of memory for a network");
    } else {
        memset(m.queue, 0xff, m.hosts * sizeof *m.queue);
        prepare(&m, senders);
        for (uint32_t i = 0; i < m.count; i++)
            if (!m.flows[i].waits)
                begin(&m, i);
        while (m.heap_count && !m.no_memory && out->sent <= 8 * HR__NETWORK_PACKETS)
            step(&m);
        if (m.no_memory)
            code = hr__fail(error, -ENOMEM, "out of memory for a network");
        else if (m.heap_count)
            code = hr__fail(error, -E2BIG,
                            "packets were sent %llu times, and at most that often is simulated: "
                            "less loss, or longer queues, need less",
                            (unsigned long long)out->sent);
    }
    hr__free(senders);
    clear(&m);
    return code;
}
