/*
 * Compares the kernels of the machine's best instruction set with the portable ones, on random
 * input. On ARM, which runs under qemu-user here, this is NEON.
 *
 *   kernel_bits                     prints how many bytes of the results were compared and differ,
 * and a digest of the portable results, which all machines have in common
 *   kernel_bits KERNEL ISA TIMES    runs one kernel TIMES times with instruction set number ISA,
 * for counting instructions; prints how many values each run makes
 */
#include "base/random.h"
#include "codec/coefficients.h"
#include "codec/deinterleave.h"
#include "codec/inverse_dct.h"
#include "codec/ycc.h"
#include "codec/ycc_rows.h"
#include "recipe/fused.h"
#include "recipe/sound.h"

#include <headrace/prepare.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    WIDTH = 512,
    HEIGHT = 384,
    PIXELS = WIDTH * HEIGHT,
    OUTPUT = 224,
    ROUNDS = 24,
    FRAMES = 40000
};

/* Random input, made anew for each round; `round` selects sizes and options. */
static struct {
    uint8_t bytes[3 * PIXELS + 256];
    int16_t blocks[PIXELS / 64][64] __attribute__((aligned(64)));
    uint16_t quant[64];
    struct hr__coefficients item;
    float wave[FRAMES + 32];
    int round;
} in;
static struct hr__mel *mels[2];
static struct hr__resampler_cache resamplers;
static struct hr__fused *fused;
static uint8_t result[2][3 * PIXELS * 4] __attribute__((aligned(64)));

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "kernel_bits: %s\n", what);
    exit(3);
}

/* ---- one run of each kernel: returns the bytes of its results ---- */

static size_t run_deinterleave(enum hr__isa isa, uint8_t *out)
{
    uint8_t *plane[3] = {out, out + PIXELS, out + 2 * PIXELS};
    hr__deinterleave(isa)(in.bytes, plane, PIXELS);
    return 3 * PIXELS;
}

static struct hr__ycc_row pixel_row(int y, uint8_t *out)
{
    uint8_t *at = out + y * WIDTH;
    return (struct hr__ycc_row){in.bytes + y * WIDTH, {at, at + PIXELS, at + 2 * PIXELS}, WIDTH};
}

static size_t run_color(enum hr__isa isa, uint8_t *out)
{
    for (int y = 0; y < HEIGHT; y++) {
        struct hr__ycc_row row = pixel_row(y, out);
        const uint8_t *chroma[2] = {row.luma + PIXELS, row.luma + 2 * PIXELS};
        hr__ycc_kernels(isa)->same(&row, chroma);
    }
    return 3 * PIXELS;
}

static size_t run_upsampling(enum hr__isa isa, uint8_t *out)
{
    const struct hr__ycc_kernels *k = hr__ycc_kernels(isa);
    static uint16_t sums[2][WIDTH + 128];
    for (int y = 0; y < HEIGHT; y++) {
        struct hr__ycc_row row = pixel_row(y, out);
        for (int c = 0; c < 2; c++)
            k->mix(row.luma + (c + 1) * PIXELS, row.luma + (c + 1) * PIXELS - WIDTH, sums[c] + 64,
                   WIDTH / 2 + 64);
        k->doubled(&row,
                   &(struct hr__ycc_mixed){{sums[0] + 65, sums[1] + 65}, in.round & 1, {8, 7}});
    }
    return 3 * PIXELS;
}

static size_t run_between(enum hr__isa isa, uint8_t *out)
{
    hr__ycc_kernels(isa)->between(in.bytes, in.bytes + PIXELS, out, PIXELS, 1 + (in.round & 1));
    return PIXELS;
}

static size_t run_inverse_dct(enum hr__isa isa, uint8_t *out)
{
    hr__inverse_dct_fn *run = isa ? hr__inverse_dct : hr__inverse_dct_plain;
    for (int i = 0; i < PIXELS / 64; i++)
        run(in.blocks[i], in.quant, out + 64 * i, 8);
    return PIXELS;
}

static size_t run_unpacking(enum hr__isa isa, uint8_t *out)
{
    static struct hr__block_profiles profiles;
    hr__coefficients_profiles(&in.item, &profiles);
    for (uint32_t y = 0; y < HEIGHT / 8; y++) {
        struct hr__block_run run = {
            .profiles = &profiles,
            .data = hr__coefficients_find(&in.item, 0, y, 0),
            .end = in.item.data + in.item.data_bytes,
            .quant = in.item.quant[0],
            .blocks = WIDTH / 8,
            .out = out + (size_t)y * 8 * WIDTH,
            .stride = WIDTH,
        };
        if (!run.data || hr__block_kernels(isa)->unpack(&run))
            fail("the item is refused");
    }
    return PIXELS;
}

