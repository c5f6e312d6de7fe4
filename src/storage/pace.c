/* Bounds the requests in flight; see pace.h. */
#include "storage/pace.h"

/* A window has at least so many answers, and lasts this long and as long as an answer took. */
#define WINDOW_ANSWERS 16
#define WINDOW_NS      UINT64_C(100000000)

/* The time between two probes, and the part of the bound that a probe allows: half of what the link
 * holds. */
#define PROBE_NS   UINT64_C(10000000000)
#define PROBE_PART 4

/* The bound over what the link holds. */
#define GAIN 2.0

static unsigned within(const struct hr__pace *p, double bound)
{
    if (bound < p->least)
        return p->least;
    return bound < p->most ? (unsigned)bound : p->most;
}

static unsigned full(const struct hr__pace *p)
{
    double rate = p->rate[0] > p->rate[1] ? p->rate[0] : p->rate[1];
    return within(p, GAIN * rate * p->took_ns);
}

/* A window ended, with answers at `rate` that took `took_ns` on average. */
static void take_window(struct hr__pace *p, double rate, double took_ns, uint64_t now_ns)
{
    switch (p->probe) {
    case HR__PACE_DRAIN:
        p->probe = HR__PACE_MEASURE;
        return;
    case HR__PACE_MEASURE:
        p->probe = HR__PACE_CRUISE;
        p->probed_ns = now_ns;
        p->took_ns = took_ns;
        p->rate[1] = p->rate[0];
        p->rate[0] = 0;
        break;
    default:
        if (rate > p->rate[0])
            p->rate[0] = rate;
        if (!p->took_ns || took_ns < p->took_ns)
            p->took_ns = took_ns;
        break;
    }
    p->now = full(p);
    if (p->probe == HR__PACE_CRUISE && now_ns - p->probed_ns >= PROBE_NS) {
        p->probe = HR__PACE_DRAIN;
        p->now = within(p, (double)p->now / PROBE_PART);
    }
}

void hr__pace_init(struct hr__pace *pace, unsigned least, unsigned most)
{
    *pace = (struct hr__pace){.least = least, .most = most, .now = most};
}

void hr__pace_note(struct hr__pace *p, const struct hr__pace_sum *ended, uint64_t now_ns)
{
    if (!p->window_ns) { /* since when these answers are is not known */
        p->window_ns = p->probed_ns = now_ns;
        return;
    }
    p->window.answers += ended->answers;
    p->window.took_ns += ended->took_ns;
    uint64_t ns = now_ns > p->window_ns ? now_ns - p->window_ns : 0;
    if (p->window.answers < WINDOW_ANSWERS || ns < WINDOW_NS || (double)ns < p->last_ns)
        return;
    double answers = (double)p->window.answers, took_ns = (double)p->window.took_ns / answers;
    p->window = (struct hr__pace_sum){.answers = 0};
    p->window_ns = now_ns;
    p->last_ns = took_ns;
    take_window(p, answers / (double)ns, took_ns, now_ns);
}
