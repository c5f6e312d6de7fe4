/*
 * Times the versions of upsampling and colour conversion: random crops (mean area 0.42) of 500x375
 * images, read from planes in the layout of the form `planes`, written to one block of memory.
 * `cold`: 231 images, two crops of each; `warm`: 8 images, which stay in the last-level cache.
 */
#ifndef HR_TEST_YCC_TIMING_H
#define HR_TEST_YCC_TIMING_H

#include "base/clock.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>

enum { IMAGES = 231, CROPS = 462, PASSES = 7, WIDTH = 500, HEIGHT = 375 };

/* Returns a random crop: area 0.08..1 of the image, ratio 3/4..4/3. */
static struct hr_region timing_crop(struct hr__random *r)
{
    for (;;) {
        double area = WIDTH * HEIGHT * hr__random_range(r, 0.08, 1.0);
        double ratio = exp(hr__random_range(r, log(0.75), log(4.0 / 3)));
        int w = (int)(sqrt(area * ratio) + 0.5), h = (int)(sqrt(area / ratio) + 0.5);
        if (w > WIDTH || h > HEIGHT)
            continue;
        int x = (int)hr__random_below(r, (uint64_t)(WIDTH + 1 - w));
        return (struct hr_region){x, (int)hr__random_below(r, (uint64_t)(HEIGHT + 1 - h)), w, h};
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct ycc_timing {
    struct hr__ycc_shape shape;
    uint8_t *images; /* `count` of `image_bytes` each */
    size_t image_bytes;
    int count;
    uint8_t *out; /* three planes */
};

/* Returns the microseconds per crop of a pass over all crops. */
static double time_pass(struct hr__ycc *ycc, const struct ycc_timing *t)
{
    struct hr__random r;
    hr__random_init(&r, 10, 0, 0, 0);
    uint64_t start = hr__now_ns();
    for (int n = 0; n < CROPS; n++) {
        struct hr_region region = timing_crop(&r);
        struct hr__ycc_planes planes = {.shape = &t->shape};
        struct hr__planar out = {.width = region.width, .height = region.height};
        const uint8_t *at = t->images + (size_t)(n / 2 % t->count) * t->image_bytes;
        out.stride = (region.width + 63) & ~63;
        for (int c = 0; c < 3; c++) {
            int w = (WIDTH + t->shape.across[c] - 1) / t->shape.across[c];
            int h = (HEIGHT + t->shape.down[c] - 1) / t->shape.down[c];
            planes.at[c] = at;
            planes.stride[c] = w;
            planes.window[c] = (struct hr_region){0, 0, w, h};
            at += w * h;
            out.plane[c] = t->out + (size_t)c * (size_t)out.stride * (size_t)region.height;
        }
        if (hr__ycc_run(ycc, &planes, &region, &out, NULL))
            return -1;
    }
    return (double)(hr__now_ns() - start) / 1000 / CROPS;
}

static double time_one(enum hr__isa isa, const struct ycc_timing *t)
{
    double us[PASSES];
    struct hr__ycc *ycc;
    if (hr__ycc_create(&ycc, isa, NULL))
        return -1;
    for (int pass = 0; pass < PASSES; pass++)
        us[pass] = time_pass(ycc, t);
    hr__ycc_destroy(&ycc);
    qsort(us, PASSES, sizeof *us, compare_doubles);
    return us[PASSES / 2];
}

static int time_versions(void)
{
    static const char *const names[] = {"portable", "avx2", "avx512"};
    static const int sampled[] = {221, 211, 121, 111, 411, 0};
    struct ycc_timing t = {.image_bytes = (size_t)3 * WIDTH * HEIGHT + 64};
    t.images = hr__alloc_aligned(HR__TAG_CODEC, IMAGES * t.image_bytes, 64);
    t.out = hr__alloc_aligned(HR__TAG_CODEC, (size_t)3 * 512 * HEIGHT, 64);
    if (!t.images || !t.out)
        return 1;
    for (size_t i = 0; i < IMAGES * t.image_bytes; i++)
        t.images[i] = (uint8_t)(i * 7 + (i >> 9));
    printf("%-22s", "us per crop");
    for (int isa = 0; isa < 3; isa++)
        printf("%10s", names[isa]);
    for (size_t i = 0; i < 2 * sizeof sampled / sizeof *sampled; i++) {
        int s = sampled[i / 2];
        t.count = i % 2 ? 8 : IMAGES;
        uint8_t h = s ? (uint8_t)(s / 100) : 1, v = s ? (uint8_t)(s / 10 % 10) : 1;
        t.shape = (struct hr__ycc_shape){.width = WIDTH,
                                         .height = HEIGHT,
                                         .components = s ? 3 : 1,
                                         .across = {1, h, h},
                                         .down = {1, v, v}};
        char label[32];
        snprintf(label, sizeof label, s ? "h%dv%d" : "grey", h, v);
        printf("\n%-10s%-12s", label, i % 2 ? "warm" : "cold");
        for (int isa = 0; isa <= (int)hr__isa(); isa++)
            printf("%10.1f", time_one((enum hr__isa)isa, &t));
        fflush(stdout);
    }
    printf("\n");
    hr__free(t.images);
    hr__free(t.out);
    return 0;
}

#endif
