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
        r->stuffed[r->stuffed_count++] = (uint16_t)(out - r->piece);
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
    r->raw = r->piece_raw = raw;
    r->raw_end = end;
    r->bounded = bounded;
    r->stuffed_count = r->stuffed_passed = 0;
    r->bits = (struct hr__bits){.next = r->piece};
    copy(r, r->piece);
    return settle(r);
}

/* Returns where the piece's byte at `position`, no earlier than the last one, was copied from. */
static const uint8_t *find_raw(struct hr__scan_reader *r, size_t position)
{
    while (r->stuffed_passed < r->stuffed_count && r->stuffed[r->stuffed_passed] < position)
        r->stuffed_passed++;
    return r->piece_raw + position + r->stuffed_passed;
}

/* Negative if bits behind the last copied byte have been read. */
static ptrdiff_t bits_left(const struct hr__scan_reader *r)
{
    return (r->end - r->bits.next) * 8 + (ptrdiff_t)hr__bits_count(&r->bits);
}

uint32_t hr__scan_position(const struct hr__scan_reader *r)
{
    return (uint32_t)(r->bits.next - r->piece) * 8 - hr__bits_count(&r->bits);
}

const uint8_t *hr__scan_tell(struct hr__scan_reader *r, uint32_t position)
{
    return find_raw(r, position / 8);
}

int hr__scan_advance(struct hr__scan_reader *r)
{
    if (r->last)
        return bits_left(r) >= 0;
    /* The bits that have been loaded stay in the piece, for hr__scan_tell. */
    size_t from = hr__scan_position(r) / 8, kept = (size_t)(r->end - r->piece) - from;
    unsigned stuffed = 0;
    r->piece_raw = find_raw(r, from);
    while (r->stuffed_passed < r->stuffed_count)
        r->stuffed[stuffed++] = (uint16_t)(r->stuffed[r->stuffed_passed++] - from);
    r->stuffed_count = stuffed;
    r->stuffed_passed = 0;
    r->bits.next -= from;
    memmove(r->piece, r->piece + from, kept);
    copy(r, r->piece + kept);
    return settle(r);
}

int hr__scan_is_at_end(const struct hr__scan_reader *r)
{
    ptrdiff_t left = bits_left(r);
    return r->marker && left >= 0 && left < 8;
}
