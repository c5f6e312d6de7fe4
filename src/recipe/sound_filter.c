/*
 * The filters of Resample and SpeedPerturbation: torchaudio's sinc_interp_hann with 6 zero
 * crossings and a rolloff of 0.99. The kernel is computed in float64 and rounded once. torchaudio's
 * kernel of a phase is as long as a whole period and mostly zeros; this one has only the taps that
 * are none.
 */
#include "recipe/sound.h"

#include "base/error.h"
#include "base/gcd.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>

#define ZERO_CROSSINGS 6
#define ROLLOFF        0.99

static void free_resampler(struct hr__resampler *r)
{
    hr__free(r->first);
    hr__free(r->kernel);
    *r = (struct hr__resampler){0};
}

void hr__resampler_free_all(struct hr__resampler_cache *cache)
{
    for (int i = 0; i < HR__RESAMPLERS; i++)
        free_resampler(&cache->table[i]);
}

size_t hr__resampler_memory(const struct hr__resampler_cache *cache)
{
    size_t bytes = 0;
    for (int i = 0; i < HR__RESAMPLERS; i++) {
        const struct hr__resampler *r = &cache->table[i];
        bytes += (size_t)r->to * (sizeof *r->first + (size_t)r->taps * sizeof *r->kernel);
    }
    return bytes;
}

/* The filter at t zero crossings from its middle. */
static double tap(double t)
{
    if (fabs(t) >= ZERO_CROSSINGS)
        return 0;
    double window = cos(t * M_PI / ZERO_CROSSINGS / 2);
    double sinc = t == 0 ? 1 : sin(t * M_PI) / (t * M_PI);
    return sinc * window * window;
}

static int make_resampler(struct hr__resampler *r, int from, int to)
{
    double base = (from < to ? from : to) * ROLLOFF; /* crossings in a period */
    double reach = ZERO_CROSSINGS * from / base;     /* input frames */
    r->from = from;
    r->to = to;
    r->used = (int)floor(2 * reach) + 1;
    r->taps = (r->used + HR__SOUND_LANES - 1) / HR__SOUND_LANES * HR__SOUND_LANES;
    r->first = hr__alloc(HR__TAG_RECIPE, (size_t)to, sizeof *r->first);
    r->kernel = hr__alloc(HR__TAG_RECIPE, (size_t)to * (size_t)r->taps, sizeof *r->kernel);
    if (!r->first || !r->kernel) {
        free_resampler(r);
        return -ENOMEM;
    }
    for (int p = 0; p < to; p++) {
        double middle = (double)p * from / to;
        int first = (int)ceil(middle - reach);
        r->first[p] = first;
        for (int i = 0; i < r->taps; i++)
            r->kernel[(size_t)p * (size_t)r->taps + (size_t)i] =
                (float)(tap(((double)(first + i) / from - (double)p / to) * base) * base / from);
    }
    return 0;
}

int hr__resampler_get(struct hr__resampler_cache *cache, int from, int to,
                      const struct hr__resampler **out, struct hr_error *error)
{
    int factor = (int)hr__gcd((uint64_t)from, (uint64_t)to);
    from /= factor;
    to /= factor;
    int i = 0, oldest = 0;
    while (i < HR__RESAMPLERS && (cache->table[i].from != from || cache->table[i].to != to)) {
        oldest = cache->used[i] < cache->used[oldest] ? i : oldest;
        i++;
    }
    int is_new = i == HR__RESAMPLERS;
    i = is_new ? oldest : i;
    cache->used[i] = ++cache->uses;
    *out = &cache->table[i];
    if (!is_new)
        return 0;
    free_resampler(&cache->table[i]);
    return make_resampler(&cache->table[i], from, to)
               ? hr__fail(error, -ENOMEM, "out of memory for a filter")
               : 0;
}
