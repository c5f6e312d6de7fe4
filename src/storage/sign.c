/* Computes signatures of requests; see sign.h. */
#include "storage/sign.h"

#include "storage/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALGORITHM "AWS4-HMAC-SHA256"

/* The most headers that are signed. */
#define HEADERS_MOST 32

static void set_time(struct hr__sign_key *key, const struct tm *t)
{
    strftime(key->day, sizeof key->day, "%Y%m%d", t);
    strftime(key->time, sizeof key->time, "%Y%m%dT%H%M%SZ", t);
}

int hr__sign_begin(struct hr__sign_key *key, const struct hr__sign_scope *scope)
{
    struct tm t;
    char first[256];
    memset(key, 0, sizeof *key);
    gmtime_r(&scope->now, &t);
    set_time(key, &t);
    int n = snprintf(key->scope, sizeof key->scope, "%s/%s/%s/aws4_request", key->day,
                     scope->region, scope->service);
    int m = snprintf(key->key_id, sizeof key->key_id, "%s", scope->key_id);
    int k = snprintf(first, sizeof first, "AWS4%s", scope->secret);
    if (n >= (int)sizeof key->scope || m >= (int)sizeof key->key_id || k >= (int)sizeof first)
        return -ENAMETOOLONG;
    hr__hmac_sha256(first, (size_t)k, key->day, strlen(key->day), key->bytes);
    const char *const rest[] = {scope->region, scope->service, "aws4_request"};
    for (int i = 0; i < 3; i++)
        hr__hmac_sha256(key->bytes, sizeof key->bytes, rest[i], strlen(rest[i]), key->bytes);
    explicit_bzero(first, sizeof first);
    return 0;
}

int hr__sign_again(struct hr__sign_key *key, time_t now)
{
    struct hr__sign_key next;
    struct tm t;
    gmtime_r(&now, &t);
    set_time(&next, &t);
    if (strcmp(next.day, key->day))
        return 0;
    memcpy(key->time, next.time, sizeof key->time);
    return 1;
}

/* Orders pairs by name, then by value, as bytes: escaped texts have the same order in all names
 * that queries of S3 use. */
static int compare_pairs(const void *a, const void *b)
{
    const struct hr__sign_pair *x = a, *y = b;
    int r = strcmp(x->name, y->name);
    return r ? r : strcmp(x->value, y->value);
}

void hr__sign_query(struct hr__draft *out, struct hr__sign_pair *query, size_t count)
{
    if (count)
        qsort(query, count, sizeof *query, compare_pairs);
    for (size_t i = 0; i < count; i++) {
        hr__draft_add(out, "&", i > 0);
        hr__url_escape(out, query[i].name, strlen(query[i].name), false);
        hr__draft_add(out, "=", 1);
        hr__url_escape(out, query[i].value, strlen(query[i].value), false);
    }
}

/* Adds a header's value without blanks at its ends, and with single ones inside. */
static void add_value(struct hr__draft *out, const char *value)
{
    while (*value == ' ')
        value++;
    while (*value) {
        size_t n = strcspn(value, " ");
        hr__draft_add(out, value, n);
        value += n;
        while (*value == ' ')
            value++;
        hr__draft_add(out, " ", *value != 0);
    }
}

static void add_names(struct hr__draft *out, const struct hr__sign_pair *headers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hr__draft_add(out, ";", i > 0);
        hr__draft_put(out, headers[i].name);
    }
}

/* Writes the request in its canonical form, which is what is signed. */
static void make_canonical(struct hr__draft *out, const struct hr__sign_request *request,
                           const struct hr__sign_pair *headers)
{
    hr__draft_put(out, request->method);
    hr__draft_put(out, "\n");
    hr__draft_put(out, request->path);
    hr__draft_put(out, "\n");
    for (size_t i = 0; i < request->query_count; i++) {
        hr__draft_add(out, "&", i > 0);
        hr__url_escape(out, request->query[i].name, strlen(request->query[i].name), false);
        hr__draft_add(out, "=", 1);
        hr__url_escape(out, request->query[i].value, strlen(request->query[i].value), false);
    }
    hr__draft_put(out, "\n");
    for (size_t i = 0; i < request->header_count; i++) {
        hr__draft_put(out, headers[i].name);
        hr__draft_put(out, ":");
        add_value(out, headers[i].value);
        hr__draft_put(out, "\n");
    }
    hr__draft_put(out, "\n");
    add_names(out, headers, request->header_count);
    hr__draft_put(out, "\n");
    hr__draft_put(out, request->payload);
}

/* Signs the text that `algorithm` and the key's time and scope begin. */
static int sign_text(char signature[HR__SIGN_TEXT], const struct hr__sign_key *key,
                     const char *algorithm, const char *rest)
{
    uint8_t digest[HR__SHA256_BYTES];
    struct hr__draft text = {0};
    hr__draft_print(&text, "%s\n%s\n%s\n%s", algorithm, key->time, key->scope, rest);
    if (!text.failed) {
        hr__hmac_sha256(key->bytes, sizeof key->bytes, text.text, text.length, digest);
        hr__sha256_text(digest, signature);
    }
    int r = text.failed ? -ENOMEM : 0;
    hr__draft_clear(&text);
    return r;
}

int hr__sign(struct hr__draft *out, char signature[HR__SIGN_TEXT], const struct hr__sign_key *key,
             const struct hr__sign_request *request)
{
    struct hr__sign_pair headers[HEADERS_MOST];
    struct hr__draft canonical = {0};
    uint8_t digest[HR__SHA256_BYTES];
    char text[HR__SIGN_TEXT];
    if (request->header_count > HEADERS_MOST)
        return -E2BIG;
    memcpy(headers, request->headers, request->header_count * sizeof *headers);
    qsort(headers, request->header_count, sizeof *headers, compare_pairs);
    make_canonical(&canonical, request, headers);
    int r = canonical.failed ? -ENOMEM : 0;
    if (!r) {
        hr__sha256_of(canonical.text, canonical.length, digest);
        hr__sha256_text(digest, text);
        r = sign_text(signature, key, ALGORITHM, text);
    }
    hr__draft_clear(&canonical);
    if (r)
        return r;
    hr__draft_print(out, ALGORITHM " Credential=%s/%s, SignedHeaders=", key->key_id, key->scope);
    add_names(out, headers, request->header_count);
    hr__draft_print(out, ", Signature=%s", signature);
    return out->failed ? -ENOMEM : 0;
}
