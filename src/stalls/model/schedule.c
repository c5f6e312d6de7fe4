/*
 * Chooses the next segment: rounds in ABBA order until every share is narrow enough or a limit is
 * reached, then the cost of each rank's loading alone.
 *
 * Pure: no clock, no randomness. Decisions depend only on the options and on the times reported, so
 * all ranks with the same reports decide the same. The time of future segments is estimated by the
 * mean of earlier ones of their phase.
 */
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "stalls/model/rounds.h"

#include <errno.h>
#include <inttypes.h>

/* Fewer rounds give no reliable interval; more than the maximum add nothing. */
#define MIN_ROUNDS 4
#define MAX_ROUNDS 1000
/* Most ranks that load alone; with more ranks, a sample spread over all of them. */
#define MAX_ALONE 16

/* Tries of a disturbed segment, and the share of the time for all tries but the first. */
#define MAX_TRIES    3
#define REPEAT_SHARE 0.3
/* Training hardly waits if it waits for less than this share of the time. */
#define HARDLY_WAITS 0.08

/* How segments of a phase begin: with the loader's queue empty, to find out; empty; full. */
enum schedule_queue { QUEUE_UNKNOWN, QUEUE_EMPTY, QUEUE_FULL };

enum schedule_stage { STAGE_ROUNDS, STAGE_ALONE, STAGE_OVER };

struct hr_stalls_schedule {
    struct hr_stalls_schedule_options options;
    int phases; /* bits of the phases still measured, ALONE included */
    enum schedule_stage stage;
    enum hr_stalls_end end; /* GOES_ON before STAGE_OVER */

    /* STAGE_ROUNDS. */
    int round;     /* the current one */
    int position;  /* 0..3 within the round's order */
    bool cold_ran; /* in this round */
    struct hr__round rounds[MAX_ROUNDS];

    /* STAGE_ALONE. */
    int alone_ranks; /* number of ranks that load alone */
    int alone;       /* 0..2 * alone_ranks - 1 */
    int rounds_ran;  /* rounds used the index sets up to this one */

    bool given; /* a segment was handed out and not reported yet */
    struct hr_stalls_segment segment;
    int tries;       /* of the segment that others disturbed */
    double repeat_s; /* all_s of all tries but the first */
    enum schedule_queue queue[HR_STALLS_PHASES];

    double spent_s; /* all_s of all segments */
    uint64_t spent_batches;
    double phase_s[HR_STALLS_PHASES]; /* sums of all_s, and their counts */
    int phase_count[HR_STALLS_PHASES];
    double progress; /* highest value reported */
};

static const enum hr_stalls_phase forth[HR__ROUND_PHASES] = {HR_STALLS_DEVICE, HR_STALLS_HOST,
                                                             HR_STALLS_COLD, HR_STALLS_WARM};
static const enum hr_stalls_phase back[HR__ROUND_PHASES] = {HR_STALLS_WARM, HR_STALLS_COLD,
                                                            HR_STALLS_HOST, HR_STALLS_DEVICE};

static bool has(const struct hr_stalls_schedule *s, int phase)
{
    return s->phases >> phase & 1;
}

static int round_segments(const struct hr_stalls_schedule *s)
{
    int n = 0;
    for (int p = 0; p < HR__ROUND_PHASES; p++)
        n += has(s, p);
    return n;
}

static uint64_t segment_batches(const struct hr_stalls_schedule *s)
{
    return s->options.settle + s->options.batches;
}

