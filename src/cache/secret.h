/*
 * A secret from a key file, and the tags that only its holders can make: SipHash-2-4 with 64 bits
 * (J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF", 2012).
 *
 * Items of servers and segments have a checksum, which detects damage. With a secret they have a
 * tag instead, which also detects forgery: a program that can reach a server or write to a segment
 * cannot replace an item by its own. Guessing a tag takes 2^63 tries on average, each of which is
 * noticed.
 *
 * We use our own implementation because only this function is needed: forty lines with published
 * test vectors, whereas a library with a keyed hash is two megabytes.
 */
#ifndef HR_CACHE_SECRET_H
#define HR_CACHE_SECRET_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

#define HR__KEY_FILE 256 /* room for a key file's path with its final zero */

/* Least bytes in a key file, and most bytes read from it. */
#define HR__KEY_LEAST 16
#define HR__KEY_MOST  4096

struct hr__secret {
    uint64_t key[2];
    int is_set; /* 0: there is no secret, and tags are not used */
};

/*
 * Reads a key file; the path "" means no secret. Messages never contain any of the file's contents.
 * Errors: -EACCES: accessible to others than its owner (required: mode 0600 or less, owned by this
 * user or root); -EINVAL: not a file, or shorter than HR__KEY_LEAST; those of opening it.
 */
int hr__secret_read(struct hr__secret *out, const char *path, struct hr_error *error);

/* Returns a number that distinguishes secrets without revealing them; 0 if there is none. Pure. */
uint64_t hr__secret_mark(const struct hr__secret *secret);

/* A tag in progress. */
struct hr__mac {
    uint64_t v[4], tail, length;
};

void hr__mac_begin(struct hr__mac *tag, const struct hr__secret *secret);
void hr__mac_add(struct hr__mac *tag, const void *bytes, size_t length);
uint64_t hr__mac_end(struct hr__mac *tag);

#endif
