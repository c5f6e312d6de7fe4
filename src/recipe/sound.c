/*
 * See sound.h: checking a recipe of sounds, and planning and running it for one sample.
 */
#include "recipe/sound.h"

#include "base/error.h"
#include "base/memory.h"
#include "codec/waveform.h"
#include "recipe/tensor.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Longest waveform and most columns of features that a recipe may produce. */
#define SOUND_MAX_FRAMES (1 << 28)

/* Frames of a file that are read, mixed and resampled at a time: about as many. */
#define BLOCK_FRAMES 4096

/* Memory of more bytes than this is only kept for the item that needs it. */
#define KEPT_BYTES (UINT64_C(16) << 20)

int hr__sound_place(const struct hr__bound *bound, const struct hr__sound_state *state,
                    int is_for_features, struct hr_error *error)
{
    if (!is_for_features == !state->bands)
        return 0;
    return hr__refuse(error, bound,
                      is_for_features
                          ? "it changes features: put a MelSpectrogram or LogMel before "
                            "it"
                          : "it changes waveforms: put it before the operation that "
                            "makes features");
}

/* The length of the pending window at a rate. */
static int64_t frames_of(double seconds, int rate)
{
    return llround(seconds * rate);
}

int hr__sound_set_rate(const struct hr__bound *bound, struct hr__sound_state *state, int rate,
                       struct hr_error *error)
{
    if (rate < HR_SOUND_MIN_RATE || rate > HR_SOUND_MAX_RATE)
        return hr__refuse(error, bound, "a rate of %d Hz is not possible: %d to %d", rate,
                          HR_SOUND_MIN_RATE, HR_SOUND_MAX_RATE);
    state->rate = rate;
    if (state->seconds > 0) {
        state->frames = frames_of(state->seconds, rate);
        state->seconds = 0;
    }
    return 0;
}

static int set_sound_output(struct hr_recipe *recipe, const struct hr__sound_state *state,
                            struct hr_error *error)
{
    if (state->seconds > 0)
        return hr__fail(error, -EINVAL,
                        "the recipe's output has no fixed length: its window is in seconds, and "
                        "clips may have any rate; add a Resample");
    if (!state->frames)
        return hr__fail(error, -EINVAL,
                        "the recipe's output has no fixed length: it needs a RandomWindow, "
                        "CenterWindow or PadOrTrim; after a SpeedPerturbation a PadOrTrim");
    if (!state->channels)
        return hr__fail(error, -EINVAL,
                        "the recipe's output has no fixed number of channels: add Mono, or "
                        "Channels with their number");
    if (recipe->options.layout != HR_NCHW)
        return hr__fail(error, -EINVAL, "sounds have no layout NHWC: leave it out");
    if (recipe->options.inexact)
        return hr__fail(error, -EINVAL,
                        "scaled decoding (exact=False; in C, inexact) is of images: leave it out");
    recipe->spec.dtype = HR_FLOAT32;
    recipe->spec.layout = HR_NCHW;
    hr__tensor_matrix(&recipe->spec, state->bands ? state->bands : state->channels,
                      (int)state->frames);
    recipe->sound_rate = state->rate;
    return 0;
}

int hr__recipe_check_rate(const struct hr_recipe *recipe, struct hr_error *error)
{
    if (!recipe->is_sound || recipe->sound_rate)
        return 0;
    return hr__fail(error, -EINVAL,
                    "the recipe does not say which rate its frames have, and clips of several "
                    "rates would be mixed: put Resample(new_freq=16000) before PadOrTrim, which "
                    "converts, or Resample(16000, 16000), which refuses clips of other rates");
}

int hr__sound_recipe(struct hr_recipe *recipe, struct hr_error *error)
{
    struct hr__sound_state state = {.recipe = recipe};
    recipe->is_sound = 1;
    for (int i = 0; i < recipe->count; i++) {
        struct hr__bound *bound = &recipe->operation[i];
        int r = bound->class->sound->check(bound, &state, error);
        if (r)
            return r;
        if (state.frames > SOUND_MAX_FRAMES || state.seconds * HR_SOUND_MAX_RATE > SOUND_MAX_FRAMES)
            return hr__refuse(error, bound, "the sound would be too long: at most %d frames",
                              SOUND_MAX_FRAMES);
    }
    return set_sound_output(recipe, &state, error);
}

