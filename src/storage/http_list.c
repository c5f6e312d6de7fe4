/*
 * Lists the objects of a bucket with ListObjectsV2, page after page.
 *
 * Keys are asked for in escaped form (encoding-type=url), because XML cannot hold all bytes that
 * keys may have.
 */
#include "storage/http_inside.h"

#include "base/error.h"
#include "storage/xml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE_MOST_BYTES (UINT64_C(64) << 20)

/* No store has objects as large as this, 1 PiB. */
#define OBJECT_MOST_BYTES (INT64_C(1) << 50)

/* What is read of one page. */
struct list_page {
    const struct hr__http_listing *listing;
    struct hr__xml xml;
    bool is_escaped, is_cut;
    const char *next;
};

/* Undoes the escapes of a key, in which a blank is "+". */
static void unescape(char *key)
{
    for (char *c = key; *c; c++)
        if (*c == '+')
            *c = ' ';
    hr__url_unescape(key);
}

/* Reads the elements of one object, up to its end. Returns 0, -EBADMSG or the error of `each`. */
static int read_object(struct list_page *p)
{
    struct hr__object object = {.bytes = -1};
    char *key = NULL;
    enum hr__xml_event event;
    unsigned inside = p->xml.depth;
    while ((event = hr__xml_next(&p->xml)) == HR__XML_OPEN || event == HR__XML_CLOSE) {
        if (event == HR__XML_OPEN)
            continue;
        if (p->xml.depth < inside)
            break;
        if (p->xml.depth != inside)
            continue;
        if (!strcmp(p->xml.name, "Key")) {
            key = p->xml.text;
        } else if (!strcmp(p->xml.name, "Size")) {
            char *end;
            object.bytes = strtoll(p->xml.text, &end, 10);
            if (end == p->xml.text || *end || object.bytes < 0 || object.bytes > OBJECT_MOST_BYTES)
                return -EBADMSG;
        } else if (!strcmp(p->xml.name, "ETag")) {
            object.change = hr__etag_digest(p->xml.text);
        } else if (!strcmp(p->xml.name, "LastModified")) {
            object.mtime_ns = hr__mtime_of(hr__time_of_text(p->xml.text));
        }
    }
    if (event != HR__XML_CLOSE || !key || object.bytes < 0)
        return -EBADMSG;
    if (p->is_escaped)
        unescape(key);
    return p->listing->each(p->listing->arg, key, &object);
}

/* Reads a group of keys, up to its end. */
static int read_prefix(struct list_page *p)
{
    const struct hr__object none = {.bytes = -1};
    char *prefix = NULL;
    enum hr__xml_event event;
    unsigned inside = p->xml.depth;
    while ((event = hr__xml_next(&p->xml)) == HR__XML_OPEN || event == HR__XML_CLOSE) {
        if (event == HR__XML_CLOSE && p->xml.depth < inside)
            break;
        if (event == HR__XML_CLOSE && !strcmp(p->xml.name, "Prefix"))
            prefix = p->xml.text;
    }
    if (event != HR__XML_CLOSE || !prefix)
        return -EBADMSG;
    if (p->is_escaped)
        unescape(prefix);
    return p->listing->each_prefix ? p->listing->each_prefix(p->listing->arg, prefix, &none) : 0;
}

/* Notes what the page says of itself, and begins the elements that have others. */
static int read_element(struct list_page *p, enum hr__xml_event event)
{
    const char *name = p->xml.name;
    if (event == HR__XML_OPEN && p->xml.depth == 1)
        return strcmp(name, "ListBucketResult") ? -EBADMSG : 0;
    if (event == HR__XML_OPEN && p->xml.depth == 2 && !strcmp(name, "Contents"))
        return read_object(p);
    if (event == HR__XML_OPEN && p->xml.depth == 2 && !strcmp(name, "CommonPrefixes"))
        return read_prefix(p);
    if (event == HR__XML_CLOSE && p->xml.depth == 1 && !strcmp(name, "IsTruncated"))
        p->is_cut = !strcmp(p->xml.text, "true");
    if (event == HR__XML_CLOSE && p->xml.depth == 1 && !strcmp(name, "NextContinuationToken"))
        p->next = p->xml.text;
    return 0;
}

int hr__http_list_page(const struct hr__http_listing *listing, char *text, size_t length,
                       const char **next)
{
    struct list_page p = {.listing = listing};
    enum hr__xml_event event;
    int r = 0;
    *next = NULL;
    /* Stores that do not know the escaped form leave this element out. It stands anywhere. */
    p.is_escaped = memmem(text, length, "<EncodingType>url<", 18) != NULL;
    hr__xml_begin(&p.xml, text, length);
    do {
        event = hr__xml_next(&p.xml);
        if (event == HR__XML_WRONG)
            return -EBADMSG;
        r = read_element(&p, event);
    } while (!r && event != HR__XML_END);
    if (r)
        return r;
    if (p.is_cut && (!p.next || !*p.next))
        return -EBADMSG;
    *next = p.is_cut ? p.next : NULL;
    return 0;
}

/* Gets one page. On success the caller frees *text. */
static int get_page(const struct hr__http_listing *l, const char *token, char **text,
                    size_t *length, struct hr_error *error)
{
    struct hr__sign_pair query[5] = {{"list-type", "2"}, {"encoding-type", "url"}};
    size_t count = 2;
    if (*l->prefix)
        query[count++] = (struct hr__sign_pair){"prefix", l->prefix};
    if (*l->delimiter)
        query[count++] = (struct hr__sign_pair){"delimiter", l->delimiter};
    if (token)
        query[count++] = (struct hr__sign_pair){"continuation-token", token};
    struct hr__http_call call = {.url = l->url,
                                 .query = query,
                                 .query_count = count,
                                 .expected = -1,
                                 .max_bytes = PAGE_MOST_BYTES};
    int r = hr__http_run(l->http, &call);
    atomic_fetch_add(&l->http->lists, 1);
    if (r)
        hr__fail(error, r, "cannot list %s/%s: %s", l->url, l->prefix,
                 call.reason ? call.reason : hr__errno_text(r));
    hr__free(call.reason);
    *text = (char *)call.bytes;
    *length = call.length;
    return r;
}

int hr__http_list(const struct hr__http_listing *listing, struct hr_error *error)
{
    char *token = NULL;
    int r = 0, pages = 0;
    do {
        char *text = NULL;
        const char *next = NULL;
        size_t length = 0;
        r = get_page(listing, token, &text, &length, error);
        if (!r) {
            r = hr__http_list_page(listing, text, length, &next);
            if (r == -EBADMSG)
                hr__fail(error, r,
                         "the listing of %s/%s is not one of S3 (ListObjectsV2): check "
                         "AWS_ENDPOINT_URL",
                         listing->url, listing->prefix);
        }
        if (!r && next && token && !strcmp(next, token))
            r = hr__fail(error, -EBADMSG,
                         "the listing of %s/%s does not go on: the store gives the same page again",
                         listing->url, listing->prefix);
        hr__free(token);
        token = !r && next ? hr__strdup(HR__TAG_STORAGE, next) : NULL;
        if (!r && next && !token)
            r = hr__fail(error, -ENOMEM, "out of memory for a listing");
        hr__free(text);
    } while (token && (!listing->most_pages || ++pages < listing->most_pages));
    hr__free(token);
    return r;
}
