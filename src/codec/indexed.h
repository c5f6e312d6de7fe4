/*
 * The form `indexed`: a JPEG file, unchanged, behind an index of its scan, so that a region can be
 * decoded without what precedes it.
 *
 * Layout of an item:
 *
 *   struct hr__item_header     h and v are 1; HR__ITEM_PROGRESSIVE: the file was rewritten
 *   struct hr__indexed_header
 *   points: uint64 each (baseline.h), for each row of MCUs, top to bottom, left to right
 *   the file
 *   HR__ITEM_PAD zero bytes
 *
 * Only files that our own decoder takes, from the first to the last byte of the scan, become items.
 * A progressive file is rewritten as a baseline one with the same coefficients and metadata first
 * (hr__jpeg_to_baseline), because its scans cannot be read from the middle; the item holds, and
 * restoring it gives, the baseline file.
 * Decoding begins at a point and checks that it meets the next one with the same bit and the same
 * DC coefficients. Where that fails, or the index does not belong to the file, the file is decoded
 * as without an index: a wrong point costs time. The check cannot see two neighbours that are wrong
 * in a way that fits, nor a wrong DC coefficient with a restart marker before the next point; the
 * checksum of the container covers that.
 */
#ifndef HR_CODEC_INDEXED_H
#define HR_CODEC_INDEXED_H

#include "codec/baseline.h"
#include "codec/item.h"

struct hr__indexed_header {
    uint64_t file_bytes;
    uint32_t points;
    uint32_t pixels; /* between points of a row: HR__POINT_PIXELS */
};

/* The parts of an item, set by hr__indexed_open. */
struct hr__indexed {
    struct hr__item_header header;
    struct hr__scan_index index;
    struct hr__encoded file;
};

/* Returns the size of an item of a file. */
uint64_t hr__indexed_bytes(uint64_t points, uint64_t file_bytes);

/* Checks the headers, and that all parts are inside the item. Keeps pointers into `bytes`. Errors:
 * -EBADMSG: damaged, or an item of another form; -ENOTSUP. */
int hr__indexed_open(struct hr__indexed *out, const void *bytes, size_t length,
                     struct hr_error *error);

/* Returns where the points belong in an item. */
uint8_t *hr__indexed_points(uint8_t *item);

/* Returns the bytes in front of the file. */
uint64_t hr__indexed_head_bytes(uint64_t points);

/* Writes all but the points into `item`, which has the size of hr__indexed_bytes, and returns that.
 * `shape` has components, orientation, width, height and flags. */
size_t hr__indexed_fill(uint8_t *item, const struct hr__item_header *shape, uint64_t points,
                        const struct hr__encoded *file);

/* The same in parts: `head` has the size of hr__indexed_head_bytes. */
size_t hr__indexed_fill_parts(uint8_t *head, const struct hr__item_header *shape, uint64_t points,
                              const struct hr__encoded *file,
                              struct hr_item_part parts[HR_ITEM_PARTS]);

#endif
