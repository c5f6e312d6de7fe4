/*
 * URLs of objects: "s3://bucket/key", "gs://bucket/key", "https://host[:port]/path" and "http://".
 *
 * The key of s3:// and gs:// is taken as it stands: no byte of it is special, and nothing in it is
 * escaped. The path of http:// and https:// is escaped by the one who writes it, as in a browser.
 * A URL that would carry a secret (a user before the host, a signed query) is refused, so URLs may
 * stand in messages, keys and indexes.
 */
#ifndef HR_STORAGE_URL_H
#define HR_STORAGE_URL_H

#include "base/draft.h"

#include <headrace/base.h>

#include <stdbool.h>
#include <stddef.h>

enum hr__url_scheme {
    HR__URL_HTTP = 0,
    HR__URL_HTTPS = 1,
    HR__URL_S3 = 2,
    HR__URL_GS = 3, /* Google Cloud Storage by its XML interface */
};

/* A parsed URL: pointers into its text. */
struct hr__url {
    enum hr__url_scheme scheme;
    const char *host; /* host[:port], or the bucket */
    size_t host_length;
    const char *path; /* the key, or the path after the first slash; 0-terminated */
};

/* Returns whether the text has the form of a URL ("word://"), of any scheme. Pure. */
bool hr__url_is(const char *text);

/* Parses `text`, which must outlive *out. Errors: -EINVAL, with a message that says what to write
 * instead and never repeats a secret. */
int hr__url_parse(struct hr__url *out, const char *text, struct hr_error *error);

/* Returns whether the objects of such URLs are in buckets, which can be listed. */
static inline bool hr__url_has_bucket(const struct hr__url *url)
{
    return url->scheme >= HR__URL_S3;
}

/* Returns the length of the part of a URL before its path, without the slash: "s3://bucket". 0: the
 * text is no URL. Pure. */
size_t hr__url_root_length(const char *text);

/* Adds the text with every byte escaped (%2F) but letters, digits and "-._~"; with `slashes`,
 * slashes stay. */
void hr__url_escape(struct hr__draft *draft, const char *text, size_t length, bool slashes);

/* Undoes escapes in place; what is no escape stays. Returns the new length. */
size_t hr__url_unescape(char *text);

#endif
