/* Copies bytes of a segment as atomic words (store_words.h). */
#include "cache/store_words.h"

#include <string.h>

void hr__words_store(uint8_t *to, const uint64_t *words, size_t count)
{
    uint64_t *out = (uint64_t *)to;
    for (size_t i = 0; i < count; i++)
        __atomic_store_n(&out[i], words[i], __ATOMIC_RELAXED);
}

void hr__words_load(uint64_t *words, const uint8_t *from, size_t count)
{
    const uint64_t *in = (const uint64_t *)from;
    for (size_t i = 0; i < count; i++)
        words[i] = __atomic_load_n(&in[i], __ATOMIC_RELAXED);
}

void hr__words_write(uint8_t *to, struct hr__words_from *from, size_t length)
{
    uint64_t words[512];
    size_t done = 0;
    while (done < length) {
        size_t filled = 0;
        while (filled < sizeof words && done + filled < length) {
            size_t n = from->piece->length - from->used;
            if (n > sizeof words - filled)
                n = sizeof words - filled;
            if (n > length - done - filled)
                n = length - done - filled;
            memcpy((char *)words + filled, (const char *)from->piece->bytes + from->used, n);
            filled += n;
            from->used += n;
            if (from->used == from->piece->length) {
                from->piece++;
                from->used = 0;
            }
        }
        memset((char *)words + filled, 0, (8 - filled % 8) % 8);
        hr__words_store(to + done, words, (filled + 7) / 8);
        done += filled;
    }
}
