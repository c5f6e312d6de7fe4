/*
 * Writes the result in one sentence or a few: how much of the time training waits and for what,
 * what would remove that, which epochs this applies to, and what was not measured. Percentages are
 * rounded so that the parts sum to the whole. A share whose interval is wider than +-20 points gets
 * no percentage; one that may be zero gets no remedy.
 */
#include "base/error.h"
#include "base/memory.h"
#include "stalls/model/inside.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Less waiting than HARDLY is not mentioned; half intervals wider than WIDE are. */
#define HARDLY 0.02
#define WIDE   0.05
/* Epochs from storage and from memory count as equal below this difference. */
#define SAME 0.01
/* Most ranks named. */
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

/* Adds an outside reason without its final period. */
static void say_reason(struct words *w, const char *reason)
{
    size_t length = strlen(reason);
    while (length && (reason[length - 1] == '.' || reason[length - 1] == ' '))
        length--;
    say(w, "%.*s.", (int)length, reason);
}

static void say_why(struct words *w, const char *reason)
{
    say(w, *reason ? ": " : "");
    say_reason(w, reason);
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
    if (hr__is_at_urls(s))
        return "the network";
    for (size_t i = 0; i < sizeof network / sizeof network[0]; i++)
        if (!strncmp(s->filesystem, network[i], strlen(network[i])))
            return "network storage";
    for (size_t i = 0; i < sizeof disk / sizeof disk[0]; i++)
        if (!strncmp(s->filesystem, disk[i], strlen(disk[i])))
            return "the disk";
    return "storage";
}

/* ---- how well shares are known ---- */

enum knowledge {
    NOTHING,    /* no value, or too wide an interval for a figure */
    NO_WAITING, /* negligible waiting */
    PERHAPS,    /* the interval includes 0 */
    SURE,
};

static enum knowledge known(struct hr_interval share)
{
    if (!hr__share_is_known(share))
        return NOTHING;
    if (share.value < HARDLY)
        return NO_WAITING;
    return share.low > 0 ? SURE : PERHAPS;
}

/* An epoch from storage, or one from memory. */
struct epoch {
    const struct hr_interval *share;
    bool cold;
    struct hr_interval wait; /* share of the time spent waiting, for any reason */
    enum knowledge known;
};

static struct epoch epoch_of(const struct hr_stalls *s, bool cold)
{
    const struct hr_interval *share = cold ? s->summary.share : s->summary.warm_share;
    struct epoch e = {.share = share, .cold = cold};
    e.wait = (struct hr_interval){1 - share[0].value, 1 - share[0].high, 1 - share[0].low};
    e.known = known(e.wait);
    return e;
}

/* ---- causes of waiting ---- */

struct part {
    const char *what;
    struct hr_interval share;
    int percent;
};

static int percent(double share)
{
    return (int)(100 * share + 0.5);
}

/* Rounds parts so that they sum to `total` per cent: those cut most are rounded up. */
static void round_parts(struct part *parts, int count, int total)
{
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += parts[i].percent = (int)(100 * parts[i].share.value);
    while (sum < total) {
        int most = 0;
        for (int i = 1; i < count; i++)
            if (100 * parts[i].share.value - parts[i].percent >
                100 * parts[most].share.value - parts[most].percent)
                most = i;
        parts[most].percent++;
        sum++;
    }
}

static void swap_if_less(struct part *a, struct part *b)
{
    if (a->share.value < b->share.value) {
        struct part c = *a;
        *a = *b;
        *b = c;
    }
}

/* Lists the causes of waiting in an epoch, largest first; returns their number. */
static int parts_of(const struct hr_stalls *s, const struct epoch *e, struct part parts[3])
{
    bool measured = s->summary.measured[e->cold ? HR_STALLS_COLD : HR_STALLS_WARM];
    bool apart = e->cold ? isfinite(e->share[3].value) : measured;
    int n = 0;
    parts[n++] = (struct part){s->network ? "its loader, which fetches and prepares samples"
                               : apart    ? "preparing samples on the CPU"
                                          : "its loader, which reads and prepares samples",
                               e->share[2], 0};
    if (e->cold && apart)
        parts[n++] = (struct part){storage_word(s), e->share[3], 0};
    if (e->share[1].value > 0)
        parts[n++] = (struct part){"the copy to the GPU", e->share[1], 0};
    if (n > 1)
        swap_if_less(&parts[0], &parts[1]);
    if (n > 2) {
        swap_if_less(&parts[1], &parts[2]);
        swap_if_less(&parts[0], &parts[1]);
    }
    return n;
}

