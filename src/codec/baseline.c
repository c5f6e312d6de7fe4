/*
 * Decodes a region of a baseline JPEG; see baseline.h.
 *
 * MCUs are decoded in order, from the first one on, because each begins where the one before it
 * ends. In the rows of MCUs that the region needs, blocks of its columns are decoded to
 * coefficients, HR__BASELINE_BATCH at a time before the first is transformed: by then the
 * narrow stores of the coefficients have left the store queue.
 */
#include "codec/baseline_state.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/round.h"
#include "codec/indexed.h"

#include <errno.h>

/* Bytes of a skipped part of the scan: of fewer, a guess takes longer than it saves. */
#define LEAST_GUESSED 2048

/* Bytes of a row to load in advance. */
#define PREFETCH_MOST 8192

#define END_OF_IMAGE  0xD9
#define FIRST_RESTART 0xD0

static const struct hr__mcu_kernels *mcu_kernels(enum hr__isa isa)
{
#ifdef __x86_64__
    if (isa >= HR__ISA_AVX2)
        return &hr__mcu_kernels_bmi2;
#endif
    (void)isa;
    return &hr__mcu_kernels_plain;
}

int hr__baseline_create(struct hr__baseline **out, struct hr_error *error)
{
    struct hr__baseline *b = hr__alloc_aligned(HR__TAG_CODEC, sizeof *b, 0);
    *out = NULL;
    if (!b)
        return hr__fail(error, -ENOMEM, "out of memory for a JPEG decoder");
    memset(b, 0, sizeof *b);
    b->transform = hr__inverse_dct_group(hr__isa());
    b->kernels = mcu_kernels(hr__isa());
    b->skip.least_bytes = LEAST_GUESSED;
    int r = hr__strips_create(&b->strips, error);
    if (r)
        hr__free(b);
    else
        *out = b;
    return r;
}

void hr__baseline_destroy(struct hr__baseline **baseline)
{
    struct hr__baseline *b = *baseline;
    if (!b)
        return;
    hr__strips_destroy(&b->strips);
    hr__free(b);
    *baseline = NULL;
}

size_t hr__baseline_memory(const struct hr__baseline *b)
{
    return sizeof *b + hr__strips_memory(&b->strips);
}

void hr__baseline_set_strip(struct hr__baseline *b, size_t bytes)
{
    b->strips.bytes = bytes;
}

void hr__baseline_set_guess(struct hr__baseline *b, size_t bytes)
{
    b->skip.least_bytes = bytes;
}

/* The region */

/* Returns the number of rows of MCUs to read. It is at least what libjpeg reads: where upsampling
 * mixes rows, the last pixel rows of a row of MCUs come with the next one, and grey files may have
 * a sampling factor, which groups rows. */
static uint32_t rows_to_read(const struct hr__baseline *b, const struct hr_region *region)
{
    uint32_t last = (uint32_t)(region->y + region->height) - 1, lines = b->strips.mcu_rows;
    uint32_t rows = last / lines + 1;
    if (hr__ycc_mixes_rows(&b->strips.shape) && last % lines >= lines - b->mcu_v)
        rows++;
    rows = (uint32_t)hr__round_up(rows, b->rows_at_once);
    return rows < b->mcus_y ? rows : b->mcus_y;
}

/* Scans */

/* Goes to the next segment. Returns 0 if it does not begin here. */
static int pass_restart(struct hr__baseline *b)
{
    struct hr__scan_reader *r = &b->reader;
    if (!hr__scan_is_at_end(r) || r->marker != FIRST_RESTART + b->next_restart ||
        !hr__scan_begin(r, r->raw + 2, r->raw_end, r->bounded))
        return 0;
    b->next_restart = (b->next_restart + 1) % 8;
    b->until_restart = b->restart;
    memset(b->level, 0, sizeof b->level);
    return 1;
}

/* Decodes MCUs of a row, across restart markers. */
static int decode_span(struct hr__baseline *b, uint32_t from, uint32_t to, int needed)
{
    while (from < to) {
        uint32_t count = to - from;
        if (b->restart) {
            if (!b->until_restart && !pass_restart(b))
                return 0;
            count = count < b->until_restart ? count : b->until_restart;
            b->until_restart -= count;
        }
        if (!(needed ? b->kernels->needed : b->kernels->others)(b, from, from + count))
            return 0;
        from += count;
    }
    return 1;
}

