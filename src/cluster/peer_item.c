/* Writes and checks trailers, byte by byte, so that hosts of either byte order agree
 * (peer_item.h). */
#include "cluster/peer_item.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#define VERSION  2
#define CHECKSUM 40

static void put64(uint8_t *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static uint64_t checksum(const uint8_t *trailer, const uint64_t key[2], const void *bytes,
                         size_t length, const struct hr__secret *secret)
{
    uint8_t all[CHECKSUM + 24];
    memcpy(all, trailer, CHECKSUM);
    put64(all + CHECKSUM, key[0]);
    put64(all + CHECKSUM + 8, key[1]);
    if (secret->is_set) {
        struct hr__mac tag;
        hr__mac_begin(&tag, secret);
        hr__mac_add(&tag, all, CHECKSUM + 16);
        hr__mac_add(&tag, bytes, length);
        return hr__mac_end(&tag);
    }
    put64(all + CHECKSUM + 16, XXH3_64bits(bytes, length));
    return XXH3_64bits(all, sizeof all);
}

void hr__peer_item_seal(uint8_t out[HR__PEER_TRAILER], const struct hr__peer_trailer *trailer,
                        const uint64_t key[2], const void *bytes, const struct hr__secret *secret)
{
    memcpy(out, "HRPI", 4);
    out[4] = VERSION;
    out[5] = (uint8_t)trailer->form;
    out[6] = out[7] = 0;
    put64(out + 8, trailer->length);
    put64(out + 16, trailer->source_bytes);
    put64(out + 24, trailer->change);
    put64(out + 32, trailer->content);
    put64(out + CHECKSUM, checksum(out, key, bytes, trailer->length, secret));
}

int hr__peer_item_check(struct hr__peer_trailer *out, const uint64_t key[2], const void *bytes,
                        size_t length, const struct hr__secret *secret)
{
    if (length < HR__PEER_TRAILER)
        return -EBADMSG;
    size_t item = length - HR__PEER_TRAILER;
    const uint8_t *t = (const uint8_t *)bytes + item;
    if (memcmp(t, "HRPI", 4) || t[4] != VERSION || t[5] >= HR_FORMS || t[6] || t[7] ||
        get64(t + 8) != item || get64(t + CHECKSUM) != checksum(t, key, bytes, item, secret))
        return -EBADMSG;
    *out = (struct hr__peer_trailer){
        .length = item,
        .form = (enum hr_form)t[5],
        .source_bytes = get64(t + 16),
        .change = get64(t + 24),
        .content = get64(t + 32),
    };
    return 0;
}