static void say_parts(struct words *w, const struct hr_stalls *s, const struct epoch *e)
{
    struct part parts[3];
    int total = percent(e->wait.value), n = parts_of(s, e, parts);
    round_parts(parts, n, total);
    for (int i = 0; i < n && n > 1; i++)
        if (parts[i].percent && known(parts[i].share) == NOTHING) {
            say(w, " for data; how much of it for %s, and how much for %s, is not known yet",
                parts[0].what, parts[1].what);
            return;
        }
    if (parts[0].percent == total) {
        say(w, " for %s", parts[0].what);
        return;
    }
    say(w, ": ");
    for (int i = 0; i < n; i++)
        if (parts[i].percent)
            say(w, "%s%s%d %% for %s", i ? ", " : "", parts[i].share.low > 0 ? "" : "perhaps ",
                parts[i].percent, parts[i].what);
}

/* "waits 41 % of the time: 30 % for ..., 11 % for ..." */
static void say_waiting(struct words *w, const struct hr_stalls *s, const struct epoch *e)
{
    if (e->known == NOTHING) {
        say(w, "waits for data for a share of the time that is not known yet");
        if (isfinite(e->wait.low))
            say(w, " (%d to %d %%)", percent(e->wait.low), percent(e->wait.high));
        return;
    }
    if (e->known == NO_WAITING) {
        say(w, "hardly waits for data");
        if (e->wait.high > WIDE)
            say(w, ": at most %d %% of the time", percent(e->wait.high));
        else
            say(w, " (%d %% of the time)", percent(e->wait.value));
        return;
    }
    if (e->known == PERHAPS) {
        say(w, "waits for data at most %d %% of the time, if at all", percent(e->wait.high));
        return;
    }
    double half = (e->wait.high - e->wait.low) / 2;
    say(w, "waits %d %% of the time", percent(e->wait.value));
    if (half > WIDE)
        say(w, " (give or take %d)", percent(half));
    say_parts(w, s, e);
}

/* ---- which epochs ---- */

/* Returns whether the dataset stays in memory between epochs on every host: 0 no, 1 yes, -1
 * unknown. */
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
    if (hr__is_at_urls(s))
        *available = isnan(s->loader_cache_bytes) ? INFINITY : s->loader_cache_bytes;
    if (isinf(*available))
        return -1;
    return *available >= bytes;
}

/* Describes the other kind of epoch, if a result has both and they differ. */
static void say_other(struct words *w, const struct hr_stalls *s, const struct epoch *other)
{
    double available, bytes = hr__dataset_bytes(s);
    int fit = fits(s, &available);
    bool is_store = hr__is_at_urls(s);
    if (fit > 0) {
        say(w, " That holds once the dataset's ");
        say_bytes(w, bytes);
        say(w, " are in %s; the first epoch, read from %s, ",
            is_store ? "the loader's cache" : "memory", is_store ? storage_word(s) : "storage");
    } else if (fit == 0 && is_store && !(available > 0)) {
        say(w, " That holds for every epoch, because the loader has no cache; with the dataset's ");
        say_bytes(w, bytes);
        say(w, " in one, training ");
    } else if (fit == 0) {
        say(w, " That holds with files from storage: of the dataset's ");
        say_bytes(w, bytes);
        say(w, ", ");
        say_bytes(w, available);
        say(w, is_store ? " fit into the loader's cache" : " fit in memory");
        if (isfinite(s->now_waits))
            say(w, ", which leaves about %d %% of waiting by the model", percent(s->now_waits));
        say(w, "; with all files there, training ");
    } else {
        say(w, " That holds with files from storage; with files in memory, training ");
    }
    say_waiting(w, s, other);
    say(w, ".");
}

/* Finds the kind of epoch that is most common. Sets `other` to the other kind only if both are
 * known and differ. */
static struct epoch find_lead(const struct hr_stalls *s, struct epoch *other, bool *both)
{
    const struct hr_stalls_summary *m = &s->summary;
    bool cold = m->measured[HR_STALLS_COLD] && isfinite(m->share[0].value);
    bool warm = m->measured[HR_STALLS_WARM] && isfinite(m->warm_share[0].value);
    double available;
    *both = cold && warm && fabs(m->share[0].value - m->warm_share[0].value) >= SAME;
    bool use_cold = *both ? fits(s, &available) <= 0 : cold || !isfinite(m->warm_share[0].value);
    *other = epoch_of(s, !use_cold);
    return epoch_of(s, use_cold);
}

static void say_lead(struct words *w, const struct hr_stalls *s, const struct epoch *lead)
{
    const struct hr_stalls_summary *m = &s->summary;
    say(w, "Training ");
    say_waiting(w, s, lead);
    say(w, ".");
    bool copies = lead->share[1].value >= HARDLY; /* not if it is unknown */
    if (lead->known == SURE && *s->relief)
        say(w, " %c%s would cut that to %d %%%s", toupper((unsigned char)*s->relief), s->relief + 1,
            percent(s->relief_waits + (copies ? lead->share[1].value : 0)), *s->remedy ? ";" : ".");
    if (lead->known == SURE && *s->remedy)
        say(w, " %c%s would remove %s.",
            *s->relief ? *s->remedy : toupper((unsigned char)*s->remedy), s->remedy + 1,
            copies ? "all of that but the copy" : "the wait");
    if (lead->known == NOTHING || lead->known == PERHAPS)
        say(w, " A longer run (--time) or a quieter machine would show it.");
    bool cold = m->measured[HR_STALLS_COLD], warm = m->measured[HR_STALLS_WARM];
    if (cold != warm && !s->reads_no_files && !s->network)
        say(w, " That holds with files %s.", cold ? "from storage" : "in memory");
}

