/*
 * Regions that several decoders decode together (loader/bands.h). An input is an item, or a file
 * that one is made of, and CHOICE bytes: the form, how often the image is halved, the region, and
 * when others take how many rows of it. The item lies in a block of exactly its size.
 *
 * An item made here gives the pixels of hr__decoder_region, and no part fails, but for
 * indexed ones of what is left to libjpeg-turbo: some images that are halved three times, and
 * larger coefficients than encoders write. So do other items of coefficients and
 * planes wherever all parts succeed; a wrong index may give other pixels, and then only memory
 * safety is asked.
 */
#include "region.h"

/* Larger images only cost time. */
#define MOST_PIXELS (1 << 16)

#define MOST_BANDS 8

/* Bytes: the form and the halvings; for each band when it is taken, and the part of the rows. */
enum { CHOICE = 1 + 2 * MOST_BANDS + FUZZ_REGION_BYTES };

struct bands_tools {
    struct hr_converter *converter;
    struct hr__decoder *whole, *owner, *helper;
};

/* The rows that nobody has claimed, and the bands that others have. */
struct bands_state {
    const uint8_t *choice; /* of the next band */
    int first, end;
    int claims; /* since the last band */
    int bands, from[MOST_BANDS], to[MOST_BANDS];
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct bands_tools *tools(void)
{
    static struct bands_tools t;
    if (t.converter)
        return &t;
    struct hr_converter_options options;
    hr_converter_options_default(&options);
    options.max_pixels = MOST_PIXELS;
    options.trust = 1;
    require(!hr_converter_create(&t.converter, &options, NULL));
    require(!hr__decoder_create(&t.whole, NULL) && !hr__decoder_create(&t.owner, NULL) &&
            !hr__decoder_create(&t.helper, NULL));
    return &t;
}

/* As in the loader; bands may also begin at rows that are no multiples of HR__BAND_ROWS. */
static int claim(void *arg, int until)
{
    struct bands_state *s = arg;
    require(until >= s->first);
    while (s->bands < MOST_BANDS && s->first < s->end && s->claims >= s->choice[0] % 8) {
        int from = s->first + s->choice[1] * (s->end - s->first) / 256;
        s->from[s->bands] = from;
        s->to[s->bands++] = s->end;
        s->end = from;
        s->choice += 2;
        s->claims = 0;
    }
    s->claims++;
    s->first = until < s->end ? until : s->end;
    return s->end;
}

/* Decodes the region together. Returns 0 if all parts succeed. */
static int decode_together(struct bands_tools *t, const struct hr__shared_region *shared,
                           const uint8_t *choice)
{
    const struct hr_region *r = &shared->region;
    struct bands_state s = {.choice = choice, .first = r->y, .end = r->y + r->height};
    const struct hr__row_claims claims = {claim, &s};
    int failed = hr__decoder_shared(t->owner, shared, &claims);
    require(failed || s.first == s.end);
    while (s.bands) {
        s.bands--;
        if (s.from[s.bands] < s.to[s.bands])
            failed |= hr__decoder_band(t->helper, shared, s.from[s.bands], s.to[s.bands]);
    }
    return failed;
}

/* Decodes a region of an item, which `is_made` here, or of any content. */
static void try_item(struct bands_tools *t, struct hr__shared_region *s, int is_made,
                     const uint8_t *choice)
{
    struct hr__planar whole;
    int halvings = choice[0] >> 6, most = hr__format_halvings(s->info.format);
    s->halvings = halvings < most ? halvings : most;
    int width = ((s->info.width - 1) >> s->halvings) + 1;
    int height = ((s->info.height - 1) >> s->halvings) + 1;
    s->region = pick_region(choice + CHOICE - FUZZ_REGION_BYTES, width, height);
    s->out = (struct hr__planar){.width = s->region.width, .height = s->region.height};
    s->out.stride = (s->region.width + 63) & ~63;
    size_t plane = (size_t)s->out.stride * (size_t)s->region.height;
    uint8_t *planes = malloc(3 * plane);
    require(planes != NULL);
    for (size_t c = 0; c < 3; c++)
        s->out.plane[c] = planes + c * plane;
    int failed = decode_together(t, s, choice + 1);
    hr__decoder_halve(t->whole, s->halvings);
    int r = hr__decoder_region(t->whole, s->bytes, s->length, &s->info, &s->region, &whole, NULL);
    require(!is_made || (!r && (!failed || s->info.format == HR_IMAGE_INDEXED)));
    if (!r && !failed && (is_made || s->info.format != HR_IMAGE_INDEXED))
        require_same(&whole, &s->out, &s->region);
    free(planes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum hr_form forms[] = {HR_FORM_INDEXED, HR_FORM_COEFFICIENTS, HR_FORM_PLANES};
    struct bands_tools *t = tools();
    struct hr__shared_region s = {.bytes = data, .length = size};
    struct hr_item item = {.bytes = data, .length = size};
    if (size < CHOICE || hr__decoder_info(t->whole, data, size, &s.info, NULL) ||
        (int64_t)s.info.width * s.info.height > MOST_PIXELS)
        return 0;
    const uint8_t *choice = data + size - CHOICE;
    int is_made = s.info.format == HR_IMAGE_JPEG;
    if (!is_made && !hr__format_is_seekable(s.info.format))
        return 0;
    if (is_made && hr_converter_run(t->converter, forms[choice[0] % 3], data, size, &item, NULL))
        return 0;
    uint8_t *copy = malloc(item.length);
    require(copy != NULL);
    memcpy(copy, item.bytes, item.length);
    s.bytes = copy;
    s.length = item.length;
    require(!hr__decoder_info(t->whole, s.bytes, s.length, &s.info, NULL));
    try_item(t, &s, is_made, choice);
    free(copy);
    return 0;
}
