/* The sentence, word for word, for runs of many kinds. */
#include "../../test.h"
#include "base/memory.h"
#include "records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void says(const struct records_plan *p, const char *sentence)
{
    struct hr_stalls *s;
    struct hr_error error;
    assert_int_equal(plan_analyse(p, &s, &error), 0);
    assert_string_equal(hr_stalls_sentence(s), sentence);
    hr_stalls_destroy(&s);
}

static void test_epochs(void **state)
{
    struct records_plan p = plan_default();
    /* 150 GB, 30 GB of memory. */
    says(&p, "Training waits 50 % of the time: 30 % for preparing samples on the CPU, 15 % for the "
             "disk, 5 % for the copy to the GPU. That holds with files from storage: of the "
             "dataset's 150 GB, 30 GB fit in memory, which leaves about 45 % of waiting by the "
             "model; with all files there, training waits 41 % of the time: 35 % for preparing "
             "samples on "
             "the CPU, 6 % for the copy to the GPU.");
    p.bytes = 2.5e9;
    says(&p, "Training waits 41 % of the time: 35 % for preparing samples on the CPU, 6 % for the "
             "copy to the GPU. That holds once the dataset's 2.5 GB are in memory; the first "
             "epoch, read from storage, waits 50 % of the time: 30 % for preparing samples "
             "on the CPU, 15 % for the disk, 5 % for the copy to the GPU.");
    p.available = 0;
    p.filesystem = "nfs4";
    says(&p,
         "Training waits 50 % of the time: 30 % for preparing samples on the CPU, 15 % for "
         "network storage, 5 % for the copy to the GPU. That holds with files from storage; with "
         "files in memory, training waits 41 % of the time: 35 % for preparing samples on the CPU, "
         "6 % for the copy to the GPU.");
    p.filesystem = "s3";
    says(&p,
         "Training waits 50 % of the time: 30 % for preparing samples on the CPU, 15 % for the "
         "network, 5 % for the copy to the GPU. That holds for every epoch, because the loader has "
         "no cache; with the dataset's 2.5 GB in one, training waits 41 % of the time: 35 % for "
         "preparing samples on the CPU, 6 % for the copy to the GPU.");
}

static void test_hardly(void **state)
{
    struct records_plan p = plan_default();
    const double even[] = {.099, .099, .0995, .1};
    memcpy(p.seconds, even, sizeof even);
    says(&p, "Training hardly waits for data (1 % of the time).");
    /* Storage only, and only in the first epoch. */
    const double disk[] = {.06, .06, .06, .1};
    memcpy(p.seconds, disk, sizeof disk);
    p.bytes = 2e10;
    says(&p, "Training hardly waits for data (0 % of the time). That holds once the dataset's 20 "
             "GB are in memory; the first epoch, read from storage, waits 40 % of the "
             "time for the disk.");
    /* No difference between the phases. */
    const double same[] = {.06, .06, .1, .1};
    memcpy(p.seconds, same, sizeof same);
    p.world = 2;
    says(&p, "Training waits 40 % of the time for preparing samples on the CPU.");
}

static void test_not_measured(void **state)
{
    struct records_plan p = plan_default();
    p.phases = 7;
    p.why[HR_STALLS_COLD] = "the files lie in memory (tmpfs).";
    says(&p, "Training waits 41 % of the time: 35 % for preparing samples on the CPU, 6 % for the "
             "copy to the GPU. That holds with files in memory. What the disk adds was not "
             "measured: the files lie in memory (tmpfs).");
    p = plan_default();
    p.verified[HR_STALLS_COLD] = 0;
    says(&p, "Training waits 41 % of the time: 35 % for preparing samples on the CPU, 6 % for the "
             "copy to the GPU. That holds with files in memory. What the disk adds could not be "
             "verified: nothing was read.");
    /* A loader as it is. */
    p = plan_default();
    p.phases = 6;
    p.kind = "other";
    p.filesystem = "";
    p.verified[HR_STALLS_WARM] = 0;
    p.why[HR_STALLS_WARM] = "which files are read is not known";
    p.why[HR_STALLS_COLD] = "which files are read is not known";
    p.why[HR_STALLS_DEVICE] = "the step failed with a batch on the device";
    says(&p, "Training waits 35 % of the time for its loader, which reads and prepares samples. "
             "Whether files were in memory could not be verified: which files are read is not "
             "known. What storage adds was not measured: which files are read is not known. The "
             "copy to the GPU counts as computing: the step failed with a batch on the device.");
}

