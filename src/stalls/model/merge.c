/*
 * Joins the data of several ranks, or several hosts, of one run. Data of the run (the command, the
 * loader, the dataset) comes from its lowest rank. Data of a host comes from that host's lowest
 * rank, or from the next one if that lacks it (only one of them measures storage).
 */
#include "base/error.h"
#include "base/memory.h"
#include "stalls/model/inside.h"
#include "stalls/model/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A rank's origin, for sorting. */
struct merge_place {
    int rank, part, index;
};

static int by_rank(const void *a, const void *b)
{
    const struct merge_place *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank)
                              : (x->part > y->part) - (x->part < y->part);
}

/* Sorts all ranks of all parts; -EINVAL if they belong to different runs or occur twice. */
static int sort_ranks(struct merge_place **out, int *count, struct hr_stalls *const *parts, int n,
                      const char *kind, struct hr_error *error)
{
    int total = 0;
    for (int i = 0; i < n; i++) {
        if (strcmp(parts[i]->run, parts[0]->run))
            return hr__fail(error, -EINVAL,
                            "%s %d is of run %s, %s 1 of run %s: give those of one run", kind,
                            i + 1, parts[i]->run, kind, parts[0]->run);
        if (parts[i]->world_size != parts[0]->world_size)
            return hr__fail(error, -EINVAL,
                            "%s %d is of a run of %d ranks, %s 1 of one of %d: give those of one "
                            "run",
                            kind, i + 1, parts[i]->world_size, kind, parts[0]->world_size);
        total += parts[i]->rank_count;
    }
    struct merge_place *places = hr__alloc(HR__TAG_STALLS, (size_t)total, sizeof *places);
    if (!places)
        return hr__fail(error, -ENOMEM, "out of memory for %d ranks", total);
    *out = places;
    *count = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < parts[i]->rank_count; k++)
            places[(*count)++] = (struct merge_place){parts[i]->ranks[k].rank, i, k};
    qsort(places, (size_t)total, sizeof *places, by_rank);
    for (int i = 1; i < total; i++)
        if (places[i].rank == places[i - 1].rank)
            return hr__fail(error, -EINVAL,
                            "rank %d is there twice, in %s %d and %s %d: give each rank once",
                            places[i].rank, kind, places[i - 1].part + 1, kind, places[i].part + 1);
    return 0;
}

#define MOVE(to, from)                                                                             \
    do {                                                                                           \
        (to) = (from);                                                                             \
        (from) = NULL;                                                                             \
    } while (0)

/* Moves everything but ranks, hosts and lists of texts. */
static void take_run(struct hr_stalls *s, struct hr_stalls *from)
{
    *s = *from;
    from->command = from->started = from->ended = NULL;
    from->sizes = NULL;
    s->notes = s->files_written = NULL;
    s->note_count = s->file_count = 0;
    s->ranks = NULL;
    s->hosts = NULL;
    s->rank_count = s->host_count = 0;
    s->alone_s = s->waiting = NULL;
    s->straggles = NULL;
    s->sentence = NULL;
    s->suggestions = NULL;
    s->suggestion_count = 0;
    s->has_suggestions = false;
    *s->remedy = *s->relief = 0;
    s->relief_waits = NAN;
}

static int how_bad(const char *ended)
{
    int k = 0;
    while (hr__ended_names[k] && strcmp(ended, hr__ended_names[k]))
        k++;
    return k;
}

/* Adds what another part knows about the run. */
static void add_run(struct hr_stalls *s, struct hr_stalls *from)
{
    if (how_bad(from->ended) > how_bad(s->ended)) {
        hr__free(s->ended);
        MOVE(s->ended, from->ended);
    }
    if (!*s->cannot_tell)
        memcpy(s->cannot_tell, from->cannot_tell, sizeof s->cannot_tell);
    for (int p = 0; p < HR_STALLS_PHASES; p++)
        if (!*s->phase_reason[p])
            memcpy(s->phase_reason[p], from->phase_reason[p], sizeof s->phase_reason[p]);
}

/* Adds a host, or fills the gaps of the host with the same name. */
static void add_host(struct hr_stalls *s, struct hr__host_record *from)
{
    struct hr__host_record *host = NULL;
    for (int i = 0; i < s->host_count && !host; i++)
        if (!strcmp(s->hosts[i].name, from->name))
            host = &s->hosts[i];
    if (!host) {
        s->hosts[s->host_count++] = *from;
        from->depths = NULL;
        from->forms = NULL;
        from->depth_count = from->form_count = 0;
        return;
    }
    if (!host->depth_count && from->depth_count) {
        MOVE(host->depths, from->depths);
        host->depth_count = from->depth_count;
        host->memory_bytes_per_s = from->memory_bytes_per_s;
        host->paused_bytes_per_s = from->paused_bytes_per_s;
        host->saved_bytes = from->saved_bytes;
    }
    if (!host->form_count && from->form_count) {
        MOVE(host->forms, from->forms);
        host->form_count = from->form_count;
        memcpy(host->no_forms, from->no_forms, sizeof host->no_forms);
        memcpy(host->recipe, from->recipe, sizeof host->recipe);
    }
}

/* ---- lists of texts ---- */

struct merge_entry {
    char **text; /* in its part, so that it can be moved */
    size_t order;
};

