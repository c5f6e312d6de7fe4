/*
 * Any bytes as input of two decoders: one with our own decoder of baseline JPEG, one with
 * libjpeg-turbo alone. They agree on everything: the refused images and the messages, and the
 * pixels of the whole image and of a region, halved or not, which the last eight bytes choose. So
 * does our own decoder in the lowest strips that guesses wherever it skips.
 */
#include "region.h"

#include "codec/baseline.h"
#include "codec/jpeg_library.h"

/* Larger images only cost time. */
#define MOST_PIXELS (1 << 18)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Our own decoder alone, a row of MCUs at a time, on an image that libjpeg accepts. */
static void compare_strips(struct hr__decode_job *job, const struct hr__planar *expected)
{
    static struct hr__jpeg library;
    static struct hr__baseline *baseline;
    int done;
    if (!baseline) {
        hr__jpeg_init(&library);
        require(!hr__baseline_create(&baseline, NULL));
        hr__baseline_set_strip(baseline, 1);
        hr__baseline_set_guess(baseline, 0);
    }
    size_t plane = (size_t)expected->stride * (size_t)job->region.height;
    uint8_t *planes = malloc(3 * plane + 64);
    require(planes != NULL);
    job->out = *expected;
    for (size_t c = 0; c < 3; c++)
        job->out.plane[c] = planes + c * plane;
    if (setjmp(library.escape))
        abort();
    hr__jpeg_read_header(&library, &job->in);
    require(!hr__baseline_region(baseline, &library.cinfo, job, &done, NULL));
    jpeg_destroy_decompress(&library.cinfo);
    if (done)
        require_same(&job->out, expected, &job->region);
    free(planes);
}

/* Compares a region of the halved image. */
static void compare(struct hr__decoder *const decoder[2], struct hr__decode_job *job)
{
    const struct hr__encoded *in = &job->in;
    struct hr__planar out[2];
    struct hr_error error[2];
    int r[2];
    for (int i = 0; i < 2; i++) {
        memset(&error[i], 0, sizeof error[i]);
        hr__decoder_halve(decoder[i], job->halvings);
        r[i] = hr__decoder_region(decoder[i], in->bytes, in->length, &job->info, &job->region,
                                  &out[i], &error[i]);
    }
    require(r[0] == r[1] && !strcmp(error[0].message, error[1].message));
    if (r[0])
        return;
    require_same(&out[0], &out[1], &job->region);
    compare_strips(job, &out[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hr__decoder *decoder[2];
    struct hr_image_info info;
    if (!decoder[0]) {
        require(!hr__decoder_create(&decoder[0], NULL));
        require(!hr__decoder_create(&decoder[1], NULL));
        hr__decoder_use_library(decoder[1]);
    }
    if (size < FUZZ_REGION_BYTES || hr__decoder_info(decoder[0], data, size, &info, NULL) ||
        info.format != HR_IMAGE_JPEG || (int64_t)info.width * info.height > MOST_PIXELS)
        return 0;
    const uint8_t *choice = data + size - FUZZ_REGION_BYTES;
    int halvings = choice[0] >> 6;
    int width = ((info.width - 1) >> halvings) + 1, height = ((info.height - 1) >> halvings) + 1;
    struct hr__decode_job job = {.in = {.bytes = data, .length = size},
                                 .info = info,
                                 .halvings = halvings,
                                 .region = {0, 0, width, height}};
    compare(decoder, &job);
    job.region = pick_region(choice, width, height);
    compare(decoder, &job);
    return 0;
}
