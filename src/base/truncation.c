/*
 * The SIGBUS handler; see truncation.h. It takes no lock. The guarded mappings are a table of
 * address pairs. Only the thread that claimed an entry writes it. The handler trusts a pair only if
 * its end was the same before and after reading its beginning. The mapping of a fault cannot be
 * removed meanwhile, because the faulting thread is using it.
 */
#include "base/truncation.h"

#include "base/round.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAPPINGS 1024

struct guarded_mapping {
    _Atomic uintptr_t begin;
    _Atomic uintptr_t end; /* 0: free; TAKEN: being filled in */
};

#define TAKEN 1

static struct guarded_mapping mappings[MAPPINGS];
static _Atomic int used;           /* entries from this index on were never used */
static _Atomic pid_t installed_by; /* the process that last checked or installed the handler */
static struct sigaction previous;  /* constant while our handler is installed */

static uintptr_t page_bytes(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* Uses a raw system call: a signal handler may interrupt any function, and ThreadSanitizer treats
 * the C library's mmap as a write that races with readers. */
static int map_zeros(uintptr_t begin, uintptr_t end)
{
    long r = syscall(SYS_mmap, begin, end - begin, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return r != -1;
}

/* Maps zeros at a fault address. Returns non-zero if a guarded mapping contains the address and it
 * can be read now. */
static int replace(uintptr_t at)
{
    int count = atomic_load(&used);
    for (int i = 0; i < count; i++) {
        uintptr_t end = atomic_load(&mappings[i].end);
        uintptr_t begin = atomic_load(&mappings[i].begin);
        if (at < begin || at >= end || atomic_load(&mappings[i].end) != end)
            continue;
        uintptr_t page = at / page_bytes() * page_bytes();
        /* If the system refuses to map that much, replace just the page. */
        return map_zeros(begin, end) || map_zeros(page, page + page_bytes());
    }
    return 0;
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    int is_fault = info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(number, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
    } else if (previous.sa_handler == SIG_DFL || is_fault) {
        /* A faulting instruction faults again after this handler returns. A signal that a process
         * sent has to be raised again. */
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigaction(number, &action, NULL);
        if (!is_fault)
            raise(number);
    }
}

static void handle(int number, siginfo_t *info, void *context)
{
    int code = errno;
    if (info->si_code != BUS_ADRERR || !replace((uintptr_t)info->si_addr))
        pass_on(number, info, context);
    errno = code;
}

/* Installs the handler once in each process. A forked child checks again, because it may have
 * installed another handler, as the workers of torch's DataLoader do. */
static void install(void)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK}, now;
    pid_t pid = getpid();
    if (atomic_exchange(&installed_by, pid) == pid)
        return;
    sigaction(SIGBUS, NULL, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle)
        return;
    /* Set `previous` first: another thread may fault as soon as the handler is installed. */
    previous = now;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

void hr__truncation_guard(void *memory, size_t bytes)
{
    install();
    for (int i = 0; i < MAPPINGS; i++) {
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&mappings[i].end, &none, TAKEN))
            continue;
        int count = atomic_load(&used);
        while (count <= i && !atomic_compare_exchange_weak(&used, &count, i + 1))
            ;
        atomic_store(&mappings[i].begin, (uintptr_t)memory);
        atomic_store(&mappings[i].end, hr__round_up((uintptr_t)memory + bytes, page_bytes()));
        return;
    }
}

void hr__truncation_unguard(const void *memory)
{
    for (int i = 0; i < atomic_load(&used); i++)
        if (atomic_load(&mappings[i].end) > TAKEN &&
            atomic_load(&mappings[i].begin) == (uintptr_t)memory) {
            atomic_store(&mappings[i].begin, 0);
            atomic_store(&mappings[i].end, 0);
            return;
        }
}
