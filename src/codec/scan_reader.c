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

/* Returns 0 if the bytes end before a marker. */
static int settle(struct hr__scan_reader *r)
{
    uint8_t *end = r->piece + (r->end - r->piece);
    if (r->marker == FILL_BYTE) /* it may precede a marker or a stuffed zero; libjpeg decides */
        return 0;
    if (r->marker) {
        memset(end, 0, HR__SEGMENT_SLACK);
        r->check = r->end - r->piece > HR__SEGMENT_SLACK ? r->end - HR__SEGMENT_SLACK : r->piece;
        return 1;
    }
    r->check = r->end - HR__SEGMENT_SLACK;
    return r->raw_end - r->raw >= 2;
}

int hr__scan_begin(struct hr__scan_reader *r, const uint8_t *raw, const uint8_t *end)
{
    r->raw = raw;
    r->raw_end = end;
    r->bits = (struct hr__bits){.next = r->piece};
    copy(r, r->piece);
    return settle(r);
}

int hr__scan_advance(struct hr__scan_reader *r)
{
    if (r->marker) {
        return (r->end - r->bits.next) * 8 + (ptrdiff_t)r->bits.count >= 0;
    }
    size_t kept = (size_t)(r->end - r->bits.next);
    memmove(r->piece, r->bits.next, kept);
    r->bits.next = r->piece;
    copy(r, r->piece + kept);
    return settle(r);
}

int hr__scan_is_at_end(const struct hr__scan_reader *r)
{
    ptrdiff_t left = (r->end - r->bits.next) * 8 + (ptrdiff_t)r->bits.count;
    return r->marker && left >= 0 && left < 8;
}
