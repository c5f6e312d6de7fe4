/* The Snappy format; see snappy.h. A block is its length and a series of elements: bytes, or copies
 * of earlier output. */
#include "dataset/snappy.h"

#include "dataset/thrift.h"

#include <errno.h>
#include <string.h>

/* Reads a little-endian number of `bytes` bytes. */
static uint64_t number(struct hr__thrift *in, unsigned bytes)
{
    uint64_t value = 0;
    if ((size_t)(in->end - in->at) < bytes) {
        in->bad = 1;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)*in->at++ << 8 * i;
    return value;
}

int hr__snappy_decompress(uint8_t *out, size_t out_bytes, const uint8_t *block, size_t length)
{
    struct hr__thrift in = {block, block + length, 0};
    uint8_t *to = out, *const end = out + out_bytes;
    if (hr__thrift_varint(&in) != out_bytes || in.bad)
        return -EBADMSG;
    while (in.at < in.end) {
        uint8_t tag = *in.at++;
        uint64_t bytes = (tag >> 2) + 1u, back = 0;
        if ((tag & 3) == 0 && bytes > 60) {
            bytes = number(&in, (unsigned)bytes - 60) + 1;
        } else if ((tag & 3) == 1) {
            bytes = (tag >> 2 & 7) + 4u;
            back = (uint64_t)(tag >> 5) << 8 | number(&in, 1);
        } else if (tag & 3) {
            back = number(&in, (tag & 3) == 2 ? 2 : 4);
        }
        if (in.bad || bytes > (uint64_t)(end - to))
            return -EBADMSG;
        if ((tag & 3) == 0) {
            if (bytes > (uint64_t)(in.end - in.at))
                return -EBADMSG;
            memcpy(to, in.at, bytes);
            in.at += bytes;
            to += bytes;
        } else {
            if (!back || back > (uint64_t)(to - out))
                return -EBADMSG;
            for (; bytes; bytes--, to++) /* may overlap */
                *to = to[-(ptrdiff_t)back];
        }
    }
    return to == end ? 0 : -EBADMSG;
}
