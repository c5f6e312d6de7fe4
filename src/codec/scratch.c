/* Scratch memory of decoders and encoders, which grows to the largest use. See format.h. */
#include "codec/format.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>

int hr__scratch_reserve(struct hr__codec_scratch *scratch, size_t bytes, struct hr_error *error)
{
    if (bytes <= scratch->capacity)
        return 0;
    size_t rounded = (bytes + 65535) & ~(size_t)65535;
    hr__scratch_free(scratch);
    if (rounded < bytes ||
        !(scratch->bytes = hr__alloc_aligned(HR__TAG_CODEC, rounded, HR__SCRATCH_SLACK)))
        return hr__fail(error, -ENOMEM, "out of memory: %zu bytes for decoded pixels", bytes);
    scratch->capacity = rounded;
    return 0;
}

void hr__scratch_free(struct hr__codec_scratch *scratch)
{
    hr__free(scratch->bytes);
    scratch->bytes = NULL;
    scratch->capacity = 0;
}
