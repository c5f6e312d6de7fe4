/* Results as a measurement would have found them; see measured.h. */
#include "measured.h"

#include "close.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCHES 200

static const double file_bytes[] = {MEASURED_BYTES};

void measured_begin(struct measured *m, int cores, int workers, const double *step_s,
                    const double *cpu_s, double bytes_per_s)
{
    memset(m, 0, sizeof *m);
    m->truth = (struct hr__system){
        .cores = cores,
        .storage_bytes_per_s = bytes_per_s,
        .storage_latency_s = 0.001,
        .ranks = 1,
        .step_s = {step_s, 1},
        .step_threads = 1,
        .loader = HR__LOADER_TORCH,
        .workers = workers,
        .batches_ahead = 2 * workers,
        .batch_size = MEASURED_BATCH,
        .prepare_s = {cpu_s, 1},
        .bytes = {file_bytes, 1},
    };
}

static double batch_s(const struct hr__system *system, double *core_share)
{
    double found = 0;
    struct hr_error error = {0};
    if (hr__simulate_batch_s(system, BATCHES, 1, &found, core_share, &error))
        fail_msg("%s", error.message);
    return found;
}

double measured_rate(const struct hr__system *system)
{
    return (double)system->batch_size * system->ranks / batch_s(system, NULL);
}

static struct hr_interval about(double value)
{
    return (struct hr_interval){value, value * 0.99, value * 1.01};
}

static void add_drain(struct measured *m, int cores, bool cold)
{
    struct hr__system s = m->truth;
    double share = 0;
    s.cores = cores;
    s.step_s.count = 0;
    s.step_cpu_s = 0;
    s.missing = cold;
    double one = batch_s(&s, &share);
    for (int r = 0; r < m->stalls.rank_count; r++) {
        struct hr__rank_record *rank = &m->stalls.ranks[r];
        rank->drains[rank->drain_count++] = (struct hr__drain_record){
            .cold = cold,
            .cores = cores,
            .samples = (uint64_t)s.batch_size * 100,
            .elapsed_s = one * 100,
            .cpu_s = one * 100 * share * cores / s.ranks,
            .read_bytes = NAN,
        };
    }
}

static void take_machine(struct measured *m)
{
    struct hr_stalls *s = &m->stalls;
    double most = m->truth.storage_bytes_per_s / MEASURED_BYTES;
    double each = m->truth.storage_latency_s + 1 / most;
    struct hr__host_record *host = s->hosts = calloc(1, sizeof *host);
    s->host_count = 1;
    strcpy(host->name, "host");
    host->cores = m->truth.cores;
    host->available_bytes = (uint64_t)8 << 30;
    host->memory_bytes = (uint64_t)16 << 30;
    host->memory_bytes_per_s = 5e9;
    host->depths = calloc(6, sizeof *host->depths);
    for (int i = 0; i < 6; i++) {
        int depth = 1 << i;
        double reads = fmin(depth / each, most);
        host->depths[host->depth_count++] = (struct hr__depth_record){
            .depth = depth, .bytes_per_s = reads * MEASURED_BYTES, .reads_per_s = reads};
    }
    double waited_s = fmax(0, each - m->truth.storage_saved_s);
    host->paused_bytes_per_s = waited_s > 0 ? MEASURED_BYTES / waited_s : 1e18;
    host->saved_bytes = m->truth.storage_saved_s * m->truth.storage_bytes_per_s;
    host->forms = calloc(3, sizeof *host->forms);
    host->form_count = 3;
    host->forms[0] = (struct hr__form_record){HR_FORM_ENCODED, 0.002, MEASURED_BYTES};
    host->forms[1] = (struct hr__form_record){HR_FORM_COEFFICIENTS, 0.0004, 1.35 * MEASURED_BYTES};
    host->forms[2] = (struct hr__form_record){HR_FORM_PLANES, 0.0002, 3.5 * MEASURED_BYTES};
    strcpy(host->recipe, "RandomResizedCrop(224), flip, normalise");
}

/* Measures steps alone, and beside the loader in one thread that never waits for batches, so that
 * all of its time is on a core: receiving batches, and the step. */
static void take_steps(struct measured *m)
{
    struct hr__segment_record *segments = calloc(2, sizeof *segments);
    struct hr_stalls *s = &m->stalls;
    size_t count = m->truth.step_s.count;
    m->batch_s = calloc(count, sizeof *m->batch_s);
    memcpy(m->batch_s, m->truth.step_s.values, count * sizeof *m->batch_s);
    segments[0] = (struct hr__segment_record){.phase = HR_STALLS_HOST,
                                              .alone_rank = -1,
                                              .batches = count,
                                              .samples = count * MEASURED_BATCH,
                                              .elapsed_s = s->step_s[HR_STALLS_HOST].value * count,
                                              .process_cpu_s = m->truth.step_cpu_s * count,
                                              .batch_s = m->batch_s};
    double warm_s = s->step_s[HR_STALLS_WARM].value;
    segments[1] =
        (struct hr__segment_record){.phase = HR_STALLS_WARM,
                                    .alone_rank = -1,
                                    .batches = 1,
                                    .samples = MEASURED_BATCH,
                                    .elapsed_s = warm_s,
                                    .process_cpu_s = warm_s,
                                    .next_cpu_s = m->truth.batch_cpu_s,
                                    .worker_cpu_s = MEASURED_BATCH * *m->truth.prepare_s.values};
    s->ranks[0].segments = segments;
    s->ranks[0].segment_count = m->truth.disturbance > 0 ? 2 : 1;
}

