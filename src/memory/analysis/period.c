/* Finds the iterative pattern; see period.h. */
#include "memory/analysis/period.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define ANCHORS       8                            /* places to search for a stretch */
#define STRETCH_MOST  ((size_t)3 << 20)            /* behaviours examined from each */
#define STRETCH_LEAST 64                           /* anything shorter is no training pattern */
#define STRIDE_MOST   4                            /* optimizers that take turns */
#define BASE          UINT64_C(0x9ddfea08eb382d69) /* of the rolling hash, modulo 2^64; odd */

static uint32_t token_of(uint8_t kind, uint64_t bytes, uint32_t op)
{
    uint64_t x = bytes * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)op << 8 ^ kind;
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(x >> 32);
}

static int grow(struct hr__behaviours *b)
{
    int code = hr__reserve(HR__TAG_MEMORY, &b->tokens, b->count + 1);
    return code ? code : hr__reserve(HR__TAG_MEMORY, &b->times_ns, b->count + 1);
}

static int add_mark(struct hr__behaviours *b)
{
    if (hr__reserve(HR__TAG_MEMORY, &b->marks, b->mark_count + 1))
        return -ENOMEM;
    b->marks[b->mark_count++] = b->count;
    b->last_busy = 0;
    b->last_has_steps = 0;
    return 0;
}

void hr__behaviours_add(void *arg, const struct hr__blocks_found *found,
                        const struct hr__block_event *event)
{
    struct hr__behaviours *b = arg;
    uint8_t kind = event->event->kind;
    if (found->iterations != b->iterations && !b->code) {
        b->iterations = found->iterations;
        b->code = add_mark(b);
    }
    if (event->block == HR__NO_BLOCK || kind == HR_MEMORY_PRESENT || b->code)
        return;
    if ((b->code = grow(b)))
        return;
    b->last_busy += kind != HR_MEMORY_FREE;
    b->last_has_steps |= event->event->phase == HR_MEMORY_OPTIMIZER;
    b->has_steps |= b->last_has_steps;
    int is_access = kind == HR_MEMORY_READ || kind == HR_MEMORY_WRITE;
    b->tokens[b->count] =
        token_of(kind, found->blocks[event->block].bytes, is_access ? event->event->what : 0);
    b->times_ns[b->count++] = event->event->time_ns;
}

void hr__behaviours_clear(struct hr__behaviours *behaviours)
{
    hr__free(behaviours->tokens);
    hr__free(behaviours->times_ns);
    hr__free(behaviours->marks);
    *behaviours = (struct hr__behaviours){.tokens = NULL};
}

/* ---- the period ---- */

/* Finds the longest beginning of `s` that repeats with a period of at most half its length. Returns
 * its length, and the period in *period; 0: none. `prefix`: space for count numbers. */
static size_t stretch(const uint32_t *s, size_t count, uint32_t *prefix, size_t *period)
{
    size_t best = 0;
    uint32_t k = 0;
    if (count)
        prefix[0] = 0;
    for (size_t i = 1; i < count; i++) {
        while (k && s[i] != s[k])
            k = prefix[k - 1];
        k += s[i] == s[k];
        prefix[i] = k;
        if (2 * (size_t)k >= i + 1) {
            best = i + 1;
            *period = i + 1 - k;
        }
    }
    return best;
}

/* Finds where the longest stretch begins, and its period; 0: nothing repeats. */
static size_t find_anchor(const struct hr__behaviours *b, uint32_t *prefix, size_t *anchor)
{
    size_t longest = 0, period = 0;
    if (!b->count)
        return 0;
    for (size_t i = 0; i < ANCHORS; i++) {
        size_t at = b->count / ANCHORS * i, p = 0;
        size_t count = b->count - at < STRETCH_MOST ? b->count - at : STRETCH_MOST;
        size_t length = stretch(b->tokens + at, count, prefix, &p);
        /* The stretch of a loop within an iteration is short. */
        if (length > longest && length >= STRETCH_LEAST) {
            longest = length;
            period = p;
            *anchor = at;
        }
    }
    return period;
}

/* ---- iterations ---- */

/* Rolling hash over all windows of `length` in the sequence. */
struct window {
    const uint32_t *tokens;
    size_t length, count;
    uint64_t top; /* BASE^(length - 1) */
};

static uint64_t hash_at(const struct window *w, size_t at)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < w->length; i++)
        hash = hash * BASE + w->tokens[at + i];
    return hash;
}

static uint64_t slide(const struct window *w, uint64_t hash, size_t from)
{
    return (hash - w->tokens[from] * w->top) * BASE + w->tokens[from + w->length];
}

static int is_same(const struct window *w, size_t a, size_t b)
{
    return !memcmp(w->tokens + a, w->tokens + b, w->length * sizeof *w->tokens);
}

