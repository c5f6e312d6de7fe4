/*
 * Skips MCUs, several streams of symbols at a time; see mcu_skip.h. Compiled like mcu_decode.c,
 * with HR__MCU_SKIP_RUN as the name of its function.
 */
#include "codec/mcu_skip.h"

#include "codec/block_symbols.h"

/* The lowest bit of a stream's position in its block. */
#define STEPS 8

#define NOWHERE UINT32_MAX

/* With fewer bytes left, the reader is filled up. */
#define FILL_BYTES (HR__SEGMENT_PIECE / 2)

_Static_assert(HR__SEGMENT_PIECE + HR__SEGMENT_SLACK < NOWHERE / 8, "positions in the piece");

/* A stream, inside a block behind its DC coefficient, or where it has stopped. Three times what a
 * look-up needs fits in the registers. */
struct skip_stream {
    uint64_t buffer; /* as in struct hr__bits */
    const uint8_t *next;
    size_t state; /* 63 - the count of struct hr__bits; above the lowest 8 bits the position
                   * in the block. So adding an entry of the table updates both. */
    const struct hr__ac_skip *table; /* of the block */
    int block;
    uint32_t *start;     /* of the current MCU, in the stream's trail */
    int16_t *difference; /* the next one in the trail */
};

/* Where streams stop, in bits from the piece's first one. */
struct skip_bounds {
    const uint8_t *piece;
    uint32_t end;         /* where the segment ends, or more: no MCU ends behind it */
    uint32_t begin_below; /* no MCU begins from here on */
    uint32_t most;        /* MCUs of the first stream */
};

/* Where the guesses begin, in 64ths of the bytes. Any stream that leaves a block ends the turn of
 * all, so the later ones are slower. */
#define NEAR_AT 23
#define FAR_AT  44

enum skip_turn { SKIP_GOES_ON, SKIP_STOPS, SKIP_INVALID };

/* Each stream stops where it meets the next one. */
enum skip_role { SKIP_FIRST, SKIP_NEAR, SKIP_FAR };

_Static_assert(SKIP_FAR == HR__SKIP_GUESSES, "guess number `role` is the next stream");

/* Looked up in it, a stream does not move. */
static const struct hr__ac_skip idle;

_Static_assert(63 + HR__REFILL_BITS < 1 << STEPS, "state");

static struct hr__bits bits_at(const uint8_t *piece, uint32_t position)
{
    struct hr__bits bits = {.next = piece + position / 8};
    hr__bits_refill(&bits);
    hr__bits_drop(&bits, position % 8);
    return bits;
}

/* As hr__bits_refill. */
HR__INLINE void refill(struct skip_stream *s)
{
    uint64_t more;
    memcpy(&more, s->next, sizeof more);
    s->buffer |= __builtin_bswap64(more) >> (~s->state & 63);
    s->next += (s->state & 63) >> 3;
    s->state &= ~(size_t)56;
}

static struct skip_stream begin_stream(struct hr__mcu_trail *trail, const uint8_t *piece,
                                       uint32_t start)
{
    struct hr__bits bits = bits_at(piece, start);
    trail->start[0] = start;
    trail->start[1] = NOWHERE;
    return (struct skip_stream){
        .buffer = bits.buffer,
        .next = bits.next,
        .state = 63 - hr__bits_count(&bits),
        .start = trail->start,
        .difference = trail->difference,
    };
}

/* Takes the DC difference of the next block. */
HR__INLINE enum skip_turn begin_block(const struct hr__mcu_skip *skip, struct skip_stream *s)
{
    const struct hr__block_codes *codes = &skip->codes[s->block];
    int difference;
    refill(s);
    struct hr__bits bits = {.buffer = s->buffer};
    if (!hr__take_dc(codes->dc, &bits, &difference))
        return SKIP_INVALID;
    *s->difference++ = (int16_t)difference;
    s->buffer = bits.buffer;
    s->state = (s->state & 63) + (-bits.count & 63);
    s->table = codes->skip;
    return SKIP_GOES_ON;
}

/* Looks up symbols. Returns 0 if they do not all stay inside the block: then only the state has
 * taken them. */
HR__INLINE int look_up(struct skip_stream *s)
{
    size_t index = s->buffer >> (64 - HR__SKIP_BITS);
    unsigned used = s->table->bits[index];
    s->state += s->table->both[index];
    if (s->state >= 63u << STEPS)
        return 0;
    s->buffer <<= used & 63;
    return 1;
}

/* Returns the start of the first MCU of a guess from a position on; NOWHERE if there is none. */
static inline uint32_t find_mcu(struct hr__mcu_skip *skip, int guess, uint32_t at)
{
    const uint32_t *start = skip->guess[guess].start;
    while (start[skip->from[guess]] < at)
        skip->from[guess]++;
    return start[skip->from[guess]];
}

