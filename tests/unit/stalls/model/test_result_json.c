/*
 * Records and stalls.json as texts: they are the same after writing and reading, and damaged texts
 * are refused with a message that names the place.
 */
#include "../../test.h"
#include "base/memory.h"
#include "records.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct records_plan full_plan(void)
{
    struct records_plan p = plan_default();
    p.world = 2;
    p.phases |= 1 << HR_STALLS_ALONE;
    p.noise[0] = 0.013;
    p.noise[3] = -0.007;
    p.why[HR_STALLS_DEVICE] = "a \\\"reason\\\" \\u001b[31m";
    p.depths = "[{\"depth\": 1, \"bytes_per_s\": 1e8, \"reads_per_s\": 1000.25,"
               "\"parts\": [9e7, 1.1e8]},"
               "{\"depth\": 4, \"bytes_per_s\": 2e8, \"reads_per_s\": 2000}]";
    p.drains = "[{\"phase\": \"warm\", \"cores\": 16, \"samples\": 90, \"elapsed_s\": 1.1,"
               " \"cpu_s\": null, \"read_bytes\": 7}]";
    p.preparation = "[{\"phase\": \"cold\", \"samples\": 64, \"cpu_s\": 0.1, \"wall_s\": 0.3,"
                    " \"read_bytes\": 123456},"
                    "{\"phase\": \"warm\", \"samples\": 64, \"cpu_s\": null, \"wall_s\": 0.3}]";
    p.forms = "[{\"form\": \"coefficients\", \"cpu_s\": 0.00016, \"bytes\": 135000}]";
    p.notes = "[\"one\", \"two\", \"one\"]";
    p.files = "[\"/tmp/caf\\u00e9\", \"/tmp/b\"]";
    return p;
}

static struct hr_stalls *full(void)
{
    struct records_plan p = full_plan();
    struct hr_stalls *s;
    struct hr_error error = {0};
    if (plan_analyse(&p, &s, &error))
        fail_msg("%s", error.message);
    return s;
}

static char *json_of(const struct hr_stalls *s)
{
    char *text;
    size_t length;
    struct hr_error error;
    assert_int_equal(hr__stalls_to_json(s, &text, &length, &error), 0);
    assert_int_equal(strlen(text), length);
    return text;
}

static struct hr_stalls *from(const char *text)
{
    struct hr_stalls *s;
    struct hr_error error;
    if (hr__stalls_from_json(&s, text, strlen(text), "a.json", &error))
        fail_msg("%s", error.message);
    return s;
}

static void same_interval(struct hr_interval a, struct hr_interval b)
{
    assert_memory_equal(&a.value, &b.value, sizeof a.value);
    assert_true((isnan(a.low) && isnan(b.low)) || a.low == b.low);
    assert_true((isnan(a.high) && isnan(b.high)) || a.high == b.high);
}

