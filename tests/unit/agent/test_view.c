/*
 * Viewers against a fake agent: answers, refusals, silence, invalid answers and death give
 * different errors, and no call blocks longer than documented.
 */
#include "../test.h"

#include "agent/launch.h"
#include "agent/wire.h"
#include "base/clock.h"
#include "base/memory.h"

#include <headrace/agent.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char text[] = "{\"version\":1,\"threads\":3}";

enum play {
    PLAY_ANSWER,
    PLAY_MUTE,       /* accepts, and sends nothing */
    PLAY_REFUSE,     /* refuses the request */
    PLAY_STRANGE,    /* sends another message than was requested */
    PLAY_SHORT,      /* announces another length than the file has */
    PLAY_DIE_FIRST,  /* closes at once */
    PLAY_DIE_BEFORE, /* closes instead of answering */
    PLAY_NOISE,      /* sends bytes that are not a message */
    PLAY_END_SLOWLY  /* answers END with a text, and closes later */
};

struct view_agent {
    enum play play;
    int listener;
    struct hr__wire_message asked; /* the last request */
    pthread_t thread;
};

static char folder[64], path[96];

static void answer_text(int fd, uint64_t more)
{
    struct hr__wire_message m = {.type = HR__WIRE_TEXT, .file_count = 1};
    m.text.bytes = sizeof text - 1 + more;
    m.files[0] = hr__wire_text_file(text, sizeof text - 1);
    hr__wire_send(fd, &m);
    hr__wire_close_files(&m);
}

static void answer(struct view_agent *a, int fd)
{
    struct hr__wire_message m = {.type = HR__WIRE_REFUSED};
    switch (a->play) {
    case PLAY_REFUSE:
        m.refused.code = -EBUSY;
        snprintf(m.refused.message, sizeof m.refused.message, "somebody else is recording");
        hr__wire_send(fd, &m);
        break;
    case PLAY_STRANGE:
        m.type = HR__WIRE_LEAVE;
        hr__wire_send(fd, &m);
        break;
    case PLAY_NOISE:
        send(fd, "noise", 5, MSG_NOSIGNAL);
        break;
    case PLAY_SHORT:
        answer_text(fd, 1);
        break;
    case PLAY_END_SLOWLY:
        answer_text(fd, 0);
        usleep(100000);
        break;
    default:
        if (a->asked.type != HR__WIRE_END)
            answer_text(fd, 0);
    }
}

/* One viewer. */
static void *serve(void *arg)
{
    struct view_agent *a = arg;
    struct hr__wire_message m;
    int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC);
    if (a->play == PLAY_MUTE)
        recv(fd, &m, sizeof m, 0); /* HELLO; then it waits until the viewer gives up */
    else if (a->play != PLAY_DIE_FIRST && hr__wire_receive(fd, 0, &m, NULL) == 1 &&
             m.type == HR__WIRE_HELLO && m.hello.is_viewer) {
        m = (struct hr__wire_message){.type = HR__WIRE_WELCOME};
        m.welcome.pid = (int32_t)getpid();
        m.welcome.threads = 3;
        hr__wire_send(fd, &m);
        if (hr__wire_receive(fd, 0, &a->asked, NULL) == 1 && a->play != PLAY_DIE_BEFORE)
            answer(a, fd);
    }
    struct pollfd gone = {.fd = fd, .events = POLLIN};
    if (a->play == PLAY_MUTE)
        poll(&gone, 1, -1);
    close(fd);
    return NULL;
}

static void begin(struct view_agent *a, enum play play)
{
    struct hr_error error = {0};
    *a = (struct view_agent){.play = play, .listener = -1};
    if (hr__launch_listen(&a->listener, path, &error))
        fail_msg("%s", error.message);
    assert_int_equal(pthread_create(&a->thread, NULL, serve, a), 0);
}

static void end(struct view_agent *a)
{
    pthread_join(a->thread, NULL);
    close(a->listener);
    unlink(path);
}

