/* AmplitudeToDB, FrequencyMasking and TimeMasking: what follows a mel spectrogram. */
#include "recipe/sound.h"

#include <math.h>

static void no_defaults(struct hr_operation *operation)
{
}

static int check_decibels(struct hr__bound *bound, struct hr__sound_state *state,
                          struct hr_error *error)
{
    double top = bound->operation.u.amplitude_to_db.top_db;
    int r = hr__sound_place(bound, state, 1, error);
    if (!r && bound->operation.u.amplitude_to_db.has_top_db && !(top >= 0))
        r = hr__refuse(error, bound, "top_db = %g is not possible: not negative", top);
    return r;
}

/* torchaudio's: 10 (20 for magnitudes) times the decimal logarithm of at least 1e-10, then at least
 * the largest less top_db. */
static void apply_decibels(const struct hr__bound *bound, struct hr__random *random,
                           float *features, int bands, int columns)
{
    size_t count = (size_t)bands * (size_t)columns;
    int is_magnitude = bound->operation.u.amplitude_to_db.stype;
    hr__sound_kernels(hr__isa())->decibels(features, count, is_magnitude ? 20 : 10, 1e-10f);
    if (!bound->operation.u.amplitude_to_db.has_top_db)
        return;
    float most = features[0];
    for (size_t i = 0; i < count; i++)
        most = features[i] > most ? features[i] : most;
    float least = most - (float)bound->operation.u.amplitude_to_db.top_db;
    for (size_t i = 0; i < count; i++)
        features[i] = features[i] > least ? features[i] : least;
}

static int check_masking(struct hr__bound *bound, struct hr__sound_state *state,
                         struct hr_error *error)
{
    int most = bound->operation.u.masking.mask_param;
    int r = hr__sound_place(bound, state, 1, error);
    if (!r)
        r = hr__check_probability(bound, bound->operation.u.masking.p, error);
    if (!r && most < 0)
        r = hr__refuse(error, bound, "a mask of %d is not possible: not negative", most);
    return r;
}

/* Draws which of `size` places are masked, as torchaudio does. */
static void draw_mask(const struct hr__bound *bound, struct hr__random *random, int size,
                      int *first, int *end)
{
    double most = bound->operation.u.masking.mask_param, share = bound->operation.u.masking.p;
    most = share < 1 && floor(size * share) < most ? floor(size * share) : most;
    double length = hr__random_unit(random) * most;
    double start = hr__random_unit(random) * (size - length);
    start = start > 0 ? start : 0;
    *first = (int)start;
    *end = *first + (int)length;
    *end = *end < size ? *end : size;
}

static void apply_frequency(const struct hr__bound *bound, struct hr__random *random,
                            float *features, int bands, int columns)
{
    int first, end;
    draw_mask(bound, random, bands, &first, &end);
    for (int b = first; b < end; b++)
        for (int t = 0; t < columns; t++)
            features[(size_t)b * (size_t)columns + (size_t)t] = 0;
}

static void apply_time(const struct hr__bound *bound, struct hr__random *random, float *features,
                       int bands, int columns)
{
    int first, end;
    draw_mask(bound, random, columns, &first, &end);
    for (int b = 0; b < bands; b++)
        for (int t = first; t < end; t++)
            features[(size_t)b * (size_t)columns + (size_t)t] = 0;
}

static void masking_defaults(struct hr_operation *operation)
{
    operation->u.masking.p = 1;
}

static const char *const stype_words[] = {"power", "magnitude", NULL};
static const struct hr__parameter decibels_fields[] = {
    {"stype", HR__WORD(amplitude_to_db.stype, stype_words)},
    {"top_db", HR__REAL(amplitude_to_db.top_db)},
    {"has_top_db", HR__FLAG(amplitude_to_db.has_top_db)},
    {0},
};
static const struct hr__parameter masking_fields[] = {
    {"mask_param", HR__INTEGER(masking.mask_param)},
    {"p", HR__REAL(masking.p)},
    {0},
};
static const struct hr__sound_operation decibels = {.check = check_decibels,
                                                    .apply = apply_decibels};
static const struct hr__sound_operation frequency = {.check = check_masking,
                                                     .apply = apply_frequency};
static const struct hr__sound_operation time_masking = {.check = check_masking,
                                                        .apply = apply_time};

const struct hr__operation_class hr__class_amplitude_to_db = {.name = "AmplitudeToDB",
                                                              .fields = decibels_fields,
                                                              .defaults = no_defaults,
                                                              .sound = &decibels};
const struct hr__operation_class hr__class_frequency_masking = {.name = "FrequencyMasking",
                                                                .fields = masking_fields,
                                                                .defaults = masking_defaults,
                                                                .sound = &frequency};
const struct hr__operation_class hr__class_time_masking = {.name = "TimeMasking",
                                                           .fields = masking_fields,
                                                           .defaults = masking_defaults,
                                                           .sound = &time_masking};
