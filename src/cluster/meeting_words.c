/*
 * Error messages and warnings of a meeting: which ranks are missing, and which inputs differ
 * between which ranks.
 *
 * For an input that differs, the message gives the value that most ranks have first, then the other
 * values with all their ranks, as far as there is room. So the message is the same on all ranks.
 */
#include "base/error.h"
#include "base/memory.h"
#include "cluster/meeting_inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most different texts of inputs that are fetched: more than a user can fix at once. */
#define KINDS_MAX 16

/* A text buffer; text that does not fit is cut off. */
struct meeting_words {
    char *out;
    size_t room, length;
};

__attribute__((format(printf, 2, 3))) static void say(struct meeting_words *w, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(w->out + w->length, w->room - w->length, format, args);
    va_end(args);
    if (n > 0)
        w->length += (size_t)n < w->room - w->length ? (size_t)n : w->room - w->length - 1;
}

/* ---- missing ranks ---- */

static int is_absent(const struct hr__meeting *m, int rank)
{
    uint64_t inputs;
    return rank != m->wish->rank && !hr__meeting_agrees(m, rank, &inputs) &&
           !(m->seen[rank].is_live && m->numbers[rank]);
}

static int has_absent(const struct hr__meeting *m)
{
    for (int r = 0; r < m->wish->world_size; r++)
        if (is_absent(m, r))
            return 1;
    return 0;
}

static int is_apart(const struct hr__meeting *m, int rank)
{
    uint64_t inputs;
    return rank != m->wish->rank && !hr__meeting_agrees(m, rank, &inputs) && !is_absent(m, rank);
}

/* Writes "rank 3" or "ranks 1, 4-6 and 12 more" for the ranks that is_it selects. Returns how many
 * there are. */
static int say_ranks(struct meeting_words *w, const struct hr__meeting *m,
                     int (*is_it)(const struct hr__meeting *, int))
{
    int world = m->wish->world_size, count = 0, listed = 0, runs = 0;
    for (int r = 0; r < world; r++)
        count += is_it(m, r);
    if (count)
        say(w, "rank%s ", count == 1 ? "" : "s");
    for (int r = 0; r < world && runs < 8; r++) {
        if (!is_it(m, r))
            continue;
        int last = r;
        while (last + 1 < world && is_it(m, last + 1))
            last++;
        say(w, "%s%d", runs++ ? ", " : "", r);
        if (last > r)
            say(w, "-%d", last);
        listed += last - r + 1;
        r = last;
    }
    if (listed < count)
        say(w, " and %d more", count - listed);
    return count;
}

static void say_servers(struct meeting_words *w, const struct hr__meeting *m)
{
    int dead = 0, listed = 0, count = m->hosts->count;
    for (int h = 0; h < count; h++)
        dead += !m->answers[h];
    if (!dead)
        return;
    say(w, "; %s", dead == count ? "no server answers: " : "servers that do not answer: ");
    for (int h = 0; h < count && listed < 4; h++)
        if (!m->answers[h])
            say(w, "%s%s", listed++ ? ", " : "", m->hosts->hosts[h].name);
    if (listed < dead)
        say(w, " and %d more", dead - listed);
}

void hr__meeting_absent_text(const struct hr__meeting *m, char *out, size_t room)
{
    struct meeting_words w = {out, room, 0};
    out[0] = 0;
    if (!say_ranks(&w, m, is_absent))
        say(&w, "ranks that see other servers than this one");
    else
        say(&w, " of %d", m->wish->world_size);
    say_servers(&w, m);
}

/* Returns a rank that is there but has another world size; -1: none. */
static int other_world(const struct hr__meeting *m)
{
    for (int r = 0; r < m->wish->world_size; r++)
        if (m->seen[r].has_record && m->seen[r].record.world_size != m->wish->world_size)
            return r;
    return -1;
}

int hr__meeting_fail_late(const struct hr__meeting *m, struct hr_error *error)
{
    char absent[640], apart[160];
    struct meeting_words w = {apart, sizeof apart, 0};
    int other = other_world(m);
    apart[0] = 0;
    if (!has_absent(m) && say_ranks(&w, m, is_apart))
        say(&w, " came, but did not see all the others. ");
    if (other >= 0)
        say(&w, "A record of rank %d says that the world has %d ranks. ", other,
            m->seen[other].record.world_size);
    hr__meeting_absent_text(m, absent, sizeof absent);
    return hr__fail(error, -ETIMEDOUT,
                    "rank %d (%s) waited %" PRIu32 " s before the first batch for %s. %sDo all "
                    "ranks run, with one HEADRACE_JOB and servers that they all reach? &meet= "
                    "gives them more time",
                    m->wish->rank, m->mine.place, m->wish->limit_s, absent, apart);
}

