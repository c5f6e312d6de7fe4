/*
 * One request for an object: its URL, headers and signature; its body, which goes into the caller's
 * buffer; and what its answer means.
 *
 * A body counts only if it is whole: as long as announced, wanted and listed, and of the ETag that
 * was listed. Anything else is an error or is asked for again.
 */
#include "storage/http_inside.h"

#include "base/clock.h"
#include "base/error.h"
#include "storage/aws_profile.h"
#include "storage/transfer.h"
#include "storage/xml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Limits for making a connection, and the first room for a body of unknown length. */
#define CONNECT_MS    10000u
#define UNSIZED_BYTES ((size_t)64 << 10)

/* How often a request is sent elsewhere, or with new credentials. */
#define REDIRECTS_MOST 4
#define RENEWALS_MOST  2

/* ---- the answer's headers ---- */

static int64_t number_of(const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    return errno || end == text || value < 0 ? -1 : (int64_t)value;
}

/* Reads "Mon, 23 Nov 2026 18:00:00 GMT". Returns seconds since 1970, or -1. */
static int64_t time_of_date(const char *text)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char month[4] = "";
    struct tm t = {0};
    if (sscanf(text, "%*3s, %2d %3s %4d %2d:%2d:%2d", &t.tm_mday, month, &t.tm_year, &t.tm_hour,
               &t.tm_min, &t.tm_sec) != 6 ||
        strlen(month) != 3 || t.tm_year < 1970)
        return -1;
    const char *found = strstr(months, month);
    if (!found || (found - months) % 3)
        return -1;
    t.tm_mon = (int)(found - months) / 3;
    t.tm_year -= 1900;
    return (int64_t)timegm(&t);
}

/* Reads "bytes 0-99/1000". */
static void take_range(struct hr__http_attempt *a, const char *value)
{
    if (strncmp(value, "bytes ", 6))
        return;
    a->first = number_of(value + 6);
    const char *dash = strchr(value, '-'), *slash = strchr(value, '/');
    a->last = dash ? number_of(dash + 1) : -1;
    a->total = slash ? number_of(slash + 1) : -1;
}

static void forget_answer(struct hr__http_attempt *a)
{
    a->told = a->first = a->last = a->total = -1;
    a->object = (struct hr__object){.bytes = -1};
    a->region[0] = a->date[0] = a->etag[0] = 0;
    a->is_encrypted = false;
    a->pause_s = 0;
    a->text_length = 0;
}

static void on_header(struct hr__web_exchange *exchange, const char *name, const char *value)
{
    struct hr__http_attempt *a = (struct hr__http_attempt *)exchange;
    if (!*name) {
        forget_answer(a);
        if (!a->first_ns)
            a->first_ns = exchange->moved_ns;
    } else if (!strcmp(name, "content-length")) {
        a->told = number_of(value);
    } else if (!strcmp(name, "etag")) {
        a->object.change = hr__etag_digest(value);
        a->object.is_weak = !strncmp(value, "W/", 2);
        snprintf(a->etag, sizeof a->etag, "%s", value);
    } else if (!strcmp(name, "x-amz-server-side-encryption")) {
        a->is_encrypted |= !strncmp(value, "aws:kms", 7);
    } else if (!strcmp(name, "x-amz-server-side-encryption-customer-algorithm")) {
        a->is_encrypted = true;
    } else if (!strcmp(name, "content-range")) {
        take_range(a, value);
    } else if (!strcmp(name, "last-modified")) {
        a->object.mtime_ns = hr__mtime_of(time_of_date(value));
    } else if (!strcmp(name, "x-amz-bucket-region")) {
        snprintf(a->region, sizeof a->region, "%s", value);
    } else if (!strcmp(name, "date")) {
        snprintf(a->date, sizeof a->date, "%s", value);
    } else if (!strcmp(name, "retry-after")) {
        int64_t s = number_of(value);
        a->pause_s = s > 0 && s < 3600 ? (unsigned)s : 0;
    }
}

/* ---- the body ---- */

static int is_good(int status)
{
    return status == 200 || status == 204 || status == 206;
}

/* Returns whether the answer is of another version of the object than the one that was listed.
 * Without an ETag its time and size tell. */
