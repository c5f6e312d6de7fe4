/*
 * The servers of a list of hosts (peers.h).
 *
 * Each host has a few clients, each used by one request at a time, and one state for all: up, or
 * failed and to be tried again at a certain time, by a single request.
 *
 * Locks: a host's lock guards its clients, state and problem, and is never held during I/O.
 * Counters are atomics without ordering. After fork the child fetches and stores nothing, because
 * the connections belong to its parent.
 */
#include "cluster/peers.h"

#include "cluster/peer_item.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CLIENTS_MAX 8

/* Limit for one bulk request: the server's memory for a connection grows with the request. */
#define BULK_ITEMS 64
/* No bulk request of a call begins later than so many timeouts after the call. */
#define CALL_TIMES 4
#define BULK_BYTES (UINT64_C(8) << 20)
#define BULK_LEAST (UINT64_C(128) << 10)

#define BACKOFF_FIRST_NS  UINT64_C(500000000)
#define BACKOFF_LAST_NS   UINT64_C(30000000000)
#define BACKOFF_RECORD_NS UINT64_C(1000000000)

/* A server that keeps failing is logged at most so often. */
#define LOG_NS UINT64_C(60000000000)

#define RECORD_BYTES 8192
#define RETAIN_BYTES (UINT64_C(64) << 20)

/* The purpose of a request; it decides how soon a server that failed is tried again. */
enum purpose { ITEMS, RECORDS, ABOUT };

struct counters {
    _Atomic uint64_t fetched, missed, stored, refused, too_large;
    _Atomic uint64_t fetched_bytes, stored_bytes;
    _Atomic uint64_t requests, failures, damaged, request_ns;
};

struct host {
    char name[HR__HOST_NAME], address[HR__HOST_NAME];
    struct hr__peer_wish wish;
    pthread_mutex_t lock;
    pthread_cond_t returned; /* signalled when a client is given back, and at cancel */
    struct hr__peer_client *clients[CLIENTS_MAX];
    unsigned in_use;           /* bit mask of the clients in use */
    uint64_t failed_ns;        /* time of the last failed request */
    uint64_t backoff_ns;       /* 0: the server is up */
    int is_probed;             /* a request is just trying whether it is up again */
    uint64_t logged_ns;        /* when a failure was last logged; 0: never */
    uint64_t unlogged;         /* failures since then */
    int is_logged;             /* the last failure was logged, so its recovery is logged too */
    _Atomic uint64_t retry_ns; /* read by is_up without the lock: 0: up, else when to try again */
    char problem[160];
    _Atomic uint64_t bulk_bytes[2]; /* size of a bulk fetch and store that it manages in time */
    struct counters counters;
};

struct hr__peers {
    const struct hr__peer_ops *ops;
    pid_t pid; /* process that made it */
    atomic_int is_cancelled;
    uint64_t timeout_ns;
    struct hr__blocks *blocks;
    char user[128], password[256];
    struct hr__secret secret; /* signs items */
    const char *source;       /* what happens to the items of a server that does not answer */
    int count;
    struct host hosts[];
};

static void add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t value_of(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Returns non-zero if the password fits into a login, which is "USER PASSWORD" in one line. */
static int is_password(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)bytes[i] <= ' ' || bytes[i] == 0x7f)
            return 0;
    return length > 0;
}

/* Reads the password: the first line of the file. */
static int read_password(struct hr__peers *peers, const char *path, struct hr_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, peers->password, sizeof peers->password);
    int code = errno;
    if (fd >= 0)
        close(fd);
    if (got < 0)
        return hr__fail(error, -code, "cannot read password-file=%s: %s", path,
                        hr__errno_text(code));
    size_t length = (size_t)got;
    char *end = memchr(peers->password, '\n', length);
    if (end)
        length = (size_t)(end - peers->password);
    if (length == sizeof peers->password || !is_password(peers->password, length))
        return hr__fail(error, -EINVAL,
                        "password-file=%s: its first line has to be a password of 1 to %zu bytes "
                        "without blanks",
                        path, sizeof peers->password - 1);
    peers->password[length] = 0;
    return 0;
}