/* Adds the differences of skipped MCUs to the DC coefficients. Returns 0 if one is out of range. */
static int add_differences(struct hr__baseline *b, const int16_t *difference, uint32_t mcus)
{
    unsigned outside = 0;
    for (int c = 0, blocks; c < b->components; c++, difference += blocks) {
        int level = b->level[c];
        blocks = (int)(b->strips.part[c].h * b->strips.part[c].v);
        for (uint32_t i = 0; i < mcus; i++)
            for (int k = 0; k < blocks; k++) {
                level += difference[i * (uint32_t)b->blocks + (uint32_t)k];
                outside |= (unsigned)(level + HR__DC_BIAS) >> HR__DC_BITS;
            }
        b->level[c] = level;
    }
    return !outside;
}

/* Takes skipped MCUs, the first of which is number `x` of its row, and notes their points. Returns
 * 0 if a DC coefficient is out of range. */
static int take_skipped(struct hr__baseline *b, const struct hr__skipped *skipped, uint32_t x)
{
    for (uint32_t i = 0, count; i < skipped->count; i += count) {
        if (x == b->point_x)
            hr__baseline_note_point(b, x, skipped->start[i]);
        uint32_t next = b->point_x < b->mcus_x ? b->point_x : b->mcus_x;
        count = skipped->count - i < next - x ? skipped->count - i : next - x;
        if (!add_differences(b, skipped->difference + i * (uint32_t)b->blocks, count))
            return 0;
        x = (x + count) % b->mcus_x;
        if (!x)
            b->point_x = b->point ? 0 : UINT32_MAX;
    }
    return 1;
}

/* Decodes whole rows of MCUs of which nothing is needed. Returns 0 if they are not valid. */
static int skip_rows(struct hr__baseline *b, uint32_t rows)
{
    uint64_t scan_bytes = (uint64_t)(b->reader.raw_end - b->scan), count = 0;
    const uint64_t all = (uint64_t)b->mcus_x * b->mcus_y, total = (uint64_t)b->mcus_x * rows;
    hr__mcu_skip_begin(&b->skip);
    while (count < total) {
        uint64_t left = total - count;
        struct hr__skipped skipped;
        if (!b->kernels->skip(&b->skip, &b->reader, left < UINT32_MAX ? (uint32_t)left : UINT32_MAX,
                              scan_bytes * left / all, &skipped) ||
            !take_skipped(b, &skipped, (uint32_t)(count % b->mcus_x)))
            return 0;
        count += skipped.count;
    }
    return 1;
}

/* The MCUs of a row with blocks that are needed. */
struct needed_mcus {
    uint32_t first, end; /* equal if there are none */
};

static uint32_t clamp(uint32_t v, uint32_t low, uint32_t high)
{
    return v < low ? low : v > high ? high : v;
}

/* Decodes the MCUs [from, to) of a row. */
static int decode_part(struct hr__baseline *b, uint32_t from, uint32_t to,
                       const struct needed_mcus *needed)
{
    uint32_t first = clamp(needed->first, from, to), end = clamp(needed->end, first, to);
    return decode_span(b, from, first, 0) && decode_span(b, first, end, 1) &&
           decode_span(b, end, to, 0);
}

/* Finds the MCUs with blocks that are needed in row `y` of MCUs. */
static struct needed_mcus plan_row(struct hr__baseline *b, uint32_t y)
{
    struct needed_mcus all = {b->mcus_x, 0};
    for (int i = 0; i < b->blocks; i++) {
        struct hr__mcu_block *m = &b->block[i];
        const struct hr__strip_part *p = &b->strips.part[m->component];
        uint32_t row = y * p->v + (uint32_t)m->y - p->y, x = (uint32_t)m->x;
        m->first = m->end = 0;
        if (row >= p->rows)
            continue;
        m->first = p->x > x ? (p->x - x + p->h - 1) / p->h : 0;
        m->end = p->x + p->columns > x ? (p->x + p->columns - x + p->h - 1) / p->h : 0;
        m->step = p->side * p->h;
        if (m->first >= m->end)
            continue;
        m->out = p->plane + (ptrdiff_t)((row + p->y - p->top) * p->side) * p->stride +
                 (m->first * p->h + x - p->x) * p->side;
        all.first = m->first < all.first ? m->first : all.first;
        all.end = m->end > all.end ? m->end : all.end;
    }
    return all.first < all.end ? all : (struct needed_mcus){b->mcus_x, b->mcus_x};
}

