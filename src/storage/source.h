/*
 * Random access to the bytes of a file or an object, for parsers of containers and indexes.
 *
 * An object is read in windows: small reads near each other cost one request together. One thread
 * uses a source.
 */
#ifndef HR_STORAGE_SOURCE_H
#define HR_STORAGE_SOURCE_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

struct hr__http_client;

struct hr__byte_source {
    const char *path;             /* the caller's */
    int fd;                       /* of a file; -1: an object */
    struct hr__http_client *http; /* of an object: a reference */
    uint64_t bytes;               /* size when it was opened */
    int64_t mtime_ns;             /* then */
    uint64_t change;              /* of an object: digest of its ETag; 0: unknown */
    size_t ahead; /* of an object: bytes to read at once; the caller may change it */
    /* the window of an object */
    uint8_t *window;
    uint64_t at;
    size_t length, capacity;
};

/* Opens the file at `path`, or the object if that is a URL: with the client `http`, or if that is
 * NULL with one of its own. On success the caller closes it. Errors: as open and fstat; -ENOTSUP:
 * no regular file; those of the store. */
int hr__source_open(struct hr__byte_source *out, const char *path, struct hr__http_client *http,
                    struct hr_error *error);

/* The same for a file of any kind that is open already. The source takes the descriptor over on
 * success. Returns -errno of fstat. */
int hr__source_of_file(struct hr__byte_source *out, const char *path, int fd);

/* Reads up to `length` bytes at `offset`. Returns how many, which are fewer only at the end, or a
 * negative errno; `error`, which may be NULL, then says why. */
int64_t hr__source_read_at(struct hr__byte_source *source, void *out, size_t length,
                           uint64_t offset, struct hr_error *error);

/* Reads exactly `length` bytes. Returns 0; -ENODATA: it ends before; or another negative errno. */
HR_NODISCARD int hr__source_read(struct hr__byte_source *source, void *out, size_t length,
                                 uint64_t offset, struct hr_error *error);

/* Closes what hr__source_open opened, and frees the window. */
void hr__source_close(struct hr__byte_source *source);

#endif
