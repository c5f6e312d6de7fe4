/*
 * See the header. As root, memcached needs a user to switch to, and its socket's folder must be
 * open to that user. Switching cancels the kernel's signal on a parent's death, so a guard process
 * waits for the end of a pipe instead.
 */
#include "memcached_fixture.h"

#include "../test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * Returns a free port of an address family; 0: this machine has no such address. The port is below
 * those that the kernel assigns by itself, for two reasons: no other socket can get it while the
 * server is not running, and a client that gets its server's port by chance would be connected to
 * itself.
 */
static uint16_t free_port(const char *address)
{
    struct sockaddr_in6 at6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int is_6 = strchr(address, ':') != NULL;
    struct sockaddr *at = is_6 ? (struct sockaddr *)&at6 : (struct sockaddr *)&at4;
    unsigned first = (unsigned)getpid() * 7 + (unsigned)clock();
    for (unsigned i = 0; i < 1000; i++) {
        uint16_t port = (uint16_t)(20000 + (first + i * 17) % 12000);
        at6.sin6_port = at4.sin_port = htons(port);
        int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int r = bind(fd, at, is_6 ? sizeof at6 : sizeof at4) ? errno : 0;
        close(fd);
        if (!r)
            return port;
        if (r != EADDRINUSE)
            return 0;
    }
    return 0;
}

static int answers(const struct memcached *server)
{
    struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_port = htons(server->port)};
    struct sockaddr_in6 at6 = {.sin6_family = AF_INET6, .sin6_port = htons(server->port)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr *at = (struct sockaddr *)&local;
    socklen_t length = sizeof local;
    strcpy(local.sun_path, server->address);
    if (server->port && inet_pton(AF_INET, server->address, &at4.sin_addr) == 1) {
        at = (struct sockaddr *)&at4;
        length = sizeof at4;
    } else if (server->port && inet_pton(AF_INET6, server->address, &at6.sin6_addr) == 1) {
        at = (struct sockaddr *)&at6;
        length = sizeof at6;
    }
    int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = connect(fd, at, length);
    close(fd);
    return !r;
}

static void run(const struct memcached *server)
{
    char port[16], memory[16];
    char *argv[24];
    int n = 0;
    snprintf(port, sizeof port, "%u", server->port);
    snprintf(memory, sizeof memory, "%d", server->mebibytes);
    argv[n++] = "memcached";
    argv[n++] = "-M";
    argv[n++] = "-U";
    argv[n++] = "0";
    argv[n++] = "-t";
    argv[n++] = "2";
    argv[n++] = "-m";
    argv[n++] = memory;
    argv[n++] = "-I";
    argv[n++] = (char *)(uintptr_t)server->item_max;
    argv[n++] = server->port ? "-l" : "-s";
    argv[n++] = (char *)(uintptr_t)server->address;
    if (server->port) {
        argv[n++] = "-p";
        argv[n++] = port;
    } else {
        argv[n++] = "-a";
        argv[n++] = "0777";
    }
    if (!geteuid()) {
        argv[n++] = "-u";
        argv[n++] = "nobody";
    }
    if (server->extra)
        argv[n++] = (char *)(uintptr_t)server->extra;
    argv[n] = NULL;
    /* A process that reads the test's output must not wait for a server. */
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, 1);
    dup2(nothing, 2);
    execvp(argv[0], argv);
    _exit(127);
}

static void set_guard(struct memcached *server)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    server->guard = fork();
    assert_true(server->guard >= 0);
    if (!server->guard) {
        int process = (int)syscall(SYS_pidfd_open, server->pid, 0);
        close(ends[1]);
        close(1);
        close(2);
        ssize_t got = read(ends[0], &byte, 1);
        if (got > 0)
            _exit(0);
        if (process >= 0)
            syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
        if (server->folder[0]) {
            unlink(server->address);
            rmdir(server->folder);
        }
        _exit(0);
    }
    close(ends[0]);
    server->leash = ends[1];
}

static void end_guard(struct memcached *server)
{
    if (!server->guard)
        return;
    assert_int_equal(write(server->leash, "", 1), 1);
    close(server->leash);
    waitpid(server->guard, NULL, 0);
    server->guard = 0;
}

void memcached_restart(struct memcached *server)
{
    if (!server->port)
        unlink(server->address);
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (!server->pid)
        run(server);
    set_guard(server);
    for (int i = 0; i < 2000; i++) {
        int status;
        if (waitpid(server->pid, &status, WNOHANG) == server->pid) {
            server->pid = 0;
            end_guard(server);
            if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
                return;
            fail_msg("memcached ended at its start with status %d", status);
        }
        if (answers(server))
            return;
        test_pause_ms(5);
    }
    fail_msg("memcached does not answer on %s", server->address);
}

int memcached_start(struct memcached *server, int is_tcp, int mebibytes)
{
    return memcached_start_with(server, is_tcp, mebibytes, NULL);
}

int memcached_start_with(struct memcached *server, int is_tcp, int mebibytes, const char *extra)
{
    memset(server, 0, sizeof *server);
    server->extra = extra;
    server->mebibytes = mebibytes;
    server->item_max = "8m";
    if (is_tcp) {
        strcpy(server->address, is_tcp == 6 ? "::1" : "127.0.0.1");
        server->port = free_port(server->address);
        if (!server->port)
            return -1;
    } else {
        strcpy(server->folder, "/tmp/hr-memcached-XXXXXX");
        assert_non_null(mkdtemp(server->folder));
        assert_int_equal(chmod(server->folder, 0777), 0);
        snprintf(server->address, sizeof server->address, "%s/s", server->folder);
    }
    memcached_restart(server);
    if (!server->pid && server->folder[0])
        rmdir(server->folder);
    return server->pid ? 0 : -1;
}

void memcached_kill(struct memcached *server, int signal)
{
    if (!server->pid)
        return;
    kill(server->pid, signal);
    /* The server's threads stop one by one. */
    if (signal == SIGSTOP)
        waitpid(server->pid, NULL, WUNTRACED);
    if (signal == SIGSTOP || signal == SIGCONT)
        return;
    waitpid(server->pid, NULL, 0);
    server->pid = 0;
    end_guard(server);
}

void memcached_stop(struct memcached *server)
{
    memcached_kill(server, SIGKILL);
    if (!server->folder[0])
        return;
    unlink(server->address);
    rmdir(server->folder);
}