struct hr__sound_step *hr__sound_append(struct hr__sound_plan *plan, enum hr__sound_step_kind kind)
{
    struct hr__sound_step *step = &plan->step[plan->count++];
    *step =
        (struct hr__sound_step){.kind = kind, .channels = plan->channels, .total = plan->frames};
    return step;
}

void hr__sound_append_cut(struct hr__sound_plan *plan, int64_t first, int64_t frames)
{
    hr__sound_append(plan, HR__SOUND_CUT)->first = first;
    plan->frames = frames;
    plan->real = plan->real - first < frames ? plan->real - first : frames;
}

int hr__sound_cut_now(struct hr__sound_plan *plan, struct hr_error *error)
{
    struct hr__sound_cut *cut = &plan->cut;
    if (!cut->is_pending)
        return 0;
    int64_t frames = frames_of(cut->seconds, plan->rate), left = plan->frames - frames;
    cut->is_pending = 0;
    if (left < 0 && !cut->pad)
        return hr__fail(error, -EBADMSG,
                        "the clip of %.3f s is shorter than the window of %.3f s; remove it, or "
                        "let %s pad it (pad=True)",
                        (double)plan->frames / plan->rate, cut->seconds, cut->bound->class->name);
    int64_t first = left > 0 ? (int64_t)(cut->at * (double)(left + 1)) : 0;
    hr__sound_append_cut(plan, first < left ? first : left > 0 ? left : 0, frames);
    return 0;
}

static void init_random(struct hr__random *random, const struct hr_draw_key *key, int position)
{
    uint64_t purpose = HR__PURPOSE_OPERATION + ((uint64_t)position << 8);
    hr__random_init(random, key->seed, purpose, key->epoch, key->index);
}

void hr__sound_begin(struct hr__sound_plan *plan)
{
    plan->count = 0;
    plan->cut.is_pending = 0;
    plan->channels = plan->info.channels;
    plan->rate = plan->info.rate;
    plan->frames = plan->real = (int64_t)plan->info.frames;
}

/* Plans all steps forwards. */
static int plan_steps(const struct hr_recipe *recipe, struct hr__sound_scratch *s,
                      const struct hr_draw_key *key, struct hr_error *error)
{
    struct hr__sound_plan *plan = &s->plan;
    int r = 0;
    hr__sound_begin(plan);
    for (int i = 0; i < recipe->count && !r; i++) {
        const struct hr__bound *bound = &recipe->operation[i];
        struct hr__random random;
        init_random(&random, key, bound->position);
        if (bound->class->sound->plan)
            r = bound->class->sound->plan(bound, &random, s, error);
    }
    if (!r && recipe->sound_rate && plan->rate != recipe->sound_rate)
        return hr__fail(error, -EBADMSG,
                        "the clip has %d Hz and the recipe needs %d: add a Resample before the "
                        "features",
                        plan->rate, recipe->sound_rate);
    r = r ? r : hr__sound_cut_now(plan, error);
    if (!r && !recipe->mel &&
        (plan->frames != recipe->spec.width || plan->channels != recipe->spec.height))
        r = hr__fail(error, -EINVAL, "the clip does not give the output that the recipe has");
    return r;
}

/* The input frame of the first tap of an output frame. */
static int64_t first_tap(const struct hr__resampler *r, int64_t frame)
{
    return frame / r->to * r->from + r->first[frame % r->to];
}

static int64_t within(int64_t v, int64_t low, int64_t high)
{
    return v < low ? low : v > high ? high : v;
}

/* Finds, backwards, the frames that each step needs. A step has memory for all of them, also for
 * those outside the sound. */
static void trace_back(struct hr__sound_plan *plan)
{
    int64_t low = 0, end = plan->frames;
    struct hr__sound_step *last = hr__sound_append(plan, HR__SOUND_CUT);
    last->end = end;
    for (int i = plan->count - 2; i >= 0; i--) {
        struct hr__sound_step *step = &plan->step[i];
        if (step->kind == HR__SOUND_CUT) {
            low += step->first;
            end += step->first;
        } else if (step->kind == HR__SOUND_RESAMPLE) {
            /* Frames outside the sound are 0, not filtered. */
            int64_t from = within(low, 0, step[1].total), to = within(end, from, step[1].total);
            low = end = 0;
            if (from < to) {
                low = first_tap(step->resampler, from);
                end = first_tap(step->resampler, to - 1) + step->resampler->taps;
            }
        }
        step->low = low;
        step->end = end;
    }
}

