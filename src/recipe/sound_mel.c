/*
 * MelSpectrogram and LogMel: features from waveforms of one channel.
 *
 * The tables (window, roots of unity, mel bands) are computed in float64 when the recipe is
 * created. Bands are torchaudio's and Kaldi's triangles; a band stores only the
 * bins between its feet.
 */
#include "recipe/sound.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Largest transform. */
#define POINTS_MAX (1 << 15)
#define BANDS_MAX  4096
/* Largest prime factor of a transform; sound_kernels.c has room for it. */
#define RADIX_MAX 61

enum { SCALE_HTK, SCALE_SLANEY, SCALE_KALDI };

static double to_mel(double hz, int scale)
{
    if (scale == SCALE_HTK)
        return 2595 * log10(1 + hz / 700);
    if (scale == SCALE_KALDI)
        return 1127 * log(1 + hz / 700);
    return hz < 1000 ? hz * 3 / 200 : 15 + log(hz / 1000) / (log(6.4) / 27);
}

static double to_hz(double mel, int scale)
{
    if (scale == SCALE_HTK)
        return 700 * (pow(10, mel / 2595) - 1);
    return mel < 15 ? mel * 200 / 3 : 1000 * exp((mel - 15) * (log(6.4) / 27));
}

/* Factors n. Returns 0 if a prime factor is too large. */
static int factorise(struct hr__fft *f, int n)
{
    static const int radices[] = {4, 5, 3, 2};
    f->n = n;
    for (size_t i = 0; i < sizeof radices / sizeof *radices; i++)
        for (; n % radices[i] == 0; n /= radices[i])
            f->factor[f->factors++] = radices[i];
    for (int p = 7; p <= RADIX_MAX; p += 2)
        for (; n % p == 0; n /= p)
            f->factor[f->factors++] = p;
    return n == 1;
}

static double *roots(int n, int count)
{
    double *root = hr__alloc(HR__TAG_RECIPE, 2 * (size_t)count, sizeof *root);
    for (int k = 0; root && k < count; k++) {
        root[2 * k] = cos(2 * M_PI * k / n);
        root[2 * k + 1] = -sin(2 * M_PI * k / n);
    }
    return root;
}

void hr__mel_destroy(struct hr__mel **mel)
{
    struct hr__mel *m = *mel;
    *mel = NULL;
    if (!m)
        return;
    for (int b = 0; m->weight && b < m->bands; b++)
        hr__free(m->weight[b]);
    hr__free(m->weight);
    hr__free(m->low);
    hr__free(m->count);
    hr__free(m->window);
    hr__free(m->half.root);
    hr__free(m->root);
    hr__free(m);
}

/* The weight of a bin in the band between three points, on the scale where it is a triangle. */
static double triangle(double at, double left, double middle, double right)
{
    double up = (at - left) / (middle - left), down = (right - at) / (right - middle);
    double v = up < down ? up : down;
    return v > 0 ? v : 0;
}

static double weight_of(const struct hr__mel_wish *w, int band, int bin)
{
    int scale = w->is_kaldi ? SCALE_KALDI : w->is_slaney_scale ? SCALE_SLANEY : SCALE_HTK;
    double low = to_mel(w->low, scale), high = to_mel(w->high, scale);
    double step = (high - low) / (w->bands + 1), hz = (double)bin * (w->rate / 2) / (w->points / 2);
    double point[3];
    for (int i = 0; i < 3; i++)
        point[i] = low + (band + i) * step;
    if (w->is_kaldi)
        return 2 * bin < w->points ? triangle(to_mel(hz, scale), point[0], point[1], point[2]) : 0;
    for (int i = 0; i < 3; i++)
        point[i] = to_hz(point[i], scale);
    double v = triangle(hz, point[0], point[1], point[2]);
    return w->is_slaney_norm ? v * 2 / (point[2] - point[0]) : v;
}

