/*
 * Our own decoder of baseline JPEG: which files it decodes, and streams of symbols that no encoder
 * writes: the longest codes with the most extra bits, full blocks, blocks that end at every
 * position, and blocks with long runs of zeros. libjpeg-turbo is the reference.
 */
#include "../test.h"
#include "images.h"

#include "base/cpu.h"
#include "codec/baseline.h"
#include "codec/coefficients.h"
#include "codec/huffman.h"
#include "codec/inverse_dct.h"
#include "codec/jpeg_library.h"

#include <stdlib.h>
#include <string.h>

enum { WHOLE_CODE = 162 }; /* AC symbols of 8-bit JPEG */

struct baseline_fixture {
    struct hr__decoder *own, *library;
    struct hr__baseline *usual,
        *strips; /* for all files: making one takes longer than most of them */
    uint64_t random;
};

static int set_up(void **state)
{
    struct baseline_fixture *f = calloc(1, sizeof *f);
    *state = f;
    if (hr__decoder_create(&f->own, NULL) || hr__decoder_create(&f->library, NULL))
        return -1;
    hr__decoder_use_library(f->library);
    if (hr__baseline_create(&f->usual, NULL) || hr__baseline_create(&f->strips, NULL))
        return -1;
    hr__baseline_set_guess(f->strips, 0);
    return 0;
}

static int tear_down(void **state)
{
    struct baseline_fixture *f = *state;
    hr__decoder_destroy(&f->own);
    hr__decoder_destroy(&f->library);
    hr__baseline_destroy(&f->usual);
    hr__baseline_destroy(&f->strips);
    free(f);
    return 0;
}

/* How a region is decoded. */
struct way_to_decode {
    int halvings;
    size_t strip; /* bytes of a strip, roughly; 0: the usual size */
};

/* Decodes a region of the file's halved image with our own decoder. The caller frees
 * out->plane[0]. Returns non-zero if the decoder takes the file. */
static int take_region(struct baseline_fixture *f, const struct bytes *file,
                       const struct hr_region *region, struct way_to_decode way,
                       struct hr__planar *out)
{
    struct hr__jpeg *library = calloc(1, sizeof *library);
    struct hr__baseline *baseline = way.strip ? f->strips : f->usual;
    struct hr__decode_job job = {.in = {.bytes = file->data, .length = file->length},
                                 .halvings = way.halvings,
                                 .region = *region};
    size_t stride = ((size_t)region->width + 63) & ~(size_t)63;
    uint8_t *planes = malloc(3 * stride * (size_t)region->height + 64);
    int done = 0;
    if (way.strip)
        hr__baseline_set_strip(baseline, way.strip);
    *out = (struct hr__planar){
        .stride = (ptrdiff_t)stride, .width = region->width, .height = region->height};
    for (int c = 0; c < 3; c++)
        out->plane[c] = planes + (size_t)c * stride * (size_t)region->height;
    hr__jpeg_init(library);
    if (setjmp(library->escape))
        abort();
    hr__jpeg_read_header(library, &job.in);
    job.out = *out;
    job.info.width = (int)library->cinfo.image_width;
    job.info.height = (int)library->cinfo.image_height;
    assert_int_equal(hr__baseline_region(baseline, &library->cinfo, &job, &done, NULL), 0);
    jpeg_destroy_decompress(&library->cinfo);
    free(library);
    return done;
}

/* Returns non-zero if our own decoder takes a region of the file's halved image. */
static int is_taken_halved(struct baseline_fixture *f, const struct bytes *file,
                           const struct hr_region *region, int halvings)
{
    struct hr__planar out;
    int done = take_region(f, file, region, (struct way_to_decode){halvings, 0}, &out);
    free(out.plane[0]);
    return done;
}

static int is_taken(struct baseline_fixture *f, const struct bytes *file,
                    const struct hr_region *region)
{
    return is_taken_halved(f, file, region, 0);
}

static void is_same(const struct hr__planar *a, const struct hr__planar *b,
                    const struct hr_region *r, int halvings)
{
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < r->height; y++)
            if (memcmp(a->plane[c] + y * a->stride, b->plane[c] + y * b->stride, (size_t)r->width))
                fail_msg("channel %d, row %d of region %d,%d %dx%d, halved %d times, differs", c, y,
                         r->x, r->y, r->width, r->height, halvings);
}

