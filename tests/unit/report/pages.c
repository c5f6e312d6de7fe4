/* Writes the pages of the fixtures into a folder, for test_browser.py to open. */
#include "../test.h"

#include "../memory/report/memory_fixture.h"
#include "../stalls/report/fixture.h"

#include <headrace/plan.h>
#include <headrace/replay.h>
#include <stdio.h>

static int write_memory(const char *folder, const char *name, const struct memory_fixture *fixtures,
                        size_t count)
{
    struct hr_memory *memories[2] = {NULL, NULL};
    struct hr_error error = {0};
    char path[4096];
    for (size_t i = 0; i < count; i++)
        memories[i] = memory_fixture_open(&fixtures[i]);
    snprintf(path, sizeof path, "%s/%s.html", folder, name);
    int code = hr_memory_write_page((const struct hr_memory *const *)memories, count, path, &error);
    if (code)
        fprintf(stderr, "%s\n", error.message);
    for (size_t i = 0; i < count; i++)
        hr_memory_destroy(&memories[i]);
    return code;
}

static int write_memories(const char *folder)
{
    static const struct memory_fixture sides[] = {
        {.name = "a.hrm", .batch = 64, .iterations = 12, .odd = 7, .with_relu_kept = 1},
        {.name = "b.hrm", .batch = 16, .iterations = 12, .odd = -1}};
    static const struct memory_fixture gpu = {
        .name = "c.hrm", .batch = 64, .iterations = 12, .odd = -1, .device = 1, .refuses = 1};
    static const struct memory_fixture hostile = {
        .name = "d.hrm", .batch = 64, .iterations = 12, .odd = 7, .is_hostile = 1};
    static const struct memory_fixture little = {
        .name = "e.hrm", .batch = 64, .iterations = 1, .odd = -1};
    int code = write_memory(folder, "memory-sides", sides, 2) ||
               write_memory(folder, "memory-gpu", &gpu, 1) ||
               write_memory(folder, "memory-hostile", &hostile, 1) ||
               write_memory(folder, "memory-little", &little, 1);
    memory_fixture_clean();
    return code;
}

/* A plan of two stages; the names in its profile are hostile. */
static int write_plan(const char *folder)
{
    static const char profile[] =
        "{\"headrace_pipeline_profile\": 1, \"name\": \"</script><script>alert(1)</script>\","
        " \"microbatches\": [1], \"layers\": [{\"name\": \"<script>alert(2)</script>\","
        " \"repeat\": 4, \"forward_s\": [1], \"backward_s\": [2], \"weight_bytes\": 1,"
        " \"held_bytes\": [1], \"output_bytes\": [1]}]}";
    struct hr_plan_options options;
    struct hr_plan *plan = NULL;
    struct hr_error error = {0};
    char path[4096];
    hr_plan_options_default(&options);
    options.gpus = options.stages = 2;
    options.batch = 8;
    snprintf(path, sizeof path, "%s/plan.html", folder);
    int code = hr_plan_make(&plan, profile, strlen(profile), "profile", &options, &error);
    code = code ? code : hr_plan_write_page(plan, path, &error);
    if (code)
        fprintf(stderr, "%s\n", error.message);
    hr_plan_destroy(&plan);
    return code;
}

/* A step with a kernel whose name is hostile, and a what-if. */
static int write_replay(const char *folder)
{
    static const char trace[] =
        "{\"deviceProperties\": [{\"name\": \"</title><script>alert(1)</script>\"}],"
        " \"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\":"
        " \"cudaLaunchKernel\", \"pid\": 1, \"tid\": 1, \"ts\": 0, \"dur\": 10, \"args\":"
        " {\"correlation\": 1}}, {\"ph\": \"X\", \"cat\": \"kernel\", \"name\":"
        " \"</script><script>alert(2)</script>\", \"pid\": 0, \"tid\": 7, \"ts\": 6, \"dur\":"
        " 100, \"args\": {\"correlation\": 1, \"device\": 0, \"stream\": 7}}]}";
    const char *what_ifs[] = {"gpu x2"};
    struct hr_replay *replay = NULL;
    struct hr_error error = {0};
    char path[4096];
    snprintf(path, sizeof path, "%s/trace.json", folder);
    test_write(path, trace, sizeof trace - 1);
    const char *traces[] = {path};
    int code = hr_replay_open(&replay, traces, 1, NULL, &error);
    snprintf(path, sizeof path, "%s/replay.html", folder);
    code = code ? code : hr_replay_write_page(replay, what_ifs, 1, path, &error);
    if (code)
        fprintf(stderr, "%s\n", error.message);
    hr_replay_destroy(&replay);
    return code;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*make)(struct hr_stalls *);
    } pages[] = {{"gpu", fixture_gpu},
                 {"cpu", fixture_cpu},
                 {"warm", fixture_warm},
                 {"hostile", fixture_hostile}};
    for (size_t i = 0; argc == 2 && i < sizeof pages / sizeof *pages; i++) {
        char path[4096];
        struct hr_stalls s;
        struct hr_error error = {0};
        pages[i].make(&s);
        snprintf(path, sizeof path, "%s/%s.html", argv[1], pages[i].name);
        if (hr_stalls_write_page(&s, path, &error)) {
            fprintf(stderr, "%s\n", error.message);
            return 1;
        }
    }
    return argc != 2 || write_memories(argv[1]) || write_plan(argv[1]) || write_replay(argv[1]);
}
