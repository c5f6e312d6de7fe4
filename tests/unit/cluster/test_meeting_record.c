/* The records that ranks write for each other are read as written or refused; the name of a job. */
#include "../test.h"

#include "cluster/meeting.h"
#include "cluster/meeting_record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct hr__meeting_record example = {.world_size = 1024,
                                                  .host = 17,
                                                  .run = 5,
                                                  .writing = 77,
                                                  .number = UINT64_MAX,
                                                  .inputs = 0x123456789abcdef,
                                                  .agreed = 1,
                                                  .before_number = 2,
                                                  .before_inputs = 3,
                                                  .before_agreed = 4,
                                                  .place = "/run/my memcached.sock"};

/* Seals a record with unchecked numbers. */
static void seal(char out[HR__MEETING_RECORD], const char *rest)
{
    snprintf(out, HR__MEETING_RECORD, "hr1 %08" PRIx32 " %s", hr__meeting_record_check(rest), rest);
}

static void test_record(void **state)
{
    char text[HR__MEETING_RECORD];
    struct hr__meeting_record back, none = example;
    memset(&back, 0xff, sizeof back);
    assert_int_equal(hr__meeting_record_write(text, &example), 0);
    char wanted[HR__MEETING_RECORD];
    seal(wanted, "1024 17 5 77 ffffffffffffffff 123456789abcdef 1 2 3 4 "
                 "/run/my memcached.sock");
    assert_string_equal(text, wanted);
    assert_int_equal(hr__meeting_record_read(&back, text), 0);
    assert_memory_equal(&back, &example, sizeof back);
    none.host = -1;
    none.agreed = 0;
    assert_int_equal(hr__meeting_record_write(text, &none), 0);
    assert_int_equal(hr__meeting_record_read(&back, text), 0);
    assert_memory_equal(&back, &none, sizeof back);
    /* The longest possible place. */
    memset(none.place, 'x', sizeof none.place - 1);
    none.inputs = none.agreed = none.before_number = none.before_inputs = none.before_agreed =
        UINT64_MAX;
    assert_int_equal(hr__meeting_record_write(text, &none), 0);
    assert_int_equal(hr__meeting_record_read(&back, text), 0);
    assert_memory_equal(&back, &none, sizeof back);
}

static void test_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "0 0 0 0 5 5 5 5 5 5 a",
        "65537 0 0 0 5 5 5 5 5 5 a",
        "4 4097 0 0 5 5 5 5 5 5 a",
        "4 -2 0 0 5 5 5 5 5 5 a",
        "-1 0 0 0 5 5 5 5 5 5 a",
        "4 0 2147483648 0 5 5 5 5 5 5 a",
        "4 0 0 99999999999999999999 5 5 5 5 5 5 a",
        "4 0 0 0 0 5 5 5 5 5 a",
        "4 0 0 0 10000000000000000 5 5 5 5 5 a",
        "4 0 0 0 5 5 5 5 5 5 ",
        "4 0 0 0 5 5 5 5 5 5",
        "4 0 0 0 5 5 5 5 5 a",
        "4 0 0 0  5 5 5 5 5 5 a",
        "4 0 0 0 5 5 G 5 5 5 a",
        "4 0 0 0 5 5 0x5 5 5 5 a",
        "a 0 0 0 5 5 5 5 5 5 a",
        "4 0 0 0 5 5 5 5 5 5 "
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    static const char *const unsealed[] = {"", "hr1", "hr1 ", "hr1 4 0 0 0 5 5 5 5 5 5 a",
                                           "hr1 100000000 4 0 0 0 5 5 5 5 5 5 a"};
    struct hr__meeting_record record;
    char text[HR__MEETING_RECORD];
    for (size_t i = 0; i < sizeof unsealed / sizeof *unsealed; i++)
        assert_int_equal(hr__meeting_record_read(&record, unsealed[i]), -EBADMSG);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        seal(text, texts[i]);
        if (hr__meeting_record_read(&record, text) != -EBADMSG)
            fail_msg("\"%s\" was accepted", text);
    }
    seal(text, "4 0 0 0 5 5 5 5 5 5 a");
    assert_int_equal(hr__meeting_record_read(&record, text), 0);
    text[2] = '2';
    assert_int_equal(hr__meeting_record_read(&record, text), -EBADMSG);
}

/* Flips each bit of a record. */
static void test_damaged(void **state)
{
    char text[HR__MEETING_RECORD];
    struct hr__meeting_record record;
    assert_int_equal(hr__meeting_record_write(text, &example), 0);
    size_t length = strlen(text);
    for (size_t i = 0; i < 8 * length; i++) {
        text[i / 8] = (char)(text[i / 8] ^ 1 << i % 8);
        if (text[i / 8] && hr__meeting_record_read(&record, text) != -EBADMSG)
            fail_msg("\"%s\" was accepted", text);
        text[i / 8] = (char)(text[i / 8] ^ 1 << i % 8);
    }
}