static size_t run_resize(enum hr__isa isa, uint8_t *out, enum hr_dtype dtype, int bicubic)
{
    static const size_t element_bytes[] = {
        [HR_UINT8] = 1, [HR_FLOAT16] = 2, [HR_BFLOAT16] = 2, [HR_FLOAT32] = 4};
    struct hr__planar pixels = {
        {in.bytes, in.bytes + PIXELS, in.bytes + 2 * PIXELS}, WIDTH, WIDTH, HEIGHT};
    /* from twice as large to a quarter of the size */
    int width = 100 + 17 * in.round, height = 100 + 12 * in.round;
    struct hr__fused_job job = {
        .pixels = &pixels,
        .x = {.in = width, .out = OUTPUT, .count = OUTPUT, .flip = in.round & 1},
        .y = {.in = height, .out = OUTPUT, .count = OUTPUT},
        .interpolation = bicubic ? HR_BICUBIC : HR_BILINEAR,
        .antialias = !(in.round & 4),
        .dtype = dtype,
        .layout = in.round & 2 ? HR_NHWC : HR_NCHW,
        .out = out,
    };
    for (int c = 0; c < 3; c++) {
        job.scale[c] = dtype == HR_UINT8 ? 1 : 0.0171247f;
        job.shift[c] = dtype == HR_UINT8 ? 0 : -2.117904f;
    }
    if (hr__fused_use(fused, isa) || hr__fused_run(fused, &job, NULL))
        fail("the resize pass fails");
    return 3 * OUTPUT * OUTPUT * element_bytes[dtype];
}

static size_t run_resize_float32(enum hr__isa isa, uint8_t *out)
{
    return run_resize(isa, out, HR_FLOAT32, 0);
}

static size_t run_resize_uint8(enum hr__isa isa, uint8_t *out)
{
    return run_resize(isa, out, HR_UINT8, 0);
}

static size_t run_resize_float16(enum hr__isa isa, uint8_t *out)
{
    return run_resize(isa, out, HR_FLOAT16, 1);
}

static size_t run_resize_bfloat16(enum hr__isa isa, uint8_t *out)
{
    return run_resize(isa, out, HR_BFLOAT16, 1);
}

static size_t run_sound_resample(enum hr__isa isa, uint8_t *out)
{
    static const int to[] = {16000, 8000, 48000, 22050};
    const struct hr__resampler *r;
    if (hr__resampler_get(&resamplers, 44100, to[in.round % 4], &r, NULL))
        fail("out of memory");
    struct hr__resampling what = {.in = in.wave, .at = r->first[0], .count = FRAMES / 8};
    hr__sound_kernels(isa)->resample(r, &what, (float *)(void *)out);
    return FRAMES / 8 * sizeof(float);
}

static size_t run_sound_mel(enum hr__isa isa, uint8_t *out)
{
    static double work[1 << 14] __attribute__((aligned(64)));
    const struct hr__mel *mel = mels[in.round & 1];
    int columns = (int)hr__mel_columns(mel, FRAMES);
    for (int t = 0; t < columns; t += HR__SOUND_LANES)
        hr__sound_kernels(isa)->mel(mel, in.wave, FRAMES, t, columns, work, (float *)(void *)out);
    return (size_t)mel->bands * (size_t)columns * sizeof(float);
}

/* The kernels that work in place. */
static size_t run_sound_values(enum hr__isa isa, uint8_t *out)
{
    const struct hr__sound_kernels *k = hr__sound_kernels(isa);
    float *at = (float *)(void *)out;
    size_t count = FRAMES / 2 - (size_t)in.round;
    memcpy(at, in.wave, count * sizeof *at);
    k->mix(at, in.wave + FRAMES / 2, (int64_t)count, 0.5f);
    memcpy(at + count, at, count * sizeof *at);
    k->decibels(at, count, 10, 1e-10f);
    k->whisper(at + count, count);
    return 2 * count * sizeof *at;
}

static const struct {
    const char *name;
    size_t (*run)(enum hr__isa isa, uint8_t *out);
} kernels[] = {
    {"deinterleave", run_deinterleave},     {"color", run_color},
    {"upsampling", run_upsampling},         {"between", run_between},
    {"inverse_dct", run_inverse_dct},       {"unpacking", run_unpacking},
    {"resize_float32", run_resize_float32}, {"resize_uint8", run_resize_uint8},
    {"resize_float16", run_resize_float16}, {"resize_bfloat16", run_resize_bfloat16},
    {"sound_resample", run_sound_resample}, {"sound_mel", run_sound_mel},
    {"sound_values", run_sound_values},
};

/* ---- random input ---- */