/* Checks that a region of the halved image has libjpeg-turbo's pixels, also with the lowest strips
 * and with strips of other heights. */
static void check_halved(struct baseline_fixture *f, const struct bytes *file,
                         const struct hr_region *r, int halvings)
{
    struct hr__decoder *decoder[2] = {f->own, f->library};
    struct hr__planar out[2], strips;
    struct hr_image_info info;
    struct hr_error error;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hr__decoder_info(decoder[i], file->data, file->length, &info, &error), 0);
        hr__decoder_halve(decoder[i], halvings);
        if (hr__decoder_region(decoder[i], file->data, file->length, &info, r, &out[i], &error))
            fail_msg("%s", error.message);
    }
    is_same(&out[0], &out[1], r, halvings);
    for (size_t bytes = 1; bytes < 10000; bytes += 6000) {
        if (take_region(f, file, r, (struct way_to_decode){halvings, bytes}, &strips))
            is_same(&strips, &out[1], r, halvings);
        free(strips.plane[0]);
    }
}

/* Returns the region that covers `r` in the image halved `n` times. */
static struct hr_region halved(const struct hr_region *r, int n)
{
    struct hr_region h = {r->x >> n, r->y >> n, 0, 0};
    h.width = ((r->x + r->width - 1) >> n) + 1 - h.x;
    h.height = ((r->y + r->height - 1) >> n) + 1 - h.y;
    return h;
}

static void check_region(struct baseline_fixture *f, const struct bytes *file,
                         const struct hr_region *r)
{
    for (int n = 0; n <= 3; n++) {
        struct hr_region h = halved(r, n);
        check_halved(f, file, &h, n);
    }
}

/* A JPEG file that is written symbol by symbol. */
struct symbol_stream {
    struct bytes file;
    uint64_t bits;
    unsigned count;
};

/* A Huffman code: code and length of each symbol. */
struct made_code {
    uint8_t counts[17], symbols[256];
    int total;
    uint16_t code[256];
    uint8_t length[256];
};

static void put_byte(struct symbol_stream *s, int byte)
{
    if (s->file.length % 4096 == 0)
        s->file.data = realloc(s->file.data, s->file.length + 4096);
    s->file.data[s->file.length++] = (uint8_t)byte;
}

static void put_bytes(struct symbol_stream *s, const void *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        put_byte(s, ((const uint8_t *)bytes)[i]);
}

static void put_bits(struct symbol_stream *s, unsigned value, unsigned count)
{
    s->bits = s->bits << count | (value & ((1u << count) - 1));
    for (s->count += count; s->count >= 8; s->count -= 8) {
        int byte = (int)(s->bits >> (s->count - 8) & 0xFF);
        put_byte(s, byte);
        if (byte == 0xFF)
            put_byte(s, 0);
    }
}

/* Fills the last byte with ones. */
static void put_end(struct symbol_stream *s)
{
    if (s->count)
        put_bits(s, 0xFF, 8 - s->count);
}

/* Gives each symbol a length of `shortest` to 16 bits, in random order. */
static struct made_code make_code(uint64_t *random, const uint8_t *symbols, int total, int shortest)
{
    struct made_code c = {.total = total};
    unsigned next = 0;
    int at = 0;
    memcpy(c.symbols, symbols, (size_t)total);
    for (int i = total - 1; i > 0; i--) {
        int k = random_between(random, 0, i);
        uint8_t t = c.symbols[i];
        c.symbols[i] = c.symbols[k];
        c.symbols[k] = t;
    }
    /* Often give the symbols with the longest steps short codes, so that table look-ups run far
     * past the end of a block. */
    for (int place = 0; place < 2 && total == WHOLE_CODE && shortest < 4; place++)
        for (int i = 0; i < total; i++)
            if (c.symbols[i] == (place ? 0x01 : 0xF0)) {
                c.symbols[i] = c.symbols[place];
                c.symbols[place] = place ? 0x01 : 0xF0;
            }
    for (int n = 1; n <= 16; n++, next <<= 1) {
        /* Keep enough codes of 16 bits for the symbols that are left. */
        while (n >= shortest && at < total &&
               (n == 16 || ((next + 1) << (16 - n)) + 256 <= 1u << 16) &&
               (n == 16 || random_between(random, 0, 2))) {
            c.code[c.symbols[at]] = (uint16_t)next++;
            c.length[c.symbols[at++]] = (uint8_t)n;
            c.counts[n]++;
        }
    }
    assert_int_equal(at, total);
    return c;
}

