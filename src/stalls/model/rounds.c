/* Computes paired differences over rounds; see rounds.h. */
#include "stalls/model/rounds.h"

static bool counts(const struct hr__round *round, int phases)
{
    for (int p = 0; p < HR__ROUND_PHASES; p++)
        if (phases >> p & 1 && !(round->seconds[p] > 0 && isfinite(round->seconds[p])))
            return false;
    return true;
}

/* Computes, over rounds, the mean and moments of what phase p adds to phase `before` (-1: none), as
 * a share of `of`. Uses two passes. */
static struct hr__moments added(const struct hr__round *rounds, int count, int phases, int of,
                                const int pair[2])
{
    struct hr__moments m = {0, 0, 0};
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < count; r++) {
            const double *s = rounds[r].seconds;
            if (!counts(&rounds[r], phases))
                continue;
            double share = (s[pair[1]] - (pair[0] < 0 ? 0 : s[pair[0]])) / s[of];
            if (pass) {
                m.squares += (share - m.mean) * (share - m.mean);
            } else {
                m.mean += share;
                m.count++;
            }
        }
        if (!pass && m.count)
            m.mean /= m.count;
    }
    return m;
}

static double within(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static struct hr_interval interval_of(struct hr__moments m, double value)
{
    if (m.count < 2)
        return (struct hr_interval){value, NAN, NAN};
    double half = hr__student(m.count - 1) * sqrt(m.squares / (m.count - 1) / m.count);
    double low = within(m.mean - half, 0, 1), high = within(m.mean + half, 0, 1);
    /* The value may have been adjusted: widen the interval to include it. */
    return (struct hr_interval){value, low < value ? low : value, high > value ? high : value};
}

int hr__rounds_share(const struct hr__round *rounds, int count, int phases, enum hr_stalls_phase of,
                     struct hr_interval share[HR__ROUND_PHASES])
{
    const double step = 0x1p40;
    struct hr__moments m[HR__ROUND_PHASES] = {{0}};
    int pair[2] = {-1, -1};
    int used = 0;
    phases &= (2 << of) - 1;
    for (int p = 0; p < HR__ROUND_PHASES; p++) {
        share[p] = HR__UNKNOWN;
        if (!(phases >> p & 1))
            continue;
        pair[1] = p;
        m[p] = added(rounds, count, phases, (int)of, pair);
        used = m[p].count;
        pair[0] = p;
    }
    if (!used || !(phases >> of & 1))
        return 0;
    /* Work downwards from the whole: the phases up to one cannot take more than those up to the
     * next. */
    double upto = 1;
    int above = (int)of;
    for (int p = (int)of; p >= 0; p--) {
        if (!(phases >> p & 1) || p == (int)of)
            continue;
        double sum = 0;
        for (int q = 0; q <= p; q++)
            sum += phases >> q & 1 ? m[q].mean : 0;
        sum = within(nearbyint(sum * step) / step, 0, upto);
        share[above] = interval_of(m[above], upto - sum);
        upto = sum;
        above = p;
    }
    share[above] = interval_of(m[above], upto);
    return used;
}