/* Blocks as in photographs: few and small values at high frequencies. */
static void draw_blocks(struct hr__random *r, struct hr__packer *packer)
{
    const struct hr__packer_image image = {.width = WIDTH,
                                           .height = HEIGHT,
                                           .components = 1,
                                           .h = 1,
                                           .v = 1,
                                           .orientation = 1,
                                           .quant = {in.quant}};
    const uint8_t *bytes;
    size_t length;
    for (int i = 0; i < 64; i++)
        in.quant[i] = (uint16_t)(1 + hr__random_below(r, 8));
    memset(in.blocks, 0, sizeof in.blocks);
    for (int b = 0; b < PIXELS / 64; b++) {
        in.blocks[b][0] = (int16_t)((int)hr__random_below(r, 255) - 127);
        for (uint64_t left = hr__random_below(r, 20); left; left--) {
            int at = (int)hr__random_below(r, 64), most = at < 12 ? 40 : 4;
            in.blocks[b][at] = (int16_t)((int)hr__random_below(r, 2 * (uint64_t)most + 1) - most);
        }
    }
    if (hr__packer_begin(packer, &image, 0, NULL))
        fail("the packer refuses the image");
    for (int y = 0; y < HEIGHT / 8; y++)
        if (hr__packer_row(packer, (const int16_t(*)[64])in.blocks + y * (WIDTH / 8), NULL))
            fail("the packer refuses a row");
    if (hr__packer_end(packer, &bytes, &length, NULL) ||
        hr__coefficients_open(&in.item, bytes, length, NULL))
        fail("the packer's item is refused");
}

static void draw(struct hr__packer *packer, int round)
{
    struct hr__random r;
    hr__random_init(&r, 16, (uint64_t)round, 0, 0);
    in.round = round;
    for (size_t i = 0; i < sizeof in.bytes; i++)
        in.bytes[i] = (uint8_t)hr__random_below(&r, 256);
    draw_blocks(&r, packer);
    for (size_t i = 0; i < sizeof in.wave / sizeof *in.wave; i++)
        in.wave[i] = (float)((int)hr__random_below(&r, 65536) - 32768) / 32768;
}

/* Makes the tables of Whisper's and of Kaldi's features. */
static void make_mels(void)
{
    double window[400];
    for (int i = 0; i < 400; i++)
        window[i] = (i + 1) / 400.0;
    for (int is_kaldi = 0; is_kaldi < 2; is_kaldi++) {
        const struct hr__mel_wish wish = {.rate = 16000,
                                          .frame = 400,
                                          .hop = 160,
                                          .points = is_kaldi ? 512 : 400,
                                          .bands = 80,
                                          .center = !is_kaldi,
                                          .is_kaldi = is_kaldi,
                                          .is_whisper = !is_kaldi,
                                          .is_slaney_scale = 1,
                                          .is_slaney_norm = 1,
                                          .low = is_kaldi ? 20 : 0,
                                          .high = 8000,
                                          .window = window};
        if (hr__mel_create(&mels[is_kaldi], &wish, NULL))
            fail("out of memory");
    }
}

static void compare(struct hr__packer *packer)
{
    uint64_t compared = 0, differing = 0, digest = 0;
    for (int round = 0; round < ROUNDS; round++) {
        draw(packer, round);
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
            size_t bytes = kernels[k].run(HR__ISA_PORTABLE, result[0]);
            kernels[k].run(hr__isa(), result[1]);
            compared += bytes;
            digest = XXH3_64bits_withSeed(result[0], bytes, digest);
            for (size_t i = 0; i < bytes; i++)
                differing += result[0][i] != result[1][i];
        }
    }
    printf("{\"isa\": \"%s\", \"kernels\": %zu, \"compared\": %llu, \"differing\": %llu, "
           "\"digest\": \"%016llx\"}\n",
           hr_isa_name(), sizeof kernels / sizeof *kernels, (unsigned long long)compared,
           (unsigned long long)differing, (unsigned long long)digest);
}

int main(int argc, char **argv)
{
    struct hr__packer *packer;
    if (argc != 1 && argc != 4) {
        fprintf(stderr, "usage: kernel_bits [KERNEL ISA TIMES]\n");
        return 2;
    }
    if (hr__packer_create(&packer, NULL) || hr__fused_create(&fused, NULL))
        fail("out of memory");
    make_mels();
    if (argc == 1) {
        compare(packer);
    } else {
        draw(packer, 8);
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
            for (int n = 0; !strcmp(kernels[k].name, argv[1]) && n < atoi(argv[3]); n++)
                if (!n)
                    printf("%zu\n", kernels[k].run((enum hr__isa)atoi(argv[2]), result[0]));
                else
                    kernels[k].run((enum hr__isa)atoi(argv[2]), result[0]);
    }
    for (int i = 0; i < 2; i++)
        hr__mel_destroy(&mels[i]);
    hr__resampler_free_all(&resamplers);
    hr__fused_destroy(&fused);
    hr__packer_destroy(&packer);
    return 0;
}
