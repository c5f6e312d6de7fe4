/* Normalize: (value - mean) / std per channel, folded into the last pass. */
#include "recipe/operation.h"

#include <math.h>

static void defaults(struct hr_operation *operation)
{
    for (int c = 0; c < 3; c++)
        operation->u.normalize.std[c] = 1;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const double *mean = bound->operation.u.normalize.mean;
    const double *std = bound->operation.u.normalize.std;
    if (state->dtype == HR_UINT8)
        return hr__refuse(error, bound,
                          "the values are still uint8: put a ToDtype with a float "
                          "type and scale before it");
    for (int c = 0; c < 3; c++) {
        if (!isfinite(mean[c]))
            return hr__refuse(error, bound, "the mean of channel %d is not a finite number", c);
        if (!(isfinite(std[c]) && std[c] > 0))
            return hr__refuse(error, bound, "the std %g of channel %d must be a positive number",
                              std[c], c);
        state->scale[c] /= std[c];
        state->shift[c] = (state->shift[c] - mean[c]) / std[c];
    }
    state->normalized = 1;
    return 0;
}

static const struct hr__parameter fields[] = {
    {"mean", HR__REALS(normalize.mean)},
    {"std", HR__REALS(normalize.std)},
    {0},
};

const struct hr__operation_class hr__class_normalize = {
    .name = "Normalize",
    .fields = fields,
    .defaults = defaults,
    .check = check,
};
