/*
 * A secret from a file, and the tags that only who knows it can make: SipHash-2-4 with 64 bits
 * (J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF", 2012).
 *
 * Items of servers and of segments have a checksum, which finds damage. With a secret it is
 * a tag instead, which finds malice as well: who reaches a server or may write to a segment
 * cannot put an item of his own in the place of another. To guess a tag takes 2^63 tries on
 * the mean, each of which is seen.
 *
 * It is our own because a tag of an item is all that is wanted: the function is forty lines
 * with published test vectors, and a library that has a keyed hash is two megabytes.
 */
#ifndef HR_CACHE_SECRET_H
#define HR_CACHE_SECRET_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

#define HR__KEY_FILE 256 /* a path of a key file, with its end */

/* Bytes of a key file at least, and those that are read of it at most. */
#define HR__KEY_LEAST 16
#define HR__KEY_MOST  4096

struct hr__secret {
    uint64_t key[2];
    int is_set; /* 0: there is none, tags are not used */
};

/*
 * Reads a key file; the path "" gives none. Its messages never have anything of the contents.
 * Errors: -EACCES: it is not the owner's alone (mode 0600 or less, of this user or root);
 * -EINVAL: it is no file, or shorter than HR__KEY_LEAST; those of opening it.
 */
int hr__secret_read(struct hr__secret *out, const char *path, struct hr_error *error);

/* Tells secrets apart without telling what they are; 0 where there is none. Pure. */
uint64_t hr__secret_mark(const struct hr__secret *secret);

/* A tag that is being made. */
struct hr__mac {
    uint64_t v[4], tail, length;
};

void hr__mac_begin(struct hr__mac *tag, const struct hr__secret *secret);
void hr__mac_add(struct hr__mac *tag, const void *bytes, size_t length);
uint64_t hr__mac_end(struct hr__mac *tag);

#endif