static void fill_host(struct hr__peers *peers, int i, const struct hr__hosts *hosts)
{
    struct host *h = &peers->hosts[i];
    const struct hr__host *from = &hosts->hosts[i];
    int is_own = i == hosts->self && hosts->socket[0];
    snprintf(h->name, sizeof h->name, "%s", from->name);
    snprintf(h->address, sizeof h->address, "%s", is_own ? hosts->socket : from->address);
    h->wish = (struct hr__peer_wish){.address = h->address,
                                     .port = is_own ? 0 : from->port,
                                     .user = peers->user[0] ? peers->user : NULL,
                                     .password = peers->password,
                                     .blocks = peers->blocks};
    atomic_init(&h->bulk_bytes[0], BULK_BYTES);
    atomic_init(&h->bulk_bytes[1], BULK_BYTES);
    pthread_mutex_init(&h->lock, NULL);
    hr__cond_init(&h->returned);
}

int hr__peers_create(struct hr__peers **out, const struct hr__hosts *hosts,
                     const struct hr__peer_ops *ops, struct hr_error *error)
{
    *out = NULL;
    struct hr__peers *peers =
        hr__alloc(HR__TAG_CACHE, 1, sizeof *peers + (size_t)hosts->count * sizeof peers->hosts[0]);
    if (!peers)
        return hr__fail(error, -ENOMEM, "out of memory for the hosts of a cache");
    peers->ops = ops;
    peers->source = "come from storage";
    peers->pid = getpid();
    peers->timeout_ns = hosts->timeout_ms * UINT64_C(1000000);
    int r = 0;
    peers->blocks = hr__blocks_create(HR__TAG_CACHE, 64, RETAIN_BYTES);
    if (!peers->blocks)
        r = hr__fail(error, -ENOMEM, "out of memory for the hosts of a cache");
    snprintf(peers->user, sizeof peers->user, "%s", hosts->user);
    if (!r && peers->user[0])
        r = read_password(peers, hosts->password_file, error);
    if (!r)
        r = hr__secret_read(&peers->secret, hosts->key_file, error);
    for (int i = 0; i < hosts->count && !r; i++, peers->count++)
        fill_host(peers, i, hosts);
    if (r) {
        hr__peers_destroy(&peers);
        return r;
    }
    *out = peers;
    return 0;
}

const struct hr__secret *hr__peers_secret(const struct hr__peers *peers)
{
    return &peers->secret;
}

void hr__peers_set_source(struct hr__peers *peers, const char *source)
{
    peers->source = source;
}

void hr__peers_destroy(struct hr__peers **p)
{
    struct hr__peers *peers = *p;
    if (!peers)
        return;
    for (int i = 0; i < peers->count; i++) {
        struct host *h = &peers->hosts[i];
        for (int c = 0; c < CLIENTS_MAX; c++)
            if (h->clients[c])
                peers->ops->close(&h->clients[c]);
        /* In a forked child, a thread that does not exist there may hold the lock. */
        if (peers->pid == getpid()) {
            pthread_cond_destroy(&h->returned);
            pthread_mutex_destroy(&h->lock);
        }
    }
    hr__blocks_destroy(&peers->blocks);
    explicit_bzero(peers->password, sizeof peers->password);
    explicit_bzero(&peers->secret, sizeof peers->secret);
    hr__free(peers);
    *p = NULL;
}

void hr__peers_cancel(struct hr__peers *peers)
{
    if (peers->pid != getpid())
        return;
    atomic_store(&peers->is_cancelled, 1);
    for (int i = 0; i < peers->count; i++) {
        struct host *h = &peers->hosts[i];
        pthread_mutex_lock(&h->lock);
        for (int c = 0; c < CLIENTS_MAX; c++)
            if (h->clients[c])
                peers->ops->cancel(h->clients[c]);
        pthread_cond_broadcast(&h->returned);
        pthread_mutex_unlock(&h->lock);
    }
}

/* Takes an unused client, made if needed; -EBUSY: all are in use. Takes the lowest, so that there
 * are only as many connections as requests at a time. */
