/* Uploads in parts; see http_upload.h. */
#include "storage/http_upload.h"

#include "base/error.h"
#include "storage/http_inside.h"
#include "storage/md5.h"
#include "storage/xml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MOST_BYTES (UINT64_C(16) << 20)

/* A part is sent so often if the store says that it got other bytes. */
#define SENDS_MOST 3

static int report(const struct hr__upload *u, const struct hr__http_call *call, const char *what,
                  struct hr_error *error)
{
    return hr__fail(error, call->result, "cannot %s %s: %s", what, u->url,
                    call->reason ? call->reason : hr__errno_text(call->result));
}

/* Prepares a call of a method with a body, whose digests it computes into *digests. */
struct digests {
    char sha256[HR__SIGN_TEXT], md5[HR__MD5_64];
    uint8_t md5_bytes[HR__MD5_BYTES];
};

static void set_body(struct hr__http_call *call, struct digests *d, const void *bytes,
                     size_t length)
{
    uint8_t digest[HR__SHA256_BYTES];
    hr__sha256_of(bytes, length, digest);
    hr__sha256_text(digest, d->sha256);
    hr__md5_of(bytes, length, d->md5_bytes);
    hr__md5_base64(d->md5_bytes, d->md5);
    call->body = bytes;
    call->body_bytes = length;
    call->sha256 = d->sha256;
    call->md5 = d->md5;
}

static int run(const struct hr__upload *u, struct hr__http_call *call)
{
    call->url = u->url;
    call->expected = -1;
    call->max_bytes = ANSWER_MOST_BYTES;
    call->stop = u->stop;
    return hr__http_run(u->http, call);
}

static void clear(struct hr__http_call *call)
{
    hr__free(call->bytes);
    hr__free(call->reason);
}

/* Finds the text of an element of an answer, or NULL. The answer is written to. */
static const char *find_text(char *text, size_t length, const char *name)
{
    struct hr__xml xml;
    enum hr__xml_event event;
    const char *found = NULL;
    hr__xml_begin(&xml, text, length);
    while ((event = hr__xml_next(&xml)) == HR__XML_OPEN || event == HR__XML_CLOSE)
        if (event == HR__XML_CLOSE && !found && !strcmp(xml.name, name))
            found = xml.text;
    return event == HR__XML_END ? found : NULL;
}

int hr__upload_begin(struct hr__upload *u, struct hr_error *error)
{
    struct hr__sign_pair query[] = {{"uploads", ""}};
    struct hr__http_call call = {.method = "POST", .query = query, .query_count = 1};
    struct digests digests;
    set_body(&call, &digests, "", 0);
    u->id = NULL;
    int r = run(u, &call);
    if (r) {
        report(u, &call, "begin to write", error);
    } else {
        const char *id = find_text((char *)call.bytes, call.length, "UploadId");
        if (!id || !*id)
            r = hr__fail(error, -EBADMSG,
                         "cannot write %s: the store's answer names no upload; check "
                         "AWS_ENDPOINT_URL",
                         u->url);
        else if (!(u->id = hr__strdup(HR__TAG_STORAGE, id)))
            r = hr__fail(error, -ENOMEM, "out of memory to write %s", u->url);
    }
    clear(&call);
    return r;
}

/* Takes the quotes off an ETag. Returns 0, or -EBADMSG for one that cannot be told again. */
static int copy_etag(char out[HR__ETAG_BYTES], const char *etag)
{
    size_t length = strlen(etag);
    if (length >= 2 && etag[0] == '"' && etag[length - 1] == '"') {
        etag++;
        length -= 2;
    }
    if (!length || length >= HR__ETAG_BYTES || etag[strcspn(etag, " \t\r\n<>&")])
        return -EBADMSG;
    memcpy(out, etag, length);
    out[length] = 0;
    return 0;
}

/* Returns whether an ETag is an MD5, and another one than `mine`. With keys of its own a store
 * computes it of the encrypted bytes. */
static bool is_other(const struct hr__http_call *call, const char *etag,
                     const uint8_t mine[HR__MD5_BYTES])
{
    uint8_t theirs[HR__MD5_BYTES];
    return !call->is_encrypted && !hr__md5_of_text(etag, theirs) &&
           memcmp(theirs, mine, sizeof theirs);
}