static void put_code(struct symbol_stream *s, int class, int place, const struct made_code *c)
{
    put_bytes(
        s,
        (const uint8_t[]){0xFF, 0xC4, 0, (uint8_t)(19 + c->total), (uint8_t)(class << 4 | place)},
        5);
    put_bytes(s, c->counts + 1, 16);
    put_bytes(s, c->symbols, (size_t)c->total);
}

static void put_symbol(struct symbol_stream *s, const struct made_code *c, int symbol, int value)
{
    int size = symbol & 15;
    put_bits(s, c->code[symbol], c->length[symbol]);
    put_bits(s, (unsigned)(value < 0 ? value + (1 << size) - 1 : value), (unsigned)size);
}

static int size_of(int value)
{
    int n = 0;
    for (int v = abs(value); v; v >>= 1)
        n++;
    return n;
}

/* Returns a value of exactly `size` bits. */
static int value_of(uint64_t *random, int size)
{
    int v = random_between(random, 1 << (size - 1), (1 << size) - 1);
    return next_random(random) % 2 ? v : -v;
}

/* Writes the AC coefficients of a block, of one of six kinds. */
static void put_block(struct symbol_stream *s, const struct made_code *ac, uint64_t *random)
{
    int kind = random_between(random, 0, 5), k = 0, last = random_between(random, 0, 63);
    while (k < 63) {
        int run = kind == 0 || kind == 3 ? 0
                  : kind == 1            ? random_between(random, 0, 15)
                                         : random_between(random, 0, 2);
        int size = kind <= 2 ? 10 : kind == 3 ? 1 : random_between(random, 1, 10);
        if ((kind == 4 && k >= last) || kind == 5) {
            put_symbol(s, ac, 0, 0);
            return;
        }
        if (kind == 1 && k + 16 <= 63 && random_between(random, 0, 1)) {
            put_symbol(s, ac, 0xF0, 0);
            k += 16;
            continue;
        }
        if (k + run + 1 > 63)
            run = 62 - k;
        put_symbol(s, ac, run << 4 | size, value_of(random, size));
        k += run + 1;
    }
}

/* The header of a file that a test writes. */
struct made_frame {
    int width, height;
    int components;
    int h[3], v[3]; /* sampling factors */
    int mcus_x, mcus_y;
    int extended; /* SOF1, which allows four tables: uses the last ones */
    int rgb;      /* components R, G and B */
};

/* Makes a header with random sampling factors that libjpeg accepts. */
static struct made_frame make_frame(uint64_t *random, int width, int height, int grey)
{
    struct made_frame f = {.width = width, .height = height, .components = grey ? 1 : 3};
    int blocks, whole, h = 1, v = 1;
    do {
        blocks = 0;
        whole = h = v = 1;
        for (int c = 0; c < f.components; c++) {
            f.h[c] =
                grey ? 1 : random_between(random, 1, c && random_between(random, 0, 3) ? 1 : 4);
            f.v[c] =
                grey ? 1 : random_between(random, 1, c && random_between(random, 0, 3) ? 1 : 4);
            blocks += f.h[c] * f.v[c];
            h = f.h[c] > h ? f.h[c] : h;
            v = f.v[c] > v ? f.v[c] : v;
        }
        for (int c = 0; c < f.components; c++)
            whole &= h % f.h[c] == 0 && v % f.v[c] == 0;
    } while (blocks > 10 || !whole);
    f.mcus_x = (width + 8 * h - 1) / (8 * h);
    f.mcus_y = (height + 8 * v - 1) / (8 * v);
    f.extended = random_between(random, 0, 2) == 0;
    f.rgb = !grey && random_between(random, 0, 3) == 0;
    return f;
}

static int name_of(const struct made_frame *f, int c)
{
    return f->rgb ? "RGB"[c] : c + 1;
}