static int pick_locked(struct hr__peers *peers, struct host *h, int *out, struct hr_error *error)
{
    for (int c = 0; c < CLIENTS_MAX; c++) {
        if (h->in_use & 1u << c)
            continue;
        int r = h->clients[c] ? 0 : peers->ops->open(&h->clients[c], &h->wish, error);
        if (r)
            return h->in_use ? -EBUSY : r;
        h->in_use |= 1u << c;
        *out = c;
        return 0;
    }
    return -EBUSY;
}

/* Returns non-zero if a request may be made now. */
static int is_due_locked(const struct host *h, enum purpose purpose)
{
    uint64_t wait = h->backoff_ns;
    if (!wait || purpose == ABOUT)
        return 1;
    if (purpose == RECORDS && wait > BACKOFF_RECORD_NS)
        wait = BACKOFF_RECORD_NS;
    return !h->is_probed && hr__now_ns() >= h->failed_ns + wait;
}

/* Takes a client of the host, until leave(). -EHOSTDOWN: requests are suspended; -EBUSY: all
 * clients were in use until the deadline. */
static int enter(struct hr__peers *peers, struct host *h, enum purpose purpose,
                 uint64_t deadline_ns, int *out, struct hr_error *error)
{
    struct timespec until = hr__timespec(deadline_ns);
    int r;
    if (peers->pid != getpid())
        return hr__fail(error, -EHOSTDOWN, "the connections are of the process that forked");
    pthread_mutex_lock(&h->lock);
    for (;;) {
        if (atomic_load(&peers->is_cancelled))
            r = -ECANCELED;
        else if (!is_due_locked(h, purpose))
            r = -EHOSTDOWN;
        else
            r = pick_locked(peers, h, out, error);
        if (r != -EBUSY || hr__now_ns() >= deadline_ns)
            break;
        pthread_cond_timedwait(&h->returned, &h->lock, &until);
    }
    if (!r && h->backoff_ns)
        h->is_probed = 1;
    if (r == -EHOSTDOWN)
        hr__fail(error, r, "%s", h->problem);
    pthread_mutex_unlock(&h->lock);
    return r;
}

/* Returns non-zero if an error is the fault of the server or the network. */
static int is_fault(int result)
{
    return result && result != -ECANCELED && result != -ENOMEM && result != -EINVAL &&
           result != -EBUSY;
}

static void fail_locked(struct host *h, const char *message)
{
    uint64_t now = hr__now_ns();
    /* Requests that were in progress together fail together: count that as one failure. */
    int is_new = !h->backoff_ns || now >= h->failed_ns + h->backoff_ns || h->is_probed;
    if (is_new) {
        h->backoff_ns = h->backoff_ns ? 2 * h->backoff_ns : BACKOFF_FIRST_NS;
        if (h->backoff_ns > BACKOFF_LAST_NS)
            h->backoff_ns = BACKOFF_LAST_NS;
        h->failed_ns = now;
    }
    hr__printable(h->problem, sizeof h->problem, message);
    atomic_store_explicit(&h->retry_ns, h->failed_ns + h->backoff_ns, memory_order_relaxed);
}

/* Decides whether to log that a server that was up has failed. Returns non-zero if so, with the
 * number of failures not logged since the last time. */
static int is_to_be_logged_locked(struct host *h, uint64_t *unlogged)
{
    uint64_t now = hr__now_ns();
    h->is_logged = !h->logged_ns || now - h->logged_ns >= LOG_NS;
    if (!h->is_logged) {
        h->unlogged++;
        return 0;
    }
    *unlogged = h->unlogged;
    h->logged_ns = now;
    h->unlogged = 0;
    return 1;
}

static void log_failure(const struct hr__peers *peers, const struct hr_error *error,
                        uint64_t unlogged)
{
    char before[80] = "";
    if (unlogged)
        snprintf(before, sizeof before,
                 " (and failed %" PRIu64 " times more since the last message)", unlogged);
    hr__log(HR_LOG_WARNING, "%s%s; its items %s until it answers again", error->message, before,
            peers->source);
}

