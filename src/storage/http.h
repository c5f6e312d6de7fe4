/*
 * The client of objects at URLs: S3 and stores that speak its language, Google Cloud Storage, plain
 * HTTP and HTTPS.
 *
 * One client serves a dataset. It finds credentials, endpoints and regions as AWS's tools do, signs
 * requests, and repeats those that fail in passing: with a growing random pause, until a deadline.
 * All threads together keep at most so many requests in flight as the store bears: the number
 * grows while it answers, and shrinks when it asks for less or answers too late.
 *
 * A client has no lock and no connection of its own, so a forked child may go on with it. Threads
 * have connections: those of a reader are the reader's (reader.h, requests with `http`).
 */
#ifndef HR_STORAGE_HTTP_H
#define HR_STORAGE_HTTP_H

#include "storage/reader.h"

#include <headrace/base.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hr__http_client;

/* What a store says of an object. */
struct hr__object {
    int64_t bytes;
    int64_t mtime_ns; /* since 1970; 0: not told */
    uint64_t change;  /* digest of its ETag; 0: not told */
    int is_weak;      /* the ETag may be that of other bytes, too */
};

/* Makes a client with the settings of the environment and of the AWS profile. On success *out holds
 * one reference. Does not connect. Errors: -ENOTSUP: built without libcurl; -EINVAL: a setting that
 * cannot be; -ENOMEM; those of reading the profile. */
int hr__http_create(struct hr__http_client **out, struct hr_error *error);

/* Adds a reference; accepts NULL. */
struct hr__http_client *hr__http_ref(struct hr__http_client *http);
/* Drops a reference and sets *http to NULL; accepts NULL. */
void hr__http_unref(struct hr__http_client **http);

/* Returns the address of an object of a bucket, as this client asks for it first; the caller frees
 * it. NULL: out of memory, or no URL of a bucket. */
char *hr__http_address(struct hr__http_client *http, const char *url);

/* Returns the endpoint that the settings name for s3:// URLs, or with `gs` for gs:// ones; NULL:
 * the provider's own. Owned by the client. */
const char *hr__http_endpoint(const struct hr__http_client *http, bool gs);

/* What a client has asked for, since it was made. */
struct hr__http_counts {
    uint64_t requests; /* all, with `lists`, `retries` and `hedges` */
    uint64_t lists;
    uint64_t retries;  /* requests repeated after a failure */
    uint64_t hedges;   /* requests repeated because the first was slow */
    uint64_t refusals; /* answers that asked for fewer requests (503, 429) */
    uint64_t bytes;    /* of bodies */
    uint64_t writes;   /* of `requests`: those that begin, send and complete an upload */
    double cost_usd;   /* what all of them cost, with the prices of the settings */
};

/* Adds the client's counts to *counts. Any thread. */
void hr__http_count(const struct hr__http_client *http, struct hr__http_counts *counts);

/* The most requests in flight, over all threads. */
#define HR__HTTP_MOST 256

/* Reads one object, or a range of one, on this thread: hr__read_file for requests with `http`. */
int hr__http_read(struct hr__read *read, uint64_t max_bytes);

/* The digest of an ETag as in struct hr__object. Pure. */
uint64_t hr__etag_digest(const char *etag);

/* Returns `change` of an object if equal digests mean equal bytes; else 0. Pure. */
uint64_t hr__object_version(const struct hr__object *object);

/* Reads up to `capacity` bytes at `offset` of the object at `url`, and what the store says of it.
 * Returns 0 and the number of bytes in *got, or a negative errno. `change`: the object's digest if
 * it is known, else 0; another one is -ESTALE. Blocks. */
struct hr__http_piece {
    struct hr__http_client *http;
    const char *url;
    uint64_t offset;
    uint64_t change;
};
int hr__http_piece(const struct hr__http_piece *piece, void *out, size_t capacity, size_t *got,
                   struct hr__object *object, struct hr_error *error);

/* One page of a listing: called for each object, in the order of keys. `key` has the whole key.
 * Non-zero ends the listing with that error. */
typedef int (*hr__http_each_fn)(void *arg, const char *key, const struct hr__object *object);

struct hr__http_listing {
    struct hr__http_client *http;
    const char *url;       /* "s3://bucket" or "gs://bucket", without a key */
    const char *prefix;    /* of keys; "": all */
    const char *delimiter; /* "/": keys with one after the prefix are grouped; "": none are */
    hr__http_each_fn each;
    hr__http_each_fn each_prefix; /* for a group, with an empty object; NULL: not wanted */
    void *arg;
    int most_pages; /* stop after so many; 0: no limit */
};

/* Lists objects, page after page. Blocks. Errors: those of the store, with a message. */
int hr__http_list(const struct hr__http_listing *listing, struct hr_error *error);

/* Reads one page of a listing (ListObjectsV2), which it writes to; text[length] must be writable.
 * *next: where the token for the next page is in the text; NULL: this is the last. Errors:
 * -EBADMSG; that of `each`. */
int hr__http_list_page(const struct hr__http_listing *listing, char *text, size_t length,
                       const char **next);

#endif