/* Checks the result of each request for each kind of answer. */
static int ask(enum hr__wire_type what, char **json, struct hr_error *error)
{
    *json = NULL;
    *error = (struct hr_error){0};
    if (what == HR__WIRE_STATUS)
        return hr_agent_status(path, json, error);
    if (what == HR__WIRE_TRACE)
        return hr_agent_trace(path, 0.01, json, error);
    return hr_agent_end(path, error);
}

static void test_answers(void **state)
{
    static const enum hr__wire_type types[] = {HR__WIRE_STATUS, HR__WIRE_TRACE, HR__WIRE_END};
    struct hr_error error;
    char *json;
    for (size_t i = 0; i < 3; i++) {
        struct view_agent a;
        begin(&a, i == 2 ? PLAY_END_SLOWLY : PLAY_ANSWER);
        uint64_t begun = hr__now_ns();
        if (ask(types[i], &json, &error))
            fail_msg("%s", error.message);
        if (i == 2)
            assert_true(hr__now_ns() - begun >= 100000000);
        end(&a);
        assert_int_equal(a.asked.type, types[i]);
        if (types[i] == HR__WIRE_TRACE)
            assert_true(a.asked.trace.seconds == 0.01);
        if (types[i] != HR__WIRE_END)
            assert_string_equal(json, text);
        hr_text_free(json);
    }
    /* The socket from its environment variable, and none at all. */
    struct view_agent a;
    begin(&a, PLAY_ANSWER);
    setenv("HEADRACE_AGENT", path, 1);
    assert_int_equal(hr_agent_status(NULL, &json, &error), 0);
    end(&a);
    hr_text_free(json);
    unsetenv("HEADRACE_AGENT");
    hr_text_free(NULL);
}

static void test_failures(void **state)
{
    static const struct {
        enum play play;
        enum hr__wire_type type;
        int code;
        const char *says;
    } cases[] = {
        {PLAY_REFUSE, HR__WIRE_TRACE, -EBUSY, "somebody else is recording"},
        {PLAY_REFUSE, HR__WIRE_STATUS, -EBUSY, "somebody else is recording"},
        {PLAY_REFUSE, HR__WIRE_END, -EBUSY, "somebody else is recording"},
        {PLAY_STRANGE, HR__WIRE_STATUS, -EPROTO, "another version"},
        {PLAY_SHORT, HR__WIRE_STATUS, -EPROTO, ""},
        {PLAY_NOISE, HR__WIRE_STATUS, -EPROTO, ""},
        {PLAY_DIE_FIRST, HR__WIRE_STATUS, -ECONNREFUSED, "has ended"},
        {PLAY_DIE_BEFORE, HR__WIRE_STATUS, -ECONNREFUSED, "ended before it answered"},
        {PLAY_DIE_BEFORE, HR__WIRE_END, 0, ""},
        {PLAY_MUTE, HR__WIRE_STATUS, -ETIMEDOUT, "does not answer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr_error error;
        struct view_agent a;
        char *json;
        begin(&a, cases[i].play);
        int r = ask(cases[i].type, &json, &error);
        if (r != cases[i].code || error.code != r || !strstr(error.message, cases[i].says))
            fail_msg("case %zu: %d (%s)", i, r, error.message);
        assert_null(json);
        end(&a);
    }
}

static void test_nobody(void **state)
{
    struct hr_error error;
    char *json;
    assert_int_equal(ask(HR__WIRE_STATUS, &json, &error), -ENOENT);
    assert_non_null(strstr(error.message, path));
    assert_int_equal(ask(HR__WIRE_END, &json, &error), -ENOENT);
    static const double odd[] = {0, -1, 601, (double)__builtin_nan("")};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        assert_int_equal(hr_agent_trace(path, odd[i], &json, &error), -EINVAL);
}

static int leaves_nothing(void **state)
{
    return hr__allocated(HR__TAG_AGENT) != 0;
}

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/headrace-view-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/agent.sock", folder);
    return 0;
}

static int remove_folder(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_answers, leaves_nothing),
        cmocka_unit_test_teardown(test_failures, leaves_nothing),
        cmocka_unit_test_teardown(test_nobody, leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
