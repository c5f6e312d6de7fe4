/*
 * Times the form `coefficients` on photographs: packing them, and unpacking two random crops of
 * each (area 0.08 to 1, ratio 3/4 to 4/3) from blocks to samples, for each instruction set. Prints
 * medians of interleaved passes, in CPU time of one thread; also nanoseconds per block, because
 * images differ.
 */
#ifndef HR_TEST_COEFFICIENTS_TIMING_H
#define HR_TEST_COEFFICIENTS_TIMING_H

#include "base/random.h"
#include "codec/ycc.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

enum { PASSES = 9, CROPS_EACH = 2 };

struct version {
    const char *name;
    const struct hr__block_kernels *kernels;
    int layout; /* 0: reads items of version 1; 1: of version 2 */
    double us[PASSES];
};

/* One photograph: its item and its coefficients in natural order. */
struct photo {
    struct bytes item;
    struct hr__coefficients c, c1; /* the item; the same image as an item of version 1 */
    struct hr__block_profiles profiles;
    int16_t (*blocks[3])[64];
};

struct timing {
    struct photo *photos;
    int count;
    uint8_t *out;
};

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return values[n / 2];
}

static struct hr_region timing_crop(struct hr__random *r, int width, int height)
{
    for (;;) {
        double area = width * height * hr__random_range(r, 0.08, 1.0);
        double ratio = exp(hr__random_range(r, log(0.75), log(4.0 / 3)));
        int w = (int)(sqrt(area * ratio) + 0.5), h = (int)(sqrt(area / ratio) + 0.5);
        if (w > width || h > height)
            continue;
        int x = (int)hr__random_below(r, (uint64_t)(width + 1 - w));
        return (struct hr_region){x, (int)hr__random_below(r, (uint64_t)(height + 1 - h)), w, h};
    }
}

/* Unpacks the blocks that a crop needs, and counts them. */
static void time_crop(const struct photo *p, const struct hr_region *crop, const struct version *v,
                      uint8_t *out, uint64_t *blocks)
{
    const struct hr__coefficients *item = v->layout ? &p->c : &p->c1;
    const struct hr__ycc_shape shape = hr__ycc_shape_of(&item->header);
    for (int c = 0; c < item->header.components; c++) {
        struct hr_region w;
        hr__ycc_window(&shape, crop, c, &w);
        uint32_t x = (uint32_t)w.x / 32 * 4, right = (uint32_t)(w.x + w.width + 7) / 8;
        struct hr__block_run run = {
            .profiles = item->profiles ? &p->profiles : NULL,
            .end = item->data + item->data_bytes,
            .quant = item->quant[c],
            .blocks = right - x,
            .out = out,
            .stride = (ptrdiff_t)(((size_t)(right - x) * 8 + 24 + 63) & ~(size_t)63),
        };
        for (uint32_t y = (uint32_t)w.y / 8; y < (uint32_t)(w.y + w.height + 7) / 8; y++) {
            run.data = hr__coefficients_find(item, c, y, x);
            assert_int_equal(v->kernels->unpack(&run), 0);
            run.out += 8 * run.stride;
            *blocks += run.blocks;
        }
        out = run.out;
    }
}

static double time_crops(const struct timing *t, const struct version *v, uint64_t *blocks)
{
    struct hr__random r;
    hr__random_init(&r, 10, 0, 0, 0);
    *blocks = 0;
    uint64_t start = thread_ns();
    for (int n = 0; n < t->count * CROPS_EACH; n++) {
        const struct photo *p = &t->photos[n / CROPS_EACH];
        struct hr_region crop = timing_crop(&r, (int)p->c.header.width, (int)p->c.header.height);
        time_crop(p, &crop, v, t->out, blocks);
    }
    return (double)(thread_ns() - start) / 1e3 / (t->count * CROPS_EACH);
}

static double time_packing(const struct timing *t, struct hr__packer *packer)
{
    uint64_t start = thread_ns();
    for (int n = 0; n < t->count; n++) {
        const struct photo *p = &t->photos[n];
        const struct hr__coefficients *c = &p->c;
        struct hr__packer_image image = {c->header.width,
                                         c->header.height,
                                         c->header.components,
                                         c->header.h,
                                         c->header.v,
                                         c->header.orientation,
                                         0,
                                         {c->quant[0], c->quant[1], c->quant[2]}};
        const uint8_t *bytes;
        size_t length;
        assert_int_equal(hr__packer_begin(packer, &image, 0, NULL), 0);
        for (int i = 0; i < c->header.components; i++)
            for (uint32_t y = 0; y < c->blocks_y[i]; y++)
                assert_int_equal(
                    hr__packer_row(packer,
                                   (const int16_t(*)[64])p->blocks[i] + (size_t)y * c->blocks_x[i],
                                   NULL),
                    0);
        assert_int_equal(hr__packer_end(packer, &bytes, &length, NULL), 0);
        assert_int_equal(length, p->item.length);
    }
    return (double)(thread_ns() - start) / 1e3 / t->count;
}

