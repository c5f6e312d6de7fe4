/* When converting repays; see worth.h. */
#include "cache/worth.h"

/* Values after which a mean forgets: it follows a run that changes. */
#define MEMORY 256

/* Values from which on a mean is believed. */
#define ENOUGH 16

/* In proportion to preparing an encoded sample (bytes: to its own), from
 * photographs of 500 x 375 on one core; only until there are measurements. */
static const double typical_prepare[HR__FORMS] = {1, 0.3, 0.2};
static const double typical_convert[HR__FORMS] = {0, 5, 3};
static const double typical_growth[HR__FORMS] = {1, 1.4, 4.5};

void hr__mean_add(struct hr__mean *mean, double value)
{
    mean->count++;
    uint64_t of = mean->count < MEMORY ? mean->count : MEMORY;
    mean->value += (value - mean->value) / (double)of;
}

static double believed(const struct hr__mean *mean, double typical)
{
    return mean->count >= ENOUGH ? mean->value : typical;
}

static double prepare_ns(const struct hr__worth *worth, enum hr_form form)
{
    double encoded = worth->prepare_ns[HR_FORM_ENCODED].value;
    return form == HR_FORM_ENCODED
               ? encoded
               : believed(&worth->prepare_ns[form], encoded * typical_prepare[form]);
}

double hr__worth_convert_ns(const struct hr__worth *worth, enum hr_form form)
{
    double encoded = worth->prepare_ns[HR_FORM_ENCODED].value;
    return form == HR_FORM_ENCODED
               ? 0
               : believed(&worth->convert_ns[form], encoded * typical_convert[form]);
}

double hr__worth_growth(const struct hr__worth *worth, enum hr_form form)
{
    return form == HR_FORM_ENCODED ? 1 : believed(&worth->growth[form], typical_growth[form]);
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
    if (form == HR_FORM_ENCODED || !worth->prepare_ns[HR_FORM_ENCODED].count)
        return 0;
    if (moment->uses_known && !moment->uses)
        return 0;
    if (moment->idle)
        return saving_ns(worth, form) > 0;
    if (!moment->uses_known || !hr__worth_repays(worth, form, moment->uses))
        return 0;
    double after = (double)moment->converting_ns + hr__worth_convert_ns(worth, form);
    return after <= HR__WORTH_SHARE * (double)moment->working_ns;
}

int hr__worth_displaces(const struct hr__worth *worth, enum hr_form form,
                        const struct hr__worth_space *space)
{
    if (space->fetch_bound)
        return 0;
    double more = hr__worth_growth(worth, form) - 1;
    /* The same bytes would hold `more` encoded items, and spare their reads. */
    return saving_ns(worth, form) > more * worth->read_ns.value;
}

/* There is room for all samples in that form. */
static int all_fit(const struct hr__worth *worth, enum hr_form form,
                   const struct hr__worth_space *space)
{
    double left = (double)space->budget_bytes - (double)space->reserved_bytes;
    return hr__worth_growth(worth, form) * (double)space->missing_bytes <= left;
}

size_t hr__worth_reserve(const struct hr__worth *worth, enum hr_form form, size_t length,
                         const struct hr__worth_space *space, const struct hr__worth_moment *moment)
{
    if (!hr__worth_displaces(worth, form, space))
        return 0;
    int will_come = moment->uses_known ? hr__worth_repays(worth, form, moment->uses)
                                       : space->converted > space->staged;
    return will_come ? (size_t)((double)length * hr__worth_growth(worth, form)) : 0;
}

uint64_t hr__worth_leave_free(const struct hr__worth *worth, enum hr_form form,
                              const struct hr__worth_space *space)
{
    if (all_fit(worth, form, space) || hr__worth_displaces(worth, form, space))
        return 0;
    return space->missing_bytes;
}

/* Worker time of one sample when as many as fit have `form`. */
static double sample_ns(const struct hr__worth *worth, enum hr_form form,
                        const struct hr__worth_space *space, const struct hr__worth_moment *moment,
                        double *cached)
{
    double whole = (double)space->total_bytes * hr__worth_growth(worth, form);
    *cached = whole > (double)space->budget_bytes ? (double)space->budget_bytes / whole : 1;
    double hit = prepare_ns(worth, form);
    if (moment->uses_known && moment->uses != HR__WORTH_FOREVER)
        hit += hr__worth_convert_ns(worth, form) / (double)(moment->uses ? moment->uses : 1);
    double miss = prepare_ns(worth, HR_FORM_ENCODED) + worth->read_ns.value;
    return *cached * hit + (1 - *cached) * miss;
}

enum hr_form hr__worth_choose(const struct hr__worth *worth, const struct hr__worth_space *space,
                              const struct hr__worth_moment *moment)
{
    enum hr_form best = HR_FORM_ENCODED;
    double best_cached;
    double best_ns = sample_ns(worth, best, space, moment, &best_cached);
    for (int form = HR_FORM_COEFFICIENTS; form < HR__FORMS; form++) {
        double cached;
        double ns = sample_ns(worth, (enum hr_form)form, space, moment, &cached);
        if (space->fetch_bound && cached < best_cached)
            continue;
        if (ns < best_ns) {
            best = (enum hr_form)form;
            best_ns = ns;
            best_cached = cached;
        }
    }
    return best;
}
