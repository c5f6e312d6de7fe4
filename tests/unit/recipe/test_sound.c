/*
 * Recipes of sounds: windows against the whole sound resampled, filters and features against the
 * same in float64, all instruction sets against each other, and the message of every refusal. The
 * clips are WAV files made here.
 */
#include "recipe_cases.h"

#include "recipe/sound.h"

#include <headrace/form.h>
#include <headrace/prepare.h>

#define CLIP_MAX 300000

static uint8_t file[CLIP_MAX * 8 + 64];
static float clip[2][CLIP_MAX], made[CLIP_MAX * 2], other[CLIP_MAX * 2];
static struct hr_preparer *preparer;

static int set_up(void **state)
{
    return hr_preparer_create(&preparer, NULL);
}

static int tear_down(void **state)
{
    hr_preparer_destroy(&preparer);
    return 0;
}

static void put(uint8_t **at, uint32_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(v >> 8 * i);
}

/* Makes a clip of tones and noise as a WAV file of floats. Returns its length. */
static size_t make_clip(int rate, int channels, int frames)
{
    uint8_t *at = file;
    uint32_t noise = 1;
    memcpy(at, "RIFF\0\0\0\0WAVEfmt ", 16);
    at += 16;
    put(&at, 16, 4);
    put(&at, 3, 2);
    put(&at, (uint32_t)channels, 2);
    put(&at, (uint32_t)rate, 4);
    put(&at, (uint32_t)(rate * channels * 4), 4);
    put(&at, (uint32_t)channels * 4, 2);
    put(&at, 32, 2);
    memcpy(at, "data", 4);
    at += 4;
    put(&at, (uint32_t)(frames * channels * 4), 4);
    for (int i = 0; i < frames; i++)
        for (int c = 0; c < channels; c++) {
            double t = (double)i / rate, v = 0.4 * sin(2 * M_PI * (220 + 110 * c) * t);
            noise = noise * 1664525u + 1013904223u;
            v += 0.2 * sin(2 * M_PI * 1870 * t * (1 + 0.2 * t)) + noise / 4294967296.0 * 0.2 - 0.1;
            clip[c][i] = (float)v;
            memcpy(at, &clip[c][i], 4);
            at += 4;
        }
    return (size_t)(at - file);
}

static struct hr_recipe *sounds_of(const struct hr_operation *list, size_t count)
{
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    if (hr_recipe_create(&recipe, list, count, NULL, &error))
        fail_msg("%s", error.message);
    return recipe;
}

static size_t run_list(const struct hr_operation *list, size_t count, size_t length, uint64_t index,
                       float *out)
{
    struct hr_error error = {0};
    struct hr_recipe *recipe = sounds_of(list, count);
    struct hr_tensor_spec spec;
    struct hr_draw_key key = {1, 2, index};
    hr_recipe_output(recipe, &spec);
    assert_true(spec.bytes <= sizeof made);
    assert_int_equal(spec.dims, 2);
    memset(out, 0xFF, spec.bytes);
    if (hr_preparer_run(preparer, recipe, file, length, &key, out, &error))
        fail_msg("%s", error.message);
    hr_recipe_unref(&recipe);
    return spec.bytes / sizeof *out;
}

static struct hr_operation window(enum hr_operation_kind kind, double seconds)
{
    struct hr_operation o = op(kind);
    o.u.sound_window.seconds = seconds;
    return o;
}

static struct hr_operation cut(int frames)
{
    struct hr_operation o = op(HR_PAD_OR_TRIM);
    o.u.pad_or_trim.frames = frames;
    return o;
}

static struct hr_operation to_rate(int rate)
{
    struct hr_operation o = op(HR_RESAMPLE);
    o.u.sound_resample.new_freq = rate;
    return o;
}

/* torchaudio's definition, with all taps, in float64. */
static double resampled(const float *x, int64_t n, int from, int to, int64_t frame)
{
    double base = (from < to ? from : to) * 0.99, sum = 0;
    int64_t q = frame / to, p = frame % to;
    int width = (int)ceil(6.0 * from / base), middle = (int)(p * from / to);
    for (int j = middle - width; j <= middle + 1 + width; j++) {
        double t = ((double)j / from - (double)p / to) * base;
        int64_t i = q * from + j;
        if (t <= -6 || t >= 6 || i < 0 || i >= n)
            continue;
        double c = cos(t * M_PI / 12);
        sum += (t == 0 ? 1 : sin(t * M_PI) / (t * M_PI)) * c * c * base / from * (double)x[i];
    }
    return sum;
}

