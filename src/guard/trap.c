/*
 * Handles changes that bypass the wrapped functions: programs that make system calls themselves
 * (Rust's rustix does), and the C library's internal calls. A seccomp filter traps system calls
 * that change files, and the SIGSYS handler runs the guard's function instead.
 *
 * The filter recognizes the guard's own calls by their sixth argument. It allows other system calls
 * by number alone, which kernels decide from a table, so reading costs nothing. Programs inherit
 * the filter. A statically linked one has no handler and would be killed; therefore code below 4
 * GiB, where such programs usually are, is allowed (calls_run.c records them).
 */
#include "guard/calls.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/xattr.h>
#include <ucontext.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define REGISTER(n)                                                                                \
    context->uc_mcontext.gregs[(const int[]){REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8}[n]]
#define RESULT context->uc_mcontext.gregs[REG_RAX]
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define REGISTER(n)  context->uc_mcontext.regs[n]
#define RESULT       context->uc_mcontext.regs[0]
#endif

/* System calls that change what a path names. */
static const int trapped[] = {
#ifdef SYS_rename
    SYS_rename,      SYS_unlink,   SYS_rmdir,    SYS_mkdir,    SYS_link,      SYS_symlink,
    SYS_chmod,       SYS_chown,    SYS_lchown,   SYS_creat,    SYS_mknod,
#endif
#ifdef SYS_renameat
    SYS_renameat,
#endif
    SYS_renameat2,   SYS_unlinkat, SYS_mkdirat,  SYS_linkat,   SYS_symlinkat, SYS_mknodat,
    SYS_fchmodat,    SYS_fchownat, SYS_truncate, SYS_setxattr, SYS_lsetxattr, SYS_removexattr,
    SYS_lremovexattr};
/* Likewise, unless its path is NULL: then it changes a descriptor. */
#define TRAPPED_TIMES SYS_utimensat

static const char probe[] = "";
static atomic_int was_trapped;

#ifdef ARCHITECTURE

/* Runs a system call through the guard's function. */
static long call(long number, const long a[5])
{
    const char *first = (const char *)a[0], *second = (const char *)a[1];
    const char *fourth = (const char *)a[3];
    switch (number) {
#ifdef SYS_rename
    case SYS_open:
        return open(first, (int)a[1], (mode_t)a[2]);
    case SYS_creat:
        return creat(first, (mode_t)a[1]);
    case SYS_rename:
        return rename(first, second);
    case SYS_unlink:
        return unlink(first);
    case SYS_rmdir:
        return rmdir(first);
    case SYS_mkdir:
        return mkdir(first, (mode_t)a[1]);
    case SYS_link:
        return link(first, second);
    case SYS_symlink:
        return symlink(first, second);
    case SYS_chmod:
        return chmod(first, (mode_t)a[1]);
    case SYS_chown:
        return chown(first, (uid_t)a[1], (gid_t)a[2]);
    case SYS_lchown:
        return lchown(first, (uid_t)a[1], (gid_t)a[2]);
    case SYS_mknod:
        return mknod(first, (mode_t)a[1], (dev_t)a[2]);
#endif
#ifdef SYS_renameat
    case SYS_renameat:
        return renameat((int)a[0], second, (int)a[2], fourth);
#endif
    case SYS_openat:
        return openat((int)a[0], second, (int)a[2], (mode_t)a[3]);
    case SYS_renameat2:
        return renameat2((int)a[0], second, (int)a[2], fourth, (unsigned)a[4]);
    case SYS_unlinkat:
        return unlinkat((int)a[0], second, (int)a[2]);
    case SYS_mkdirat:
        return mkdirat((int)a[0], second, (mode_t)a[2]);
    case SYS_linkat:
        return linkat((int)a[0], second, (int)a[2], fourth, (int)a[4]);
    case SYS_symlinkat:
        return symlinkat(first, (int)a[1], (const char *)a[2]);
    case SYS_mknodat:
        return mknodat((int)a[0], second, (mode_t)a[2], (dev_t)a[3]);
    case SYS_fchmodat:
        return fchmodat((int)a[0], second, (mode_t)a[2], 0);
    case SYS_fchownat:
        return fchownat((int)a[0], second, (uid_t)a[2], (gid_t)a[3], (int)a[4]);
    case SYS_truncate:
        return truncate(first, a[1]);
    case TRAPPED_TIMES:
        return utimensat((int)a[0], second, (const struct timespec *)a[2], (int)a[3]);
    case SYS_setxattr:
        return setxattr(first, second, (const void *)a[2], (size_t)a[3], (int)a[4]);
    case SYS_lsetxattr:
        return lsetxattr(first, second, (const void *)a[2], (size_t)a[3], (int)a[4]);
    case SYS_removexattr:
        return removexattr(first, second);
    case SYS_lremovexattr:
        return lremovexattr(first, second);
    default:
        errno = ENOSYS;
        return -1;
    }
}