/* Finds the next position from `at` where the iteration at `anchor` repeats; count: none. */
static size_t find_next(const struct window *w, size_t anchor, uint64_t wanted, size_t at)
{
    if (at + w->length > w->count)
        return w->count;
    uint64_t hash = hash_at(w, at);
    for (;; at++) {
        if (hash == wanted && is_same(w, anchor, at))
            return at;
        if (at + w->length == w->count)
            return w->count;
        hash = slide(w, hash, at);
    }
}

static int add(struct hr__period *out, const struct hr__behaviours *b, size_t begin, size_t end,
               int same)
{
    if (hr__reserve(HR__TAG_MEMORY, &out->iterations, out->count + 1))
        return -ENOMEM;
    out->iterations[out->count++] = (struct hr__iteration){
        .begin = begin,
        .end = end,
        .begin_ns = b->times_ns[begin],
        .end_ns = b->times_ns[end < b->count ? end : b->count - 1],
        .is_same = same,
        .differs_at = begin,
    };
    out->same += (size_t)same;
    return 0;
}

/* Finds where an irregular piece begins to differ. */
static void compare(struct hr__iteration *one, const struct hr__behaviours *b, size_t anchor,
                    size_t length)
{
    size_t i = 0, count = one->end - one->begin;
    while (i < count && i < length && b->tokens[one->begin + i] == b->tokens[anchor + i])
        i++;
    one->differs_at = one->begin + i;
}

static int follow(struct hr__period *out, const struct hr__behaviours *b, size_t anchor)
{
    struct window w = {.tokens = b->tokens, .length = out->behaviours, .count = b->count, .top = 1};
    for (size_t i = 1; i < w.length; i++)
        w.top *= BASE;
    uint64_t wanted = hash_at(&w, anchor);
    size_t at = find_next(&w, anchor, wanted, 0);
    int code = 0;
    while (at < w.count && !code) {
        if (at + w.length <= w.count && is_same(&w, anchor, at)) {
            code = add(out, b, at, at + w.length, 1);
            at += w.length;
            continue;
        }
        size_t next = find_next(&w, anchor, wanted, at);
        /* What follows the last whole iteration is the end of training. */
        if (next == w.count)
            break;
        code = add(out, b, at, next, 0);
        if (!code)
            compare(&out->iterations[out->count - 1], b, anchor, w.length);
        at = next;
    }
    return code;
}

/* ---- iterations defined by marks ---- */

/* A marked iteration, by its contents. */
struct marked {
    uint64_t hash;
    size_t length, begin;
};

