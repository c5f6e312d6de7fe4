/*
 * An epoch's order and the replacements of its bad samples.
 *
 * The permutation is stored in full, with 4 bytes per sample where that suffices. A computed
 * permutation (Feistel network with cycle walking) would need no memory, but is only pseudorandom
 * in the cryptographic sense, not uniform; and 4 bytes are little compared with a path.
 */
#include "order/order.h"

#include "base/error.h"
#include "base/gcd.h"
#include "base/memory.h"
#include "base/random.h"
#include "order/shuffle.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

struct hr__order {
    uint64_t samples;
    uint32_t *narrow; /* sample at each position; NULL: not shuffled, or `wide` */
    uint64_t *wide;   /* the same, for more than 2^32 samples */
};

int hr__order_create(struct hr__order **out, uint64_t samples, int shuffle, uint64_t seed,
                     uint64_t epoch, struct hr_error *error)
{
    struct hr__order *order = hr__alloc(HR__TAG_ORDER, 1, sizeof *order);
    if (!order)
        goto fail;
    order->samples = samples;
    if (shuffle && samples) {
        if (samples <= UINT64_C(1) << 32) {
            order->narrow = hr__alloc(HR__TAG_ORDER, samples, sizeof *order->narrow);
            if (!order->narrow)
                goto fail;
            hr__shuffle_narrow(order->narrow, samples, seed, epoch);
        } else {
            order->wide = hr__alloc(HR__TAG_ORDER, samples, sizeof *order->wide);
            if (!order->wide)
                goto fail;
            hr__shuffle_wide(order->wide, samples, seed, epoch);
        }
    }
    *out = order;
    return 0;

fail:
    hr__order_destroy(&order);
    return hr__fail(error, -ENOMEM,
                    "no memory for the order of %" PRIu64 " samples: %d bytes for each are needed; "
                    "free memory on this host or use fewer samples",
                    samples, samples <= UINT64_C(1) << 32 ? 4 : 8);
}

void hr__order_destroy(struct hr__order **order)
{
    if (!*order)
        return;
    hr__free((*order)->narrow);
    hr__free((*order)->wide);
    hr__free(*order);
    *order = NULL;
}

uint64_t hr__order_at(const struct hr__order *order, uint64_t position)
{
    assert(position < order->samples);
    if (order->narrow)
        return order->narrow[position];
    return order->wide ? order->wide[position] : position;
}

int hr_order_fill(uint64_t *out, uint64_t samples, int shuffle, uint64_t seed, uint64_t epoch,
                  struct hr_error *error)
{
    struct hr__order *order;
    int r = hr__order_create(&order, samples, shuffle, seed, epoch, error);
    if (r)
        return r;
    for (uint64_t position = 0; position < samples; position++)
        out[position] = hr__order_at(order, position);
    hr__order_destroy(&order);
    return 0;
}

/*
 * The attempts visit the other positions, from a random start, with a random stride that is coprime
 * to their number. So samples - 1 attempts visit each of them once and find a good sample if there
 * is one, which independent draws would not guarantee.
 */
uint64_t hr_order_replacement(uint64_t samples, uint64_t seed, uint64_t epoch, uint64_t position,
                              uint32_t attempt)
{
    if (samples < 2 || position >= samples)
        return position;
    uint64_t others = samples - 1;
    struct hr__random random;
    hr__random_init(&random, seed, HR__PURPOSE_REPLACEMENT, epoch, position);
    uint64_t first = hr__random_below(&random, others);
    uint64_t stride;
    do
        stride = 1 + hr__random_below(&random, others);
    while (hr__gcd(stride, others) != 1);
    unsigned __int128 step = (unsigned __int128)attempt * stride + first;
    uint64_t distance = 1 + (uint64_t)(step % others);
    return (uint64_t)(((unsigned __int128)position + distance) % samples);
}