static void put_header(struct symbol_stream *s, const struct made_frame *f, uint64_t *random)
{
    uint8_t quant[64] = {1};
    for (int i = 0; i < 4; i++) /* small, so that no block exceeds HR__COLUMN_LIMIT */
        quant[random_between(random, 1, 63)] = 1;
    put_bytes(s, "\xFF\xD8\xFF\xDB\0\x43\0", 7);
    put_bytes(s, quant, 64);
    int n = f->components;
    put_bytes(s,
              (const uint8_t[]){0xFF, f->extended ? 0xC1 : 0xC0, 0, (uint8_t)(8 + 3 * n), 8,
                                (uint8_t)(f->height >> 8), (uint8_t)f->height,
                                (uint8_t)(f->width >> 8), (uint8_t)f->width, (uint8_t)n},
              10);
    for (int c = 0; c < n; c++)
        put_bytes(
            s, (const uint8_t[]){(uint8_t)name_of(f, c), (uint8_t)(f->h[c] << 4 | f->v[c]), 0}, 3);
}

static void put_scan_header(struct symbol_stream *s, const struct made_frame *f)
{
    int n = f->components, place = f->extended ? 3 : 0;
    put_bytes(s, (const uint8_t[]){0xFF, 0xDA, 0, (uint8_t)(6 + 2 * n), (uint8_t)n}, 5);
    for (int c = 0; c < n; c++)
        put_bytes(s, (const uint8_t[]){(uint8_t)name_of(f, c), (uint8_t)(place << 4 | place)}, 2);
    put_bytes(s, "\0\x3F\0", 3);
}

/* Writes a block with the largest DC difference. */
static void put_whole_block(struct symbol_stream *s, const struct made_code *dc,
                            const struct made_code *ac, int *level, uint64_t *random)
{
    /* From one end of the range to the other, for the most extra bits. */
    int to = *level > 0 ? -random_between(random, 1000, 1023) : random_between(random, 0, 1023);
    put_symbol(s, dc, size_of(to - *level), to - *level);
    *level = to;
    put_block(s, ac, random);
}

static struct bytes make_extreme(uint64_t *random, int width, int height, int grey)
{
    const struct made_frame f = make_frame(random, width, height, grey);
    struct symbol_stream s = {{0}, 0, 0};
    uint8_t sizes[12], symbols[WHOLE_CODE] = {0x00, 0xF0};
    for (int i = 0; i < 12; i++)
        sizes[i] = (uint8_t)i;
    for (int run = 0, at = 2; run < 16; run++)
        for (int size = 1; size <= 10; size++)
            symbols[at++] = (uint8_t)(run << 4 | size);
    int shortest = random_between(random, 0, 1) ? 16 : random_between(random, 1, 6);
    struct made_code dc = make_code(random, sizes, 12, shortest);
    struct made_code ac = make_code(random, symbols, WHOLE_CODE, shortest);
    put_header(&s, &f, random);
    put_code(&s, 0, f.extended ? 3 : 0, &dc);
    put_code(&s, 1, f.extended ? 3 : 0, &ac);
    int restart = random_between(random, 0, 2) ? 0 : random_between(random, 1, 9), mcu = 0;
    put_bytes(&s, (const uint8_t[]){0xFF, 0xDD, 0, 4, 0, (uint8_t)restart}, 6);
    put_scan_header(&s, &f);
    int level[3] = {0};
    for (; mcu < f.mcus_x * f.mcus_y; mcu++) {
        if (restart && mcu && mcu % restart == 0) {
            put_end(&s);
            put_bytes(&s, (const uint8_t[]){0xFF, (uint8_t)(0xD0 + (mcu / restart - 1) % 8)}, 2);
            memset(level, 0, sizeof level);
        }
        for (int c = 0; c < f.components; c++)
            for (int b = 0; b < f.h[c] * f.v[c]; b++)
                put_whole_block(&s, &dc, &ac, &level[c], random);
    }
    put_end(&s);
    put_bytes(&s, "\xFF\xD9", 2);
    return s.file;
}

