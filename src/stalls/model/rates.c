/*
 * Derives the loader's rate without training (P), storage's rate (F), and the CPU time of a sample.
 *
 * P comes from draining the loader with its files in memory on all cores, all ranks at once: the
 * sum of their rates.
 *
 * F is the rate of storage read alone, with as many reads in flight as the loader has, over the
 * bytes of a sample. A cold drain is better evidence in two cases. First, if it really read its
 * bytes and was significantly faster still, storage can do at least that (the measured depth was
 * not the loader's); it is then counted by the bytes that it read. Second, if storage could not be
 * read alone. Then, if workers fetch and prepare one after the other, 1/F is the extra time of a
 * cold sample over a warm one; for other loaders F is the cold rate if it is clearly below the warm
 * one.
 */
#include "stalls/model/inside.h"
#include "stalls/model/parts.h"

#include <string.h>

/* Reads that one rank of Headrace's loader keeps in flight, of files and of objects. */
#define HEADRACE_READS    64
#define HEADRACE_REQUESTS 256
/* Share of the expected bytes that a cold drain must have read. */
#define REALLY_READ 0.9
/* Share of the warm rate below which a cold rate is limited by storage. */
#define CLEARLY_BELOW 0.9
/* Block size of storage reads. */
#define BLOCK_BYTES 4096.0
/* Rates at two depths count as equal below this relative difference. */
#define AS_MUCH 0.15

/* Average size of the files a loader was seen to read, if the dataset does not list them. */
static double learned_bytes(const struct hr_stalls *s)
{
    double bytes = 0, samples = 0;
    for (int i = 0; i < s->rank_count; i++)
        for (size_t k = 0; k < s->ranks[i].segment_count; k++) {
            const struct hr__segment_record *g = &s->ranks[i].segments[k];
            if (g->phase == HR_STALLS_COLD && g->verified == 1 && g->expected_bytes > 0 &&
                g->expected_samples > 0) {
                bytes += g->expected_bytes;
                samples += g->expected_samples;
            }
        }
    return samples > 0 ? bytes / samples : NAN;
}

double hr__mean_bytes(const struct hr_stalls *s)
{
    if (s->samples && s->bytes > 0)
        return s->bytes / (double)s->samples;
    double mean = hr__moments_of(s->sizes, s->size_count).mean;
    return mean > 0 ? mean : learned_bytes(s);
}

double hr__dataset_bytes(const struct hr_stalls *s)
{
    double bytes = s->bytes > 0 ? s->bytes : (double)s->samples * hr__mean_bytes(s);
    return bytes > 0 && isfinite(bytes) ? bytes : NAN;
}

bool hr__is_at_urls(const struct hr_stalls *s)
{
    static const char *const schemes[] = {"s3", "gs", "http", "https"};
    bool found = false;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        found |= !strcmp(s->filesystem, schemes[i]);
    return found;
}

int hr__headrace_depth(const struct hr_stalls *s)
{
    return hr__is_at_urls(s) ? HEADRACE_REQUESTS : HEADRACE_READS;
}

/* Returns how many reads the loader keeps in flight on a host, over the ranks present. */
static int loader_depth(const struct hr_stalls *s, const struct hr__host_record *host)
{
    int each = s->loader == HR__LOADER_HEADRACE                  ? hr__headrace_depth(s)
               : s->loader == HR__LOADER_TORCH && s->workers > 0 ? s->workers
                                                                 : 1;
    int ranks = 0;
    for (int i = 0; i < s->rank_count; i++)
        ranks += !strcmp(s->ranks[i].host, host->name);
    return each * ranks;
}

/* Interpolates between measured depths, linearly in the logarithm of the depth. Beyond them, uses
 * the nearest depth; fewer reads than measured give a proportional rate. */
static double rate_at(const struct hr__host_record *host, int depth)
{
    const struct hr__depth_record *d = host->depths;
    size_t n = host->depth_count;
    if (!n)
        return NAN;
    if (depth <= d[0].depth)
        return d[0].bytes_per_s * depth / d[0].depth;
    for (size_t i = 1; i < n; i++)
        if (depth <= d[i].depth) {
            double at =
                log((double)depth / d[i - 1].depth) / log((double)d[i].depth / d[i - 1].depth);
            return d[i - 1].bytes_per_s + at * (d[i].bytes_per_s - d[i - 1].bytes_per_s);
        }
    return d[n - 1].bytes_per_s;
}