static void test_round_trip(void **state)
{
    struct hr_stalls *a = full();
    char *first = json_of(a);
    struct hr_stalls *b = from(first);
    char *second = json_of(b);
    assert_string_equal(first, second);

    assert_string_equal(a->run, b->run);
    assert_string_equal(a->command, b->command);
    assert_string_equal(a->phase_reason[HR_STALLS_DEVICE], b->phase_reason[HR_STALLS_DEVICE]);
    assert_non_null(strchr(a->phase_reason[HR_STALLS_DEVICE], 27));
    assert_int_equal(b->rank_count, 2);
    assert_int_equal(b->host_count, 1);
    assert_int_equal(b->hosts[0].form_count, 1);
    assert_int_equal(b->hosts[0].forms[0].form, HR_FORM_COEFFICIENTS);
    assert_int_equal(b->note_count, 2);
    assert_string_equal(b->notes[1], "two");
    assert_string_equal(b->files_written[0], "/tmp/caf\xc3\xa9");
    assert_int_equal(b->ranks[1].drains[0].samples, 90);
    assert_true(isnan(b->ranks[1].drains[0].cpu_s));
    assert_true(b->ranks[0].prepares[0].cold);
    for (size_t k = 0; k < a->ranks[0].segment_count; k++) {
        const struct hr__segment_record *x = &a->ranks[0].segments[k];
        const struct hr__segment_record *y = &b->ranks[0].segments[k];
        assert_true(x->elapsed_s == y->elapsed_s && x->begin_s == y->begin_s);
        assert_memory_equal(x->wait_s, y->wait_s, x->batches * sizeof *x->wait_s);
        assert_memory_equal(x->batch_s, y->batch_s, x->batches * sizeof *x->batch_s);
        assert_int_equal(x->verified, y->verified);
    }
    for (int p = 0; p < HR_STALLS_PHASES; p++)
        same_interval(a->step_s[p], b->step_s[p]);
    for (int i = 0; i < 4; i++)
        same_interval(a->summary.share[i], b->summary.share[i]);
    same_interval(a->alone_s[1], b->alone_s[1]);
    assert_string_equal(hr_stalls_sentence(a), hr_stalls_sentence(b));
    /* No control codes. */
    assert_null(strchr(hr_stalls_sentence(a), 27));
    hr__free(first);
    hr__free(second);
    hr_stalls_destroy(&a);
    hr_stalls_destroy(&b);
}

static void test_file(void **state)
{
    char path[] = "/tmp/headrace-stalls-XXXXXX";
    struct hr_error error;
    close(mkstemp(path));
    struct hr_stalls *a = full(), *b;
    assert_int_equal(hr_stalls_write(a, path, &error), 0);
    assert_int_equal(hr_stalls_read(&b, path, &error), 0);
    assert_string_equal(hr_stalls_sentence(a), hr_stalls_sentence(b));
    hr_stalls_destroy(&b);
    unlink(path);
    assert_int_equal(hr_stalls_read(&b, path, &error), -ENOENT);
    assert_null(b);
    assert_non_null(strstr(error.message, path));
    assert_int_equal(hr_stalls_read(&b, "/tmp", &error), -EISDIR);
    assert_int_equal(hr_stalls_read(&b, "/dev/null", &error), -EINVAL);
    hr_stalls_destroy(&a);

    struct hr_stalls_summary m = {.size = 3};
    a = full();
    assert_int_equal(hr_stalls_get_summary(a, &m, &error), -EINVAL);
    hr_stalls_destroy(&a);
    hr_stalls_destroy(NULL);
    hr_stalls_destroy(&a);
}

/* Merging the results of hosts gives the same as analysing all records at once. */
static void test_merge(void **state)
{
    struct records_plan p = full_plan();
    struct hr_stalls *parts[2], *whole, *merged;
    struct hr_error error;
    p.world = 4;
    p.ranks_per_host = 2;
    assert_int_equal(plan_analyse(&p, &whole, &error), 0);
    for (int h = 0; h < 2; h++) {
        char *texts[2] = {plan_record(&p, 2 * h, 1), plan_record(&p, 2 * h + 1, 1)};
        size_t lengths[2] = {strlen(texts[0]), strlen(texts[1])};
        /* In the other order. */
        assert_int_equal(
            hr_stalls_analyse(&parts[1 - h], (const char *const *)texts, lengths, 2, &error), 0);
        free(texts[0]);
        free(texts[1]);
    }
    assert_non_null(strstr(hr_stalls_sentence(parts[0]), "2 of 4 ranks"));
    const struct hr_stalls *const both[] = {parts[0], parts[1]};
    assert_int_equal(hr_stalls_merge(&merged, both, 2, &error), 0);
    char *a = json_of(whole), *b = json_of(merged);
    assert_string_equal(a, b);
    hr__free(a);
    hr__free(b);
    hr_stalls_destroy(&merged);

    const struct hr_stalls *const twice[] = {parts[0], parts[0]};
    assert_int_equal(hr_stalls_merge(&merged, twice, 2, &error), -EINVAL);
    assert_non_null(strstr(error.message, "rank 2 is there twice, in result 1 and result 2"));
    assert_null(merged);
    /* The merged results are unchanged. */
    assert_int_equal(parts[0]->rank_count, 2);
    assert_int_equal(parts[0]->ranks[1].segments[3].batches, 10);
    hr_stalls_destroy(&parts[0]);
    hr_stalls_destroy(&parts[1]);
    hr_stalls_destroy(&whole);
}

