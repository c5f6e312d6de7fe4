/*
 * The directory of segments: making, sharing, dropping and refusing them, with real processes, some
 * of which are killed.
 */
#include "../test.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cache/directory.h"

#include <headrace/cache.h>

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static char place[64], own[128];
static char logged[8192]; /* messages since it was last cleared */

static void log_line(void *arg, enum hr_log_level level, const char *message)
{
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%d %s\n", level, message);
}

static int set_up(void **state)
{
    snprintf(place, sizeof place, "/dev/shm/headrace-test-XXXXXX");
    if (!mkdtemp(place))
        return -1;
    snprintf(own, sizeof own, "%s/headrace-%u", place, (unsigned)geteuid());
    setenv("HEADRACE_SHM", place, 1);
    hr_log_set(log_line, NULL);
    return 0;
}

/* No test may leave anything, not even a directory. */
static int tear_down(void **state)
{
    return rmdir(place);
}

static int forget_log(void **state)
{
    *logged = 0;
    return 0;
}

static struct hr__segment_wish wish_of(struct hr__cache_spec *spec, const char *text, int dataset)
{
    struct hr_error error;
    if (hr__cache_spec_parse(spec, text, &error))
        fail_msg("%s", error.message);
    static char names[4][16];
    snprintf(names[dataset % 4], sizeof names[0], "set %d", dataset);
    struct hr__segment_wish wish = {
        .spec = spec, .run = "r1", .dataset = names[dataset % 4], .items = 100};
    wish.identity[3] = (uint8_t)dataset;
    return wish;
}

static struct hr__segment *open_one(const char *text, int dataset)
{
    struct hr__cache_spec spec;
    struct hr__segment_wish wish = wish_of(&spec, text, dataset);
    struct hr__segment *s;
    struct hr_error error;
    if (hr__directory_open(&s, &wish, &error))
        fail_msg("%s", error.message);
    return s;
}

static int refused(const char *text, const char *said)
{
    struct hr__cache_spec spec;
    struct hr__segment_wish wish = wish_of(&spec, text, 1);
    struct hr__segment *s;
    struct hr_error error;
    int r = hr__directory_open(&s, &wish, &error);
    if (!r)
        fail_msg("%s was opened", text);
    assert_null(s);
    if (!strstr(error.message, said))
        fail_msg("%s", error.message);
    assert_int_equal(hr__directory_open(&s, &wish, NULL), r);
    return r;
}

static const struct hr__directory_where own_directory = {.group = HR__DIRECTORY_OWN, .disk = ""};

/* Lists the files of a name (NULL: all) in the owner's directory; returns their number. */
static size_t files_of(const char *name, struct hr__directory_file out[16])
{
    struct hr__directory d;
    struct hr__directory_file *files;
    size_t count;
    if (hr__directory_lock(&d, &own_directory, 0, NULL))
        return 0;
    assert_int_equal(hr__directory_files(&d, name, &files, &count), 0);
    hr__directory_unlock(&d);
    assert_true(count <= 16);
    if (count)
        memcpy(out, files, count * sizeof *files);
    hr__free(files);
    return count;
}

static void drop(const char *name)
{
    struct hr__directory_file files[16];
    size_t count = files_of(name, files);
    struct hr__directory d;
    if (!count)
        return;
    assert_int_equal(hr__directory_lock(&d, &own_directory, 0, NULL), 0);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(hr__directory_remove(&d, &files[i], NULL), 0);
    hr__directory_unlock(&d);
}

static int take_all(struct hr__segment *s, void *arg)
{
    uint64_t bytes = *(const uint64_t *)arg, from = hr__segment_books(s).arena_allocated;
    char why[HR__CAPACITY_WHY];
    int r = hr__segment_populate(s, s->layout.arena_offset + from, bytes, why);
    if (r)
        return r;
    struct hr__books *books = hr__segment_begin(s);
    assert_non_null(books);
    books->arena_allocated += bytes;
    hr__segment_commit(s);
    return 0;
}

static int grow(struct hr__segment *s, uint64_t bytes)
{
    return hr__directory_make_room(s, bytes, 1, take_all, &bytes);
}

