/*
 * Finding and starting an agent, with a real process as a stand-in for the agent: many processes
 * race and one of them starts it, even if some are killed meanwhile; the environment of the started
 * process; sockets without an agent; and directories that other users may write to.
 */
#include "../test.h"

#include "agent/launch.h"
#include "agent/start.h"
#include "agent/wire.h"

#include <headrace/agent.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOBS 8

struct launch_place {
    char root[64];          /* of the test, 0755 */
    char facts[80];         /* folder in which stand-ins describe themselves */
    char socket[96];        /* HEADRACE_AGENT: in a directory that does not exist yet */
    char command[PATH_MAX]; /* of the stand-in */
};

static char *below(const struct launch_place *p, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", p->root, name);
    return path;
}

static int set_up(void **state)
{
    struct launch_place *p = calloc(1, sizeof *p);
    snprintf(p->root, sizeof p->root, "/tmp/headrace-test-XXXXXX");
    if (!mkdtemp(p->root) || chmod(p->root, 0755))
        return -1;
    snprintf(p->facts, sizeof p->facts, "%s/facts", p->root);
    snprintf(p->socket, sizeof p->socket, "%s/run/agent.sock", p->root);
    snprintf(p->command, sizeof p->command, "python3\x1f%s/tests/unit/agent/fake_agent.py\x1f%s",
             getenv("HEADRACE_SOURCE_ROOT"), p->facts);
    setenv("HEADRACE_AGENT", p->socket, 1);
    unsetenv("HEADRACE_AGENT_COMMAND");
    *state = p;
    return mkdir(p->facts, 0755);
}

/* Returns how many stand-ins have described themselves, and the last one's process. */
static int started(const struct launch_place *p, pid_t *pid)
{
    DIR *d = opendir(p->facts);
    int count = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char *end;
        long number = strtol(e->d_name, &end, 10);
        if (number > 0 && !strcmp(end, ".json")) {
            count++;
            *pid = (pid_t)number;
        }
    }
    closedir(d);
    return count;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

/* Ends all stand-ins, also after a failure. */
static int tear_down(void **state)
{
    struct launch_place *p = *state;
    DIR *d = opendir(p->facts);
    for (struct dirent *e; d && (e = readdir(d));) {
        long number = strtol(e->d_name, NULL, 10);
        if (number > 1)
            kill((pid_t)number, SIGKILL);
    }
    if (d)
        closedir(d);
    nftw(p->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(p);
    return 0;
}

/* Returns the process that serves a connection; 0: the connection was closed. */
static pid_t ask(int socket)
{
    char text[32] = "";
    if (send(socket, "who", 3, MSG_NOSIGNAL) < 0)
        return 0;
    struct pollfd ready = {.fd = socket, .events = POLLIN};
    if (poll(&ready, 1, 600000) != 1 || recv(socket, text, sizeof text - 1, 0) <= 0)
        return 0;
    return (pid_t)atol(text);
}

/* Asks the server to end, and waits until it has. */
static void end(int socket)
{
    char text[8];
    assert_int_equal(send(socket, "end", 3, MSG_NOSIGNAL), 3);
    while (recv(socket, text, sizeof text, 0) > 0)
        ;
    close(socket);
}

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(d);
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

static int start(const struct launch_place *p)
{
    struct hr_error error = {0};
    int fd;
    if (hr__launch_auto(&fd, p->command, &error))
        fail_msg("%s", error.message);
    return fd;
}

static void test_one_of_many_starts_it(void **state)
{
    struct launch_place *p = *state;
    pid_t *who = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t jobs[JOBS], pid = 0;
    int gate[2], fd;
    char go;
    assert_int_equal(pipe(gate), 0);
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = fork();
        if (!jobs[i]) {
            close(gate[1]);
            if (read(gate[0], &go, 1))
                _exit(1);
            if (!hr__launch_auto(&fd, p->command, NULL))
                who[i] = ask(fd);
            _exit(0);
        }
    }
    close(gate[0]);
    close(gate[1]);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(waitpid(jobs[i], NULL, 0), jobs[i]);
    assert_int_equal(started(p, &pid), 1);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(who[i], pid);
    munmap(who, 4096);
    assert_int_equal(hr__launch_connect(&fd, NULL, NULL), 0);
    assert_int_equal(ask(fd), pid);
    end(fd);
}