static void test_cpu(void **state)
{
    struct records_plan p = plan_default();
    p.device = "cpu";
    p.phases = 14;
    p.bytes = 2e10;
    p.why[HR_STALLS_DEVICE] = "training runs on the CPU";
    says(&p, "Training waits 35 % of the time for preparing samples on the "
             "CPU. That holds once the dataset's 20 GB are in memory; the first epoch, read from "
             "storage, waits 45 % of the time: 30 % for preparing samples on the CPU, "
             "15 % for the disk.");
}

/* A plan whose samples take long to prepare. */
static struct records_plan slow_plan(void)
{
    struct records_plan p = plan_default();
    const double slow[] = {.05, .05, .1, .1};
    memcpy(p.seconds, slow, sizeof slow);
    p.bytes = 2e10;
    p.depths = "[{\"depth\": 4, \"bytes_per_s\": 5e9, \"reads_per_s\": 50000},"
               "{\"depth\": 64, \"bytes_per_s\": 5e9, \"reads_per_s\": 50000}]";
    p.preparation = "[{\"phase\": \"warm\", \"samples\": 64, \"cpu_s\": 0.39, \"wall_s\": 0.4},"
                    "{\"phase\": \"warm\", \"samples\": 64, \"cpu_s\": 0.4, \"wall_s\": 0.4}]";
    p.forms = "[{\"form\": \"encoded\", \"cpu_s\": 0.001, \"bytes\": 100000}]";
    return p;
}

/* The model's suggestion is made when records are analysed, and stored. */
static void test_remedy(void **state)
{
    struct records_plan p = slow_plan();
    struct hr_stalls *s, *again;
    struct hr_error error;
    assert_int_equal(plan_analyse(&p, &s, &error), 0);
    assert_ptr_equal(strstr(s->sentence, "Training waits 50 % of the time for preparing samples on "
                                         "the CPU. Headrace's loader or "),
                     s->sentence);
    assert_non_null(strstr(s->sentence, " workers would remove the wait."));
    char *text;
    size_t length;
    assert_int_equal(hr__stalls_to_json(s, &text, &length, &error), 0);
    assert_int_equal(hr__stalls_from_json(&again, text, length, "text", &error), 0);
    assert_string_equal(s->sentence, again->sentence);
    hr__free(text);
    hr_stalls_destroy(&s);
    hr_stalls_destroy(&again);

    /* The rest is the copy. */
    p = plan_default();
    assert_int_equal(plan_analyse(&p, &s, &error), 0);
    assert_string_equal(s->remedy, "");
    strcpy(s->remedy, "a faster one");
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    assert_non_null(strstr(s->sentence, ". A faster one would remove all of that but the copy."));
    hr_stalls_destroy(&s);
}

static int suggested(const struct hr_stalls *s, double stall, struct hr_stalls_suggestion found[8])
{
    struct hr_error error;
    memset(found, 0, 8 * sizeof *found);
    found->size = sizeof *found;
    int count = hr_stalls_suggest(s, stall, found, 8, &error);
    if (count < 0)
        fail_msg("%s", error.message);
    return count;
}

/* The suggestions of a result are searched for once: its file keeps texts and changes, from which
 * the same predictions follow. */
static void test_kept_suggestions(void **state)
{
    struct records_plan p = slow_plan();
    struct hr_stalls *s, *again;
    struct hr_stalls_suggestion found[8], kept[8];
    struct hr_error error;
    char *text, *at;
    size_t length;
    assert_int_equal(plan_analyse(&p, &s, &error), 0);
    int count = suggested(s, 0.02, found);
    assert_true(count > 1 && s->has_suggestions);
    assert_int_equal(s->suggestion_count, count);
    assert_int_equal(hr__stalls_to_json(s, &text, &length, &error), 0);
    assert_int_equal(hr__stalls_from_json(&again, text, length, "text", &error), 0);
    assert_int_equal(suggested(again, 0.02, kept), count);
    for (int i = 0; i < count; i++) {
        assert_string_equal(kept[i].text, found[i].text);
        assert_memory_equal(&kept[i].change, &found[i].change, sizeof found[i].change);
        assert_true(kept[i].prediction.rate == found[i].prediction.rate);
        assert_true(kept[i].prediction.low == found[i].prediction.low);
        assert_string_equal(kept[i].prediction.why, found[i].prediction.why);
    }
    assert_int_equal(suggested(again, 0.02, kept), count);
    hr_stalls_destroy(&again);

    /* Of the file, not searched again; another share of waiting is. */
    at = strstr(text, "{\"text\":\"Headrace's loader\"");
    assert_non_null(at);
    memcpy(strstr(at, "loader"), "things", 6);
    assert_int_equal(hr__stalls_from_json(&again, text, length, "text", &error), 0);
    assert_int_equal(suggested(again, 0.02, kept), count);
    assert_string_equal(kept->text, "Headrace's things");
    assert_true(suggested(again, 0.03, kept) > 0);
    assert_string_equal(kept->text, "Headrace's loader");
    hr_stalls_destroy(&again);

    /* A file of an earlier version has none: they are searched for when asked. */
    at = strstr(text, "\"suggestions\"");
    assert_non_null(at);
    memcpy(at, "\"experiments\"", 13);
    assert_int_equal(hr__stalls_from_json(&again, text, length, "text", &error), 0);
    assert_false(again->has_suggestions);
    assert_int_equal(suggested(again, 0.02, kept), count);
    assert_string_equal(kept->text, "Headrace's loader");
    assert_string_equal(again->sentence, s->sentence);
    hr__free(text);
    hr_stalls_destroy(&again);
    hr_stalls_destroy(&s);
}

