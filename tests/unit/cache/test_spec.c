/* Parsing the texts that describe caches, and the messages for invalid ones. */
#include "../test.h"

#include "cache/spec.h"

#include <headrace/form.h>

#include <errno.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)

static void test_private(void **state)
{
    const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"1", 1},
        {"4096", 4096},
        {"4096b", 4096},
        {"64GiB", 64 * GIB},
        {" 64 GiB\t", 64 * GIB},
        {"64gib", 64 * GIB},
        {"2KB", 2000},
        {"2kib", 2048},
        {"3MB", 3000000},
        {"3MiB", 3 << 20},
        {"7GB", UINT64_C(7000000000)},
        {"2TB", UINT64_C(2000000000000)},
        {"1.5TiB", UINT64_C(1536) << 30},
        {"0.5KiB", 512},
        {"1.9999b", 1},
        {"1.0009KB", 1000},
        {"1.001kb", 1001},
        {"0.00000000093132257461547851562500000GiB", 1},
        {"0.99999999999999999999999999999999999999GiB", GIB - 1},
        {"1023.999TiB", UINT64_C(1125898807330996)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__cache_spec spec;
        struct hr_error error = {0};
        if (hr__cache_spec_parse(&spec, cases[i].text, &error))
            fail_msg("%s: %s", cases[i].text, error.message);
        if (spec.size_bytes != cases[i].bytes)
            fail_msg("%s: %llu", cases[i].text, (unsigned long long)spec.size_bytes);
        assert_int_equal(spec.share_bytes, spec.size_bytes);
        assert_string_equal(spec.name, "");
        assert_string_equal(spec.group, "");
        assert_int_equal(spec.form, HR__FORM_UNSET);
    }
}

static void test_kept(void **state)
{
    const struct {
        const char *text, *name, *group;
        uint64_t size, share;
        int form;
    } cases[] = {
        {"shm:imagenet?size=64GiB", "imagenet", "", 64 * GIB, 64 * GIB, HR__FORM_UNSET},
        {"shm:A-b_9?size=1000", "A-b_9", "", 1000, 1000, HR__FORM_UNSET},
        {"shm:x?share=0.9&size=1000", "x", "", 1000, 900, HR__FORM_UNSET},
        {"shm:x?size=1000&share=1", "x", "", 1000, 1000, HR__FORM_UNSET},
        {"shm:x?size=1000&share=1.000", "x", "", 1000, 1000, HR__FORM_UNSET},
        {"shm:x?size=1000&share=.25", "x", "", 1000, 250, HR__FORM_UNSET},
        {"shm:x?size=1000&group=ml-team", "x", "ml-team", 1000, 1000, HR__FORM_UNSET},
        {"shm:x?size=1000&form=auto", "x", "", 1000, 1000, HR_FORM_AUTO},
        {"shm:x?size=1000&form=encoded", "x", "", 1000, 1000, HR_FORM_ENCODED},
        {"shm:x?form=coefficients&size=1000", "x", "", 1000, 1000, HR_FORM_COEFFICIENTS},
        {" shm:x ? size = 2 KB & share = 0.5 & group = g & form = planes ", "x", "g", 2000, 1000,
         HR_FORM_PLANES},
        {"shm:x?size=1000&", "x", "", 1000, 1000, HR__FORM_UNSET},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__cache_spec spec;
        struct hr_error error = {0};
        if (hr__cache_spec_parse(&spec, cases[i].text, &error))
            fail_msg("%s: %s", cases[i].text, error.message);
        assert_string_equal(spec.name, cases[i].name);
        assert_string_equal(spec.group, cases[i].group);
        assert_int_equal(spec.size_bytes, cases[i].size);
        assert_int_equal(spec.share_bytes, cases[i].share);
        assert_int_equal(spec.form, cases[i].form);
    }
}