static int check(const struct hr_stalls_schedule_options *o, struct hr_error *error)
{
    int replays = 1 << HR_STALLS_DEVICE | 1 << HR_STALLS_HOST;
    if (o->phases & ~((1 << HR_STALLS_PHASES) - 1) || !(o->phases & replays))
        return hr__fail(error, -EINVAL,
                        "phases is %#x: set 1 << HR_STALLS_DEVICE or 1 << HR_STALLS_HOST, and "
                        "what else can be measured",
                        (unsigned)o->phases);
    if (o->ranks < 1)
        return hr__fail(error, -EINVAL, "ranks is %d: there is at least 1", o->ranks);
    if (o->batches < 1 || o->batches > 1000000 || o->settle > 1000000)
        return hr__fail(error, -EINVAL,
                        "batches is %" PRIu64 " and settle %" PRIu64
                        ": a segment has 1 to 1,000,000 batches, and at most as many to settle",
                        o->batches, o->settle);
    if (!(o->max_s >= 0) || isinf(o->max_s))
        return hr__fail(error, -EINVAL, "max_s is %g: use seconds, 0 for no limit", o->max_s);
    if (!(o->precision > 0 && o->precision < 1))
        return hr__fail(error, -EINVAL,
                        "precision is %g: use a share between 0 and 1, such as 0.02", o->precision);
    return 0;
}

int hr_stalls_schedule_create(struct hr_stalls_schedule **out,
                              const struct hr_stalls_schedule_options *options,
                              struct hr_error *error)
{
    struct hr_stalls_schedule_options o;
    *out = NULL;
    hr_stalls_schedule_options_default(&o);
    int r = hr__versioned_take(&o, sizeof o, options, "hr_stalls_schedule_options", error);
    if (!r)
        r = check(&o, error);
    if (r)
        return r;
    struct hr_stalls_schedule *s = hr__alloc(HR__TAG_STALLS, 1, sizeof *s);
    if (!s)
        return hr__fail(error, -ENOMEM, "out of memory for the schedule of segments");
    s->options = o;
    s->phases = o.phases & ~(1 << HR_STALLS_ALONE);
    uint64_t least = MIN_ROUNDS * (uint64_t)round_segments(s) * segment_batches(s);
    if (o.max_batches && o.max_batches < least) {
        hr_stalls_schedule_destroy(&s);
        return hr__fail(error, -EINVAL,
                        "max_batches is %" PRIu64 ", but %d rounds take %" PRIu64
                        " batches: allow more, or make segments (batches, now %" PRIu64 ") shorter",
                        o.max_batches, MIN_ROUNDS, least, o.batches);
    }
    /* One rank's loading can only be measured if loading is measured. */
    if (o.ranks > 1 && has(s, HR_STALLS_WARM))
        s->phases |= 1 << HR_STALLS_ALONE;
    for (int i = 0; i < MAX_ROUNDS; i++)
        for (int p = 0; p < HR__ROUND_PHASES; p++)
            s->rounds[i].seconds[p] = NAN;
    *out = s;
    return 0;
}

void hr_stalls_schedule_destroy(struct hr_stalls_schedule **schedule)
{
    if (!schedule)
        return;
    hr__free(*schedule);
    *schedule = NULL;
}

/* Estimates the seconds of a future segment of a phase; 0: unknown. */
static double predicted_s(const struct hr_stalls_schedule *s, int phase)
{
    if (s->phase_count[phase])
        return s->phase_s[phase] / s->phase_count[phase];
    /* One rank loading alone takes no longer than all ranks loading. */
    return phase == HR_STALLS_ALONE ? predicted_s(s, HR_STALLS_WARM) : 0;
}

static double round_s(const struct hr_stalls_schedule *s)
{
    double sum = 0;
    for (int p = 0; p < HR__ROUND_PHASES; p++)
        sum += has(s, p) ? predicted_s(s, p) : 0;
    return sum;
}

/* Segments that the ALONE stage needs: two per rank of its sample. */
static int alone_wanted(const struct hr_stalls_schedule *s)
{
    int ranks = s->options.ranks < MAX_ALONE ? s->options.ranks : MAX_ALONE;
    return has(s, HR_STALLS_ALONE) ? 2 * ranks : 0;
}