/* Segments of 10 batches in turn so many seconds long with their files in memory: 0.55 s of it
 * is the step, and the interval of what they wait is 1.84 times half their difference. */
static void in_turn(struct hr_stalls *s, double even_s, double odd_s)
{
    struct hr_error error;
    for (size_t k = 0; k < s->ranks[0].segment_count; k++)
        if (s->ranks[0].segments[k].phase == HR_STALLS_WARM)
            s->ranks[0].segments[k].elapsed_s = s->ranks[0].segments[k].round % 2 ? odd_s : even_s;
    assert_int_equal(hr__stalls_derive(s, &error), 0);
}

/* No percentage where it is known to no better than +-20 points, and no remedy for what may be
 * nothing; what would settle it is said. */
static void test_knowledge(void **state)
{
    struct records_plan p = plan_default();
    struct hr_stalls *s;
    struct hr_error error;
    p.phases = 6;
    p.why[HR_STALLS_COLD] = p.why[HR_STALLS_DEVICE] = "no";
    assert_int_equal(plan_analyse(&p, &s, &error), 0);
    const char *behind =
        " That holds with files in memory. What the disk adds was not measured: no. "
        "The copy to the GPU counts as computing: no.";
    const struct {
        double even_s, odd_s;
        const char *says;
    } cases[] = {
        {1.00, 1.10,
         "Training waits 48 % of the time for preparing samples on the CPU. 8 cores would remove "
         "the wait."},
        {0.95, 1.15,
         "Training waits 47 % of the time (give or take 9) for preparing samples on the CPU. 8 "
         "cores would remove the wait."},
        {0.56, 0.70,
         "Training waits for data at most 30 % of the time, if at all. A longer run (--time) or a "
         "quieter machine would show it."},
        {0.54, 0.80,
         "Training waits for data for a share of the time that is not known yet (0 to 45 %). A "
         "longer run (--time) or a quieter machine would show it."},
        {0.54, 0.57, "Training hardly waits for data: at most 6 % of the time."},
        {0.549, 0.552, "Training hardly waits for data (0 % of the time)."},
    };
    strcpy(s->remedy, "8 cores");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char wanted[512];
        in_turn(s, cases[i].even_s, cases[i].odd_s);
        snprintf(wanted, sizeof wanted, "%s%s", cases[i].says, behind);
        assert_string_equal(s->sentence, wanted);
    }
    strcpy(s->relief, "Headrace's loader");
    s->relief_waits = 0.05;
    in_turn(s, 1.00, 1.10);
    assert_non_null(strstr(s->sentence,
                           "on the CPU. Headrace's loader would cut that to 5 %; 8 cores "
                           "would remove the wait. That"));
    *s->relief = 0;
    /* Nor is the whole of short epochs known better than their steps. */
    s->epoch_batches = 20;
    s->epoch_start_s = 0.525;
    s->epoch_start_each = true;
    in_turn(s, 0.95, 1.15);
    assert_non_null(strstr(s->sentence, "in all 58 % (give or take 7) of its time is waiting."));
    hr_stalls_destroy(&s);

    /* One round has no interval. */
    p.rounds = 1;
    assert_int_equal(plan_analyse(&p, &s, &error), 0);
    assert_ptr_equal(strstr(s->sentence, "Training waits for data for a share of the time that is "
                                         "not known yet. A longer run"),
                     s->sentence);
    hr_stalls_destroy(&s);
}

