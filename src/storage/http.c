/* The client of objects as its users see it; see http.h. */
#include "storage/http_inside.h"

#include "base/error.h"

#include <errno.h>

/* How often a call that may be stopped looks whether it is. */
#define STOP_LOOK_NS INT64_C(50000000)

int hr__http_create(struct hr__http_client **out, struct hr_error *error)
{
    struct hr__http_channel *channel = NULL;
    struct hr__http_client *http = hr__alloc(HR__TAG_STORAGE, 1, sizeof *http);
    *out = NULL;
    if (!http)
        return hr__fail(error, -ENOMEM, "out of memory for a client of objects");
    atomic_init(&http->references, 1);
    hr__http_begin(http);
    int r = hr__http_read_settings(&http->settings, error);
    /* Finds out at once whether this build can read URLs at all. */
    if (!r)
        r = hr__http_channel_create(&channel, http, error);
    if (r)
        hr__http_unref(&http);
    else
        atomic_store(&http->idle[0], channel);
    *out = http;
    return r;
}

struct hr__http_client *hr__http_ref(struct hr__http_client *http)
{
    if (http)
        atomic_fetch_add(&http->references, 1);
    return http;
}

void hr__http_unref(struct hr__http_client **http)
{
    struct hr__http_client *h = *http;
    *http = NULL;
    if (!h || atomic_fetch_sub(&h->references, 1) != 1)
        return;
    for (int i = 0; i < HR__HTTP_IDLE; i++) {
        struct hr__http_channel *channel = atomic_exchange(&h->idle[i], NULL);
        hr__http_channel_destroy(&channel);
    }
    for (struct hr__http_place *p = atomic_load(&h->places); p;) {
        struct hr__http_place *older = p->older;
        hr__free(p->base);
        hr__free(p);
        p = older;
    }
    for (int i = 0; i < 2; i++)
        for (struct hr__credentials *c = atomic_load(&h->credentials[i]); c;) {
            struct hr__credentials *older = c->older;
            hr__credentials_free(&c);
            c = older;
        }
    hr__free(h->settings.endpoint);
    hr__free(h->settings.gs_endpoint);
    hr__free(h->settings.certificates);
    hr__free(h);
}

void hr__http_count(const struct hr__http_client *http, struct hr__http_counts *counts)
{
    counts->requests += atomic_load(&http->requests);
    counts->lists += atomic_load(&http->lists);
    counts->retries += atomic_load(&http->retries);
    counts->hedges += atomic_load(&http->hedges);
    counts->refusals += atomic_load(&http->refusals);
    counts->bytes += atomic_load(&http->bytes);
    counts->writes += atomic_load(&http->writes);
    uint64_t lists = atomic_load(&http->lists), writes = atomic_load(&http->writes);
    uint64_t all = atomic_load(&http->requests);
    counts->cost_usd +=
        (double)lists * http->settings.list_usd + (double)writes * http->settings.write_usd +
        (double)(all > lists + writes ? all - lists - writes : 0) * http->settings.read_usd;
}

int hr__http_run(struct hr__http_client *http, struct hr__http_call *call)
{
    struct hr__http_channel *channel = NULL;
    struct hr_error why = {.code = 0};
    int r = 0;
    for (int i = 0; !channel && i < HR__HTTP_IDLE; i++) {
        channel = atomic_exchange(&http->idle[i], NULL);
        /* In a forked child a channel of the parent only loses its memory. */
        if (channel && !hr__http_channel_is_ours(channel))
            hr__http_channel_destroy(&channel);
    }
    if (!channel)
        r = hr__http_channel_create(&channel, http, &why);
    if (r) {
        call->result = r;
        call->reason = hr__strdup(HR__TAG_STORAGE, why.message);
        return r;
    }
    hr__http_channel_start(channel, call);
    while (!hr__http_channel_wait(channel, call->stop ? STOP_LOOK_NS : -1))
        if (call->stop && atomic_load(call->stop)) {
            hr__http_channel_destroy(&channel);
            return call->result = -ECANCELED;
        }
    for (int i = 0; channel && i < HR__HTTP_IDLE; i++) {
        struct hr__http_channel *none = NULL;
        if (atomic_compare_exchange_strong(&http->idle[i], &none, channel))
            channel = NULL;
    }
    hr__http_channel_destroy(&channel);
    return call->result;
}

char *hr__http_address(struct hr__http_client *http, const char *url)
{
    struct hr__url parsed;
    const struct hr__http_place *place;
    struct hr__draft text = {0};
    char *out = NULL;
    if (hr__url_parse(&parsed, url, NULL) || !hr__url_has_bucket(&parsed) ||
        hr__http_place(http, &parsed, &place))
        return NULL;
    hr__draft_print(&text, "%s/%s", place->base, parsed.path);
    return hr__draft_finish(&text, &out, NULL) ? NULL : out;
}
