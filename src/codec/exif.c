/*
 * Reads the one EXIF value that matters here: the orientation.
 *
 * The block is untrusted: every offset is checked against its length, and anything out of range
 * counts as "no orientation". Only the first directory is read, which is where the standard puts
 * the tag.
 */
#include "codec/format.h"

enum { TAG_ORIENTATION = 0x0112, TYPE_BYTE = 1, TYPE_SHORT = 3, TYPE_LONG = 4, ENTRY_BYTES = 12 };

static uint32_t read16(const uint8_t *p, int big)
{
    return big ? (uint32_t)p[0] << 8 | p[1] : (uint32_t)p[1] << 8 | p[0];
}

static uint32_t read32(const uint8_t *p, int big)
{
    return big ? read16(p, 1) << 16 | read16(p + 2, 1) : read16(p + 2, 0) << 16 | read16(p, 0);
}

static int entry_value(const uint8_t *entry, int big)
{
    uint32_t value;
    switch (read16(entry + 2, big)) {
    case TYPE_BYTE:
        value = entry[8];
        break;
    case TYPE_SHORT:
        value = read16(entry + 8, big);
        break;
    case TYPE_LONG:
        value = read32(entry + 8, big);
        break;
    default:
        return 1;
    }
    return read32(entry + 4, big) == 1 && value >= 1 && value <= 8 ? (int)value : 1;
}

int hr__exif_orientation(const uint8_t *tiff, size_t length)
{
    if (length < 8)
        return 1;
    int big = tiff[0] == 'M' && tiff[1] == 'M';
    if (!big && !(tiff[0] == 'I' && tiff[1] == 'I'))
        return 1;
    size_t directory = read32(tiff + 4, big);
    if (read16(tiff + 2, big) != 42 || directory > length - 2)
        return 1;
    size_t fit = (length - directory - 2) / ENTRY_BYTES;
    size_t entries = read16(tiff + directory, big);
    if (entries > fit)
        entries = fit;
    const uint8_t *entry = tiff + directory + 2;
    for (size_t i = 0; i < entries; i++, entry += ENTRY_BYTES)
        if (read16(entry, big) == TAG_ORIENTATION)
            return entry_value(entry, big);
    return 1;
}
