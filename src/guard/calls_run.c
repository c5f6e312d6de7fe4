/*
 * Starts the guard in a process, passes it on to the programs the process starts, and wraps sockets
 * that have a path. See guard.h.
 *
 * If a script starts a program with an environment of its own, the guard is added to it. Between
 * vfork and exec nothing may be allocated, so this environment is built on the stack.
 */
#include "guard/calls.h"

#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define VARIABLE         "HEADRACE_GUARD="
#define PRELOAD          "LD_PRELOAD="
#define MOST_ENVIRONMENT 4096
#define LIBRARY          "libheadrace-guard"

/* "NAME=value" as this process received them; empty: the guard is off. */
static char variable[PATH_MAX + 32], preload[2 * PATH_MAX];

__attribute__((constructor)) static void begin(void)
{
    const char *scratch = getenv("HEADRACE_GUARD"), *libraries = getenv("LD_PRELOAD");
    for (int i = 0; i < HR__GUARD_CALL_COUNT; i++)
        hr__guard_next((enum hr__guard_call)i);
    if (!scratch || !*scratch)
        return;
    if (!hr__guard_begin(scratch)) {
        static const char text[] = "libheadrace-guard: a program of a measuring run is ended, "
                                   "since the run is over and can guard no files any more\n";
        (void)!KERNEL(SYS_write, STDERR_FILENO, text, sizeof text - 1);
        _exit(70);
    }
    hr__guard_note_folder();
    snprintf(variable, sizeof variable, VARIABLE "%s", scratch);
    int length = snprintf(preload, sizeof preload, PRELOAD "%s", libraries ? libraries : "");
    if (length < 0 || (size_t)length >= sizeof preload || !strstr(preload, LIBRARY))
        preload[0] = '\0';
    if (hr__guard_trap())
        hr__guard_note_beyond("system calls that a program makes by itself (no seccomp here)");
}

/* ---- signals ---- */

/* Removes SIGSYS from a set of signals to block: a blocked trap would kill the process. */
static const sigset_t *without_trap(const sigset_t *set, sigset_t *out)
{
    if (!hr__guard_state || !set)
        return set;
    *out = *set;
    sigdelset(out, SIGSYS);
    return out;
}

EXPORT int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
    sigset_t less;
    return NEXT(sigprocmask)(how, how == SIG_UNBLOCK ? set : without_trap(set, &less), old);
}

EXPORT int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
    sigset_t less;
    return NEXT(pthread_sigmask)(how, how == SIG_UNBLOCK ? set : without_trap(set, &less), old);
}

/* ---- programs ---- */

/* An environment with the guard's variables. */
struct kept {
    char *variables[MOST_ENVIRONMENT + 3];
    char libraries[3 * PATH_MAX];
};

/* Returns `environment`, or one in *out that has the missing variables. */
static char *const *keep(char *const *environment, struct kept *out)
{
    size_t count = 0;
    const char *there = NULL;
    int has_guard = 0;
    if (!preload[0] || !environment)
        return environment;
    for (char *const *one = environment; *one; one++) {
        if (count == MOST_ENVIRONMENT)
            return environment;
        if (!strncmp(*one, PRELOAD, strlen(PRELOAD))) {
            there = *one;
            continue;
        }
        has_guard |= !strncmp(*one, VARIABLE, strlen(VARIABLE));
        out->variables[count++] = *one;
    }
    if (has_guard && there && strstr(there, LIBRARY))
        return environment;
    if (!has_guard)
        out->variables[count++] = variable;
    int length = snprintf(out->libraries, sizeof out->libraries, "%s%s%s", preload,
                          there && !strstr(there, LIBRARY) ? ":" : "",
                          there && !strstr(there, LIBRARY) ? there + strlen(PRELOAD) : "");
    int is_whole = length > 0 && (size_t)length < sizeof out->libraries;
    out->variables[count++] = is_whole ? out->libraries : preload;
    out->variables[count] = NULL;
    return out->variables;
}

/* Returns whether libraries cannot be preloaded into a program: it is static, or runs as another
 * user. */
