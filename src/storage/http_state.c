/*
 * What the threads of a client share: its settings, credentials, places and limits; see http.h.
 *
 * Nothing is locked, so that a forked child is never caught by a lock of a thread that it does not
 * have. What is learned on the way (credentials, regions of buckets) is put in front of a list
 * whose entries never change and stay until the client ends.
 */
#include "storage/http_inside.h"

#include "base/clock.h"
#include "base/error.h"
#include "storage/aws_profile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <xxhash.h>

/* Seconds for one read with all its retries, unless HEADRACE_OBJECT_TIMEOUT says otherwise. */
#define DEADLINE_S 120

/* A request without a byte for this part of the deadline is given up, between these limits. */
#define STALL_PART     8
#define STALL_LEAST_MS 100
#define STALL_MOST_MS  10000

/* The limit of requests in flight, in 1/256: at first, and what is left of it after a refusal.
 * Samples of usual size in so many requests fill 1 Gbit/s at 40 ms, or nearly, from the start. */
#define LIMIT_ONE    256u
#define LIMIT_FIRST  (64 * LIMIT_ONE)
#define LIMIT_MOST   (HR__HTTP_MOST * LIMIT_ONE)
#define AFTER(limit) ((limit) / 10 * 7)

/* Refusals within this time or one latency are one event: the requests were in flight together. */
#define REFUSALS_APART_NS UINT64_C(100000000)

/* Credentials are renewed so long before they end. If that gives no later ones, it is tried again
 * after a pause: it may take a second, in which a thread reads nothing. */
#define RENEW_S        300
#define RENEW_PAUSE_NS UINT64_C(10000000000)
#define PAUSE_US       5000

/* The bit of digests that stand for a missing ETag. */
#define VERSION_MARK (UINT64_C(1) << 63)

/* What the link is taken to repay at least. */
#define BOUND_LEAST 16

#define DEFAULT_REGION "us-east-1"

/* ---- settings ---- */

static int copy(char **out, const char *text)
{
    *out = text ? hr__strdup(HR__TAG_STORAGE, text) : NULL;
    return text && !*out ? -ENOMEM : 0;
}

/* Takes an endpoint: scheme and host, without a slash at the end. */
static int set_endpoint(char **out, const char *text, const char *name, struct hr_error *error)
{
    struct hr__url url;
    struct hr_error why;
    if (!text)
        return 0;
    if (hr__url_parse(&url, text, &why))
        return hr__fail(error, -EINVAL, "%s cannot be used: %s", name, why.message);
    if (hr__url_has_bucket(&url))
        return hr__fail(error, -EINVAL, "%s is %s: an endpoint begins with https:// or http://",
                        name, text);
    if (copy(out, text))
        return hr__fail(error, -ENOMEM, "out of memory for settings");
    for (size_t n = strlen(*out); n && (*out)[n - 1] == '/';)
        (*out)[--n] = 0;
    return 0;
}

static int set_times(struct hr__http_settings *s, struct hr_error *error)
{
    const char *text = hr__setting("HEADRACE_OBJECT_TIMEOUT");
    char *end = NULL;
    double seconds = text ? strtod(text, &end) : DEADLINE_S;
    if (text && (*end || !(seconds >= 0.1 && seconds <= 86400)))
        return hr__fail(error, -EINVAL,
                        "HEADRACE_OBJECT_TIMEOUT is %s: it is the seconds that one read may take "
                        "with all its retries, 0.1 to 86400",
                        text);
    s->deadline_ns = (uint64_t)(seconds * 1e9);
    double stall_ms = seconds * 1000 / STALL_PART;
    s->stall_ms = stall_ms < STALL_LEAST_MS  ? STALL_LEAST_MS
                  : stall_ms > STALL_MOST_MS ? STALL_MOST_MS
                                             : (unsigned)stall_ms;
    return 0;
}

/* Reads "GET,PUT,LIST", in dollars for 1,000 requests. The usual ones are S3's in us-east-1. */
static int set_prices(struct hr__http_settings *s, struct hr_error *error)
{
    const char *text = hr__setting("HEADRACE_OBJECT_PRICES");
    double usd[3] = {0.0004, 0.005, 0.005};
    const char *at = text;
    for (int i = 0; text && i < 3; i++) {
        char *end;
        usd[i] = strtod(at, &end);
        if (end == at || !(usd[i] >= 0 && usd[i] <= 1000) || *end != (i < 2 ? ',' : 0))
            return hr__fail(error, -EINVAL,
                            "HEADRACE_OBJECT_PRICES is %.60s: it is three prices of 1,000 requests "
                            "in dollars, of GET, PUT and LIST, as in \"0.0004,0.005,0.005\"",
                            text);
        at = end + 1;
    }
    s->read_usd = usd[0] / 1000;
    s->write_usd = usd[1] / 1000;
    s->list_usd = usd[2] / 1000;
    return 0;
}