static void extreme_symbols_are_exact(void **state)
{
    struct baseline_fixture *f = *state;
    for (int n = 0; n < test_rounds(300); n++) {
        int width = random_between(&f->random, 1, 90), height = random_between(&f->random, 1, 90);
        struct hr_region whole = {0, 0, width, height};
        struct bytes file = make_extreme(&f->random, width, height, n % 4 == 0);
        assert_true(is_taken(f, &file, &whole));
        check_region(f, &file, &whole);
        for (int i = 0; i < 12; i++) {
            struct hr_region r = random_region(&f->random, width, height);
            assert_true(is_taken(f, &file, &r));
            check_region(f, &file, &r);
        }
        free(file.data);
    }
}

/* Which kinds of file our decoder takes: optimised tables, all qualities, pictures and noise. */
static void usual_files_are_taken(void **state)
{
    static const struct {
        struct jpeg_spec spec;
        int halvings; /* taken with at most this many; -1: never */
    } kinds[] = {
        {{.components = 3}, 3},
        {{.components = 3, .h = {2, 1, 1}, .v = {2, 1, 1}}, 3},
        {{.components = 3, .h = {2, 1, 1}, .v = {1, 1, 1}}, 2},
        {{.components = 3, .h = {1, 1, 1}, .v = {2, 1, 1}}, 2},
        {{.components = 1}, 3},
        {{.components = 3, .restart = 5}, 3},
        {{.components = 3, .h = {4, 1, 1}, .v = {1, 1, 1}}, 3},
        {{.components = 3, .h = {4, 1, 1}, .v = {2, 1, 1}}, 2},
        {{.components = 3, .h = {1, 1, 1}, .v = {4, 1, 1}}, 3},
        {{.components = 3, .h = {2, 1, 1}, .v = {4, 1, 1}}, 2},
        {{.components = 3, .h = {3, 1, 1}, .v = {1, 1, 1}}, 3},
        {{.components = 3, .h = {1, 1, 1}, .v = {3, 1, 1}}, 3},
        {{.components = 3, .h = {3, 1, 1}, .v = {2, 1, 1}}, 3},
        {{.components = 3, .h = {2, 1, 1}, .v = {2, 2, 2}}, 2},
        {{.components = 3, .h = {2, 2, 2}, .v = {2, 1, 1}}, 2},
        {{.components = 3, .h = {2, 2, 2}, .v = {1, 1, 1}}, 3},
        {{.components = 3, .h = {2, 2, 1}, .v = {2, 1, 2}}, 2},
        {{.components = 3, .h = {1, 2, 2}, .v = {1, 2, 2}}, 3},
        {{.components = 3, .rgb = 1}, 3},
        {{.components = 3, .rgb = 1, .h = {2, 1, 2}, .v = {2, 1, 1}}, 2},
        {{.components = 1, .h = {3}, .v = {4}}, 3},
        {{.components = 4}, -1},
        {{.components = 3, .scans = SCANS_PROGRESSIVE}, -1},
        {{.components = 3, .scans = SCANS_SEPARATE}, -1},
        {{.components = 3, .scans = SCANS_ARITHMETIC}, -1},
    };
    struct baseline_fixture *f = *state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int n = 0; n < 24; n += test_is_slow() ? 3 : 1) { /* every quality and content */
            struct jpeg_spec spec = kinds[i].spec;
            spec.width = random_between(&f->random, 1, 150);
            spec.height = random_between(&f->random, 1, 150);
            spec.quality = 30 + 10 * (n % 8);
            spec.optimised = n / 8 == 1 && spec.scans == SCANS_BASELINE;
            spec.content = n / 8 == 2 ? CONTENT_NOISE : CONTENT_PICTURE;
            spec.seed = next_random(&f->random);
            struct bytes file = make_jpeg(&spec);
            struct hr_region whole = {0, 0, spec.width, spec.height};
            for (int k = 0; k < 7; k++) {
                struct hr_region r = random_region(&f->random, spec.width, spec.height);
                r = k ? r : whole;
                for (int h = 0; h <= 3; h++) {
                    struct hr_region small = halved(&r, h);
                    assert_int_equal(is_taken_halved(f, &file, &small, h), h <= kinds[i].halvings);
                }
                check_region(f, &file, &r);
            }
            free(file.data);
        }
}