static void handle(int signal_number, siginfo_t *info, void *arg)
{
    ucontext_t *context = arg;
    int saved = errno;
    long a[5];
    (void)signal_number;
    for (int i = 0; i < 5; i++)
        a[i] = (long)REGISTER(i);
    if (info->si_syscall == SYS_mkdirat && (const char *)a[1] == probe) {
        atomic_store(&was_trapped, 1);
        RESULT = 0;
        return;
    }
    long result = call(info->si_syscall, a);
    RESULT = result < 0 ? -errno : result;
    errno = saved;
}

/* ---- the filter ---- */

#define LOAD(field)     BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)(field))
#define IF(op, k, t, f) BPF_JUMP(BPF_JMP | (op) | BPF_K, (unsigned)(k), t, f)
#define RETURN(action)  BPF_STMT(BPF_RET | BPF_K, (unsigned)(action))
#define DATA(field)     offsetof(struct seccomp_data, field)
#define HIGH(field)     (DATA(field) + 4) /* both architectures store the low half first */
#define CHANGING        (O_ACCMODE | O_CREAT | O_TRUNC)
#define COUNT(array)    (sizeof(array) / sizeof(array)[0])

/* Targets of the jumps on system call numbers. */
static const struct sock_filter tail[] = {
    RETURN(SECCOMP_RET_ALLOW),
    RETURN(SECCOMP_RET_ERRNO | ENOSYS),
    /* 2: open */
    LOAD(DATA(args[1])),
    IF(BPF_JSET, CHANGING, 4, 0),
    RETURN(SECCOMP_RET_ALLOW),
    /* 5: openat */
    LOAD(DATA(args[2])),
    IF(BPF_JSET, CHANGING, 1, 0),
    RETURN(SECCOMP_RET_ALLOW),
    /* 8: does the guard itself make the call? */
    LOAD(DATA(args[5])),
    IF(BPF_JEQ, HR__GUARD_COOKIE & 0xffffffff, 0, 3),
    LOAD(HIGH(args[5])),
    IF(BPF_JEQ, HR__GUARD_COOKIE >> 32, 0, 1),
    RETURN(SECCOMP_RET_ALLOW),
    LOAD(HIGH(instruction_pointer)),
    IF(BPF_JEQ, 0, 0, 1),
    RETURN(SECCOMP_RET_ALLOW),
    RETURN(SECCOMP_RET_TRAP),
};

/* Jumps to a place in the tail if the number is `number`; `left` more of these follow. */
static struct sock_filter when(int number, size_t left, unsigned place)
{
    return (struct sock_filter)IF(BPF_JEQ, number, (unsigned char)(left + place), 0);
}

static int install(void)
{
    struct sock_filter filter[COUNT(trapped) + COUNT(tail) + 8];
    size_t at = 0, left = COUNT(trapped) + 4;
    filter[at++] = (struct sock_filter)LOAD(DATA(arch));
    filter[at++] = (struct sock_filter)IF(BPF_JEQ, ARCHITECTURE, 1, 0);
    filter[at++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    filter[at++] = (struct sock_filter)LOAD(DATA(nr));
    for (size_t i = 0; i < COUNT(trapped); i++)
        filter[at++] = when(trapped[i], --left, 8);
    filter[at++] = when(TRAPPED_TIMES, --left, 8);
    filter[at++] = when(SYS_openat, --left, 5);
#ifdef SYS_open
    filter[at++] = when(SYS_open, --left, 2);
#else
    filter[at++] = when(SYS_openat, --left, 5);
#endif
    filter[at++] = when(SYS_openat2, --left, 1);
    memcpy(filter + at, tail, sizeof tail);
    struct sock_fprog program = {.len = (unsigned short)(at + COUNT(tail)), .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -errno;
    /* Without SPEC_ALLOW, older kernels slow down the whole process. */
    if (!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program))
        return 0;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) ? -errno : 0;
}

int hr__guard_trap(void)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSYS);
    if (sigaction(SIGSYS, &action, NULL) || NEXT(sigprocmask)(SIG_UNBLOCK, &set, NULL))
        return -errno;
    /* The filter may be inherited: then this call is trapped, else it fails. */
    syscall(SYS_mkdirat, -1, probe, 0, 0, 0, 0);
    return atomic_load(&was_trapped) ? 0 : install();
}

#else

int hr__guard_trap(void)
{
    return -ENOSYS;
}

#endif