/* Converts the strip that row `y` of MCUs ends, if it does. Returns 0 on failure. */
static int end_row(struct hr__baseline *b, uint32_t y)
{
    if (!b->strips.job || y + 1 != b->strips.end)
        return 1;
    if (!hr__baseline_transform(b))
        return 0;
    b->failure = hr__strips_convert(&b->strips, y + 1, b->error);
    return !b->failure;
}

/* Returns the first row of MCUs of [from, to) that is needed; `to` if none is. */
static uint32_t first_needed(struct hr__baseline *b, uint32_t from, uint32_t to)
{
    for (; from < to; from++) {
        struct needed_mcus needed = plan_row(b, from);
        if (needed.first < needed.end)
            break;
    }
    return from;
}

/* Decodes the rows of MCUs [from, to), and notes their points. Returns 0 if they are not valid. */
static int decode_rows(struct hr__baseline *b, uint32_t from, uint32_t to)
{
    for (uint32_t y = from; y < to; y++) {
        b->point_x = b->point ? 0 : UINT32_MAX;
        uint32_t first = b->restart ? y : first_needed(b, y, to);
        if (first > y && !skip_rows(b, first - y))
            return 0;
        for (; y < first; y++)
            if (!end_row(b, y))
                return 0;
        if (y == to)
            break;
        struct needed_mcus needed = plan_row(b, y);
        if (!decode_part(b, 0, b->mcus_x, &needed) || !end_row(b, y))
            return 0;
    }
    return hr__baseline_transform(b) && (!b->reader.last || hr__scan_advance(&b->reader));
}

/* Returns non-zero if the scan, all of which has been decoded, ends as it should. */
static int ends_well(const struct hr__baseline *b)
{
    return hr__scan_is_at_end(&b->reader) && b->reader.marker == END_OF_IMAGE;
}

/* Begins a region, or, with `job` NULL, none. */
static int begin_region(struct hr__baseline *b, const struct hr__decode_job *job,
                        struct hr_error *error)
{
    b->failure = 0;
    b->error = error;
    b->waiting = 0;
    b->point = NULL;
    b->point_x = UINT32_MAX;
    return hr__strips_begin(&b->strips, job, error);
}

/* Ends a region whose decoding was `valid` or not. */
static int end_region(struct hr__baseline *b, int valid, int *done)
{
    if (!valid) {
        memset(b->coefficient, 0, sizeof b->coefficient);
        return b->failure;
    }
    int r = hr__strips_end(&b->strips, b->error);
    *done = !r;
    return r;
}

/* Begins the scan. */
static int begin_scan(struct hr__baseline *b, const struct jpeg_decompress_struct *cinfo,
                      uint8_t *points)
{
    b->until_restart = b->restart;
    b->next_restart = 0;
    b->scan = cinfo->src->next_input_byte;
    b->point = points;
    memset(b->level, 0, sizeof b->level);
    return hr__scan_begin(&b->reader, b->scan, b->scan + cinfo->src->bytes_in_buffer, 0);
}

/* Returns where the points of the job's item go; NULL if none is wanted, or there is no memory. */
static uint8_t *begin_item(const struct hr__baseline *b, const struct hr__decode_job *job)
{
    if (!job->item)
        return NULL;
    uint64_t bytes = job->item->in_parts ? hr__indexed_head_bytes(b->grid.points)
                                         : hr__indexed_bytes(b->grid.points, job->in.length);
    if (hr__scratch_reserve(&job->item->memory, bytes, NULL))
        return NULL;
    return hr__indexed_points(job->item->memory.bytes);
}

/* Decodes the rows from `from` on for their points, and makes the item if all of the scan is valid
 * and has points. */