/* Gives the client back, and updates the server's state from the request's result. */
static void leave(const struct hr__peers *peers, struct host *h, int c, int result,
                  const struct hr_error *error)
{
    int has_failed = is_fault(result), must_log = 0, has_recovered;
    uint64_t unlogged = 0;
    add(&h->counters.requests, 1);
    if (has_failed)
        add(&h->counters.failures, 1);
    pthread_mutex_lock(&h->lock);
    h->in_use &= ~(1u << c);
    has_recovered = !result && h->backoff_ns && h->is_logged;
    if (has_failed) {
        must_log = !h->backoff_ns && is_to_be_logged_locked(h, &unlogged);
        fail_locked(h, error->message);
    }
    if (!result) {
        h->backoff_ns = 0;
        atomic_store_explicit(&h->retry_ns, 0, memory_order_relaxed);
    }
    h->is_probed = 0;
    pthread_cond_signal(&h->returned);
    pthread_mutex_unlock(&h->lock);
    if (must_log)
        log_failure(peers, error, unlogged);
    if (has_recovered)
        hr__log(HR_LOG_INFO, "%s answers again", h->name);
}

/* Records a problem of a server that does answer; logs it the first time. */
static void note(struct host *h, uint64_t before, const char *problem)
{
    char text[512];
    snprintf(text, sizeof text, "%s %s", h->name, problem);
    pthread_mutex_lock(&h->lock);
    hr__printable(h->problem, sizeof h->problem, text);
    pthread_mutex_unlock(&h->lock);
    if (!before)
        hr__log(HR_LOG_WARNING, "%s", text);
}

static void name_key(char out[HR__PEER_KEY + 1], const uint64_t key[2])
{
    snprintf(out, HR__PEER_KEY + 1, "hr1:%016llx%016llx", (unsigned long long)key[0],
             (unsigned long long)key[1]);
}

/* Turns a value received for the item's key into the item. Returns -EBADMSG if it is not valid: the
 * item is then a miss. */
static int accept_value(const struct hr__secret *secret, struct hr__peer_item *item,
                        struct hr__peer_value *value)
{
    struct hr__peer_trailer trailer;
    int r = hr__peer_item_check(&trailer, item->key, value->bytes, value->length, secret);
    if (r || (item->source_bytes && trailer.source_bytes != item->source_bytes)) {
        hr__free(value->bytes);
        return -EBADMSG;
    }
    memset(value->bytes + trailer.length, 0, HR__PEER_SLACK);
    item->bytes = value->bytes;
    item->length = trailer.length;
    item->form = trailer.form;
    item->source_bytes = trailer.source_bytes;
    item->change = trailer.change;
    item->content = trailer.content;
    return 0;
}

/* A fetch or store call: a series of bulk requests, each with its own deadline. */
struct call {
    struct hr__peers *peers;
    struct host *host;
    int is_store;
    size_t done;          /* items found or stored so far */
    uint64_t deadline_ns; /* of the bulk request in progress */
};

/* Returns how many of the first items to put into one bulk request, so that the server can be
 * expected to finish it in time. */
static size_t bulk_of(const struct call *call, const struct hr__peer_item *items, size_t count)
{
    uint64_t limit = value_of(&call->host->bulk_bytes[call->is_store]), bytes = 0;
    size_t n = 0;
    for (; n < count && n < BULK_ITEMS; n++) {
        uint64_t more = call->is_store ? items[n].length : items[n].source_bytes;
        if (n && (more > limit || bytes + more > limit))
            break;
        bytes += more < limit ? more : limit;
    }
    return n;
}

/*
 * Adapts the size of bulk requests to what can be transferred in time. A server that was not
 * finished at the deadline but had transferred something is slow, not dead: the rest is requested
 * again in smaller bulks, and the result is no failure (-EBUSY).
 */
