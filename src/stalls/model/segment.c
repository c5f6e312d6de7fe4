/*
 * What a segment proves: whether a cold one was cold and a warm one warm, whether others disturbed
 * it, what in it was a pause, and the notes about all segments of a run. The probe of a Python
 * script and the watch of a loop in C both ask here, so that they claim the same on the same
 * evidence. Whether a segment is run again is decided by the schedule.
 *
 * Pure: counts in, conclusions out. headrace/stalls.h has the limits of each rule.
 */
#include "base/error.h"
#include "base/versioned.h"
#include "stalls/model/interval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Shares of the expected bytes: that a cold segment reads at least, by what is known of its files;
 * that a warm one may read; and of the dropped bytes, that may stay in memory. */
#define COLD_SHARE           0.9
#define COLD_SHARE_ESTIMATED 0.5
#define WARM_SHARE           0.05
#define RESIDENT_SHARE       0.05
/* Bytes of something else: that the processes of a run may read, or that stay in memory. */
#define BESIDE_BYTES          0x1p20
#define RESIDENT_BESIDE_BYTES 0x1p16
/* A warm segment that reads more than this share shows it, though it counts. */
#define CLEAN_SHARE 0.002

/* Share of the cores' time for others, and of the time that threads wait for a core. */
#define OTHERS_SHARE 0.1
#define DELAY_SHARE  0.05
/* The kernel counts in hundredths of a second. */
#define LOAD_LEAST_S 0.03

/* A pause takes so many usual steps and seconds longer; pauses are at most this share of steps. */
#define PAUSE_STEPS   5.0
#define PAUSE_LEAST_S 0.05
#define PAUSES_SHARE  0.25

/* ---- cold and warm ---- */

#define REFUSE(e, ...) (snprintf((e)->reason, sizeof(e)->reason, __VA_ARGS__), 0)

static int prove_cold(struct hr_stalls_evidence *e)
{
    double share = e->reads == HR_STALLS_READS_ESTIMATED ? COLD_SHARE_ESTIMATED : COLD_SHARE;
    if (e->read_bytes >= share * e->expected_bytes)
        return 1;
    if (e->network)
        return REFUSE(e,
                      "%s is a network file system: its server's memory cannot be dropped, and the "
                      "kernel does not count all its reads",
                      e->filesystem);
    return REFUSE(
        e,
        "only %.1f of %.1f MB came from storage: another program read the rest meanwhile, "
        "or has it in memory",
        e->read_bytes / 1e6, e->expected_bytes / 1e6);
}

static int prove_warm(struct hr_stalls_evidence *e)
{
    if (e->read_bytes <= fmax(WARM_SHARE * e->expected_bytes, BESIDE_BYTES))
        return 1;
    return REFUSE(e,
                  "%.1f MB came from storage though the files, %.1f MB, had been read before: too "
                  "little memory for them, or another program dropped them",
                  e->read_bytes / 1e6, e->expected_bytes / 1e6);
}

/* It is not known which bytes of the files a segment reads, only what the cold ones read. */
static int prove_by_others(struct hr_stalls_evidence *e)
{
    bool is_cold = e->phase == HR_STALLS_COLD;
    double most = isnan(e->cold_bytes) ? 0 : e->cold_bytes;
    if (is_cold ? e->read_bytes > 0 : e->read_bytes <= fmax(WARM_SHARE * most, BESIDE_BYTES))
        return 1;
    return REFUSE(e, "%.1f MB came from storage, and it is not known how many were to come",
                  e->read_bytes / 1e6);
}

static int prove(struct hr_stalls_evidence *e)
{
    bool is_cold = e->phase == HR_STALLS_COLD;
    e->reason[0] = 0;
    if (e->phase == HR_STALLS_HOST || e->phase == HR_STALLS_DEVICE)
        return -1;
    if (e->unsettled)
        return REFUSE(e, "it began with batches that the loader had prepared before");
    if (is_cold && e->in_memory)
        return REFUSE(e, "the files lie in %s, in memory: nothing is ever fetched", e->filesystem);
    if (is_cold && e->resident_bytes > RESIDENT_SHARE * e->bytes + RESIDENT_BESIDE_BYTES)
        return REFUSE(e,
                      "%.1f of %.1f MB stayed in memory though they were dropped: another program "
                      "has these files mapped, or writes to them",
                      e->resident_bytes / 1e6, e->bytes / 1e6);
    if (isnan(e->read_bytes))
        return REFUSE(e, "the kernel does not let this process read its I/O counters "
                         "(/proc/self/io)");
    if (e->reads == HR_STALLS_READS_NOTHING)
        return e->read_bytes <= BESIDE_BYTES ||
               REFUSE(e, "%.1f MB were read from storage by something unknown",
                      e->read_bytes / 1e6);
    if (e->reads == HR_STALLS_READS_UNKNOWN)
        return REFUSE(e, "%s",
                      e->network ? "the samples perhaps come over the network"
                                 : "which files are read is not known: see --data");
    if (isnan(e->expected_bytes))
        return prove_by_others(e);
    return is_cold ? prove_cold(e) : prove_warm(e);
}

/* ---- others ---- */

