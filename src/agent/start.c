/*
 * See start.h. Starts two processes, each with CLONE_VM | CLONE_VFORK, as posix_spawn does. The
 * first only begins a session, starts the second and ends, so that the second is nobody's child.
 * Both end without SIGCHLD and only we wait for them, so a program that waits for its children
 * never sees them. They share our memory and the thread-local data of this thread, which sleeps
 * meanwhile. So they make bare system calls, and report errors in a struct of ours.
 *
 * The command will serve other jobs, too, so it must not keep what applies to the caller only:
 * its CPU affinity, priority, memory policy, soft limits, umask and working directory are reset.
 * What the kernel does not allow to be reset stays as it is.
 */
#include "agent/start.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_BYTES  (64u << 10)
#define LISTENER     3 /* in the new process; descriptors from 4 on are closed */
#define FIRST_FREE   16
#define WORDS_MAX    256
#define SIGNALS      64
#define SIGSET_BYTES 8          /* the kernel's sigset_t */
#define CORES_BYTES  (1u << 13) /* a CPU set larger than any kernel's */
#define OPEN_FILES   (1u << 16)
#define RUNS_ON_OURS __attribute__((no_sanitize("address", "thread", "undefined")))

/* The data of the new processes, prepared by the caller. */
struct launch {
    char *file;  /* absolute path of the program */
    char **argv; /* NULL-terminated; points into `words` */
    char *words;
    char **envp;
    char *stack[2];
    int null, log, listener; /* copies at FIRST_FREE and above, close-on-exec */
    unsigned limit;          /* descriptors to close, at most */
    char *all_cores;         /* CORES_BYTES, all bits set; the kernel applies the cpuset */
    int code;                /* 0, or -errno from the new processes */
};

/* Splits the command into words and adds ours. */
static int split(struct launch *l, const struct hr__start *start, struct hr_error *error)
{
    char idle[24];
    size_t count = 1;
    if (!*start->command || *start->command == '\x1f')
        return hr__fail(error, -EINVAL,
                        "the agent's command is empty: its words are separated by \\x1f");
    for (const char *c = start->command; *c; c++)
        count += *c == '\x1f';
    if (count > WORDS_MAX)
        return hr__fail(error, -EINVAL, "the agent's command has %zu words: %d at most", count,
                        WORDS_MAX);
    snprintf(idle, sizeof idle, "%d.%03d", start->idle_ms / 1000, start->idle_ms % 1000);
    size_t length = strlen(start->command);
    const char *more[4] = {"--listener", "3", "--idle", idle};
    l->words = hr__alloc(HR__TAG_AGENT, length + 64, 1);
    l->argv = hr__alloc(HR__TAG_AGENT, count + 5, sizeof *l->argv);
    if (!l->words || !l->argv)
        return hr__fail(error, -ENOMEM, "out of memory for an agent's command");
    memcpy(l->words, start->command, length);
    char *at = l->words;
    for (size_t i = 0; i < count; i++) {
        l->argv[i] = at;
        at = strchrnul(at, '\x1f');
        *at++ = 0;
    }
    for (size_t i = 0; i < 4; i++) {
        l->argv[count + i] = at;
        at = stpcpy(at, more[i]) + 1;
    }
    return 0;
}

static int is_program(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

/* Returns an absolute path, allocated with hr__alloc; NULL: see errno. */
static char *absolute(const char *path)
{
    char here[PATH_MAX];
    if (*path == '/')
        return hr__strdup(HR__TAG_AGENT, path);
    if (!getcwd(here, sizeof here))
        return NULL;
    size_t room = strlen(here) + strlen(path) + 2;
    char *whole = hr__alloc(HR__TAG_AGENT, room, 1);
    if (whole)
        snprintf(whole, room, "%s/%s", here, path);
    return whole;
}

static int take_file(struct launch *l, const char *path, struct hr_error *error)
{
    errno = ENOMEM;
    l->file = absolute(path);
    return l->file ? 0
                   : hr__fail(error, -errno, "where the agent's command %s is: %s", path,
                              hr__errno_text(errno));
}

/* Finds the program of the first word, as a shell does. */
static int find(struct launch *l, struct hr_error *error)
{
    const char *name = l->argv[0], *path = getenv("PATH");
    char file[PATH_MAX];
    if (!path || !*path)
        path = "/usr/local/bin:/usr/bin:/bin";
    if (strchr(name, '/'))
        return take_file(l, name, error);
    while (*path) {
        size_t length = strcspn(path, ":");
        /* an empty part of PATH is the working directory */
        int n = snprintf(file, sizeof file, "%.*s%s%s", (int)length, path, length ? "/" : "", name);
        if (n < (int)sizeof file && is_program(file))
            return take_file(l, file, error);
        path += length + (path[length] == ':');
    }
    return hr__fail(error, -ENOENT,
                    "there is no command %s in PATH to start an agent with: install it, or name "
                    "another by agent_command or HEADRACE_AGENT_COMMAND",
                    name);
}

/* Duplicates a file to FIRST_FREE or above: the new process assigns the lower descriptors anew. */
static int copy(int *out, int file)
{
    *out = fcntl(file, F_DUPFD_CLOEXEC, FIRST_FREE);
    return *out < 0 ? -errno : 0;
}

static int prepare(struct launch *l, const struct hr__start *start, struct hr_error *error)
{
    struct rlimit limit = {.rlim_cur = OPEN_FILES};
    int r = split(l, start, error);
    if (!r)
        r = find(l, error);
    if (r)
        return r;
    for (int i = 0; i < 2; i++) {
        l->stack[i] = hr__alloc_aligned(HR__TAG_AGENT, STACK_BYTES, 0);
        if (!l->stack[i])
            return hr__fail(error, -ENOMEM, "out of memory for starting an agent");
    }
    l->all_cores = hr__alloc(HR__TAG_AGENT, CORES_BYTES, 1);
    if (!l->all_cores)
        return hr__fail(error, -ENOMEM, "out of memory for starting an agent");
    memset(l->all_cores, 0xff, CORES_BYTES);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    r = null < 0 ? -errno : copy(&l->null, null);
    if (null >= 0)
        close(null);
    if (!r)
        r = copy(&l->log, start->log);
    if (!r)
        r = copy(&l->listener, start->listener);
    if (r)
        return hr__fail(error, r, "preparing the files of an agent: %s", hr__errno_text(r));
    getrlimit(RLIMIT_NOFILE, &limit);
    l->limit = limit.rlim_cur < OPEN_FILES ? (unsigned)limit.rlim_cur : OPEN_FILES;
    l->envp = environ;
    return 0;
}

#ifdef __GLIBC__
/* ThreadSanitizer intercepts clone and treats it as a fork with copied memory. glibc exports the
 * same function by this name, too. */
extern int __clone(int (*run)(void *), void *stack, int flags, void *arg, ...);
#else
#define __clone clone
#endif

RUNS_ON_OURS static int make_process(int (*run)(void *), char *stack, struct launch *l)
{
    return __clone(run, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK, l);
}

/* Resets all signals. The kernel's struct sigaction has at most 64 bytes, and SIG_DFL, no flags and
 * an empty mask are all zeros. */
RUNS_ON_OURS static void default_signals(void)
{
    static const char action[64] = {0};
    static const char none[SIGSET_BYTES] = {0};
    for (int i = 1; i <= SIGNALS; i++)
        syscall(SYS_rt_sigaction, i, action, NULL, SIGSET_BYTES);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, none, NULL, SIGSET_BYTES);
}