/* Notes the end of an MCU, and begins the next one. */
HR__INLINE enum skip_turn end_mcu(struct hr__mcu_skip *skip, struct skip_stream *s,
                                  const struct skip_bounds *bounds, enum skip_role role)
{
    const uint32_t *begin = role == SKIP_FIRST ? skip->sure.start : skip->guess[role - 1].start;
    uint32_t most = role == SKIP_FIRST ? bounds->most : HR__SKIP_MOST;
    uint32_t at = (uint32_t)(s->next - bounds->piece) * 8 - 63 + (s->state & 63);
    if (at > bounds->end)
        return SKIP_STOPS;
    *++s->start = at;
    s->start[1] = NOWHERE;
    s->block = 0;
    if (s->start == begin + most || at >= bounds->begin_below ||
        (role < SKIP_FAR && at == find_mcu(skip, role, at)))
        return SKIP_STOPS;
    return begin_block(skip, s);
}

/* Takes the symbols of a look-up that do not all stay inside the block. */
HR__INLINE enum skip_turn leave_block(struct hr__mcu_skip *skip, struct skip_stream *s,
                                      const struct skip_bounds *bounds, enum skip_role role)
{
    size_t index = s->buffer >> (64 - HR__SKIP_BITS), last = s->state >> STEPS;
    if (last == 63 || last - HR__STEP_END < 63) {
        s->buffer <<= s->table->bits[index] & 63;
    } else {
        s->state -= s->table->both[index];
        struct hr__bits bits = {s->buffer, 63 - (s->state & 63), s->next};
        unsigned k = hr__take_ac_single(&skip->codes[s->block].ac->code, &bits,
                                        (unsigned)(s->state >> STEPS), NULL);
        if (!k)
            return SKIP_INVALID;
        s->buffer = bits.buffer;
        s->next = bits.next;
        s->state = (size_t)k << STEPS | (63 - hr__bits_count(&bits));
        if (k < 63)
            return SKIP_GOES_ON;
    }
    return ++s->block < skip->blocks ? begin_block(skip, s) : end_mcu(skip, s, bounds, role);
}

/* Begins a guess at a byte, or the first one behind it that a block can begin at. Without any, its
 * trail begins NOWHERE and its stream is idle. */
static __attribute__((noinline)) struct skip_stream
begin_guess(struct hr__mcu_skip *skip, const struct skip_bounds *bounds, int number, uint32_t byte)
{
    struct hr__mcu_trail *trail = &skip->guess[number];
    skip->from[number] = 0;
    for (; byte < bounds->end / 8 && byte < bounds->begin_below / 8; byte++) {
        struct skip_stream s = begin_stream(trail, bounds->piece, byte * 8);
        if (begin_block(skip, &s) == SKIP_GOES_ON)
            return s;
    }
    trail->start[0] = NOWHERE;
    return (struct skip_stream){.next = bounds->piece, .table = &idle, .start = trail->start};
}

/* Takes the symbols of a guess that do not all stay inside the block; where they are not valid, it
 * begins again. A stream that stops is idle from then on. */
HR__INLINE void leave_guess(struct hr__mcu_skip *skip, struct skip_stream *s,
                            const struct skip_bounds *bounds, enum skip_role role)
{
    enum skip_turn turn = leave_block(skip, s, bounds, role);
    if (turn == SKIP_GOES_ON)
        return;
    if (turn == SKIP_INVALID) {
        *s = begin_guess(skip, bounds, role - 1, (uint32_t)(s->next - bounds->piece));
        return;
    }
    s->table = &idle;
    s->state = 0;
    s->next = bounds->piece;
}

/* Reads from `at` on until the next guess is met. Returns 0 if it is not valid. */
static __attribute__((noinline)) int run_alone(struct hr__mcu_skip *skip,
                                               const struct skip_bounds *bounds, uint32_t at)
{
    struct hr__bits bits = bits_at(bounds->piece, at);
    int16_t *difference = skip->sure.difference;
    uint32_t *start = skip->sure.start, count = 0;
    do {
        start[count] = at;
        for (int i = 0; i < skip->blocks; i++) {
            const struct hr__block_codes *codes = &skip->codes[i];
            int value;
            hr__bits_refill(&bits);
            if (!hr__take_dc(codes->dc, &bits, &value) ||
                !hr__skip_ac(codes->skip, &codes->ac->code, &bits))
                return 0;
            *difference++ = (int16_t)value;
        }
        at = (uint32_t)(bits.next - bounds->piece) * 8 - hr__bits_count(&bits);
        if (at > bounds->end)
            break;
        start[++count] = at;
    } while (count < bounds->most && at < bounds->begin_below &&
             at != find_mcu(skip, (int)skip->which, at));
    skip->sure.count = count;
    return count > 0;
}

