/*
 * Signs requests with AWS Signature Version 4 ("Signature Calculations for the Authorization
 * Header", Amazon S3 API Reference). S3-compatible stores and the XML interface of Google Cloud
 * Storage (with HMAC keys) take the same signatures.
 *
 * The signature covers the method, the path, the sorted query, the headers given and the digest of
 * the body (x-amz-content-sha256).
 */
#ifndef HR_STORAGE_SIGN_H
#define HR_STORAGE_SIGN_H

#include "base/draft.h"
#include "storage/sha256.h"

#include <stddef.h>
#include <time.h>

/* The digest of an empty body. */
#define HR__SIGN_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

#define HR__SIGN_TEXT (2 * HR__SHA256_BYTES + 1)

/* A name and a value: of the query, not escaped, or of a header, with a lower-case name. */
struct hr__sign_pair {
    const char *name, *value;
};

/* Who signs, for what and when. */
struct hr__sign_scope {
    const char *key_id, *secret;
    const char *region, *service;
    time_t now;
};

/* The key of a scope, which is good for a day. */
struct hr__sign_key {
    uint8_t bytes[HR__SHA256_BYTES];
    char day[9];     /* "20130524" */
    char time[17];   /* "20130524T000000Z" */
    char scope[160]; /* "20130524/us-east-1/s3/aws4_request" */
    char key_id[160];
};

struct hr__sign_request {
    const char *method;
    const char *path; /* with its first slash, escaped */
    const struct hr__sign_pair *query;
    size_t query_count;
    const struct hr__sign_pair *headers; /* those to sign: host, x-amz-date, ...; of any order */
    size_t header_count;
    const char *payload; /* value of x-amz-content-sha256 */
};

/* Derives the key. Returns 0, or -ENAMETOOLONG for names that no scope has. Pure. */
int hr__sign_begin(struct hr__sign_key *key, const struct hr__sign_scope *scope);

/* Sets only the time of a key, if the day is still its own. Returns whether it is. */
int hr__sign_again(struct hr__sign_key *key, time_t now);

/* Adds a query in the order and escaping that is signed: "a=1&b=%2F". Sorts `query` in place. */
void hr__sign_query(struct hr__draft *out, struct hr__sign_pair *query, size_t count);

/* Computes the signature, and adds the value of the Authorization header to `out`. Returns 0 or
 * -ENOMEM. */
int hr__sign(struct hr__draft *out, char signature[HR__SIGN_TEXT], const struct hr__sign_key *key,
             const struct hr__sign_request *request);

#endif