/* Each message repeats the text and says what to write. */
static void test_wrong(void **state)
{
#define LONG "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    const struct {
        const char *text, *said;
    } cases[] = {
        {"", "neither a size nor the name"},
        {"imagenet", "write 64GiB, shm:NAME?size=64GiB, or disk:"},
        {"-5", "neither a size nor"},
        {"64G", "size 64G has no unit: write 64GiB"},
        {"1.5t", "size 1.5t has no unit: write 1.5TiB"},
        {"64 GB x", "size \"64 GB x\" is none"},
        {".5GiB", "size \".5GiB\" is none"},
        {"5.GiB", "is none"},
        {"0", "a size of 0 keeps nothing"},
        {"0.4b", "a size of 0 keeps nothing"},
        {"1024TiB", "more memory than any machine has"},
        {"99999999999999999999999999", "more memory than any machine has"},
        {"64GiB?form=planes", "options are for kept ones: shm:NAME?size=64GiB&..."},
        {"shm:", "it needs a name: write shm:NAME?size=64GiB"},
        {"shm:?size=1GiB", "it needs a name"},
        {"shm:a/b?size=1GiB", "the name \"a/b\" may have letters, digits, '-' and '_' only"},
        {"shm:..?size=1GiB", "may have letters"},
        {"shm:run+1?size=1GiB", "may have letters"},
        {"shm:caf\xc3\xa9?size=1GiB", "may have letters"},
        {"shm:" LONG "?size=1GiB", "too long: write at most 63 characters"},
        {"shm:imagenet", "shm:NAME needs a size: write shm:imagenet?size=64GiB"},
        {"shm:imagenet?", "shm:NAME needs a size: write shm:imagenet?size=64GiB"},
        {"shm:imagenet?share=0.5", "shm:NAME needs a size"},
        {"shm:x?size=", "size \"\" is none"},
        {"shm:x?size=64G", "write 64GiB"},
        {"shm:x?size=1GiB&size=2GiB", "size is there twice"},
        {"shm:x?size=1GiB&share=1&share=1", "share is there twice"},
        {"shm:x?size=1GiB&group=a&group=a", "group is there twice"},
        {"shm:x?size=1GiB&form=auto&form=auto", "form is there twice"},
        {"shm:x?size=1GiB&sahre=1", "option \"sahre\" is unknown: there are size, share"},
        {"shm:x?64GiB", "\"64GiB\" is no option: they are size="},
        {"shm:x?size=1GiB&&form=auto", "\"\" is no option"},
        {"shm:x?size=1GiB&share=0", "share \"0\" must be a number above 0"},
        {"shm:x?size=1GiB&share=0.0", "share \"0.0\" must be"},
        {"shm:x?size=1GiB&share=1.0000000000000000000001", "must be a number above 0"},
        {"shm:x?size=1GiB&share=2", "must be a number above 0"},
        {"shm:x?size=1GiB&share=90%", "share \"90%\" must be"},
        {"shm:x?size=1GiB&share=", "share \"\" must be"},
        {"shm:-rf?size=1GiB", "may not begin with '-'"},
        {"shm:x?size=1GiB&share=-1", "share \"-1\" must be"},
        {"shm:x?size=1GiB&group=", "group \"\" must be the name of a Unix group"},
        {"shm:x?size=1GiB&group=" LONG, "of at most 63 bytes"},
        {"shm:x?size=1GiB&form=rgb", "form \"rgb\" does not exist: write auto, encoded, indexed, "
                                     "coefficients or planes"},
        {"shm:x?size=1GiB&form=", "form \"\" does not exist"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__cache_spec spec;
        struct hr_error error = {0};
        if (hr__cache_spec_parse(&spec, cases[i].text, &error) != -EINVAL)
            fail_msg("%s was accepted", cases[i].text);
        assert_int_equal(error.code, -EINVAL);
        if (!strstr(error.message, cases[i].said) ||
            (!strstr(cases[i].text, "\xc3") && !strstr(error.message, cases[i].text)))
            fail_msg("%s: %s", cases[i].text, error.message);
        assert_int_equal(hr__cache_spec_parse(&spec, cases[i].text, NULL), -EINVAL);
    }
}

static void test_disk(void **state)
{
    struct hr__cache_spec spec;
    struct hr__cache_tiers tiers;
    char path[HR__CACHE_PATH];
    assert_int_equal(hr__cache_spec_parse(&spec, " disk:/data/hr/?size=1TiB&share=0.5 ", NULL), 0);
    assert_string_equal(spec.path, "/data/hr");
    assert_string_equal(spec.name, "disk");
    assert_int_equal(spec.size_bytes, 1024 * GIB);
    assert_int_equal(spec.share_bytes, 512 * GIB);
    assert_int_equal(hr__cache_tiers_parse(&tiers, "disk:/d?size=1GiB&form=planes", NULL), 0);
    assert_string_equal(tiers.first.path, "/d");
    assert_int_equal(tiers.first.form, HR_FORM_PLANES);
    assert_string_equal(tiers.disk.path, "");
    assert_int_equal(hr__cache_tiers_parse(&tiers, "4GiB, disk:/d?size=1GiB", NULL), 0);
    assert_int_equal(tiers.first.size_bytes, 4 * GIB);
    assert_string_equal(tiers.first.path, "");
    assert_string_equal(tiers.disk.path, "/d");
    assert_int_equal(hr__cache_tiers_parse(
                         &tiers, "shm:a?size=2GiB&form=planes,disk:/d?size=1GiB&share=0.5", NULL),
                     0);
    assert_string_equal(tiers.first.name, "a");
    assert_int_equal(tiers.first.form, HR_FORM_PLANES);
    assert_int_equal(tiers.disk.share_bytes, GIB / 2);
    assert_int_equal(hr__cache_spec_directory(path, "disk:/data/b?x", NULL), 0);
    assert_string_equal(path, "/data/b");
    const struct {
        const char *text, *said;
    } wrong[] = {
        {"disk:/d", "disk:DIRECTORY needs a size"},
        {"disk:d?size=1GiB", "must be a directory on a disk of this machine, beginning with '/'"},
        {"disk:/?size=1GiB", "must be a directory"},
        {"disk:/d?size=1GiB&group=ml", "is its owner's only"},
        {"disk:/d?size=1GiB,4GiB", "two tiers are memory and a disk behind it"},
        {"4GiB,shm:a?size=1GiB", "two tiers are"},
        {"4GiB,memcached:a?size=1GiB", "two tiers are"},
        {"4GiB,disk:/d?size=1GiB,disk:/e?size=1GiB", "two tiers are"},
        {"4GiB,disk:/d?size=1GiB&form=planes", "a disk beside memory keeps files"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct hr_error error = {0};
        assert_int_equal(hr__cache_tiers_parse(&tiers, wrong[i].text, &error), -EINVAL);
        if (!strstr(error.message, wrong[i].said))
            fail_msg("%s: %s", wrong[i].text, error.message);
    }
    struct hr_error error;
    assert_int_equal(hr__cache_spec_parse(&spec, "4GiB,disk:/d?size=1GiB", &error), -EINVAL);
    assert_non_null(strstr(error.message, "tiers in a row are for loaders"));
}

/* Even for a long text the message has the reason. */
static void test_long(void **state)
{
    static char text[100000] = "shm:x?size=1GiB&";
    memset(text + strlen(text), 'y', sizeof text - strlen(text) - 1);
    struct hr__cache_spec spec;
    struct hr_error error = {0};
    assert_int_equal(hr__cache_spec_parse(&spec, text, &error), -EINVAL);
    assert_non_null(strstr(error.message, "is no option: they are size=, share="));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_private), cmocka_unit_test(test_kept), cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_disk),    cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