static void test_kept(void **state)
{
    struct hr__directory_file files[16];
    struct stat st;
    struct hr__segment *s = open_one("shm:a?size=1MiB&share=0.5", 1);
    assert_int_equal(lstat(own, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(fstat(s->own.fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(s->layout.arena_bytes, MIB / 2);
    assert_int_equal(s->header->size_bytes, MIB);
    assert_int_equal(s->header->is_kept, 1);
    assert_string_equal(s->header->name, "a");
    assert_string_equal(s->header->dataset, "set 1");
    assert_int_equal(atomic_load(&s->header->last_use), 1);

    /* A second opening is another user of the same segment; another dataset gets another
     * segment. */
    struct hr__segment *again = open_one("shm:a?size=1MiB&share=0.5", 1);
    struct hr__segment *other = open_one("shm:a?size=1MiB", 2);
    assert_string_equal(again->file, s->file);
    assert_string_not_equal(other->file, s->file);
    assert_int_equal(atomic_load(&s->header->last_use), 2);
    assert_int_equal(atomic_load(&other->header->last_use), 3);
    assert_int_equal(files_of("a", files), 2);
    assert_int_equal(files[0].users + files[1].users, 3);
    assert_int_equal(files_of("b", files), 0);
    assert_string_equal(logged, "");
    hr__directory_close(&again);
    hr__directory_close(&s);
    hr__directory_close(&other);
    hr__directory_close(&other);

    assert_int_equal(files_of(NULL, files), 2);
    assert_int_equal(files[0].users + files[1].users, 0);
    assert_true(files[0].memory > 0);
    again = open_one("shm:a?size=2MiB", 1);
    assert_int_equal(atomic_load(&again->header->last_use), 4);
    assert_int_equal(again->layout.arena_bytes, MIB / 2);
    assert_non_null(strstr(logged, "1 cache a is there already, with 524288 of 1048576 bytes"));
    hr__directory_close(&again);
    drop("a");
    assert_int_equal(access(own, F_OK), -1);
}

static void test_private(void **state)
{
    struct hr__directory_file files[16];
    struct hr__segment *s = open_one("1MiB", 1), *t = open_one("1MiB", 1);
    assert_string_equal(s->file, t->file);
    assert_int_equal(strncmp(s->file, "run+r1.", 7), 0);
    assert_int_equal(s->header->is_kept, 0);
    hr__directory_close(&s);
    assert_int_equal(files_of(NULL, files), 1);
    assert_int_equal(files[0].users, 1);
    assert_true(files[0].is_private);
    hr__directory_close(&t);
    assert_int_equal(access(own, F_OK), -1);
}

/* Forks a child that opens the segment, reports that, and waits to be killed. */
static pid_t user_elsewhere(const char *text, int dataset)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (!pid) {
        open_one(text, dataset);
        if (write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void kill_and_wait(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Without free descriptors a process cannot find out whether a segment is in use, so it stays. */
static void test_without_descriptors(void **state)
{
    struct hr__directory_file files[16];
    pid_t user = user_elsewhere("1MiB", 1), kept = user_elsewhere("shm:k?size=1MiB", 2);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(lowest);
    for (int more = 0; more < 8; more++) {
        struct rlimit few = {.rlim_cur = (rlim_t)(lowest + more), .rlim_max = limit.rlim_max};
        uint64_t freed = 0, left = 0;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        hr__directory_sweep();
        int r = hr_cache_drop("k", NULL, 0, &freed, &left, NULL);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_true(r || left == 1);
        assert_int_equal(files_of(NULL, files), 2);
        assert_true(files[0].users == 1 && files[1].users == 1);
    }
    kill_and_wait(user);
    kill_and_wait(kept);
    drop("k");
    hr__directory_sweep();
    assert_int_equal(access(own, F_OK), -1);
}

static void test_killed(void **state)
{
    struct hr__directory_file files[16];
    pid_t pid = user_elsewhere("1MiB", 1);
    hr__directory_sweep();
    assert_int_equal(files_of(NULL, files), 1);
    kill_and_wait(pid);
    hr__directory_sweep();
    assert_int_equal(access(own, F_OK), -1);
    assert_non_null(strstr(logged, "2 dropped the cache's segment"));
    assert_non_null(strstr(logged, "its run has ended"));

    /* Opening removes it, too. */
    kill_and_wait(user_elsewhere("1MiB", 1));
    struct hr__segment *s = open_one("shm:a?size=1MiB", 1);
    assert_int_equal(files_of(NULL, files), 1);
    hr__directory_close(&s);
    drop("a");
}

/* Many processes make a segment at the same time; all open the same one. */
static void test_creators(void **state)
{
    enum { CREATORS = 6 };
    struct hr__directory_file files[16];
    pid_t pids[CREATORS];
    int go[2], done[2];
    char bytes[CREATORS];
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(done), 0);
    for (int i = 0; i < CREATORS; i++) {
        pids[i] = fork();
        if (!pids[i]) {
            close(go[1]);
            if (read(go[0], bytes, 1)) /* until the parent closes the pipe */
                _exit(1);
            struct hr__segment *s = open_one("shm:a?size=1MiB", 1);
            char slot = (char)s->slot;
            if (write(done[1], &slot, 1) == 1)
                pause();
            _exit(1);
        }
    }
    close(go[0]);
    close(go[1]);
    unsigned seen = 0;
    for (int i = 0; i < CREATORS; i++) {
        assert_int_equal(read(done[0], &bytes[i], 1), 1);
        seen |= 1u << bytes[i];
    }
    assert_int_equal(seen, (1u << CREATORS) - 1);
    assert_int_equal(files_of(NULL, files), 1);
    assert_int_equal(files[0].users, CREATORS);
    for (int i = 0; i < CREATORS; i++)
        kill_and_wait(pids[i]);
    assert_int_equal(files_of(NULL, files), 1);
    assert_int_equal(files[0].users, 0);
    drop("a");
    close(done[0]);
    close(done[1]);
}

static void spoil(const struct hr__segment *s)
{
    assert_int_equal(pwrite(s->own.fd, "scribble", 8, 24), 8);
}

static void test_damaged(void **state)
{
    struct hr__directory_file files[16];
    struct hr__segment *s = open_one("shm:a?size=1MiB", 1);
    spoil(s);
    hr__directory_close(&s);
    assert_int_equal(files_of("a", files), 1);
    assert_int_equal(files[0].code, -EBADMSG);
    assert_int_equal(files[0].users, 0);
    assert_int_equal(files[0].items, files[0].memory);
    assert_non_null(strstr(files[0].problem, "damaged in its header"));

    s = open_one("shm:a?size=1MiB", 1);
    assert_non_null(strstr(logged, "it is dropped"));
    assert_null(strstr(logged, "who uses it"));
    assert_int_equal(files_of("a", files), 1);
    assert_int_equal(files[0].code, 0);

    /* A user in possession keeps its mapping, and its segment does not grow. */
    *logged = 0;
    spoil(s);
    struct hr__segment *t = open_one("shm:a?size=1MiB", 1);
    assert_non_null(strstr(logged, "its users read from storage"));
    assert_int_equal(files_of("a", files), 1);
    assert_int_equal(grow(s, 4096), -ENOSPC);
    assert_int_equal(grow(t, 4096), 0);
    hr__directory_close(&s);
    assert_int_equal(files_of("a", files), 1);
    hr__directory_close(&t);

    /* Truncated, and unfinished. */
    t = open_one("shm:a?size=1MiB", 1);
    assert_int_equal(ftruncate(t->own.fd, 10000), 0);
    hr__directory_close(&t);
    *logged = 0;
    t = open_one("shm:a?size=1MiB", 1);
    assert_non_null(strstr(logged, "is cut off"));
    hr__directory_close(&t);
    drop("a");
}

static int never(struct hr__segment *s, void *arg)
{
    fail_msg("there should be no room");
    return 0;
}

/* A segment that another version made under the name would never be found, so it is dropped unless
 * it is in use. */
static void test_other_versions(void **state)
{
    struct hr__directory_file files[16];
    char path[300];
    struct hr__segment *old = open_one("shm:versions?size=1MiB", 1), *new;
    assert_int_equal(files_of("versions", files), 1);
    snprintf(path, sizeof path, "%s/%s", own, files[0].file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    const uint32_t version = HR__SEGMENT_VERSION - 1;
    assert_int_equal(
        pwrite(fd, &version, sizeof version, offsetof(struct hr__segment_header, version)),
        sizeof version);
    close(fd);
    new = open_one("shm:versions?size=1MiB", 2);
    assert_int_equal(files_of("versions", files), 2);
    hr__directory_close(&new);
    hr__directory_close(&old);
    new = open_one("shm:versions?size=1MiB", 3);
    assert_int_equal(files_of("versions", files), 2); /* the segments of sets 2 and 3 */
    assert_non_null(strstr(logged, "another version of Headrace made it; it is made again"));
    hr__directory_close(&new);
    drop("versions");
}

static void test_room(void **state)
{
    static const char spec[] = "shm:a?size=1MiB";
    struct hr__directory_file files[16];
    struct hr__segment *s[4];
    for (int i = 0; i < 3; i++) {
        s[i] = open_one(spec, i);
        assert_int_equal(grow(s[i], MIB / 4), 0);
    }
    struct hr__segment *elsewhere = open_one("shm:b?size=1MiB", 0);
    assert_int_equal(grow(elsewhere, MIB), 0);
    char first[128], second[128];
    memcpy(first, s[1]->file, sizeof first);
    memcpy(second, s[0]->file, sizeof second);
    /* The last use counts, not the end of the last user. */
    hr__directory_close(&s[0]);
    s[0] = open_one(spec, 0);
    hr__directory_close(&s[0]);
    hr__directory_close(&s[1]);

    s[3] = open_one(spec, 3);
    assert_int_equal(grow(s[3], MIB / 4), 0);
    /* Optional growth drops nothing. */
    assert_int_equal(hr__directory_make_room(s[3], 4096, 0, never, NULL), -ENOSPC);
    assert_int_equal(files_of("a", files), 4);
    assert_string_equal(logged, "");
    assert_int_equal(grow(s[3], 4096), 0);
    assert_int_equal(files_of("a", files), 3);
    assert_non_null(strstr(logged, first));
    assert_non_null(strstr(logged, " of set 1, "));
    assert_non_null(strstr(logged, "its name's size is used up"));
    assert_null(strstr(logged, second));

    /* Segments that would not free enough are not dropped. */
    *logged = 0;
    assert_int_equal(grow(s[3], MIB), -ENOSPC);
    assert_int_equal(grow(s[3], MIB / 2), -ENOSPC);
    assert_int_equal(files_of("a", files), 3);
    assert_int_equal(grow(s[3], MIB / 2 - 4096), 0);
    assert_int_equal(files_of("a", files), 2);
    assert_non_null(strstr(logged, second));
    /* Everything is in use. */
    assert_int_equal(grow(s[3], 4096), -ENOSPC);
    assert_int_equal(grow(s[2], 4096), -ENOSPC);
    assert_int_equal(files_of("b", files), 1);

    /* Users in other processes count, too. */
    pid_t pid = user_elsewhere(spec, 2);
    hr__directory_close(&s[2]);
    assert_int_equal(grow(s[3], 4096), -ENOSPC);
    kill_and_wait(pid);
    assert_int_equal(grow(s[3], 4096), 0);
    hr__directory_close(&s[3]);
    hr__directory_close(&elsewhere);
    drop("a");
    drop("b");
}

static void test_capacity(void **state)
{
    struct hr__directory_file files[16];
    assert_int_equal(refused("shm:a?size=900TiB", "enlarge it (mount -o remount"), -ENOSPC);
    assert_int_equal(refused("900TiB", "enlarge it (mount -o remount"), -ENOSPC);
    assert_int_equal(files_of(NULL, files), 0);
    assert_int_equal(access(own, F_OK), -1);
}

static void test_refused(void **state)
{
    static const char spec[] = "shm:a?size=1MiB";
    /* A link made by somebody else. */
    assert_int_equal(symlink("/tmp", own), 0);
    assert_int_equal(refused(spec, "a link or a file that somebody put there"), -EACCES);
    assert_int_equal(unlink(own), 0);
    int fd = open(own, O_CREAT | O_WRONLY, 0600);
    close(fd);
    assert_int_equal(refused(spec, "a link or a file that somebody put there"), -EACCES);
    assert_int_equal(unlink(own), 0);
    assert_int_equal(mkdir(own, 0700), 0);
    assert_int_equal(chmod(own, 0750), 0);
    assert_int_equal(refused(spec, "is open to others (mode 0750): chmod 700"), -EACCES);
    assert_int_equal(chmod(own, 0700), 0);
    if (!geteuid()) {
        assert_int_equal(chown(own, 12345, (gid_t)-1), 0);
        assert_int_equal(refused(spec, "belongs to user 12345"), -EACCES);
        assert_int_equal(chown(own, 0, (gid_t)-1), 0);
    }
    /* A link in place of a segment. */
    struct hr__segment *s = open_one(spec, 1);
    char path[300];
    snprintf(path, sizeof path, "%s/%s", own, s->file);
    hr__directory_close(&s);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(refused(spec, "is a link that somebody put there"), -EACCES);
    assert_int_equal(unlink(path), 0);
    /* A path that does not exist. */
    setenv("HEADRACE_SHM", "/nonexistent/place", 1);
    assert_int_equal(refused(spec, "a file system of memory (tmpfs) must be mounted"), -ENOENT);
    setenv("HEADRACE_SHM", place, 1);
    rmdir(own);
}

static void test_group(void **state)
{
    struct group *group = getgrgid(getegid());
    char text[128], directory[160];
    if (!group)
        skip();
    snprintf(text, sizeof text, "shm:a?size=1MiB&group=%s", group->gr_name);
    snprintf(directory, sizeof directory, "%s/headrace-g%u", place, (unsigned)getegid());
    struct hr__segment *s = open_one(text, 1);
    struct stat st;
    assert_int_equal(lstat(directory, &st), 0);
    assert_int_equal(st.st_mode & 07777, 02770);
    assert_int_equal(st.st_gid, getegid());
    assert_int_equal(fstat(s->own.fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    assert_int_equal(st.st_gid, getegid());
    snprintf(text, sizeof text, "shm:a?size=1MiB&group=%u", (unsigned)getegid());
    struct hr__segment *t = open_one(text, 1);
    assert_string_equal(s->path, t->path);
    assert_int_equal(unlink(s->path), 0);
    hr__directory_close(&s);
    hr__directory_close(&t);
    /* Nothing is created beside a wrong directory. */
    assert_int_equal(mkdir(directory, 0777), -1);
    assert_int_equal(chmod(directory, 02777), 0);
    assert_int_equal(refused(text, "is not of group"), -EACCES);
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(refused("shm:a?size=1MiB&group=no-such-group", "does not exist"), -EINVAL);
    assert_int_equal(refused("shm:a?size=1MiB&group=987654", "not a member of group"), -EACCES);
}

static void test_locked(void **state)
{
    struct hr__segment *s = open_one("shm:a?size=1MiB", 1);
    int fd = open(own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    uint64_t since = hr__now_ns();
    assert_int_equal(hr__directory_make_room(s, 4096, 1, never, NULL), -EAGAIN);
    assert_true(hr__now_ns() - since >= HR__DIRECTORY_HURRY_NS);
    assert_non_null(strstr(logged, "is locked by another process"));
    /* The second attempt does not wait. */
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(hr__directory_make_room(s, 4096, 1, never, NULL), -EAGAIN);
    getrusage(RUSAGE_THREAD, &after);
    assert_in_range(after.ru_nvcsw - before.ru_nvcsw, 0, 999); /* else it slept each time */
    assert_null(strchr(strchr(logged, '\n') + 1, '\n'));
    close(fd);
    assert_int_equal(grow(s, 4096), 0);
    hr__directory_close(&s);
    drop("a");
}

/* A child forked while the lock is held does not keep it. */
static void test_fork(void **state)
{
    struct hr__directory d;
    struct hr__segment *s = open_one("shm:a?size=1MiB", 1);
    assert_int_equal(hr__directory_lock(&d, &own_directory, 0, NULL), 0);
    pid_t child = fork();
    if (!child) {
        pause();
        _exit(0);
    }
    /* As if this process were killed: its descriptor is closed without unlocking. */
    close(d.own.fd);
    d.own.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(grow(s, 4096), 0);
    hr__directory_unlock(&d);
    kill_and_wait(child);

    /* A child can close its copies of its parent's objects. */
    struct hr__segment *t = open_one("1MiB", 1);
    child = fork();
    if (!child) {
        hr__directory_close(&s);
        hr__directory_close(&t);
        _exit(s || t);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    struct hr__directory_file files[16];
    assert_int_equal(files_of(NULL, files), 2);
    assert_int_equal(files[0].users + files[1].users, 2);
    hr__directory_close(&s);
    hr__directory_close(&t);
    drop("a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_kept, forget_log),
        cmocka_unit_test_setup(test_private, forget_log),
        cmocka_unit_test_setup(test_without_descriptors, forget_log),
        cmocka_unit_test_setup(test_killed, forget_log),
        cmocka_unit_test_setup(test_creators, forget_log),
        cmocka_unit_test_setup(test_damaged, forget_log),
        cmocka_unit_test_setup(test_other_versions, forget_log),
        cmocka_unit_test_setup(test_room, forget_log),
        cmocka_unit_test_setup(test_capacity, forget_log),
        cmocka_unit_test_setup(test_refused, forget_log),
        cmocka_unit_test_setup(test_group, forget_log),
        cmocka_unit_test_setup(test_locked, forget_log),
        cmocka_unit_test_setup(test_fork, forget_log),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