/* Sets the phases' results: rates, and shares of the time. */
void measured_shares(struct measured *m)
{
    struct hr_stalls *s = &m->stalls;
    struct hr_stalls_summary *found = &s->summary;
    double step_s = s->step_s[HR_STALLS_HOST].value, warm_s = s->step_s[HR_STALLS_WARM].value,
           cold_s = s->step_s[HR_STALLS_COLD].value;
    for (int i = HR_STALLS_HOST; i <= HR_STALLS_COLD; i++) {
        found->measured[i] = 1;
        found->rate[i] = about((double)s->batch_size * s->rank_count / s->step_s[i].value);
    }
    found->device_rate = found->rate[HR_STALLS_HOST];
    found->warm_share[0] = about(step_s / warm_s);
    found->warm_share[2] = about(1 - step_s / warm_s);
    found->share[0] = about(step_s / cold_s);
    found->share[2] = about((warm_s - step_s) / cold_s);
    found->share[3] = about(1 - warm_s / cold_s);
}

void measured_take(struct measured *m)
{
    struct hr_stalls *s = &m->stalls;
    struct hr__system step = m->truth, warm = m->truth, cold = m->truth;
    s->world_size = s->rank_count = m->truth.ranks;
    s->loader = m->truth.loader;
    s->workers = m->truth.workers;
    s->prefetch_batches = m->truth.batches_ahead;
    s->batch_size = m->truth.batch_size;
    s->on_cpu = true;
    s->training_threads = m->truth.cores;
    s->samples = 100000;
    s->bytes = 100000 * MEASURED_BYTES;
    s->training_cpu_s = m->truth.step_cpu_s;
    s->ranks = calloc((size_t)s->rank_count, sizeof *s->ranks);
    for (int r = 0; r < s->rank_count; r++) {
        s->ranks[r].rank = s->ranks[r].local_rank = r;
        strcpy(s->ranks[r].host, "host");
        s->ranks[r].drains = calloc((size_t)m->truth.cores + 1, sizeof *s->ranks[r].drains);
    }
    step.workers = 0;
    step.prepare_s.count = 0;
    step.delay_s = step.batch_cpu_s = 0;
    cold.missing = 1;
    for (int i = 0; i < HR_STALLS_PHASES; i++)
        s->step_s[i] = (struct hr_interval){NAN, NAN, NAN};
    s->step_s[HR_STALLS_HOST] = about(batch_s(&step, NULL));
    s->step_s[HR_STALLS_WARM] = about(batch_s(&warm, NULL));
    s->step_s[HR_STALLS_COLD] = about(batch_s(&cold, NULL));
    for (int cores = m->truth.cores; cores >= 1; cores /= 2)
        add_drain(m, cores, false);
    add_drain(m, m->truth.cores, true);
    struct hr__system alone = m->truth;
    alone.step_s.count = 0;
    alone.step_cpu_s = 0;
    s->summary.prepare_rate = about(measured_rate(&alone));
    alone.prepare_s.count = 0;
    alone.delay_s = alone.missing_cpu_s = 0;
    alone.missing = 1;
    s->summary.fetch_rate = about(measured_rate(&alone));
    take_machine(m);
    take_steps(m);
}

void measured_clear(struct measured *m)
{
    struct hr_stalls *s = &m->stalls;
    free(s->hosts->depths);
    free(s->hosts->forms);
    free(s->hosts);
    free(s->ranks[0].segments);
    for (int r = 0; r < s->rank_count; r++)
        free(s->ranks[r].drains);
    free(s->ranks);
    free(m->batch_s);
}

void measured_make(struct measured *m, int cores, int workers, const double *step_s,
                   const double *cpu_s, double bytes_per_s)
{
    measured_begin(m, cores, workers, step_s, cpu_s, bytes_per_s);
    measured_take(m);
}

void measured_known(struct measured *m, int cores, int workers, const double *step_s,
                    const double *cpu_s, double bytes_per_s)
{
    measured_make(m, cores, workers, step_s, cpu_s, bytes_per_s);
    measured_shares(m);
}

struct hr_stalls_prediction predicted(const struct measured *m,
                                      const struct hr_stalls_change *change)
{
    struct hr_error error = {0};
    struct hr_stalls_prediction p = {.size = sizeof p};
    if (hr_stalls_predict(&m->stalls, change, &p, &error))
        fail_msg("%s", error.message);
    assert_close(p.share[0] + p.share[1] + p.share[2] + p.share[3], 1, 1e-9);
    return p;
}

void check(const struct measured *m, const struct hr_stalls_change *change,
           const struct hr__system *truth, double tolerance)
{
    double wanted = measured_rate(truth), found = predicted(m, change).rate;
    if (fabs(found - wanted) > tolerance * wanted)
        fail_msg("%g samples/s predicted, %g true", found, wanted);
}

struct hr_stalls_change no_change(void)
{
    struct hr_stalls_change change;
    hr_stalls_change_default(&change);
    return change;
}
