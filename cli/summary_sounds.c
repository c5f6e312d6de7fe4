/* Computes what the sounds of a dataset are: their formats, rates, channels and lengths. */
#include "summary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static double seconds_of(const struct hr_sound_info *info)
{
    return info->rate ? (double)info->frames / info->rate : 0;
}

static int compare_lengths(const void *a, const void *b)
{
    double x = seconds_of(a), y = seconds_of(b);
    return x < y ? -1 : x > y;
}

/* Sorts by number of sounds, descending; then by format, rate and channels. */
static int compare_kinds(const void *a, const void *b)
{
    const struct summary_kind_of_sound *x = a, *y = b;
    if (x->samples != y->samples)
        return x->samples > y->samples ? -1 : 1;
    if (x->info.format != y->info.format)
        return x->info.format < y->info.format ? -1 : 1;
    if (x->info.rate != y->info.rate)
        return x->info.rate < y->info.rate ? -1 : 1;
    return x->info.channels - y->info.channels;
}

static int is_alike(const struct hr_sound_info *a, const struct hr_sound_info *b)
{
    return a->format == b->format && a->rate == b->rate && a->channels == b->channels;
}

static int count_kind(struct summary_sounds *s, const struct hr_sound_info *info)
{
    size_t i = 0;
    while (i < s->kind_count && !is_alike(&s->kinds[i].info, info))
        i++;
    if (i == s->kind_count) {
        struct summary_kind_of_sound *more = realloc(s->kinds, (i + 1) * sizeof *more);
        if (!more)
            return -ENOMEM;
        s->kinds = more;
        s->kinds[s->kind_count++] = (struct summary_kind_of_sound){.info = *info};
        s->kinds[i].info.frames = 0;
    }
    s->kinds[i].samples++;
    s->kinds[i].seconds += seconds_of(info);
    return 0;
}

int summary_add_sounds(struct summary *summary, const struct hr_dataset *dataset,
                       struct hr_sound_info *infos)
{
    struct summary_sounds *s = &summary->sounds;
    int r = 0;
    summary->surveyed = 1;
    for (size_t i = 0; i < summary->samples && !r; i++) {
        if (infos[i].format != HR_SOUND_UNKNOWN) {
            s->known++;
            s->total += seconds_of(&infos[i]);
            r = count_kind(s, &infos[i]);
            continue;
        }
        char path[4097] = "?";
        hr_dataset_path(dataset, i, path, sizeof path);
        r = summary_bads_add(&summary->unreadable, i, path,
                             "it is damaged or of a format that is not decoded; --verify says "
                             "which");
    }
    if (r || !s->known)
        return r;
    qsort(s->kinds, s->kind_count, sizeof *s->kinds, compare_kinds);
    qsort(infos, summary->samples, sizeof *infos, compare_lengths);
    const struct hr_sound_info *known = infos + (summary->samples - s->known);
    s->shortest = seconds_of(&known[0]);
    s->median = seconds_of(&known[(s->known - 1) / 2]);
    s->longest = seconds_of(&known[s->known - 1]);
    return 0;
}
