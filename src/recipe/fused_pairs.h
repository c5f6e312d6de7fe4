/*
 * The horizontal filter of the fused pass for AVX2 and NEON.
 *
 * It computes LANES outputs at a time. The near loop loads 16 bytes for every four outputs. One
 * byte shuffle selects two neighbouring taps of each output and widens them, and their products are
 * added. The next two taps use the same shuffle two bytes further on. If four outputs are too far
 * apart for that, the far loop loads the taps of one output after the other and sums across.
 *
 * Before including this, a file includes fused_vector.h and defines:
 *
 * - `four`: a vector of four 32-bit numbers; Q(op): the intrinsic of that name.
 * - TAP(o, t): where tap t of output o is among the 8 numbers of four outputs.
 * - load_windows(row, base, offset): for every four outputs 16 bytes from row + base[i] + offset
 * on.
 * - products(taps, weights), add_products(sum, taps, weights): sums of the products of both taps of
 *   each output.
 * - far_sum(at, weight, chunks): four partial sums over the taps of one output: 16 x `chunks`,
 * or 8.
 */
#ifndef HR_RECIPE_FUSED_PAIRS_H
#define HR_RECIPE_FUSED_PAIRS_H

/* A record in the near loop's table, for LANES outputs. After it, for every pair of taps, follow
 * the weights, int16 [2 x LANES]. */
struct pair_group {
    int32_t base[LANES / 4]; /* columns where the windows of four outputs begin */
    _Alignas(sizeof(ints)) uint16_t shuffle[2 * LANES];
};

INLINE size_t group_bytes(int pairs)
{
    return sizeof(struct pair_group) + (size_t)pairs * sizeof(ints);
}

/* Four outputs and two taps of each fit into a window if the outputs begin at most this far
 * apart. */
#define NEAR_SPREAD 14

INLINE void near_rows(const struct hr__horizontal *h, const uint8_t *row, float *out, int pairs,
                      int clamp)
{
    const uint8_t *table = h->table;
    for (int j = 0; j < h->count; j += LANES) {
        const struct pair_group *g = (const struct pair_group *)(const void *)table;
        const ints *weight = (const ints *)(const void *)(table + sizeof *g);
        ints shuffle = INTS(loadu)((const void *)g->shuffle);
        ints sum = products(V(shuffle_epi8)(load_windows(row, g->base, 0), shuffle), weight[0]);
        for (int k = 1; k < pairs; k++) {
            ints v = V(shuffle_epi8)(load_windows(row, g->base, 2 * k), shuffle);
            sum = add_products(sum, v, weight[k]);
        }
        put_sums(h, sum, out + j, clamp);
        table += group_bytes(pairs);
    }
}

/* Defines one loop for each common number of pairs, with and without the clamp. */
#define NEAR(name, pairs, clamp)                                                                   \
    static void name(const struct hr__horizontal *h, const uint8_t *row, float *out)               \
    {                                                                                              \
        near_rows(h, row, out, pairs, clamp);                                                      \
    }
NEAR(near_1, 1, 0)
NEAR(near_2, 2, 0)
NEAR(near_3, 3, 0)
NEAR(near_4, 4, 0)
NEAR(near_any, (h->taps + 1) / 2, 0)
NEAR(near_2_clamp, 2, 1)
NEAR(near_3_clamp, 3, 1)
NEAR(near_4_clamp, 4, 1)
NEAR(near_any_clamp, (h->taps + 1) / 2, 1)

