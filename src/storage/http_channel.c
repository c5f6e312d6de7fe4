/*
 * Many requests of one thread: begins them as the client's limit allows, repeats those that fail in
 * passing, and asks a second time for the few that are slow.
 *
 * A call waits in one of three places: `ready` to begin, in flight, or `resting` until a pause is
 * over. The lists are looked through once in a tick, not with every answer.
 */
#include "storage/http_inside.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define TICK_NS UINT64_C(5000000)

/* Pauses before a repetition: random, up to a limit that doubles with each try. */
#define PAUSE_FIRST_NS UINT64_C(100000000)
#define PAUSE_MOST_NS  UINT64_C(10000000000)

/* Tries of a host that never answered, and of one whose answers do not fit. */
#define TRIES_UNREACHED 4

/* A request is repeated while the first goes on if nothing has come for so many times as long as
 * answers usually take; for one request in HEDGE_SHARE at most. */
#define HEDGE_TIMES    3
#define HEDGE_LEAST_NS UINT64_C(50000000)
#define HEDGE_SHARE    64
#define HEDGE_SAMPLES  32

/* A request is given up, too, if it brings less than this a second over a part of the deadline. */
#define DRIP_PART      4
#define DRIP_BYTES_A_S 1024

struct call_list {
    struct hr__http_call *first, **end;
};

struct hr__http_channel {
    struct hr__http_client *http; /* it keeps the channel, or the reader keeps both */
    struct hr__web *web;
    pid_t process;
    struct hr__http_signer signer;
    struct call_list ready, resting, done;
    struct hr__http_attempt *flying, *idle;  /* attempts */
    uint64_t tick_ns;                        /* when to look through the lists again */
    uint64_t mean_ns, deviation_ns, samples; /* time until the first byte */
    uint64_t random;
};

static void list_add(struct call_list *list, struct hr__http_call *call)
{
    if (!list->first)
        list->end = &list->first;
    call->next = NULL;
    *list->end = call;
    list->end = &call->next;
}

static struct hr__http_call *list_take(struct call_list *list)
{
    struct hr__http_call *call = list->first;
    if (call) {
        list->first = call->next;
        call->next = NULL;
    }
    return call;
}

int hr__http_channel_create(struct hr__http_channel **out, struct hr__http_client *http,
                            struct hr_error *error)
{
    struct hr__http_channel *ch = hr__alloc(HR__TAG_STORAGE, 1, sizeof *ch);
    *out = NULL;
    if (!ch)
        return hr__fail(error, -ENOMEM, "out of memory for requests");
    ch->http = http;
    ch->process = getpid();
    ch->random = hr__now_ns() | 1;
    hr__http_enter(http);
    int r = hr__web_create(&ch->web, http->settings.certificates, error);
    if (r)
        hr__free(ch);
    else
        *out = ch;
    return r;
}

bool hr__http_channel_is_ours(const struct hr__http_channel *channel)
{
    return channel->process == getpid();
}

static void free_attempts(struct hr__http_attempt *list)
{
    while (list) {
        struct hr__http_attempt *a = list;
        list = a->next;
        hr__draft_clear(&a->url);
        hr__draft_clear(&a->authorization);
        hr__free(a->bytes);
        hr__free(a);
    }
}

void hr__http_channel_destroy(struct hr__http_channel **channel)
{
    struct hr__http_channel *ch = *channel;
    *channel = NULL;
    if (!ch)
        return;
    for (struct hr__http_attempt *a = ch->flying; a; a = a->next)
        if (hr__http_channel_is_ours(ch)) {
            hr__web_stop(ch->web, &a->exchange);
            hr__http_ended(ch->http, false, 0, 0);
        }
    free_attempts(ch->flying);
    free_attempts(ch->idle);
    hr__web_destroy(&ch->web);
    explicit_bzero(&ch->signer, sizeof ch->signer);
    hr__free(ch);
}

/* ---- attempts ---- */

static struct hr__http_attempt *take_attempt(struct hr__http_channel *ch)
{
    struct hr__http_attempt *a = ch->idle;
    if (a)
        ch->idle = a->next;
    else
        a = hr__alloc(HR__TAG_STORAGE, 1, sizeof *a);
    return a;
}

/* Takes an attempt out of its call and of those in flight. */
static void put_attempt(struct hr__http_channel *ch, struct hr__http_attempt *a)
{
    struct hr__http_attempt **link = &ch->flying;
    while (*link && *link != a)
        link = &(*link)->next;
    if (*link)
        *link = a->next;
    for (int i = 0; a->call && i < 2; i++)
        if (a->call->attempts[i] == a)
            a->call->attempts[i] = NULL;
    hr__free(a->bytes);
    a->bytes = NULL;
    a->call = NULL;
    a->next = ch->idle;
    ch->idle = a;
}

