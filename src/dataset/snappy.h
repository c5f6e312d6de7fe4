/* Decompresses blocks in the Snappy format (format_description.txt of Snappy), in which Parquet
 * tables usually hold numbers. Blocks are untrusted. */
#ifndef HR_DATASET_SNAPPY_H
#define HR_DATASET_SNAPPY_H

#include <stddef.h>
#include <stdint.h>

/* The most that a block of `length` bytes can hold: three bytes stand for 64 at most. */
static inline uint64_t hr__snappy_most(uint64_t length)
{
    return length > UINT64_MAX / 64 ? UINT64_MAX : length * 64 / 3 + 64;
}

/* Decompresses a block into `out`, which holds exactly `out_bytes`. Returns 0; -EBADMSG: damaged,
 * or its contents have another size. Pure. */
int hr__snappy_decompress(uint8_t *out, size_t out_bytes, const uint8_t *block, size_t length);

#endif