static int by_text(const void *a, const void *b)
{
    const struct merge_entry *x = a, *y = b;
    int r = strcmp(*x->text, *y->text);
    return r ? r : (x->order > y->order) - (x->order < y->order);
}

static int by_order(const void *a, const void *b)
{
    const struct merge_entry *x = a, *y = b;
    return (x->order > y->order) - (x->order < y->order);
}

/* Returns a part's notes or its files written. */
static char **texts_of(struct hr_stalls *part, int files, size_t *count)
{
    *count = files ? part->file_count : part->note_count;
    return files ? part->files_written : part->notes;
}

/* Takes each distinct text once, in order of first appearance, at most HR__MAX_TEXTS. */
static int add_texts(struct hr_stalls *s, struct hr_stalls *const *parts, int n, int files)
{
    size_t total = 0, kept = 0, count;
    for (int i = 0; i < n; i++) {
        texts_of(parts[i], files, &count);
        total += count;
    }
    if (!total)
        return 0;
    struct merge_entry *entries = hr__alloc(HR__TAG_STALLS, total, sizeof *entries);
    char **texts =
        hr__alloc(HR__TAG_STALLS, total < HR__MAX_TEXTS ? total : HR__MAX_TEXTS, sizeof *texts);
    if (!entries || !texts) {
        hr__free(entries);
        hr__free(texts);
        return -ENOMEM;
    }
    total = 0;
    for (int i = 0; i < n; i++) {
        char **from = texts_of(parts[i], files, &count);
        for (size_t k = 0; k < count; k++, total++)
            entries[total] = (struct merge_entry){&from[k], total};
    }
    qsort(entries, total, sizeof *entries, by_text);
    for (size_t k = 0; k < total; k++)
        if (!kept || strcmp(*entries[k].text, *entries[kept - 1].text))
            entries[kept++] = entries[k];
    qsort(entries, kept, sizeof *entries, by_order);
    if (kept > HR__MAX_TEXTS)
        kept = HR__MAX_TEXTS;
    for (size_t k = 0; k < kept; k++)
        MOVE(texts[k], *entries[k].text);
    hr__free(entries);
    *(files ? &s->files_written : &s->notes) = texts;
    *(files ? &s->file_count : &s->note_count) = kept;
    return 0;
}

/* Finds the host of a rank within its part. */
static struct hr__host_record *host_of(struct hr_stalls *part, const char *name)
{
    for (int i = 0; i < part->host_count; i++)
        if (!strcmp(part->hosts[i].name, name))
            return &part->hosts[i];
    return NULL;
}

static void move_rank(struct hr_stalls *s, struct hr__rank_record *from)
{
    struct hr__rank_record *to = &s->ranks[s->rank_count++];
    *to = *from;
    from->segments = NULL;
    from->drains = NULL;
    from->prepares = NULL;
    from->segment_count = from->drain_count = from->prepare_count = 0;
}

/* Fills `ordered` with the parts, sorted by their lowest ranks. */
static void order_parts(struct hr_stalls **ordered, struct hr_stalls *const *parts, int count,
                        const struct merge_place *places)
{
    int n = 0;
    for (int i = 0; n < count; i++) {
        struct hr_stalls *part = parts[places[i].part];
        if (places[i].index == 0)
            ordered[n++] = part;
    }
}

static int join_sorted(struct hr_stalls *s, struct hr_stalls *const *parts, int count,
                       const struct merge_place *places, int ranks)
{
    struct hr_stalls **ordered =
        hr__alloc(HR__TAG_STALLS, (size_t)count, sizeof(struct hr_stalls *));
    int r = -ENOMEM;
    if (!ordered)
        return r;
    order_parts(ordered, parts, count, places);
    take_run(s, ordered[0]);
    s->ranks = hr__alloc(HR__TAG_STALLS, (size_t)ranks, sizeof *s->ranks);
    s->hosts = hr__alloc(HR__TAG_STALLS, (size_t)ranks, sizeof *s->hosts);
    if (s->ranks && s->hosts) {
        for (int i = 0; i < ranks; i++) {
            struct hr_stalls *part = parts[places[i].part];
            struct hr__rank_record *rank = &part->ranks[places[i].index];
            struct hr__host_record *host = host_of(part, rank->host);
            if (host)
                add_host(s, host);
            move_rank(s, rank);
        }
        for (int i = 1; i < count; i++)
            add_run(s, ordered[i]);
        r = add_texts(s, ordered, count, 0);
        if (!r)
            r = add_texts(s, ordered, count, 1);
    }
    hr__free(ordered);
    return r;
}

int hr__stalls_join(struct hr_stalls **out, struct hr_stalls **parts, int count, const char *kind,
                    struct hr_error *error)
{
    struct merge_place *places = NULL;
    int ranks = 0;
    *out = NULL;
    int r = sort_ranks(&places, &ranks, parts, count, kind, error);
    if (!r) {
        *out = hr__stalls_create();
        r = *out ? join_sorted(*out, parts, count, places, ranks) : -ENOMEM;
        if (r)
            hr__fail(error, r, "out of memory for a result of %d ranks", ranks);
    }
    hr__free(places);
    if (r)
        hr_stalls_destroy(out);
    return r;
}