static void test_resample(void **state)
{
    static const int rates[][2] = {{44100, 16000}, {16000, 44100}, {48000, 16000},
                                   {22050, 16000}, {8000, 16000},  {44100, 8000},
                                   {44100, 16001}, {16001, 44100}, {191999, 8001}};
    for (size_t k = 0; k < sizeof rates / sizeof *rates; k++) {
        int from = rates[k][0], to = rates[k][1], n = 20011, a = from, b = to;
        while (b) {
            int rest = a % b;
            a = b;
            b = rest;
        }
        size_t length = make_clip(from, 1, n);
        int64_t frames = ((int64_t)n * to + from - 1) / from;
        struct hr_operation list[] = {op(HR_MONO), to_rate(to), cut((int)frames + 100)};
        double worst = 0;
        run_list(list, 3, length, 0, made);
        for (int64_t i = 0; i < frames; i++)
            worst = fmax(worst, fabs((double)made[i] - resampled(clip[0], n, from / a, to / a, i)));
        if (worst > 2e-7)
            fail_msg("%d to %d Hz: %g from float64", from, to, worst);
        for (int64_t i = frames; i < frames + 100; i++)
            assert_true(made[i] == 0);
    }
}

/* A window before Resample is a part of the whole sound, resampled, bit for bit. */
static void test_windows(void **state)
{
    int n = 88211, rate = 44100;
    size_t length = make_clip(rate, 2, n);
    int64_t frames = ((int64_t)n * 16000 + rate - 1) / rate;
    struct hr_operation whole[] = {op(HR_MONO), to_rate(16000), cut((int)frames)};
    run_list(whole, 3, length, 0, other);
    int64_t lowest = frames, highest = 0;
    for (uint64_t index = 0; index < 40; index++) {
        struct hr_operation list[] = {window(HR_RANDOM_WINDOW, 0.5), op(HR_MONO), to_rate(16000)};
        assert_int_equal(run_list(list, 3, length, index, made), 8000);
        int64_t first = 0;
        while (first <= frames - 8000 && memcmp(made, other + first, 8000 * sizeof *made))
            first++;
        assert_true(first <= frames - 8000);
        lowest = first < lowest ? first : lowest;
        highest = first > highest ? first : highest;
    }
    assert_true(lowest < (frames - 8000) / 8 && highest > (frames - 8000) * 7 / 8);
    struct hr_operation center[] = {window(HR_CENTER_WINDOW, 0.25), op(HR_MONO), to_rate(16000)};
    assert_int_equal(run_list(center, 3, length, 0, made), 4000);
    assert_memory_equal(made, other + (frames - 4000 + 1) / 2, 4000 * sizeof *made);
    /* A longer window has the whole sound and zeros. */
    struct hr_operation longer[] = {window(HR_RANDOM_WINDOW, 3), op(HR_MONO), to_rate(16000)};
    assert_int_equal(run_list(longer, 3, length, 0, made), 48000);
    assert_memory_equal(made, other, (size_t)frames * sizeof *made);
    assert_true(made[frames] == 0 && made[47999] == 0);
}

/* A file that is resampled while it is read, block by block, gives the bits of all of it at once:
 * what is cut first is read whole. */
static void test_blocks(void **state)
{
    static const double factors[] = {0.9, 1.1, 2.5, 0.37};
    int n = 40001;
    size_t length = make_clip(44100, 2, n);
    struct hr_operation speed = op(HR_SPEED_PERTURBATION), gain = op(HR_GAIN),
                        two = op(HR_CHANNELS);
    speed.u.speed.count = 1;
    two.u.channels.count = 2;
    gain.u.gain.min_gain_in_db = gain.u.gain.max_gain_in_db = -3;
    gain.u.gain.p = 1;
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        speed.u.speed.factors[0] = factors[i];
        for (int is_mono = 0; is_mono < 2; is_mono++) {
            struct hr_operation first = is_mono ? op(HR_MONO) : two;
            struct hr_operation blocks[] = {first, gain, speed, cut(50000)};
            struct hr_operation whole[] = {first, gain, cut(n), speed, cut(50000)};
            size_t count = run_list(blocks, 4, length, 0, made);
            assert_int_equal(run_list(whole, 5, length, 0, other), count);
            assert_memory_equal(made, other, count * sizeof *made);
        }
    }
}

/* What was cut off stays cut off: a later operation sees zeros there. */
static void test_cuts(void **state)
{
    size_t length = make_clip(16000, 1, 5000);
    struct hr_operation longer[] = {op(HR_MONO), cut(100), cut(300)};
    assert_int_equal(run_list(longer, 3, length, 0, made), 300);
    assert_memory_equal(made, clip[0], 100 * sizeof *made);
    for (int i = 100; i < 300; i++)
        assert_true(made[i] == 0);
    struct hr_operation faster[] = {op(HR_MONO), cut(1000), op(HR_SPEED_PERTURBATION), cut(1200)};
    faster[2].u.speed.factors[0] = 0.9;
    faster[2].u.speed.count = 1;
    run_list(faster, 4, length, 0, made);
    for (int i = 0; i < 1200; i++) {
        double expected = i < 1112 ? resampled(clip[0], 1000, 9, 10, i) : 0;
        assert_true(fabs(made[i] - expected) < 1e-6);
    }
}