/* Returns whether so many more seconds and batches fit the limits. */
static bool fits(const struct hr_stalls_schedule *s, double seconds, uint64_t batches)
{
    const struct hr_stalls_schedule_options *o = &s->options;
    return (o->max_s == 0 || s->spent_s + seconds <= o->max_s) &&
           (o->max_batches == 0 || s->spent_batches + batches <= o->max_batches);
}

/* Returns whether `rounds` more rounds fit, with space for the ALONE stage after them, which
 * reserves at most half of everything. */
static bool rounds_fit(const struct hr_stalls_schedule *s, int rounds)
{
    const struct hr_stalls_schedule_options *o = &s->options;
    int alone = alone_wanted(s);
    double alone_s = fmin(alone * predicted_s(s, HR_STALLS_ALONE), o->max_s / 2);
    uint64_t alone_batches = (uint64_t)alone * segment_batches(s);
    if (alone_batches > o->max_batches / 2)
        alone_batches = o->max_batches / 2;
    return fits(s, rounds * round_s(s) + alone_s,
                (uint64_t)(rounds * round_segments(s)) * segment_batches(s) + alone_batches);
}

/* Returns half the widest interval of a share of the longest phase; if there is only one phase,
 * half the relative interval of its time. NaN for fewer than two rounds. */
static double widest(const struct hr_stalls_schedule *s)
{
    struct hr_interval share[HR__ROUND_PHASES];
    int phases = s->phases & ((1 << HR__ROUND_PHASES) - 1);
    int last = -1;
    double half = 0, times[MAX_ROUNDS];
    for (int p = 0; p < HR__ROUND_PHASES; p++)
        last = phases >> p & 1 ? p : last;
    if (last < 0)
        return 0;
    if (phases == 1 << last) {
        for (int i = 0; i < s->round; i++)
            times[i] = s->rounds[i].seconds[last];
        struct hr_interval time = hr__interval_mean(times, (size_t)s->round);
        return (time.high - time.low) / 2 / time.value;
    }
    if (hr__rounds_share(s->rounds, s->round, phases, (enum hr_stalls_phase)last, share) < 2)
        return NAN;
    for (int p = 0; p < HR__ROUND_PHASES; p++)
        if (phases >> p & 1)
            half = fmax(half, (share[p].high - share[p].low) / 2);
    return half;
}

static void finish(struct hr_stalls_schedule *s)
{
    s->stage = STAGE_OVER;
    s->progress = 1;
    if (s->end == HR_STALLS_GOES_ON)
        s->end = HR_STALLS_PRECISE;
}

/* After the last round: chooses as many ranks to load alone as fit. */
static void begin_alone(struct hr_stalls_schedule *s)
{
    int segments = alone_wanted(s);
    s->stage = STAGE_ALONE;
    s->rounds_ran = s->round;
    while (segments > 0 && !fits(s, segments * predicted_s(s, HR_STALLS_ALONE),
                                 (uint64_t)segments * segment_batches(s))) {
        segments -= 2;
        s->end = HR_STALLS_LIMIT;
    }
    s->alone_ranks = segments / 2;
    if (!segments)
        finish(s);
}

/* Between rounds: decides whether to begin another one. */
static void weigh(struct hr_stalls_schedule *s)
{
    if (!round_segments(s)) {
        s->end = HR_STALLS_LIMIT;
        finish(s);
        return;
    }
    if (s->round < MIN_ROUNDS)
        return;
    bool even = s->round % 2 == 0;
    if (even && widest(s) <= s->options.precision) {
        begin_alone(s);
        return;
    }
    /* Begin a pair of rounds only as a whole: half a pair would not cancel drift. */
    if (s->round == MAX_ROUNDS || !rounds_fit(s, even ? 2 : 1)) {
        s->end = HR_STALLS_LIMIT;
        begin_alone(s);
    }
}

/* Returns which rank loads alone in the k-th segment of that stage: forward, then backward. */
static int alone_rank(const struct hr_stalls_schedule *s, int k)
{
    int n = s->alone_ranks, i = k < n ? k : 2 * n - 1 - k;
    return n == 1 ? 0 : (int)((int64_t)i * (s->options.ranks - 1) / (n - 1));
}

