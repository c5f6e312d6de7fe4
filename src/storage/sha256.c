/* SHA-256 and HMAC; see sha256.h. */
#include "storage/sha256.h"

#include <string.h>

#define BLOCK 64

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int bits)
{
    return x >> bits | x << (32 - bits);
}

static void add_block(uint32_t state[8], const uint8_t block[BLOCK])
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t a = s[0], e = s[4];
        uint32_t choice = (e & s[5]) ^ (~e & s[6]);
        uint32_t majority = (a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]);
        uint32_t one = s[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choice +
                       round_constants[i] + w[i];
        uint32_t two = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void hr__sha256_begin(struct hr__sha256 *hash)
{
    /* The first 32 bits of the fractional parts of the square roots of the first 8 primes. */
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, start, sizeof start);
    hash->length = 0;
}

void hr__sha256_add(struct hr__sha256 *hash, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    size_t used = hash->length % BLOCK;
    hash->length += length;
    while (length) {
        size_t room = BLOCK - used, n = length < room ? length : room;
        memcpy(hash->block + used, from, n);
        used += n;
        from += n;
        length -= n;
        if (used == BLOCK) {
            add_block(hash->state, hash->block);
            used = 0;
        }
    }
}

void hr__sha256_end(struct hr__sha256 *hash, uint8_t out[HR__SHA256_BYTES])
{
    static const uint8_t padding[BLOCK] = {0x80};
    uint64_t bits = hash->length * 8;
    uint8_t tail[8];
    for (int i = 0; i < 8; i++)
        tail[i] = (uint8_t)(bits >> (56 - 8 * i));
    size_t used = hash->length % BLOCK;
    hr__sha256_add(hash, padding, used < 56 ? 56 - used : 120 - used);
    hr__sha256_add(hash, tail, sizeof tail);
    for (int i = 0; i < HR__SHA256_BYTES; i++)
        out[i] = (uint8_t)(hash->state[i / 4] >> (24 - i % 4 * 8));
}

void hr__sha256_of(const void *bytes, size_t length, uint8_t out[HR__SHA256_BYTES])
{
    struct hr__sha256 hash;
    hr__sha256_begin(&hash);
    hr__sha256_add(&hash, bytes, length);
    hr__sha256_end(&hash, out);
}

void hr__hmac_sha256(const void *key, size_t key_length, const void *bytes, size_t length,
                     uint8_t out[HR__SHA256_BYTES])
{
    uint8_t block[BLOCK] = {0}, digest[HR__SHA256_BYTES];
    struct hr__sha256 hash;
    if (key_length > BLOCK)
        hr__sha256_of(key, key_length, block);
    else
        memcpy(block, key, key_length);
    for (int i = 0; i < BLOCK; i++)
        block[i] ^= 0x36;
    hr__sha256_begin(&hash);
    hr__sha256_add(&hash, block, BLOCK);
    hr__sha256_add(&hash, bytes, length);
    hr__sha256_end(&hash, digest);
    for (int i = 0; i < BLOCK; i++)
        block[i] ^= 0x36 ^ 0x5c;
    hr__sha256_begin(&hash);
    hr__sha256_add(&hash, block, BLOCK);
    hr__sha256_add(&hash, digest, sizeof digest);
    hr__sha256_end(&hash, out);
}

void hr__sha256_text(const uint8_t digest[HR__SHA256_BYTES], char out[2 * HR__SHA256_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < HR__SHA256_BYTES; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * HR__SHA256_BYTES] = 0;
}