static void test_channels(void **state)
{
    size_t length = make_clip(16000, 2, 5000);
    struct hr_operation two = op(HR_CHANNELS), gain = op(HR_GAIN), window_only;
    two.u.channels.count = 2;
    struct hr_operation list[] = {two, cut(6000)};
    assert_int_equal(run_list(list, 2, length, 0, made), 12000);
    assert_memory_equal(made, clip[0], 5000 * sizeof *made);
    assert_memory_equal(made + 6000, clip[1], 5000 * sizeof *made);
    assert_true(made[5000] == 0 && made[11999] == 0);
    gain.u.gain.min_gain_in_db = gain.u.gain.max_gain_in_db = -20;
    gain.u.gain.p = 1;
    struct hr_operation quiet[] = {op(HR_MONO), gain, cut(5000)};
    run_list(quiet, 3, length, 0, made);
    for (int i = 0; i < 5000; i++)
        assert_true(made[i] == (clip[0][i] + clip[1][i]) / 2 * 0.1f);
    /* Without Resample, a fixed rate has to be that of the clip. */
    window_only = window(HR_RANDOM_WINDOW, 0.1);
    struct hr_operation features[] = {window_only, op(HR_MONO), op(HR_LOG_MEL)};
    assert_int_equal(run_list(features, 3, length, 0, made), 80 * 10);
    length = make_clip(22050, 2, 5000);
    struct hr_recipe *recipe = sounds_of(features, 3);
    struct hr_draw_key key = {0};
    struct hr_error error = {0};
    assert_int_equal(hr_preparer_run(preparer, recipe, file, length, &key, made, &error), -EBADMSG);
    assert_non_null(strstr(error.message, "22050 Hz and the recipe needs 16000"));
    hr_recipe_unref(&recipe);
    recipe = sounds_of((struct hr_operation[]){two, cut(100)}, 2);
    length = make_clip(16000, 1, 500);
    assert_int_equal(hr_preparer_run(preparer, recipe, file, length, &key, made, &error), -EBADMSG);
    assert_non_null(strstr(error.message, "1 channels"));
    hr_recipe_unref(&recipe);
    window_only.u.sound_window.pad = 0;
    recipe = sounds_of((struct hr_operation[]){window_only, op(HR_MONO), to_rate(16000)}, 3);
    assert_int_equal(hr_preparer_run(preparer, recipe, file, length, &key, made, &error), -EBADMSG);
    assert_non_null(strstr(error.message, "shorter than the window"));
    hr_recipe_unref(&recipe);
    struct hr_recipe_options options;
    hr_recipe_options_default(&options);
    options.max_source_bytes = 100;
    struct hr_operation small[] = {op(HR_MONO), cut(10)};
    assert_int_equal(hr_recipe_create(&recipe, small, 2, &options, &error), 0);
    assert_int_equal(hr_preparer_run(preparer, recipe, file, length, &key, made, &error), -EFBIG);
    assert_non_null(strstr(error.message, "max_source_bytes of 100"));
    hr_recipe_unref(&recipe);
    /* The limit is of files: the waveform of one within it may be larger. */
    const struct hr_sound_head head = {0};
    struct hr_item item;
    options.max_source_bytes = length;
    assert_int_equal(hr_recipe_create(&recipe, small, 2, &options, &error), 0);
    assert_int_equal(
        hr_preparer_waveform(preparer, HR_FORM_WAVEFORM, &head, file, length, &item, &error), 0);
    assert_true(item.length > length);
    if (hr_preparer_run(preparer, recipe, item.bytes, item.length, &key, made, &error))
        fail_msg("%s", error.message);
    hr_recipe_unref(&recipe);
}

static double slaney(double mel)
{
    return mel < 15 ? mel * 200 / 3 : 1000 * exp((mel - 15) * log(6.4) / 27);
}

/* Whisper's log-mel spectrogram in float64: 80 bands, columns of 400 every 160. */
static void whisper(const float *x, int n, double *out, int columns)
{
    double top = 15 + log(8.0) / (log(6.4) / 27), most = -100;
    for (int t = 0; t < columns; t++) {
        double power[201];
        for (int k = 0; k <= 200; k++) {
            double re = 0, im = 0;
            for (int i = 0; i < 400; i++) {
                int at = t * 160 + i - 200;
                at = at < 0 ? -at : at;
                at = at < n ? at : 2 * (n - 1) - at;
                double v = (double)x[at] * (0.5 - 0.5 * cos(2 * M_PI * i / 400));
                re += v * cos(2 * M_PI * (i * k % 400) / 400);
                im += v * sin(2 * M_PI * (i * k % 400) / 400);
            }
            power[k] = re * re + im * im;
        }
        for (int b = 0; b < 80; b++) {
            double p[3], sum = 0;
            for (int i = 0; i < 3; i++)
                p[i] = slaney(top * (b + i) / 81);
            for (int k = 0; k <= 200; k++) {
                double w = fmin((k * 40 - p[0]) / (p[1] - p[0]), (p[2] - k * 40) / (p[2] - p[1]));
                sum += w > 0 ? w * 2 / (p[2] - p[0]) * power[k] : 0;
            }
            out[b * columns + t] = log10(fmax(sum, 1e-10));
            most = fmax(most, out[b * columns + t]);
        }
    }
    for (int i = 0; i < 80 * columns; i++)
        out[i] = (fmax(out[i], most - 8) + 4) / 4;
}

