/*
 * Measures the time that the tap adds to a malloc and its free: without the tap, with the tap
 * preloaded but no recording, and while recording, for blocks below and above the smallest recorded
 * size. The fastest of many rounds counts. The program runs itself again with the library
 * preloaded.
 *
 * Usage: bench_tap LIBRARY. Prints one line of JSON: ns of a pair.
 */
#include <headrace/memory.h>
#include <headrace/tap.h>

#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 60
#define SMALL  64
#define LARGE  100000

/* Called through volatile pointers, so that the compiler cannot optimise pairs away. */
static void *(*volatile take)(size_t) = malloc;
static void (*volatile give)(void *) = free;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Returns the ns of a pair: 16 blocks are allocated, then freed. */
static double measure(size_t bytes)
{
    enum { BLOCKS = 16, TIMES = 500 };
    void *blocks[BLOCKS];
    double best = 1e30;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = now_ns();
        for (int i = 0; i < TIMES; i++) {
            for (int k = 0; k < BLOCKS; k++)
                blocks[k] = take(bytes);
            for (int k = 0; k < BLOCKS; k++)
                give(blocks[k]);
        }
        double ns = (now_ns() - begin) / (BLOCKS * TIMES);
        best = ns < best ? ns : best;
    }
    return best;
}

static void print(const char *what, int is_last)
{
    /* Live blocks of both sizes, as in a program that has run for a while. */
    static void *others[2000];
    for (int i = 0; i < 2000; i++)
        others[i] = malloc(i % 2 ? SMALL : LARGE);
    double small = measure(SMALL), large = measure(LARGE);
    printf("\"%s\": {\"below\": %.1f, \"above\": %.1f}%s", what, small, large, is_last ? "" : ", ");
    fflush(stdout);
    for (int i = 0; i < 2000; i++)
        free(others[i]);
}

static void allocated(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    hr_memory_record(
        arg, &(struct hr_memory_event){
                 .address = address, .bytes = bytes, .kind = HR_MEMORY_ALLOC, .device = device});
}

static void freed(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    hr_memory_record(
        arg, &(struct hr_memory_event){
                 .address = address, .bytes = bytes, .kind = HR_MEMORY_FREE, .device = device});
}

static void failed(void *arg, uint64_t bytes, uint8_t device)
{
    (void)arg, (void)bytes, (void)device;
}

/* Runs with the library preloaded. */
static int measure_tapped(void)
{
    struct hr_memory_recorder *recorder = NULL;
    struct hr_error error = {0};
    char path[] = "/tmp/headrace-bench-tap-XXXXXX";
    int (*begin)(const struct hr_tap *) =
        (int (*)(const struct hr_tap *))dlsym(RTLD_DEFAULT, "hr_tap_begin");
    void (*end)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "hr_tap_end");
    int fd = mkstemp(path);
    if (fd < 0 || !begin || !end)
        return fprintf(stderr, "the library is not preloaded\n"), 3;
    close(fd);
    print("idle", 0);
    if (hr_memory_recorder_create(&recorder, path, NULL, &error))
        return fprintf(stderr, "%s\n", error.message), 3;
    int code = begin(&(struct hr_tap){.version = HR_TAP_VERSION,
                                      .arg = recorder,
                                      .allocated = allocated,
                                      .freed = freed,
                                      .failed = failed});
    if (!code) {
        print("recording", 1);
        end();
    }
    hr_memory_recorder_destroy(&recorder);
    unlink(path);
    return code ? 3 : 0;
}

int main(int argc, char **argv)
{
    int status = 0;
    /* Otherwise glibc returns large blocks to the kernel each time, which takes microseconds. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    if (argc == 3 && !strcmp(argv[2], "tapped"))
        return measure_tapped();
    if (argc != 2)
        return fprintf(stderr, "usage: bench_tap LIBRARY\n"), 2;
    printf("{");
    print("without", 0);
    pid_t pid = fork();
    if (!pid) {
        setenv("LD_PRELOAD", argv[1], 1);
        execl("/proc/self/exe", argv[0], argv[1], "tapped", NULL);
        _exit(9);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
        return 3;
    printf("}\n");
    return 0;
}
