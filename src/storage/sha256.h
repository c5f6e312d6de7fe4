/*
 * SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), for signing requests.
 *
 * They are here, and not taken from a library, because signing needs nothing else of one: libcurl
 * may be built with any of several TLS libraries, and the package would have to bring one more.
 */
#ifndef HR_STORAGE_SHA256_H
#define HR_STORAGE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define HR__SHA256_BYTES 32

struct hr__sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes added */
    uint8_t block[64];
};

void hr__sha256_begin(struct hr__sha256 *hash);
void hr__sha256_add(struct hr__sha256 *hash, const void *bytes, size_t length);
void hr__sha256_end(struct hr__sha256 *hash, uint8_t out[HR__SHA256_BYTES]);

/* The digest of one text. */
void hr__sha256_of(const void *bytes, size_t length, uint8_t out[HR__SHA256_BYTES]);

void hr__hmac_sha256(const void *key, size_t key_length, const void *bytes, size_t length,
                     uint8_t out[HR__SHA256_BYTES]);

/* Writes a digest as 64 lower-case digits and a zero. */
void hr__sha256_text(const uint8_t digest[HR__SHA256_BYTES], char out[2 * HR__SHA256_BYTES + 1]);

#endif