static void test_log_mel(void **state)
{
    static double expected[80 * 37];
    size_t length = make_clip(16000, 1, 37 * 160);
    struct hr_operation list[] = {cut(37 * 160), op(HR_MONO), op(HR_LOG_MEL)};
    assert_int_equal(run_list(list, 3, length, 0, made), 80 * 37);
    whisper(clip[0], 37 * 160, expected, 37);
    double worst = 0;
    for (int i = 0; i < 80 * 37; i++)
        if (fabs((double)made[i] - expected[i]) > worst) /* gcc 12 for ARM fails over fmax here */
            worst = fabs((double)made[i] - expected[i]);
    if (!(worst < 2e-6))
        fail_msg("log-mel: %g from float64", worst);
    print_message("log-mel: %g from float64\n", worst);
}

/* The kernels that work on waveforms. */
static void compare_waves(const struct hr__sound_kernels *a, const struct hr__sound_kernels *b)
{
    struct hr__resampler_cache cache = {0};
    const struct hr__resampler *r;
    static const int to[] = {16000, 8000, 48000, 88200, 14700, 4410, 96001};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        assert_int_equal(hr__resampler_get(&cache, 44100, to[i], &r, NULL), 0);
        struct hr__resampling all = {.in = clip[0], .first = to[i] / 400};
        all.count = (int64_t)39000 * to[i] / 44100 - all.first;
        a->resample(r, &all, made);
        b->resample(r, &all, other);
        assert_memory_equal(made, other, (size_t)all.count * sizeof *made);
        /* A part has the same frames as the whole, and memory that comes next changes nothing. */
        for (int n = 7; n < all.count - 1011; n += test_is_slow() ? 11997 : 2997) {
            struct hr__resampling part = {clip[0], 0, all.first + 1011, n, file, (size_t)n};
            b->resample(r, &part, other);
            assert_memory_equal(made + 1011, other, (size_t)n * sizeof *made);
        }
    }
    hr__resampler_free_all(&cache);
    memcpy(made, clip[0], 1003 * sizeof *made);
    memcpy(other, clip[0], 1003 * sizeof *made);
    a->mix(made, clip[0] + 1003, 1003, 0.5f);
    b->mix(other, clip[0] + 1003, 1003, 0.5f);
    assert_memory_equal(made, other, 1003 * sizeof *made);
    assert_true(made[1002] == (clip[0][1002] + clip[0][2005]) / 2);
}

/* The kernels that work on features. */
static void compare_features(const struct hr__sound_kernels *a, const struct hr__sound_kernels *b)
{
    static const int points[] = {400, 512, 2 * 7 * 9 * 11, 2 * 61, 1024, 600};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        double ones[2048];
        for (int k = 0; k < points[i]; k++)
            ones[k] = 1;
        struct hr__mel_wish wish = {.rate = 16000,
                                    .frame = points[i],
                                    .hop = points[i] / 3,
                                    .points = points[i],
                                    .bands = 41, /* no multiple of four */
                                    .center = 1,
                                    .is_whisper = 1,
                                    .high = 8000,
                                    .window = ones};
        struct hr__mel *mel;
        assert_int_equal(hr__mel_create(&mel, &wish, NULL), 0);
        int columns = (int)hr__mel_columns(mel, 20000);
        double *work = hr__alloc_aligned(HR__TAG_RECIPE, hr__mel_work(mel) * sizeof(double), 0);
        for (int t = 0; t < columns; t += 8) {
            a->mel(mel, clip[0], 20000, t, columns, work, made);
            b->mel(mel, clip[0], 20000, t, columns, work, other);
        }
        assert_memory_equal(made, other, 41 * (size_t)columns * sizeof *made);
        hr__free(work);
        hr__mel_destroy(&mel);
    }
    memcpy(made, clip[0], 1003 * sizeof *made);
    memcpy(other, clip[0], 1003 * sizeof *made);
    a->decibels(made, 1003, 10, 1e-10f);
    b->decibels(other, 1003, 10, 1e-10f);
    assert_memory_equal(made, other, 1003 * sizeof *made);
    for (int i = 0; i < 1003; i++)
        assert_true(fabs((double)made[i] - 10 * log10(fmax((double)clip[0][i], 1e-10))) < 1e-5);
    memcpy(made, clip[0], 1003 * sizeof *made);
    memcpy(other, clip[0], 1003 * sizeof *made);
    made[1001] = other[1001] = 9; /* a greatest number behind the last whole vector */
    a->whisper(made, 1003);
    b->whisper(other, 1003);
    assert_memory_equal(made, other, 1003 * sizeof *made);
    assert_true(made[1001] == 13 * 0.25f && made[0] == (fmaxf(clip[0][0], 1) + 4) * 0.25f);
}

