/*
 * Caches in a control group with little memory: each kind grows up to the group's limit and logs
 * that once, and no process is killed; also if a kept cache takes most of the memory from the
 * beginning, and if other memory comes and goes. Needs root, to make a group.
 */
#include "../test.h"

#include "cache/cache.h"
#include "cache/capacity.h"

#include <headrace/cache.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB   (UINT64_C(1) << 20)
#define LIMIT (160 * MIB)
#define ITEMS 400 /* of 1 MiB */

static char group[400], shm[64];

/* The mount of memory groups, and the name of the file with their limit. */
struct group_memory_version {
    const char *mount, *controller, *limit;
};

static int write_file(const char *folder, const char *name, const char *text)
{
    char path[500];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = write(fd, text, strlen(text)) < 0 ? -errno : 0;
    close(fd);
    return r;
}

/* Makes a group below this process's group (version 1), or below the root (version 2). */
static int make_group(void)
{
    static const struct group_memory_version versions[] = {
        {"/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes"},
        {"/sys/fs/cgroup", NULL, "memory.max"},
    };
    char text[4096] = "", own[200], limit[32];
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return -errno;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    snprintf(limit, sizeof limit, "%d", (int)LIMIT);
    for (int i = 0; i < 2; i++) {
        const struct group_memory_version *v = &versions[i];
        if (!hr__group_path(text, v->controller, own, sizeof own))
            continue;
        /* Version 2 allows no processes in a group that has groups below it. */
        snprintf(group, sizeof group, "%s%s/headrace-test-%d", v->mount, v->controller ? own : "",
                 (int)getpid());
        if (!v->controller)
            write_file(v->mount, "cgroup.subtree_control", "+memory");
        if (!mkdir(group, 0755) && !write_file(group, v->limit, limit))
            return 0;
        rmdir(group);
    }
    group[0] = 0;
    return -ENOTSUP;
}

static int set_up(void **state)
{
    snprintf(shm, sizeof shm, "/dev/shm/headrace-group-XXXXXX");
    if (!mkdtemp(shm))
        return -1;
    setenv("HEADRACE_SHM", shm, 1);
    if (geteuid() || make_group())
        group[0] = 0;
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", shm);
    int r = system(command);
    for (int i = 0; *group && i < 100 && rmdir(group) && errno == EBUSY; i++)
        usleep(20000);
    return r;
}

/* Results for the parent. */
struct group_memory_seen {
    uint64_t admitted;
    int lines;
    char line[1024];
};

static struct group_memory_seen *seen;

static void log_line(void *arg, enum hr_log_level level, const char *message)
{
    if (!strstr(message, "stays at"))
        return;
    seen->lines++;
    snprintf(seen->line, sizeof seen->line, "%s", message);
}

/* Takes memory and writes to it, as a model's weights would be. */
static void *take(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, bytes);
    return memory;
}

/* Runs a job in a process of the group, which must exit with 0 and not be killed by the kernel. */
static void run(void (*job)(void))
{
    fflush(NULL);
    memset(seen, 0, sizeof *seen);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        if (write_file(group, "cgroup.procs", "0"))
            _exit(1);
        hr_log_set(log_line, NULL);
        job();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("killed by signal %d after %d items", WTERMSIG(status), (int)seen->admitted);
    assert_int_equal(WEXITSTATUS(status), 0);
}

static uint8_t bytes[MIB];

static void fill_private(int convert)
{
    struct hr__cache *cache;
    const struct hr__cache_options options = {.samples = ITEMS, .budget_bytes = UINT64_C(20) << 30};
    if (hr__cache_create(&cache, &options, NULL))
        _exit(2);
    for (uint64_t i = 0; i < ITEMS; i++) {
        struct hr__cache_offer offer = {
            .index = i, .bytes = bytes, .length = sizeof bytes, .convert = convert};
        seen->admitted += (uint64_t)hr__cache_offer(cache, &offer);
    }
    /* Memory that the job needs next. */
    take(16 * MIB);
    hr__cache_destroy(&cache);
}

static void final_private(void)
{
    fill_private(0);
}

static void staged_private(void)
{
    fill_private(1);
}

static struct hr_cache *open_kept(void)
{
    struct hr_cache *cache = NULL;
    struct hr_error error;
    struct hr_cache_options options;
    hr_cache_options_default(&options);
    options.spec = "shm:group?size=130MiB";
    options.identity = "numbers";
    options.items = ITEMS;
    if (hr_cache_open(&cache, &options, &error)) {
        fprintf(stderr, "%s\n", error.message);
        _exit(3);
    }
    return cache;
}

/* The job already has memory of its own, as after a restart. */
static void fill_kept(void)
{
    void *weights = take(48 * MIB);
    struct hr_cache *cache = open_kept();
    const struct hr_cache_piece piece = {bytes, sizeof bytes};
    for (int i = 0; i < ITEMS; i++)
        seen->admitted += (uint64_t)(hr_cache_put(cache, &i, sizeof i, &piece, 1) == 1);
    take(16 * MIB);
    hr_cache_close(&cache);
    munmap(weights, 48 * MIB);
}

static void check(uint64_t least, uint64_t most)
{
    if (seen->admitted < least || seen->admitted > most)
        fail_msg("%d items; %s", (int)seen->admitted, seen->line);
    assert_int_equal(seen->lines, 1);
    assert_non_null(strstr(seen->line, "/sys/fs/cgroup"));
    assert_non_null(strstr(seen->line, "kept for the job itself"));
}

static void need_group(void)
{
    if (*group)
        return;
    print_message("no control group with a memory limit can be made here\n");
    skip();
}

static void test_private(void **state)
{
    need_group();
    run(final_private);
    check(64, 128);
    run(staged_private);
    check(64, 128);
}

static void test_kept(void **state)
{
    need_group();
    run(fill_kept);
    check(20, 80);
    uint64_t before = seen->admitted;
    /* Its kept items stay charged to the group; the next run still fits beside them. */
    run(fill_kept);
    assert_in_range(seen->admitted, 0, 128 - before);
    assert_int_equal(hr_cache_drop("group", NULL, 0, NULL, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_private), cmocka_unit_test(test_kept)};
#ifdef __SANITIZE_THREAD__
    fputs("skipped: ThreadSanitizer's shadow memory does not fit into the group\n", stderr);
    return 77;
#endif
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
