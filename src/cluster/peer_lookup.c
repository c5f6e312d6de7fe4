/*
 * Lookup of names in a thread (peer_lookup.h).
 *
 * The thread and its caller share a search; the last one to let go of it frees it. The caller
 * sleeps on the futex `done` in short steps, because it also has to check its other reasons to stop
 * waiting.
 */
#include "cluster/peer_lookup.h"

#include "base/futex.h"
#include "base/memory.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define STEP_NS (20 * UINT64_C(1000000))

struct hr__peer_search {
    atomic_int holders;
    atomic_uint done;
    int result; /* result of getaddrinfo */
    struct addrinfo *list;
    char port[8];
    char name[];
};

static int find(const char *name, const char *port, int flags, struct addrinfo **list)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_protocol = IPPROTO_TCP,
                             .ai_flags = flags | AI_NUMERICSERV};
    return getaddrinfo(name, port, &hints, list);
}

static void release(struct hr__peer_search *search)
{
    if (!search || atomic_fetch_sub(&search->holders, 1) > 1)
        return;
    if (search->list)
        freeaddrinfo(search->list);
    hr__free(search);
}

static void *look(void *arg)
{
    struct hr__peer_search *search = arg;
    search->result = find(search->name, search->port, 0, &search->list);
    atomic_store_explicit(&search->done, 1, memory_order_release);
    hr__futex_wake(&search->done, 1, 0);
    release(search);
    return NULL;
}

static int begin(struct hr__peer_lookup *lookup, const char *name, const char *port)
{
    struct hr__peer_search *search = hr__alloc(HR__TAG_CACHE, 1, sizeof *search + strlen(name) + 1);
    if (!search)
        return -ENOMEM;
    strcpy(search->name, name);
    strcpy(search->port, port);
    atomic_init(&search->holders, 2);

    pthread_t thread;
    int r = hr__thread_create(&thread, look, search);
    if (r) {
        hr__free(search);
        return r;
    }
    pthread_detach(thread);
    lookup->pending = search;
    return 0;
}

static int outcome(int result, const char **reason)
{
    if (!result)
        return 0;
    if (result == EAI_MEMORY)
        return -ENOMEM;
    *reason = gai_strerror(result);
    return -EHOSTUNREACH;
}

int hr__peer_lookup(struct hr__peer_lookup *lookup, const char *name, uint16_t port,
                    uint64_t deadline_ns, const atomic_int *stop, struct addrinfo **out,
                    const char **reason)
{
    char digits[8];
    *out = NULL;
    snprintf(digits, sizeof digits, "%u", port);
    if (!lookup->pending) {
        if (!find(name, digits, AI_NUMERICHOST, out))
            return 0;
        *out = NULL;
        int r = begin(lookup, name, digits);
        if (r)
            return r;
    }
    struct hr__peer_search *search = lookup->pending;
    while (!atomic_load_explicit(&search->done, memory_order_acquire)) {
        uint64_t now = hr__now_ns();
        if (atomic_load(stop))
            return -ECANCELED;
        if (now >= deadline_ns)
            return -ETIMEDOUT;
        uint64_t until = deadline_ns - now < STEP_NS ? deadline_ns : now + STEP_NS;
        hr__futex_wait(&search->done, 0, until, 0);
    }
    int r = outcome(search->result, reason);
    *out = search->list;
    search->list = NULL;
    hr__peer_lookup_clear(lookup);
    return r;
}

void hr__peer_lookup_clear(struct hr__peer_lookup *lookup)
{
    release(lookup->pending);
    lookup->pending = NULL;
}