static int make_band(struct hr__mel *m, const struct hr__mel_wish *w, int band)
{
    int bins = m->points / 2 + 1, low = 0, end = bins;
    while (low < bins && weight_of(w, band, low) <= 0)
        low++;
    while (end > low && weight_of(w, band, end - 1) <= 0)
        end--;
    m->low[band] = low;
    m->count[band] = end - low;
    m->weight[band] = hr__alloc(HR__TAG_RECIPE, (size_t)(end - low) + 1, sizeof(double));
    for (int i = low; m->weight[band] && i < end; i++)
        m->weight[band][i - low] = weight_of(w, band, i);
    return m->weight[band] ? 0 : -ENOMEM;
}

static int fill(struct hr__mel *m, const struct hr__mel_wish *w)
{
    m->window = hr__alloc(HR__TAG_RECIPE, (size_t)w->frame, sizeof(double));
    m->low = hr__alloc(HR__TAG_RECIPE, (size_t)w->bands, sizeof(int));
    m->count = hr__alloc(HR__TAG_RECIPE, (size_t)w->bands, sizeof(int));
    m->weight = hr__alloc(HR__TAG_RECIPE, (size_t)w->bands, sizeof *m->weight);
    m->half.root = roots(w->points / 2, w->points / 2);
    m->root = roots(w->points, w->points / 2 + 1);
    if (!m->window || !m->low || !m->count || !m->weight || !m->half.root || !m->root)
        return -ENOMEM;
    for (int i = 0; i < w->frame; i++)
        m->window[i] = w->window[i];
    int r = 0;
    for (int b = 0; b < w->bands && !r; b++)
        r = make_band(m, w, b);
    return r;
}

int hr__mel_create(struct hr__mel **out, const struct hr__mel_wish *wish, struct hr_error *error)
{
    struct hr__mel *m = hr__alloc(HR__TAG_RECIPE, 1, sizeof *m);
    *out = m;
    if (m) {
        m->frame = wish->frame;
        m->hop = wish->hop;
        m->points = wish->points;
        m->center = wish->center;
        m->is_kaldi = wish->is_kaldi;
        m->is_amplitude = wish->is_amplitude;
        m->bands = wish->bands;
        m->logarithm = wish->is_whisper ? 10 : wish->is_kaldi ? 1 : 0;
        m->least = wish->is_kaldi ? 1.1920928955078125e-07f : 1e-10f;
    }
    if (m && !factorise(&m->half, wish->points / 2)) {
        hr__mel_destroy(out);
        return hr__fail(error, -EINVAL,
                        "n_fft = %d has a prime factor above %d: choose another, such as %d",
                        wish->points, RADIX_MAX, (wish->points + 15) / 16 * 16);
    }
    int r = m ? fill(m, wish) : -ENOMEM;
    if (r) {
        hr__mel_destroy(out);
        return hr__fail(error, r, "out of memory for the tables of a spectrogram");
    }
    return 0;
}

/* Makes the tables and turns the state into features. */
static int set_features(struct hr__bound *bound, struct hr__sound_state *state,
                        const struct hr__mel_wish *wish, struct hr_error *error)
{
    if (state->recipe->mel)
        return hr__refuse(error, bound, "the recipe makes features already: leave one out");
    if (state->channels != 1)
        return hr__refuse(error, bound, "features are made of one channel: put Mono before it");
    if (!state->frames)
        return hr__refuse(error, bound,
                          "the sound has no fixed length here: put a RandomWindow, CenterWindow or "
                          "PadOrTrim before it");
    struct hr_error why = {0};
    int r = hr__mel_create(&state->recipe->mel, wish, &why);
    if (r)
        return hr__refuse(error, bound, "%s", why.message);
    int64_t columns = hr__mel_columns(state->recipe->mel, state->frames);
    /* Whisper leaves out the last one. */
    columns -= wish->is_whisper;
    if (columns < 1)
        return hr__refuse(error, bound, "%lld frames are too few for a column of %d",
                          (long long)state->frames, wish->frame);
    state->bands = wish->bands;
    state->frames = columns;
    return 0;
}

static void log_mel_defaults(struct hr_operation *operation)
{
    operation->u.log_mel.n_mels = 80;
}

