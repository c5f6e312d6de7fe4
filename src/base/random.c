/* Philox4x32-10 and the distributions based on it. */
#include "base/random.h"

void hr__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/*
 * (purpose, a, b) are 192 bits, and a Philox counter has 128, some of which the stream needs to
 * count its blocks. So this absorbs purpose and a into the key: the stream's key is half of a
 * Philox output, and the other half and b form the base of its counter.
 */
void hr__random_init(struct hr__random *r, uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t counter[4] = {(uint32_t)purpose, (uint32_t)(purpose >> 32), (uint32_t)a,
                           (uint32_t)(a >> 32)};
    uint32_t mixed[4];
    hr__philox(counter, key, mixed);
    r->key[0] = mixed[0];
    r->key[1] = mixed[1];
    r->base[0] = mixed[2];
    r->base[1] = mixed[3];
    r->base[2] = (uint32_t)b;
    r->base[3] = (uint32_t)(b >> 32);
    r->block = 0;
    r->left = 0;
}

uint32_t hr__random_u32(struct hr__random *r)
{
    if (!r->left) {
        uint32_t counter[4] = {r->base[0] ^ (uint32_t)r->block,
                               r->base[1] ^ (uint32_t)(r->block >> 32), r->base[2], r->base[3]};
        hr__philox(counter, r->key, r->word);
        r->block++;
        r->left = 4;
    }
    return r->word[4 - r->left--];
}

uint64_t hr__random_u64(struct hr__random *r)
{
    uint64_t low = hr__random_u32(r);
    return low | (uint64_t)hr__random_u32(r) << 32;
}

double hr__random_unit(struct hr__random *r)
{
    return (double)(hr__random_u64(r) >> 11) * 0x1p-53;
}

double hr__random_range(struct hr__random *r, double low, double high)
{
    return low + (high - low) * hr__random_unit(r);
}

/* Lemire, "Fast Random Integer Generation in an Interval" (2019), algorithm 5. */
uint64_t hr__random_below(struct hr__random *r, uint64_t n)
{
    if (n <= UINT32_MAX) {
        uint32_t bound = (uint32_t)n;
        uint64_t m = (uint64_t)hr__random_u32(r) * bound;
        if ((uint32_t)m < bound) {
            uint32_t threshold = -bound % bound;
            while ((uint32_t)m < threshold)
                m = (uint64_t)hr__random_u32(r) * bound;
        }
        return m >> 32;
    }
    unsigned __int128 m = (unsigned __int128)hr__random_u64(r) * n;
    if ((uint64_t)m < n) {
        uint64_t threshold = -n % n;
        while ((uint64_t)m < threshold)
            m = (unsigned __int128)hr__random_u64(r) * n;
    }
    return (uint64_t)(m >> 64);
}