RUNS_ON_OURS static void close_others(const struct launch *l)
{
#ifdef SYS_close_range
    if (!syscall(SYS_close_range, LISTENER + 1, ~0u, 0))
        return;
#endif
    for (unsigned i = LISTENER + 1; i < l->limit; i++)
        syscall(SYS_close, i);
}

/* Raises soft limits to the hard ones: the soft ones were set for the caller. */
RUNS_ON_OURS static void raise_limits(void)
{
    static const int which[] = {RLIMIT_AS,  RLIMIT_CPU,     RLIMIT_DATA,
                                RLIMIT_RSS, RLIMIT_MEMLOCK, RLIMIT_NOFILE};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        uint64_t limit[2];
        if (syscall(SYS_prlimit64, 0, which[i], NULL, limit))
            continue;
        limit[0] = limit[1];
        syscall(SYS_prlimit64, 0, which[i], limit, NULL);
    }
}

/* Resets what applies to the caller only. Raising the priority may not be permitted. */
RUNS_ON_OURS static void leave_surroundings(const struct launch *l)
{
    static const struct sched_param normal = {0};
    syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &normal);
    syscall(SYS_setpriority, PRIO_PROCESS, 0, 0);
    syscall(SYS_sched_setaffinity, 0, CORES_BYTES, l->all_cores);
    syscall(SYS_set_mempolicy, 0 /* MPOL_DEFAULT */, NULL, 0);
    raise_limits();
    syscall(SYS_umask, 022);
    syscall(SYS_chdir, "/");
}

/* The second process: executes the command. */
RUNS_ON_OURS static int become(void *arg)
{
    struct launch *l = arg;
    const int from[4] = {l->null, l->null, l->log, l->listener};
    for (int i = 0; i < 4 && !l->code; i++)
        if (syscall(SYS_dup3, from[i], i, 0) < 0)
            l->code = -errno;
    if (!l->code) {
        close_others(l);
        default_signals();
        leave_surroundings(l);
        syscall(SYS_execve, l->file, l->argv, l->envp);
        l->code = -errno;
    }
    syscall(SYS_exit_group, 127);
    return 127;
}

/* The first process: begins a session, starts the second process, and ends. */
RUNS_ON_OURS static int detach(void *arg)
{
    struct launch *l = arg;
    syscall(SYS_setsid);
    if (make_process(become, l->stack[1], l) < 0)
        l->code = -errno;
    syscall(SYS_exit_group, 0);
    return 0;
}

static void release(struct launch *l)
{
    const int files[3] = {l->null, l->log, l->listener};
    for (int i = 0; i < 3; i++)
        if (files[i] >= 0)
            close(files[i]);
    hr__free(l->stack[0]);
    hr__free(l->stack[1]);
    hr__free(l->argv);
    hr__free(l->words);
    hr__free(l->file);
    hr__free(l->all_cores);
}

int hr__start_detached(const struct hr__start *start, struct hr_error *error)
{
    struct launch l = {.null = -1, .log = -1, .listener = -1};
    uint64_t all = UINT64_MAX, before;
    int r = prepare(&l, start, error), status;
    if (r) {
        release(&l);
        return r;
    }
    /* The other process must not run our signal handlers on our memory. So block all signals, even
     * those of the C library, which pthread_sigmask would leave unblocked. */
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, SIGSET_BYTES);
    pid_t pid = make_process(detach, l.stack[0], &l);
    if (pid < 0)
        r = -errno;
    while (pid > 0 && waitpid(pid, &status, __WCLONE) < 0 && errno == EINTR)
        ;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, SIGSET_BYTES);
    if (!r)
        r = l.code;
    if (r)
        hr__fail(error, r, "%s, which is to be the agent, could not be started: %s", l.argv[0],
                 hr__errno_text(r));
    release(&l);
    return r;
}