static void weigh_load(struct hr_stalls_evidence *e)
{
    double whole = e->cores * e->load_s;
    if (!(whole > 0))
        return;
    double steal = e->steal_s > 0 ? e->steal_s : 0, foreign = e->busy_s - e->run_s;
    double stolen = steal > LOAD_LEAST_S ? steal / whole : 0;
    e->others = NAN;
    e->disturbed = 0;
    if (isnan(foreign) ||
        (fmax(foreign, steal) <= LOAD_LEAST_S && OTHERS_SHARE * whole < LOAD_LEAST_S))
        return;
    e->others = fmin(1, (foreign > LOAD_LEAST_S ? foreign / whole : 0) + stolen);
    /* Work of others on cores that the run does not want is no disturbance. */
    bool is_delayed = isnan(e->run_delay_s) || e->run_delay_s > DELAY_SHARE * e->load_s;
    e->disturbed = e->others > OTHERS_SHARE && (is_delayed || stolen > OTHERS_SHARE);
}

int hr_stalls_judge(struct hr_stalls_evidence *evidence, struct hr_error *error)
{
    struct hr_stalls_evidence e;
    hr_stalls_evidence_default(&e);
    int r = hr__versioned_take(&e, sizeof e, evidence, "hr_stalls_evidence", error);
    if (r)
        return r;
    e.verified = prove(&e);
    weigh_load(&e);
    hr__versioned_give(evidence, &e, sizeof e);
    return 0;
}

/* ---- pauses ---- */

size_t hr_stalls_pauses(const double *wait_s, const double *batch_s, size_t count, double step_s,
                        double *pause_s)
{
    for (size_t i = 0; i < count; i++)
        pause_s[i] = batch_s[i] - wait_s[i];
    double usual = hr__middle_of(pause_s, count);
    size_t found = 0, since = 0; /* steps whose work the device may still do */
    for (size_t i = 0; i < count; i++) {
        double step = batch_s[i] - wait_s[i];
        pause_s[i] = 0;
        since++;
        if (step <= fmax(PAUSE_STEPS * usual, usual + PAUSE_LEAST_S))
            continue;
        if (step > 2 * (step_s + fmax(0, step_s - usual) * (double)since)) {
            pause_s[i] = step - usual;
            found++;
        }
        since = 0;
    }
    if ((double)found <= PAUSES_SHARE * (double)count)
        return found;
    for (size_t i = 0; i < count; i++)
        pause_s[i] = 0;
    return 0;
}

/* ---- notes ---- */

/* Sums over all segments. */
struct segment_sums {
    size_t count, again, disturbed, pauses, warm, read;
    double most_others, throttled_s, elapsed_s, paused_s, most_read, clean;
};

static void add(struct segment_sums *sums, const struct hr_stalls_evidence *e)
{
    sums->count++;
    sums->again += e->tries > 1;
    if (e->disturbed) {
        sums->disturbed++;
        sums->most_others = fmax(sums->most_others, e->others);
    }
    sums->throttled_s += e->throttled_s > 0 ? e->throttled_s : 0;
    sums->elapsed_s += e->elapsed_s > 0 ? e->elapsed_s : 0;
    sums->pauses += (size_t)(e->pauses > 0 ? e->pauses : 0);
    sums->paused_s += e->paused_s;
    if (e->phase == HR_STALLS_WARM) {
        sums->warm++;
        sums->clean = fmax(sums->clean, CLEAN_SHARE * e->expected_bytes);
    }
}

/* Returns the i-th segment; a caller's struct may be of another version. */
static struct hr_stalls_evidence at(const struct hr_stalls_evidence *segments, size_t i)
{
    struct hr_stalls_evidence e;
    hr_stalls_evidence_default(&e);
    const void *one = (const char *)segments + i * segments->size;
    if (hr__versioned_take(&e, sizeof e, one, "hr_stalls_evidence", NULL))
        hr_stalls_evidence_default(&e);
    return e;
}

#define NOTE(...) snprintf(notes[n++], sizeof *notes, __VA_ARGS__)

int hr_stalls_segment_notes(const struct hr_stalls_evidence *segments, size_t count,
                            const char *unheld, char notes[HR_STALLS_NOTES][400])
{
    struct segment_sums sums = {.clean = BESIDE_BYTES};
    int n = 0;
    for (size_t i = 0; i < count; i++) {
        struct hr_stalls_evidence e = at(segments, i);
        add(&sums, &e);
    }
    for (size_t i = 0; i < count; i++) {
        struct hr_stalls_evidence e = at(segments, i);
        if (e.phase != HR_STALLS_WARM || !(e.read_bytes > sums.clean))
            continue;
        sums.read++;
        sums.most_read = fmax(sums.most_read, e.read_bytes);
    }
    if (sums.read)
        NOTE("%zu of %zu segments with data in memory read up to %.1f MB from storage: the system "
             "takes files out of memory meanwhile%s",
             sums.read, sums.warm, sums.most_read / 1e6, unheld);
    if (sums.disturbed)
        NOTE("other processes took up to %.0f%% of the cores' time: %zu of %zu segments stayed "
             "disturbed though %zu were run again; measure when the machine is yours",
             100 * sums.most_others, sums.disturbed, sums.count, sums.again);
    if (sums.throttled_s > OTHERS_SHARE * sums.elapsed_s)
        NOTE("the container's CPU quota held the run back for %.1f of %.1f s: it would in "
             "training, too",
             sums.throttled_s, sums.elapsed_s);
    if (sums.pauses)
        NOTE("the loop paused %zu times between steps, %.2g s on average (evaluation, logging, "
             "or the machine stood still): pauses are in no rate and no share",
             sums.pauses, sums.paused_s / (double)sums.pauses);
    return n;
}
