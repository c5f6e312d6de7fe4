/*
 * The vector versions give the same bytes as the portable one, for every width and alignment, and
 * write only the vectors that the contract allows.
 */
#include "../test.h"
#include "images.h"

#include "codec/deinterleave.h"

#include <stdlib.h>
#include <string.h>

enum { WIDEST = 700, PADDED = (WIDEST + 63) / 64 * 64, GUARD = 64 };

struct planes {
    uint8_t bytes[3][PADDED + GUARD];
};

static void run(enum hr__isa isa, const uint8_t *rgb, size_t pixels, struct planes *planes)
{
    uint8_t *const plane[3] = {planes->bytes[0], planes->bytes[1], planes->bytes[2]};
    memset(planes, 0xA5, sizeof *planes);
    hr__deinterleave(isa)(rgb, plane, pixels);
}

static void versions_agree(void **state)
{
    static struct planes want, got;
    uint64_t random = 5;
    /* Exactly the readable bytes that the contract requires, so that a sanitizer detects any read
     * beyond them. */
    for (size_t pixels = 0; pixels <= WIDEST; pixels++) {
        size_t padded = (pixels + 63) / 64 * 64, shift = pixels % 7;
        uint8_t *rgb = malloc(3 * padded + shift);
        for (size_t i = 0; i < 3 * padded + shift; i++)
            rgb[i] = (uint8_t)next_random(&random);
        run(HR__ISA_PORTABLE, rgb + shift, pixels, &want);
        for (size_t i = 0; i < pixels; i++)
            for (size_t c = 0; c < 3; c++)
                assert_int_equal(want.bytes[c][i], rgb[shift + 3 * i + c]);
        for (int isa = HR__ISA_AVX2; isa <= (int)hr__isa(); isa++) {
            run((enum hr__isa)isa, rgb + shift, pixels, &got);
            for (int c = 0; c < 3; c++) {
                assert_memory_equal(got.bytes[c], want.bytes[c], pixels);
                for (size_t i = padded; i < sizeof got.bytes[c]; i++)
                    assert_int_equal(got.bytes[c][i], 0xA5);
            }
        }
        free(rgb);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(versions_agree)};
    return cmocka_run_group_tests_name("codec-deinterleave", tests, NULL, NULL);
}