static void stop_attempts(struct hr__http_channel *ch, struct hr__http_call *call)
{
    for (int i = 0; i < 2; i++) {
        struct hr__http_attempt *a = call->attempts[i];
        if (!a)
            continue;
        hr__web_stop(ch->web, &a->exchange);
        hr__http_ended(ch->http, false, 0, 0);
        put_attempt(ch, a);
    }
}

static void complete(struct hr__http_channel *ch, struct hr__http_call *call, int result,
                     const char *reason)
{
    stop_attempts(ch, call);
    call->result = result;
    call->reason = result && reason ? hr__strdup(HR__TAG_STORAGE, reason) : NULL;
    list_add(&ch->done, call);
}

/* Begins a request of a call; the client has counted it. */
static void begin(struct hr__http_channel *ch, struct hr__http_call *call, bool is_hedge)
{
    struct hr_error why = {.code = 0};
    struct hr__http_attempt *a = take_attempt(ch);
    int r = a ? 0 : hr__fail(&why, -ENOMEM, "out of memory for a request");
    if (call->body)
        atomic_fetch_add(&ch->http->writes, 1);
    if (a) {
        a->call = call;
        a->is_hedge = is_hedge;
        r = hr__http_request(ch->http, a, &ch->signer, &why);
        a->started_ns = hr__now_ns();
        if (!r && hr__web_start(ch->web, &a->exchange))
            r = hr__fail(&why, -ENOMEM, "out of memory for a request");
    }
    if (!r) {
        a->next = ch->flying;
        ch->flying = a;
        call->attempts[call->attempts[0] != NULL] = a;
        call->tries += !is_hedge;
        return;
    }
    hr__http_ended(ch->http, false, 0, 0);
    if (a)
        put_attempt(ch, a);
    if (!is_hedge)
        complete(ch, call, r, why.message);
}

static void pump(struct hr__http_channel *ch)
{
    while (ch->ready.first && hr__http_may_begin(ch->http))
        begin(ch, list_take(&ch->ready), false);
}

/* ---- repetitions ---- */

/* Returns a random number below `end` (xorshift64). */
static uint64_t draw(struct hr__http_channel *ch, uint64_t end)
{
    ch->random ^= ch->random << 13;
    ch->random ^= ch->random >> 7;
    ch->random ^= ch->random << 17;
    return (uint64_t)((unsigned __int128)ch->random * end >> 64);
}

/* Lets a call rest before its next try, or gives it up. */
static void rest(struct hr__http_channel *ch, struct hr__http_call *call, unsigned pause_s,
                 const struct hr_error *why)
{
    uint64_t now_ns = hr__now_ns(), end_ns = call->begun_ns + ch->http->settings.deadline_ns;
    uint64_t most_ns = PAUSE_FIRST_NS << (call->tries < 8 ? call->tries - 1 : 7);
    if (most_ns > PAUSE_MOST_NS)
        most_ns = PAUSE_MOST_NS;
    uint64_t pause_ns = draw(ch, most_ns);
    if (pause_ns < pause_s * UINT64_C(1000000000))
        pause_ns = pause_s * UINT64_C(1000000000);
    int unreached = !atomic_load(&ch->http->was_reached) || why->code == -EPROTO;
    if ((unreached && call->tries >= TRIES_UNREACHED) || now_ns + pause_ns >= end_ns) {
        struct hr_error all;
        hr__fail(&all, why->code, "%.700s (given up after %u tries in %.1f s)", why->message,
                 call->tries, (double)(now_ns - call->begun_ns) / 1e9);
        complete(ch, call, why->code, all.message);
        return;
    }
    atomic_fetch_add(&ch->http->retries, 1);
    call->due_ns = now_ns + pause_ns;
    list_add(&ch->resting, call);
}

static void note_latency(struct hr__http_channel *ch, uint64_t ns)
{
    uint64_t off = ns > ch->mean_ns ? ns - ch->mean_ns : ch->mean_ns - ns;
    if (!ch->samples++) {
        ch->mean_ns = ns;
        ch->deviation_ns = ns / 2;
        return;
    }
    ch->deviation_ns = ch->deviation_ns - ch->deviation_ns / 4 + off / 4;
    ch->mean_ns = ch->mean_ns - ch->mean_ns / 8 + ns / 8;
}

/* An attempt has an answer, or was given up. */
static void finish(struct hr__http_channel *ch, struct hr__http_attempt *a)
{
    struct hr_error why = {.code = 0};
    struct hr__http_call *call = a->call;
    enum hr__http_verdict verdict = hr__http_judge(ch->http, a, &why);
    /* of a body that is sent, the time says nothing */
    uint64_t latency_ns =
        a->first_ns > a->started_ns && !call->body ? a->first_ns - a->started_ns : 0;
    unsigned pause_s = a->pause_s;
    hr__http_ended(ch->http, verdict == HR__HTTP_REFUSED, verdict == HR__HTTP_DONE ? latency_ns : 0,
                   hr__now_ns() - a->started_ns);
    if (verdict == HR__HTTP_DONE && latency_ns)
        note_latency(ch, latency_ns);
    put_attempt(ch, a);
    if (verdict == HR__HTTP_DONE)
        complete(ch, call, 0, NULL);
    else if (verdict == HR__HTTP_FAILED)
        complete(ch, call, why.code, why.message);
    else if (call->attempts[0] || call->attempts[1])
        return; /* the other request of the call goes on */
    else if (verdict == HR__HTTP_AGAIN)
        list_add(&ch->ready, call);
    else
        rest(ch, call, pause_s, &why);
}

