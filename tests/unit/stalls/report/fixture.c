/* Results made by hand; see fixture.h. The times of batches vary by a fixed function. */
#include "../../test.h"

#include "../../report/shown.h"
#include "fixture.h"

#include <math.h>
#include <string.h>

#define ROUNDS   4
#define SEGMENTS (ROUNDS * 4)
#define BATCHES  20

static const struct hr_interval unknown = {NAN, NAN, NAN};

static struct hr__segment_record segments[2][SEGMENTS];
static double waits[2][SEGMENTS][BATCHES], batches[2][SEGMENTS][BATCHES];
static struct hr__rank_record ranks[2];
static struct hr__host_record host;
static struct hr_interval waiting[2], alone[2];
static bool straggles[2];

static void make_segment(int rank, int index, double *at_s)
{
    static const enum hr_stalls_phase order[] = {HR_STALLS_DEVICE, HR_STALLS_HOST, HR_STALLS_COLD,
                                                 HR_STALLS_WARM};
    static const double step_ms[] = {100, 104, 142, 176}; /* by phase */
    struct hr__segment_record *g = &segments[rank][index];
    int round = index / 4, k = index % 4;
    enum hr_stalls_phase phase = order[round % 2 ? 3 - k : k];
    *g = (struct hr__segment_record){
        .phase = phase,
        .round = round,
        .set = round,
        .alone_rank = -1,
        .batches = BATCHES,
        .samples = BATCHES * 256,
        .begin_s = *at_s,
        .process_cpu_s = 0.4,
        .worker_cpu_s = phase >= HR_STALLS_WARM ? 20 : 0,
        .read_bytes = phase == HR_STALLS_COLD ? 560e6 : 0,
        .expected_bytes = phase >= HR_STALLS_WARM ? 558e6 : NAN,
        .others = NAN,
        .verified = phase >= HR_STALLS_WARM ? 1 : -1,
        .wait_s = waits[rank][index],
        .batch_s = batches[rank][index],
    };
    for (int b = 0; b < BATCHES; b++) {
        double wave = sin(b * 1.7 + index * 0.9 + rank);
        double wait_ms = phase < HR_STALLS_WARM ? 0.2 : step_ms[phase] - 104;
        if (phase == HR_STALLS_COLD)
            wait_ms *= b % 4 == 3 ? 2.2 + 0.4 * wave : 0.6 + 0.3 * wave;
        waits[rank][index][b] = wait_ms / 1000;
        batches[rank][index][b] = (wait_ms + 104 + 3 * wave) / 1000;
        g->elapsed_s += batches[rank][index][b];
    }
    *at_s += g->elapsed_s + 0.7;
}

static void make_ranks(void)
{
    static const struct hr__drain_record drains[] = {
        {false, 2, 2560, 6.4, 12.7, 0},
        {false, 8, 2560, 1.8, 13.8, 0},
        {false, 16, 2560, 1.422, 21, 0},
        {true, 16, 2560, 1.76, 21, 280e6},
    };
    for (int r = 0; r < 2; r++) {
        double at_s = 0;
        for (int i = 0; i < SEGMENTS; i++)
            make_segment(r, i, &at_s);
        ranks[r] = (struct hr__rank_record){
            .rank = r,
            .local_rank = r,
            .host = "node-1",
            .segments = segments[r],
            .segment_count = SEGMENTS,
            .drains = (struct hr__drain_record *)drains,
            .drain_count = sizeof drains / sizeof *drains,
            .first_batch_s = 1.83 + r * 0.3,
        };
    }
}