static void finish_item(struct hr__baseline *b, const struct hr__decode_job *job, uint32_t from)
{
    struct hr__item_header shape = {
        .components = (uint8_t)b->components,
        .orientation = (uint8_t)job->info.orientation,
        .width = b->shape.width,
        .height = b->shape.height,
    };
    if (!b->point || !decode_rows(b, from, b->mcus_y) || !ends_well(b) || !b->point)
        return;
    hr__baseline_note_point(b, 0, hr__scan_position(&b->reader));
    struct hr__index_item *item = job->item;
    if (b->point)
        item->bytes = item->in_parts
                          ? hr__indexed_fill_parts(item->memory.bytes, &shape, b->grid.points,
                                                   &job->in, item->parts)
                          : hr__indexed_fill(item->memory.bytes, &shape, b->grid.points, &job->in);
}

int hr__baseline_region(struct hr__baseline *b, const struct jpeg_decompress_struct *cinfo,
                        const struct hr__decode_job *job, int *done, struct hr_error *error)
{
    *done = 0;
    if (!hr__baseline_take_header(b, cinfo) || !hr__baseline_plan_size(b, job->halvings))
        return 0;
    int r = begin_region(b, job, error);
    if (r)
        return r;
    uint32_t rows = rows_to_read(b, &job->region);
    int to_end = job->region.y + job->region.height == (int)b->strips.shape.height;
    r = end_region(b,
                   begin_scan(b, cinfo, begin_item(b, job)) && decode_rows(b, 0, rows) &&
                       (!to_end || ends_well(b)),
                   done);
    if (*done)
        finish_item(b, job, rows);
    return r;
}

int hr__baseline_points(struct hr__baseline *b, const struct jpeg_decompress_struct *cinfo,
                        uint8_t *points)
{
    if (!hr__baseline_take_header(b, cinfo) || !hr__baseline_plan_size(b, 0) ||
        begin_region(b, NULL, NULL) || !begin_scan(b, cinfo, points) ||
        !decode_rows(b, 0, b->mcus_y) || !ends_well(b) || !b->point)
        return 0;
    hr__baseline_note_point(b, 0, hr__scan_position(&b->reader));
    return b->point != NULL;
}

/* Decoding by an index */

/* The scan of an indexed file. */
struct indexed_scan {
    const uint8_t *scan, *end; /* all bytes from the scan's first one on */
    const uint8_t *points;
    struct hr__scan_grid grid;
};

struct scan_point {
    const uint8_t *at; /* in the scan */
    unsigned bit;
    int level[HR__BASELINE_COMPONENTS];
};

/* Reads point `k`, which exists. Returns 0 if it lies outside the scan. */
static int read_point(const struct indexed_scan *s, uint64_t k, struct scan_point *out)
{
    uint64_t point;
    memcpy(&point, s->points + k * HR__POINT_BYTES, sizeof point);
    uint64_t byte = point >> 3 & ((UINT64_C(1) << HR__POINT_BYTE_BITS) - 1);
    if (byte >= (uint64_t)(s->end - s->scan))
        return 0;
    out->at = s->scan + byte;
    out->bit = point & 7;
    for (int c = 0; c < HR__BASELINE_COMPONENTS; c++)
        out->level[c] = (int)(point >> (HR__POINT_BYTE_BITS + 3 + c * HR__POINT_LEVEL_BITS) &
                              ((1u << HR__POINT_LEVEL_BITS) - 1)) -
                        HR__POINT_LEVEL_BIAS;
    return 1;
}

/* Begins at point `k`, to read up to point `to` at most. Returns 0 if they make no sense. */
static int begin_at(struct hr__baseline *b, const struct indexed_scan *s, uint64_t k, uint64_t to)
{
    struct scan_point from, end;
    if (!read_point(s, k, &from))
        return 0;
    const uint8_t *last = s->end;
    if (to < s->grid.points - 1) {
        if (!read_point(s, to, &end) || end.at < from.at)
            return 0;
        last = end.at;
        if (end.bit) /* the byte that both share, and a stuffed zero behind it */
            last += s->end - last > 1 && *last == 0xFF ? 2 : 1;
    }
    if (!hr__scan_begin(&b->reader, from.at, last, to < s->grid.points - 1))
        return 0;
    hr__bits_refill(&b->reader.bits);
    hr__bits_drop(&b->reader.bits, from.bit);
    memcpy(b->level, from.level, sizeof b->level);
    if (b->restart) {
        uint64_t mcu = k / s->grid.per_row * b->mcus_x + k % s->grid.per_row * s->grid.spacing;
        b->until_restart = b->restart - (uint32_t)(mcu % b->restart);
        b->next_restart = (int)(mcu / b->restart % 8);
    }
    return 1;
}

