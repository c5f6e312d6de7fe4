/*
 * MD5 (RFC 1321), because object stores tell what they were sent by it: Content-MD5, and the ETag
 * of an object or a part. It protects from damage on the way, not from an attacker; signatures use
 * SHA-256 (sha256.h, which says why neither is taken from a library).
 */
#ifndef HR_STORAGE_MD5_H
#define HR_STORAGE_MD5_H

#include <stddef.h>
#include <stdint.h>

#define HR__MD5_BYTES 16
#define HR__MD5_TEXT  (2 * HR__MD5_BYTES + 1)
#define HR__MD5_64    25

/* The digest of one text. */
void hr__md5_of(const void *bytes, size_t length, uint8_t out[HR__MD5_BYTES]);

/* Writes a digest as 32 lower-case digits and a zero. */
void hr__md5_text(const uint8_t digest[HR__MD5_BYTES], char out[HR__MD5_TEXT]);

/* Reads 32 digits. Returns 0, or -EINVAL if the text is not just that. */
int hr__md5_of_text(const char *text, uint8_t out[HR__MD5_BYTES]);

/* Writes a digest in base 64, as Content-MD5 has it, and a zero. */
void hr__md5_base64(const uint8_t digest[HR__MD5_BYTES], char out[HR__MD5_64]);

#endif