/* Fills a record for the outputs from j on. */
INLINE void prepare_group(const struct hr__horizontal *h, int j, int pairs, uint8_t *table)
{
    struct pair_group *g = (struct pair_group *)(void *)table;
    for (int i = 0; i < LANES / 4; i++) {
        const int32_t *begin = h->begin + j + 4 * i;
        /* Positions ascend, or descend if flipped. */
        g->base[i] = begin[0] < begin[3] ? begin[0] : begin[3];
        for (int o = 0; o < 4; o++)
            for (int t = 0; t < 2; t++) /* a tap, then zero */
                g->shuffle[8 * i + TAP(o, t)] = (uint16_t)(0x8000 + begin[o] - g->base[i] + t);
    }
    for (int k = 0; k < pairs; k++) {
        int16_t *weight = (int16_t *)(void *)(table + group_bytes(k));
        for (int o = 0; o < LANES; o++) {
            const int16_t *taps = h->weight + (ptrdiff_t)(j + o) * h->pitch + 2 * k;
            int16_t *to = weight + o / 4 * 8;
            if (TAP(0, 1) == 1) { /* side by side */
                memcpy(to + TAP(o % 4, 0), taps, 2 * sizeof *taps);
            } else {
                to[TAP(o % 4, 0)] = taps[0];
                to[TAP(o % 4, 1)] = taps[1];
            }
        }
    }
}

static void prepare_near(struct hr__horizontal *h)
{
    static const hr__horizontal_fn plain[] = {near_1, near_2, near_3, near_4};
    static const hr__horizontal_fn clamped[] = {near_any_clamp, near_2_clamp, near_3_clamp,
                                                near_4_clamp};
    int pairs = (h->taps + 1) / 2;
    uint8_t *table = h->table;
    for (int j = 0; j < h->count; j += LANES, table += group_bytes(pairs))
        prepare_group(h, j, pairs, table);
    if (h->ceiling)
        h->run = pairs <= 4 ? clamped[pairs - 1] : near_any_clamp;
    else
        h->run = pairs <= 4 ? plain[pairs - 1] : near_any;
}

INLINE void far_rows(const struct hr__horizontal *h, const uint8_t *row, float *out, int chunks)
{
    const int16_t *table = (const int16_t *)(const void *)h->table;
    ptrdiff_t pitch = chunks ? 16 * (ptrdiff_t)chunks : 8;
    for (int j = 0; j < h->count; j += 4) {
        four s[4];
        for (int o = 0; o < 4; o++)
            s[o] = far_sum(row + h->begin[j + o], table + (j + o) * pitch, chunks);
        four sum = Q(hadd_epi32)(Q(hadd_epi32)(s[0], s[1]), Q(hadd_epi32)(s[2], s[3]));
        if (h->ceiling) {
            sum = Q(max_epi32)(sum, Q(set1_epi32)(0));
            sum = Q(min_epi32)(sum, Q(set1_epi32)(h->ceiling));
        }
        Q(store_ps)(out + j, Q(cvtepi32_ps)(sum));
    }
}

static void far_8(const struct hr__horizontal *h, const uint8_t *row, float *out)
{
    far_rows(h, row, out, 0);
}

static void far_16(const struct hr__horizontal *h, const uint8_t *row, float *out)
{
    far_rows(h, row, out, 1);
}

static void far_32(const struct hr__horizontal *h, const uint8_t *row, float *out)
{
    far_rows(h, row, out, 2);
}

static void far_any(const struct hr__horizontal *h, const uint8_t *row, float *out)
{
    far_rows(h, row, out, (h->taps + 15) / 16);
}

static void prepare_far(struct hr__horizontal *h)
{
    int16_t *table = (int16_t *)(void *)h->table;
    size_t pitch = h->taps <= 8 ? 8 : (size_t)(h->taps + 15) / 16 * 16;
    memset(table, 0, (size_t)h->padded * pitch * sizeof *table);
    for (int j = 0; j < h->count; j++)
        memcpy(table + (size_t)j * pitch, h->weight + (size_t)j * (size_t)h->pitch,
               (size_t)h->pitch * sizeof *table);
    if (h->taps <= 16)
        h->run = h->taps <= 8 ? far_8 : far_16;
    else
        h->run = h->taps <= 32 ? far_32 : far_any;
}

static void prepare(struct hr__horizontal *h)
{
    int spread = 0;
    for (int j = 0; j < h->count; j += 4) {
        int apart = h->begin[j + 3] - h->begin[j];
        apart = apart < 0 ? -apart : apart;
        spread = apart > spread ? apart : spread;
    }
    if (spread <= NEAR_SPREAD)
        prepare_near(h);
    else
        prepare_far(h);
}

#endif