static bool is_other_version(struct hr__http_attempt *a)
{
    const struct hr__http_call *c = a->call;
    if (!a->object.change && a->object.mtime_ns && a->object.bytes >= 0)
        a->object.change = hr__version_digest(a->object.mtime_ns, a->object.bytes);
    uint64_t apart = c->change && a->object.change ? c->change ^ a->object.change : 0;
    return (apart && !(apart >> 63)) ||
           (c->expected >= 0 && a->object.bytes >= 0 && c->expected != a->object.bytes);
}

/* Returns whether the object was listed with an ETag, and the answer has none to compare. */
static bool is_unnamed(const struct hr__http_attempt *a)
{
    uint64_t listed = a->call->change, told = a->object.change;
    return listed && !(listed >> 63) && (!told || told >> 63);
}

/* Compares the range that an answer tells with the one that is wanted. */
static int check_range(struct hr__http_attempt *a)
{
    const struct hr__http_call *c = a->call;
    if (a->first < 0 || (uint64_t)a->first != c->offset || a->last < a->first ||
        (a->total >= 0 && a->last >= a->total))
        return -EPROTO;
    uint64_t bytes = (uint64_t)a->last - (uint64_t)a->first + 1;
    if (bytes > c->bytes_wanted || (a->told >= 0 && (uint64_t)a->told != bytes))
        return -EPROTO;
    a->told = (int64_t)bytes;
    /* Fewer bytes than wanted are those up to the end. */
    return bytes < c->bytes_wanted && !c->may_end ? -ENODATA : 0;
}

/* Compares what an answer tells with what is wanted and was listed. Returns 0, -ESTALE, -ENODATA,
 * -ENOMSG: it has no ETag, -EOPNOTSUPP: the server ignores ranges, or -EPROTO: it tells what cannot
 * be. */
static int check_head(struct hr__http_attempt *a)
{
    const struct hr__http_call *c = a->call;
    /* some stores answer a range with 200, and tell it all the same */
    int is_part = a->exchange.status == 206 || a->first >= 0;
    a->object.bytes = is_part ? a->total : a->told;
    if (is_other_version(a))
        return -ESTALE;
    if (is_unnamed(a))
        return -ENOMSG;
    if (!c->is_range)
        return is_part ? -EPROTO : 0;
    if (is_part)
        return check_range(a);
    uint64_t told = (uint64_t)a->told;
    return c->offset || a->told < 0 || told > c->bytes_wanted ||
                   (told < c->bytes_wanted && !c->may_end)
               ? -EOPNOTSUPP
               : 0;
}

/* Makes room for the body. Returns 0, -EFBIG or -ENOMEM. */
static int make_room(struct hr__http_attempt *a)
{
    const struct hr__http_call *c = a->call;
    uint64_t wanted = a->told >= 0       ? (uint64_t)a->told
                      : c->is_range      ? c->bytes_wanted
                      : c->expected >= 0 ? (uint64_t)c->expected
                                         : UNSIZED_BYTES;
    if (wanted > c->max_bytes)
        return -EFBIG;
    a->bytes = c->pool ? hr__blocks_alloc(c->pool, wanted + HR__READ_SLACK)
                       : hr__alloc_aligned(HR__TAG_STORAGE, wanted + HR__READ_SLACK, 0);
    a->capacity = wanted;
    a->length = 0;
    return a->bytes ? 0 : -ENOMEM;
}

/* Makes more room for a body of unknown length. */
static int grow(struct hr__http_attempt *a, size_t more)
{
    const struct hr__http_call *c = a->call;
    size_t wanted = 2 * a->capacity + more;
    if (a->told >= 0 || c->is_range || c->expected >= 0)
        return -EPROTO;
    if (a->length + more > c->max_bytes)
        return -EFBIG;
    uint8_t *bytes = hr__alloc_aligned(HR__TAG_STORAGE, wanted + HR__READ_SLACK, 0);
    if (!bytes)
        return -ENOMEM;
    memcpy(bytes, a->bytes, a->length);
    hr__free(a->bytes);
    a->bytes = bytes;
    a->capacity = wanted;
    return 0;
}

static int on_part(struct hr__web_exchange *exchange, const void *bytes, size_t length)
{
    struct hr__http_attempt *a = (struct hr__http_attempt *)exchange;
    if (!is_good(exchange->status)) {
        size_t room = sizeof a->text - 1 - a->text_length, n = length < room ? length : room;
        memcpy(a->text + a->text_length, bytes, n);
        a->text_length += n;
        return 0;
    }
    if (!a->bytes)
        a->refusal = check_head(a);
    if (!a->refusal && !a->bytes)
        a->refusal = make_room(a);
    if (!a->refusal && length > a->capacity - a->length)
        a->refusal = grow(a, length);
    if (a->refusal)
        return a->refusal;
    memcpy(a->bytes + a->length, bytes, length);
    a->length += length;
    return 0;
}

