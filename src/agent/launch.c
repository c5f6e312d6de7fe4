/*
 * See launch.h. Next to the socket NAME.sock lie NAME.lock, which a process holds (flock) while
 * it begins or ends an agent, and NAME.log. The directory is closed to other users, so the user
 * himself has put there whatever it contains.
 *
 * An agent that ends may remove the lock's file. So a process that gets the lock checks that the
 * file still has that name, and opens the new one otherwise.
 */
#include "agent/launch.h"

#include "agent/start.h"
#include "base/clock.h"
#include "base/error.h"

#include <headrace/agent.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define LOCK_STUCK_NS  UINT64_C(1000000000) /* a process that holds it so long is likely stuck */
#define LOCK_WAIT_NS   UINT64_C(10000000000)
#define LOCK_SLICE_NS  5000000 /* pause between two tries */
#define CONNECT_WAIT_S 2       /* for a slot in the backlog of an agent that does not accept */
#define BACKLOG        256
#define COMMAND_DEFAULT                                                                            \
    "headrace\x1f"                                                                                 \
    "agent"

/* The paths of a socket and its companions. */
struct place {
    struct sockaddr_un address;
    char directory[sizeof((struct sockaddr_un *)0)->sun_path];
    char lock[sizeof((struct sockaddr_un *)0)->sun_path + 8];
    char log[sizeof((struct sockaddr_un *)0)->sun_path + 8];
    int is_default; /* the directory is Headrace's own */
};

static int is_own_directory(const char *path)
{
    struct stat st;
    return path && *path == '/' && !stat(path, &st) && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid();
}

size_t hr_agent_default_socket(char *buffer, size_t capacity)
{
    const char *named = getenv("HEADRACE_AGENT"), *runtime = getenv("XDG_RUNTIME_DIR");
    int length;
    if (named && *named)
        length = snprintf(buffer, capacity, "%s", named);
    else if (is_own_directory(runtime))
        length = snprintf(buffer, capacity, "%s/headrace/agent.sock", runtime);
    else
        length = snprintf(buffer, capacity, "/tmp/headrace-%u/agent.sock", (unsigned)geteuid());
    return length < 0 ? 0 : (size_t)length;
}

static int is_named_by_environment(void)
{
    const char *named = getenv("HEADRACE_AGENT");
    return named && *named;
}

static int find_place(struct place *out, const char *path, struct hr_error *error)
{
    char *where = out->address.sun_path;
    size_t room = sizeof out->address.sun_path;
    int is_given = path && *path;
    *out = (struct place){.address.sun_family = AF_UNIX,
                          .is_default = !is_given && !is_named_by_environment()};
    size_t length =
        is_given ? (size_t)snprintf(where, room, "%s", path) : hr_agent_default_socket(where, room);
    if (length >= room)
        return hr__fail(error, -ENAMETOOLONG,
                        "the path of the agent's socket, %.300s..., has %zu bytes: a socket's may "
                        "have %zu; give a shorter one (HEADRACE_AGENT names it)",
                        where, length, room - 1);
    const char *slash = strrchr(where, '/');
    size_t before = slash ? (size_t)(slash - where) : 0;
    /* "/x" lies in "/", "x" in the working directory */
    if (slash)
        memcpy(out->directory, where, before ? before : 1);
    else
        strcpy(out->directory, ".");
    size_t stem = length > 5 && !strcmp(where + length - 5, ".sock") ? length - 5 : length;
    snprintf(out->lock, sizeof out->lock, "%.*s.lock", (int)stem, where);
    snprintf(out->log, sizeof out->log, "%.*s.log", (int)stem, where);
    return 0;
}

size_t hr__launch_log(char *buffer, size_t capacity)
{
    struct place place;
    int length =
        snprintf(buffer, capacity, "%s", find_place(&place, NULL, NULL) ? "agent.log" : place.log);
    return length < 0 ? 0 : (size_t)length;
}

