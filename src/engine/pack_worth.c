/*
 * Which form of an image is worth its bytes.
 *
 * The time to decode a typical training crop is modelled as a sum over what the
 * decoder goes through: bytes of entropy-coded data, pixels of the image whose
 * blocks are transformed, pixels of the crop that are upsampled and converted. The
 * constants were measured (docs/packs.md) and are part of the format's behaviour:
 * two machines make the same pack of the same images. Times common to all forms
 * (the tensor pass) are left out, as only differences matter.
 */
#include "engine/pack_convert.h"

/* Picoseconds. `encoded`: entropy decoding goes through the data up to the crop's
 * last row, and the crop's blocks are transformed; `coefficients`: packed blocks are
 * taken apart; `planes`: rows are read from memory. */
static const struct {
    uint64_t per_byte, per_pixel;
} model_ps[3] = {
    [HR_FORM_ENCODED] = {3100, 900},
    [HR_FORM_COEFFICIENTS] = {300, 400},
    [HR_FORM_PLANES] = {20, 130},
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