int hr__meeting_fail_world(const struct hr__meeting *m, int rank, struct hr_error *error)
{
    const struct hr__meeting_record *r = &m->seen[rank].record;
    return hr__fail(error, -EINVAL,
                    "the ranks of a job do not agree on the number of ranks: %d at rank %d (%s), "
                    "%d at rank %d (%s): start them all with one world size, or, where they are of "
                    "two jobs, give each its own HEADRACE_JOB",
                    m->wish->world_size, m->wish->rank, m->mine.place, r->world_size, rank,
                    r->place);
}

int hr__meeting_fail_twice(const struct hr__meeting *m, const struct hr__meeting_record *other,
                           struct hr_error *error)
{
    return hr__fail(error, -EINVAL,
                    "two processes are rank %d of this job, on %s and on %s: give each process its "
                    "own rank, or, where they are of two jobs, each job its own HEADRACE_JOB",
                    m->wish->rank, m->mine.place, other->place);
}

/* ---- different inputs ---- */

/* Ranks that have the same inputs. */
struct word_kind {
    uint64_t digest;
    int ranks, first; /* how many; the lowest */
    char *text;       /* free with hr__free; NULL: no server has it, or it is this rank's */
    const char *inputs;
};

struct kinds {
    const struct hr__meeting *m;
    struct word_kind of[KINDS_MAX];
    int count;
};

static uint64_t inputs_of(const struct hr__meeting *m, int rank)
{
    uint64_t inputs = m->mine.inputs;
    if (rank != m->wish->rank)
        hr__meeting_agrees(m, rank, &inputs);
    return inputs;
}

static const char *place_of(const struct hr__meeting *m, int rank)
{
    return rank == m->wish->rank ? m->mine.place : m->seen[rank].record.place;
}

static int by_ranks(const void *a, const void *b)
{
    const struct word_kind *x = a, *y = b;
    if (x->ranks != y->ranks)
        return x->ranks > y->ranks ? -1 : 1;
    return x->first - y->first;
}

/* Fetches the text of a kind's inputs. Drops it if its digest is not the right one. */
static void fetch_kind(const struct hr__meeting *m, struct word_kind *kind)
{
    char key[HR__MEETING_KEY];
    hr__meeting_inputs_key(key, m->wish->job, kind->digest);
    for (int h = 0; h < m->hosts->count && !kind->text; h++) {
        if (!m->answers[h] || hr__peers_read(m->peers, h, key, &kind->text) <= 0)
            continue;
        if (hr__meeting_inputs_digest(kind->text) != kind->digest) {
            hr__free(kind->text);
            kind->text = NULL;
        }
    }
    kind->inputs = kind->text ? kind->text : "";
}

static void find_kinds(struct kinds *kinds, const struct hr__meeting *m)
{
    *kinds = (struct kinds){.m = m};
    for (int r = 0; r < m->wish->world_size; r++) {
        uint64_t digest = inputs_of(m, r);
        int k = 0;
        while (k < kinds->count && kinds->of[k].digest != digest)
            k++;
        if (k == KINDS_MAX)
            continue;
        if (k == kinds->count)
            kinds->of[kinds->count++] = (struct word_kind){.digest = digest, .first = r};
        kinds->of[k].ranks++;
    }
    qsort(kinds->of, (size_t)kinds->count, sizeof *kinds->of, by_ranks);
    for (int k = 0; k < kinds->count; k++)
        if (kinds->of[k].digest == m->mine.inputs)
            kinds->of[k].inputs = m->inputs;
        else
            fetch_kind(m, &kinds->of[k]);
}

/* The kind's value for the name in `of`; empty if the kind has none. */
static struct hr__meeting_value value_of(const struct word_kind *kind,
                                         const struct hr__meeting_value *of)
{
    struct hr__meeting_value value = {of->name, "", of->name_length, 0};
    hr__meeting_inputs_find(kind->inputs, of->name, of->name_length, &value);
    return value;
}

static int is_same(const struct hr__meeting_value *a, const struct hr__meeting_value *b)
{
    return a->value_length == b->value_length && !memcmp(a->value, b->value, a->value_length);
}

/* Returns non-zero if the kinds whose inputs are known have different values for this name. */
static int differs(const struct kinds *kinds, const struct hr__meeting_value *name)
{
    struct hr__meeting_value value;
    for (int k = 0; k < kinds->count; k++) {
        value = value_of(&kinds->of[k], name);
        if (*kinds->of[k].inputs && !is_same(&value, name))
            return 1;
    }
    return 0;
}