/* Of a wait that is known, a part that may be nothing is "perhaps"; parts that are not known
 * apart are named without figures. */
static void test_parts(void **state)
{
    struct records_plan p = plan_default();
    struct hr_stalls *s;
    struct hr_error error;
    p.available = 0;
    const double seconds[] = {.05, .05, .085, .1};
    memcpy(p.seconds, seconds, sizeof seconds);
    assert_int_equal(plan_analyse(&p, &s, &error), 0);
    in_turn(s, 0.80, 0.98);
    assert_ptr_equal(strstr(s->sentence, "Training waits 50 % of the time: 39 % for preparing "
                                         "samples on the CPU, perhaps 11 % for the disk."),
                     s->sentence);
    in_turn(s, 0.70, 0.98);
    assert_ptr_equal(strstr(s->sentence, "Training waits 50 % of the time for data; how much of it "
                                         "for preparing samples on the CPU, and how much for the "
                                         "disk, is not known yet."),
                     s->sentence);
    hr_stalls_destroy(&s);
}

/* Figures that contradict each other are not told. */
static void test_contradictions(void **state)
{
    struct records_plan p = plan_default();
    /* From storage 640 samples/s, of which storage alone gives 300. */
    p.depths = "[{\"depth\": 4, \"bytes_per_s\": 3e7, \"reads_per_s\": 300, "
               "\"parts\": [2.9e7, 3e7, 3e7, 3.1e7]}]";
    says(&p, "Training waits 41 % of the time: 35 % for preparing samples on the CPU, 6 % for the "
             "copy to the GPU. That holds with files in memory. What the disk adds could not be "
             "verified: training ran at 640 samples/s, faster than storage alone, which gave 300: "
             "batches prepared before were counted, or the machine was disturbed.");
    /* 60 ms more of a batch, of which next() has 1 and cores less than 10. */
    p = plan_default();
    p.phases = 6;
    p.wait = 0.01;
    struct hr_stalls *s;
    struct hr_error error;
    assert_int_equal(plan_analyse(&p, &s, &error), 0);
    for (size_t k = 0; k < s->ranks[0].segment_count; k++)
        s->ranks[0].segments[k].worker_cpu_s = 0.08;
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    assert_string_equal(s->sentence,
                        "How much of the time training waits for data is unknown, because a "
                        "batch takes 0.03 s longer with its loader than without, but is waited "
                        "for only 0.00085 s in next() and costs 0.008 s of CPU more: something "
                        "else slowed it.");
    hr_stalls_destroy(&s);
}

/* Samples without files, and samples that come over the network, have words of their own. */
static void test_no_files(void **state)
{
    struct records_plan p = plan_default();
    struct hr_stalls *s;
    struct hr_error error;
    p.phases = 7;
    p.verified[HR_STALLS_WARM] = 0;
    p.why[HR_STALLS_WARM] = p.why[HR_STALLS_COLD] = "which files are read is not known: see --data";
    assert_int_equal(plan_analyse(&p, &s, &error), 0);
    s->reads_no_files = true;
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    assert_string_equal(s->sentence,
                        "Training waits 41 % of the time: 35 % for preparing samples on "
                        "the CPU, 6 % for the copy to the GPU.");
    s->epoch_batches = 20;
    s->epoch_start_s = 0.3;
    s->epoch_start_each = true;
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    assert_non_null(strstr(s->sentence, " Besides, each epoch of 20 batches begins with 0.3 s of "
                                        "waiting for its first one: in all 50 % of its time is "
                                        "waiting."));
    s->epoch_start_each = s->reads_no_files = false;
    s->network = true;
    assert_int_equal(hr__stalls_derive(s, &error), 0);
    assert_string_equal(s->sentence,
                        "Training waits 41 % of the time: 35 % for its loader, which fetches and "
                        "prepares samples, 6 % for the copy to the GPU. The samples come over the "
                        "network: fetching them is not measured separately from preparing them.");
    hr_stalls_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs),         cmocka_unit_test(test_hardly),
        cmocka_unit_test(test_not_measured),   cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_contradictions), cmocka_unit_test(test_no_files),
        cmocka_unit_test(test_knowledge),      cmocka_unit_test(test_parts),
        cmocka_unit_test(test_remedy),         cmocka_unit_test(test_kept_suggestions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