/* ---- the request ---- */

/* Makes the URL, and finds the host and path in it for signing. */
static int make_url(struct hr__http_attempt *a, const char **path)
{
    struct hr__http_call *c = a->call;
    hr__draft_clear(&a->url);
    if (!a->place) {
        hr__draft_put(&a->url, c->url);
        return a->url.failed ? -ENOMEM : 0;
    }
    hr__draft_put(&a->url, a->place->base);
    hr__draft_put(&a->url, "/");
    hr__url_escape(&a->url, c->parsed.path, strlen(c->parsed.path), true);
    size_t length = a->url.length;
    if (c->query_count) {
        hr__draft_put(&a->url, "?");
        hr__sign_query(&a->url, c->query, c->query_count);
    }
    if (a->url.failed)
        return -ENOMEM;
    const char *host = strstr(a->url.text, "://") + 3;
    size_t n = strcspn(host, "/");
    if (n >= sizeof a->host)
        return -ENAMETOOLONG;
    memcpy(a->host, host, n);
    a->host[n] = 0;
    /* libcurl leaves the usual port out of the header Host */
    int is_tls = !strncmp(a->url.text, "https:", 6);
    const char *usual = is_tls ? ":443" : ":80";
    size_t tail = strlen(usual);
    if (n > tail && !strcmp(a->host + n - tail, usual))
        a->host[n - tail] = 0;
    hr__draft_clear(&a->authorization);
    hr__draft_add(&a->authorization, host + n, length - (size_t)(host + n - a->url.text));
    *path = a->authorization.text;
    return a->authorization.failed ? -ENOMEM : 0;
}

static void add_header(struct hr__http_attempt *a, const char *name, const char *value)
{
    a->headers[a->exchange.header_count++] = (struct hr__sign_pair){name, value};
}

/* Derives the signing key, if the one at hand is of another day, place or owner. */
static int find_key(struct hr__http_client *http, struct hr__http_attempt *a,
                    struct hr__http_signer *s)
{
    time_t now = time(NULL) + (time_t)atomic_load(&http->skew_s);
    if (s->of == a->credentials && s->at && !strcmp(s->at->region, a->place->region) &&
        s->at->gs == a->place->gs && hr__sign_again(&s->key, now))
        return 0;
    const struct hr__sign_scope scope = {.key_id = a->credentials->key_id,
                                         .secret = a->credentials->secret,
                                         .region = a->place->region,
                                         .service = "s3",
                                         .now = now};
    s->of = a->credentials;
    s->at = a->place;
    return hr__sign_begin(&s->key, &scope);
}

static int sign(struct hr__http_client *http, struct hr__http_attempt *a, const char *path,
                struct hr__http_signer *signer)
{
    char signature[HR__SIGN_TEXT];
    int r = find_key(http, a, signer);
    if (r)
        return r;
    const char *payload = a->call->sha256 ? a->call->sha256 : HR__SIGN_EMPTY;
    memcpy(a->time, signer->key.time, sizeof a->time);
    add_header(a, "x-amz-content-sha256", payload);
    add_header(a, "x-amz-date", a->time);
    if (a->credentials->token)
        add_header(a, "x-amz-security-token", a->credentials->token);
    if (a->call->md5)
        add_header(a, "content-md5", a->call->md5);
    size_t count = a->exchange.header_count;
    /* libcurl writes this header itself: it is signed, but not sent from here */
    add_header(a, "host", a->host);
    const struct hr__sign_request request = {.method = a->exchange.method,
                                             .path = path,
                                             .query = a->call->query,
                                             .query_count = a->call->query_count,
                                             .headers = a->headers,
                                             .header_count = a->exchange.header_count,
                                             .payload = payload};
    struct hr__draft value = {0};
    r = hr__sign(&value, signature, &signer->key, &request);
    a->exchange.header_count = count;
    hr__draft_clear(&a->authorization);
    a->authorization = value;
    if (!r)
        add_header(a, "authorization", value.text);
    return r;
}

