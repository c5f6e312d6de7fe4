/* Decides when converting pays off; see worth.h. */
#include "cache/worth.h"

/* From this many values on a mean forgets old ones, so that it follows changes in a run. */
#define MEMORY 256

/* Estimates until there are measurements: cost relative to preparing an encoded sample, and bytes
 * relative to its own. They are the figures of bench-decode of 2026-11-23 in docs/forms.md:
 * photographs of 500 x 375 and 89 kB on one core with AVX-512, 367 us a training crop of a file. */
static const struct {
    double prepare, convert, growth;
} usual[HR_FORMS] = {
    [HR_FORM_ENCODED] = {1, 0, 1},
    [HR_FORM_INDEXED] = {0.83, 0.63, 1.01},
    [HR_FORM_COEFFICIENTS] = {0.31, 8.4, 1.12},
    [HR_FORM_PLANES] = {0.19, 4.9, 3.7},
    /* Windows of 5 s of clips of 30 s, between log-mel spectrograms and raw waveforms, and between
     * FLAC and MP3. */
    [HR_FORM_WAVEFORM] = {0.2, 5, 2},
    [HR_FORM_WAVEFORM16] = {0.2, 5, 1},
};

void hr__mean_add(struct hr__mean *mean, double value)
{
    mean->count++;
    uint64_t of = mean->count < MEMORY ? mean->count : MEMORY;
    mean->value += (value - mean->value) / (double)of;
}

static double believed(const struct hr__mean *mean, double typical)
{
    return mean->count >= HR__WORTH_ENOUGH ? mean->value : typical;
}

static double prepare_ns(const struct hr__worth *worth, enum hr_form form)
{
    double encoded = worth->prepare_ns[HR_FORM_ENCODED].value;
    return form == HR_FORM_ENCODED
               ? encoded
               : believed(&worth->prepare_ns[form], encoded * usual[form].prepare);
}

double hr__worth_convert_ns(const struct hr__worth *worth, enum hr_form form)
{
    double encoded = worth->prepare_ns[HR_FORM_ENCODED].value;
    return form == HR_FORM_ENCODED
               ? 0
               : believed(&worth->convert_ns[form], encoded * usual[form].convert);
}

double hr__worth_growth(const struct hr__worth *worth, enum hr_form form)
{
    return form == HR_FORM_ENCODED ? 1 : believed(&worth->growth[form], usual[form].growth);
}

static double saving_ns(const struct hr__worth *worth, enum hr_form form)
{
    return prepare_ns(worth, HR_FORM_ENCODED) - prepare_ns(worth, form);
}

int hr__worth_repays(const struct hr__worth *worth, enum hr_form form, uint64_t uses)
{
    double saving = saving_ns(worth, form);
    if (uses == HR__WORTH_FOREVER)
        return saving > 0;
    return saving * (double)uses > hr__worth_convert_ns(worth, form);
}

int hr__worth_convert(const struct hr__worth *worth, enum hr_form form,
                      const struct hr__worth_moment *moment)
{
    if (!worth->prepare_ns[HR_FORM_ENCODED].count || (moment->uses_known && !moment->uses))
        return 0;
    /* There is no room for more, and other items may be waiting for the space reserved for it. */
    if (form == HR_FORM_ENCODED)
        return 1;
    if (moment->idle)
        return saving_ns(worth, form) > 0;
    if (!moment->uses_known || !hr__worth_repays(worth, form, moment->uses))
        return 0;
    double after = (double)moment->converting_ns + hr__worth_convert_ns(worth, form);
    return after <= HR__WORTH_SHARE * (double)moment->working_ns;
}

/* The cost of a sample's read when storage is the bottleneck: more than any form saves. */
#define PRICELESS_NS 1e15

/* The cost of an item of a form, by the time that it is made. */
static double making_ns(const struct hr__worth *worth, enum hr_form form,
                        const struct hr__worth_moment *moment)
{
    if (form == HR_FORM_INDEXED && moment->in_passing)
        return HR__WORTH_PASSING * prepare_ns(worth, HR_FORM_ENCODED);
    return hr__worth_convert_ns(worth, form);
}