/* Likewise with an interval, from the parts of the time at that depth and at depths with about the
 * same rate: saturated storage varies alike at all of them. */
static struct hr_interval alone_rate(const struct hr__host_record *host, int depth)
{
    double parts[HR__STALLS_MAX_POINTS * HR__STALLS_MAX_PARTS], rate = rate_at(host, depth);
    size_t n = 0;
    for (size_t i = 0; i < host->depth_count; i++) {
        const struct hr__depth_record *d = &host->depths[i];
        if (fabs(d->bytes_per_s / rate - 1) > AS_MUCH)
            continue;
        for (int k = 0; k < d->part_count; k++)
            parts[n++] = d->parts[k];
    }
    struct hr_interval varied = hr__interval_positive(parts, n);
    return (struct hr_interval){rate, rate * varied.low / varied.value,
                                rate * varied.high / varied.value};
}

static int most_cores(const struct hr__rank_record *rank, bool cold)
{
    int most = 0;
    for (size_t i = 0; i < rank->drain_count; i++)
        if (rank->drains[i].cold == cold && rank->drains[i].cores > most)
            most = rank->drains[i].cores;
    return most;
}

/* Returns a rank's drain number `number` on all its cores; NULL: none. */
static const struct hr__drain_record *drain_of(const struct hr__rank_record *rank, bool cold,
                                               size_t number)
{
    int cores = most_cores(rank, cold);
    for (size_t i = 0; i < rank->drain_count; i++) {
        const struct hr__drain_record *d = &rank->drains[i];
        if (d->cold == cold && d->cores == cores && d->elapsed_s > 0 && d->samples && number-- == 0)
            return d;
    }
    return NULL;
}

/* Returns the rate of all ranks draining at once, over the drains. */
static struct hr_interval drain_rate(const struct hr_stalls *s, bool cold, double scale)
{
    double rates[HR__STALLS_MAX_POINTS];
    size_t n = 0;
    for (; n < HR__STALLS_MAX_POINTS; n++) {
        double sum = 0;
        int with = 0;
        for (int i = 0; i < s->rank_count; i++) {
            const struct hr__drain_record *d = drain_of(&s->ranks[i], cold, n);
            sum += d ? (double)d->samples / d->elapsed_s : 0;
            with += d != NULL;
        }
        if (!with)
            break;
        rates[n] = sum / with * s->rank_count * scale;
    }
    return hr__interval_positive(rates, n);
}

/* Returns whether the cold drains really read from storage. */
static bool really_read(const struct hr_stalls *s, double mean_bytes)
{
    double read = 0, expected = 0;
    for (int i = 0; i < s->rank_count; i++)
        for (size_t k = 0; k < s->ranks[i].drain_count; k++) {
            const struct hr__drain_record *d = &s->ranks[i].drains[k];
            if (!d->cold)
                continue;
            if (!isfinite(d->read_bytes))
                return false;
            read += d->read_bytes;
            expected += (double)d->samples * mean_bytes;
        }
    return expected > 0 && read >= REALLY_READ * expected;
}

/* Returns the bytes that storage delivers per sample, in whole blocks as the kernel counts. */
static double mean_blocks(const struct hr_stalls *s)
{
    double sum = 0;
    if (!s->size_count)
        return hr__mean_bytes(s);
    for (size_t i = 0; i < s->size_count; i++)
        sum += ceil(s->sizes[i] / BLOCK_BYTES) * BLOCK_BYTES;
    return sum / (double)s->size_count;
}

/* Rate of cold drains by the bytes they read: a drain's samples may be larger or smaller than the
 * dataset's average. */
static struct hr_interval read_rate(const struct hr_stalls *s, double scale)
{
    double rates[HR__STALLS_MAX_POINTS], mean = mean_blocks(s);
    size_t n = 0;
    for (; n < HR__STALLS_MAX_POINTS; n++) {
        double sum = 0;
        int with = 0;
        for (int i = 0; i < s->rank_count; i++) {
            const struct hr__drain_record *d = drain_of(&s->ranks[i], true, n);
            sum += d ? d->read_bytes / d->elapsed_s / mean : 0;
            with += d != NULL;
        }
        if (!with)
            break;
        rates[n] = sum / with * s->rank_count * scale;
    }
    return hr__interval_positive(rates, n);
}

