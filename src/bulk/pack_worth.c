/*
 * Which form of an image is worth its bytes.
 *
 * The time to decode a training crop is modelled as a sum of two parts: one for the
 * bytes that are taken apart, one for the pixels that are transformed, upsampled and
 * converted. The constants are a least-squares fit to 205 images of four kinds (500 x
 * 375 at two qualities, 1600 x 1200, 341 x 256), six crops each as
 * RandomResizedCrop draws them, on a core with AVX2; they are part of what a pack is:
 * two machines make the same pack of the same images. What all forms share (the tensor
 * pass) is left out, as only differences matter.
 */
#include "bulk/pack_convert.h"

/* Picoseconds for each byte of the item and each pixel of the image. */
static const struct {
    uint64_t per_byte, per_pixel;
} model_ps[3] = {
    [HR_FORM_ENCODED] = {5600, 800},
    [HR_FORM_COEFFICIENTS] = {150, 600},
    [HR_FORM_PLANES] = {0, 330},
};

static uint64_t decode_ps(enum hr_form form, uint64_t pixels, uint64_t bytes)
{
    return bytes * model_ps[form].per_byte + pixels * model_ps[form].per_pixel;
}

enum hr_form hr__pack_worth(uint64_t pixels, const uint64_t bytes[3])
{
    enum hr_form best = HR_FORM_ENCODED;
    for (enum hr_form form = HR_FORM_COEFFICIENTS; form <= HR_FORM_PLANES; form++) {
        if (!bytes[form])
            continue;
        uint64_t now = decode_ps(best, pixels, bytes[best]);
        uint64_t then = decode_ps(form, pixels, bytes[form]);
        uint64_t more = bytes[form] > bytes[best] ? bytes[form] - bytes[best] : 0;
        if (then < now && now - then >= more * HR_PACK_NS_PER_BYTE * 1000)
            best = form;
    }
    return best;
}