static int send_once(const struct hr__upload *u, struct hr__upload_part *part,
                     struct digests *digests, struct hr_error *error)
{
    char number[16];
    snprintf(number, sizeof number, "%u", part->number);
    struct hr__sign_pair query[] = {{"partNumber", number}, {"uploadId", u->id}};
    struct hr__http_call call = {.method = "PUT", .query = query, .query_count = 2};
    set_body(&call, digests, part->bytes, part->length);
    int r = run(u, &call);
    if (r)
        report(u, &call, "write a part of", error);
    else if (copy_etag(part->etag, call.etag))
        r = hr__fail(error, -EBADMSG, "cannot write %s: the store gives part %u no ETag", u->url,
                     part->number);
    else if (is_other(&call, part->etag, digests->md5_bytes))
        r = hr__fail(error, -EPROTO,
                     "cannot write %s: the store got other bytes of part %u than were sent (ETag "
                     "%s): something between damages them",
                     u->url, part->number, part->etag);
    clear(&call);
    return r;
}

int hr__upload_send(const struct hr__upload *u, struct hr__upload_part *part,
                    struct hr_error *error)
{
    struct digests digests;
    int r = 0;
    for (int sends = 0; sends < SENDS_MOST; sends++) {
        r = send_once(u, part, &digests, error);
        if (r != -EPROTO)
            break;
    }
    return r;
}

/* Reads the elements of one part, up to its end. */
static int read_part(struct hr__xml *xml, hr__upload_each_fn each, void *arg)
{
    const char *etag = NULL;
    char plain[HR__ETAG_BYTES], *end = NULL;
    unsigned long number = 0;
    long long bytes = -1;
    unsigned inside = xml->depth;
    enum hr__xml_event event;
    while ((event = hr__xml_next(xml)) == HR__XML_OPEN || event == HR__XML_CLOSE) {
        if (event == HR__XML_OPEN)
            continue;
        if (xml->depth < inside)
            break;
        if (!strcmp(xml->name, "PartNumber"))
            number = strtoul(xml->text, &end, 10);
        else if (!strcmp(xml->name, "Size"))
            bytes = strtoll(xml->text, &end, 10);
        else if (!strcmp(xml->name, "ETag"))
            etag = xml->text;
    }
    if (event != HR__XML_CLOSE || !etag || copy_etag(plain, etag) || !number ||
        number > HR__UPLOAD_PARTS || bytes < 0)
        return -EBADMSG;
    return each(arg, (unsigned)number, plain, bytes);
}

int hr__upload_page(char *text, size_t length, hr__upload_each_fn each, void *arg, unsigned *next)
{
    struct hr__xml xml;
    enum hr__xml_event event;
    bool is_cut = false;
    unsigned long marker = 0;
    *next = 0;
    hr__xml_begin(&xml, text, length);
    while ((event = hr__xml_next(&xml)) == HR__XML_OPEN || event == HR__XML_CLOSE) {
        if (event == HR__XML_OPEN && xml.depth == 1 && strcmp(xml.name, "ListPartsResult"))
            return -EBADMSG;
        if (event == HR__XML_OPEN && xml.depth == 2 && !strcmp(xml.name, "Part")) {
            int r = read_part(&xml, each, arg);
            if (r)
                return r;
        } else if (event == HR__XML_CLOSE && xml.depth == 1) {
            if (!strcmp(xml.name, "IsTruncated"))
                is_cut = !strcmp(xml.text, "true");
            else if (!strcmp(xml.name, "NextPartNumberMarker"))
                marker = strtoul(xml.text, NULL, 10);
        }
    }
    if (event != HR__XML_END || (is_cut && (!marker || marker > HR__UPLOAD_PARTS)))
        return -EBADMSG;
    *next = is_cut ? (unsigned)marker : 0;
    return 0;
}

