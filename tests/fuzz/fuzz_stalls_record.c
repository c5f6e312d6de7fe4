/*
 * A record of a measuring run: any bytes are refused with a message, or become a result whose
 * shares are valid.
 */
#include "stalls/model/inside.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Checks that a figure is unknown, or within bounds and inside its interval. */
static void check(struct hr_interval i, double most)
{
    if (isnan(i.value))
        return;
    if (!(i.value >= 0 && i.value <= most))
        abort();
    if (!isnan(i.low) && !(i.low <= i.value && i.value <= i.high))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr_stalls *s = NULL;
    struct hr_error error = {0};
    struct hr_stalls *part;
    /* hr_stalls_analyse without the model, which is slow. */
    int r = hr__stalls_read_record(&part, (const char *)data, size, "input", &error);
    if (!r)
        r = hr__stalls_join(&s, &part, 1, "record", &error);
    hr_stalls_destroy(&part);
    if (!r)
        r = hr__stalls_derive(s, &error);
    if (r) {
        if (!error.message[0])
            abort();
        hr_stalls_destroy(&s);
        return 0;
    }
    struct hr_stalls_summary m = {.size = sizeof m};
    if (hr_stalls_get_summary(s, &m, NULL))
        abort();
    for (int i = 0; i < 4; i++)
        check(m.share[i], 1);
    for (int i = 0; i < 3; i++)
        check(m.warm_share[i], 1);
    for (int p = 0; p < HR_STALLS_PHASES; p++)
        check(m.rate[p], INFINITY);
    if (!*hr_stalls_sentence(s))
        abort();
    hr_stalls_destroy(&s);
    return 0;
}
