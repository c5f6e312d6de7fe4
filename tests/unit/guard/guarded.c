/*
 * A program that knows nothing of the guard: it changes files in its working directory in every
 * possible way and checks that it sees its own changes. It passes without the guard, too. PART
 * selects the changes.
 *
 * The directory contains: old (5 bytes "old-1"), other ("old-2"), kept ("old-3"), tree/a,
 * tree/sub/b, and link, a symbolic link to tree. Hidden: .first and .b, symbolic links to old and
 * tree/sub/b, and .pipe.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #x, errno);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && !fclose(file));
}

static int holds(const char *path, const char *text)
{
    char found[256] = "";
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(found, 1, sizeof found - 1, file) : 0;
    if (file)
        fclose(file);
    return file && n == strlen(text) && !strcmp(found, text);
}

static int is_gone(const char *path)
{
    struct stat st;
    return access(path, F_OK) && errno == ENOENT && lstat(path, &st) && errno == ENOENT &&
           open(path, O_RDONLY) < 0 && errno == ENOENT;
}

/* Returns the names in a folder, sorted, with a blank after each. */
static const char *list(const char *path)
{
    static char text[4096];
    char names[64][64];
    size_t count = 0;
    DIR *dir = opendir(path);
    const struct dirent *entry;
    CHECK(dir);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.' && count < 64)
            snprintf(names[count++], sizeof names[0], "%.60s", entry->d_name);
    closedir(dir);
    qsort(names, count, sizeof names[0], (int (*)(const void *, const void *))strcmp);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        strcat(text, names[i]);
        strcat(text, " ");
    }
    return text;
}

/* Through symbolic links whose names were not changed. */
static void see_behind_links(void)
{
    char text[8] = "";
    struct stat st;
    int fd = open(".first", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text) == 3 && !strcmp(text, "new") && !close(fd));
    CHECK(holds(".first", "new") && !stat(".first", &st) && st.st_size == 3);
    CHECK(!lstat(".first", &st) && S_ISLNK(st.st_mode));
    CHECK(open(".first", O_RDONLY | O_NOFOLLOW) < 0 && errno == ELOOP);
    CHECK(holds(".b", "b") && !stat(".b", &st) && st.st_size == 1);
    CHECK((fd = open("link", O_RDONLY | O_DIRECTORY)) >= 0 && !close(fd));
    CHECK((fd = open("/dev/stderr", O_RDONLY)) >= 0 && !close(fd));
    CHECK(open(".first/x", O_RDONLY) < 0 && errno == ENOTDIR);
}

static void use_files(void)
{
    struct stat st;
    write_file("old", "new");
    CHECK(holds("old", "new") && !stat("old", &st) && st.st_size == 3);
    see_behind_links();
    int fd = open("other", O_WRONLY | O_APPEND);
    CHECK(fd >= 0 && write(fd, "+", 1) == 1 && !close(fd) && holds("other", "old-2+"));
    fd = open("kept", O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, "X", 1, 0) == 1 && !close(fd) && holds("kept", "Xld-3"));
    CHECK(!truncate("kept", 2) && holds("kept", "Xl"));
    CHECK(!chmod("kept", 0600) && !stat("kept", &st) && (st.st_mode & 07777) == 0600);
    struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 7}};
    CHECK(!chmod(".pipe", 0640)); /* a FIFO without a writer: it must not be opened */
    CHECK(!utimensat(AT_FDCWD, "kept", times, 0) && !stat("kept", &st) && st.st_mtime == 7);
    CHECK(open("old", O_WRONLY | O_CREAT | O_EXCL, 0600) < 0 && errno == EEXIST);
    CHECK(open("nowhere/x", O_WRONLY | O_CREAT, 0600) < 0 && errno == ENOENT);
    CHECK(open("tree", O_WRONLY) < 0 && errno == EISDIR);
    char name[] = "made-XXXXXX";
    CHECK((fd = mkstemp(name)) >= 0 && !close(fd) && !access(name, R_OK) && !unlink(name));
    CHECK(is_gone(name) && unlink(name) && errno == ENOENT);
    FILE *file = freopen("again", "w", fopen("old", "r"));
    CHECK(file && fputs("1", file) >= 0 && !fclose(file) && holds("again", "1"));
    CHECK(!link("tree/a", "hard") && holds("hard", "a") && !unlink("tree/a") && holds("hard", "a"));
}