static int set_style(struct hr__http_settings *s, const struct hr__aws_profile *p,
                     struct hr_error *error)
{
    const char *style = hr__setting("AWS_S3_ADDRESSING_STYLE");
    if (!style)
        style = hr__aws_profile_get(p, "s3.addressing_style");
    s->path_style = -1;
    if (!style || !strcmp(style, "auto"))
        return 0;
    s->path_style = !strcmp(style, "path");
    return s->path_style || !strcmp(style, "virtual")
               ? 0
               : hr__fail(error, -EINVAL,
                          "the addressing style is %.32s: it must be auto, path or virtual", style);
}

static int set_region(struct hr__http_settings *s, const struct hr__aws_profile *p,
                      struct hr_error *error)
{
    const char *region = hr__setting("AWS_REGION");
    if (!region)
        region = hr__setting("AWS_DEFAULT_REGION");
    if (!region)
        region = hr__aws_profile_get(p, "region");
    if (region && (strlen(region) >= sizeof s->region ||
                   region[strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-_")]))
        return hr__fail(error, -EINVAL,
                        "the region %.40s is none: write \"eu-west-1\", for example", region);
    snprintf(s->region, sizeof s->region, "%s", region ? region : "");
    return 0;
}

int hr__http_read_settings(struct hr__http_settings *s, struct hr_error *error)
{
    const char *name = hr__setting("AWS_PROFILE");
    struct hr__aws_profile p;
    int r = hr__aws_profile_read(&p, name ? name : "default", error);
    if (r)
        return r;
    const char *endpoint = hr__setting("AWS_ENDPOINT_URL_S3");
    if (!endpoint)
        endpoint = hr__setting("AWS_ENDPOINT_URL");
    if (!endpoint)
        endpoint = hr__aws_profile_get(&p, "s3.endpoint_url");
    if (!endpoint)
        endpoint = hr__aws_profile_get(&p, "endpoint_url");
    const char *certificates = hr__setting("AWS_CA_BUNDLE");
    if (!certificates)
        certificates = hr__aws_profile_get(&p, "ca_bundle");
    if (!certificates)
        certificates = hr__setting("SSL_CERT_FILE");
    r = set_endpoint(&s->endpoint, endpoint, "the endpoint of S3", error);
    if (!r)
        r = set_endpoint(&s->gs_endpoint, hr__setting("STORAGE_EMULATOR_HOST"),
                         "STORAGE_EMULATOR_HOST", error);
    if (!r && copy(&s->certificates, certificates))
        r = hr__fail(error, -ENOMEM, "out of memory for settings");
    if (!r)
        r = set_region(s, &p, error);
    if (!r)
        r = set_style(s, &p, error);
    if (!r)
        r = set_times(s, error);
    if (!r)
        r = set_prices(s, error);
    hr__aws_profile_clear(&p);
    return r;
}

/* ---- the process and the limit of requests in flight ---- */

void hr__http_begin(struct hr__http_client *http)
{
    atomic_init(&http->limit, LIMIT_FIRST);
    atomic_init(&http->bound, HR__HTTP_MOST);
    hr__pace_init(&http->pace, BOUND_LEAST, HR__HTTP_MOST);
    atomic_init(&http->process, getpid());
}

void hr__http_enter(struct hr__http_client *http)
{
    pid_t before = atomic_load(&http->process), now = getpid();
    if (before != now && atomic_compare_exchange_strong(&http->process, &before, now))
        atomic_store(&http->active, 0);
}

uint64_t hr__etag_digest(const char *etag)
{
    size_t length;
    if (!strncmp(etag, "W/", 2))
        etag += 2;
    length = strlen(etag);
    if (length >= 2 && etag[0] == '"' && etag[length - 1] == '"') {
        etag++;
        length -= 2;
    }
    uint64_t digest = length ? XXH3_64bits(etag, length) >> 1 : 0;
    return length && !digest ? 1 : digest;
}

uint64_t hr__object_version(const struct hr__object *object)
{
    return object->is_weak || object->change & VERSION_MARK ? 0 : object->change;
}

uint64_t hr__version_digest(int64_t mtime_ns, int64_t bytes)
{
    const int64_t what[2] = {mtime_ns, bytes};
    return XXH3_64bits(what, sizeof what) | VERSION_MARK;
}

bool hr__http_may_begin(struct hr__http_client *http)
{
    int most = (int)(atomic_load(&http->limit) / LIMIT_ONE), now = atomic_load(&http->active);
    int bound = (int)atomic_load(&http->bound);
    if (most > bound)
        most = bound;
    while (now < most)
        if (atomic_compare_exchange_weak(&http->active, &now, now + 1)) {
            atomic_fetch_add(&http->requests, 1);
            return true;
        }
    return false;
}

static void lower_limit(struct hr__http_client *http)
{
    uint64_t now_ns = hr__now_ns(), last_ns = atomic_load(&http->refused_ns);
    uint64_t apart_ns = atomic_load(&http->latency_ns);
    if (apart_ns < REFUSALS_APART_NS)
        apart_ns = REFUSALS_APART_NS;
    if ((last_ns && now_ns - last_ns < apart_ns) ||
        !atomic_compare_exchange_strong(&http->refused_ns, &last_ns, now_ns))
        return;
    atomic_store(&http->was_refused, 1);
    unsigned limit = atomic_load(&http->limit), next;
    do
        next = AFTER(limit) > LIMIT_ONE ? AFTER(limit) : LIMIT_ONE;
    while (!atomic_compare_exchange_weak(&http->limit, &limit, next));
}

static void raise_limit(struct hr__http_client *http, int active)
{
    unsigned limit = atomic_load(&http->limit);
    /* Requests that are not asked for, or held back by the bound, prove nothing. */
    if ((unsigned)active * 2 * LIMIT_ONE < limit || limit / LIMIT_ONE > atomic_load(&http->bound))
        return;
    /* By one for each answer before the first refusal, then by one for each round of answers. */
    unsigned step = atomic_load(&http->was_refused) ? LIMIT_ONE * LIMIT_ONE / limit : LIMIT_ONE;
    if (limit + step <= LIMIT_MOST)
        atomic_compare_exchange_strong(&http->limit, &limit, limit + step);
}

/* Tells the pace what ended. While another thread does so, leaves it to that one's next turn. The
 * thread may have died in a fork: then it was of another process. */
static void pace(struct hr__http_client *http, uint64_t took_ns)
{
    pid_t owner = atomic_load(&http->pacing), self = getpid();
    atomic_fetch_add(&http->answers, 1);
    atomic_fetch_add(&http->took_ns, took_ns);
    if (owner == self || !atomic_compare_exchange_strong(&http->pacing, &owner, self))
        return;
    struct hr__pace_sum ended = {atomic_exchange(&http->answers, 0),
                                 atomic_exchange(&http->took_ns, 0)};
    hr__pace_note(&http->pace, &ended, hr__now_ns());
    atomic_store(&http->bound, hr__pace_now(&http->pace));
    atomic_store(&http->pacing, 0);
}

void hr__http_ended(struct hr__http_client *http, bool refused, uint64_t latency_ns,
                    uint64_t took_ns)
{
    int active = atomic_fetch_sub(&http->active, 1);
    if (refused) {
        atomic_fetch_add(&http->refusals, 1);
        lower_limit(http);
        return;
    }
    if (!latency_ns)
        return;
    uint64_t mean_ns = atomic_load(&http->latency_ns);
    atomic_store(&http->latency_ns, mean_ns ? mean_ns - mean_ns / 8 + latency_ns / 8 : latency_ns);
    pace(http, took_ns);
    raise_limit(http, active);
}

/* ---- credentials ---- */

static int find_credentials(struct hr__http_client *http, bool gs, struct hr_error *error)
{
    struct hr__web *web = NULL;
    struct hr__credentials *c = NULL;
    const char *region = http->settings.region;
    int r = hr__web_create(&web, http->settings.certificates, error);
    if (!r)
        r = hr__credentials_find(&c, web, gs, *region ? region : DEFAULT_REGION, error);
    hr__web_destroy(&web);
    struct hr__credentials *known = atomic_load(&http->credentials[gs]);
    /* a source that is silent for once must not make the rest of a run anonymous */
    if (!r && known && known->key_id[0] && !c->key_id[0]) {
        r = hr__fail(error, -EACCES,
                     "%s gave credentials that have ended, and gives no new ones: check that it "
                     "answers",
                     known->source);
        hr__credentials_free(&c);
    }
    if (r)
        return r;
    c->older = known;
    atomic_store(&http->credentials[gs], c);
    return 0;
}

int hr__http_credentials(struct hr__http_client *http, bool gs,
                         const struct hr__credentials *refused, const struct hr__credentials **out,
                         struct hr_error *error)
{
    for (;;) {
        struct hr__credentials *now = atomic_load(&http->credentials[gs]);
        int is_good = now && now != refused && !hr__credentials_end(now, 0);
        *out = now;
        uint64_t since_ns = hr__now_ns() - atomic_load(&http->sought_ns[gs]);
        if (is_good && (!hr__credentials_end(now, RENEW_S) || since_ns < RENEW_PAUSE_NS))
            return 0;
        /* One thread finds new ones. It may have died in a fork: then it was of another process. */
        pid_t owner = atomic_load(&http->finding[gs]), self = getpid();
        if (owner != self && atomic_compare_exchange_strong(&http->finding[gs], &owner, self)) {
            int r =
                atomic_load(&http->credentials[gs]) == now ? find_credentials(http, gs, error) : 0;
            atomic_store(&http->sought_ns[gs], hr__now_ns());
            atomic_store(&http->finding[gs], 0);
            if (r)
                return is_good ? 0 : r;
            *out = atomic_load(&http->credentials[gs]);
            return 0;
        }
        if (is_good)
            return 0;
        usleep(PAUSE_US);
    }
}

/* ---- places ---- */

/* Returns whether a bucket may stand before a host name: so no certificate is in the way. */
static bool is_host_label(const char *bucket)
{
    size_t n = strlen(bucket);
    return n <= 63 && !bucket[strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789-")];
}

/* Returns the base URL of a bucket; the caller owns it. NULL: out of memory. */
static char *make_base(const struct hr__http_settings *s, bool gs, const char *bucket,
                       const char *region)
{
    const char *endpoint = gs ? s->gs_endpoint : s->endpoint;
    struct hr__draft base = {0};
    char own[128];
    int is_path = s->path_style;
    if (gs && !endpoint)
        endpoint = "https://storage.googleapis.com";
    if (!endpoint) {
        snprintf(own, sizeof own, "https://s3.%s.amazonaws.com%s", region,
                 strncmp(region, "cn-", 3) ? "" : ".cn");
        endpoint = own;
        is_path = is_path > 0 || !is_host_label(bucket);
    } else if (is_path < 0) {
        is_path = 1;
    }
    const char *host = strstr(endpoint, "://") + 3;
    if (is_path)
        hr__draft_print(&base, "%s/%s", endpoint, bucket);
    else
        hr__draft_print(&base, "%.*s%s.%s", (int)(host - endpoint), endpoint, bucket, host);
    char *text = NULL;
    if (base.failed || hr__draft_finish(&base, &text, NULL))
        hr__draft_clear(&base);
    return text;
}

static struct hr__http_place *find_place(struct hr__http_client *http, const char *bucket,
                                         size_t length, bool gs)
{
    struct hr__http_place *p = atomic_load(&http->places);
    while (p && (p->gs != gs || strlen(p->bucket) != length || memcmp(p->bucket, bucket, length)))
        p = p->older;
    return p;
}

static int add_place(struct hr__http_client *http, struct hr__http_place *p)
{
    if (!p->base) {
        hr__free(p);
        return -ENOMEM;
    }
    p->older = atomic_load(&http->places);
    while (!atomic_compare_exchange_weak(&http->places, &p->older, p))
        ;
    return 0;
}

int hr__http_place(struct hr__http_client *http, const struct hr__url *url,
                   const struct hr__http_place **out)
{
    bool gs = url->scheme == HR__URL_GS;
    *out = find_place(http, url->host, url->host_length, gs);
    if (*out)
        return 0;
    struct hr__http_place *p = hr__alloc(HR__TAG_STORAGE, 1, sizeof *p);
    if (!p)
        return -ENOMEM;
    const char *region = http->settings.region;
    snprintf(p->bucket, sizeof p->bucket, "%.*s", (int)url->host_length, url->host);
    snprintf(p->region, sizeof p->region, "%s", gs ? "auto" : *region ? region : DEFAULT_REGION);
    p->gs = gs;
    p->base = make_base(&http->settings, gs, p->bucket, p->region);
    *out = p;
    return add_place(http, p);
}

int hr__http_learn(struct hr__http_client *http, const struct hr__http_place *now,
                   const char *region)
{
    const struct hr__http_place *known =
        find_place(http, now->bucket, strlen(now->bucket), now->gs);
    if (known != now) /* another thread was faster */
        return 0;
    if (!strcmp(now->region, region))
        return -EALREADY;
    if (!region[0] || strlen(region) >= sizeof now->region ||
        region[strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-_")])
        return -EALREADY;
    struct hr__http_place *p = hr__alloc(HR__TAG_STORAGE, 1, sizeof *p);
    if (!p)
        return -ENOMEM;
    *p = *now;
    snprintf(p->region, sizeof p->region, "%s", region);
    p->base = make_base(&http->settings, p->gs, p->bucket, p->region);
    int r = add_place(http, p);
    if (!r)
        hr__log(HR_LOG_INFO,
                "the bucket %s is in the region %s, and %s was asked: set AWS_REGION=%s to save a "
                "request",
                p->bucket, region, now->region, region);
    return r;
}