static int is_beyond(const char *path)
{
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    struct stat st;
    int is_elf = 0, is_dynamic = 0;
    int fd = (int)KERNEL(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    int changes_user =
        !KERNEL(SYS_fstat, fd, &st) && (((st.st_mode & S_ISUID) && st.st_uid != geteuid()) ||
                                        ((st.st_mode & S_ISGID) && st.st_gid != getegid()));
    if (pread(fd, &header, sizeof header, 0) == (ssize_t)sizeof header &&
        !memcmp(header.e_ident, ELFMAG, SELFMAG) && header.e_ident[EI_CLASS] == ELFCLASS64) {
        is_elf = 1;
        for (unsigned i = 0; i < header.e_phnum && !is_dynamic; i++) {
            off_t at = (off_t)(header.e_phoff + (uint64_t)i * sizeof segment);
            if (pread(fd, &segment, sizeof segment, at) != (ssize_t)sizeof segment)
                break;
            is_dynamic = segment.p_type == PT_INTERP;
        }
    }
    KERNEL(SYS_close, fd);
    return changes_user || (is_elf && !is_dynamic);
}

/* Returns the path of a program; records one that cannot be guarded. */
static const char *program_at(const char *path, struct hr__guard_place *place)
{
    int code = hr__guard_see(AT_FDCWD, path, 1, place);
    const char *found = code ? path : place->path;
    if (hr__guard_state && found && is_beyond(found))
        hr__guard_note_beyond(found);
    return found;
}

EXPORT int execve(const char *path, char *const arguments[], char *const environment[])
{
    struct kept kept;
    struct hr__guard_place place;
    return NEXT(execve)(program_at(path, &place), arguments, keep(environment, &kept));
}

EXPORT int execv(const char *path, char *const arguments[])
{
    return execve(path, arguments, environ);
}

EXPORT int execvpe(const char *file, char *const arguments[], char *const environment[])
{
    struct kept kept;
    return NEXT(execvpe)(file, arguments, keep(environment, &kept));
}

EXPORT int execvp(const char *file, char *const arguments[])
{
    return execvpe(file, arguments, environ);
}

EXPORT int fexecve(int descriptor, char *const arguments[], char *const environment[])
{
    struct kept kept;
    return NEXT(fexecve)(descriptor, arguments, keep(environment, &kept));
}

EXPORT int posix_spawn(pid_t *restrict pid, const char *restrict path,
                       const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *restrict attributes,
                       char *const arguments[restrict], char *const environment[restrict])
{
    struct kept kept;
    struct hr__guard_place place;
    return NEXT(posix_spawn)(pid, program_at(path, &place), actions, attributes, arguments,
                             keep(environment, &kept));
}

EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const arguments[],
                        char *const environment[])
{
    struct kept kept;
    return NEXT(posix_spawnp)(pid, file, actions, attributes, arguments, keep(environment, &kept));
}

/* ---- sockets ---- */

/* Converts a socket's address to the folder where the socket really is, using a descriptor of that
 * folder because addresses must be short. Returns the descriptor; -1: the address is unchanged. */
static int place_of_socket(const struct sockaddr *address, socklen_t length,
                           struct sockaddr_un *out)
{
    struct hr__guard_path meant, parent;
    struct hr__guard_place place;
    const struct sockaddr_un *given = (const void *)address;
    char path[sizeof given->sun_path + 1] = "";
    size_t most = length > offsetof(struct sockaddr_un, sun_path)
                      ? length - offsetof(struct sockaddr_un, sun_path)
                      : 0;
    if (!hr__guard_state || !most || address->sa_family != AF_UNIX || !given->sun_path[0])
        return -1;
    memcpy(path, given->sun_path, most < sizeof path ? most : sizeof path - 1);
    if (!hr__guard_may_differ(path) || hr__guard_resolve(AT_FDCWD, path, 0, &meant) ||
        hr__guard_parent(&meant, &parent))
        return -1;
    hr__guard_locate(&parent, &place);
    if (place.kind != HR__GUARD_SCRATCH)
        return -1;
    int fd = (int)KERNEL(SYS_openat, AT_FDCWD, place.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    hr__guard_note_name(&meant);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    int wanted = snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%s", fd,
                          strrchr(meant.text, '/') + 1);
    if (wanted > 0 && (size_t)wanted < sizeof out->sun_path)
        return fd;
    KERNEL(SYS_close, fd);
    return -1;
}

#define AT_PLACE(name)                                                                             \
    struct sockaddr_un there;                                                                      \
    int saved = errno, folder = place_of_socket(address, length, &there);                          \
    errno = saved;                                                                                 \
    if (folder < 0)                                                                                \
        return NEXT(name)(descriptor, address, length);                                            \
    int code = NEXT(name)(descriptor, (const void *)&there, sizeof there);                         \
    saved = errno;                                                                                 \
    KERNEL(SYS_close, folder);                                                                     \
    errno = saved;                                                                                 \
    return code

EXPORT int bind(int descriptor, const struct sockaddr *address, socklen_t length)
{
    AT_PLACE(bind);
}

EXPORT int connect(int descriptor, const struct sockaddr *address, socklen_t length)
{
    if (hr__guard_state && address && length >= sizeof address->sa_family &&
        (address->sa_family == AF_INET || address->sa_family == AF_INET6))
        atomic_fetch_add_explicit(&hr__guard_state->connections, 1, memory_order_relaxed);
    AT_PLACE(connect);
}