/* The kernels of all instruction sets give the same bits. */
static void test_kernels(void **state)
{
    make_clip(16000, 1, 40000);
    for (int isa = HR__ISA_PORTABLE + 1; isa <= (int)hr__isa(); isa++) {
        const struct hr__sound_kernels *kernels = hr__sound_kernels((enum hr__isa)isa);
        compare_waves(&hr__sound_kernels_portable, kernels);
        compare_features(&hr__sound_kernels_portable, kernels);
    }
}

static void test_features(void **state)
{
    size_t length = make_clip(16000, 1, 16000);
    struct hr_operation mel = op(HR_MEL_SPECTROGRAM), mask = op(HR_FREQUENCY_MASKING);
    mel.u.mel_spectrogram.n_mels = 64;
    mask.u.masking.mask_param = 20;
    struct hr_operation time_mask = op(HR_TIME_MASKING);
    time_mask.u.masking.mask_param = 20;
    struct hr_operation list[] = {cut(16000), op(HR_MONO), mel, op(HR_AMPLITUDE_TO_DB),
                                  mask,       time_mask};
    assert_int_equal(run_list(list, 4, length, 3, other), 64 * 81);
    int widest = 0, longest = 0;
    for (uint64_t index = 0; index < 30; index++) {
        int rows = 0, columns = 0;
        run_list(list, 6, length, index, made);
        for (int b = 0; b < 64; b++) {
            int zeros = 0;
            for (int t = 0; t < 81; t++) {
                float v = made[b * 81 + t];
                assert_true(v == 0 || v == other[b * 81 + t]);
                zeros += v == 0;
            }
            rows += zeros == 81;
            columns = zeros < 81 ? zeros : columns;
        }
        widest = rows > widest ? rows : widest;
        longest = columns > longest ? columns : longest;
    }
    assert_true(widest >= 12 && widest < 20 && longest >= 12 && longest < 20);
    /* Slower, faster: the length changes, and PadOrTrim fixes it. */
    struct hr_operation speed = op(HR_SPEED_PERTURBATION);
    speed.u.speed.count = 1;
    struct hr_operation slow[] = {op(HR_MONO), speed, cut(20000)};
    run_list(slow, 3, length, 0, made);
    double worst = 0;
    for (int i = 0; i < 17778; i++)
        worst = fmax(worst, fabs((double)made[i] - resampled(clip[0], 16000, 9, 10, i)));
    assert_true(worst < 2e-7 && made[17778] == 0);
}

static void refused(const struct hr_operation *operations, size_t count, const char *words)
{
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    int r = hr_recipe_create(&recipe, operations, count, NULL, &error);
    if (r != -EINVAL || !strstr(error.message, words))
        fail_msg("expected \"%s\", got %d \"%s\"", words, r, error.message);
}

static void test_refusals(void **state)
{
    struct hr_operation w = window(HR_RANDOM_WINDOW, 1), mono = op(HR_MONO), rate = to_rate(16000);
    struct hr_operation mel = op(HR_LOG_MEL), bad;
#define REFUSED(words, ...)                                                                        \
    do {                                                                                           \
        struct hr_operation list_[] = {__VA_ARGS__};                                               \
        refused(list_, sizeof list_ / sizeof *list_, words);                                       \
    } while (0)
    REFUSED("add a Resample", w, mono);
    REFUSED("needs a RandomWindow", mono, rate);
    REFUSED("add Mono, or Channels", w, rate);
    REFUSED("Resize (operation 2 of the recipe): it is of images", mono, sized(HR_RESIZE, 9, 9));
    REFUSED("Mono (operation 2 of the recipe): it is of sounds", sized(HR_RESIZE, 9, 9), mono);
    REFUSED("put Mono before it", w, mel);
    REFUSED("no fixed length here", mono, rate, mel);
    REFUSED("resample to 16000", mono, w, to_rate(8000), mel);
    REFUSED("put it before the operation that makes features", w, mono, mel, rate);
    REFUSED("put a MelSpectrogram or LogMel before it", w, mono, op(HR_AMPLITUDE_TO_DB), mel);
    REFUSED("a window before it already", w, w, mono, rate);
    REFUSED("cut already", mono, cut(100), rate);
    REFUSED("too few for a column", mono, cut(100), mel);
    REFUSED("8000 to 192000", mono, to_rate(7999), w);
    REFUSED("not possible: at least 1", mono, cut(0));
    REFUSED("a window of nan", window(HR_RANDOM_WINDOW, (double)NAN), mono);
    bad = op(HR_MEL_SPECTROGRAM);
    bad.u.mel_spectrogram.n_fft = 2 * 67;
    REFUSED("prime factor", w, mono, bad);
    bad.u.mel_spectrogram.n_fft = 401;
    REFUSED("even number", w, mono, bad);
    bad = op(HR_MEL_SPECTROGRAM);
    bad.u.mel_spectrogram.sample_rate = 8000;
    REFUSED("sample_rate is 8000 and the sound has 16000 Hz", w, mono, rate, bad);
    bad = op(HR_SPEED_PERTURBATION);
    bad.u.speed.factors[0] = 0.901234;
    REFUSED("hundredths", mono, bad, cut(10));
    REFUSED("fixed length", mono, rate, w, op(HR_SPEED_PERTURBATION));
}