static int by_content(const void *a, const void *b)
{
    const struct marked *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Iterations defined by marks. */
struct by_marks {
    struct marked most; /* the most frequent iteration */
    size_t stride;      /* marks per iteration: several optimizers may take turns */
    size_t alike, of;   /* number equal to `most`; number of all */
};

/* Lists the nonempty iterations of `stride` marks each; returns their number. */
static size_t list_marked(const struct hr__behaviours *b, size_t stride, struct marked *all)
{
    size_t count = 0;
    for (size_t k = 0; k + stride < b->mark_count; k += stride) {
        size_t begin = b->marks[k], length = b->marks[k + stride] - begin;
        if (length)
            all[count++] = (struct marked){
                XXH3_64bits(b->tokens + begin, length * sizeof *b->tokens), length, begin};
    }
    return count;
}

static int find_marked(struct by_marks *out, const struct hr__behaviours *b, size_t stride)
{
    struct marked *all = hr__alloc(HR__TAG_MEMORY, b->mark_count + 1, sizeof *all);
    size_t run = 0;
    *out = (struct by_marks){.stride = stride};
    if (!all)
        return -ENOMEM;
    out->of = list_marked(b, stride, all);
    if (out->of)
        qsort(all, out->of, sizeof *all, by_content);
    for (size_t k = 0; k < out->of; k++) {
        int goes_on = k && all[k].hash == all[k - 1].hash && all[k].length == all[k - 1].length;
        run = goes_on ? run + 1 : 1;
        if (run > out->alike) {
            out->alike = run;
            out->most = all[k + 1 - run];
        }
    }
    hr__free(all);
    return 0;
}

static int is_pattern(const struct by_marks *found)
{
    return found->alike > 1 && 2 * found->alike > found->of;
}

/* Chooses the smallest number of marks per iteration for which most iterations are alike; one mark
 * if there is none. */
static int choose_marked(struct by_marks *out, const struct hr__behaviours *b)
{
    struct by_marks one;
    int code = find_marked(&one, b, 1);
    *out = one;
    for (size_t stride = 2; stride <= STRIDE_MOST && !code && !is_pattern(out); stride++)
        code = find_marked(out, b, stride);
    if (!is_pattern(out))
        *out = one;
    return code;
}

/* Handles what follows the last mark. It may be a truncated iteration, or only the end of training.
 * It is an iteration if it has an optimizer's step where others do, and begins as they do or does
 * more than free blocks. */
static int add_last(struct hr__period *out, const struct hr__behaviours *b,
                    const struct by_marks *marked)
{
    const struct marked *most = &marked->most;
    size_t last = (b->mark_count - 1) / marked->stride * marked->stride;
    size_t begin = b->marks[last], length = b->count - begin, same = 0;
    while (same < length && same < most->length &&
           b->tokens[begin + same] == b->tokens[most->begin + same])
        same++;
    if (same == most->length)
        return add(out, b, begin, begin + same, 1);
    if (same == length || (b->has_steps && !b->last_has_steps) ||
        (8 * same < most->length && 2 * b->last_busy < most->length))
        return 0;
    int code = add(out, b, begin, b->count, 0);
    if (!code)
        out->iterations[out->count - 1].differs_at = begin + same;
    return code;
}

static int follow_marks(struct hr__period *out, const struct hr__behaviours *b,
                        const struct by_marks *marked)
{
    const struct marked *most = &marked->most;
    int code = 0;
    out->behaviours = most->length;
    out->by_marks = 1;
    for (size_t k = 0; k + marked->stride < b->mark_count && !code; k += marked->stride) {
        size_t begin = b->marks[k], end = b->marks[k + marked->stride];
        if (begin == end)
            continue;
        int same =
            end - begin == most->length &&
            !memcmp(b->tokens + begin, b->tokens + most->begin, most->length * sizeof *b->tokens);
        code = add(out, b, begin, end, same);
        if (!code && !same)
            compare(&out->iterations[out->count - 1], b, most->begin, most->length);
    }
    return code || !most->length ? code : add_last(out, b, marked);
}

/* Finds iterations in a sequence without marks, or whose marks show none. */
static int find_unmarked(struct hr__period *out, const struct hr__behaviours *b)
{
    size_t count = b->count < STRETCH_MOST ? b->count : STRETCH_MOST, anchor = 0;
    uint32_t *prefix = hr__alloc(HR__TAG_MEMORY, count + 1, sizeof *prefix);
    if (!prefix)
        return -ENOMEM;
    out->behaviours = find_anchor(b, prefix, &anchor);
    hr__free(prefix);
    return out->behaviours ? follow(out, b, anchor) : 0;
}

int hr__period_find(struct hr__period *out, const struct hr__behaviours *behaviours,
                    struct hr_error *error)
{
    struct by_marks marked;
    *out = (struct hr__period){.iterations = NULL};
    if (behaviours->code)
        return hr__fail(error, behaviours->code, "out of memory for the sequence of behaviours");
    int code = choose_marked(&marked, behaviours);
    /* If an optimizer steps, its steps are the iterations: more frequent repetition is a layer. */
    int is_marked = is_pattern(&marked) || (behaviours->has_steps && marked.of);
    if (!code && !is_marked)
        code = find_unmarked(out, behaviours);
    if (!code && (is_marked || (!out->behaviours && marked.of > 1))) {
        /* All differ if sizes change with the input. */
        if (marked.alike < 2)
            marked.most = (struct marked){.length = 0};
        code = follow_marks(out, behaviours, &marked);
    }
    if (code) {
        hr__period_clear(out);
        return hr__fail(error, code, "out of memory for the pattern of behaviours");
    }
    return 0;
}

/* ---- figures of iterations ---- */

void hr__period_count(struct hr__period *period, const struct hr__blocks_found *found)
{
    size_t at = 0;
    for (uint32_t i = 0; i < found->count; i++) {
        uint64_t begin_ns = found->blocks[i].alloc_ns;
        if (!begin_ns)
            continue;
        while (at < period->count && period->iterations[at].end_ns <= begin_ns)
            at++;
        if (at < period->count && period->iterations[at].begin_ns <= begin_ns)
            period->iterations[at].blocks++;
    }
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int hr__period_medians(const struct hr__period *period, uint64_t *ns, uint64_t *blocks)
{
    size_t count = 0, of = period->same ? period->same : period->count;
    *ns = *blocks = 0;
    if (!of)
        return 0;
    uint64_t *times = hr__alloc(HR__TAG_MEMORY, 2 * of, sizeof *times);
    if (!times)
        return -ENOMEM;
    for (size_t i = 0; i < period->count; i++) {
        const struct hr__iteration *one = &period->iterations[i];
        if (period->same && !one->is_same)
            continue;
        times[count] = one->end_ns - one->begin_ns;
        times[of + count++] = one->blocks;
    }
    qsort(times, count, sizeof *times, by_number);
    qsort(times + count, count, sizeof *times, by_number);
    *ns = times[count / 2];
    *blocks = times[count + count / 2];
    hr__free(times);
    return 0;
}

void hr__period_clear(struct hr__period *period)
{
    hr__free(period->iterations);
    *period = (struct hr__period){.iterations = NULL};
}