static struct bytes read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct bytes out = {NULL, 0};
    if (!file || fseek(file, 0, SEEK_END))
        fail_msg("%s cannot be read", path);
    out.length = (size_t)ftell(file);
    out.data = malloc(out.length);
    rewind(file);
    assert_int_equal(fread(out.data, 1, out.length, file), out.length);
    fclose(file);
    return out;
}

/* Makes the item. Adds the time of reading and packing to *us, and the size of the item of version
 * 1 to *bytes. */
static void read_photo(struct hr__transcoder *transcoder, const char *path, struct photo *p,
                       double *us, uint64_t *bytes)
{
    struct bytes file = read_file(path);
    uint64_t start = thread_ns();
    free(make_item(transcoder, &file).data);
    *us += (double)(thread_ns() - start) / 1e3;
    p->item = make_item(transcoder, &file);
    free(file.data);
    assert_int_equal(hr__coefficients_open(&p->c, p->item.data, p->item.length, NULL), 0);
    hr__coefficients_profiles(&p->c, &p->profiles);
    struct bytes before;
    before.data = version1_of(&p->c, 0, &before.length);
    *bytes += before.length;
    assert_int_equal(hr__coefficients_open(&p->c1, before.data, before.length, NULL), 0);
    for (int c = 0; c < p->c.header.components; c++) {
        p->blocks[c] = malloc((size_t)p->c.blocks_x[c] * p->c.blocks_y[c] * sizeof *p->blocks[c]);
        for (uint32_t y = 0; y < p->c.blocks_y[c]; y++)
            assert_int_equal(hr__coefficients_row(
                                 &p->c, c, y, p->blocks[c] + (size_t)y * p->c.blocks_x[c], NULL),
                             0);
    }
}

/* Lists every version of the code, for items of both versions. */
static int list_versions(struct version *v)
{
    static const char *const names[] = {"portable", "avx2", "avx512"};
    int count = 2 * (int)hr__isa() + 2;
    for (int i = 0; i < count; i++)
        v[i] = (struct version){names[i / 2], hr__block_kernels((enum hr__isa)(i / 2)), i % 2, {0}};
#ifdef __x86_64__
    if (hr__isa() >= HR__ISA_AVX2)
        v[count++] = (struct version){"no pdep", &hr__block_kernels_avx2_slow_pdep, 1, {0}};
#endif
    return count;
}

static int time_versions(int files, char **paths)
{
    struct hr__transcoder *transcoder;
    struct hr__packer *packer;
    struct version v[8];
    struct timing t = {aligned_alloc(64, (size_t)files * sizeof *t.photos), files,
                       malloc(64 << 20)};
    double read_us = 0, pack_us[PASSES];
    uint64_t blocks = 0, bytes = 0, before = 0;
    int count = list_versions(v);
    assert_int_equal(hr__transcoder_create(&transcoder, NULL), 0);
    assert_int_equal(hr__packer_create(&packer, NULL), 0);
    for (int i = 0; i < files; i++) {
        read_photo(transcoder, paths[i], &t.photos[i], &read_us, &before);
        bytes += t.photos[i].item.length;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        pack_us[pass] = time_packing(&t, packer);
        for (int i = 0; i < count; i++)
            v[i].us[pass] = time_crops(&t, &v[i], &blocks);
    }
    printf("%d photographs, %.1f KB an item, %.1f in version 1\n", files,
           (double)bytes / 1e3 / files, (double)before / 1e3 / files);
    printf("reading and packing  %7.1f us an image\npacking              %7.1f us an image\n",
           read_us / files, median(pack_us, PASSES));
    for (int i = 0; i < count; i++) {
        double us = median(v[i].us, PASSES);
        printf("%-10s version %d %7.1f us a crop, %5.1f ns a block\n", v[i].name, 1 + v[i].layout,
               us, us * 1e3 * files * CROPS_EACH / (double)blocks);
    }
    hr__packer_destroy(&packer);
    hr__transcoder_destroy(&transcoder);
    return 0;
}

#endif