/* Writes the ranks whose value is that of kind `k`. */
static void say_value(struct meeting_words *w, const struct kinds *kinds, int k,
                      const struct hr__meeting_value *name, int most)
{
    const struct hr__meeting *m = kinds->m;
    struct hr__meeting_value value = value_of(&kinds->of[k], name), other;
    int listed = 0, count = 0;
    for (int r = 0; r < m->wish->world_size; r++) {
        int j = 0;
        while (j < kinds->count && kinds->of[j].digest != inputs_of(m, r))
            j++;
        if (j == kinds->count || !*kinds->of[j].inputs)
            continue;
        other = value_of(&kinds->of[j], name);
        if (!is_same(&other, &value) || ++count > most)
            continue;
        if (!listed++)
            say(w, "%.*s at rank ", value.value_length ? (int)value.value_length : 7,
                value.value_length ? value.value : "nothing");
        say(w, "%s%d (%s)", listed > 1 ? ", " : "", r, place_of(m, r));
    }
    if (count > listed)
        say(w, " and %d more", count - listed);
}

/* Writes "0 at rank 0 (a) and 5 more; 7 at rank 2 (b), 5 (c)". */
static void say_values(struct meeting_words *w, const struct kinds *kinds,
                       const struct hr__meeting_value *name)
{
    int listed = 0;
    for (int k = 0; k < kinds->count; k++) {
        int before = 0;
        struct hr__meeting_value value = value_of(&kinds->of[k], name), other;
        for (int j = 0; j < k; j++) {
            other = value_of(&kinds->of[j], name);
            before |= *kinds->of[j].inputs && is_same(&other, &value);
        }
        if (before || !*kinds->of[k].inputs)
            continue;
        say(w, "%s", listed ? "; " : "");
        say_value(w, kinds, k, name, listed ? 8 : 2);
        listed++;
    }
}

static const char *remedy_of(const struct hr__meeting *m, const struct hr__meeting_value *name)
{
    for (int i = 0; i < m->wish->input_count; i++) {
        const struct hr__meeting_input *input = &m->wish->inputs[i];
        if (strlen(input->name) == name->name_length &&
            !memcmp(input->name, name->name, name->name_length) && input->remedy)
            return input->remedy;
    }
    return "make them equal";
}

static void say_unknown(struct meeting_words *w, const struct kinds *kinds)
{
    for (int k = 0; k < kinds->count; k++)
        if (!*kinds->of[k].inputs)
            say(w, "; what rank %d (%s) has could not be read", kinds->of[k].first,
                place_of(kinds->m, kinds->of[k].first));
}

/* Writes the first input that differs in full, and the names of the others. */
static int say_differences(struct meeting_words *w, const struct kinds *kinds)
{
    struct hr__meeting_value name;
    const char *remedy = NULL, *at;
    int listed = 0;
    for (int k = 0; k < kinds->count; k++) {
        at = kinds->of[k].inputs;
        while (hr__meeting_inputs_next(&at, &name)) {
            struct hr__meeting_value before;
            int is_listed = 0;
            for (int j = 0; j < k; j++)
                is_listed |= hr__meeting_inputs_find(kinds->of[j].inputs, name.name,
                                                     name.name_length, &before);
            if (is_listed || !differs(kinds, &name))
                continue;
            if (listed == 1)
                say(w, ": %s. They differ, too, in ", remedy);
            if (listed > 1)
                say(w, ", ");
            say(w, "%.*s", (int)name.name_length, name.name);
            if (!listed) {
                say(w, ": ");
                say_values(w, kinds, &name);
                say_unknown(w, kinds);
                remedy = remedy_of(kinds->m, &name);
            }
            listed++;
        }
    }
    if (listed == 1)
        say(w, ": %s", remedy);
    return listed;
}

int hr__meeting_fail_different(const struct hr__meeting *m, struct hr_error *error)
{
    char text[HR_ERROR_MESSAGE_BYTES];
    struct meeting_words w = {text, sizeof text, 0};
    struct kinds kinds;
    text[0] = 0;
    find_kinds(&kinds, m);
    if (!say_differences(&w, &kinds)) {
        w.length = 0;
        say(&w, "what it needs to know: %d ranks as rank %d (%s)", kinds.of[0].ranks,
            kinds.of[0].first, place_of(m, kinds.of[0].first));
        say_unknown(&w, &kinds);
    }
    for (int k = 0; k < kinds.count; k++)
        hr__free(kinds.of[k].text);
    return hr__fail(error, -EINVAL, "the ranks of a job do not agree on %s", text);
}
