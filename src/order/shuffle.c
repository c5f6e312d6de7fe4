/*
 * Fisher-Yates shuffle (Durstenfeld, "Algorithm 235: Random permutation", CACM 1964) with
 * counter-based random numbers. If the draws are uniform, every permutation is equally likely.
 */
#include "order/shuffle.h"

#include "base/random.h"

void hr__shuffle_narrow(uint32_t *at, uint64_t n, uint64_t seed, uint64_t epoch)
{
    struct hr__random random;
    hr__random_init(&random, seed, HR__PURPOSE_SHUFFLE, epoch, 0);
    for (uint64_t i = 0; i < n; i++)
        at[i] = (uint32_t)i;
    for (uint64_t i = n; i > 1; i--) {
        uint64_t j = hr__random_below(&random, i);
        uint32_t other = at[j];
        at[j] = at[i - 1];
        at[i - 1] = other;
    }
}

void hr__shuffle_wide(uint64_t *at, uint64_t n, uint64_t seed, uint64_t epoch)
{
    struct hr__random random;
    hr__random_init(&random, seed, HR__PURPOSE_SHUFFLE, epoch, 0);
    for (uint64_t i = 0; i < n; i++)
        at[i] = i;
    for (uint64_t i = n; i > 1; i--) {
        uint64_t j = hr__random_below(&random, i);
        uint64_t other = at[j];
        at[j] = at[i - 1];
        at[i - 1] = other;
    }
}
