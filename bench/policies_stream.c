/* Makes the simulator's stream of uses from the orders of src/order, and the sizes of the samples
 * (policies.h). */
#include "policies.h"

#include "base/memory.h"
#include "base/random.h"
#include "order/order.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLASSES = 1000, REPEATS = 3, PURPOSE_SIZES = 3000, PURPOSE_DRAWS = 3002 };

_Noreturn void policies_die(const char *what)
{
    fprintf(stderr, "bench_policies: %s\n", what);
    exit(3);
}

void *policies_array(uint64_t count, uint64_t size)
{
    void *array = hr__alloc(HR__TAG_ORDER, count + !count, size);
    if (!array)
        policies_die("out of memory");
    return array;
}

/* Draws sizes: log-normal about 110 kB, like photographs of one resolution. */
static uint32_t draw_size(struct hr__random *random)
{
    double normal = 0;
    for (int k = 0; k < 12; k++)
        normal += hr__random_unit(random) - 0.5;
    return (uint32_t)(100e3 * exp(0.45 * normal));
}

static void make_sizes(struct policies_stream *s)
{
    struct hr__random random;
    FILE *file = s->wish.sizes ? fopen(s->wish.sizes, "r") : NULL;
    if (s->wish.sizes && !file)
        policies_die("the file of sizes cannot be opened");
    hr__random_init(&random, 1, PURPOSE_SIZES, 0, 0);
    s->size = policies_array(s->all, sizeof *s->size);
    for (uint64_t i = 0; i < s->all; i++) {
        if (file && fscanf(file, "%u", &s->size[i]) != 1) {
            /* Fewer sizes than samples: they repeat. */
            if (!i || !feof(file))
                policies_die("the file of sizes has something else than numbers");
            rewind(file);
            i--;
            continue;
        }
        if (!file)
            s->size[i] = draw_size(&random);
        s->bytes += s->size[i];
    }
    if (file)
        fclose(file);
}

/* The first sample of a class. Classes are as large as a power law makes them: the largest has 32
 * times the samples of the smallest. */
static uint64_t class_start(uint64_t samples, uint32_t class)
{
    return (uint64_t)((double)samples * log2(1 + 31.0 * class / CLASSES) / 5);
}

/* Fills in an epoch from the file of draws. */
static void read_epoch(const struct policies_stream *s, FILE *file, uint64_t *order)
{
    unsigned long long sample;
    for (uint64_t i = 0; i < s->wish.samples; i++) {
        if (fscanf(file, "%llu", &sample) != 1 || sample >= s->wish.samples)
            policies_die("the file of draws has to have an index of a sample for each use");
        order[i] = sample;
    }
}

/* Fills in the samples of one job's epoch. */
static void fill_epoch(const struct policies_stream *s, uint32_t job, uint32_t epoch,
                       uint64_t *order)
{
    uint64_t n = s->wish.samples;
    struct hr_error error;
    struct hr__random random;
    hr__random_init(&random, job, PURPOSE_DRAWS, epoch, 0);
    if (s->wish.sampler == SAMPLER_SHUFFLE || s->wish.sampler == SAMPLER_REPEATED)
        if (hr_order_fill(order, n, 1, job, epoch, &error))
            policies_die(error.message);
    if (s->wish.sampler == SAMPLER_REPEATED)
        for (uint64_t i = n; i-- > 0;)
            order[i] = order[i / REPEATS];
    if (s->wish.sampler == SAMPLER_UNIFORM)
        for (uint64_t i = 0; i < n; i++)
            order[i] = hr__random_below(&random, n);
    for (uint64_t i = 0; s->wish.sampler == SAMPLER_BALANCED && i < n; i++) {
        uint32_t class = (uint32_t)hr__random_below(&random, CLASSES);
        uint64_t from = class_start(n, class), to = class_start(n, class + 1);
        order[i] = to > from ? from + hr__random_below(&random, to - from) : from;
    }
}

