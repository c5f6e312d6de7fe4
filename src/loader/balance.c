/* Who gives up threads and reads, and who takes them; see balance.h. */
#include "loader/balance.h"

/* What a rank may say, at most: a batch a minute, a thousand batches, as many workers as a loader
 * can have, days of work for a batch. */
#define PERIOD_MAX_NS 60000000000u
#define STOCK_MAX     1000000u
#define WORKERS_MAX   4096
#define WORK_MAX_NS   (UINT64_C(1) << 50)

/* Slacks are smoothed over so many batches' time, within these. */
#define SMOOTH_PERIODS 2
#define SMOOTH_MIN_NS  20e6
#define SMOOTH_MAX_NS  2e9

/* A rank is ahead of the most urgent one by so many batches' time: from when on, and until. */
#define AHEAD_FROM  1.0
#define AHEAD_UNTIL 0.5

/* A worker moves where who gives it would have at most so much of the other's time for a batch. */
#define GAIN 0.9

/* Differences below this are nothing. */
#define AHEAD_MIN_NS 1e6

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

static double period_of(const struct hr__balance_rank *r)
{
    return r->period_ns > PERIOD_MAX_NS ? (double)PERIOD_MAX_NS : (double)r->period_ns;
}

static int base_of(const struct hr__balance_rank *r)
{
    return r->base < 1 ? 1 : r->base > WORKERS_MAX ? WORKERS_MAX : (int)r->base;
}

static int active_of(const struct hr__balance_rank *r)
{
    uint32_t most = HR__BALANCE_MOST * (uint32_t)base_of(r);
    return r->active < 1 ? 1 : r->active > most ? (int)most : (int)r->active;
}

/* Time of all workers for a batch. */
static double work_of(const struct hr__balance_rank *r)
{
    return r->work_ns > WORK_MAX_NS ? (double)WORK_MAX_NS : (double)r->work_ns;
}

int hr__balance_is_present(const struct hr__balance_rank *r, uint64_t now_ns)
{
    if (!r->updated_ns || !r->period_ns || !r->taken_ns)
        return 0;
    /* Others may have looked at the clock after this one. */
    uint64_t apart_ns = now_ns > r->updated_ns ? now_ns - r->updated_ns : r->updated_ns - now_ns;
    return apart_ns <= HR__BALANCE_STALE_NS;
}

double hr__balance_slack_ns(const struct hr__balance_rank *r, uint64_t now_ns)
{
    double period = period_of(r);
    double stock = (double)(r->stock > STOCK_MAX ? STOCK_MAX : r->stock) / 1000 * period;
    uint64_t since_ns = r->waits_ns ? r->waits_ns : r->taken_ns;
    double passed = now_ns > since_ns ? (double)(now_ns - since_ns) : 0;
    /* A consumer that takes long for one batch (a checkpoint) is not in a hurry; one that waits is
     * due, and no more so for having waited very long. */
    passed = clamp(passed, 0, period);
    return stock - passed - (r->waits_ns ? period : 0);
}

/* Brings the smoothed slacks up to date. */
static void smooth(struct hr__balance *b, const struct hr__balance_rank *ranks, int count,
                   uint64_t now_ns)
{
    double passed = b->decided_ns && now_ns > b->decided_ns ? (double)(now_ns - b->decided_ns) : 0;
    for (int i = 0; i < count; i++) {
        const struct hr__balance_rank *r = &ranks[i];
        if (!hr__balance_is_present(r, now_ns)) {
            b->is_known[i] = 0;
            continue;
        }
        double slack = hr__balance_slack_ns(r, now_ns);
        double over = clamp(SMOOTH_PERIODS * period_of(r), SMOOTH_MIN_NS, SMOOTH_MAX_NS);
        double weight = b->is_known[i] ? clamp(passed / over, 0, 1) : 1;
        b->slack_ns[i] =
            b->is_known[i] ? b->slack_ns[i] + weight * (slack - b->slack_ns[i]) : slack;
        b->is_known[i] = 1;
    }
    b->decided_ns = now_ns;
}

/* The present rank whose stock lasts shortest, of equals the first; -1: none. */
static int most_urgent(const struct hr__balance *b, int count)
{
    int urgent = -1;
    for (int i = 0; i < count; i++)
        if (b->is_known[i] && (urgent < 0 || b->slack_ns[i] < b->slack_ns[urgent]))
            urgent = i;
    return urgent;
}

/* Whether this rank is ahead of the most urgent one, with hysteresis. */
static int judge(const struct hr__balance *b, const struct hr__balance_rank *ranks, int self,
                 int urgent)
{
    if (urgent < 0 || urgent == self || !b->is_known[self] || b->slack_ns[urgent] >= 0)
        return 0;
    double mine = period_of(&ranks[self]), its = period_of(&ranks[urgent]);
    double measure = mine > its ? mine : its;
    if (measure < AHEAD_MIN_NS)
        measure = AHEAD_MIN_NS;
    double gap = b->slack_ns[self] - b->slack_ns[urgent];
    return gap > measure * (b->is_ahead ? AHEAD_UNTIL : AHEAD_FROM);
}

/* Whether a rank that is ahead should give up a worker for the most urgent one: where none that
 * was given up is left to take. */
static int should_give(const struct hr__balance *b, const struct hr__balance_rank *mine,
                       const struct hr__balance_rank *urgent, uint64_t now_ns)
{
    if (mine->cores != urgent->cores || b->active < 2 || !mine->work_ns || !urgent->work_ns)
        return 0;
    if (now_ns < b->since_ns + (uint64_t)period_of(mine))
        return 0;
    return work_of(mine) / (b->active - 1) < GAIN * work_of(urgent) / active_of(urgent);
}

/* Workers that the ranks on the same cores have less than they began with. */
static int given_up(const struct hr__balance_rank *ranks, int count, int self)
{
    int sum = 0;
    for (int i = 0; i < count; i++)
        if (ranks[i].updated_ns && ranks[i].cores == ranks[self].cores)
            sum += base_of(&ranks[i]) - active_of(&ranks[i]);
    return sum;
}

int hr__balance_decide(struct hr__balance *b, const struct hr__balance_rank *ranks, int count,
                       int self, int most, uint64_t now_ns)
{
    int active = b->active, shift = b->shift;
    if (count > HR__BALANCE_RANKS)
        count = HR__BALANCE_RANKS;
    if (self < 0 || self >= count)
        return 0;
    smooth(b, ranks, count, now_ns);
    int urgent = most_urgent(b, count), base = base_of(&ranks[self]);
    int was_ahead = b->is_ahead;
    b->is_ahead = judge(b, ranks, self, urgent);
    if (b->is_ahead && !was_ahead)
        b->since_ns = now_ns;

    int free = given_up(ranks, count, self);
    if (b->is_ahead && free <= 0 && should_give(b, &ranks[self], &ranks[urgent], now_ns)) {
        b->active--;
        b->since_ns = now_ns;
    } else if (free < 0) {
        b->active -= b->active > base;
    } else if (free > 0 && !b->is_ahead &&
               (b->active < base || (urgent == self && b->slack_ns[self] < 0))) {
        b->active += b->active < most;
    }

    if (!b->is_ahead)
        b->shift = 0;
    else if (b->shift < HR__BALANCE_SHIFT)
        b->shift++;
    return b->active != active || b->shift != shift;
}