/* ---- the tick ---- */

/* Returns how long an answer may be quiet before the request is repeated; 0: not known yet. */
static uint64_t hedge_after_ns(const struct hr__http_channel *ch)
{
    uint64_t ns = HEDGE_TIMES * (ch->mean_ns + 4 * ch->deviation_ns);
    if (ch->samples < HEDGE_SAMPLES)
        return 0;
    return ns > HEDGE_LEAST_NS ? ns : HEDGE_LEAST_NS;
}

static bool may_hedge(struct hr__http_client *http)
{
    if (atomic_load(&http->hedges) * HEDGE_SHARE >= atomic_load(&http->requests))
        return false;
    if (!hr__http_may_begin(http))
        return false;
    atomic_fetch_add(&http->hedges, 1);
    return true;
}

/* Returns whether an answer comes in drops, which would never end. */
static bool is_dripping(const struct hr__http_channel *ch, const struct hr__http_attempt *a,
                        uint64_t now_ns)
{
    uint64_t age_ns = now_ns > a->started_ns ? now_ns - a->started_ns : 0;
    return age_ns > ch->http->settings.deadline_ns / DRIP_PART &&
           a->length + a->exchange.sent < age_ns / 1000000 * DRIP_BYTES_A_S / 1000;
}

static void look_at_flying(struct hr__http_channel *ch, uint64_t now_ns)
{
    uint64_t hedge_ns = hedge_after_ns(ch);
    for (struct hr__http_attempt *a = ch->flying, *next; a; a = next) {
        struct hr__web_exchange *x = &a->exchange;
        uint64_t quiet_ns = now_ns > x->moved_ns ? now_ns - x->moved_ns : 0;
        next = a->next;
        if (quiet_ns > x->stall_ms * UINT64_C(1000000) || is_dripping(ch, a, now_ns)) {
            hr__web_stop(ch->web, x);
            x->end = HR__WEB_SLOW;
            finish(ch, a);
            /* the list may have changed anywhere: the rest is looked at in the next tick */
            return;
        }
        if (hedge_ns && quiet_ns > hedge_ns && !a->call->method && !a->call->attempts[1] &&
            may_hedge(ch->http))
            begin(ch, a->call, true);
    }
}

static void look_at_resting(struct hr__http_channel *ch, uint64_t now_ns)
{
    struct call_list all = ch->resting;
    ch->resting.first = NULL;
    for (struct hr__http_call *call; (call = list_take(&all));)
        list_add(call->due_ns <= now_ns ? &ch->ready : &ch->resting, call);
}

static void tick(struct hr__http_channel *ch)
{
    uint64_t now_ns = hr__now_ns();
    if (now_ns < ch->tick_ns)
        return;
    ch->tick_ns = now_ns + TICK_NS;
    look_at_flying(ch, now_ns);
    look_at_resting(ch, now_ns);
}

/* ---- the interface ---- */

bool hr__http_channel_is_full(const struct hr__http_channel *channel)
{
    return channel->ready.first;
}

void hr__http_channel_start(struct hr__http_channel *ch, struct hr__http_call *call)
{
    struct hr_error why = {.code = 0};
    call->begun_ns = hr__now_ns();
    int r = hr__url_parse(&call->parsed, call->url, &why);
    if (r)
        complete(ch, call, r, why.message);
    else
        list_add(&ch->ready, call);
    pump(ch);
}

struct hr__http_call *hr__http_channel_wait(struct hr__http_channel *ch, int64_t timeout_ns)
{
    uint64_t end_ns = timeout_ns < 0 ? UINT64_MAX : hr__now_ns() + (uint64_t)timeout_ns;
    for (;;) {
        tick(ch);
        pump(ch);
        uint64_t now_ns = hr__now_ns();
        uint64_t until_ns = end_ns < ch->tick_ns ? end_ns : ch->tick_ns;
        int64_t wait_ns = ch->done.first || until_ns <= now_ns ? 0 : (int64_t)(until_ns - now_ns);
        struct hr__web_exchange *next, *x = hr__web_wait(ch->web, wait_ns);
        for (; x; x = next) {
            struct hr__http_attempt *a = (struct hr__http_attempt *)x;
            next = x->next;
            if (a->call) /* not stopped by the other request of its call, just now */
                finish(ch, a);
        }
        if (ch->done.first || hr__now_ns() >= end_ns)
            break;
    }
    pump(ch); /* the server works while the caller handles these */
    struct hr__http_call *done = ch->done.first;
    ch->done.first = NULL;
    return done;
}
