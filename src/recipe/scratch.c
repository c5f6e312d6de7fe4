/* Buffers that only grow; see scratch.h. */
#include "recipe/scratch.h"

#include "base/error.h"
#include "base/memory.h"
#include "recipe/recipe.h"

#include <errno.h>

int hr__scratch_create(struct hr__scratch **out, struct hr_error *error)
{
    *out = NULL;
    struct hr__scratch *scratch = hr__alloc(HR__TAG_RECIPE, 1, sizeof *scratch);
    if (!scratch)
        return hr__fail(error, -ENOMEM, "out of memory for the recipe's scratch space");
    int r = hr__fused_create(&scratch->fused, error);
    if (r) {
        hr__scratch_destroy(&scratch);
        return r;
    }
    *out = scratch;
    return 0;
}

void hr__scratch_destroy(struct hr__scratch **scratch)
{
    struct hr__scratch *s = *scratch;
    *scratch = NULL;
    if (!s)
        return;
    hr__fused_destroy(&s->fused);
    hr__free(s->oriented.bytes);
    for (int i = 0; i < 2; i++) {
        hr__free(s->planes[i].bytes);
        hr__free(s->bytes[i].bytes);
        hr__free(s->kept[i].bytes);
    }
    hr__free(s->extra.bytes);
    hr__free(s->rows.bytes);
    hr__free(s->kept_rows.bytes);
    hr__free(s->mask_places.bytes);
    hr__free(s);
}

void hr__scratch_set_rows(struct hr__scratch *scratch, const struct hr__sample_rows *rows)
{
    scratch->input_rows = rows;
}

size_t hr__scratch_memory(const struct hr__scratch *scratch)
{
    return sizeof *scratch + hr__fused_memory(scratch->fused) + scratch->oriented.size +
           scratch->planes[0].size + scratch->planes[1].size + scratch->bytes[0].size +
           scratch->bytes[1].size + scratch->extra.size + scratch->kept[0].size +
           scratch->kept[1].size + scratch->rows.size + scratch->kept_rows.size +
           scratch->mask_places.size;
}

int hr__buffer_reserve(struct hr__buffer *buffer, size_t size, struct hr_error *error)
{
    if (buffer->size >= size)
        return 0;
    hr__free(buffer->bytes);
    buffer->bytes = hr__alloc_aligned(HR__TAG_RECIPE, size, HR__PIXEL_SLACK);
    buffer->size = buffer->bytes ? size : 0;
    return buffer->bytes ? 0
                         : hr__fail(error, -ENOMEM, "out of memory for %zu bytes of pixels", size);
}