double hr__epoch_start_share(const struct hr_stalls *s, enum hr_stalls_phase phase)
{
    double epoch_s = s->epoch_start_s + (double)s->epoch_batches * s->step_s[phase].value;
    if (!s->epoch_start_each || !s->epoch_batches || !(s->epoch_start_s >= HARDLY * epoch_s))
        return 0;
    return s->epoch_start_s / epoch_s;
}

/* Adds what short epochs lose besides: waiting for their first batch. */
static void say_start(struct words *w, const struct hr_stalls *s, const struct epoch *lead)
{
    double start = hr__epoch_start_share(s, lead->cold ? HR_STALLS_COLD : HR_STALLS_WARM);
    double half = (lead->wait.high - lead->wait.low) / 2 * (1 - start);
    if (!(start > 0))
        return;
    say(w, " Besides, each epoch of %llu batches begins with %.2g s of waiting for its first one: ",
        (unsigned long long)s->epoch_batches, s->epoch_start_s);
    if (lead->known == NOTHING) {
        say(w, "%d %% of its time.", percent(start));
        return;
    }
    say(w, "in all %d %%", percent(1 - (1 - lead->wait.value) * (1 - start)));
    if (half > WIDE)
        say(w, " (give or take %d)", percent(half));
    say(w, " of its time is waiting.");
}

static void say_main(struct words *w, const struct hr_stalls *s)
{
    struct epoch other;
    bool both;
    struct epoch lead = find_lead(s, &other, &both);
    if (*s->cannot_tell) {
        say(w, "How much of the time training waits for data is unknown, because ");
        say_reason(w, s->cannot_tell);
        return;
    }
    say_lead(w, s, &lead);
    say_start(w, s, &lead);
    if (both && (lead.known != NOTHING || other.known != NOTHING))
        say_other(w, s, &other);
}

/* Returns whether phase `p` has any figure. */
static bool ran(const struct hr_stalls *s, int p)
{
    return isfinite(s->step_s[p].value);
}

static void say_missing(struct words *w, const struct hr_stalls *s)
{
    const struct hr_stalls_summary *m = &s->summary;
    if (s->network)
        say(w, " The samples come over the network: fetching them is not measured separately from "
               "preparing them.");
    if (!s->network && !m->measured[HR_STALLS_WARM]) {
        say(w, ran(s, HR_STALLS_WARM) ? " Whether files were in memory could not be verified"
                                      : " Preparation with files in memory was not measured");
        say_why(w, s->phase_reason[HR_STALLS_WARM]);
    }
    if (!m->measured[HR_STALLS_COLD] && !s->reads_no_files && !s->network) {
        say(w,
            ran(s, HR_STALLS_COLD) ? " What %s adds could not be verified"
                                   : " What %s adds was not measured",
            storage_word(s));
        say_why(w, s->phase_reason[HR_STALLS_COLD]);
    }
    if (s->on_cpu)
        return;
    if (!ran(s, HR_STALLS_DEVICE)) {
        say(w, " The copy to the GPU counts as computing");
        say_why(w, s->phase_reason[HR_STALLS_DEVICE]);
    } else if (!ran(s, HR_STALLS_HOST)) {
        say(w, " The copy to the GPU counts as preparing");
        say_why(w, s->phase_reason[HR_STALLS_HOST]);
    }
}

static void say_ranks(struct words *w, const struct hr_stalls *s)
{
    int count = 0, named = 0;
    for (int i = 0; i < s->rank_count; i++)
        count += s->straggles[i];
    if (count) {
        say(w, count > 1 ? " Ranks" : " Rank");
        for (int i = 0; i < s->rank_count && named < NAMED; i++)
            if (s->straggles[i])
                say(w, "%s %d", named++ ? "," : "", s->ranks[i].rank);
        if (count > named)
            say(w, " and %d more", count - named);
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
    if (!*s->cannot_tell)
        say_missing(&w, s);
    say_ranks(&w, s);
    /* Reasons are untrusted text. */
    size_t capacity = 4 * w.length + 1;
    char *text = hr__alloc(HR__TAG_STALLS, capacity, 1);
    if (!text)
        return hr__fail(error, -ENOMEM, "out of memory for a sentence");
    hr__printable(text, capacity, w.text);
    hr__free(s->sentence);
    s->sentence = text;
    return 0;
}
