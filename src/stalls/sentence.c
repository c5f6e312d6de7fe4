/*
 * What was measured, in one plain sentence or a few: how much of the time training waits
 * and for what, in an epoch from storage and in one from memory, which of the two later
 * epochs are, and what was not measured. Percentages are rounded so that the parts sum to
 * the whole.
 */
#include "base/error.h"
#include "base/memory.h"
#include "stalls/inside.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Less waiting than this is none worth a word; intervals wider than that are said. */
#define HARDLY 0.02
#define WIDE   0.05
/* Epochs from storage and from memory that differ by less are the same. */
#define SAME 0.01
/* Ranks that are named. */
#define NAMED 3

struct words {
    char text[4096];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void say(struct words *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t room = sizeof w->text - w->length;
    int n = vsnprintf(w->text + w->length, room, format, args);
    va_end(args);
    if (n > 0)
        w->length += (size_t)n < room ? (size_t)n : room - 1;
}

/* A reason of outside, without the point at its end. */
static void say_reason(struct words *w, const char *reason)
{
    size_t length = strlen(reason);
    while (length && (reason[length - 1] == '.' || reason[length - 1] == ' '))
        length--;
    if (length)
        say(w, ": %.*s", (int)length, reason);
    say(w, ".");
}

static void say_bytes(struct words *w, double bytes)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
    int unit = 0;
    while (bytes >= 999.5 && unit < 5) {
        bytes /= 1000;
        unit++;
    }
    say(w, bytes < 9.95 && unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

static const char *storage_word(const struct hr_stalls *s)
{
    static const char *const network[] = {"nfs",  "cifs", "smb",  "ceph", "lustre",
                                          "gpfs", "9p",   "fuse", "afs",  "glusterfs"};
    static const char *const disk[] = {"ext", "xfs", "btrfs", "zfs", "f2fs", "jfs", "bcachefs"};
    for (size_t i = 0; i < sizeof network / sizeof network[0]; i++)
        if (!strncmp(s->filesystem, network[i], strlen(network[i])))
            return "network storage";
    for (size_t i = 0; i < sizeof disk / sizeof disk[0]; i++)
        if (!strncmp(s->filesystem, disk[i], strlen(disk[i])))
            return "the disk";
    return "storage";
}

/* Parts of waiting: what for, and how much of the time. */
struct part {
    const char *what;
    double share;
    int percent;
};

static int percent(double share)
{
    return (int)(100 * share + 0.5);
}

/* Rounds parts so that they sum to `total` per cent: those cut most get one more. */
static void round_parts(struct part *parts, int count, int total)
{
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += parts[i].percent = (int)(100 * parts[i].share);
    while (sum < total) {
        int most = 0;
        for (int i = 1; i < count; i++)
            if (100 * parts[i].share - parts[i].percent >
                100 * parts[most].share - parts[most].percent)
                most = i;
        parts[most].percent++;
        sum++;
    }
}

static void swap_if_less(struct part *a, struct part *b)
{
    if (a->share < b->share) {
        struct part c = *a;
        *a = *b;
        *b = c;
    }
}

/* What is waited for in an epoch, largest first; returns how many parts. */
static int parts_of(const struct hr_stalls *s, const struct hr_interval *share, bool cold,
                    struct part parts[3])
{
    bool known = s->summary.measured[cold ? HR_STALLS_COLD : HR_STALLS_WARM];
    bool apart = cold ? isfinite(share[3].value) : known;
    int n = 0;
    parts[n++] = (struct part){apart ? "preparing samples on the CPU"
                                     : "its loader, which reads and prepares samples",
                               share[2].value, 0};
    if (cold && apart)
        parts[n++] = (struct part){storage_word(s), share[3].value, 0};
    if (share[1].value > 0)
        parts[n++] = (struct part){"the copy to the GPU", share[1].value, 0};
    if (n > 1)
        swap_if_less(&parts[0], &parts[1]);
    if (n > 2) {
        swap_if_less(&parts[1], &parts[2]);
        swap_if_less(&parts[0], &parts[1]);
    }
    return n;
}

/* "waits 41 % of the time: 30 % for ..., 11 % for ..." */
static void say_waiting(struct words *w, const struct hr_stalls *s, bool cold)
{
    const struct hr_interval *share = cold ? s->summary.share : s->summary.warm_share;
    const char *ending = s->world_size > 1 && !s->on_cpu ? "" : "s";
    struct part parts[3];
    double wait = 1 - share[0].value;
    if (wait < HARDLY) {
        say(w, "hardly wait%s for data (%d %% of the time", ending, percent(wait));
        if (1 - share[0].low > WIDE)
            say(w, ", though up to %d %% cannot be ruled out", percent(1 - share[0].low));
        say(w, ")");
        return;
    }
    say(w, "wait%s %d %% of the time", ending, percent(wait));
    double half = (share[0].high - share[0].low) / 2;
    if (half > WIDE)
        say(w, ", give or take %d", percent(half));
    int n = parts_of(s, share, cold, parts);
    round_parts(parts, n, percent(wait));
    if (parts[0].percent == percent(wait)) {
        say(w, "%s for %s", half > WIDE ? "," : "", parts[0].what);
        return;
    }
    say(w, ": ");
    for (int i = 0; i < n; i++)
        if (parts[i].percent)
            say(w, "%s%d %% for %s", i ? ", " : "", parts[i].percent, parts[i].what);
}

/* What stays in memory of one epoch for the next, of any host: 0 the dataset does not
 * fit, 1 it does, -1 not known. */
static int fits(const struct hr_stalls *s, double *available)
{
    *available = INFINITY;
    for (int i = 0; i < s->host_count; i++)
        if (s->hosts[i].available_bytes)
            *available = fmin(*available, (double)s->hosts[i].available_bytes);
    double bytes = hr__dataset_bytes(s);
    if (isnan(bytes))
        return -1;
    if (s->loader_cache_bytes >= bytes)
        return 1;
    if (isinf(*available))
        return -1;
    return *available >= bytes;
}

static const char *subject(const struct hr_stalls *s, bool first)
{
    if (s->on_cpu)
        return first ? "Training, which runs on the CPU," : "training, which runs on the CPU,";
    if (s->world_size > 1)
        return first ? "The GPUs" : "the GPUs";
    return first ? "The GPU" : "the GPU";
}

static const char *pronoun(const struct hr_stalls *s)
{
    return s->world_size > 1 && !s->on_cpu ? "they" : "it";
}

/* Both kinds of epochs are known, and differ. */
static void say_both(struct words *w, const struct hr_stalls *s)
{
    double available;
    int fit = fits(s, &available);
    if (fit > 0) {
        say(w, "In the first epoch, whose files come from storage, %s ", subject(s, false));
        say_waiting(w, s, true);
        say(w, "; in later ones their ");
        say_bytes(w, hr__dataset_bytes(s));
        say(w, " are in memory, and %s ", pronoun(s));
        say_waiting(w, s, false);
        say(w, ".");
        return;
    }
    if (fit == 0) {
        say(w, "%s ", subject(s, true));
        say_waiting(w, s, true);
        say(w, ". That is with files from storage: of the dataset's ");
        say_bytes(w, hr__dataset_bytes(s));
        say(w, ", ");
        say_bytes(w, available);
        say(w, " fit in memory; with all files there %s ", pronoun(s));
    } else {
        say(w, "When files come from storage, %s ", subject(s, false));
        say_waiting(w, s, true);
        say(w, "; when they are in memory, %s ", pronoun(s));
    }
    say_waiting(w, s, false);
    say(w, ".");
}

static void say_main(struct words *w, const struct hr_stalls *s)
{
    const struct hr_stalls_summary *m = &s->summary;
    bool cold = m->measured[HR_STALLS_COLD] && isfinite(m->share[0].value);
    bool warm = m->measured[HR_STALLS_WARM] && isfinite(m->warm_share[0].value);
    if (cold && warm && fabs(m->share[0].value - m->warm_share[0].value) >= SAME) {
        say_both(w, s);
        return;
    }
    bool use_cold = cold || !isfinite(m->warm_share[0].value);
    if (cold && !warm)
        say(w, "When files come from storage, %s ", subject(s, false));
    else if (!cold && warm)
        say(w, "When its files are in memory, %s ", subject(s, false));
    else
        say(w, "%s ", subject(s, true));
    say_waiting(w, s, use_cold);
    say(w, ".");
}

static void say_remedy(struct words *w, const struct hr_stalls *s)
{
    const struct hr_interval *share =
        isfinite(s->summary.share[0].value) ? s->summary.share : s->summary.warm_share;
    if (!*s->remedy || 1 - share[0].value < HARDLY)
        return;
    say(w, " %c%s would remove %s.", toupper((unsigned char)*s->remedy), s->remedy + 1,
        share[1].value >= HARDLY ? "all of that but the copy" : "that");
}

/* Whether phase `p` has any figure. */
static bool ran(const struct hr_stalls *s, int p)
{
    return isfinite(s->step_s[p].value);
}

static void say_missing(struct words *w, const struct hr_stalls *s)
{
    const struct hr_stalls_summary *m = &s->summary;
    if (!m->measured[HR_STALLS_WARM]) {
        say(w, ran(s, HR_STALLS_WARM) ? " Whether files were in memory could not be verified"
                                      : " Preparation with files in memory was not measured");
        say_reason(w, s->phase_reason[HR_STALLS_WARM]);
    }
    if (!m->measured[HR_STALLS_COLD]) {
        say(w,
            ran(s, HR_STALLS_COLD) ? " What %s adds could not be verified"
                                   : " What %s adds was not measured",
            storage_word(s));
        say_reason(w, s->phase_reason[HR_STALLS_COLD]);
    }
    if (s->on_cpu)
        return;
    if (!ran(s, HR_STALLS_DEVICE)) {
        say(w, " The copy to the GPU counts as computing");
        say_reason(w, s->phase_reason[HR_STALLS_DEVICE]);
    } else if (!ran(s, HR_STALLS_HOST)) {
        say(w, " The copy to the GPU counts as preparing");
        say_reason(w, s->phase_reason[HR_STALLS_HOST]);
    }
}

static void say_ranks(struct words *w, const struct hr_stalls *s)
{
    int count = 0, told = 0;
    for (int i = 0; i < s->rank_count; i++)
        count += s->straggles[i];
    if (count) {
        say(w, count > 1 ? " Ranks" : " Rank");
        for (int i = 0; i < s->rank_count && told < NAMED; i++)
            if (s->straggles[i])
                say(w, "%s %d", told++ ? "," : "", s->ranks[i].rank);
        if (count > told)
            say(w, " and %d more", count - told);
        say(w, " wait%s longer for data than the others, which wait for %s in turn.",
            count > 1 ? "" : "s", count > 1 ? "them" : "it");
    }
    if (s->rank_count < s->world_size)
        say(w,
            " This is what %d of %d ranks saw: headrace stalls merge joins it with the results of "
            "the other hosts.",
            s->rank_count, s->world_size);
}

int hr__derive_sentence(struct hr_stalls *s, struct hr_error *error)
{
    struct words w = {.length = 0};
    say_main(&w, s);
    say_remedy(&w, s);
    say_missing(&w, s);
    say_ranks(&w, s);
    /* Reasons come from outside. */
    size_t capacity = 4 * w.length + 1;
    char *text = hr__alloc(HR__TAG_STALLS, capacity, 1);
    if (!text)
        return hr__fail(error, -ENOMEM, "out of memory for a sentence");
    hr__printable(text, capacity, w.text);
    hr__free(s->sentence);
    s->sentence = text;
    return 0;
}
