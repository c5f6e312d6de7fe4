/*
 * A program that knows nothing of Headrace, for the tests of the tap: allocates and frees with each
 * function, in children and in threads; PART selects the test. It checks by itself that the
 * allocator works correctly.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* More than possible; volatile, because the compiler would warn. */
static volatile size_t too_much = PTRDIFF_MAX;

/* A volatile pointer, so that the compiler cannot optimise allocations away. */
static void *volatile keep;

/* Each function once; ALLOC and FREE in the order of test_preload.c. */
static void use_each(void)
{
    void *block = malloc(100000);
    CHECK(malloc_usable_size(block) >= 100000);
    memset(block, 1, 100000);
    keep = block = realloc(block, 300000);
    CHECK(((char *)block)[99999] == 1);
    keep = block = realloc(block, 10);
    CHECK(((char *)block)[9] == 1);
    free(block);
    unsigned char *zeros = calloc(10, 20000);
    for (int i = 0; i < 200000; i++)
        CHECK(!zeros[i]);
    free(zeros);
    keep = block = reallocarray(NULL, 7, 10000);
    free(block);
    CHECK(!posix_memalign(&block, 4096, 70001) && (uintptr_t)block % 4096 == 0);
    free(block);
    CHECK(posix_memalign(&block, 3, 70001) == EINVAL);
    keep = block = aligned_alloc(128, 128 * 1024);
    CHECK((uintptr_t)block % 128 == 0);
    free(block);
    keep = block = memalign(256, 70003);
    CHECK((uintptr_t)block % 256 == 0);
    free(block);
    keep = block = valloc(70004);
    free(block);
    free(NULL);
}

static void use_refusals(void)
{
    void *block = malloc(90000);
    errno = 0;
    CHECK(!malloc(too_much) && errno == ENOMEM);
    errno = 0;
    CHECK(!calloc(too_much, 16) && errno == ENOMEM);
    errno = 0;
    keep = block;
    CHECK(!realloc(keep, too_much) && errno == ENOMEM);
    CHECK(!reallocarray(keep, too_much, 3) && errno == ENOMEM);
    memset(block, 2, 90000); /* it is still there */
    errno = 77;
    free(block);
    CHECK(errno == 77);
}

static void use_small(void)
{
    for (size_t i = 0; i < 100000; i++) {
        void *block = malloc(i % 1000);
        keep = block;
        keep = block = realloc(block, i % 777 + 1);
        free(block);
    }
}

static void *use_in_thread(void *arg)
{
    uint64_t state = (uintptr_t)arg;
    void *blocks[32] = {NULL};
    for (int i = 0; i < 2000; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        size_t k = state >> 33 & 31, bytes = 60000 + (state >> 40) % 100000;
        if (state >> 60 & 1)
            blocks[k] = realloc(blocks[k], bytes);
        else {
            free(blocks[k]);
            blocks[k] = malloc(bytes);
        }
        memset(blocks[k], (int)k, 64);
    }
    for (size_t k = 0; k < 32; k++)
        free(blocks[k]);
    return NULL;
}

static void use_threads(void)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, use_in_thread, (void *)(i + 1)));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* A child, while other threads allocate: it uses its memory and exits normally. */
static void use_fork(void)
{
    pthread_t thread;
    int status;
    void *before = malloc(80001);
    CHECK(!pthread_create(&thread, NULL, use_in_thread, (void *)9));
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (!pid) {
            free(before);
            keep = malloc(80002);
            exit(7);
        }
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    pthread_join(thread, NULL);
    free(before);
}

static void run_part(const char *program, const char *part)
{
    pid_t pid = fork();
    int status;
    if (!pid) {
        execl(program, program, part, NULL);
        _exit(9);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    if (!strcmp(part, "each"))
        use_each();
    else if (!strcmp(part, "refusals"))
        use_refusals();
    else if (!strcmp(part, "small"))
        use_small();
    else if (!strcmp(part, "threads"))
        use_threads();
    else if (!strcmp(part, "fork"))
        use_fork();
    else if (!strcmp(part, "programs")) {
        keep = malloc(123456);
        run_part(argv[0], "each");
    } else if (!strcmp(part, "killed")) {
        keep = malloc(123456);
        raise(SIGKILL);
    } else
        return 2;
    return 0;
}
