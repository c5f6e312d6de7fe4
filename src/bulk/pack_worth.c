/*
 * Decides which form of an image is worth its bytes.
 *
 * The time to decode a training crop is modelled as the sum of two parts: one for parsing the
 * bytes, one for transforming, upsampling and converting the pixels. The constants are a
 * least-squares fit to 205 images of four kinds (500 x 375 at two qualities, 1600 x 1200, 341 x
 * 256), six crops each as RandomResizedCrop draws them, on a core with AVX2. They are constants so
 * that two machines make the same pack from the same images. Costs that all forms share (the tensor
 * pass) are left out, because only differences matter.
 */
#include "bulk/pack_convert.h"

/* Picoseconds per byte of the item and per pixel of the image. */
static const struct {
    uint64_t per_byte, per_pixel;
} model_ps[HR_FORMS] = {
    [HR_FORM_ENCODED] = {3200, 600},
    [HR_FORM_INDEXED] = {2000, 600},
    [HR_FORM_COEFFICIENTS] = {150, 600},
    [HR_FORM_PLANES] = {0, 330},
};

/* The cost of a form: the time to decode a crop, and what its bytes are worth. */
static uint64_t cost_ps(enum hr_form form, uint64_t pixels, uint64_t bytes)
{
    return pixels * model_ps[form].per_pixel +
           bytes * (model_ps[form].per_byte + HR_PACK_NS_PER_BYTE * 1000);
}

enum hr_form hr__pack_worth(uint64_t pixels, const uint64_t bytes[HR_FORMS])
{
    enum hr_form best = HR_FORM_ENCODED;
    for (enum hr_form form = HR_FORM_ENCODED + 1; form < HR_FORMS; form++)
        if (bytes[form] && cost_ps(form, pixels, bytes[form]) < cost_ps(best, pixels, bytes[best]))
            best = form;
    return best;
}