/* Makes an item of the file and copies it behind itself, so that the preparer may be used. */
static struct hr_item item_of(size_t length, enum hr_form form, int mono, int rate)
{
    static uint8_t items[CLIP_MAX * 8 + 256];
    const struct hr_sound_head head = {mono, rate};
    struct hr_error error = {0};
    struct hr_item item;
    if (hr_preparer_waveform(preparer, form, &head, file, length, &item, &error))
        fail_msg("%s", error.message);
    assert_true(item.length <= sizeof items && item.form == form);
    assert_int_equal(hr_form_of(item.bytes, item.length), form);
    memcpy(items, item.bytes, item.length);
    item.bytes = items;
    return item;
}

/* Runs a recipe on the clip and on an item; the results are equal if the item suits. Returns the
 * result of the run on the item. */
static int compare(const struct hr_operation *list, size_t count, size_t length,
                   const struct hr_item *item, const char *words)
{
    struct hr_recipe *recipe = sounds_of(list, count);
    struct hr_error error = {0};
    int r = 0;
    for (uint64_t index = 0; index < 20 && !r; index++) {
        struct hr_draw_key key = {3, 1, index};
        size_t numbers = run_list(list, count, length, index, made);
        assert_int_equal(hr_preparer_run(preparer, recipe, file, length, &key, made, NULL), 0);
        r = hr_preparer_run(preparer, recipe, item->bytes, item->length, &key, other, &error);
        if (!r)
            assert_memory_equal(made, other, numbers * sizeof *made);
    }
    if (r && !(words && strstr(error.message, words)))
        fail_msg("%s", error.message);
    hr_recipe_unref(&recipe);
    return r;
}

/* An item gives what its file gives, bit for bit, to each recipe that begins with its head. */
static void test_waveforms(void **state)
{
    struct hr_operation w = window(HR_RANDOM_WINDOW, 0.5), mono = op(HR_MONO), speed, gain, two;
    struct hr_operation to16 = to_rate(16000), mel = op(HR_LOG_MEL);
    speed = op(HR_SPEED_PERTURBATION);
    gain = op(HR_GAIN);
    two = op(HR_CHANNELS);
    two.u.channels.count = 2;
    struct hr_operation features[] = {w, mono, to16, mel};
    struct hr_operation later[] = {mono, to16, w, gain};
    struct hr_operation fast[] = {mono, to16, speed, gain, cut(4000)};
    struct hr_operation longer[] = {window(HR_RANDOM_WINDOW, 4), two, to16};
    struct hr_operation mixed_last[] = {w, to16, mono};
    struct hr_operation raw[] = {two, cut(5000)};
    static const int rates[] = {44100, 16000, 8000};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        size_t length = make_clip(rates[i], 2, 70003);
        struct hr_item item = item_of(length, HR_FORM_WAVEFORM, 1, 16000);
        assert_int_equal(compare(features, 4, length, &item, NULL), 0);
        assert_int_equal(compare(later, 4, length, &item, NULL), 0);
        assert_int_equal(compare(fast, 5, length, &item, NULL), 0);
        assert_int_equal(compare(longer, 3, length, &item, "after Mono()"), -EINVAL);
        if (rates[i] != 16000)
            assert_int_equal(compare(mixed_last, 3, length, &item,
                                     "after Mono(), Resample(new_freq=16000), which the recipe"),
                             -EINVAL);
        item = item_of(length, HR_FORM_WAVEFORM, 0, 16000);
        assert_int_equal(compare(longer, 3, length, &item, NULL), 0);
        assert_int_equal(compare(mixed_last, 3, length, &item, NULL), 0);
        if (rates[i] != 16000)
            assert_int_equal(compare(features, 4, length, &item, "which the recipe"), -EINVAL);
        /* The sound as it is suits all recipes. */
        item = item_of(length, HR_FORM_WAVEFORM, 0, 0);
        assert_int_equal(compare(features, 4, length, &item, NULL), 0);
        assert_int_equal(compare(longer, 3, length, &item, NULL), 0);
        assert_int_equal(compare(mixed_last, 3, length, &item, NULL), 0);
        assert_int_equal(compare(raw, 2, length, &item, NULL), 0);
    }
    struct hr_sound_head head;
    struct hr_recipe *recipe = sounds_of(features, 4);
    assert_true(!hr_recipe_sound_head(recipe, &head) && head.mono && head.rate == 16000);
    hr_recipe_unref(&recipe);
    recipe = sounds_of(mixed_last, 3);
    assert_true(!hr_recipe_sound_head(recipe, &head) && !head.mono && head.rate == 16000);
    hr_recipe_unref(&recipe);
}

