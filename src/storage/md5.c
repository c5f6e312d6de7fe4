/* MD5; see md5.h. */
#include "storage/md5.h"

#include <errno.h>
#include <string.h>

#define BLOCK 64

/* The integer parts of 2^32 |sin(i)|, for i from 1 to 64. */
static const uint32_t sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

static uint32_t rotate(uint32_t x, unsigned bits)
{
    return x << bits | x >> (32 - bits);
}

static void add_block(uint32_t state[4], const uint8_t *block)
{
    static const uint8_t shifts[4][4] = {
        {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    uint32_t w[16], a = state[0], b = state[1], c = state[2], d = state[3];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] | (uint32_t)block[4 * i + 1] << 8 |
               (uint32_t)block[4 * i + 2] << 16 | (uint32_t)block[4 * i + 3] << 24;
    for (int i = 0; i < 64; i++) {
        uint32_t f;
        int word;
        if (i < 16) {
            f = (b & c) | (~b & d);
            word = i;
        } else if (i < 32) {
            f = (d & b) | (~d & c);
            word = (5 * i + 1) % 16;
        } else if (i < 48) {
            f = b ^ c ^ d;
            word = (3 * i + 5) % 16;
        } else {
            f = c ^ (b | ~d);
            word = 7 * i % 16;
        }
        uint32_t next = b + rotate(a + f + sines[i] + w[word], shifts[i / 16][i % 4]);
        a = d;
        d = c;
        c = b;
        b = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

void hr__md5_of(const void *bytes, size_t length, uint8_t out[HR__MD5_BYTES])
{
    uint32_t state[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    uint8_t tail[2 * BLOCK] = {0};
    const uint8_t *from = bytes;
    size_t left = length;
    for (; left >= BLOCK; left -= BLOCK, from += BLOCK)
        add_block(state, from);
    if (left)
        memcpy(tail, from, left);
    tail[left] = 0x80;
    size_t end = left < 56 ? BLOCK : 2 * BLOCK;
    for (int i = 0; i < 8; i++)
        tail[end - 8 + (size_t)i] = (uint8_t)((uint64_t)length * 8 >> 8 * i);
    for (size_t at = 0; at < end; at += BLOCK)
        add_block(state, tail + at);
    for (int i = 0; i < HR__MD5_BYTES; i++)
        out[i] = (uint8_t)(state[i / 4] >> 8 * (i % 4));
}

void hr__md5_text(const uint8_t digest[HR__MD5_BYTES], char out[HR__MD5_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < HR__MD5_BYTES; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * HR__MD5_BYTES] = 0;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 32);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int hr__md5_of_text(const char *text, uint8_t out[HR__MD5_BYTES])
{
    for (int i = 0; i < HR__MD5_BYTES; i++) {
        int high = digit_of(text[2 * i]), low = high < 0 ? -1 : digit_of(text[2 * i + 1]);
        if (low < 0)
            return -EINVAL;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return text[2 * HR__MD5_BYTES] ? -EINVAL : 0;
}

void hr__md5_base64(const uint8_t digest[HR__MD5_BYTES], char out[HR__MD5_64])
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t bytes[18] = {0};
    memcpy(bytes, digest, HR__MD5_BYTES);
    for (int i = 0; i < 6; i++) {
        uint32_t three =
            (uint32_t)bytes[3 * i] << 16 | (uint32_t)bytes[3 * i + 1] << 8 | bytes[3 * i + 2];
        for (int k = 0; k < 4; k++)
            out[4 * i + k] = letters[three >> (18 - 6 * k) & 63];
    }
    out[22] = out[23] = '=';
    out[24] = 0;
}