/* Refuses a directory that other users can access. -ENOENT: there is none. */
static int check_directory(const struct place *place, struct hr_error *error)
{
    struct stat st;
    const char *dir = place->directory;
    if (lstat(dir, &st)) {
        int r = -errno;
        return hr__fail(error, r, "%s, the directory of the agent's socket: %s", dir,
                        hr__errno_text(r));
    }
    if (!S_ISDIR(st.st_mode))
        return hr__fail(error, -EACCES,
                        "%s, where the agent's socket is to be, is %s: name another path by "
                        "HEADRACE_AGENT",
                        dir, S_ISLNK(st.st_mode) ? "a link" : "no directory");
    if (st.st_uid != geteuid())
        return hr__fail(error, -EACCES,
                        "%s, the directory of the agent's socket, belongs to user %u and not to "
                        "you (%u): name a path in one of your own by HEADRACE_AGENT",
                        dir, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & 077)
        return hr__fail(error, -EACCES,
                        "%s, the directory of the agent's socket, is open to other users (mode "
                        "%03o): name a path in a directory that is yours alone (mode 700), by "
                        "HEADRACE_AGENT or in agent=",
                        dir, (unsigned)st.st_mode & 0777);
    return 0;
}

/* Makes the directory if it is missing, and checks it. */
static int make_directory(const struct place *place, struct hr_error *error)
{
    struct stat st;
    /* An agent that ends may remove the directory between the two calls, once. */
    for (int i = 0; i < 3; i++) {
        if (mkdir(place->directory, 0700) && errno != EEXIST) {
            int r = -errno;
            return hr__fail(error, r, "the directory %s for the agent's socket cannot be made: %s",
                            place->directory, hr__errno_text(r));
        }
        if (!lstat(place->directory, &st))
            break;
    }
    return check_directory(place, error);
}

/* Checks the socket's path. Returns 0: a socket of this user or root; -ENOENT, -ENOTSOCK,
 * -EACCES. */
static int check_socket(const struct place *place, struct hr_error *error)
{
    struct stat st;
    const char *path = place->address.sun_path;
    if (lstat(path, &st)) {
        int r = -errno;
        return hr__fail(error, r,
                        r == -ENOENT ? "no agent runs at %s: start one by headrace agent, "
                                       "or use agent=\"auto\" (%s)"
                                     : "the agent's socket %s: %s",
                        path, hr__errno_text(r));
    }
    if (!S_ISSOCK(st.st_mode))
        return hr__fail(error, -ENOTSOCK, "%s is not a socket: name another path for the agent's",
                        path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return hr__fail(error, -EACCES, "the agent's socket %s belongs to user %u and not to you",
                        path, (unsigned)st.st_uid);
    return 0;
}

int hr__launch_is_ours(int socket)
{
    struct ucred who;
    socklen_t length = sizeof who;
    return !getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) && length == sizeof who &&
           (who.uid == geteuid() || who.uid == 0);
}

/* Connects without checking who listens. Returns 0 or -errno. */
static int connect_to(int *out, const struct place *place)
{
    const struct timeval wait = {.tv_sec = CONNECT_WAIT_S}, none = {0};
    int r;
    *out = -1;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    do
        r = connect(fd, (const struct sockaddr *)&place->address, sizeof place->address) ? -errno
                                                                                         : 0;
    while (r == -EINTR);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
    if (r) {
        close(fd);
        return r == -EAGAIN ? -ETIMEDOUT : r;
    }
    *out = fd;
    return 0;
}

static int connect_place(int *out, const struct place *place, struct hr_error *error)
{
    const char *path = place->address.sun_path;
    *out = -1;
    int r = check_directory(place, error);
    if (!r)
        r = check_socket(place, error);
    if (r)
        return r;
    r = connect_to(out, place);
    if (r == -ECONNREFUSED)
        return hr__fail(error, r,
                        "no agent serves %s: it has ended; start one by headrace agent, or "
                        "use agent=\"auto\"",
                        path);
    if (r == -ETIMEDOUT)
        return hr__fail(
            error, r,
            "the agent at %s has accepted no connection for %d seconds: is it stopped (SIGSTOP, a "
            "debugger)?",
            path, CONNECT_WAIT_S);
    if (r)
        return hr__fail(error, r, "connecting to the agent at %s: %s", path, hr__errno_text(r));
    if (hr__launch_is_ours(*out))
        return 0;
    close(*out);
    *out = -1;
    return hr__fail(error, -EACCES, "the agent at %s belongs to another user", path);
}