/* The memory of a preparer includes its filters. */
static void test_memory(void **state)
{
    struct hr_operation first[] = {op(HR_MONO), to_rate(16000), cut(9000)};
    struct hr_operation second[] = {op(HR_MONO), to_rate(44100), cut(900)};
    hr_preparer_destroy(&preparer);
    assert_int_equal(hr_preparer_create(&preparer, NULL), 0);
    run_list(first, 3, make_clip(44100, 1, 30000), 0, made);
    size_t before = hr_preparer_memory(preparer), length = make_clip(48000, 1, 1000);
    run_list(second, 3, length, 0, made);
    size_t filter = 147 * (16 * sizeof(float) + sizeof(int64_t));
    assert_int_equal(hr_preparer_memory(preparer) - before, filter);
    run_list(second, 3, length, 0, made);
    assert_int_equal(hr_preparer_memory(preparer) - before, filter);
    /* What a large item took is free when the preparer is used again. */
    const struct hr_sound_head raised = {.rate = 192000};
    size_t large = 24u * CLIP_MAX * sizeof(float);
    for (int converts = 0; converts < 2; converts++) {
        struct hr_item item;
        length = make_clip(8000, 1, CLIP_MAX);
        assert_int_equal(
            hr_preparer_waveform(preparer, HR_FORM_WAVEFORM, &raised, file, length, &item, NULL),
            0);
        before = hr_preparer_memory(preparer);
        assert_true(before > large);
        length = make_clip(48000, 1, 1000);
        if (converts)
            item_of(length, HR_FORM_WAVEFORM, 0, 0);
        else
            run_list(second, 3, length, 0, made);
        assert_true(hr_preparer_memory(preparer) < before - large + (1 << 20));
    }
}

/* How much of a sample is of its sound, with the recipe's option `padded`. */
static void test_lengths(void **state)
{
    struct hr_operation speed = op(HR_SPEED_PERTURBATION), kaldi = op(HR_LOG_MEL);
    struct hr_operation mel = op(HR_MEL_SPECTROGRAM), last = op(HR_TIME_MASKING);
    speed.u.speed.factors[0] = 0.5;
    speed.u.speed.count = 1;
    kaldi.u.log_mel.style = HR_LOG_MEL_KALDI;
    const struct {
        struct hr_operation list[4];
        int rate, frames, expected;
    } cases[] = {
        {{op(HR_MONO), to_rate(16000), cut(9000)}, 16000, 5000, 5000},
        {{op(HR_MONO), to_rate(16000), cut(9000)}, 16000, 9500, 9000},
        {{op(HR_MONO), to_rate(16000), cut(9000)}, 44100, 10000, 3629},
        {{op(HR_MONO), window(HR_RANDOM_WINDOW, 0.5), to_rate(16000)}, 44100, 10000, 3629},
        {{op(HR_MONO), window(HR_CENTER_WINDOW, 0.5), to_rate(16000)}, 44100, 30000, 8000},
        {{op(HR_MONO), to_rate(8000), speed, cut(9000)}, 8000, 1000, 2000},
        {{op(HR_MONO), to_rate(16000), cut(9000), op(HR_LOG_MEL)}, 16000, 5000, 31},
        {{op(HR_MONO), to_rate(16000), cut(9000), op(HR_LOG_MEL)}, 16000, 9000, 56},
        {{op(HR_MONO), to_rate(16000), cut(9000), op(HR_LOG_MEL)}, 16000, 1, 1},
        {{op(HR_MONO), to_rate(16000), cut(9000), kaldi}, 16000, 5000, 29},
        {{op(HR_MONO), to_rate(16000), cut(9000), kaldi}, 16000, 300, 1},
        {{op(HR_MONO), cut(9000), mel, last}, 16000, 5000, 26},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr_recipe_options options;
        struct hr_recipe *recipe;
        struct hr_error error = {0};
        struct hr_draw_key key = {1, 2, i};
        int64_t extents[HR_TENSOR_MAX_DIMS];
        size_t count = cases[i].list[3].kind ? 4 : 3;
        size_t length = make_clip(cases[i].rate, 1, cases[i].frames);
        hr_recipe_options_default(&options);
        options.padded = 1;
        if (hr_recipe_create(&recipe, cases[i].list, count, &options, &error) ||
            hr_preparer_run(preparer, recipe, file, length, &key, other, &error))
            fail_msg("%s", error.message);
        assert_int_equal(hr_preparer_extents(preparer, extents), 2);
        if (extents[1] != cases[i].expected)
            fail_msg("case %zu: %lld", i, (long long)extents[1]);
        hr_recipe_unref(&recipe);
        /* The numbers are those without the option. */
        size_t numbers = run_list(cases[i].list, count, length, i, made);
        assert_memory_equal(other, made, numbers * sizeof *made);
    }
}