static void use_names(void)
{
    char target[64];
    struct stat st;
    CHECK(!rename("old", "older") && is_gone("old") && holds("older", "old-1"));
    CHECK(!lstat("older", &st) && S_ISREG(st.st_mode));
    CHECK(readlink("older", target, sizeof target) < 0 && errno == EINVAL);
    write_file("other.tmp", "new");
    CHECK(!rename("other.tmp", "other") && holds("other", "new") && is_gone("other.tmp"));
    CHECK(!rename("tree", "moved") && is_gone("tree") && is_gone("tree/sub/b"));
    CHECK(holds("moved/a", "a") && holds("moved/sub/b", "b") && !strcmp(list("moved"), "a sub "));
    CHECK(!mkdir("tree", 0755) && !strcmp(list("tree"), "") && is_gone("tree/a"));
    write_file("tree/c", "c");
    CHECK(holds("link/c", "c") && is_gone("link/a"));
    CHECK(rename("moved", "tree") && errno == ENOTEMPTY);
    CHECK(rename("moved", "moved/x") && errno == EINVAL);
    CHECK(rename("kept", "moved") && errno == EISDIR);
    CHECK(rename("none", "x") && errno == ENOENT);
    CHECK(!symlink("moved/sub", "short") && holds("short/b", "b") && !unlink("short"));
    CHECK(!strcmp(list("."), "kept link moved older other tree "));
    CHECK(mkdir("tree", 0755) && errno == EEXIST && rmdir("tree") && errno == ENOTEMPTY);
    CHECK(unlink("moved") && errno == EISDIR && rmdir("kept") && errno == ENOTDIR);
}

/* As shutil.rmtree and rm -r do. */
static void remove_below(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    DIR *dir = fdopendir(dup(fd));
    const struct dirent *entry;
    struct stat st;
    CHECK(fd >= 0 && dir);
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
            CHECK(!fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW));
            if (S_ISDIR(st.st_mode))
                remove_below(fd, entry->d_name);
            else
                CHECK(!unlinkat(fd, entry->d_name, 0));
        }
    closedir(dir);
    close(fd);
    CHECK(!unlinkat(folder, name, AT_REMOVEDIR));
}

static void use_folders(void)
{
    char path[4096], before[4096];
    write_file("tree/sub/new", "n");
    CHECK(!strcmp(list("tree/sub"), "b new "));
    remove_below(AT_FDCWD, "tree");
    CHECK(is_gone("tree") && is_gone("link/a") && !strcmp(list("."), "kept link old other "));
    CHECK(open(".b", O_RDONLY) < 0 && errno == ENOENT && !fopen(".b", "r") && errno == ENOENT);
    CHECK(!mkdir("tree", 0755) && !mkdir("tree/sub", 0755) && !strcmp(list("tree/sub"), ""));
    CHECK(getcwd(before, sizeof before) && !chdir("link/sub"));
    CHECK(getcwd(path, sizeof path) && !strncmp(path, before, strlen(before)));
    CHECK(!strcmp(path + strlen(before) + 1, "tree/sub"));
    CHECK(holds("../../kept", "old-3"));
    write_file("../up", "u");
    CHECK(!chdir(before) && holds("tree/up", "u"));
    CHECK(realpath("link/up", path) && !strcmp(path + strlen(before) + 1, "tree/up"));
    CHECK(!mkdir("a", 0700) && !mkdir("a/b", 0700) && !rmdir("a/b") && !remove("a"));
    CHECK(is_gone("a"));
}

/* System calls without the C library, also while all signals are blocked. */
static void *use_kernel(void *unused)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "kernel", O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, "k", 1) == 1 && !close(fd) && holds("kernel", "k"));
    CHECK(!syscall(SYS_renameat2, AT_FDCWD, "kernel", AT_FDCWD, "old", 0) && holds("old", "k"));
    CHECK(!syscall(SYS_unlinkat, AT_FDCWD, "other", 0) && is_gone("other"));
    CHECK(syscall(SYS_unlinkat, AT_FDCWD, "other", 0) < 0 && errno == ENOENT);
    CHECK(!syscall(SYS_mkdirat, AT_FDCWD, "made", 0700) && !strcmp(list("made"), ""));
    return unused;
}

static void use_threads(void)
{
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, use_kernel, NULL) && !pthread_join(thread, NULL));
}

/* A program with an environment of its own, and a forked child. */
static void use_children(const char *program)
{
    int status;
    char *const empty[] = {NULL}, *const words[] = {(char *)program, "files", NULL};
    pid_t pid = vfork();
    if (!pid) {
        execve(program, words, empty);
        _exit(9);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
    CHECK(holds("old", "new") && holds("kept", "Xl"));
    pid = fork();
    if (!pid) {
        write_file("child", "c");
        _exit(unlink("old"));
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
    CHECK(holds("child", "c") && is_gone("old"));
}

/* A socket in the program's own folder, whose path is already long. */
static void use_sockets(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "sockets/listener"};
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(!mkdir("sockets", 0700));
    CHECK(!bind(server, (struct sockaddr *)&address, sizeof address) && !listen(server, 1));
    CHECK(!connect(client, (struct sockaddr *)&address, sizeof address));
    close(server);
    close(client);
    CHECK(!unlink("sockets/listener") && !rmdir("sockets"));
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    if (!strcmp(part, "files"))
        use_files();
    else if (!strcmp(part, "names"))
        use_names();
    else if (!strcmp(part, "folders"))
        use_folders();
    else if (!strcmp(part, "threads"))
        use_threads();
    else if (!strcmp(part, "children"))
        use_children(argv[0]);
    else if (!strcmp(part, "sockets"))
        use_sockets();
    else
        return 2;
    return 0;
}
