/*
 * Times the versions of the fused pass: random crops (mean area 0.42) of 500x375 images to
 * 224x224, written into a ring of buffers larger than the caches, as batches are. `cold`: 231
 * images, two crops of each; `warm`: 8 images, which stay in the last-level cache.
 */
#ifndef HR_TEST_FUSED_TIMING_H
#define HR_TEST_FUSED_TIMING_H

#include "base/clock.h"

enum { IMAGES = 231, CROPS = 462, RING = 256, SIDE = 224, PASSES = 7 };

/* Makes the axes of a random crop: area 0.08..1 of the image, ratio 3/4..4/3. */
static void timing_crop(struct hr__random *r, struct hr__fused_job *job)
{
    for (;;) {
        double area = 500 * 375 * hr__random_range(r, 0.08, 1.0);
        double ratio = exp(hr__random_range(r, log(0.75), log(4.0 / 3)));
        int w = (int)(sqrt(area * ratio) + 0.5), h = (int)(sqrt(area / ratio) + 0.5);
        if (w > 500 || h > 375)
            continue;
        int x = (int)hr__random_below(r, (uint64_t)(501 - w));
        int y = (int)hr__random_below(r, (uint64_t)(376 - h));
        job->x = (struct hr__axis){
            .in = w, .out = SIDE, .count = SIDE, .origin = x, .flip = (int)hr__random_below(r, 2)};
        job->y = (struct hr__axis){.in = h, .out = SIDE, .count = SIDE, .origin = y};
        return;
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median over PASSES of the microseconds per crop. */
static double time_one(struct hr__fused *fused, struct hr__fused_job job, struct hr__planar *images,
                       int count, uint8_t *ring)
{
    double us[PASSES];
    size_t bytes = (size_t)3 * SIDE * SIDE * element_bytes(job.dtype);
    for (int pass = 0; pass < PASSES; pass++) {
        struct hr__random r;
        hr__random_init(&r, 10, 0, 0, 0);
        uint64_t start = hr__now_ns();
        for (int n = 0; n < CROPS; n++) {
            timing_crop(&r, &job);
            job.pixels = &images[n / 2 % count];
            job.out = ring + bytes * (size_t)(n % RING);
            if (hr__fused_run(fused, &job, NULL) < 0)
                return -1;
        }
        us[pass] = (double)(hr__now_ns() - start) / 1000 / CROPS;
    }
    qsort(us, PASSES, sizeof *us, compare_doubles);
    return us[PASSES / 2];
}

static int time_versions(void)
{
    static struct hr__planar images[IMAGES];
    struct hr__random r;
    hr__random_init(&r, 11, 0, 0, 0);
    for (int n = 0; n < IMAGES; n++) {
        images[n].width = 500;
        images[n].height = 375;
        images[n].stride = 512;
        for (int c = 0; c < 3; c++) {
            images[n].plane[c] = hr__alloc_aligned(HR__TAG_RECIPE, 512 * 375, HR__PIXEL_SLACK);
            for (int i = 0; i < 512 * 375; i++)
                images[n].plane[c][i] = (uint8_t)(i * 7 + n + (i >> 9));
        }
    }
    uint8_t *ring = hr__alloc_aligned(HR__TAG_RECIPE, (size_t)RING * 3 * SIDE * SIDE * 4, 0);
    memset(ring, 1, (size_t)RING * 3 * SIDE * SIDE * 4);
    struct hr__fused *fused;
    if (hr__fused_create(&fused, NULL) < 0)
        return 1;
    static const struct {
        const char *name;
        enum hr_dtype dtype;
        enum hr_layout layout;
        enum hr_interpolation interpolation;
        int images;
    } cases[] = {
        {"float32 NCHW cold", HR_FLOAT32, HR_NCHW, HR_BILINEAR, IMAGES},
        {"float32 NCHW warm", HR_FLOAT32, HR_NCHW, HR_BILINEAR, 8},
        {"uint8 NCHW cold", HR_UINT8, HR_NCHW, HR_BILINEAR, IMAGES},
        {"float16 NCHW cold", HR_FLOAT16, HR_NCHW, HR_BILINEAR, IMAGES},
        {"bfloat16 NCHW cold", HR_BFLOAT16, HR_NCHW, HR_BILINEAR, IMAGES},
        {"float32 NHWC cold", HR_FLOAT32, HR_NHWC, HR_BILINEAR, IMAGES},
        {"uint8 NHWC cold", HR_UINT8, HR_NHWC, HR_BILINEAR, IMAGES},
        {"float32 NCHW bicubic", HR_FLOAT32, HR_NCHW, HR_BICUBIC, IMAGES},
    };
    printf("%-22s", "us per crop");
    for (int isa = 0; isa < 3; isa++)
        printf("%10s", isa_names[isa]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        printf("\n%-22s", cases[i].name);
        for (int isa = 0; isa < 3; isa++) {
            struct hr__fused_job job = {.interpolation = cases[i].interpolation,
                                        .antialias = 1,
                                        .dtype = cases[i].dtype,
                                        .layout = cases[i].layout};
            for (int c = 0; c < 3; c++) {
                job.scale[c] = job.dtype == HR_UINT8 ? 1 : 0.0171247f;
                job.shift[c] = job.dtype == HR_UINT8 ? 0 : -2.117904f;
            }
            if (!hr__fused_use(fused, (enum hr__isa)isa))
                printf("%10.1f", time_one(fused, job, images, cases[i].images, ring));
            fflush(stdout);
        }
    }
    printf("\n");
    for (int n = 0; n < IMAGES; n++)
        for (int c = 0; c < 3; c++)
            hr__free(images[n].plane[c]);
    hr__free(ring);
    hr__fused_destroy(&fused);
    return 0;
}

#endif
