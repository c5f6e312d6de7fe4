/*
 * The form `coefficients`: finds the parts of an item. Opening checks that every section is inside
 * the item; following an offset of the index checks the offset.
 */
#include "codec/coefficients.h"

#include "codec/coefficients_group.h"

#include <string.h>

static uint64_t align8(uint64_t n)
{
    return (n + 7) & ~UINT64_C(7);
}

/* Returns the groups per row of a component. */
static uint64_t groups_x(const struct hr__coefficients *c, int component)
{
    return (c->blocks_x[component] + HR__GROUP_BLOCKS - 1) / HR__GROUP_BLOCKS;
}

int hr__coefficients_open(struct hr__coefficients *out, const void *bytes, size_t length,
                          struct hr_error *error)
{
    struct hr__coefficients c;
    const uint8_t *item = bytes;
    int r = hr__item_parse(&c.header, bytes, length, error);
    if (r)
        return r;
    const struct hr__item_header *h = &c.header;
    if (h->form != HR_FORM_COEFFICIENTS)
        return hr__item_damaged(error, "it does not hold coefficients");
    uint64_t rows = 0, groups = 0;
    for (int i = 0; i < h->components; i++) {
        c.blocks_x[i] = (hr__item_samples(h->width, h->h, i) + 7) / 8;
        c.blocks_y[i] = (hr__item_samples(h->height, h->v, i) + 7) / 8;
        c.row_at[i] = (uint32_t)rows;
        c.group_at[i] = groups;
        rows += c.blocks_y[i];
        groups += c.blocks_y[i] * groups_x(&c, i);
    }
    /* Sides are below 2^16, so none of these sums comes near 2^64. */
    uint64_t quant = sizeof *h, profiles = quant + h->components * sizeof c.quant[0];
    uint64_t row = profiles + h->profiles * HR__PROFILE_BYTES;
    uint64_t group = row + align8(rows * 4);
    uint64_t data = group + align8(groups * (h->flags & HR__ITEM_WIDE ? 4 : 2));
    if (data + HR__ITEM_PAD > length)
        return hr__item_damaged(error, "it is shorter than its index");
    memcpy(c.quant, item + quant, profiles - quant);
    c.profiles = h->profiles ? item + profiles : NULL;
    if (!hr__block_profiles_are_sane(item + profiles, h->profiles))
        return hr__item_damaged(error, "it has widths beyond those of its form");
    c.rows = item + row;
    c.groups = item + group;
    c.data = item + data;
    c.data_bytes = length - HR__ITEM_PAD - data;
    *out = c;
    return 0;
}

const struct hr__block_profiles *hr__coefficients_profiles(const struct hr__coefficients *item,
                                                           struct hr__block_profiles *out)
{
    if (!item->profiles)
        return NULL;
    hr__block_profiles_expand(out, item->profiles, item->header.profiles);
    return out;
}

const uint8_t *hr__coefficients_find(const struct hr__coefficients *c, int component, uint32_t y,
                                     uint32_t x)
{
    uint32_t row;
    uint64_t group = c->group_at[component] + y * groups_x(c, component) + x / HR__GROUP_BLOCKS, at;
    memcpy(&row, c->rows + 4 * ((size_t)c->row_at[component] + y), sizeof row);
    if (c->header.flags & HR__ITEM_WIDE) {
        uint32_t wide;
        memcpy(&wide, c->groups + 4 * group, sizeof wide);
        at = (uint64_t)row + wide;
    } else {
        uint16_t narrow;
        memcpy(&narrow, c->groups + 2 * group, sizeof narrow);
        at = (uint64_t)row + narrow;
    }
#ifdef HR__UNCHECKED /* see bench/meson.build */
    return c->data + at;
#else
    return at < c->data_bytes ? c->data + at : NULL;
#endif
}

int hr__coefficients_row(const struct hr__coefficients *item, int component, uint32_t block_row,
                         int16_t (*blocks)[64], struct hr_error *error)
{
    const uint8_t *p = hr__coefficients_find(item, component, block_row, 0);
    uint32_t count = item->blocks_x[component];
    memset(blocks, 0, count * sizeof *blocks);
    if (!p || (item->profiles ? hr__groups_row(item, p, count, blocks)
                              : hr__blocks_row(item, p, count, blocks)))
        return hr__item_damaged(error, "row %u of component %d leads out of it", block_row,
                                component);
    return 0;
}

const struct hr__block_kernels *hr__block_kernels(enum hr__isa isa)
{
#if defined(__x86_64__)
    if (isa >= HR__ISA_AVX512)
        return &hr__block_kernels_avx512;
    if (isa >= HR__ISA_AVX2)
        return hr__pdep_is_fast() ? &hr__block_kernels_avx2 : &hr__block_kernels_avx2_slow_pdep;
#elif defined(__aarch64__)
    if (isa >= HR__ISA_NEON)
        return &hr__block_kernels_neon;
#endif
    (void)isa;
    return &hr__block_kernels_portable;
}