/* Appends a phase of `jobs` orders, of `steps` uses of each on each host. */
static void append(struct policies_stream *s, const uint64_t *orders, uint64_t length,
                   uint32_t jobs)
{
    struct phase *phase = &s->phases[s->phase_count++];
    uint64_t steps = length / s->wish.hosts;
    *phase = (struct phase){.begins = s->uses, .jobs = jobs};
    for (uint64_t step = 0; step < steps; step++)
        for (uint32_t job = 0; job < jobs; job++)
            for (uint32_t host = 0; host < s->wish.hosts; host++)
                s->slot[s->uses++] = (uint32_t)orders[job * length + step * s->wish.hosts + host];
    phase->ends = s->uses;
}

static void make_uses(struct policies_stream *s)
{
    const struct policies_wish *w = &s->wish;
    FILE *draws = w->draws ? fopen(w->draws, "r") : NULL;
    if (w->draws && !draws)
        policies_die("the file of draws cannot be opened");
    uint64_t n = w->samples, validations = w->validation ? w->epochs / w->every : 0;
    s->phases = policies_array(w->epochs + validations, sizeof *s->phases);
    s->slot =
        policies_array(n * w->jobs * w->epochs + w->validation * validations, sizeof *s->slot);
    uint64_t *orders =
        policies_array(n * w->jobs > w->validation ? n * w->jobs : w->validation, sizeof *orders);
    for (uint32_t epoch = 0; epoch < w->epochs; epoch++) {
        for (uint32_t job = 0; job < w->jobs && !draws; job++)
            fill_epoch(s, job, epoch, orders + job * n);
        if (draws)
            read_epoch(s, draws, orders);
        append(s, orders, n, w->jobs);
        if (!w->validation || (epoch + 1) % w->every)
            continue;
        for (uint64_t i = 0; i < w->validation; i++)
            orders[i] = n + i;
        append(s, orders, w->validation, 1);
        s->phases[s->phase_count - 1].is_validation = 1;
    }
    hr__free(orders);
    if (draws)
        fclose(draws);
    if (s->uses >= NO_NEXT)
        policies_die("more than 2^32 - 2 uses: take fewer samples, jobs or epochs");
}

/* Replaces the samples in the stream by slots. */
static void make_slots(struct policies_stream *s)
{
    uint32_t hosts = s->wish.hosts;
    uint32_t *slot_of = policies_array(s->all, sizeof *slot_of);
    uint32_t *seen_by = policies_array(s->all, sizeof *seen_by); /* host + 1 */
    s->first = policies_array(hosts + 1u, sizeof *s->first);
    for (uint32_t host = 0; host < hosts; host++) {
        s->first[host] = s->slots;
        for (uint32_t p = 0; p < s->phase_count; p++)
            for (uint64_t use = s->phases[p].begins + host; use < s->phases[p].ends; use += hosts) {
                uint32_t sample = s->slot[use];
                if (seen_by[sample] != host + 1) {
                    if (hr__reserve(HR__TAG_ORDER, &s->sample, s->slots + 1))
                        policies_die("out of memory");
                    seen_by[sample] = host + 1;
                    slot_of[sample] = (uint32_t)s->slots;
                    s->sample[s->slots++] = sample;
                }
                s->slot[use] = slot_of[sample];
            }
    }
    s->first[hosts] = s->slots;
    hr__free(slot_of);
    hr__free(seen_by);
}

static void make_next(struct policies_stream *s)
{
    uint32_t *last = policies_array(s->slots, sizeof *last);
    s->next = policies_array(s->uses, sizeof *s->next);
    for (uint64_t slot = 0; slot < s->slots; slot++)
        last[slot] = NO_NEXT;
    for (uint64_t use = s->uses; use-- > 0;) {
        s->next[use] = last[s->slot[use]];
        last[s->slot[use]] = (uint32_t)use;
    }
    hr__free(last);
}

void stream_make(struct policies_stream *stream, const struct policies_wish *wish)
{
    *stream = (struct policies_stream){.wish = *wish, .all = wish->samples + wish->validation};
    make_sizes(stream);
    make_uses(stream);
    make_slots(stream);
    make_next(stream);
}

void stream_free(struct policies_stream *stream)
{
    hr__free(stream->size);
    hr__free(stream->slot);
    hr__free(stream->next);
    hr__free(stream->sample);
    hr__free(stream->first);
    hr__free(stream->phases);
}
