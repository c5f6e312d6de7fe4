/* Makes records from plans; see records.h. */
#include "records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"device", "host", "warm", "cold", "alone"};

struct records_plan plan_default(void)
{
    return (struct records_plan){
        .world = 1,
        .ranks_per_host = 8,
        .rounds = 4,
        .batches = 10,
        .batch_size = 64,
        .workers = 4,
        .kind = "torch",
        .device = "cuda:0",
        .run = "run-1",
        .ended = "precise",
        .filesystem = "ext4",
        .phases = 15,
        .seconds = {.05, .055, .085, .1, .07},
        .verified = {-1, -1, 1, 1, -1},
        .bytes = 150e9,
        .available = 30e9,
        .samples = 1.5e6,
        .wait = 0.3,
        .drains = "[]",
        .depths = "[]",
        .preparation = "[]",
        .notes = "[]",
        .files = "[]",
        .forms = "[]",
    };
}

struct records_writer {
    FILE *f;
    int count;
    double begin;
};

static void segment(struct records_writer *w, const struct records_plan *p, int phase, int round,
                    int alone, double factor)
{
    double batch = p->seconds[phase] * factor * (phase < 4 ? 1 + p->noise[round % 16] : 1);
    double wait = phase == 2 || phase == 3 ? batch * p->wait : batch * 0.001;
    fprintf(w->f,
            "%s{\"phase\": \"%s\", \"round\": %d, \"set\": %d, \"alone_rank\": %d, "
            "\"batches\": %d, \"samples\": %d, \"begin_s\": %.17g, \"elapsed_s\": %.17g, "
            "\"process_cpu_s\": %.17g, \"worker_cpu_s\": null, \"read_bytes\": %d, "
            "\"expected_bytes\": null, \"verified\": %s, \"reason\": \"%s\", \"wait_s\": [",
            w->count++ ? ",\n" : "", names[phase], round, round, alone, p->batches,
            p->batches * p->batch_size, w->begin, batch * p->batches, 0.02 * p->batches,
            phase == 3 ? 1000000 : 0,
            p->verified[phase] < 0 ? "null"
            : p->verified[phase]   ? "true"
                                   : "false",
            p->verified[phase] ? "" : "nothing was read");
    for (int i = 0; i < p->batches; i++)
        fprintf(w->f, "%s%.17g", i ? ", " : "", wait);
    fprintf(w->f, "], \"batch_s\": [");
    for (int i = 0; i < p->batches; i++)
        fprintf(w->f, "%s%.17g", i ? ", " : "", batch);
    fprintf(w->f, "]}");
    w->begin += batch * p->batches;
}

char *plan_record(const struct records_plan *p, int rank, double factor)
{
    char *text;
    size_t length;
    struct records_writer w = {.f = open_memstream(&text, &length)};
    fprintf(w.f,
            "{\"headrace_stalls_record\": 1, \"run\": \"%s\", \"rank\": %d, \"world_size\": %d, "
            "\"local_rank\": %d, \"local_world_size\": %d, \"host\": \"host-%d\",\n"
            "\"command\": [\"python\", \"train it.py\"], \"started\": \"2026-01-02T03:04:05Z\", "
            "\"ended\": \"%s\", \"future\": {\"x\": [1, null]},\n"
            "\"machine\": {\"cores\": 16, \"cpu\": \"A CPU\", \"memory_bytes\": 64000000000, "
            "\"available_bytes\": %.17g, \"device\": %s},\n",
            p->run, rank, p->world, rank % p->ranks_per_host, p->ranks_per_host,
            rank / p->ranks_per_host, p->ended, p->available,
            strncmp(p->device, "cpu", 3) ? "\"A GPU\"" : "null");
    fprintf(w.f,
            "\"loader\": {\"kind\": \"%s\", \"class\": \"torch.utils.data.DataLoader\", "
            "\"workers\": %d, \"batches_ahead\": %d, \"batch_size\": %d, \"cache_bytes\": 0},\n"
            "\"training\": {\"device\": \"%s\", \"threads\": 2, \"warm_up_batches\": 5},\n"
            "\"dataset\": {\"name\": \"photos\", \"samples\": %.17g, \"bytes\": %.17g, "
            "\"sizes\": [100000, 90000.5, 110000], \"filesystem\": \"%s\"},\n\"phases\": {",
            p->kind, p->workers, 2 * p->workers, p->batch_size, p->device, p->samples, p->bytes,
            p->filesystem);
    int said = 0;
    for (int i = 0; i < 5; i++)
        if (p->why[i])
            fprintf(w.f, "%s\"%s\": \"%s\"", said++ ? ", " : "", names[i], p->why[i]);
    fprintf(w.f, "},\n\"segments\": [");
    for (int r = 0; r < p->rounds; r++)
        for (int k = 0; k < 4; k++) {
            static const int forth[] = {0, 1, 3, 2};
            int phase = forth[r % 2 ? 3 - k : k];
            if (p->phases >> phase & 1)
                segment(&w, p, phase, r, -1, factor);
        }
    for (int k = 0; k < 2 * p->world && p->phases >> HR_STALLS_ALONE & 1; k++)
        segment(&w, p, HR_STALLS_ALONE, k / p->world, k % p->world, factor);
    fprintf(
        w.f,
        "],\n\"drains\": %s, \"preparation\": %s,\n\"storage\": {\"depths\": %s, "
        "\"memory_bytes_per_s\": 5e9}, \"headrace\": {\"recipe\": \"resize\", \"assumed\": "
        "false, \"forms\": %s},\n\"first_batch_s\": 0.7, \"notes\": %s, \"files_written\": %s}\n",
        p->drains, p->preparation, p->depths, p->forms, p->notes, p->files);
    fclose(w.f);
    return text;
}

int plan_analyse(const struct records_plan *p, struct hr_stalls **out, struct hr_error *error)
{
    char **texts = calloc((size_t)p->world, sizeof *texts);
    size_t *lengths = calloc((size_t)p->world, sizeof *lengths);
    for (int i = 0; i < p->world; i++) {
        texts[i] = plan_record(p, i, 1);
        lengths[i] = strlen(texts[i]);
    }
    int r = hr_stalls_analyse(out, (const char *const *)texts, lengths, p->world, error);
    for (int i = 0; i < p->world; i++)
        free(texts[i]);
    free(texts);
    free(lengths);
    return r;
}