int hr__http_request(struct hr__http_client *http, struct hr__http_attempt *a,
                     struct hr__http_signer *signer, struct hr_error *error)
{
    struct hr__http_call *c = a->call;
    const char *path = "";
    int r = 0;
    a->place = NULL;
    a->credentials = NULL;
    a->exchange = (struct hr__web_exchange){.method = c->method ? c->method : "GET",
                                            .headers = a->headers,
                                            .connect_ms = CONNECT_MS,
                                            .stall_ms = http->settings.stall_ms,
                                            .header = on_header,
                                            .part = on_part};
    if (a->exchange.stall_ms < a->exchange.connect_ms)
        a->exchange.connect_ms = a->exchange.stall_ms;
    a->bytes = NULL;
    a->length = a->capacity = 0;
    a->refusal = 0;
    a->started_ns = a->first_ns = 0;
    forget_answer(a);
    if (hr__url_has_bucket(&c->parsed)) {
        bool gs = c->parsed.scheme == HR__URL_GS;
        r = hr__http_place(http, &c->parsed, &a->place);
        if (r)
            return hr__fail(error, r, "out of memory for the bucket");
        r = hr__http_credentials(http, gs, NULL, &a->credentials, error);
        if (r)
            return r;
    }
    r = make_url(a, &path);
    if (!r && c->is_range) {
        snprintf(a->range, sizeof a->range, "bytes=%" PRIu64 "-%" PRIu64, c->offset,
                 c->offset + c->bytes_wanted - 1);
    }
    if (!r && a->credentials && a->credentials->key_id[0])
        r = sign(http, a, path, signer);
    if (!r && c->is_range)
        add_header(a, "range", a->range);
    if (!r && c->body) {
        /* libcurl would add others: a type of forms, and a pause to be told to go on */
        add_header(a, "content-type", "application/octet-stream");
        add_header(a, "expect", "");
        a->exchange.body = c->body;
        a->exchange.body_bytes = c->body_bytes;
    }
    a->exchange.url = a->url.text;
    a->exchange.follow = !a->place;
    return r ? hr__fail(error, r, "cannot make the request: %s", hr__errno_text(r)) : 0;
}

/* ---- what an answer means ---- */

/* The texts of an error's body. */
struct told_error {
    const char *code, *message, *region, *endpoint;
};

static void read_error(struct hr__http_attempt *a, struct told_error *out)
{
    struct hr__xml xml;
    enum hr__xml_event event;
    *out = (struct told_error){"", "", "", ""};
    hr__xml_begin(&xml, a->text, a->text_length);
    while ((event = hr__xml_next(&xml)) == HR__XML_OPEN || event == HR__XML_CLOSE) {
        if (event == HR__XML_OPEN)
            continue;
        if (!strcmp(xml.name, "Code"))
            out->code = xml.text;
        else if (!strcmp(xml.name, "Message"))
            out->message = xml.text;
        else if (!strcmp(xml.name, "Region"))
            out->region = xml.text;
        else if (!strcmp(xml.name, "Endpoint"))
            out->endpoint = xml.text;
    }
}

static int is_one_of(const char *text, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(text, *list))
            return 1;
    return 0;
}

static enum hr__http_verdict fail(struct hr_error *why, int code, const char *text)
{
    hr__fail(why, code, "%s", text);
    return HR__HTTP_FAILED;
}

/* The bucket is elsewhere: learns its region. The place that a redirect names is not asked: a store
 * must not choose who gets signed requests. */
static enum hr__http_verdict redirected(struct hr__http_client *http, struct hr__http_attempt *a,
                                        const struct told_error *e, struct hr_error *why)
{
    const char *region = *a->region ? a->region : e->region;
    int r = -EALREADY;
    if (a->call->redirects++ < REDIRECTS_MOST && *region)
        r = hr__http_learn(http, a->place, region);
    if (!r)
        return HR__HTTP_AGAIN;
    hr__fail(why, -EREMOTE,
             "the store sends the request elsewhere (%d %.40s%s%.100s) and does not say to which "
             "region: set AWS_REGION to that of the bucket, or AWS_ENDPOINT_URL to its store",
             a->exchange.status, e->code, *e->endpoint ? ", to " : "", e->endpoint);
    return HR__HTTP_FAILED;
}