/* Our decoder leaves samplings that libjpeg refuses to libjpeg: more than 10 blocks in an MCU, and
 * samples that cover no whole number of pixels. */
static void odd_samplings_are_left_to_libjpeg(void **state)
{
    static const uint8_t factors[][3] = {
        {0x33, 0x11, 0x11}, {0x44, 0x11, 0x11}, {0x22, 0x22, 0x22}, {0x31, 0x21, 0x11},
        {0x13, 0x12, 0x11}, {0x32, 0x11, 0x21}, {0x41, 0x31, 0x11},
    };
    struct baseline_fixture *f = *state;
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        struct jpeg_spec spec = {.width = 40, .height = 30, .components = 3, .quality = 80};
        struct bytes file = make_jpeg(&spec);
        const struct hr_region whole = {0, 0, 40, 30};
        struct hr_image_info info;
        struct hr__planar out;
        struct hr_error error[2];
        uint8_t *frame = file.data;
        while (memcmp(frame, "\xFF\xC0", 2) != 0)
            frame++;
        for (int c = 0; c < 3; c++)
            frame[11 + 3 * c] = factors[i][c];
        assert_false(is_taken(f, &file, &whole));
        struct hr__decoder *decoder[2] = {f->own, f->library};
        for (int k = 0; k < 2; k++) {
            assert_int_equal(hr__decoder_info(decoder[k], file.data, file.length, &info, NULL), 0);
            assert_true(hr__decoder_region(decoder[k], file.data, file.length, &info, &whole, &out,
                                           &error[k]) < 0);
        }
        assert_string_equal(error[0].message, error[1].message);
        free(file.data);
    }
}

/* Our decoder leaves files with damage that libjpeg-turbo would notice to libjpeg-turbo. */
static void damage_is_left_to_libjpeg(void **state)
{
    struct baseline_fixture *f = *state;
    struct jpeg_spec spec = {.width = 96, .height = 96, .components = 3, .quality = 80};
    struct bytes file = make_jpeg(&spec);
    const struct hr_region whole = {0, 0, 96, 96}, top = {0, 0, 20, 10};
    assert_true(is_taken(f, &file, &whole));
    struct bytes cut = {file.data, file.length - 1};
    assert_false(is_taken(f, &cut, &whole));
    cut.length = file.length - 4;
    assert_false(is_taken(f, &cut, &whole));
    cut.length = file.length;
    file.data[file.length - 1] = 0xFF; /* no marker: libjpeg reads past the end */
    assert_false(is_taken(f, &cut, &whole));
    assert_false(is_taken(f, &cut, &(struct hr_region){0, 0, 96, 90}));
    uint8_t *last = file.data + file.length - 40;
    memcpy(last, "\xFF\xD9", 2);
    assert_false(is_taken(f, &file, &whole));
    assert_true(is_taken(f, &file, &top));
    free(file.data);
    /* libjpeg decodes as many rows of blocks at once as the vertical sampling factor. */
    for (int v = 1; v <= 3; v++) {
        struct jpeg_spec grey = {
            .width = 40, .height = 40, .components = 1, .h = {1}, .v = {v}, .quality = 80};
        const struct hr_region first = {0, 0, 8, 8};
        file = make_jpeg(&grey);
        assert_true(is_taken(f, &file, &first));
        size_t scan = file.length;
        while (memcmp(file.data + scan - 2, "\xFF\xDA", 2) != 0)
            scan--;
        memcpy(file.data + scan + (file.length - scan) * 3 / 10, "\xFF\xD9", 2);
        assert_int_equal(is_taken(f, &file, &first), v == 1);
        free(file.data);
    }
}

/* A table is refused if a code consists of ones only, or if it has more codes than fit. */
static void codes_are_checked(void **state)
{
    static const struct {
        uint8_t counts[17];
        int valid;
    } codes[] = {
        {{0, 1}, 1}, {{0, 2}, 0}, {{0, 1, 2}, 0}, {{0, 1, 1}, 1}, {{0, 0, 5}, 0}, {{0, 0, 3}, 1},
    };
    const uint8_t symbols[256] = {0, 1, 2, 3, 4};
    struct hr__ac_table *ac = calloc(1, sizeof *ac);
    struct hr__dc_table *dc = calloc(1, sizeof *dc);
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        assert_int_equal(hr__ac_table_build(ac, codes[i].counts, symbols), codes[i].valid);
        assert_int_equal(hr__dc_table_build(dc, codes[i].counts, symbols), codes[i].valid);
    }
    free(ac);
    free(dc);
}