static int adapt(struct call *call, int result, uint64_t bytes)
{
    _Atomic uint64_t *out = &call->host->bulk_bytes[call->is_store];
    uint64_t limit = value_of(out), next = limit, all = call->peers->timeout_ns;
    uint64_t now = hr__now_ns(),
             took = all - (call->deadline_ns > now ? call->deadline_ns - now : 0);
    int is_late = result == -ETIMEDOUT && bytes;
    if (is_late || (!result && bytes && took > all / 2))
        next = (bytes < limit ? bytes : limit) / 2;
    else if (!result && took < all / 8 && bytes >= limit / 2)
        next = 2 * limit;
    next = next < BULK_LEAST ? BULK_LEAST : next > BULK_BYTES ? BULK_BYTES : next;
    if (next != limit)
        atomic_store_explicit(out, next, memory_order_relaxed);
    return is_late ? -EBUSY : result;
}

/* Takes the values that arrived; returns the number of items up to the last of them. */
static size_t accept_all(struct call *call, struct hr__peer_item *items,
                         struct hr__peer_value *values, size_t count)
{
    uint64_t bytes = 0, damaged = 0;
    size_t end = 0;
    for (size_t i = 0; i < count; i++) {
        if (!values[i].bytes)
            continue;
        end = i + 1;
        if (accept_value(&call->peers->secret, &items[i], &values[i])) {
            damaged++;
            continue;
        }
        bytes += items[i].length;
        call->done++;
    }
    add(&call->host->counters.fetched_bytes, bytes);
    if (damaged)
        note(call->host, atomic_fetch_add(&call->host->counters.damaged, damaged),
             call->peers->secret.is_set ? "has items that were not stored with this key file: they "
                                          "are not used. Does somebody else write there?"
                                        : "has items whose checksums differ: does another program "
                                          "write there, or is its memory bad?");
    return end;
}

/* Requests the first of the items. *asked is how many need not be requested again. */
static int fetch_bulk(struct call *call, struct hr__peer_item *items, size_t count, size_t *asked)
{
    struct host *h = call->host;
    struct hr__peer_value values[BULK_ITEMS];
    struct hr_error error = {0, ""};
    uint64_t bytes = 0;
    int c;
    call->deadline_ns = hr__now_ns() + call->peers->timeout_ns;
    int r = enter(call->peers, h, ITEMS, call->deadline_ns, &c, &error);
    *asked = count = bulk_of(call, items, count);
    if (r)
        return r;
    for (size_t i = 0; i < count; i++) {
        name_key(values[i].key, items[i].key);
        values[i].bytes = NULL;
    }
    uint64_t start = hr__now_ns();
    r = call->peers->ops->get(h->clients[c], values, count, call->deadline_ns, &error);
    if (!r)
        add(&h->counters.request_ns, hr__now_ns() - start);
    for (size_t i = 0; i < count; i++)
        bytes += values[i].bytes ? values[i].length : 0;
    r = adapt(call, r, bytes);
    leave(call->peers, h, c, r, &error);
    size_t end = accept_all(call, items, values, count);
    if (r != -EBUSY)
        return r;
    *asked = end;
    return 0;
}

size_t hr__peers_fetch(struct hr__peers *peers, int host, struct hr__peer_item *items, size_t count)
{
    struct call call = {.peers = peers, .host = &peers->hosts[host]};
    int r = 0;
    for (size_t i = 0; i < count; i++) {
        items[i].bytes = NULL;
        items[i].length = 0;
    }
    uint64_t last_ns = hr__now_ns() + CALL_TIMES * peers->timeout_ns;
    for (size_t i = 0, n; i < count && !r; i += n)
        r = hr__now_ns() < last_ns ? fetch_bulk(&call, items + i, count - i, &n) : -ETIMEDOUT;
    add(&call.host->counters.fetched, call.done);
    add(&call.host->counters.missed, count - call.done);
    return call.done;
}

/* Counts the results of stores and copies them to the items. */
static size_t settle(struct host *h, struct hr__peer_item *items,
                     const struct hr__peer_store *stores, size_t count)
{
    uint64_t bytes = 0, refused = 0, too_large = 0;
    size_t stored = 0;
    for (size_t i = 0; i < count; i++) {
        int r = items[i].result = stores[i].result;
        stored += !r;
        bytes += r ? 0 : items[i].length;
        refused += r == -ENOSPC;
        too_large += r == -E2BIG;
    }
    add(&h->counters.stored, stored);
    add(&h->counters.stored_bytes, bytes);
    if (refused)
        note(h, atomic_fetch_add(&h->counters.refused, refused),
             "refuses items, its memory is full: give it more memory (-m), or a smaller size=");
    if (too_large)
        note(h, atomic_fetch_add(&h->counters.too_large, too_large),
             "refuses items above its size limit: raise its -I");
    return stored;
}

