/*
 * Splits an order's positions into batches of ranks, as torch's DistributedSampler and DataLoader
 * together do. Global batch g is the next batch_size x ranks positions; rank r takes every ranks-th
 * of them, starting with the r-th. Only the last global batch can be short. It is dropped, or
 * padded from the start of the order until all ranks have the same count (with one rank it is just
 * shorter).
 */
#include "order/order.h"

#include <assert.h>

/* Returns the positions in one global batch; UINT64_MAX (all) if the product overflows. */
static uint64_t global_batch(const struct hr__cut *cut)
{
    uint64_t product;
    return __builtin_mul_overflow(cut->batch_size, cut->ranks, &product) ? UINT64_MAX : product;
}

static uint64_t remaining(const struct hr__cut *cut)
{
    return cut->start < cut->samples ? cut->samples - cut->start : 0;
}

uint64_t hr__cut_batches(const struct hr__cut *cut)
{
    assert(cut->batch_size && cut->ranks && cut->rank < cut->ranks);
    uint64_t global = global_batch(cut), left = remaining(cut);
    return left / global + (!cut->drop_last && left % global);
}

size_t hr__cut_batch(const struct hr__cut *cut, uint64_t number, uint64_t *positions,
                     size_t *padding)
{
    assert(number < hr__cut_batches(cut));
    uint64_t first = cut->start + number * global_batch(cut);
    uint64_t left = cut->samples - first;
    uint64_t share = left / cut->ranks + (left % cut->ranks != 0);
    if (share > cut->batch_size)
        share = cut->batch_size;
    size_t pads = 0;
    for (uint64_t i = 0; i < share; i++) {
        uint64_t offset = i * cut->ranks + cut->rank;
        int pad = offset >= left;
        positions[i] = pad ? (offset - left) % cut->samples : first + offset;
        pads += (size_t)pad;
    }
    *padding = pads;
    return (size_t)share;
}

uint64_t hr__cut_position(const struct hr__cut *cut, uint64_t number)
{
    uint64_t done;
    if (__builtin_mul_overflow(number, global_batch(cut), &done) || done > remaining(cut))
        done = remaining(cut);
    /* The state may come from a longer dataset; never return more than `samples`. */
    return (cut->start < cut->samples ? cut->start : cut->samples) + done;
}
