/* Copies the bytes of a scan without stuffing; see scan_reader.h. */
#include "codec/scan_reader.h"

#define FILL_BYTE 0xFF

/* Copies until the piece is full, or a marker or the end of the bytes. */
static void copy(struct hr__scan_reader *r, uint8_t *out)
{
    const uint8_t *limit = r->piece + HR__SEGMENT_PIECE;
    r->marker = 0;
    while (out < limit && r->raw < r->raw_end) {
        size_t room = (size_t)(limit - out), left = (size_t)(r->raw_end - r->raw);
        size_t count = room < left ? room : left;
        const uint8_t *ff = memchr(r->raw, 0xFF, count);
        count = ff ? (size_t)(ff - r->raw) : count;
        memcpy(out, r->raw, count);
        out += count;
        r->raw += count;
        if (!ff)
            continue;
        if (r->raw_end - r->raw < 2)
            break;
        if (r->raw[1]) {
            r->marker = r->raw[1];
            break;
        }
        *out++ = 0xFF;
        r->raw += 2;
    }
    r->end = out;
}

/* Returns 0 if the bytes end before they may. */
static int settle(struct hr__scan_reader *r)
{
    r->last = r->marker || (r->bounded && r->raw == r->raw_end);
    if (r->marker == FILL_BYTE) /* it may precede a marker or a stuffed zero; libjpeg decides */
        return 0;
    if (r->last) {
        r->check = r->end - r->piece > HR__SEGMENT_SLACK ? r->end - HR__SEGMENT_SLACK : r->piece;
        return 1;
    }
    r->check = r->end - HR__SEGMENT_SLACK;
    return r->raw_end - r->raw >= 2;
}

int hr__scan_begin(struct hr__scan_reader *r, const uint8_t *raw, const uint8_t *end, int bounded)
{
    r->raw = r->known_raw = raw;
    r->raw_end = end;
    r->bounded = bounded;
    r->known = r->piece;
    r->bits = (struct hr__bits){.next = r->piece};
    copy(r, r->piece);
    return settle(r);
}

/* Returns how many bytes are FF. Sums of bytes make compilers use vectors of them. */
static size_t count_ff(const uint8_t *bytes, size_t length)
{
    size_t all = 0;
    while (length) {
        uint8_t part = 0;
        size_t count = length < UINT8_MAX ? length : UINT8_MAX;
        for (size_t i = 0; i < count; i++)
            part = (uint8_t)(part + (bytes[i] == 0xFF));
        all += part;
        bytes += count;
        length -= count;
    }
    return all;
}

/* Moves the known byte on, to `to`. */
static void follow(struct hr__scan_reader *r, const uint8_t *to)
{
    size_t stuffed = count_ff(r->known, (size_t)(to - r->known));
    r->known_raw += (size_t)(to - r->known) + stuffed;
    r->known = to;
}

const uint8_t *hr__scan_tell(struct hr__scan_reader *r, unsigned *bit)
{
    size_t bits = (size_t)(r->bits.next - r->piece) * 8 - r->bits.count;
    follow(r, r->piece + bits / 8);
    *bit = bits % 8;
    return r->known_raw;
}

int hr__scan_advance(struct hr__scan_reader *r)
{
    unsigned bit;
    if (r->last)
        return (r->end - r->bits.next) * 8 + (ptrdiff_t)r->bits.count >= 0;
    /* The bits that have been loaded stay in the piece, for hr__scan_tell. */
    const uint8_t *from = r->piece + ((size_t)(r->bits.next - r->piece) * 8 - r->bits.count) / 8;
    hr__scan_tell(r, &bit);
    size_t kept = (size_t)(r->end - from);
    r->bits.next -= from - r->piece;
    memmove(r->piece, from, kept);
    r->known = r->piece;
    copy(r, r->piece + kept);
    return settle(r);
}

int hr__scan_is_at_end(const struct hr__scan_reader *r)
{
    ptrdiff_t left = (r->end - r->bits.next) * 8 + (ptrdiff_t)r->bits.count;
    return r->marker && left >= 0 && left < 8;
}