/* Sets the planes in a buffer. A vector may be read past the end. */
static int reserve_wave(struct hr__buffer *buffer, const struct hr__sound_step *step,
                        struct hr__sound_wave *out, struct hr_error *error)
{
    size_t row = ((size_t)(step->end - step->low) + 15) / 16 * 16;
    int r = hr__buffer_reserve(buffer, (row * (size_t)step->channels + 16) * sizeof(float), error);
    for (int c = 0; c < step->channels && !r; c++)
        out->plane[c] = (float *)buffer->bytes + (size_t)c * row;
    return r;
}

/* Sets the frames of a step that lie outside the sound to 0. Returns those inside as [*from, *to).
 */
static void clear_outside(const struct hr__sound_step *step, const struct hr__sound_wave *wave,
                          int64_t *from, int64_t *to)
{
    *from = within(0, step->low, step->end);
    *to = within(step->total, *from, step->end);
    for (int c = 0; c < step->channels; c++) {
        memset(wave->plane[c], 0, (size_t)(*from - step->low) * sizeof(float));
        memset(wave->plane[c] + (*to - step->low), 0, (size_t)(step->end - *to) * sizeof(float));
    }
}

/* Mixes or amplifies `count` frames. */
static void run_in_place(const struct hr__sound_step *step, const struct hr__sound_wave *wave,
                         int64_t count)
{
    if (step->kind == HR__SOUND_GAIN) {
        for (int c = 0; c < step->channels; c++)
            for (int64_t i = 0; i < count; i++)
                wave->plane[c][i] *= step->factor;
        return;
    }
    for (int c = 1; c < step->channels; c++)
        hr__sound_kernels(hr__isa())->mix(wave->plane[0], wave->plane[c], count,
                                          step->channels == 2 ? 0.5f : 1);
    for (int64_t i = 0; step->channels > 2 && i < count; i++)
        wave->plane[0][i] /= (float)step->channels;
}

/* Returns how many steps stand at the beginning that change frames where they are. */
static int steps_in_place(const struct hr__sound_plan *plan)
{
    int i = 0;
    while (plan->step[i].kind == HR__SOUND_MIX || plan->step[i].kind == HR__SOUND_GAIN)
        i++;
    return i;
}

/* Reads the frames [low, end) of the sound, which are 0 outside it, and runs these first steps on
 * them. A format that can mix channels while it reads them does the first. */
static int read_frames(struct hr__sound_scratch *s, int64_t low, int64_t end,
                       struct hr__sound_wave *wave, struct hr_error *error)
{
    struct hr__sound_step all = s->plan.step[0];
    struct hr__sound_wave inside;
    int is_mixed = all.kind == HR__SOUND_MIX && hr__sound_can_mix(s->decoder);
    int64_t from, to;
    all.low = low;
    all.end = end;
    all.channels = is_mixed ? 1 : all.channels;
    int r = reserve_wave(&s->waves[0], &all, wave, error);
    if (r)
        return r;
    clear_outside(&all, wave, &from, &to);
    for (int c = 0; c < all.channels; c++)
        inside.plane[c] = wave->plane[c] + (from - low);
    uint64_t first = (uint64_t)from, count = (uint64_t)(to - from);
    r = is_mixed ? hr__sound_read_mean(s->decoder, first, count, inside.plane[0], error)
                 : hr__sound_read(s->decoder, first, count, inside.plane, error);
    for (int i = is_mixed; i < steps_in_place(&s->plan) && !r; i++)
        run_in_place(&s->plan.step[i], wave, end - low);
    return r;
}

/* Output frames of a block: what the filter takes at once. */
static int64_t block_frames(const struct hr__resampler *filter)
{
    int64_t whole = (int64_t)hr__resampler_stretch(filter) * HR__SOUND_STRETCHES;
    return whole ? whole : BLOCK_FRAMES * (int64_t)filter->to / filter->from + 1;
}

