/*
 * Simulates caches under several policies: what they read from storage, epoch by epoch.
 *
 *   bench_policies [samples=N] [validation=N] [every=N] [jobs=N] [hosts=N] [epochs=N]
 *                  [sampler=shuffle|uniform|balanced|repeated] [share=PER CENT] [known=N]
 *                  [drawn=N] [sizes=FILE] [draws=FILE]
 *
 * The orders are those of loaders: a job has the seed of its number, hosts take turns in its order,
 * a validation goes through its own samples after every N epochs. Samplers draw as many samples as
 * there are, with replacement: `uniform`, or from classes of very different sizes, each equally
 * likely (`balanced`), or use a third of a shuffle three times each (`repeated`). draws= has the
 * indices of a real sampler, of all epochs of one job. Jobs and hosts advance side by side; a job's
 * uses are known for N epochs (2). All hosts together may keep `share` per cent of the bytes, each
 * as much.
 *
 * For each policy it prints what an epoch reads over the bytes of all samples: from storage when
 * each host is alone (`alone`), and when a host asks the others first (`together`). These are means
 * over the epochs from the third to the last but one: the first two fill the caches, and the last
 * one has no future. Also the CPU time for each use, with the orders'. The last line is JSON.
 */
#include "policies.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cache/residents.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SKIPPED = 2 };

struct policy_outcome {
    double alone, together; /* bytes read in an epoch over all bytes */
    double ns;              /* for each use */
};

static const char *const sampler_names[] = {"shuffle", "uniform", "balanced", "repeated"};

static void read_sampler(struct policies_wish *wish, const char *value)
{
    for (int kind = SAMPLER_SHUFFLE; kind <= SAMPLER_REPEATED; kind++)
        if (!strcmp(value, sampler_names[kind])) {
            wish->sampler = (enum sampler_kind)kind;
            return;
        }
    policies_die("sampler= is shuffle, uniform, balanced or repeated");
}

static void read_argument(struct policies_wish *wish, char *argument)
{
    char *value = strchr(argument, '=');
    if (!value)
        policies_die("an argument is NAME=VALUE: see the beginning of bench/policies.c");
    *value++ = 0;
    uint64_t number = strtoull(value, NULL, 10);
    if (!strcmp(argument, "samples"))
        wish->samples = number;
    else if (!strcmp(argument, "validation"))
        wish->validation = number;
    else if (!strcmp(argument, "every"))
        wish->every = (uint32_t)number;
    else if (!strcmp(argument, "jobs"))
        wish->jobs = (uint32_t)number;
    else if (!strcmp(argument, "hosts"))
        wish->hosts = (uint32_t)number;
    else if (!strcmp(argument, "epochs"))
        wish->epochs = (uint32_t)number;
    else if (!strcmp(argument, "drawn"))
        wish->drawn = (uint32_t)number;
    else if (!strcmp(argument, "known"))
        wish->known = (uint32_t)number;
    else if (!strcmp(argument, "share"))
        wish->share = (double)number / 100;
    else if (!strcmp(argument, "sizes"))
        wish->sizes = value;
    else if (!strcmp(argument, "draws"))
        wish->draws = value;
    else if (!strcmp(argument, "sampler"))
        read_sampler(wish, value);
    else
        policies_die("unknown argument: see the beginning of bench/policies.c");
}

static struct policy_outcome simulate(const struct policies_stream *s,
                                      const struct policy_rule *rule)
{
    struct policy_outcome outcome = {0};
    struct caches c = {.stream = s};
    uint32_t epoch = 0, last = s->wish.epochs - 1;
    uint64_t start = hr__thread_cpu_ns();
    c.cached = policies_array(s->slots, 1);
    c.free = policies_array(s->wish.hosts, sizeof *c.free);
    c.copies = policies_array(s->all, sizeof *c.copies);
    for (uint32_t host = 0; host < s->wish.hosts; host++)
        c.free[host] = (uint64_t)(s->wish.share * (double)s->bytes / s->wish.hosts);
    c.phase = s->phases;
    rule->start(&c);
    for (; c.phase < s->phases + s->phase_count; c.phase++) {
        double alone = 0, together = 0;
        if (rule->begin)
            rule->begin(&c);
        for (uint64_t use = c.phase->begins; use < c.phase->ends; use++) {
            uint32_t slot = s->slot[use], sample = s->sample[slot];
            alone += c.cached[slot] ? 0 : s->size[sample];
            together += c.copies[sample] ? 0 : s->size[sample];
            rule->use(&c, use, stream_host(s, c.phase, use));
        }
        epoch += !c.phase->is_validation;
        if (epoch <= SKIPPED || epoch > last)
            continue;
        outcome.alone += alone / (double)s->bytes / (last - SKIPPED);
        outcome.together += together / (double)s->bytes / (last - SKIPPED);
    }
    rule->stop(&c);
    hr__free(c.cached);
    hr__free(c.free);
    hr__free(c.copies);
    outcome.ns = (double)(hr__thread_cpu_ns() - start) / (double)s->uses;
    return outcome;
}

int main(int argc, char **argv)
{
    static struct policies_stream stream;
    struct policy_outcome outcomes[16];
    struct rusage usage;
    struct policies_wish wish = {.samples = 40000,
                                 .jobs = 1,
                                 .hosts = 1,
                                 .epochs = 8,
                                 .every = 1,
                                 .share = 0.5,
                                 .known = 2,
                                 .drawn = HR__RESIDENTS_DRAWN};
    for (int i = 1; i < argc; i++)
        read_argument(&wish, argv[i]);
    if (!wish.samples || !wish.jobs || !wish.hosts || !wish.every || wish.epochs <= SKIPPED + 1 ||
        wish.samples % wish.hosts || wish.validation % wish.hosts || wish.hosts > UINT16_MAX ||
        (wish.draws && wish.jobs > 1))
        policies_die("samples, jobs, hosts and every are above 0, epochs above 3, samples and "
                     "validation multiples of hosts, and draws= are of one job");
    stream_make(&stream, &wish);
    printf("%-12s %8s %8s %8s\n", "", "alone", "together", "ns a use");
    for (int i = 0; policy_rules[i].name; i++) {
        outcomes[i] = simulate(&stream, &policy_rules[i]);
        printf("%-12s %8.4f %8.4f %8.0f\n", policy_rules[i].name, outcomes[i].alone,
               outcomes[i].together, outcomes[i].ns);
        fflush(stdout);
    }
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"uses\": %" PRIu64 ", \"gib\": %.2f, \"policies\": {", stream.uses,
           (double)usage.ru_maxrss / (1 << 20));
    for (int i = 0; policy_rules[i].name; i++)
        printf("%s\"%s\": {\"alone\": %.5f, \"together\": %.5f, \"ns\": %.0f}", i ? ", " : "",
               policy_rules[i].name, outcomes[i].alone, outcomes[i].together, outcomes[i].ns);
    printf("}}\n");
    stream_free(&stream);
    return 0;
}