static void the_environment_forces_libjpeg(void **state)
{
    struct jpeg_spec spec = {.width = 20, .height = 20, .components = 3, .quality = 80};
    struct bytes file = make_jpeg(&spec);
    size_t memory[2];
    for (int i = 0; i < 2; i++) {
        struct hr__decoder *decoder;
        struct hr_image_info info;
        if (i)
            setenv("HEADRACE_JPEG", "libjpeg-turbo", 1);
        assert_int_equal(hr__decoder_create(&decoder, NULL), 0);
        assert_int_equal(hr__decoder_info(decoder, file.data, file.length, &info, NULL), 0);
        memory[i] = hr__decoder_memory(decoder);
        hr__decoder_destroy(&decoder);
    }
    unsetenv("HEADRACE_JPEG");
    assert_true(memory[1] < memory[0]);
    free(file.data);
}

/* All versions of the transform accept the same blocks and return the same samples. */
static void transforms_agree(void **state)
{
    struct baseline_fixture *f = *state;
    const enum hr__isa isas[] = {HR__ISA_PORTABLE, HR__ISA_AVX2, HR__ISA_AVX512};
    int held = 0, groups_held = 0, rounds = test_rounds(20000);
    for (int n = 0; n < rounds; n++) {
        int16_t block[HR__DCT_GROUP_MOST][64] __attribute__((aligned(32))) = {{0}};
        uint16_t quant[64];
        struct hr__block_limits limits[HR__DCT_GROUP_MOST];
        uint8_t expected[HR__DCT_GROUP_MOST][64];
        int most = 1 << random_between(&f->random, 0, 11),
            count = random_between(&f->random, 0, 64), taken[HR__DCT_GROUP_MOST];
        for (int i = 0; i < HR__DCT_GROUP_MOST; i++) {
            int largest = 1 << random_between(&f->random, 0, 16);
            for (int k = 0; k < 64; k++)
                quant[k] = (uint16_t)random_between(&f->random, 0, largest - 1);
            for (int k = 0; k < count; k++)
                block[i][random_between(&f->random, 0, 63)] =
                    (int16_t)random_between(&f->random, -most, most - 1);
            hr__block_limits_fill(&limits[i], quant);
            struct hr__dct_block one = {block[i], &limits[i], expected[i], 8};
            assert_int_equal(hr__inverse_dct_group_plain.blocks, 1);
            taken[i] = hr__inverse_dct_group_plain.run(&one);
            held += taken[i];
        }
        for (size_t v = 0; v < sizeof isas / sizeof isas[0] && isas[v] <= hr__isa(); v++) {
            const struct hr__inverse_dct_group *version = hr__inverse_dct_group(isas[v]);
            struct hr__dct_block group[HR__DCT_GROUP_MOST];
            uint8_t samples[HR__DCT_GROUP_MOST][64];
            int all = 1;
            for (int i = 0; i < version->blocks; i++) {
                group[i] = (struct hr__dct_block){block[i], &limits[i], samples[i], 8};
                all &= taken[i];
            }
            assert_int_equal(version->run(group), all);
            groups_held += all;
            if (all)
                assert_memory_equal(samples, expected, 64 * (size_t)version->blocks);
        }
    }
    assert_in_range(held, 4 * rounds / 20, 4 * (rounds - rounds / 20));
    assert_true(groups_held >= rounds / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extreme_symbols_are_exact),
        cmocka_unit_test(usual_files_are_taken),
        cmocka_unit_test(damage_is_left_to_libjpeg),
        cmocka_unit_test(transforms_agree),
        cmocka_unit_test(the_environment_forces_libjpeg),
        cmocka_unit_test(codes_are_checked),
        cmocka_unit_test(odd_samplings_are_left_to_libjpeg),
    };
    return cmocka_run_group_tests_name("codec-baseline", tests, set_up, tear_down);
}
