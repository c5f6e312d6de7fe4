/* See policies_fixture.h. */
#include "policies_fixture.h"

#include "base/memory.h"

#include <string.h>

uint64_t policies_reads(const struct policies_stream *s, const char *name, uint64_t capacity)
{
    const struct policy_rule *rule = policy_rules;
    struct caches c = {.stream = s, .phase = s->phases};
    uint64_t read = 0;
    while (strcmp(rule->name, name))
        rule++;
    c.cached = policies_array(s->slots, 1);
    c.free = policies_array(s->wish.hosts, sizeof *c.free);
    c.copies = policies_array(s->all, sizeof *c.copies);
    for (uint32_t host = 0; host < s->wish.hosts; host++)
        c.free[host] = capacity;
    rule->start(&c);
    for (; c.phase < s->phases + s->phase_count; c.phase++) {
        if (rule->begin)
            rule->begin(&c);
        for (uint64_t use = c.phase->begins; use < c.phase->ends; use++) {
            read += c.cached[s->slot[use]] ? 0 : s->size[s->sample[s->slot[use]]];
            rule->use(&c, use, stream_host(s, c.phase, use));
            assert_true(c.free[stream_host(s, c.phase, use)] <= capacity);
        }
    }
    rule->stop(&c);
    hr__free(c.cached);
    hr__free(c.free);
    hr__free(c.copies);
    return read;
}