static int check_log_mel(struct hr__bound *bound, struct hr__sound_state *state,
                         struct hr_error *error)
{
    double window[400];
    int is_kaldi = bound->operation.u.log_mel.style == HR_LOG_MEL_KALDI;
    int bands = bound->operation.u.log_mel.n_mels, r = hr__sound_place(bound, state, 0, error);
    if (!r && bound->operation.u.log_mel.style != HR_LOG_MEL_WHISPER && !is_kaldi)
        r = hr__refuse(error, bound, "the style is unknown: use whisper or kaldi");
    if (!r && (bands < 1 || bands > 256))
        r = hr__refuse(error, bound, "%d bands are not possible: 1 to 256", bands);
    if (!r && !state->rate)
        r = hr__sound_set_rate(bound, state, 16000, error);
    if (!r && state->rate != 16000)
        r = hr__refuse(error, bound, "it needs 16000 Hz and the sound has %d: resample to 16000",
                       state->rate);
    if (r)
        return r;
    for (int i = 0; i < 400; i++)
        window[i] = is_kaldi ? pow(0.5 - 0.5 * cos(2 * M_PI * i / 399), 0.85)
                             : 0.5 - 0.5 * cos(2 * M_PI * i / 400);
    struct hr__mel_wish wish = {.rate = 16000,
                                .frame = 400,
                                .hop = 160,
                                .points = is_kaldi ? 512 : 400,
                                .bands = bands,
                                .center = !is_kaldi,
                                .is_kaldi = is_kaldi,
                                .is_whisper = !is_kaldi,
                                .is_slaney_scale = !is_kaldi,
                                .is_slaney_norm = !is_kaldi,
                                .low = is_kaldi ? 20 : 0,
                                .high = 8000,
                                .window = window};
    return set_features(bound, state, &wish, error);
}

static void apply_log_mel(const struct hr__bound *bound, struct hr__random *random, float *features,
                          int bands, int columns)
{
    if (bound->operation.u.log_mel.style == HR_LOG_MEL_WHISPER)
        hr__sound_kernels(hr__isa())->whisper(features, (size_t)bands * (size_t)columns);
}

static void mel_defaults(struct hr_operation *operation)
{
    operation->u.mel_spectrogram.sample_rate = 16000;
    operation->u.mel_spectrogram.n_fft = 400;
    operation->u.mel_spectrogram.n_mels = 128;
    operation->u.mel_spectrogram.power = 2;
    operation->u.mel_spectrogram.center = 1;
}

static int check_mel_sizes(const struct hr__bound *bound, const struct hr__mel_wish *w, int window,
                           struct hr_error *error)
{
    if (w->points < 2 || w->points > POINTS_MAX || w->points % 2)
        return hr__refuse(error, bound, "n_fft = %d is not possible: an even number up to %d",
                          w->points, POINTS_MAX);
    if (window < 1 || window > w->points)
        return hr__refuse(error, bound, "win_length = %d is not possible: 1 to n_fft = %d", window,
                          w->points);
    if (w->hop < 1)
        return hr__refuse(error, bound, "hop_length = %d is not possible: at least 1", w->hop);
    if (w->bands < 1 || w->bands > BANDS_MAX)
        return hr__refuse(error, bound, "n_mels = %d is not possible: 1 to %d", w->bands,
                          BANDS_MAX);
    if (!(w->low >= 0 && w->low < w->high && w->high <= w->rate / 2.0))
        return hr__refuse(error, bound,
                          "frequencies from %g to %g Hz are not possible: f_min must be below "
                          "f_max, and f_max at most half of the rate",
                          w->low, w->high);
    return 0;
}