/* Returns non-zero if the scan has been decoded up to point `k`, or its end. */
static int is_at_point(struct hr__baseline *b, const struct indexed_scan *s, uint64_t k)
{
    struct scan_point point;
    uint32_t position;
    int is_end = k == s->grid.points - 1;
    if (is_end && !ends_well(b))
        return 0;
    if ((!is_end && b->restart && !b->until_restart && !pass_restart(b)) ||
        !read_point(s, k, &point))
        return 0;
    position = hr__scan_position(&b->reader);
    return hr__scan_tell(&b->reader, position) == point.at && position % 8 == point.bit &&
           !memcmp(b->level, point.level, sizeof b->level);
}

/* Loads the bytes from point `k` to point `to` into the caches: each row begins elsewhere, and by
 * itself the processor would notice only then. */
static void prefetch(const struct indexed_scan *s, uint64_t k, uint64_t to)
{
    struct scan_point from, end;
    if (to < s->grid.points && read_point(s, k, &from) && read_point(s, to, &end))
        for (const uint8_t *p = from.at; p < end.at && p - from.at < PREFETCH_MOST; p += 64)
            __builtin_prefetch(p);
}

/* Decodes what is needed of row `y`, from the point before it at least to the next point, where
 * the two must agree. */
static int decode_indexed_row(struct hr__baseline *b, const struct indexed_scan *s, uint32_t y)
{
    struct needed_mcus needed = plan_row(b, y);
    uint32_t spacing = s->grid.spacing, left = needed.first / spacing;
    if (needed.first >= needed.end)
        return 1;
    uint64_t row = (uint64_t)y * s->grid.per_row, from = row + left;
    uint32_t from_x = left * spacing;
    uint32_t next_x = b->mcus_x - from_x < spacing ? b->mcus_x : from_x + spacing;
    uint32_t end_x = needed.end > next_x ? needed.end : next_x;
    uint64_t to = row + (end_x + spacing - 1) / spacing;
    prefetch(s, from + s->grid.per_row, to + s->grid.per_row);
    return begin_at(b, s, from, to) && decode_part(b, from_x, next_x, &needed) &&
           is_at_point(b, s, from + 1) && decode_part(b, next_x, end_x, &needed) &&
           (!b->reader.last || hr__scan_advance(&b->reader));
}

/* Claims the pixels of row `y` of MCUs, and gives up those that others have. */
static void claim_row(struct hr__baseline *b, const struct hr__row_claims *claims, uint32_t y)
{
    const struct hr_region *region = &b->strips.region;
    int end = region->y + region->height, until = (int)((y + 1) * b->strips.mcu_rows);
    if (until <= region->y)
        return;
    int left = claims->claim(claims->arg, until < end ? until : end);
    if (left < end)
        hr__strips_shorten(&b->strips, left);
}

int hr__baseline_indexed(struct hr__baseline *b, const struct jpeg_decompress_struct *cinfo,
                         const struct hr__decode_job *job, const struct hr__scan_index *index,
                         int *done, struct hr_error *error)
{
    const uint8_t *scan = cinfo->src->next_input_byte;
    struct indexed_scan s = {scan, scan + cinfo->src->bytes_in_buffer, index->points, {0}};
    *done = 0;
    if (!hr__baseline_take_header(b, cinfo) || !hr__baseline_plan_size(b, job->halvings))
        return 0;
    s.grid = b->grid;
    if (index->count != s.grid.points)
        return 0;
    int r = begin_region(b, job, error), valid = 1;
    if (r)
        return r;
    for (uint32_t y = 0; valid && y < b->mcus_y; y++) {
        if (job->claims)
            claim_row(b, job->claims, y);
        valid = decode_indexed_row(b, &s, y) && end_row(b, y);
    }
    return end_region(b, valid && hr__baseline_transform(b), done);
}
