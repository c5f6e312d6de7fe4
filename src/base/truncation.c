/*
 * The handler of SIGBUS; see truncation.h. It takes no lock: the guarded mappings are a table of
 * pairs of addresses. An entry is written by the thread that took it, and the handler believes
 * a pair only where its end was the same before and after its beginning was read. The mapping that
 * a fault was in cannot end meanwhile, because the thread that faulted uses it.
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
static _Atomic int used;           /* entries behind it were never taken */
static _Atomic pid_t installed_by; /* the process that saw to the handler last */
static struct sigaction previous;  /* constant while ours is installed */

static uintptr_t page_bytes(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* A bare system call: a handler may interrupt any function, and to ThreadSanitizer the C
 * library's mmap is a write that races with readers. */
static int map_zeros(uintptr_t begin, uintptr_t end)
{
    long r = syscall(SYS_mmap, begin, end - begin, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return r != -1;
}

/* Non-zero where the address was in a guarded mapping, and can be read now. */
static int replace(uintptr_t at)
{
    int count = atomic_load(&used);
    for (int i = 0; i < count; i++) {
        uintptr_t end = atomic_load(&mappings[i].end);
        uintptr_t begin = atomic_load(&mappings[i].begin);
        if (at < begin || at >= end || atomic_load(&mappings[i].end) != end)
            continue;
        uintptr_t page = at / page_bytes() * page_bytes();
        /* Where the system does not let so much be mapped, the page will do. */
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
        /* The instruction faults again when this returns; what was sent is sent again. */
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

/* Once in a process: a forked child may have got another handler meanwhile, as the workers of
 * torch's DataLoader do. */
static void install(void)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK}, now;
    pid_t pid = getpid();
    if (atomic_exchange(&installed_by, pid) == pid)
        return;
    sigaction(SIGBUS, NULL, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle)
        return;
    /* First: another thread may fault as soon as the handler is there. */
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