static int check_mel(struct hr__bound *bound, struct hr__sound_state *state, struct hr_error *error)
{
    double window[POINTS_MAX] = {0};
    struct hr__mel_wish wish = {.rate = bound->operation.u.mel_spectrogram.sample_rate,
                                .frame = bound->operation.u.mel_spectrogram.n_fft,
                                .points = bound->operation.u.mel_spectrogram.n_fft,
                                .bands = bound->operation.u.mel_spectrogram.n_mels,
                                .center = bound->operation.u.mel_spectrogram.center,
                                .is_slaney_scale = bound->operation.u.mel_spectrogram.mel_scale,
                                .is_slaney_norm = bound->operation.u.mel_spectrogram.norm,
                                .low = bound->operation.u.mel_spectrogram.f_min,
                                .window = window};
    double high = bound->operation.u.mel_spectrogram.f_max;
    double power = bound->operation.u.mel_spectrogram.power;
    int length = bound->operation.u.mel_spectrogram.win_length;
    int r = hr__sound_place(bound, state, 0, error);
    length = length ? length : wish.points;
    wish.hop = bound->operation.u.mel_spectrogram.hop_length;
    wish.hop = wish.hop ? wish.hop : length / 2;
    wish.high = high != 0 ? high : wish.rate / 2; /* rounded down, as torchaudio's */
    wish.is_amplitude = power < 2;
    if (!r && power != 1 && power != 2)
        r = hr__refuse(error, bound, "power = %g is not possible: 1 or 2", power);
    if (!r && !state->rate)
        r = hr__sound_set_rate(bound, state, wish.rate, error);
    if (!r && state->rate != wish.rate)
        r = hr__refuse(error, bound,
                       "its sample_rate is %d and the sound has %d Hz: make them equal", wish.rate,
                       state->rate);
    if (!r)
        r = check_mel_sizes(bound, &wish, length, error);
    for (int i = 0; i < length && !r; i++)
        window[(wish.points - length) / 2 + i] = 0.5 - 0.5 * cos(2 * M_PI * i / length);
    return r ? r : set_features(bound, state, &wish, error);
}

/* The features themselves are made before the operations on features run. */
static int plan_nothing(const struct hr__bound *bound, struct hr__random *random,
                        struct hr__sound_scratch *scratch, struct hr_error *error)
{
    return hr__sound_cut_now(&scratch->plan, error);
}

static const char *const style_words[] = {
    [HR_LOG_MEL_WHISPER] = "whisper", [HR_LOG_MEL_KALDI] = "kaldi", NULL};
static const char *const scale_words[] = {"htk", "slaney", NULL};
static const char *const norm_words[] = {"none", "slaney", NULL};
static const struct hr__parameter log_mel_fields[] = {
    {"style", HR__WORD(log_mel.style, style_words)},
    {"n_mels", HR__INTEGER(log_mel.n_mels)},
    {0},
};
static const struct hr__parameter mel_fields[] = {
    {"sample_rate", HR__INTEGER(mel_spectrogram.sample_rate)},
    {"n_fft", HR__INTEGER(mel_spectrogram.n_fft)},
    {"win_length", HR__INTEGER(mel_spectrogram.win_length)},
    {"hop_length", HR__INTEGER(mel_spectrogram.hop_length)},
    {"n_mels", HR__INTEGER(mel_spectrogram.n_mels)},
    {"f_min", HR__REAL(mel_spectrogram.f_min)},
    {"f_max", HR__REAL(mel_spectrogram.f_max)},
    {"power", HR__REAL(mel_spectrogram.power)},
    {"center", HR__FLAG(mel_spectrogram.center)},
    {"norm", HR__WORD(mel_spectrogram.norm, norm_words)},
    {"mel_scale", HR__WORD(mel_spectrogram.mel_scale, scale_words)},
    {0},
};
static const struct hr__sound_operation log_mel = {
    .check = check_log_mel, .plan = plan_nothing, .apply = apply_log_mel};
static const struct hr__sound_operation mel_spectrogram = {.check = check_mel,
                                                           .plan = plan_nothing};

const struct hr__operation_class hr__class_log_mel = {
    .name = "LogMel", .fields = log_mel_fields, .defaults = log_mel_defaults, .sound = &log_mel};
const struct hr__operation_class hr__class_mel_spectrogram = {.name = "MelSpectrogram",
                                                              .fields = mel_fields,
                                                              .defaults = mel_defaults,
                                                              .sound = &mel_spectrogram};