static void make_host(void)
{
    static struct hr__depth_record depths[] = {
        {.depth = 1, .bytes_per_s = 118e6, .reads_per_s = 1076},
        {.depth = 4, .bytes_per_s = 402e6, .reads_per_s = 3666},
        {.depth = 16, .bytes_per_s = 1.21e9, .reads_per_s = 11034},
        {.depth = 64, .bytes_per_s = 1.9e9, .reads_per_s = 17326}};
    static struct hr__form_record forms[] = {{HR_FORM_ENCODED, 0.00203, 109666},
                                             {HR_FORM_COEFFICIENTS, 0.00026, 148050},
                                             {HR_FORM_PLANES, 0.000131, 380000}};
    host = (struct hr__host_record){
        .name = "node-1",
        .cores = 16,
        .cpu = "AMD EPYC 9354",
        .memory_bytes = 128ull << 30,
        .available_bytes = 96ull << 30,
        .device = "NVIDIA H100",
        .depths = depths,
        .depth_count = sizeof depths / sizeof *depths,
        .memory_bytes_per_s = 6.2e9,
        .paused_bytes_per_s = NAN,
        .saved_bytes = NAN,
        .forms = forms,
        .form_count = sizeof forms / sizeof *forms,
        .recipe = "RandomResizedCrop(224), RandomHorizontalFlip, Normalize",
    };
}

static struct hr_interval around(double value, double half)
{
    return (struct hr_interval){value, value - half, value + half};
}

static void make_derived(struct hr_stalls *s)
{
    static const double step_s[] = {0.1, 0.104, 0.142, 0.176};
    struct hr_stalls_summary *m = &s->summary;
    *m = (struct hr_stalls_summary){
        .size = sizeof *m, .ranks = 2, .cores = 16, .samples = s->samples, .bytes = 140500000000};
    for (int p = 0; p <= HR_STALLS_COLD; p++) {
        m->measured[p] = 1;
        s->step_s[p] = around(step_s[p], step_s[p] * 0.01);
        m->rate[p] = around(512 / step_s[p], 512 / step_s[p] * 0.01);
    }
    m->rate[HR_STALLS_ALONE] = s->step_s[HR_STALLS_ALONE] = unknown;
    m->device_rate = m->rate[HR_STALLS_DEVICE];
    m->prepare_rate = around(3600.6, 41);
    m->fetch_rate = around(2909.1, 55);
    m->share[0] = around(0.568, 0.006);
    m->share[1] = around(0.023, 0.004);
    m->share[2] = around(0.216, 0.009);
    m->share[3] = around(0.193, 0.012);
    m->warm_share[0] = around(0.704, 0.007);
    m->warm_share[1] = around(0.028, 0.005);
    m->warm_share[2] = around(0.268, 0.008);
    for (int r = 0; r < 2; r++) {
        waiting[r] = around(0.38 + 0.05 * r, 0.011);
        alone[r] = around(0.031 + 0.009 * r, 0.002);
        straggles[r] = r == 1;
    }
    s->waiting = waiting;
    s->alone_s = alone;
    s->straggles = straggles;
    s->prepare_cpu_s = 0.00512;
    s->training_cpu_s = 0.0192;
}

void fixture_gpu(struct hr_stalls *s)
{
    static char command[] = "torchrun --nproc-per-node 2 train.py --arch resnet50 /data/imagenet";
    static char sentence[] =
        "Training waits 41 % of the time: 22 % for preparation on the CPU, 19 % for the disk; "
        "Headrace's loader would remove it.";
    static char started[] = "2026-11-21T13:05:00Z", ended[] = "precise";
    static char note[] = "The script has a second loader (validation), which was left alone.";
    static char written[] = "/data/runs/checkpoint.pt";
    static char *notes[] = {note}, *files[] = {written};
    *s = (struct hr_stalls){
        .command = command,
        .started = started,
        .ended = ended,
        .world_size = 2,
        .loader = HR__LOADER_TORCH,
        .loader_class = "torch.utils.data.DataLoader",
        .workers = 8,
        .prefetch_batches = 16,
        .batch_size = 256,
        .training_device = "cuda:0",
        .dataset = "ImageFolder(/data/imagenet/train)",
        .samples = 1281167,
        .bytes = 140.5e9,
        .filesystem = "ext4",
        .notes = notes,
        .note_count = 1,
        .files_written = files,
        .file_count = 1,
        .ranks = ranks,
        .rank_count = 2,
        .hosts = &host,
        .host_count = 1,
        .sentence = sentence,
    };
    make_ranks();
    make_host();
    make_derived(s);
}