/* int16 is as near as stated, also of a sound that exceeds full scale; a WAV file of an item has
 * its samples; no damage of a header goes unnoticed. */
static void test_waveform_items(void **state)
{
    size_t length = make_clip(16000, 2, 20001);
    struct hr_sound_info info;
    struct hr_error error = {0};
    struct hr_converter *converter;
    struct hr_item wav, item = item_of(length, HR_FORM_WAVEFORM16, 0, 0);
    for (int louder = 0; louder < 2; louder++) {
        double most = louder ? 1.53e-5 * 4 : 1.53e-5, scale = louder ? 5 : 1;
        for (uint8_t *at = file + 44; louder && at < file + length; at += 4) {
            float v;
            memcpy(&v, at, 4);
            v *= (float)scale;
            memcpy(at, &v, 4);
        }
        item = item_of(length, HR_FORM_WAVEFORM16, 0, 0);
        assert_int_equal(item.length, 64 + 2 * 20001 * 2 + 64);
        assert_int_equal(hr_preparer_sound_info(preparer, item.bytes, item.length, &info, &error),
                         0);
        assert_true(info.format == HR_SOUND_WAV && info.rate == 16000 && info.channels == 2 &&
                    info.frames == 20001);
        assert_int_equal(
            hr_preparer_sound_decode(preparer, item.bytes, item.length, 100, 19901, made, &error),
            0);
        for (int i = 0; i < 19901; i++)
            assert_true(fabs(made[i] - clip[0][i + 100] * scale) < most &&
                        fabs(made[19901 + i] - clip[1][i + 100] * scale) < most);
    }
    length = make_clip(16000, 2, 20001);
    item = item_of(length, HR_FORM_WAVEFORM, 0, 0);
    assert_int_equal(hr_converter_create(&converter, NULL, &error), 0);
    assert_int_equal(hr_converter_restore(converter, item.bytes, item.length, &wav, &error), 0);
    assert_int_equal(
        hr_preparer_sound_decode(preparer, wav.bytes, wav.length, 0, 20001, made, &error), 0);
    assert_memory_equal(made, clip[0], 20001 * sizeof *made);
    assert_memory_equal(made + 20001, clip[1], 20001 * sizeof *made);
    assert_int_equal(hr_converter_run(converter, HR_FORM_WAVEFORM, file, length, &wav, &error),
                     -ENOTSUP);
    hr_converter_destroy(&converter);
    uint8_t *bytes = (uint8_t *)(uintptr_t)item.bytes;
    assert_int_equal(hr_preparer_sound_info(preparer, bytes, item.length - 1, &info, &error),
                     -EBADMSG);
    for (int i = 4; i < 64; i++) {
        int was = bytes[i];
        bytes[i] ^= 0x40;
        int r = hr_preparer_sound_info(preparer, bytes, item.length, &info, &error);
        /* A source of other frames or rate is found when a recipe is planned. */
        int is_source = i == 6 || (i >= 8 && i < 16) || (i >= 32 && i < 40);
        if (!r && !is_source)
            fail_msg("byte %d", i);
        bytes[i] = (uint8_t)was;
    }
    bytes[32] ^= 1;
    struct hr_recipe *recipe =
        sounds_of((struct hr_operation[]){op(HR_MONO), to_rate(8000), cut(100)}, 3);
    struct hr_draw_key key = {0};
    assert_int_equal(hr_preparer_run(preparer, recipe, bytes, item.length, &key, made, &error),
                     -EBADMSG);
    assert_non_null(strstr(error.message, "damaged item"));
    hr_recipe_unref(&recipe);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resample),      cmocka_unit_test(test_windows),
        cmocka_unit_test(test_blocks),        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_channels),      cmocka_unit_test(test_log_mel),
        cmocka_unit_test(test_kernels),       cmocka_unit_test(test_features),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_memory),
        cmocka_unit_test(test_lengths),       cmocka_unit_test(test_waveforms),
        cmocka_unit_test(test_waveform_items)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
