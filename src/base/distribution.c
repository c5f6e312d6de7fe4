/* Normal, gamma and beta distributed numbers; see distribution.h. */
#include "base/distribution.h"

#include <math.h>

double hr__random_normal(struct hr__random *r)
{
    double u = 1.0 - hr__random_unit(r); /* in (0, 1] */
    double angle = 6.283185307179586 * hr__random_unit(r);
    return sqrt(-2.0 * log(u)) * cos(angle);
}

double hr__random_log_gamma(struct hr__random *r, double shape)
{
    double boost = 0;
    if (shape < 1) {
        boost = log(1.0 - hr__random_unit(r)) / shape;
        shape += 1;
    }
    double d = shape - 1.0 / 3.0, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = hr__random_normal(r), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(1.0 - hr__random_unit(r)) < 0.5 * x * x + d - d * v + d * log(v))
            return log(d * v) + boost;
    }
}

double hr__random_beta(struct hr__random *r, double a, double b)
{
    double x = hr__random_log_gamma(r, a), y = hr__random_log_gamma(r, b);
    return 1 / (1 + exp(y - x));
}