int hr__launch_connect(int *out, const char *path, struct hr_error *error)
{
    struct place place;
    *out = -1;
    int r = find_place(&place, path, error);
    return r ? r : connect_place(out, &place, error);
}

/* Returns non-zero if `path` still names the open file. */
static int is_named(int file, const char *path)
{
    struct stat here, there;
    return !fstat(file, &here) && !lstat(path, &there) && here.st_ino == there.st_ino &&
           here.st_dev == there.st_dev;
}

/* Tries once to take the lock. Returns 0, or -EAGAIN: not now. */
static int try_lock(int *lock, const struct place *place, struct hr_error *error)
{
    int r = make_directory(place, error);
    if (r)
        return r;
    int file = open(place->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0 && errno == ENOENT) /* an agent that ended has removed the directory again */
        return -EAGAIN;
    if (file < 0) {
        r = -errno;
        return hr__fail(error, r, "the lock of agents, %s, cannot be opened: %s", place->lock,
                        hr__errno_text(r));
    }
    r = flock(file, LOCK_EX | LOCK_NB) ? -errno : is_named(file, place->lock) ? 0 : -EAGAIN;
    if (!r) {
        *lock = file;
        return 0;
    }
    close(file);
    return r == -EWOULDBLOCK || r == -EINTR || r == -EAGAIN
               ? -EAGAIN
               : hr__fail(error, r, "locking %s: %s", place->lock, hr__errno_text(r));
}

/*
 * Waits for the lock. With `out`, once the lock's owner seems stuck, a connection will do: returns
 * 1 without the lock. Not earlier: the owner may still fail to start the agent for its socket.
 */
static int wait_lock(int *lock, int *out, const struct place *place, struct hr_error *error)
{
    const struct timespec slice = {.tv_nsec = LOCK_SLICE_NS};
    uint64_t begin = hr__now_ns(), waited_ns;
    *lock = -1;
    for (;;) {
        int r = try_lock(lock, place, error);
        if (r != -EAGAIN)
            return r;
        waited_ns = hr__now_ns() - begin;
        if (out && waited_ns >= LOCK_STUCK_NS && !connect_place(out, place, NULL))
            return 1;
        if (waited_ns >= LOCK_WAIT_NS)
            break;
        nanosleep(&slice, NULL);
    }
    return hr__fail(error, -ETIMEDOUT,
                    "another process has held %s for more than ten seconds: is it stopped while "
                    "it starts an agent?",
                    place->lock);
}

int hr__launch_lock(int *lock, const char *path, struct hr_error *error)
{
    struct place place;
    *lock = -1;
    int r = find_place(&place, path, error);
    return r ? r : wait_lock(lock, NULL, &place, error);
}

void hr__launch_unlock(int *lock)
{
    if (*lock < 0)
        return;
    /* A child forked by another thread may share the open file: closing alone would not unlock. */
    flock(*lock, LOCK_UN);
    close(*lock);
    *lock = -1;
}

void hr__launch_clean(const char *path)
{
    struct place place;
    struct stat st;
    if (find_place(&place, path, NULL))
        return;
    if (!check_socket(&place, NULL))
        unlink(place.address.sun_path);
    if (!lstat(place.log, &st) && S_ISREG(st.st_mode) && !st.st_size)
        unlink(place.log);
    unlink(place.lock);
    if (place.is_default)
        rmdir(place.directory);
}

