/*
 * Creates and destroys results.
 */
#include "base/memory.h"
#include "stalls/model/inside.h"
#include "stalls/model/parts.h"

struct hr_stalls *hr__stalls_create(void)
{
    return hr__alloc(HR__TAG_STALLS, 1, sizeof(struct hr_stalls));
}

void hr__texts_destroy(char **texts, size_t count)
{
    for (size_t i = 0; texts && i < count; i++)
        hr__free(texts[i]);
    hr__free(texts);
}

void hr__stalls_drop_derived(struct hr_stalls *s)
{
    hr__free(s->alone_s);
    hr__free(s->waiting);
    hr__free(s->straggles);
    hr__free(s->sentence);
    s->alone_s = s->waiting = NULL;
    s->straggles = NULL;
    s->sentence = NULL;
}

void hr_stalls_destroy(struct hr_stalls **result)
{
    struct hr_stalls *s = result ? *result : NULL;
    if (!s)
        return;
    for (int i = 0; i < s->rank_count; i++)
        hr__fields_clear(hr__rank_fields, &s->ranks[i]);
    for (int i = 0; i < s->host_count; i++)
        hr__fields_clear(hr__host_fields, &s->hosts[i]);
    hr__clear_run(s);
    hr__stalls_drop_derived(s);
    hr__free(s->suggestions);
    hr__free(s->ranks);
    hr__free(s->hosts);
    hr__free(s->command);
    hr__free(s->started);
    hr__free(s->ended);
    hr__free(s);
    *result = NULL;
}