int hr__worth_index_repays(const struct hr__worth *worth, const struct hr__worth_moment *moment)
{
    double saving = saving_ns(worth, HR_FORM_INDEXED);
    if (!moment->uses_known || moment->uses == HR__WORTH_FOREVER)
        return saving > 0;
    return saving * (double)moment->uses > HR__WORTH_PASSING * prepare_ns(worth, HR_FORM_ENCODED);
}

/* A form: its item's bytes relative to its sample's, and the time that having it saves in each
 * epoch compared with reading the sample. */
struct point {
    enum hr_form form;
    double weight, value;
};

/* Lists the forms worth considering. Returns how many. */
static int points(const struct hr__worth *worth, const struct hr__worth_space *space,
                  const struct hr__worth_moment *moment, struct point out[HR_FORMS])
{
    double read_ns = space->fetch_bound ? PRICELESS_NS : worth->read_ns.value;
    int count = 0;
    out[count++] = (struct point){HR_FORM_ENCODED, 1, read_ns};
    for (enum hr_form form = HR_FORM_ENCODED + 1; form < HR_FORMS; form++) {
        if (space->asked == HR_FORM_AUTO ? form > HR_FORM_INDEXED : space->asked != (int)form)
            continue;
        double saving = saving_ns(worth, form);
        if (moment->uses_known && !moment->uses)
            saving = 0;
        else if (moment->uses_known && moment->uses != HR__WORTH_FOREVER)
            saving -= making_ns(worth, form, moment) / (double)moment->uses;
        if (saving > 0)
            out[count++] = (struct point){form, hr__worth_growth(worth, form), read_ns + saving};
    }
    return count;
}

/* Computes the upper convex hull of the forms by weight, starting from the point where nothing is
 * stored and nothing saved. Returns the number of forms on it. */
static int hull(const struct hr__worth *worth, const struct hr__worth_space *space,
                const struct hr__worth_moment *moment, struct point out[HR_FORMS])
{
    struct point all[HR_FORMS], last = {HR_FORM_ENCODED, 0, 0};
    int count = points(worth, space, moment, all), on = 0;
    for (;;) {
        const struct point *best = NULL;
        double best_slope = 0;
        for (int i = 0; i < count; i++) {
            double more = all[i].weight - last.weight, value = all[i].value - last.value;
            if (more > 0 && value > best_slope * more) {
                best = &all[i];
                best_slope = value / more;
            }
        }
        if (!best)
            break;
        last = out[on++] = *best;
    }
    /* Reads cost nothing and no form saves time: cache the encoded items anyway. */
    if (!on)
        out[on++] = all[0];
    return on;
}

enum hr_form hr__worth_choose(const struct hr__worth *worth, size_t length,
                              const struct hr__worth_space *space,
                              const struct hr__worth_moment *moment)
{
    struct point on[HR_FORMS];
    int count = hull(worth, space, moment, on), i = 0;
    double left = (double)space->budget_bytes - (double)space->settled_bytes;
    double undecided = (double)space->missing_bytes + (double)space->staged_bytes;
    /* Choose the larger form while all other samples can still have the smaller one. */
    while (i < count - 1 &&
           on[i].weight * undecided + (on[i + 1].weight - on[i].weight) * (double)length < left)
        i++;
    return on[i].form;
}

size_t hr__worth_reserve(const struct hr__worth *worth, enum hr_form form, size_t length,
                         const struct hr__worth_space *space, const struct hr__worth_moment *moment)
{
    int will_come = moment->uses_known ? hr__worth_repays(worth, form, moment->uses)
                                       : space->converted > space->staged;
    return will_come ? (size_t)((double)length * hr__worth_growth(worth, form)) : 0;
}

uint64_t hr__worth_leave_free(const struct hr__worth *worth, enum hr_form form,
                              const struct hr__worth_space *space,
                              const struct hr__worth_moment *moment)
{
    struct point on[HR_FORMS];
    int count = hull(worth, space, moment, on);
    double weight = 0;
    for (int i = 0; i < count && on[i].form != form; i++)
        weight = on[i].weight;
    return (uint64_t)((double)space->missing_bytes * weight);
}