static void test_inputs(void **state)
{
    char text[HR__MEETING_TEXT], other[HR__MEETING_TEXT], longest[3][9000];
    const struct hr__meeting_input inputs[] = {
        {"the seed", "7", NULL}, {"the\tlist", "a\nb\r", NULL}, {"nothing", "", NULL}};
    struct hr__meeting_value value;
    uint64_t digest = hr__meeting_inputs_write(text, inputs, 3);
    assert_string_equal(text, "the seed\t7\nthe list\ta b \nnothing\t\n");
    assert_int_equal(digest, hr__meeting_inputs_digest(text));
    assert_int_equal(hr__meeting_inputs_find(text, "the list", 8, &value), 1);
    assert_int_equal(value.value_length, 4);
    assert_memory_equal(value.value, "a b ", 4);
    assert_int_equal(hr__meeting_inputs_find(text, "nothing", 7, &value), 1);
    assert_int_equal(value.value_length, 0);
    assert_int_equal(hr__meeting_inputs_find(text, "the", 3, &value), 0);
    const char *at = "no tab\n\n\tx\nlast\ty";
    assert_int_equal(hr__meeting_inputs_next(&at, &value), 1);
    assert_int_equal(value.name_length, 0);
    assert_int_equal(hr__meeting_inputs_next(&at, &value), 1);
    assert_memory_equal(value.value, "y", 1);
    assert_int_equal(hr__meeting_inputs_next(&at, &value), 0);
    /* As many inputs as possible, as long as possible; the last byte counts. */
    struct hr__meeting_input many[HR__MEETING_INPUTS];
    for (int i = 0; i < 3; i++) {
        memset(longest[i], 'n', sizeof longest[i] - 1);
        longest[i][sizeof longest[i] - 1] = 0;
    }
    longest[2][sizeof longest[2] - 2] = 'm';
    for (int i = 0; i < HR__MEETING_INPUTS; i++)
        many[i] = (struct hr__meeting_input){longest[0], longest[1], NULL};
    digest = hr__meeting_inputs_write(text, many, HR__MEETING_INPUTS);
    assert_true(strlen(text) < HR__MEETING_TEXT);
    many[HR__MEETING_INPUTS - 1].value = longest[2];
    assert_int_not_equal(hr__meeting_inputs_write(other, many, HR__MEETING_INPUTS), digest);
    assert_int_equal(strlen(text), strlen(other));
    assert_int_equal(hr__meeting_inputs_write(text, NULL, 0), hr__meeting_inputs_digest(""));
}

static void test_keys(void **state)
{
    char a[HR__MEETING_KEY], b[HR__MEETING_KEY];
    hr__meeting_rank_key(a, "job", 65535);
    assert_true(strlen(a) <= HR__PEER_KEY);
    assert_null(strpbrk(a, " \r\n\t"));
    hr__meeting_rank_key(b, "job", 65534);
    assert_string_not_equal(a, b);
    hr__meeting_rank_key(b, "jobs", 65535);
    assert_string_not_equal(a, b);
    hr__meeting_inputs_key(a, "job", UINT64_MAX);
    assert_true(strlen(a) <= HR__PEER_KEY);
}

static const char *const variables[] = {
    "HEADRACE_JOB",  "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR",
    "MASTER_PORT",   "PMIX_NAMESPACE",      "OMPI_MCA_ess_base_jobid",    "SLURM_JOB_ID",
    "SLURM_STEP_ID", "SLURM_RESTART_COUNT"};

static void expect(const char *job)
{
    char out[HR__MEETING_JOB];
    hr__meeting_job(out, sizeof out);
    assert_string_equal(out, job);
}

static void test_job(void **state)
{
    char out[64], other[64], text[300];
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    expect("default");
    setenv("MASTER_ADDR", "node1", 1);
    setenv("MASTER_PORT", "29500", 1);
    expect("master node1 29500");
    setenv("SLURM_JOB_ID", "77", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    expect("slurm 77 0  node1 29500");
    setenv("SLURM_RESTART_COUNT", "2", 1);
    expect("slurm 77 0 2 node1 29500");
    setenv("OMPI_MCA_ess_base_jobid", "12345", 1);
    expect("openmpi 12345 node1 29500");
    setenv("PMIX_NAMESPACE", "prterun-node1-1@1", 1);
    expect("pmix prterun-node1-1@1 node1 29500");
    setenv("TORCHELASTIC_RUN_ID", "none", 1);
    setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
    expect("torchrun none node1 29500"); /* torchrun's agents count restarts separately */
    setenv("HEADRACE_JOB", "mine", 1);
    expect("HEADRACE_JOB mine");
    /* A text that is too long is still distinguished from others. */
    memset(text, 'j', sizeof text - 1);
    text[sizeof text - 1] = 0;
    setenv("HEADRACE_JOB", text, 1);
    hr__meeting_job(out, sizeof out);
    text[sizeof text - 2] = 'k';
    setenv("HEADRACE_JOB", text, 1);
    hr__meeting_job(other, sizeof other);
    assert_int_equal(strlen(out), sizeof out - 1);
    assert_string_not_equal(out, other);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_keys),    cmocka_unit_test(test_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