/* Returns the text with one place changed. */
static char *changed(const char *text, const char *old, const char *new)
{
    const char *at = strstr(text, old);
    if (!at)
        fail_msg("no %s", old);
    char *out = malloc(strlen(text) + strlen(new) + 1);
    size_t before = (size_t)(at - text);
    memcpy(out, text, before);
    strcpy(out + before, new);
    strcat(out, at + strlen(old));
    return out;
}

static void refused_record(const char *text, size_t length, const char *words)
{
    struct hr_stalls *s = (void *)1;
    struct hr_error error = {0};
    int r = hr_stalls_analyse(&s, &text, &length, 1, &error);
    if (r != -EINVAL && r != -ENOTSUP)
        fail_msg("%d for %s", r, words);
    assert_null(s);
    if (!strstr(error.message, words) || strncmp(error.message, "record 1", 8))
        fail_msg("\"%s\" lacks \"%s\"", error.message, words);
}

static void test_damaged_record(void **state)
{
    struct records_plan p = full_plan();
    char *good = plan_record(&p, 1, 1);
    static const struct {
        const char *old, *new, *words;
    } cases[] = {
        {"\"headrace_stalls_record\": 1", "\"headrace_stalls_record\": 2", "version 1"},
        {"\"headrace_stalls_record\": 1", "\"headrace_stalls\": 1", "is a result, not a record"},
        {"\"headrace_stalls_record\": 1", "\"x\": 1", "lacks headrace_stalls_record"},
        {"\"run\": \"run-1\"", "\"run\": \"\"", "run is missing or empty; write a text"},
        {"\"run\": \"run-1\"", "\"run\": 7", "run is a number; write a text"},
        {"\"rank\": 1,", "\"rank\": 2,", "rank is 2 of a world_size of 2"},
        {"\"rank\": 1,", "\"rank\": -1,", "rank is -1; write a number from 0 to 4095"},
        {"\"rank\": 1,", "\"rank\": 0.5,", "rank is 0.5; write a whole number"},
        {"\"rank\": 1,", "\"rank\": 1, \"rank\": 1,", "duplicate object key"},
        {"\"world_size\": 2", "\"world_size\": 5000", "world_size is 5000"},
        {"\"world_size\": 2", "\"world_size\": null", "world_size is missing"},
        {"\"ended\": \"precise\"", "\"ended\": \"never\"", "ended is \"never\"; write one of: pre"},
        {"\"cores\": 16", "\"cores\": 0", "machine.cores is 0"},
        {"\"kind\": \"torch\"", "\"kind\": \"jax\"",
         "loader.kind is \"jax\"; write one of: torch,"},
        {"\"loader\": {", "\"loader\": null, \"l\": {", "loader is missing"},
        {"\"loader\": {", "\"loader\": [], \"l\": {", "loader is an array; write an object"},
        {"\"device\": \"cuda:0\"", "\"device\": null", "training.device is missing"},
        {"\"sizes\": [100000", "\"sizes\": [-1", "dataset.sizes[0] is -1"},
        {"\"sizes\": [100000, 90000.5", "\"sizes\": [1, \"x\"", "dataset.sizes[1] is a text"},
        {"\"bytes\": 150000000000", "\"bytes\": 1e19", "dataset.bytes is 1e+19"},
        {"\"bytes\": 150000000000", "\"bytes\": 1e999", "real number overflow"},
        {"\"bytes\": 150000000000", "\"bytes\": NaN", "is not JSON: line"},
        {"\"segments\": [{\"phase\": \"device\"", "\"segments\": [{\"phase\": \"gpu\"",
         "segments[0].phase is \"gpu\""},
        {"\"segments\": [{", "\"segments\": [3, {", "segments[0] is a number; write an object"},
        {"\"alone_rank\": -1", "\"alone_rank\": 1", "segments[0].alone_rank is 1"},
        {"\"round\": 0", "\"round\": 100000", "segments[0].round is 100000"},
        {"\"batches\": 10", "\"batches\": 0", "segments[0].batches is 0"},
        {"\"batches\": 10", "\"batches\": 11", "segments[0].wait_s has 10 numbers; write 11"},
        {"\"elapsed_s\": ", "\"elapsed_s\": -", "segments[0].elapsed_s is -0."},
        {"\"verified\": null", "\"verified\": 1", "segments[0].verified is a number; write true"},
        {"\"batch_s\": [", "\"batch_s\": [true, ", "segments[0].batch_s has 11 numbers"},
        {"\"wait_s\": [5", "\"wait_s\": [-5", "segments[0].wait_s[0] is -"},
        {"\"drains\": [{\"phase\": \"warm\"", "\"drains\": [{\"phase\": \"hot\"",
         "drains[0].phase is \"hot\""},
        {"\"depth\": 4", "\"depth\": 1", "storage.depths[1].depth is 1 after 1"},
        {"\"parts\": [9e7", "\"parts\": [-9e7", "storage.depths[0].parts[0] is -90000000"},
        {"\"parts\": [9e7", "\"parts\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
         "storage.depths[0].parts has 18 elements"},
        {"\"form\": \"coefficients\"", "\"form\": \"raw\"", "headrace.forms[0].form is \"raw\""},
        {"\"assumed\": false", "\"assumed\": 1", "headrace.assumed is a number; write true or"},
        {"\"notes\": [\"one\"", "\"notes\": [1", "notes[0] is a number; write a text"},
        {"\"command\": [", "\"command\": [{}, ", "command[0] is an object; write a text"},
        {"\"host\": \"host-0\"",
         "\"host\": \"0123456789012345678901234567890123456789012345678901"
         "2345678901234\"",
         "host has 65 bytes; write at most 63"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *bad = changed(good, cases[i].old, cases[i].new);
        refused_record(bad, strlen(bad), cases[i].words);
        free(bad);
    }
    /* Truncated anywhere, it is no longer JSON. */
    for (size_t n = 0; n + 2 < strlen(good); n += 97)
        refused_record(good, n, "is not JSON");
    refused_record("[]", 2, "is not an object");
    refused_record("\xff", 1, "is not JSON");
    free(good);
}

static void refused_result(const char *text, int code, const char *words)
{
    struct hr_stalls *s = (void *)1;
    struct hr_error error = {0};
    assert_int_equal(hr__stalls_from_json(&s, text, strlen(text), "b.json", &error), code);
    assert_null(s);
    if (!strstr(error.message, words) || strncmp(error.message, "b.json", 6))
        fail_msg("\"%s\" lacks \"%s\"", error.message, words);
}

static void test_damaged_result(void **state)
{
    struct hr_stalls *s = full();
    char *good = json_of(s);
    static const struct {
        const char *old, *new, *words;
        int code;
    } cases[] = {
        {"\"headrace_stalls\": 1", "\"headrace_stalls\": 9", "b.json: headrace_stalls is 9", 1},
        {"\"headrace_stalls\": 1", "\"headrace_stalls_record\": 1", "is a record of one rank", 0},
        {"\"headrace_stalls\": 1", "\"headrace_stalls\": \"1\"", "headrace_stalls is a text", 0},
        {"\"hosts\": [", "\"hosts\": [], \"h\": [", "hosts is missing or empty", 0},
        {"\"ranks\": [\n{\"rank\":0", "\"ranks\": [\n{\"rank\":1", "ranks[1].rank is 1", 0},
        {"\"ranks\": [\n{\"rank\":0", "\"ranks\": [\n{\"rank\":2", "ranks[0].rank is 2", 0},
        {"\"rank\":0,\"local_rank\":0,\"host\":\"host-0\"",
         "\"rank\":0,\"local_rank\":0,\"host\":\"host-9\"", "ranks[0].host is none of hosts", 0},
        {"\"suggestions\": ", "\"suggestions\": 5, \"s\": ", "suggestions is a number", 0},
        {"\"suggestions\": ", "\"suggestions\": [{}], \"s\": ",
         "suggestions[0].text is missing or empty", 0},
        {"\"suggestions\": ", "\"suggestions\": [{\"text\": \"a\"}], \"s\": ",
         "suggestions[0].change is missing", 0},
        {"\"suggestions\": ",
         "\"suggestions\": [{\"text\": \"a\", \"change\": {\"loader\": \"x\"}}], \"s\": ",
         "suggestions[0].change.loader is \"x\"; write one of: same, headrace", 0},
        {"\"suggestions\": ",
         "\"suggestions\": [{\"text\": \"a\", \"change\": {\"loader\": \"same\", "
         "\"cores\": 1e9}}], \"s\": ",
         "suggestions[0].change.cores is 1000000000", 0},
        {"\"relief\": ", "\"relief\": {\"change\": \"a\", \"waits\": null}, \"r\": ",
         "waits is missing; write a number from 0 to 1", 0},
        {"\"command\": \"", "\"command\": 5, \"c\": \"", "command is not a text", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *bad = changed(good, cases[i].old, cases[i].new);
        refused_result(bad, cases[i].code ? -ENOTSUP : -EINVAL, cases[i].words);
        free(bad);
    }
    hr__free(good);
    hr_stalls_destroy(&s);
}

/* Every allocation fails once: the same error, no leak, nothing incomplete. */
static void test_no_memory(void **state)
{
    struct records_plan p = full_plan();
    struct hr_stalls *whole, *s;
    /* So large that suggestions are not searched, which takes long. */
    p.batch_size = 1 << 17;
    struct hr_error error;
    assert_int_equal(plan_analyse(&p, &whole, &error), 0);
    char *text = json_of(whole);
    uint64_t before = hr__allocated(HR__TAG_STALLS);
    int steps[4] = {0};
    for (int kind = 0; kind < 4; kind++)
        for (int n = 1, r = -ENOMEM; r; n++) {
            const struct hr_stalls *one = whole;
            char *again = NULL;
            size_t length;
            s = NULL;
            hr__alloc_fail_at((uint64_t)n, 0);
            if (kind == 0)
                r = plan_analyse(&p, &s, &error);
            else if (kind == 1)
                r = hr__stalls_from_json(&s, text, strlen(text), "c.json", &error);
            else if (kind == 2)
                r = hr_stalls_merge(&s, &one, 1, &error);
            else
                r = hr__stalls_to_json(whole, &again, &length, &error);
            hr__alloc_fail_at(0, 0);
            if (r) {
                assert_int_equal(r, -ENOMEM);
                assert_null(s);
                assert_non_null(strstr(error.message, "out of memory"));
                steps[kind]++;
            }
            hr_stalls_destroy(&s);
            hr__free(again);
            assert_int_equal(hr__allocated(HR__TAG_STALLS), before);
        }
    assert_true(steps[0] > 100 && steps[1] > 100 && steps[2] > 100 && steps[3] > 1);
    hr__free(text);
    hr_stalls_destroy(&whole);
    assert_int_equal(hr__allocated(HR__TAG_STALLS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_file),
        cmocka_unit_test(test_merge),          cmocka_unit_test(test_damaged_record),
        cmocka_unit_test(test_damaged_result), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