/* Compares outside both intervals, if known: of two measurements of the same storage, the larger
 * one would only be the luckier one. */
static bool is_faster(struct hr_interval read, struct hr_interval alone)
{
    double low = isfinite(read.low) ? read.low : read.value;
    double high = isfinite(alone.high) ? alone.high : alone.value;
    return low > high;
}

static struct hr_interval fetch_rate(const struct hr_stalls *s, double scale)
{
    double mean = hr__mean_bytes(s);
    struct hr_interval alone = {0, 0, 0};
    for (int i = 0; i < s->host_count; i++) {
        struct hr_interval one = alone_rate(&s->hosts[i], loader_depth(s, &s->hosts[i]));
        alone.value += one.value * scale / mean;
        alone.low += one.low * scale / mean;
        alone.high += one.high * scale / mean;
    }
    struct hr_interval cold = drain_rate(s, true, scale), warm = s->summary.prepare_rate;
    bool real = cold.value > 0 && mean > 0 && really_read(s, mean);
    struct hr_interval read = real ? read_rate(s, scale) : HR__UNKNOWN;
    if (alone.value > 0 && isfinite(alone.value))
        return is_faster(read, alone) ? read : alone;
    if (!real || !(warm.value > 0))
        return HR__UNKNOWN;
    if (s->loader == HR__LOADER_HEADRACE)
        return cold.value < CLEARLY_BELOW * warm.value ? read : HR__UNKNOWN;
    double longer = 1 / cold.value - 1 / warm.value;
    return longer > 0 ? (struct hr_interval){1 / longer, NAN, NAN} : HR__UNKNOWN;
}

/* A sum and the quantity to divide it by. */
struct ratio {
    double sum, over;
};

static double value_of(struct ratio r)
{
    return r.over > 0 ? r.sum / r.over : NAN;
}

/* Returns the CPU seconds of preparing a sample, from the workers' reports, preferably warm; else
 * from the loader alone. */
static double prepare_cpu_s(const struct hr_stalls *s)
{
    struct ratio prepared[2] = {{0}}, drained = {0};
    for (int i = 0; i < s->rank_count; i++) {
        const struct hr__rank_record *rank = &s->ranks[i];
        for (size_t k = 0; k < rank->prepare_count; k++) {
            const struct hr__prepare_record *p = &rank->prepares[k];
            if (!isfinite(p->cpu_s))
                continue;
            prepared[p->cold].sum += p->cpu_s;
            prepared[p->cold].over += p->samples;
        }
        for (size_t k = 0; k < rank->drain_count; k++) {
            const struct hr__drain_record *d = &rank->drains[k];
            if (d->cold || !isfinite(d->cpu_s))
                continue;
            drained.sum += d->cpu_s;
            drained.over += (double)d->samples;
        }
    }
    /* Older records contain the elapsed time of Headrace's threads, not only their CPU time. */
    if (s->loader == HR__LOADER_HEADRACE && drained.over > 0)
        return value_of(drained);
    return value_of(prepared[0].over > 0   ? prepared[0]
                    : prepared[1].over > 0 ? prepared[1]
                                           : drained);
}

/* Returns the CPU seconds of a batch in the training process of one rank, without loading. */
static double training_cpu_s(const struct hr_stalls *s)
{
    struct ratio by_phase[HR_STALLS_PHASES] = {{0}};
    for (int i = 0; i < s->rank_count; i++)
        for (size_t k = 0; k < s->ranks[i].segment_count; k++) {
            const struct hr__segment_record *g = &s->ranks[i].segments[k];
            if (!isfinite(g->process_cpu_s))
                continue;
            by_phase[g->phase].sum += g->process_cpu_s;
            by_phase[g->phase].over += (double)g->batches;
        }
    double device = value_of(by_phase[HR_STALLS_DEVICE]);
    return isfinite(device) ? device : value_of(by_phase[HR_STALLS_HOST]);
}

void hr__derive_rates(struct hr_stalls *s, double scale)
{
    s->summary.prepare_rate = drain_rate(s, false, scale);
    s->summary.fetch_rate = fetch_rate(s, scale);
    s->prepare_cpu_s = prepare_cpu_s(s);
    s->training_cpu_s = training_cpu_s(s);
}