static enum hr__http_verdict expired(struct hr__http_client *http, struct hr__http_attempt *a,
                                     struct hr_error *why)
{
    const struct hr__credentials *next;
    if (a->call->renewals++ < RENEWALS_MOST)
        return hr__http_credentials(http, a->place->gs, a->credentials, &next, why)
                   ? HR__HTTP_FAILED
                   : HR__HTTP_AGAIN;
    hr__fail(why, -EKEYEXPIRED,
             "the session of the credentials of %s has expired, and no fresh ones are there: renew "
             "them",
             a->credentials->source);
    return HR__HTTP_FAILED;
}

static enum hr__http_verdict skewed(struct hr__http_client *http, struct hr__http_attempt *a,
                                    struct hr_error *why)
{
    int64_t theirs = time_of_date(a->date), skew = theirs > 0 ? theirs - (int64_t)time(NULL) : 0;
    int64_t known = atomic_load(&http->skew_s), apart = skew > known ? skew - known : known - skew;
    if (theirs > 0 && apart > 60 && a->call->redirects++ < REDIRECTS_MOST) {
        atomic_store(&http->skew_s, skew);
        hr__log(HR_LOG_WARNING,
                "this machine's clock is %" PRId64 " s %s the store's: requests are signed with "
                "the store's time; set the clock",
                skew < 0 ? -skew : skew, skew < 0 ? "ahead of" : "behind");
        return HR__HTTP_AGAIN;
    }
    return fail(why, -ETIME,
                "the store says that this machine's clock is wrong (RequestTimeTooSkewed): set it, "
                "for example with NTP");
}

static enum hr__http_verdict denied(struct hr__http_attempt *a, const struct told_error *e,
                                    struct hr_error *why)
{
    const char *code = *e->code ? e->code : "no reason given";
    const struct hr__credentials *c = a->credentials;
    if (!c)
        hr__fail(
            why, -EACCES,
            "access is denied (%d): requests to web servers have no credentials; give a bucket "
            "as s3:// or gs://",
            a->exchange.status);
    else if (!c->key_id[0] && a->place->gs)
        hr__fail(why, -EACCES,
                 "access is denied to an anonymous request (%d %.40s): set GS_ACCESS_KEY_ID and "
                 "GS_SECRET_ACCESS_KEY to an HMAC key",
                 a->exchange.status, code);
    else if (!c->key_id[0])
        hr__fail(why, -EACCES,
                 "access is denied to an anonymous request (%d %.40s), and no credentials were "
                 "found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
                 a->exchange.status, code);
    else if (!strcmp(code, "InvalidAccessKeyId"))
        hr__fail(why, -EACCES,
                 "the store does not know the key of %s (%s): check AWS_ACCESS_KEY_ID and "
                 "AWS_PROFILE, and AWS_ENDPOINT_URL if it is not AWS's",
                 c->source, code);
    else if (!strcmp(code, "SignatureDoesNotMatch"))
        hr__fail(why, -EACCES,
                 "the store rejects the signature (%s): the secret key of %s is wrong, or is not "
                 "that of its key id",
                 code, c->source);
    else
        hr__fail(why, -EACCES,
                 "access is denied (%d %.40s) with the credentials of %s: they need %s on the "
                 "objects and s3:ListBucket on the bucket",
                 a->exchange.status, code, c->source,
                 a->call->method ? "s3:GetObject, s3:PutObject, s3:AbortMultipartUpload and "
                                   "s3:ListMultipartUploadParts"
                                 : "s3:GetObject");
    return HR__HTTP_FAILED;
}

static enum hr__http_verdict missing(struct hr__http_attempt *a, const struct told_error *e,
                                     struct hr_error *why)
{
    if (!strcmp(e->code, "NoSuchBucket"))
        hr__fail(why, -ENOENT,
                 "there is no bucket %s at %s: check its name, and AWS_ENDPOINT_URL if it is not "
                 "AWS's",
                 a->place ? a->place->bucket : "?", a->host);
    else if (!strcmp(e->code, "NoSuchUpload"))
        hr__fail(why, -ESTALE,
                 "the store has no such upload any more: it was completed, aborted or has expired");
    else
        hr__fail(why, -ENOENT, "there is no such object%s",
                 a->call->change ? ": it was deleted after it was listed; open the dataset again"
                                 : "; check its name");
    return HR__HTTP_FAILED;
}