static void give_round_segment(struct hr_stalls_schedule *s)
{
    enum hr_stalls_phase phase = (s->round % 2 ? back : forth)[s->position];
    s->segment = (struct hr_stalls_segment){
        .phase = phase,
        .round = s->round,
        .set = s->round,
        .rank = -1,
        .preread = phase == HR_STALLS_WARM && !s->cold_ran,
    };
}

static void give_alone_segment(struct hr_stalls_schedule *s)
{
    s->segment = (struct hr_stalls_segment){
        .phase = HR_STALLS_ALONE,
        .round = s->alone < s->alone_ranks ? 0 : 1,
        .set = s->rounds_ran + s->alone,
        .rank = alone_rank(s, s->alone),
        .preread = 1,
    };
}

/* Moves to the next possible segment; false at the end. */
static bool advance(struct hr_stalls_schedule *s)
{
    while (s->stage == STAGE_ROUNDS) {
        if (s->position == 0)
            weigh(s);
        if (s->stage != STAGE_ROUNDS)
            break;
        while (s->position < HR__ROUND_PHASES &&
               !has(s, (s->round % 2 ? back : forth)[s->position]))
            s->position++;
        if (s->position < HR__ROUND_PHASES) {
            give_round_segment(s);
            return true;
        }
        s->position = 0;
        s->cold_ran = false;
        s->round++;
    }
    if (s->stage == STAGE_ALONE && (s->alone == 2 * s->alone_ranks || !has(s, HR_STALLS_ALONE)))
        finish(s);
    if (s->stage == STAGE_OVER)
        return false;
    give_alone_segment(s);
    return true;
}

int hr_stalls_schedule_next(struct hr_stalls_schedule *schedule, struct hr_stalls_segment *segment)
{
    struct hr_stalls_schedule *s = schedule;
    if (!s->given) {
        if (!advance(s))
            return 0;
        s->segment.settle = s->options.settle;
        s->segment.batches = s->options.batches;
        s->given = true;
        s->tries = 0;
    }
    int phase = s->segment.phase == HR_STALLS_ALONE ? HR_STALLS_WARM : s->segment.phase;
    s->segment.full = s->queue[phase] == QUEUE_FULL;
    hr__versioned_give(segment, &s->segment, sizeof s->segment);
    return 1;
}

/* Decides how segments of a phase begin. */
static enum hr_stalls_again weigh_queue(enum schedule_queue *queue,
                                        const struct hr_stalls_evidence *e)
{
    if (!(e->queue_ahead > 0) || *queue == QUEUE_EMPTY)
        return HR_STALLS_COUNTS;
    if (*queue == QUEUE_UNKNOWN) {
        *queue = e->waited_s < HARDLY_WAITS * e->elapsed_s ? QUEUE_FULL : QUEUE_EMPTY;
        return *queue == QUEUE_FULL ? HR_STALLS_UNSETTLED : HR_STALLS_COUNTS;
    }
    if (!(e->queue_end < e->queue_ahead / 2))
        return HR_STALLS_COUNTS;
    *queue = QUEUE_EMPTY;
    return HR_STALLS_NONE_SETTLED;
}

