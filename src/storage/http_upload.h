/*
 * Writes an object in parts (S3's multipart upload), of which each may be sent at any time, in any
 * order, several at once, and again.
 *
 * The store keeps the parts until the upload is completed, which makes the object, or aborted. Each
 * part goes with its MD5, which the store compares, and the ETag of the answer is compared as well
 * where it is an MD5. Any thread may send a part; each call blocks.
 */
#ifndef HR_STORAGE_HTTP_UPLOAD_H
#define HR_STORAGE_HTTP_UPLOAD_H

#include "storage/http.h"

#include <stdatomic.h>

#define HR__UPLOAD_PARTS 10000 /* the most that an upload may have */
#define HR__ETAG_BYTES   100

struct hr__upload {
    struct hr__http_client *http; /* the caller's */
    const char *url;              /* of the object: s3:// or gs://; the caller's */
    const atomic_int *stop;       /* non-zero: calls end soon, with -ECANCELED */
    char *id;                     /* the store's name for the upload; the owner frees it */
};

/* Begins an upload and sets its id. Errors: those of the store, with a message. */
int hr__upload_begin(struct hr__upload *upload, struct hr_error *error);

struct hr__upload_part {
    unsigned number; /* from 1 */
    const void *bytes;
    size_t length;
    char etag[HR__ETAG_BYTES]; /* the answer */
};

/* Sends one part. Errors: those of the store; -ESTALE: there is no such upload any more. */
int hr__upload_send(const struct hr__upload *upload, struct hr__upload_part *part,
                    struct hr_error *error);

/* Called for each part that the store has, in the order of numbers. Non-zero ends the listing. */
typedef int (*hr__upload_each_fn)(void *arg, unsigned number, const char *etag, int64_t bytes);

/* Lists the parts that the store has. Errors: as hr__upload_send; that of `each`. */
int hr__upload_list(const struct hr__upload *upload, hr__upload_each_fn each, void *arg,
                    struct hr_error *error);

/* Reads one page of that list (ListParts), which it writes to; text[length] must be writable.
 * *next: the number after which the next page begins; 0: this is the last. Errors: -EBADMSG; that
 * of `each`. */
int hr__upload_page(char *text, size_t length, hr__upload_each_fn each, void *arg, unsigned *next);

/* Makes the object of the parts 1 to `count`, whose ETags are etags[0] and so on. Errors: as
 * hr__upload_send; -EBADMSG: the object's ETag is not that of these parts. */
int hr__upload_complete(const struct hr__upload *upload, const char (*etags)[HR__ETAG_BYTES],
                        unsigned count, struct hr_error *error);

/* Throws the parts away. An upload that is not there any more is no error. */
int hr__upload_abort(const struct hr__upload *upload, struct hr_error *error);

#endif
