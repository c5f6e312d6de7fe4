/*
 * A fake agent for viewers: fake_agent SOCKET FILE... answers each STATUS with the next of the
 * files, and repeats the last one; TRACE with a trace; END by ending. Instead of a file, "mute"
 * sends no answer and "end" ends. Prints "ready" when it listens.
 */
#include "agent/launch.h"
#include "agent/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char *read_file(const char *path)
{
    size_t length;
    char *text = NULL;
    FILE *in = fopen(path, "r"), *out = open_memstream(&text, &length);
    if (!in || !out) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(3);
    }
    for (int c; (c = getc(in)) != EOF;)
        putc(c, out);
    fclose(in);
    fclose(out);
    return text;
}

static void send_text(int fd, const char *text)
{
    struct hr__wire_message m = {.type = HR__WIRE_TEXT, .file_count = 1};
    m.text.bytes = strlen(text);
    m.files[0] = hr__wire_text_file(text, strlen(text));
    hr__wire_send(fd, &m);
    hr__wire_close_files(&m);
}

/* Serves one connection; returns non-zero if the agent must end. */
static int serve(int fd, char ***files)
{
    struct hr__wire_message m, welcome = {.type = HR__WIRE_WELCOME};
    welcome.welcome.pid = (int32_t)getpid();
    welcome.welcome.threads = 3;
    while (hr__wire_receive(fd, 0, &m, NULL) == 1) {
        if (m.type == HR__WIRE_HELLO) {
            hr__wire_send(fd, &welcome);
        } else if (m.type == HR__WIRE_TRACE) {
            usleep((useconds_t)(m.trace.seconds * 1e6));
            send_text(fd, "{\"traceEvents\":[]}\n");
        } else if (m.type == HR__WIRE_END ||
                   (m.type == HR__WIRE_STATUS && !strcmp(**files, "end"))) {
            return 1;
        } else if (m.type == HR__WIRE_STATUS) {
            if (strcmp(**files, "mute") != 0) {
                char *text = read_file(**files);
                send_text(fd, text);
                free(text);
            }
            if ((*files)[1])
                (*files)++;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct hr_error error;
    int listener = -1, is_over = 0;
    char **files = argv + 2;
    if (argc < 3 || hr__launch_listen(&listener, argv[1], &error)) {
        fprintf(stderr, "%s\n", argc < 3 ? "fake_agent SOCKET FILE..." : error.message);
        return 3;
    }
    puts("ready");
    fflush(stdout);
    while (!is_over) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        is_over = serve(fd, &files);
        if (is_over)
            unlink(argv[1]);
        close(fd);
    }
    return 0;
}