static void *start_in_thread(void *arg)
{
    struct launch_place *p = arg;
    int fd;
    return hr__launch_auto(&fd, p->command, NULL) ? NULL : (void *)(intptr_t)fd;
}

static void test_threads_race_too(void **state)
{
    struct launch_place *p = *state;
    pthread_t threads[JOBS];
    void *fd[JOBS];
    pid_t pid = 0;
    int before = open_files();
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, start_in_thread, p), 0);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(pthread_join(threads[i], &fd[i]), 0);
    for (int i = 0; i < JOBS; i++) {
        pid_t now = ask((int)(intptr_t)fd[i]);
        assert_int_equal(started(p, &pid), 1);
        assert_int_equal(now, pid);
    }
    for (int i = 1; i < JOBS; i++)
        close((int)(intptr_t)fd[i]);
    end((int)(intptr_t)fd[0]);
    assert_int_equal(open_files(), before);
}

static json_t *facts_of(const struct launch_place *p, pid_t pid)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%d.json", p->facts, (int)pid);
    json_t *facts = json_load_file(path, 0, NULL);
    assert_non_null(facts);
    return facts;
}

static const char *file_of(const json_t *facts, const char *number)
{
    const char *path = json_string_value(json_object_get(json_object_get(facts, "files"), number));
    return path ? path : "";
}

static json_int_t number_of(const json_t *facts, const char *name)
{
    return json_integer_value(json_object_get(facts, name));
}

/* The stand-in has a session of its own, is no child of ours, has no signal blocked or ignored, and
 * no file of ours open except the listener; and we have no additional child. */
