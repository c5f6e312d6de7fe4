/*
 * The trailer that follows an item's bytes on a server: HR__PEER_TRAILER bytes that describe the
 * item, with a checksum (XXH3, 64 bits) over the trailer, the bytes and the key. So an item that is
 * cut off, mixed up with another or changed on its way is detected.
 *
 * The trailer also identifies the file that the item was made from: a digest of its inode number
 * and ctime, which hosts that share storage have in common, and one of its content
 * (dataset/stamp.h).
 *
 * Numbers are little-endian:
 *   0  "HRPI", 4 bytes
 *   4  version, 1 byte: 2
 *   5  form, 1 byte
 *   6  0, 2 bytes
 *   8  length of the item, 8 bytes
 *   16 bytes that the sample has on storage, 8 bytes
 *   24 `change` of struct hr__stamp, 8 bytes; 0: not known
 *   32 hr__content_digest of the sample as it is on storage, 8 bytes
 *   40 checksum, 8 bytes: XXH3_64bits of the trailer before it, the key (two numbers of 8
 *      bytes) and XXH3_64bits of the item; with a secret, the tag of the trailer before it, the
 *      key and the item
 */
#ifndef HR_CLUSTER_PEER_ITEM_H
#define HR_CLUSTER_PEER_ITEM_H

#include "cache/secret.h"

#include <headrace/form.h>

#include <stddef.h>
#include <stdint.h>

#define HR__PEER_TRAILER 48

/* What an item needs of a server's item limit besides its bytes: trailer, key, header. */
#define HR__PEER_ITEM_ROOM 512

struct hr__peer_trailer {
    size_t length;
    enum hr_form form;
    uint64_t source_bytes;
    uint64_t change, content;
};

void hr__peer_item_seal(uint8_t out[HR__PEER_TRAILER], const struct hr__peer_trailer *trailer,
                        const uint64_t key[2], const void *bytes, const struct hr__secret *secret);

/* Checks `length` bytes as they came from a server, trailer included. Returns 0, or -EBADMSG if
 * they are not an item of this key. */
int hr__peer_item_check(struct hr__peer_trailer *out, const uint64_t key[2], const void *bytes,
                        size_t length, const struct hr__secret *secret);

#endif