/* Removes a socket that no agent serves. Returns -EADDRINUSE if one serves it. */
static int clear_way(const struct place *place, struct hr_error *error)
{
    const char *path = place->address.sun_path;
    int probe, r = check_socket(place, error);
    if (r)
        return r == -ENOENT ? 0 : r;
    r = connect_to(&probe, place);
    if (probe >= 0)
        close(probe);
    if (r == -ECONNREFUSED)
        r = unlink(path) && errno != ENOENT ? -errno : 0;
    else if (!r || r == -ETIMEDOUT)
        return hr__fail(error, -EADDRINUSE,
                        "an agent serves %s already: use it, end it, or name another path", path);
    return r && r != -ENOENT ? hr__fail(error, r, "the old socket %s: %s", path, hr__errno_text(r))
                             : 0;
}

static int listen_locked(int *out, const struct place *place, struct hr_error *error)
{
    const char *path = place->address.sun_path;
    *out = -1;
    int r = clear_way(place, error);
    if (r)
        return r;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        r = -errno;
    else if (bind(fd, (const struct sockaddr *)&place->address, sizeof place->address))
        r = -errno;
    else if (chmod(path, 0600) || listen(fd, BACKLOG)) {
        r = -errno;
        unlink(path);
    }
    if (r) {
        if (fd >= 0)
            close(fd);
        return hr__fail(error, r, "the agent's socket %s cannot be made: %s", path,
                        hr__errno_text(r));
    }
    *out = fd;
    return 0;
}

int hr__launch_listen(int *out, const char *path, struct hr_error *error)
{
    struct place place;
    int lock;
    *out = -1;
    int r = find_place(&place, path, error);
    if (!r)
        r = wait_lock(&lock, NULL, &place, error);
    if (r)
        return r;
    r = listen_locked(out, &place, error);
    hr__launch_unlock(&lock);
    return r;
}

/* Listens, connects, and starts the agent, which inherits the listening socket. */
static int start_locked(int *out, const struct place *place, const char *command,
                        struct hr_error *error)
{
    int listener, log = -1;
    int r = listen_locked(&listener, place, error);
    if (r)
        return r;
    log = open(place->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log < 0) {
        r = -errno;
        hr__fail(error, r, "the agent's log %s cannot be made: %s", place->log, hr__errno_text(r));
    }
    if (!r)
        r = connect_place(out, place, error);
    if (!r) {
        const struct hr__start start = {command, listener, log, HR__LAUNCH_IDLE_MS};
        r = hr__start_detached(&start, error);
    }
    if (log >= 0)
        close(log);
    close(listener);
    if (r) {
        if (*out >= 0)
            close(*out);
        *out = -1;
        unlink(place->address.sun_path);
        unlink(place->log);
    }
    return r;
}

static const char *command_of(const char *given)
{
    const char *named = getenv("HEADRACE_AGENT_COMMAND");
    return given && *given ? given : named && *named ? named : COMMAND_DEFAULT;
}

static int is_absent(int r)
{
    return r == -ENOENT || r == -ECONNREFUSED;
}

/* Finds the default place as an absolute path, because an agent has another working directory. */
static int find_default_place(struct place *out, struct hr_error *error)
{
    char here[PATH_MAX], whole[2 * PATH_MAX];
    int r = find_place(out, NULL, error);
    if (r || *out->address.sun_path == '/')
        return r;
    if (!getcwd(here, sizeof here))
        return hr__fail(error, -errno, "HEADRACE_AGENT=%s begins at the working directory: %s",
                        out->address.sun_path, hr__errno_text(errno));
    snprintf(whole, sizeof whole, "%s/%s", here, out->address.sun_path);
    return find_place(out, whole, error);
}

int hr__launch_auto(int *out, const char *command, struct hr_error *error)
{
    struct place place;
    struct hr_error why = {0};
    int lock;
    *out = -1;
    int r = find_default_place(&place, error);
    if (r)
        return r;
    r = connect_place(out, &place, &why);
    if (!r || !is_absent(r))
        return r ? hr__fail(error, r, "%s", why.message) : 0;
    r = wait_lock(&lock, out, &place, error);
    if (r)
        return r > 0 ? 0 : r;
    r = connect_place(out, &place, &why);
    if (is_absent(r))
        r = start_locked(out, &place, command_of(command), error);
    else if (r)
        hr__fail(error, r, "%s", why.message);
    hr__launch_unlock(&lock);
    return r;
}