/* As read_frames for all that `step` needs, then runs it: it resamples, and follows the first
 * steps. A block at a time, which stays in the nearest cache. */
static int read_resampled(struct hr__sound_scratch *s, const struct hr__sound_step *step,
                          struct hr__sound_wave *wave, struct hr_error *error)
{
    const struct hr__resampler *f = step->resampler;
    const struct hr__sound_step *next = step + 1;
    struct hr__sound_wave out;
    int64_t from, to;
    int r = reserve_wave(&s->waves[1], next, &out, error);
    if (r)
        return r;
    clear_outside(next, &out, &from, &to);
    int64_t block = block_frames(f);
    for (int64_t at = from, end; at < to && !r; at = end) {
        /* The last one may begin in the one before it. */
        at = within(at, from, to - block > from ? to - block : from);
        end = within(at + block, at, to);
        struct hr__resampling what = {.at = first_tap(f, at), .first = at, .count = end - at};
        int64_t high = first_tap(f, end - 1) + f->taps;
        r = read_frames(s, what.at, high, wave, error);
        if (end < to)
            what.next = hr__sound_frames(s->decoder, high, high - what.at, &what.next_bytes);
        for (int c = 0; c < step->channels && !r; c++) {
            what.in = wave->plane[c];
            hr__sound_kernels(hr__isa())->resample(f, &what, out.plane[c] + (at - next->low));
            what.next_bytes = 0;
        }
    }
    *wave = out;
    return r;
}

/* Runs a resampling step from one buffer into the other. */
static int run_resampler(const struct hr__sound_step *step, struct hr__buffer *buffer,
                         struct hr__sound_wave *wave, struct hr_error *error)
{
    const struct hr__sound_step *next = step + 1;
    struct hr__sound_wave out;
    int64_t from, to;
    int r = reserve_wave(buffer, next, &out, error);
    if (r)
        return r;
    clear_outside(next, &out, &from, &to);
    struct hr__resampling what = {.at = step->low, .first = from, .count = to - from};
    for (int c = 0; c < step->channels && from < to; c++) {
        what.in = wave->plane[c];
        hr__sound_kernels(hr__isa())->resample(step->resampler, &what,
                                               out.plane[c] + (from - next->low));
    }
    *wave = out;
    return 0;
}

int hr__sound_run_plan(struct hr__sound_scratch *scratch, struct hr__sound_wave *wave,
                       struct hr_error *error)
{
    struct hr__sound_scratch *s = scratch;
    struct hr__sound_plan *plan = &s->plan;
    trace_back(plan);
    int i = steps_in_place(plan), r;
    int which = plan->step[i].kind == HR__SOUND_RESAMPLE && hr__sound_is_direct(s->decoder);
    if (which)
        r = read_resampled(s, &plan->step[i++], wave, error);
    else
        r = read_frames(s, plan->step[0].low, plan->step[0].end, wave, error);
    for (; i < plan->count - 1 && !r; i++) {
        const struct hr__sound_step *step = &plan->step[i];
        int64_t from, to;
        if (step->kind == HR__SOUND_RESAMPLE)
            r = run_resampler(step, &s->waves[which = !which], wave, error);
        else if (step->kind == HR__SOUND_CUT)
            clear_outside(step + 1, wave, &from, &to); /* the sound goes on there */
        else
            run_in_place(step, wave, step->end - step->low);
    }
    return r;
}

/* Makes the features of a waveform of one channel. */
static int run_features(const struct hr_recipe *recipe, struct hr__sound_scratch *s,
                        const struct hr__sound_wave *wave, float *out, struct hr_error *error)
{
    const struct hr__mel *mel = recipe->mel;
    int columns = recipe->spec.width;
    int r = hr__buffer_reserve(&s->work, hr__mel_work(mel) * sizeof(double), error);
    for (int t = 0; t < columns && !r; t += HR__SOUND_LANES)
        hr__sound_kernels(hr__isa())->mel(mel, wave->plane[0], s->plan.frames, t, columns,
                                          s->work.bytes, out);
    return r;
}

