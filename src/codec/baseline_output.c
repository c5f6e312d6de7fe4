/* What the MCUs of a baseline JPEG give: the samples of blocks, and the points of an index. */
#include "codec/baseline_state.h"

int hr__baseline_transform(struct hr__baseline *b)
{
    struct hr__dct_block group[HR__DCT_GROUP_MOST];
    int held = 1, count = 0, used = b->waiting;
    b->waiting = 0;
    for (int i = 0; i < used; i++) {
        const struct hr__waiting_block *w = &b->wait[i];
        const struct hr__strip_part *p = &b->strips.part[w->component];
        int16_t *block = b->coefficient[i];
        if (w->flat) {
            int level = block[0] * b->limits[w->component].quant[0];
            held &= hr__inverse_dct_flat(level, (int)p->side, w->out, p->stride);
            continue;
        }
        group[count] = (struct hr__dct_block){block, &b->limits[w->component], w->out, p->stride};
        if (p->side < 8) {
            held &= hr__inverse_dct_reduced(&group[count], (int)p->side);
        } else if (++count == b->transform->blocks) {
            held &= b->transform->run(group);
            count = 0;
        }
    }
    if (count) {
        for (int i = count; i < b->transform->blocks; i++)
            group[i] = group[0];
        held &= b->transform->run(group);
    }
    memset(b->coefficient, 0, (size_t)used * sizeof b->coefficient[0]);
    return held;
}

void hr__baseline_note_point(struct hr__baseline *b, uint32_t x, uint32_t position)
{
    uint64_t byte = (uint64_t)(hr__scan_tell(&b->reader, position) - b->scan);
    uint64_t point = byte << 3 | position % 8, excess = byte >> HR__POINT_BYTE_BITS;
    for (int c = 0; c < HR__BASELINE_COMPONENTS; c++) {
        uint64_t level = (uint64_t)(b->level[c] + HR__POINT_LEVEL_BIAS);
        excess |= level >> HR__POINT_LEVEL_BITS;
        point |= level << (HR__POINT_BYTE_BITS + 3 + c * HR__POINT_LEVEL_BITS);
    }
    memcpy(b->point, &point, sizeof point);
    b->point = excess ? NULL : b->point + HR__POINT_BYTES;
    b->point_x = excess ? UINT32_MAX : x + b->grid.spacing;
}
