/*
 * Reads the header of a baseline JPEG: whether the decoder takes such a file, its sampling and
 * tables, and the size to decode.
 */
#include "codec/baseline_state.h"

/* Returns non-zero if the file is coded in the usual way. */
static int is_usual(const struct jpeg_decompress_struct *cinfo)
{
    if (cinfo->progressive_mode || cinfo->arith_code ||
        cinfo->comps_in_scan != cinfo->num_components)
        return 0;
    if (cinfo->Ss != 0 || cinfo->Se != DCTSIZE2 - 1 || cinfo->Ah != 0 || cinfo->Al != 0)
        return 0; /* lossless, or a fault that libjpeg notes */
    for (int i = 0; i < cinfo->num_components; i++)
        if (cinfo->cur_comp_info[i] != &cinfo->comp_info[i])
            return 0;
    return 1;
}

static int has_usual_colours(const struct jpeg_decompress_struct *cinfo)
{
    if (cinfo->num_components == 1)
        return cinfo->jpeg_color_space == JCS_GRAYSCALE;
    return cinfo->num_components == 3 &&
           (cinfo->jpeg_color_space == JCS_YCbCr || cinfo->jpeg_color_space == JCS_RGB);
}

/* Finds the shape and the blocks of an MCU. Returns 0 if libjpeg would refuse them: a sample covers
 * no whole number of pixels, or the blocks are too many. */
static int take_sampling(struct hr__baseline *b, const struct jpeg_decompress_struct *cinfo)
{
    int grey = cinfo->num_components == 1; /* its MCU is one block, whatever the factors say */
    b->components = cinfo->num_components;
    b->shape = (struct hr__ycc_shape){
        .components = (uint8_t)b->components,
        .width = cinfo->image_width,
        .height = cinfo->image_height,
        .rgb = cinfo->jpeg_color_space == JCS_RGB,
    };
    b->mcu_h = grey ? 1 : (uint32_t)cinfo->max_h_samp_factor;
    b->mcu_v = grey ? 1 : (uint32_t)cinfo->max_v_samp_factor;
    b->rows_at_once = grey ? (uint32_t)cinfo->comp_info[0].v_samp_factor : 1;
    b->blocks = 0;
    for (int i = 0; i < b->components; i++) {
        struct hr__strip_part *p = &b->strips.part[i];
        p->h = grey ? 1 : (uint32_t)cinfo->comp_info[i].h_samp_factor;
        p->v = grey ? 1 : (uint32_t)cinfo->comp_info[i].v_samp_factor;
        if (b->mcu_h % p->h || b->mcu_v % p->v ||
            (uint32_t)b->blocks + p->h * p->v > HR__MCU_BLOCKS_MOST)
            return 0;
        b->shape.across[i] = (uint8_t)(b->mcu_h / p->h);
        b->shape.down[i] = (uint8_t)(b->mcu_v / p->v);
        for (uint32_t k = 0; k < p->h * p->v; k++)
            b->block[b->blocks++] =
                (struct hr__mcu_block){.component = i, .x = (int)(k % p->h), .y = (int)(k / p->h)};
    }
    b->strips.mcu_v = b->mcu_v;
    b->mcus_x = (b->shape.width + 8 * b->mcu_h - 1) / (8 * b->mcu_h);
    b->mcus_y = (b->shape.height + 8 * b->mcu_v - 1) / (8 * b->mcu_v);
    b->grid.spacing = HR__POINT_PIXELS / (8 * b->mcu_h);
    b->grid.per_row = (b->mcus_x + b->grid.spacing - 1) / b->grid.spacing;
    b->grid.points = (uint64_t)b->grid.per_row * b->mcus_y + 1;
    return 1;
}

/* Builds the tables of a component. Returns 0 if one is missing or unusable. */
static int take_tables(struct hr__baseline *b, const struct jpeg_decompress_struct *cinfo, int i)
{
    const jpeg_component_info *c = &cinfo->comp_info[i];
    if ((unsigned)c->dc_tbl_no >= HR__BASELINE_TABLES ||
        (unsigned)c->ac_tbl_no >= HR__BASELINE_TABLES ||
        (unsigned)c->quant_tbl_no >= NUM_QUANT_TBLS)
        return 0;
    const JHUFF_TBL *dc = cinfo->dc_huff_tbl_ptrs[c->dc_tbl_no];
    const JHUFF_TBL *ac = cinfo->ac_huff_tbl_ptrs[c->ac_tbl_no];
    const JQUANT_TBL *quant = cinfo->quant_tbl_ptrs[c->quant_tbl_no];
    if (!dc || !ac || !quant || !hr__dc_table_build(&b->dc[c->dc_tbl_no], dc->bits, dc->huffval) ||
        !hr__ac_table_build(&b->ac[c->ac_tbl_no], ac->bits, ac->huffval))
        return 0;
    hr__block_limits_fill(&b->limits[i], quant->quantval);
    return 1;
}

int hr__baseline_take_header(struct hr__baseline *b, const struct jpeg_decompress_struct *cinfo)
{
    if (!is_usual(cinfo) || !has_usual_colours(cinfo) || !take_sampling(b, cinfo))
        return 0;
    b->restart = cinfo->restart_interval;
    for (int i = 0; i < b->components; i++)
        if (!take_tables(b, cinfo, i))
            return 0;
    for (int i = 0; i < b->blocks; i++) {
        const jpeg_component_info *c = &cinfo->comp_info[b->block[i].component];
        const struct hr__ac_table *ac = &b->ac[c->ac_tbl_no];
        b->block[i].codes = b->skip.codes[i] =
            (struct hr__block_codes){&b->dc[c->dc_tbl_no], ac, &ac->skip};
    }
    b->skip.blocks = b->blocks;
    return 1;
}

/* Plans blocks of fewer samples for a halved image, as libjpeg does: components that have half of
 * the samples on both axes are halved once less. Returns 0 if libjpeg would not filter a component
 * that hr__ycc_run filters, as in images halved three times. */
int hr__baseline_plan_size(struct hr__baseline *b, int halvings)
{
    const uint32_t least = 8u >> halvings;
    struct hr__ycc_shape *s = &b->strips.shape;
    int filtered = 0;
    *s = b->shape;
    s->width = ((b->shape.width - 1) >> halvings) + 1;
    s->height = ((b->shape.height - 1) >> halvings) + 1;
    b->strips.mcu_rows = least * b->mcu_v;
    for (int i = 0; i < b->components; i++) {
        uint32_t *side = &b->strips.part[i].side;
        for (*side = least; *side < 8 && !(s->across[i] % 2) && !(s->down[i] % 2); *side *= 2) {
            s->across[i] /= 2;
            s->down[i] /= 2;
        }
        filtered |= s->across[i] <= 2 && s->down[i] <= 2 && s->across[i] * s->down[i] > 1;
    }
    for (int i = 0; i < b->blocks; i++)
        b->block[i].flat = b->strips.part[b->block[i].component].side == 1;
    return least > 1 || !filtered;
}

int hr__baseline_grid(struct hr__baseline *b, const struct jpeg_decompress_struct *cinfo,
                      struct hr__scan_grid *grid)
{
    if (!has_usual_colours(cinfo) || !take_sampling(b, cinfo))
        return 0;
    *grid = b->grid;
    return 1;
}