/* Opens a file, or an item, which is planned as the file that it was made of. */
static int open_sound(const struct hr_recipe *recipe, struct hr__sound_scratch *s,
                      const struct hr_item *item, struct hr_error *error)
{
    int r = hr__form_is_waveform(hr_form_of(item->bytes, item->length))
                ? 0
                : hr__sound_check_bytes(item->length, recipe->options.max_source_bytes, error);
    if (!r)
        r = hr__sound_open(s->decoder, item->bytes, item->length, &s->plan.info, error);
    const struct hr__waveform_header *made = r ? NULL : hr__sound_waveform_header(s->decoder);
    if (made) {
        s->plan.info.rate = (int)made->source_rate;
        s->plan.info.channels = made->source_channels;
        s->plan.info.frames = made->source_frames;
    }
    return r;
}

void hr__sound_drop_item(struct hr__sound_scratch *scratch)
{
    if (scratch->item.size <= KEPT_BYTES)
        return;
    hr__free(scratch->item.bytes);
    scratch->item = (struct hr__buffer){0};
}

int hr__sound_run(const struct hr_recipe *recipe, struct hr__sound_scratch **scratch,
                  const struct hr_item *item, const struct hr_draw_key *key, float *out,
                  struct hr_error *error)
{
    struct hr__sound_wave wave;
    int r = hr__sound_scratch_get(scratch, error);
    if (r)
        return r;
    struct hr__sound_scratch *s = *scratch;
    hr__sound_drop_item(s);
    r = open_sound(recipe, s, item, error);
    const struct hr__waveform_header *made = r ? NULL : hr__sound_waveform_header(s->decoder);
    if (!r)
        r = plan_steps(recipe, s, key, error);
    if (!r && made)
        r = hr__sound_skip_head(s, made, error);
    if (!r)
        r = hr__sound_run_plan(s, &wave, error);
    if (!r && recipe->mel)
        r = run_features(recipe, s, &wave, out, error);
    for (int c = 0; !r && !recipe->mel && c < s->plan.channels; c++)
        memcpy(out + c * s->plan.frames, wave.plane[c], (size_t)s->plan.frames * sizeof *out);
    for (int i = 0; i < recipe->count && !r; i++) {
        const struct hr__bound *bound = &recipe->operation[i];
        struct hr__random random;
        init_random(&random, key, bound->position);
        if (bound->class->sound->apply)
            bound->class->sound->apply(bound, &random, out, recipe->spec.height,
                                       recipe->spec.width);
    }
    return r;
}

int64_t hr__sound_length(const struct hr_recipe *recipe, const struct hr__sound_scratch *scratch)
{
    const struct hr__sound_plan *plan = &scratch->plan;
    if (!recipe->mel)
        return plan->real;
    /* The columns that the sound alone gives; Whisper leaves one out. */
    int64_t all = hr__mel_columns(recipe->mel, plan->frames);
    int64_t columns = hr__mel_columns(recipe->mel, plan->real) - (all - recipe->spec.width);
    return columns > 1 ? columns : 1;
}

int hr__sound_scratch_get(struct hr__sound_scratch **scratch, struct hr_error *error)
{
    if (*scratch)
        return 0;
    struct hr__sound_scratch *s = hr__alloc(HR__TAG_RECIPE, 1, sizeof *s);
    if (!s)
        return hr__fail(error, -ENOMEM, "out of memory for sounds");
    int r = hr__sound_create(&s->decoder, error);
    if (r)
        hr__sound_scratch_destroy(&s);
    *scratch = s;
    return r;
}

void hr__sound_scratch_destroy(struct hr__sound_scratch **scratch)
{
    struct hr__sound_scratch *s = *scratch;
    *scratch = NULL;
    if (!s)
        return;
    hr__sound_destroy(&s->decoder);
    hr__resampler_free_all(&s->resamplers);
    hr__free(s->waves[0].bytes);
    hr__free(s->waves[1].bytes);
    hr__free(s->work.bytes);
    hr__free(s->item.bytes);
    hr__free(s);
}

size_t hr__sound_scratch_memory(const struct hr__sound_scratch *scratch)
{
    return scratch ? sizeof *scratch + hr__sound_memory(scratch->decoder) + scratch->waves[0].size +
                         scratch->waves[1].size + scratch->work.size + scratch->item.size +
                         hr__resampler_memory(&scratch->resamplers)
                   : 0;
}