/* Reads all streams until the first one stops. Returns 0 if it is not valid. */
static __attribute__((noinline)) int run_all(struct hr__mcu_skip *skip,
                                             const struct skip_bounds *bounds,
                                             struct skip_stream first, struct skip_stream near,
                                             struct skip_stream far)
{
    enum skip_turn turn = SKIP_GOES_ON;
    while (turn == SKIP_GOES_ON) {
        refill(&first);
        refill(&near);
        refill(&far);
#pragma GCC unroll 3
        for (int i = 0; i < HR__LOOKUPS; i++) {
            if (!look_up(&first))
                goto leave_first;
            if (!look_up(&near))
                goto leave_near;
            if (!look_up(&far))
                goto leave_far;
        }
        continue;
    leave_first:
        turn = leave_block(skip, &first, bounds, SKIP_FIRST);
        continue;
    leave_near:
        leave_guess(skip, &near, bounds, SKIP_NEAR);
        continue;
    leave_far:
        leave_guess(skip, &far, bounds, SKIP_FAR);
    }
    skip->sure.count = (uint32_t)(first.start - skip->sure.start);
    skip->guess[0].count = (uint32_t)(near.start - skip->guess[0].start);
    skip->guess[1].count = (uint32_t)(far.start - skip->guess[1].start);
    return turn == SKIP_STOPS && skip->sure.count > 0;
}

static struct skip_bounds bounds_of(const struct hr__scan_reader *r, uint32_t most)
{
    return (struct skip_bounds){
        .piece = r->piece,
        .end = (uint32_t)(r->end - r->piece) * 8,
        .begin_below = r->last ? NOWHERE : (uint32_t)(r->check - r->piece) * 8,
        .most = most < HR__SKIP_MOST ? most : HR__SKIP_MOST,
    };
}

/* Returns the start of the first MCU of any guess from a position on; NOWHERE if there is none. */
static uint32_t find_guess(struct hr__mcu_skip *skip, uint32_t at)
{
    while (find_mcu(skip, (int)skip->which, at) == NOWHERE && skip->which < HR__SKIP_GUESSES - 1)
        skip->which++;
    return find_mcu(skip, (int)skip->which, at);
}

/* Reads from `at` on; about `bytes` bytes are wanted. Returns 0 if they are not valid. */
static int run_from(struct hr__mcu_skip *skip, const struct skip_bounds *bounds, uint32_t at,
                    uint64_t bytes)
{
    uint32_t end = bounds->end < bounds->begin_below ? bounds->end : bounds->begin_below;
    uint64_t left = (end - at) / 8;
    left = left < bytes ? left : bytes;
    if (find_guess(skip, at) != NOWHERE || left < skip->least_bytes)
        return run_alone(skip, bounds, at);
    struct skip_stream first = begin_stream(&skip->sure, bounds->piece, at);
    uint32_t near = (uint32_t)(left * NEAR_AT / 64), far = (uint32_t)(left * FAR_AT / 64);
    hr__mcu_skip_begin(skip);
    return begin_block(skip, &first) == SKIP_GOES_ON &&
           run_all(skip, bounds, first, begin_guess(skip, bounds, 0, at / 8 + near),
                   begin_guess(skip, bounds, 1, at / 8 + far));
}

/* Fills the reader up if too little is left to guess in, or to skip an MCU. Returns 0 if the bytes
 * end before a marker does. */
static int fill(struct hr__mcu_skip *skip, struct hr__scan_reader *r)
{
    uint32_t position = hr__scan_position(r);
    const uint8_t *at = r->piece + position / 8;
    int is_guessed = find_guess(skip, position) != NOWHERE;
    if (r->last || (at < r->check && (is_guessed || r->end - at >= FILL_BYTES)))
        return 1;
    hr__mcu_skip_begin(skip); /* its positions are of the old piece */
    return hr__scan_advance(r);
}

/* Gives MCUs of a trail, and moves the reader behind them. */
static void give(const struct hr__mcu_skip *skip, const struct hr__mcu_trail *trail, uint32_t from,
                 uint32_t count, struct hr__scan_reader *r, struct hr__skipped *out)
{
    *out = (struct hr__skipped){count, trail->start + from,
                                trail->difference + (size_t)from * (size_t)skip->blocks};
    r->bits = bits_at(r->piece, trail->start[from + count]);
}

int HR__MCU_SKIP_RUN(struct hr__mcu_skip *skip, struct hr__scan_reader *r, uint32_t most,
                     uint64_t bytes, struct hr__skipped *out)
{
    if (!fill(skip, r))
        return 0;
    struct skip_bounds bounds = bounds_of(r, most);
    uint32_t at = hr__scan_position(r);
    if (at > bounds.end)
        return 0;
    if (find_guess(skip, at) == at) {
        const struct hr__mcu_trail *guess = &skip->guess[skip->which];
        uint32_t *from = &skip->from[skip->which], was = *from;
        uint32_t left = guess->count - was, count = left < most ? left : most;
        *from += count + (count == left); /* NOWHERE behind the end */
        if (count) {
            give(skip, guess, was, count, r, out);
            return 1;
        }
    }
    if (!run_from(skip, &bounds, at, bytes))
        return 0;
    give(skip, &skip->sure, 0, skip->sure.count, r, out);
    return 1;
}