static enum hr__http_verdict judge_error(struct hr__http_client *http, struct hr__http_attempt *a,
                                         struct hr_error *why)
{
    static const char *const renew[] = {"ExpiredToken", "TokenRefreshRequired",
                                        "ExpiredTokenException", NULL};
    static const char *const elsewhere[] = {"PermanentRedirect", "TemporaryRedirect",
                                            "AuthorizationHeaderMalformed", NULL};
    static const char *const busy[] = {"SlowDown",        "ServiceUnavailable",
                                       "TooManyRequests", "RequestLimitExceeded",
                                       "Throttling",      NULL};
    /* the body that came is not the one that was sent */
    static const char *const damaged[] = {"BadDigest", "IncompleteBody", "InvalidDigest",
                                          "XAmzContentSHA256Mismatch", NULL};
    struct told_error e;
    int status = a->exchange.status;
    read_error(a, &e);
    if (status == 503 || status == 429 || is_one_of(e.code, busy)) {
        hr__fail(
            why, -EBUSY,
            "the store asks for fewer requests (%d %.40s): read with fewer processes, or raise "
            "HEADRACE_OBJECT_TIMEOUT",
            status, e.code);
        return HR__HTTP_REFUSED;
    }
    if (status >= 500 || status == 408 || !strcmp(e.code, "RequestTimeout")) {
        hr__fail(why, -EREMOTEIO,
                 "the store fails (%d %.40s): its own log or status page says why; try again later",
                 status, e.code);
        return status == 501 || status == 505 ? HR__HTTP_FAILED : HR__HTTP_RETRY;
    }
    if (a->call->body && is_one_of(e.code, damaged)) {
        hr__fail(why, -EPROTO,
                 "the store got other bytes than were sent (%d %.40s): something between changes "
                 "them; use https://, or another way to the store",
                 status, e.code);
        return HR__HTTP_RETRY;
    }
    if (a->credentials && is_one_of(e.code, renew))
        return expired(http, a, why);
    if (a->credentials && !strcmp(e.code, "RequestTimeTooSkewed"))
        return skewed(http, a, why);
    if (a->place && (status / 100 == 3 || is_one_of(e.code, elsewhere) ||
                     (*a->region && strcmp(a->region, a->place->region))))
        return redirected(http, a, &e, why);
    /* some stores call a request without a signature a bad one */
    if (status == 401 || status == 403 ||
        (status == 400 && a->credentials && !a->credentials->key_id[0]))
        return denied(a, &e, why);
    if (status == 407)
        return fail(why, -EACCES,
                    "the proxy wants to know who asks (407): check the user and the password in "
                    "http_proxy, or name the host in no_proxy");
    if (status == 404)
        return missing(a, &e, why);
    if (status == 416)
        return fail(why, -ENODATA,
                    "it ends before the bytes wanted: it was cut or replaced; write "
                    "it again");
    hr__fail(why, -EIO, "the store answers %d %.60s %.200s", status, e.code, e.message);
    return HR__HTTP_FAILED;
}

/* A body was refused. */
static enum hr__http_verdict judge_refusal(int code, struct hr_error *why)
{
    switch (code) {
    case -ESTALE:
        return fail(why, code,
                    "it was replaced after it was listed, or read before: open the dataset "
                    "again");
    case -ENOMSG:
        return fail(why, code,
                    "the answer has no ETag, so it cannot be compared with what was listed: "
                    "something between takes it away; ask the store itself (AWS_ENDPOINT_URL)");
    case -EOPNOTSUPP:
        return fail(why, code,
                    "the server sends whole files only, and a part is needed: use a server that "
                    "serves ranges, or copy the file to a disk");
    case -ENODATA:
        return fail(why, code,
                    "it ends before the bytes wanted: it was cut or replaced; write it "
                    "again");
    case -EFBIG:
        return fail(why, code, "it is too large for one sample");
    case -ENOMEM:
        return fail(why, code, "out of memory for its bytes");
    default:
        hr__fail(why, -EPROTO,
                 "the server's answer does not fit the request, it has other bytes than asked for: "
                 "check that AWS_ENDPOINT_URL or the URL is that of a store, and what is between");
        return HR__HTTP_RETRY;
    }
}