/* The same for stores. */
static int store_bulk(struct call *call, struct hr__peer_item *items, size_t count, size_t *asked)
{
    struct host *h = call->host;
    struct hr__peer_store stores[BULK_ITEMS];
    uint8_t trailers[BULK_ITEMS][HR__PEER_TRAILER];
    struct hr_error error = {0, ""};
    uint64_t bytes = 0;
    size_t end = 0;
    int c;
    call->deadline_ns = hr__now_ns() + call->peers->timeout_ns;
    int r = enter(call->peers, h, ITEMS, call->deadline_ns, &c, &error);
    *asked = count = bulk_of(call, items, count);
    if (r)
        return r;
    for (size_t i = 0; i < count; i++) {
        const struct hr__peer_trailer trailer = {items[i].length, items[i].form,
                                                 items[i].source_bytes, items[i].change,
                                                 items[i].content};
        hr__peer_item_seal(trailers[i], &trailer, items[i].key, items[i].bytes,
                           &call->peers->secret);
        stores[i] = (struct hr__peer_store){.bytes = items[i].bytes,
                                            .length = items[i].length,
                                            .tail = trailers[i],
                                            .tail_length = HR__PEER_TRAILER};
        name_key(stores[i].key, items[i].key);
    }
    r = call->peers->ops->put(h->clients[c], stores, count, call->deadline_ns, &error);
    for (size_t i = 0; i < count; i++) {
        if (stores[i].result == -ETIMEDOUT)
            continue;
        bytes += items[i].length;
        end = i + 1;
    }
    r = adapt(call, r, end ? bytes + 1 : 0);
    leave(call->peers, h, c, r, &error);
    if (r == -EBUSY)
        *asked = end;
    call->done += settle(h, items, stores, *asked);
    return r == -EBUSY ? 0 : r;
}

size_t hr__peers_store(struct hr__peers *peers, int host, struct hr__peer_item *items, size_t count)
{
    struct call call = {.peers = peers, .host = &peers->hosts[host], .is_store = 1};
    int r = 0;
    for (size_t i = 0; i < count; i++)
        items[i].result = -EINPROGRESS;
    uint64_t last_ns = hr__now_ns() + CALL_TIMES * peers->timeout_ns;
    for (size_t i = 0, n; i < count && !r; i += n)
        r = hr__now_ns() < last_ns ? store_bulk(&call, items + i, count - i, &n) : -ETIMEDOUT;
    for (size_t i = 0; i < count; i++)
        if (items[i].result == -EINPROGRESS)
            items[i].result = r;
    return call.done;
}

int hr__peers_is_up(const struct hr__peers *peers, int host)
{
    uint64_t retry = value_of(&peers->hosts[host].retry_ns);
    return !atomic_load_explicit(&peers->is_cancelled, memory_order_relaxed) &&
           (!retry || hr__now_ns() >= retry);
}

/* Copies a value as text; NULL: it is not text, or out of memory. */
static char *text_of(const struct hr__peer_value *value)
{
    if (value->length > RECORD_BYTES || memchr(value->bytes, 0, value->length))
        return NULL;
    value->bytes[value->length] = 0;
    return hr__strdup(HR__TAG_CACHE, (char *)value->bytes);
}