void fixture_cpu(struct hr_stalls *s)
{
    static char sentence[] = "The CPU hardly waits for data.";
    static struct hr__rank_record rank;
    rank = (struct hr__rank_record){.first_batch_s = NAN};
    *s = (struct hr_stalls){
        .world_size = 1,
        .loader = HR__LOADER_OTHER,
        .loader_class = "generator",
        .loader_cache_bytes = NAN,
        .on_cpu = true,
        .training_threads = 2,
        .bytes = NAN,
        .ranks = &rank,
        .rank_count = 1,
        .prepare_cpu_s = NAN,
        .training_cpu_s = NAN,
        .sentence = sentence,
    };
    s->summary.cores = 1;
    s->summary.device_rate = s->summary.rate[HR_STALLS_HOST] = around(51.25, 0.5);
    s->summary.measured[HR_STALLS_HOST] = 1;
    s->step_s[HR_STALLS_HOST] = around(0.312, 0.003);
    for (int p = 0; p < HR_STALLS_PHASES; p++)
        if (p != HR_STALLS_HOST)
            s->summary.rate[p] = s->step_s[p] = unknown;
    s->summary.rate[HR_STALLS_WARM] = (struct hr_interval){50.9, NAN, NAN};
    for (int i = 0; i < 4; i++)
        s->summary.share[i] = unknown;
    for (int i = 0; i < 3; i++)
        s->summary.warm_share[i] = unknown;
    s->summary.prepare_rate = s->summary.fetch_rate = unknown;
    strcpy(s->phase_reason[HR_STALLS_DEVICE], "training runs on the CPU: there is no copy");
    strcpy(s->phase_reason[HR_STALLS_WARM],
           "12.0 MiB were read from storage, though the files had been read before: something "
           "else needed the memory");
    strcpy(s->phase_reason[HR_STALLS_COLD], "the files of this loader are not known");
}

void fixture_warm(struct hr_stalls *s)
{
    fixture_gpu(s);
    s->summary.measured[HR_STALLS_COLD] = 0;
    s->summary.rate[HR_STALLS_COLD] = s->step_s[HR_STALLS_COLD] = unknown;
    for (int i = 0; i < 4; i++)
        s->summary.share[i] = unknown;
    s->summary.fetch_rate = unknown;
    host.depth_count = 0;
    for (int r = 0; r < 2; r++) {
        ranks[r].drain_count = 3;
        for (int i = 0; i < SEGMENTS; i++)
            if (segments[r][i].phase == HR_STALLS_COLD)
                segments[r][i].batches = 0;
    }
}

/* Copies a text as far as it fits. */
static void cut(char *out, size_t capacity, const char *text)
{
    size_t n = strlen(text) < capacity ? strlen(text) : capacity - 1;
    memcpy(out, text, n);
    out[n] = 0;
}

void fixture_hostile(struct hr_stalls *s)
{
    static char evil[] = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>"
                         "\"'&amp;]]>\\u003c\033[31m\x80\n\r\t\x7f${1}{{7*7}}";
    static char *texts[] = {evil, evil};
    fixture_gpu(s);
    s->command = s->started = s->ended = s->sentence = evil;
    s->notes = s->files_written = texts;
    s->note_count = s->file_count = 2;
    cut(s->loader_class, sizeof s->loader_class, evil);
    cut(s->dataset, sizeof s->dataset, evil);
    cut(s->filesystem, sizeof s->filesystem, evil);
    cut(s->training_device, sizeof s->training_device, evil);
    cut(host.cpu, sizeof host.cpu, evil);
    cut(host.device, sizeof host.device, evil);
    cut(host.name, sizeof host.name, evil);
    cut(host.recipe, sizeof host.recipe, evil);
    for (int p = 0; p < HR_STALLS_PHASES; p++)
        cut(s->phase_reason[p], sizeof s->phase_reason[p], evil);
    for (int r = 0; r < 2; r++) {
        cut(ranks[r].host, sizeof ranks[r].host, evil);
        for (int i = 0; i < SEGMENTS; i++)
            cut(segments[r][i].reason, sizeof segments[r][i].reason, evil);
    }
}

const char *fixture_written(fixture_writer writer, const struct hr_stalls *stalls)
{
    char path[64];
    struct hr_error error = {0};
    shown_make_path(path);
    if (writer(stalls, path, &error))
        fail_msg("%s", error.message);
    return shown_read(path);
}