static void test_what_it_is_like(void **state)
{
    struct launch_place *p = *state;
    struct stat st;
    sigset_t some, old;
    sigemptyset(&some);
    sigaddset(&some, SIGTERM);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &some, &old), 0);
    signal(SIGHUP, SIG_IGN);
    int inherited = open("/dev/zero", O_RDONLY), before = open_files();
    int fd = start(p);
    assert_int_equal(open_files(), before + 1);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    signal(SIGHUP, SIG_DFL);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, &some), 0);
    assert_int_equal(sigismember(&some, SIGTERM), 1);
    assert_int_equal(sigismember(&some, SIGINT), 0);
    assert_int_equal(waitpid(-1, NULL, __WALL), -1);
    assert_int_equal(errno, ECHILD);
    pid_t pid = ask(fd);
    json_t *facts = facts_of(p, pid);
    assert_int_not_equal(number_of(facts, "parent"), getpid());
    assert_int_not_equal(number_of(facts, "session"), getsid(0));
    assert_int_not_equal(number_of(facts, "session"), pid);
    assert_int_equal(strtoull(json_string_value(json_object_get(facts, "blocked")), NULL, 16), 0);
    /* Python itself ignores SIGPIPE and SIGXFSZ */
    assert_int_equal(strtoull(json_string_value(json_object_get(facts, "ignored")), NULL, 16) &
                         ~(UINT64_C(1) << (SIGPIPE - 1) | UINT64_C(1) << (SIGXFSZ - 1)),
                     0);
    assert_string_equal(json_string_value(json_object_get(facts, "directory")), "/");
    assert_string_equal(file_of(facts, "0"), "/dev/null");
    assert_string_equal(file_of(facts, "1"), "/dev/null");
    assert_string_equal(file_of(facts, "2"), below(p, "run/agent.log"));
    assert_int_equal(strncmp(file_of(facts, "3"), "socket:", 7), 0);
    /* one more: the folder that it lists */
    assert_true(json_object_size(json_object_get(facts, "files")) <= 5);
    json_t *arguments = json_object_get(facts, "arguments");
    assert_string_equal(json_string_value(json_array_get(arguments, 0)), "--listener");
    assert_string_equal(json_string_value(json_array_get(arguments, 1)), "3");
    assert_string_equal(json_string_value(json_array_get(arguments, 2)), "--idle");
    assert_string_equal(json_string_value(json_array_get(arguments, 3)), "5.000");
    json_decref(facts);
    assert_int_equal(stat(p->socket, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(stat(below(p, "run"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(below(p, "run/agent.log"), &st), 0);
    assert_true(st.st_size > 0 && (st.st_mode & 07777) == 0600);
    assert_int_equal(hr__launch_is_ours(fd), 1);
    close(inherited);
    end(fd);
}

/* With the standard files closed, new descriptors take their numbers; nothing is mixed up. */
static void test_without_standard_files(void **state)
{
    struct launch_place *p = *state;
    int status;
    pid_t job = fork();
    if (!job) {
        int fd;
        close(0);
        close(1);
        close(2);
        _exit(hr__launch_auto(&fd, p->command, NULL) ? 1 : ask(fd) > 0 ? 0 : 2);
    }
    assert_int_equal(waitpid(job, &status, 0), job);
    assert_int_equal(status, 0);
    pid_t pid = 0;
    assert_int_equal(started(p, &pid), 1);
    json_t *facts = facts_of(p, pid);
    assert_string_equal(file_of(facts, "0"), "/dev/null");
    assert_string_equal(file_of(facts, "2"), below(p, "run/agent.log"));
    assert_int_equal(strncmp(file_of(facts, "3"), "socket:", 7), 0);
    json_decref(facts);
}

static void auto_refused(const char *command, int code, const char *words)
{
    struct hr_error error = {0};
    int fd = 5, before = open_files();
    assert_int_equal(hr__launch_auto(&fd, command, &error), code);
    assert_int_equal(fd, -1);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
    assert_int_equal(open_files(), before);
}

/* A command that cannot be started is reported, and leaves only the lock file. */
static void test_no_such_command(void **state)
{
    struct launch_place *p = *state;
    auto_refused("headrace-no-such\x1f"
                 "agent",
                 -ENOENT, "no command headrace-no-such in PATH");
    auto_refused("/nonexistent/headrace", -ENOENT, "/nonexistent/headrace, which is to be");
    auto_refused("/dev/null", -EACCES, "/dev/null, which is to be");
    auto_refused("\x1f", -EINVAL, "command is empty");
    setenv("HEADRACE_AGENT_COMMAND", "headrace-neither\x1fx", 1);
    auto_refused(NULL, -ENOENT, "no command headrace-neither");
    auto_refused("", -ENOENT, "no command headrace-neither");
    assert_int_equal(access(p->socket, F_OK), -1);
    assert_int_equal(access(below(p, "run/agent.log"), F_OK), -1);
    /* words separated by the control character in the environment start it, too */
    setenv("HEADRACE_AGENT_COMMAND", p->command, 1);
    int fd;
    assert_int_equal(hr__launch_auto(&fd, NULL, NULL), 0);
    assert_true(ask(fd) > 0);
    end(fd);
}

/* The command is a path relative to the working directory, although it runs in another
 * directory. */
static void test_relative_command(void **state)
{
    struct launch_place *p = *state;
    char command[PATH_MAX + 16], here[PATH_MAX];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(symlink("/usr/bin/env", below(p, "command")), 0);
    assert_int_equal(chdir(p->root), 0);
    snprintf(command, sizeof command, "./command\x1f%s", p->command);
    int fd, r = hr__launch_auto(&fd, command, NULL);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(r, 0);
    assert_true(ask(fd) > 0);
    end(fd);
}

/* The socket of a process that listened and ended, and a file that is not a socket. */
static void test_stale_socket(void **state)
{
    struct launch_place *p = *state;
    struct hr_error error = {0};
    int fd, second, before = open_files();
    assert_int_equal(hr__launch_connect(&fd, p->socket, &error), -ENOENT);
    assert_int_equal(hr__launch_listen(&fd, p->socket, &error), 0);
    assert_int_equal(hr__launch_connect(&second, NULL, &error), 0);
    close(second);
    assert_int_equal(hr__launch_listen(&second, p->socket, &error), -EADDRINUSE);
    assert_non_null(strstr(error.message, p->socket));
    close(fd);
    assert_int_equal(hr__launch_connect(&fd, p->socket, &error), -ECONNREFUSED);
    assert_non_null(strstr(error.message, "no agent serves"));
    assert_int_equal(hr__launch_listen(&fd, p->socket, &error), 0);
    close(fd);
    fd = start(p);
    assert_true(ask(fd) > 0);
    end(fd);
    assert_int_equal(unlink(p->socket), 0);
    FILE *file = fopen(p->socket, "w");
    assert_non_null(file);
    fclose(file);
    auto_refused(p->command, -ENOTSOCK, "is not a socket");
    assert_int_equal(hr__launch_listen(&fd, p->socket, &error), -ENOTSOCK);
    assert_int_equal(access(p->socket, F_OK), 0);
    assert_int_equal(open_files(), before);
}

/* A connection in the listener's queue does not wait for ever if the agent does not accept. */
static void test_a_full_queue(void **state)
{
    struct launch_place *p = *state;
    struct hr_error error = {0};
    int listener, queued[4], count = 0, fd, r = 0;
    assert_int_equal(hr__launch_listen(&listener, NULL, NULL), 0);
    assert_int_equal(listen(listener, 1), 0);
    while (count < 4 && !(r = hr__launch_connect(&queued[count], p->socket, &error)))
        count++;
    assert_int_equal(r, -ETIMEDOUT);
    assert_non_null(strstr(error.message, "is it stopped (SIGSTOP"));
    assert_int_equal(hr__launch_listen(&fd, p->socket, &error), -EADDRINUSE);
    while (count--)
        close(queued[count]);
    close(listener);
}

/* Jobs are killed while they start an agent; the next job gets an agent. */
static void test_killed_starters(void **state)
{
    struct launch_place *p = *state;
    pid_t pid = 0;
    for (int i = 0; i < 40; i++) {
        const struct timespec moment = {.tv_nsec = i * 50000};
        pid_t job = fork();
        if (!job) {
            int fd;
            _exit(hr__launch_auto(&fd, p->command, NULL) ? 1 : 0);
        }
        nanosleep(&moment, NULL);
        kill(job, SIGKILL);
        assert_int_equal(waitpid(job, NULL, 0), job);
        int fd = start(p);
        pid = ask(fd);
        assert_true(pid > 0);
        if (i % 8 == 7)
            end(fd);
        else
            close(fd);
    }
    assert_true(started(p, &pid) >= 5);
}

/* The lock of a dead owner is free; a live owner's is waited for. */
static void test_lock(void **state)
{
    struct launch_place *p = *state;
    int lock, second, ready[2];
    char go;
    assert_int_equal(pipe(ready), 0);
    pid_t job = fork();
    if (!job) {
        if (hr__launch_lock(&lock, NULL, NULL) || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    assert_int_equal(read(ready[0], &go, 1), 1);
    pid_t other = fork();
    if (!other) {
        usleep(50000);
        kill(job, SIGKILL);
        _exit(0);
    }
    assert_int_equal(hr__launch_lock(&lock, p->socket, NULL), 0);
    assert_int_equal(waitpid(other, NULL, 0), other);
    assert_int_equal(waitpid(job, NULL, 0), job);
    /* an agent that ends removes the file: a process that waits for the old file's lock must not
     * enter */
    int old = open(below(p, "run/agent.lock"), O_RDWR);
    assert_true(old >= 0);
    assert_int_equal(flock(old, LOCK_EX | LOCK_NB), -1);
    hr__launch_clean(p->socket);
    assert_int_equal(access(below(p, "run/agent.lock"), F_OK), -1);
    assert_int_equal(hr__launch_lock(&second, NULL, NULL), 0);
    hr__launch_unlock(&lock);
    assert_int_equal(lock, -1);
    hr__launch_unlock(&lock);
    int third = open(below(p, "run/agent.lock"), O_RDWR);
    assert_int_equal(flock(third, LOCK_EX | LOCK_NB), -1);
    hr__launch_unlock(&second);
    assert_int_equal(flock(third, LOCK_EX | LOCK_NB), 0);
    close(third);
    close(old);
    close(ready[0]);
    close(ready[1]);
}

static void test_clean(void **state)
{
    struct launch_place *p = *state;
    char log[128];
    int lock, fd;
    assert_int_equal(hr__launch_log(log, sizeof log), strlen(below(p, "run/agent.log")));
    assert_string_equal(log, below(p, "run/agent.log"));
    assert_int_equal(hr__launch_listen(&fd, NULL, NULL), 0);
    close(open(log, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(hr__launch_lock(&lock, NULL, NULL), 0);
    hr__launch_clean(NULL);
    hr__launch_unlock(&lock);
    close(fd);
    /* nothing of ours is left; the directory stays, because the path was given */
    assert_int_equal(rmdir(below(p, "run")), 0);
}

static void refuse_directory(const struct launch_place *p, const char *words)
{
    struct hr_error error = {0};
    int fd;
    assert_int_equal(hr__launch_connect(&fd, NULL, &error), -EACCES);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
    /* It may be /tmp, or another directory that others need unchanged. */
    if (strstr(error.message, "chmod") || strstr(error.message, "away"))
        fail_msg("\"%s\" advises to change a directory", error.message);
    assert_int_equal(hr__launch_listen(&fd, NULL, &error), -EACCES);
    auto_refused(p->command, -EACCES, words);
}

static void test_places_of_others(void **state)
{
    struct launch_place *p = *state;
    char run[256], real[256];
    struct hr_error error = {0};
    int fd;
    snprintf(run, sizeof run, "%s", below(p, "run"));
    snprintf(real, sizeof real, "%s", below(p, "real"));
    assert_int_equal(mkdir(real, 0700), 0);
    assert_int_equal(symlink(real, run), 0);
    refuse_directory(p, "is a link");
    assert_int_equal(unlink(run), 0);
    assert_int_equal(rename(real, run), 0);
    const mode_t open_modes[] = {0701, 0710, 0770, 0777, 01777};
    for (size_t i = 0; i < sizeof open_modes / sizeof *open_modes; i++) {
        assert_int_equal(chmod(run, open_modes[i]), 0);
        refuse_directory(p, "open to other users");
    }
    assert_int_equal(chmod(run, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(run, 12345, 12345), 0);
        refuse_directory(p, "belongs to user 12345");
        assert_int_equal(chown(run, 0, 0), 0);
        assert_int_equal(hr__launch_listen(&fd, NULL, NULL), 0);
        assert_int_equal(chown(p->socket, 12345, 12345), 0);
        int job;
        assert_int_equal(hr__launch_connect(&job, NULL, &error), -EACCES);
        assert_non_null(strstr(error.message, "belongs to user 12345"));
        close(fd);
        assert_int_equal(unlink(p->socket), 0);
    }
    assert_int_equal(rmdir(run), -1);
    assert_int_equal(unlink(below(p, "run/agent.lock")), 0);
    assert_int_equal(rmdir(run), 0);
    close(open(run, O_CREAT | O_WRONLY, 0600));
    refuse_directory(p, "no directory");
}

/* A socket in our directory that another user serves. */
static void test_served_by_another(void **state)
{
    struct launch_place *p = *state;
    struct hr_error error = {0};
    int ready[2], fd;
    char go;
    if (geteuid())
        skip();
    assert_int_equal(hr__launch_listen(&fd, NULL, NULL), 0);
    close(fd);
    assert_int_equal(unlink(p->socket), 0);
    assert_int_equal(pipe(ready), 0);
    pid_t job = fork();
    if (!job) {
        struct sockaddr_un where = {.sun_family = AF_UNIX};
        int own = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        snprintf(where.sun_path, sizeof where.sun_path, "%s", p->socket);
        if (bind(own, (struct sockaddr *)&where, sizeof where) || setresuid(12345, 12345, 12345) ||
            listen(own, 5) || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    close(ready[1]);
    ssize_t got = read(ready[0], &go, 1);
    int r = got == 1 ? hr__launch_connect(&fd, NULL, &error) : 0;
    kill(job, SIGKILL);
    assert_int_equal(waitpid(job, NULL, 0), job);
    assert_int_equal(got, 1);
    assert_int_equal(r, -EACCES);
    assert_non_null(strstr(error.message, "belongs to another user"));
    close(ready[0]);
}

static void test_long_paths(void **state)
{
    struct launch_place *p = *state;
    struct hr_error error = {0};
    char path[200];
    int fd;
    /* a socket's path has at most 107 characters */
    int room = 108 - (int)strlen(p->root) - 6;
    snprintf(path, sizeof path, "%s/run/x%0*d", p->root, room, 0);
    assert_int_equal(strlen(path), 108);
    assert_int_equal(hr__launch_listen(&fd, path, &error), -ENAMETOOLONG);
    assert_non_null(strstr(error.message, "shorter"));
    assert_int_equal(hr__launch_connect(&fd, path, &error), -ENAMETOOLONG);
    path[107] = 0;
    if (hr__launch_listen(&fd, path, &error))
        fail_msg("%s", error.message);
    close(fd);
    setenv("HEADRACE_AGENT", path, 1);
    fd = start(p);
    assert_true(ask(fd) > 0);
    end(fd);
    path[107] = 'x';
    setenv("HEADRACE_AGENT", path, 1);
    auto_refused(p->command, -ENAMETOOLONG, "shorter");
}

static void test_default_socket(void **state)
{
    struct launch_place *p = *state;
    char path[256], want[256], few[8];
    const char *old = getenv("XDG_RUNTIME_DIR");
    char *kept = old ? strdup(old) : NULL;
    assert_int_equal(hr_agent_default_socket(path, sizeof path), strlen(p->socket));
    assert_string_equal(path, p->socket);
    assert_int_equal(hr_agent_default_socket(few, sizeof few), strlen(p->socket));
    assert_int_equal(strlen(few), sizeof few - 1);
    unsetenv("HEADRACE_AGENT");
    setenv("XDG_RUNTIME_DIR", p->root, 1);
    hr_agent_default_socket(path, sizeof path);
    snprintf(want, sizeof want, "%s/headrace/agent.sock", p->root);
    assert_string_equal(path, want);
    /* an empty directory of ours is removed with the agent */
    int lock;
    assert_int_equal(hr__launch_lock(&lock, NULL, NULL), 0);
    assert_int_equal(access(below(p, "headrace/agent.lock"), F_OK), 0);
    hr__launch_clean(NULL);
    hr__launch_unlock(&lock);
    assert_int_equal(access(below(p, "headrace"), F_OK), -1);
    snprintf(want, sizeof want, "/tmp/headrace-%u/agent.sock", (unsigned)geteuid());
    const char *others[] = {"relative", "/dev/null", "/nonexistent/run", ""};
    for (size_t i = 0; i < 4; i++) {
        setenv("XDG_RUNTIME_DIR", others[i], 1);
        setenv("HEADRACE_AGENT", "", 1);
        hr_agent_default_socket(path, sizeof path);
        assert_string_equal(path, want);
    }
    if (kept)
        setenv("XDG_RUNTIME_DIR", kept, 1);
    else
        unsetenv("XDG_RUNTIME_DIR");
    free(kept);
}

/* At the limit of descriptors an agent can be started only while some are left. */
static void test_out_of_descriptors(void **state)
{
    struct launch_place *p = *state;
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    for (rlim_t more = 0; more < 12; more++) {
        struct hr_error error = {0};
        int fd, top = dup(0);
        close(top);
        low = (struct rlimit){(rlim_t)top + more, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        int r = hr__launch_auto(&fd, p->command, &error);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        if (!r) {
            assert_true(ask(fd) > 0);
            end(fd);
            return;
        }
        assert_true(r == -EMFILE || r == -EINVAL);
        assert_true(error.message[0]);
        assert_int_equal(fd, -1);
    }
    low.rlim_cur = 32;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int fd = start(p);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_true(ask(fd) > 0);
    end(fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_one_of_many_starts_it),
        TEST(test_threads_race_too),
        TEST(test_what_it_is_like),
        TEST(test_without_standard_files),
        TEST(test_no_such_command),
        TEST(test_relative_command),
        TEST(test_stale_socket),
        TEST(test_a_full_queue),
        TEST(test_killed_starters),
        TEST(test_lock),
        TEST(test_clean),
        TEST(test_places_of_others),
        TEST(test_served_by_another),
        TEST(test_long_paths),
        TEST(test_default_socket),
        TEST(test_out_of_descriptors),
    };
    return cmocka_run_group_tests_name("agent launch", tests, NULL, NULL);
}