int hr__upload_list(const struct hr__upload *u, hr__upload_each_fn each, void *arg,
                    struct hr_error *error)
{
    unsigned next = 0, last;
    int r = 0;
    do {
        char number[16];
        last = next;
        snprintf(number, sizeof number, "%u", next);
        struct hr__sign_pair query[2] = {{"uploadId", u->id}, {"part-number-marker", number}};
        struct hr__http_call call = {.query = query, .query_count = next ? 2 : 1};
        r = run(u, &call);
        if (r)
            report(u, &call, "continue", error);
        else
            r = hr__upload_page((char *)call.bytes, call.length, each, arg, &next);
        if (r == -EBADMSG)
            hr__fail(error, r, "cannot continue %s: the store's list of parts is none of S3",
                     u->url);
        clear(&call);
    } while (!r && next > last);
    return r;
}

/* The ETag that S3 gives an object of parts: the MD5 of the parts' MD5s, and their number. Returns
 * 0, or -EINVAL if an ETag is no MD5. */
static int expected_etag(char out[HR__ETAG_BYTES], const char (*etags)[HR__ETAG_BYTES],
                         unsigned count)
{
    uint8_t digest[HR__MD5_BYTES];
    char text[HR__MD5_TEXT];
    uint8_t *all = hr__alloc(HR__TAG_STORAGE, count, HR__MD5_BYTES);
    int r = all ? 0 : -EINVAL;
    for (unsigned i = 0; !r && i < count; i++)
        r = hr__md5_of_text(etags[i], all + (size_t)i * HR__MD5_BYTES);
    if (!r) {
        hr__md5_of(all, (size_t)count * HR__MD5_BYTES, digest);
        hr__md5_text(digest, text);
        snprintf(out, HR__ETAG_BYTES, "%s-%u", text, count);
    }
    hr__free(all);
    return r;
}

/* Compares the ETag of the object with that of its parts, where both are of MD5s. */
static int check_whole(const struct hr__upload *u, struct hr__http_call *call,
                       const char (*etags)[HR__ETAG_BYTES], unsigned count, struct hr_error *error)
{
    char mine[HR__ETAG_BYTES], theirs[HR__ETAG_BYTES], head[HR__MD5_TEXT];
    uint8_t digest[HR__MD5_BYTES];
    const char *told = find_text((char *)call->bytes, call->length, "ETag");
    if (!told || copy_etag(theirs, told) || expected_etag(mine, etags, count) || call->is_encrypted)
        return 0;
    snprintf(head, sizeof head, "%.32s", theirs);
    if (hr__md5_of_text(head, digest) || theirs[32] != '-' || !strcmp(mine, theirs))
        return 0;
    return hr__fail(error, -EBADMSG,
                    "%s was written, but its ETag is %s and not %s: it is not of the parts that "
                    "were sent; delete it, and write it again",
                    u->url, theirs, mine);
}

int hr__upload_complete(const struct hr__upload *u, const char (*etags)[HR__ETAG_BYTES],
                        unsigned count, struct hr_error *error)
{
    struct hr__sign_pair query[] = {{"uploadId", u->id}};
    struct hr__http_call call = {.method = "POST", .query = query, .query_count = 1};
    struct digests digests;
    struct hr__draft body = {0};
    hr__draft_put(&body, "<CompleteMultipartUpload>");
    for (unsigned i = 0; i < count; i++)
        hr__draft_print(&body, "<Part><PartNumber>%u</PartNumber><ETag>\"%s\"</ETag></Part>", i + 1,
                        etags[i]);
    hr__draft_put(&body, "</CompleteMultipartUpload>");
    int r = body.failed ? hr__fail(error, -ENOMEM, "out of memory to write %s", u->url) : 0;
    if (!r) {
        set_body(&call, &digests, body.text, body.length);
        r = run(u, &call);
        r = r ? report(u, &call, "complete", error) : check_whole(u, &call, etags, count, error);
    }
    hr__draft_clear(&body);
    clear(&call);
    return r;
}

int hr__upload_abort(const struct hr__upload *u, struct hr_error *error)
{
    struct hr__sign_pair query[] = {{"uploadId", u->id}};
    struct hr__http_call call = {.method = "DELETE", .query = query, .query_count = 1};
    int r = run(u, &call);
    if (r == -ESTALE || r == -ENOENT)
        r = 0;
    else if (r)
        report(u, &call, "abort the unfinished upload of", error);
    clear(&call);
    return r;
}
