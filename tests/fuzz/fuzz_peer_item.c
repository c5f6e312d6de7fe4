/*
 * Items as servers send them: any bytes are an item of the key or none. An accepted item was
 * sealed, and is refused under another key or with one bit changed.
 */
#include "cluster/peer_item.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t whole[65536 + HR__PEER_TRAILER];
    struct hr__peer_trailer trailer, found;
    uint64_t key[2] = {size, 7}, other[2] = {size, 8};
    const struct hr__secret secret = {{1, 2}, size & 1};
    /* Random bytes match a checksum only by a chance of 2^-64. */
    if (!hr__peer_item_check(&found, key, data, size, &secret) &&
        found.length + HR__PEER_TRAILER != size)
        abort();
    if (size < 4 || size > 65536)
        return 0;
    trailer = (struct hr__peer_trailer){.length = size,
                                        .form = (enum hr_form)(data[0] % HR_FORMS),
                                        .source_bytes = data[1],
                                        .change = data[2],
                                        .content = data[3]};
    memcpy(whole, data, size);
    hr__peer_item_seal(whole + size, &trailer, key, whole, &secret);
    if (hr__peer_item_check(&found, key, whole, size + HR__PEER_TRAILER, &secret) ||
        found.length != size || found.form != trailer.form ||
        found.source_bytes != trailer.source_bytes || found.change != trailer.change ||
        found.content != trailer.content ||
        !hr__peer_item_check(&found, other, whole, size + HR__PEER_TRAILER, &secret) ||
        !hr__peer_item_check(&found, key, whole, size + HR__PEER_TRAILER - 1, &secret))
        abort();
    whole[(data[2] | data[3] << 8) % (size + HR__PEER_TRAILER)] ^= (uint8_t)(1 << data[1] % 8);
    if (!hr__peer_item_check(&found, key, whole, size + HR__PEER_TRAILER, &secret))
        abort();
    return 0;
}
