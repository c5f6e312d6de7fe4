/*
 * What the files that calibrate a model share: means, the time of a phase, and the search for the
 * value that explains it.
 */
#include "stalls/model/calibrate_inside.h"

int hr__model_batches(const struct hr__system *system)
{
    double each = (double)system->batch_size * system->ranks;
    double batches = HR__STALLS_SAMPLES_MAX / each;
    return batches > HR__STALLS_BATCHES ? HR__STALLS_BATCHES : batches < 40 ? 40 : (int)batches;
}

double hr__phase_s(const struct hr_stalls *stalls, enum hr_stalls_phase phase)
{
    double middle = stalls->middle_s[phase], mean = stalls->step_s[phase].value;
    return hr__known(middle) ? middle : hr__known(mean) ? mean : NAN;
}

double hr__values_mean(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return count ? sum / (double)count : NAN;
}

void hr__values_scale(double *values, size_t count, double mean)
{
    double now = hr__values_mean(values, count);
    for (size_t i = 0; i < count; i++)
        values[i] = now > 0 ? values[i] * mean / now : mean;
}

int hr__calibrate_solve(const struct hr__model *model, hr__try_fn try_it, double wanted_s,
                        const double range[2], double *value, struct hr_error *error)
{
    double at[2] = {range[0], range[1]}, off[2] = {0, 0}, found;
    int r = 0, last = -1;
    for (int i = 0; i < 2 && !r; i++) {
        r = try_it(model, at[i], &found, error);
        off[i] = found - wanted_s;
        *value = at[i];
        if (!r && (i == 0 ? off[0] >= 0 : off[1] <= 0))
            return 0;
    }
    for (int i = 0; i < 24 && !r; i++) {
        *value = at[0] - off[0] * (at[1] - at[0]) / (off[1] - off[0]);
        r = try_it(model, *value, &found, error);
        if (fabs(found - wanted_s) < HR__CALIBRATE_EXACT * wanted_s)
            break;
        int side = found > wanted_s;
        at[side] = *value;
        off[side] = found - wanted_s;
        if (last == side)
            off[!side] /= 2;
        last = side;
    }
    return r;
}