/* Reads at most BULK_ITEMS records. */
static int read_bulk(struct hr__peers *peers, struct host *h, struct hr__peer_record *records,
                     size_t count)
{
    struct hr__peer_value values[BULK_ITEMS];
    struct hr_error error = {0, ""};
    uint64_t deadline = hr__now_ns() + peers->timeout_ns;
    int c, found = 0;
    for (size_t i = 0; i < count; i++) {
        if (strlen(records[i].key) > HR__PEER_KEY)
            return -EINVAL;
        strcpy(values[i].key, records[i].key);
        values[i].bytes = NULL;
    }
    int r = enter(peers, h, RECORDS, deadline, &c, &error);
    if (r)
        return r;
    r = peers->ops->get(h->clients[c], values, count, deadline, &error);
    leave(peers, h, c, r, &error);
    for (size_t i = 0; i < count; i++) {
        if (values[i].bytes && !r)
            records[i].text = text_of(&values[i]);
        found += records[i].text != NULL;
        hr__free(values[i].bytes);
    }
    return r ? r : found;
}

int hr__peers_read_all(struct hr__peers *peers, int host, struct hr__peer_record *records,
                       size_t count)
{
    int found = 0, r = 0;
    for (size_t i = 0; i < count; i++)
        records[i].text = NULL;
    for (size_t i = 0, n; i < count && r >= 0; i += n) {
        n = count - i < BULK_ITEMS ? count - i : BULK_ITEMS;
        r = read_bulk(peers, &peers->hosts[host], records + i, n);
        found += r > 0 ? r : 0;
    }
    if (r >= 0)
        return found;
    for (size_t i = 0; i < count; i++) {
        hr__free(records[i].text);
        records[i].text = NULL;
    }
    return r;
}

int hr__peers_read(struct hr__peers *peers, int host, const char *key, char **text)
{
    struct hr__peer_record record = {.key = key};
    int r = hr__peers_read_all(peers, host, &record, 1);
    *text = record.text;
    return r;
}

int hr__peers_write(struct hr__peers *peers, int host, const char *key, const char *text,
                    uint32_t expires_s)
{
    struct host *h = &peers->hosts[host];
    struct hr__peer_store store = {
        .bytes = text, .length = strlen(text), .tail = "", .expires_s = expires_s};
    struct hr_error error = {0, ""};
    uint64_t deadline = hr__now_ns() + peers->timeout_ns;
    int c;
    if (strlen(key) > HR__PEER_KEY || store.length > RECORD_BYTES)
        return -EINVAL;
    strcpy(store.key, key);
    int r = enter(peers, h, RECORDS, deadline, &c, &error);
    if (r)
        return r;
    r = peers->ops->put(h->clients[c], &store, 1, deadline, &error);
    leave(peers, h, c, r, &error);
    return r ? r : store.result;
}

int hr__peers_about(struct hr__peers *peers, int host, struct hr__peer_about *about,
                    struct hr_error *error)
{
    struct host *h = &peers->hosts[host];
    struct hr_error own = {0, ""};
    uint64_t deadline = hr__now_ns() + peers->timeout_ns;
    int c;
    memset(about, 0, sizeof *about);
    int r = enter(peers, h, ABOUT, deadline, &c, &own);
    if (!r) {
        r = peers->ops->about(h->clients[c], about, deadline, &own);
        leave(peers, h, c, r, &own);
    }
    if (r)
        hr__fail(error, r, "%s", own.message[0] ? own.message : hr__errno_text(r));
    return r;
}

void hr__peers_counts(const struct hr__peers *peers, int host, struct hr__peers_counts *counts)
{
    const struct host *h = &peers->hosts[host];
    const struct counters *c = &h->counters;
    *counts = (struct hr__peers_counts){
        .fetched = value_of(&c->fetched),
        .missed = value_of(&c->missed),
        .stored = value_of(&c->stored),
        .refused = value_of(&c->refused),
        .too_large = value_of(&c->too_large),
        .fetched_bytes = value_of(&c->fetched_bytes),
        .stored_bytes = value_of(&c->stored_bytes),
        .requests = value_of(&c->requests),
        .failures = value_of(&c->failures),
        .damaged = value_of(&c->damaged),
        .request_ns = value_of(&c->request_ns),
        .is_up = hr__peers_is_up(peers, host),
    };
    if (peers->pid != getpid())
        return;
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&h->lock;
    pthread_mutex_lock(lock);
    memcpy(counts->problem, h->problem, sizeof counts->problem);
    pthread_mutex_unlock(lock);
}
