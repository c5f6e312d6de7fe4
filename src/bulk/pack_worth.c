/*
 * Decides which form of an image is worth its bytes.
 *
 * The time to decode a training crop is modelled as the sum of two parts: one for parsing the
 * bytes, one for transforming, upsampling and converting the pixels. The constants are a fit, by
 * least squares of relative errors, to 88 photographs of four kinds (500 x 375 at two qualities,
 * 1600 x 1200, 341 x 256), six crops each as RandomResizedCrop draws them, on a core with AVX2
 * (2026-11-23; CPU time, beside other work). They are constants so that two machines make the same
 * pack from the same images. Costs that all forms share (the tensor pass) are left out, because
 * only differences matter.
 *
 * The constants of PNG fit 4 to 16 images of each of five kinds, 64 x 64 to 1600 x 1200
 * (photographs in colour and in grey, drawings), within a quarter. They are twice too high for
 * palettes, which hardly gain from another form (2026-11-23).
 */
#include "bulk/pack_convert.h"

/* Picoseconds per byte of the item and per pixel of the image. */
struct pack_model {
    uint64_t per_byte, per_pixel;
};

static const struct pack_model png_ps = {9000, 5500};
static const struct pack_model model_ps[HR_FORMS] = {
    [HR_FORM_ENCODED] = {2860, 650},
    [HR_FORM_INDEXED] = {2240, 520},
    [HR_FORM_COEFFICIENTS] = {420, 485},
    [HR_FORM_PLANES] = {0, 300},
};

/* The cost of a form: the time to decode a crop, and what its bytes are worth. */
static uint64_t cost_ps(const struct pack_model *model, uint64_t pixels, uint64_t bytes)
{
    return pixels * model->per_pixel + bytes * (model->per_byte + HR_PACK_NS_PER_BYTE * 1000);
}

enum hr_form hr__pack_worth(enum hr_image_format format, uint64_t pixels,
                            const uint64_t bytes[HR_FORMS])
{
    enum hr_form best = HR_FORM_ENCODED;
    const struct pack_model *of_file = format == HR_IMAGE_PNG ? &png_ps : &model_ps[best];
    uint64_t least = cost_ps(of_file, pixels, bytes[best]);
    for (enum hr_form form = HR_FORM_ENCODED + 1; form < HR_FORMS; form++) {
        uint64_t cost = cost_ps(&model_ps[form], pixels, bytes[form]);
        if (bytes[form] && cost < least) {
            best = form;
            least = cost;
        }
    }
    return best;
}