/* A whole answer came: checks the body and hands it over. */
static enum hr__http_verdict judge_body(struct hr__http_attempt *a, struct hr_error *why)
{
    struct hr__http_call *c = a->call;
    int r = a->bytes ? 0 : check_head(a);
    if (!r && !a->bytes)
        r = make_room(a);
    if (r)
        return judge_refusal(r, why);
    int64_t wanted = a->told >= 0                 ? a->told
                     : c->is_range && !c->may_end ? (int64_t)c->bytes_wanted
                                                  : c->expected;
    if (wanted >= 0 && a->length != (uint64_t)wanted) {
        hr__fail(why, -EPROTO,
                 "the answer was cut after %zu of %" PRId64
                 " bytes: check the network, and proxies "
                 "on the way",
                 a->length, wanted);
        return HR__HTTP_RETRY;
    }
    memset(a->bytes + a->length, 0, HR__READ_SLACK);
    c->bytes = a->bytes;
    c->length = a->length;
    c->object = a->object;
    memcpy(c->etag, a->etag, sizeof c->etag);
    c->is_encrypted = a->is_encrypted;
    if (c->object.bytes < 0 && !c->is_range)
        c->object.bytes = (int64_t)a->length;
    a->bytes = NULL;
    return HR__HTTP_DONE;
}

/* A store that takes long to complete an upload has answered 200 by the time that it fails. Moves
 * such an error to where errors are read. */
static bool is_late_error(struct hr__http_attempt *a)
{
    size_t n = a->length < sizeof a->text - 1 ? a->length : sizeof a->text - 1;
    if (!a->call->method || !a->bytes || !memmem(a->bytes, n, "<Error>", 7))
        return false;
    memcpy(a->text, a->bytes, n);
    a->text_length = n;
    a->exchange.status = 500;
    return true;
}

/* Returns the variable that names a proxy for a URL, or "". no_proxy may exempt the host. */
static const char *proxy_variable(const char *url)
{
    /* as libcurl looks for them: not HTTP_PROXY, which a CGI program gets from a client */
    static const char *const plain[] = {"http_proxy", "all_proxy", "ALL_PROXY", NULL};
    static const char *const secure[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY",
                                         NULL};
    for (const char *const *name = strncmp(url, "https:", 6) ? plain : secure; *name; name++)
        if (hr__setting(*name))
            return *name;
    return "";
}

enum hr__http_verdict hr__http_judge(struct hr__http_client *http, struct hr__http_attempt *a,
                                     struct hr_error *why)
{
    const struct hr__web_exchange *x = &a->exchange;
    const char *proxy;
    if (x->status)
        atomic_store(&http->was_reached, 1);
    atomic_fetch_add(&http->bytes, a->length);
    switch (x->end) {
    case HR__WEB_ANSWERED:
        return is_good(x->status) && !is_late_error(a) ? judge_body(a, why)
                                                       : judge_error(http, a, why);
    case HR__WEB_REFUSED:
        return judge_refusal(a->refusal, why);
    case HR__WEB_SLOW:
        hr__fail(why, -ETIMEDOUT,
                 "the server is too slow: nothing came for %u ms, or too little for longer; check "
                 "the network and the server, or raise HEADRACE_OBJECT_TIMEOUT",
                 x->stall_ms);
        return HR__HTTP_REFUSED;
    case HR__WEB_NO_NAME:
        hr__fail(why, -EHOSTUNREACH,
                 "the host's name is not known (%s): check the URL, AWS_ENDPOINT_URL and the "
                 "network",
                 x->detail);
        return HR__HTTP_RETRY;
    case HR__WEB_NO_TLS:
        hr__fail(why, -EPROTO,
                 "no secure connection (%s): check the server's certificate and this machine's "
                 "clock; AWS_CA_BUNDLE names a file of more certificates; a server without TLS is "
                 "asked with http://",
                 x->detail);
        return HR__HTTP_RETRY;
    case HR__WEB_AWAY:
        hr__fail(why, -EREMOTE,
                 "the server sends the request elsewhere, which is not followed (%s): redirects "
                 "may not lead from https:// to http://, nor in circles; name the place itself",
                 x->detail);
        return HR__HTTP_FAILED;
    case HR__WEB_NO_PROXY:
        hr__fail(why, -EHOSTUNREACH, "the proxy fails (%s): check https_proxy and no_proxy",
                 x->detail);
        return HR__HTTP_RETRY;
    case HR__WEB_NO_CONNECTION:
        proxy = proxy_variable(a->url.text);
        hr__fail(why, -ECONNREFUSED, "no connection (%s): check that the server runs%s%s",
                 x->detail, *proxy ? ", and the proxy that is named by " : "", proxy);
        return HR__HTTP_RETRY;
    default:
        hr__fail(why, -ECONNRESET,
                 "the connection ended before the whole answer came (%s): check the network, and "
                 "proxies on the way",
                 x->detail);
        return HR__HTTP_RETRY;
    }
}