enum hr_stalls_again hr_stalls_schedule_again(struct hr_stalls_schedule *schedule,
                                              const struct hr_stalls_evidence *evidence)
{
    struct hr_stalls_schedule *s = schedule;
    enum hr_stalls_phase phase = s->segment.phase;
    struct hr_stalls_evidence e;
    hr_stalls_evidence_default(&e);
    if (hr__versioned_take(&e, sizeof e, evidence, "hr_stalls_evidence", NULL) || !s->given ||
        phase == HR_STALLS_ALONE)
        return HR_STALLS_COUNTS;
    if (phase == HR_STALLS_WARM || phase == HR_STALLS_COLD) {
        enum hr_stalls_again again = weigh_queue(&s->queue[phase], &e);
        for (int i = 0; again == HR_STALLS_NONE_SETTLED && i < s->round; i++)
            s->rounds[i].seconds[phase] = NAN;
        if (again != HR_STALLS_COUNTS) {
            s->tries = 0;
            return again;
        }
    }
    s->repeat_s += s->tries++ && e.all_s > 0 ? e.all_s : 0;
    bool is_late = s->options.max_s > 0 && s->repeat_s > REPEAT_SHARE * s->options.max_s;
    return e.disturbed && s->tries < MAX_TRIES && !is_late ? HR_STALLS_DISTURBED : HR_STALLS_COUNTS;
}

/* Estimates how many rounds the precision will take: an interval narrows with the root of their
 * number. */
static double rounds_needed(const struct hr_stalls_schedule *s)
{
    double needed = MIN_ROUNDS;
    if (s->round >= MIN_ROUNDS) {
        double ratio = widest(s) / s->options.precision;
        if (isfinite(ratio))
            needed = fmax(needed, s->round * ratio * ratio);
    }
    return fmin(needed, MAX_ROUNDS);
}

/* Raises the progress to the share done, by whichever end is nearest. */
static void note_progress(struct hr_stalls_schedule *s)
{
    const struct hr_stalls_schedule_options *o = &s->options;
    double done = 0, all = 2.0 * s->alone_ranks, most = 0.99;
    for (int p = 0; p < HR_STALLS_PHASES; p++)
        done += s->phase_count[p];
    if (s->stage == STAGE_ROUNDS)
        all = fmax(rounds_needed(s) * round_segments(s), done + 1) + alone_wanted(s);
    else
        all += done - s->alone;
    double progress = done / fmax(all, 1);
    if (s->stage == STAGE_ROUNDS && o->max_s > 0)
        progress = fmax(progress, s->spent_s / o->max_s);
    if (s->stage == STAGE_ROUNDS && o->max_batches)
        progress = fmax(progress, (double)s->spent_batches / (double)o->max_batches);
    s->progress = fmax(s->progress, fmin(progress, most));
}

void hr_stalls_schedule_report(struct hr_stalls_schedule *schedule, double timed_s, double all_s)
{
    struct hr_stalls_schedule *s = schedule;
    if (!s->given)
        return;
    enum hr_stalls_phase phase = s->segment.phase;
    s->given = false;
    s->spent_batches += segment_batches(s);
    if (!(all_s > 0) || isinf(all_s))
        all_s = 0;
    s->spent_s += all_s;
    s->phase_s[phase] += all_s;
    s->phase_count[phase]++;
    if (phase == HR_STALLS_ALONE) {
        s->alone++;
    } else {
        if (timed_s > 0 && isfinite(timed_s))
            s->rounds[s->round].seconds[phase] = timed_s / (double)s->options.batches;
        s->cold_ran |= phase == HR_STALLS_COLD;
        s->position++;
    }
    note_progress(s);
}

void hr_stalls_schedule_drop(struct hr_stalls_schedule *schedule, enum hr_stalls_phase phase)
{
    struct hr_stalls_schedule *s = schedule;
    if ((int)phase < 0 || phase >= HR_STALLS_PHASES)
        return;
    s->phases &= ~(1 << phase);
    if (phase == HR_STALLS_WARM)
        s->phases &= ~(1 << HR_STALLS_ALONE);
    if (s->given && !has(s, (int)s->segment.phase))
        s->given = false;
}

enum hr_stalls_end hr_stalls_schedule_end(const struct hr_stalls_schedule *schedule)
{
    return schedule->stage == STAGE_OVER ? schedule->end : HR_STALLS_GOES_ON;
}

double hr_stalls_schedule_progress(const struct hr_stalls_schedule *schedule)
{
    return schedule->progress;
}
