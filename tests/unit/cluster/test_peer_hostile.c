/*
 * Servers that hang, trickle, lie or close the connection: a request ends with an error that names
 * the server, values that were not requested are ignored, no memory leaks, and the next request
 * uses a new connection and succeeds.
 */
#include "../test.h"

#include "cluster/peer.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MS UINT64_C(1000000)

/* Time limits: SHORT_MS for requests to a server that hangs; LONG_MS for requests that it answers,
 * more than any busy machine needs. */
#define SHORT_MS 150
#define LONG_MS  120000

/* What the server does with its first connection. It serves later ones correctly: "get" with END,
 * "set" with STORED, "stats" with nothing. */
struct script {
    const char *name;
    const char *answer; /* sent after the request; NULL: nothing */
    size_t length;      /* of the answer; 0: strlen */
    int repeat;         /* sends the answer until the client disconnects */
    int step_ms;        /* sends it one byte at a time, with this pause */
    int then_close;
    int deaf;    /* reads nothing */
    int no_wait; /* answers before the request */
    int get, put, about;
};

struct hostile_server {
    const struct script *script;
    char folder[32], path[64];
    int listener;
    atomic_int stop;
    pthread_t thread;
};

/* Returns non-zero if data can be read; 0 at the end of the test. */
static int readable(struct hostile_server *s, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (!atomic_load(&s->stop))
        if (poll(&p, 1, 10) > 0)
            return 1;
    return 0;
}

/* Sends until everything is sent, the client has disconnected, or the test is over. */
static int say(struct hostile_server *s, int fd, const char *text, size_t length, int step_ms)
{
    for (size_t i = 0; i < length && !atomic_load(&s->stop);) {
        ssize_t n = send(fd, text + i, step_ms ? 1 : length - i, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN)
            return -1;
        i += n > 0 ? (size_t)n : 0;
        if (n < 0 || step_ms)
            test_pause_ms(step_ms ? step_ms : 1);
    }
    return 0;
}

static void act(struct hostile_server *s, int fd)
{
    char request[65536];
    const struct script *script = s->script;
    if (!script->no_wait && !script->deaf) {
        if (!readable(s, fd) || recv(fd, request, sizeof request, 0) <= 0)
            return;
    }
    if (script->answer) {
        size_t length = script->length ? script->length : strlen(script->answer);
        do {
            if (say(s, fd, script->answer, length, script->step_ms))
                return;
        } while (script->repeat && !atomic_load(&s->stop));
    }
    if (script->then_close)
        return;
    /* Until the client disconnects. */
    while (!atomic_load(&s->stop)) {
        struct pollfd gone = {.fd = fd};
        if (script->deaf && poll(&gone, 1, 10) > 0)
            return;
        if (script->deaf)
            continue;
        if (!readable(s, fd) || recv(fd, request, sizeof request, 0) <= 0)
            return;
    }
}

static void serve(struct hostile_server *s, int fd)
{
    char request[65536];
    while (readable(s, fd)) {
        ssize_t n = recv(fd, request, sizeof request - 1, 0);
        if (n <= 0)
            return;
        request[n] = 0;
        const char *answer = !strncmp(request, "set", 3) ? "STORED\r\n" : "END\r\n";
        if (say(s, fd, answer, strlen(answer), 0))
            return;
    }
}

static void *run(void *arg)
{
    struct hostile_server *s = arg;
    for (int n = 0; readable(s, s->listener); n++) {
        int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        if (n)
            serve(s, fd);
        else
            act(s, fd);
        close(fd);
    }
    return NULL;
}

static void start(struct hostile_server *s, const struct script *script, int backlog)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    *s = (struct hostile_server){.script = script, .folder = "/tmp/hr-hostile-XXXXXX"};
    assert_non_null(mkdtemp(s->folder));
    snprintf(s->path, sizeof s->path, "%s/s", s->folder);
    strcpy(at.sun_path, s->path);
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->listener, backlog), 0);
    if (script)
        assert_int_equal(pthread_create(&s->thread, NULL, run, s), 0);
}

static void stop(struct hostile_server *s)
{
    atomic_store(&s->stop, 1);
    if (s->script)
        pthread_join(s->thread, NULL);
    close(s->listener);
    unlink(s->path);
    rmdir(s->folder);
}

static struct hr__peer_client *client_of(const struct hostile_server *s, const char *user)
{
    const struct hr__peer_wish wish = {.address = s->path, .user = user, .password = "secret"};
    struct hr__peer_client *client = NULL;
    assert_int_equal(hr__peer_ops.open(&client, &wish, NULL), 0);
    return client;
}

enum verb { GET, PUT, ABOUT };

/* Makes one request with a time limit. Frees the received values; *values is their number. */
static int request(struct hr__peer_client *client, enum verb verb, int ms, struct hr_error *error,
                   int *values)
{
    static uint8_t bytes[4 << 20];
    uint64_t deadline = hr__now_ns() + (uint64_t)ms * MS;
    struct hr__peer_value asked[2] = {{.key = "abc"}, {.key = "def"}};
    struct hr__peer_store stores[2] = {
        {.key = "abc", .bytes = bytes, .length = sizeof bytes, .tail = "", .result = 1},
        {.key = "def", .bytes = bytes, .length = 1, .tail = "", .result = 1}};
    struct hr__peer_about about;
    int r;
    *values = 0;
    if (verb == ABOUT)
        return hr__peer_ops.about(client, &about, deadline, error);
    if (verb == PUT) {
        r = hr__peer_ops.put(client, stores, 2, deadline, error);
        /* Each store has a result. */
        assert_true(stores[0].result <= 0 && stores[1].result <= 0);
        *values = !stores[0].result + !stores[1].result;
        return r;
    }
    r = hr__peer_ops.get(client, asked, 2, deadline, error);
    for (int i = 0; i < 2; i++) {
        *values += asked[i].bytes != NULL;
        hr__free(asked[i].bytes);
    }
    return r;
}

static void play(const struct script *script, enum verb verb, const char *user, int expected)
{
    struct hostile_server s;
    struct hr_error error = {0, ""};
    int values, r;
    start(&s, script, 16);
    struct hr__peer_client *client = client_of(&s, user);
    r = request(client, verb, expected == -ETIMEDOUT ? SHORT_MS : LONG_MS, &error, &values);
    if (r != expected || !strstr(error.message, s.path) || strstr(error.message, "secret") ||
        values > 1)
        fail_msg("%s: %d instead of %d, %d values, \"%s\"", script->name, r, expected, values,
                 error.message);
    /* The server answers again, and so the client works, on a new connection. */
    for (int again = 0; again < 2; again++) {
        if (verb == PUT || user)
            break;
        r = request(client, GET, LONG_MS, &error, &values);
        if (r || values)
            fail_msg("%s: then %d, \"%s\"", script->name, r, error.message);
    }
    hr__peer_ops.close(&client);
    stop(&s);
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
}

#define KEY_335                                                                                    \
    "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"         \
    "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"         \
    "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"         \
    "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
#define BYTES_64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct script scripts[] = {
    {"hangs", NULL, .get = -ETIMEDOUT, .put = -ETIMEDOUT, .about = -ETIMEDOUT},
    {"reads nothing", NULL, .deaf = 1, .get = -ETIMEDOUT, .put = -ETIMEDOUT},
    {"hangs in a value", "VALUE abc 0 100000\r\nhello", .get = -ETIMEDOUT},
    {"hangs in a line", "VALUE ab", .get = -ETIMEDOUT, .put = -ETIMEDOUT},
    {"trickles", "VALUE abc 0 100000\r\n" BYTES_64, .repeat = 1, .step_ms = 10, .get = -ETIMEDOUT},
    {"trickles a line", "STAT a b\r\n", .repeat = 1, .step_ms = 10, .about = -ETIMEDOUT},
    {"closes", NULL, .then_close = 1, .get = -ECONNRESET, .about = -ECONNRESET},
    {"closes at once", NULL, .then_close = 1, .no_wait = 1, .get = -ECONNRESET},
    {"closes in a value", "VALUE abc 0 1000\r\nhello", .then_close = 1, .get = -ECONNRESET},
    {"garbage", "HTTP/1.1 400 Bad Request\r\n\r\n", .get = -EPROTO, .put = -EPROTO,
     .about = -EPROTO},
    {"zeros", "\0\0\0\0\0\n\0\0\n", 9, .get = -EPROTO, .put = -EPROTO, .about = -EPROTO},
    {"endless line", BYTES_64, .repeat = 1, .get = -EPROTO, .put = -EPROTO, .about = -EPROTO},
    {"endless lines", "STAT a b\r\n", .repeat = 1, .get = -EPROTO, .put = -EPROTO,
     .about = -EPROTO},
    {"long key", "VALUE " KEY_335 " 0 5\r\nhello\r\nEND\r\n", .get = -EPROTO, .put = -EPROTO},
    {"2^63", "VALUE abc 0 9223372036854775808\r\nhello\r\nEND\r\n", .get = -EPROTO},
    {"2^64 - 2", "VALUE abc 0 18446744073709551614\r\nhello\r\nEND\r\n", .get = -EPROTO},
    {"2^64", "VALUE abc 0 18446744073709551616\r\nhello\r\nEND\r\n", .get = -EPROTO},
    {"2^30", "VALUE abc 0 1073741824\r\nhello", .get = -ETIMEDOUT},
    {"-1", "VALUE abc 0 -1\r\nhello\r\nEND\r\n", .get = -EPROTO},
    {"no length", "VALUE abc 0\r\nhello\r\nEND\r\n", .get = -EPROTO},
    {"no key", "VALUE \r\nhello\r\nEND\r\n", .get = -EPROTO},
    {"words behind", "VALUE abc 0 5 1 2\r\nhello\r\nEND\r\n", .get = -EPROTO},
    {"wrong key", "VALUE xyz 0 5\r\nhello\r\nEND\r\n", .get = -EPROTO},
    {"twice", "VALUE abc 0 5\r\nhello\r\nVALUE abc 0 5\r\nhello\r\nEND\r\n", .get = -EPROTO},
    {"longer than said", "VALUE abc 0 5\r\nhello!\r\nEND\r\n", .get = -EPROTO},
    {"shorter than said", "VALUE abc 0 5\r\nhell\r\nEND\r\n", .get = -EPROTO},
    {"VERSION", "VERSION\r\n", .get = -EPROTO, .put = -EPROTO, .about = -EPROTO},
    {"error", "SERVER_ERROR temporary failure\r\n", .get = -EPROTO, .put = -EPROTO,
     .about = -EPROTO},
    {"unknown", "ERROR\r\n", .get = -EPROTO, .put = -EPROTO, .about = -EPROTO},
    {"too many", "ERROR Too many open connections\r\n", .then_close = 1, .get = -ECONNREFUSED},
    {"user", "CLIENT_ERROR unauthenticated\r\n", .get = -EACCES, .put = -EACCES, .about = -EACCES},
    {"one stored", "STORED\r\n", .put = -ETIMEDOUT},
    {"not stored", "NOT_STORED\r\n", .put = -EPROTO},
};

static void play_all(const struct script *list, size_t count, enum verb verb, const char *user)
{
    for (size_t i = 0; i < count; i++) {
        const struct script *s = &list[i];
        int expected = verb == GET ? s->get : verb == PUT ? s->put : s->about;
        if (expected)
            play(s, verb, user, expected);
    }
}

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void test_get(void **state)
{
    play_all(scripts, COUNT(scripts), GET, NULL);
}

static void test_put(void **state)
{
    play_all(scripts, COUNT(scripts), PUT, NULL);
}

static void test_about(void **state)
{
    play_all(scripts, COUNT(scripts), ABOUT, NULL);
}

/* The answer to the question whether the server asks for a login. */
#define ASKS "CLIENT_ERROR unauthenticated\r\n"

static const struct script logins[] = {
    {"hangs", NULL, .get = -ETIMEDOUT, .put = -ETIMEDOUT, .about = -ETIMEDOUT},
    {"hangs before the login", ASKS, .get = -ETIMEDOUT, .put = -ETIMEDOUT, .about = -ETIMEDOUT},
    {"hangs behind the login", ASKS "STORED\r\n", .get = -ETIMEDOUT, .put = -ETIMEDOUT,
     .about = -ETIMEDOUT},
    {"trickles", ASKS "STORED\r\nVALUE abc 0 100000\r\n" BYTES_64, .step_ms = 4, .get = -ETIMEDOUT},
    {"refuses", ASKS "CLIENT_ERROR authentication failure\r\n", .get = -EACCES, .put = -EACCES,
     .about = -EACCES},
    {"asks for none", "END\r\n", .get = -EACCES, .put = -EACCES, .about = -EACCES},
    {"asks again", ASKS ASKS, .get = -EACCES, .put = -EACCES, .about = -EACCES},
    {"closes", NULL, .then_close = 1, .get = -ECONNRESET, .put = -ECONNRESET, .about = -ECONNRESET},
    {"closes before the login", ASKS, .then_close = 1, .get = -ECONNRESET},
    {"errors", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\n", .get = -EPROTO, .put = -EPROTO,
     .about = -EPROTO},
    {"garbage", BYTES_64, .repeat = 1, .get = -EPROTO, .put = -EPROTO, .about = -EPROTO},
    {"repeats the login", ASKS "CLIENT_ERROR me secret\r\n", .get = -EACCES, .put = -EACCES},
    {"fails with the login", ASKS "SERVER_ERROR me secret\r\n", .get = -EPROTO, .put = -EPROTO},
    {"repeats it endlessly", ASKS "me secret" BYTES_64, .repeat = 1, .get = -EPROTO, .put = -EPROTO,
     .about = -EPROTO},
    {"a value", "VALUE abc 0 5\r\nhello\r\nEND\r\n", .get = -EPROTO},
    {"a value for the login", ASKS "VALUE abc 0 5\r\nhello\r\nEND\r\n", .get = -EPROTO},
    {"one stored", ASKS "STORED\r\nSTORED\r\n", .put = -ETIMEDOUT},
    {"a wrong key", ASKS "STORED\r\nVALUE xyz 0 5\r\nhello\r\nEND\r\n", .get = -EPROTO},
};

static void test_login(void **state)
{
    play_all(logins, COUNT(logins), GET, "me");
    play_all(logins, COUNT(logins), PUT, "me");
    play_all(logins, COUNT(logins), ABOUT, "me");
}

/* A server that supports only the binary protocol closes connections: the message says what to
 * do. */
static void test_binary(void **state)
{
    static const struct script script = {.name = "closes", .then_close = 1};
    for (int with_user = 0; with_user < 2; with_user++) {
        struct hostile_server s;
        struct hr_error error = {0, ""};
        int values;
        start(&s, &script, 16);
        struct hr__peer_client *client = client_of(&s, with_user ? "me" : NULL);
        assert_int_equal(request(client, GET, LONG_MS, &error, &values), -ECONNRESET);
        assert_non_null(strstr(error.message, "use -Y FILE instead"));
        hr__peer_ops.close(&client);
        stop(&s);
    }
}

/* Bytes after a valid answer are not part of the next one. */
static void test_too_much(void **state)
{
    static const struct script script = {.name = "more",
                                         .answer = "END\r\nVALUE abc 0 5\r\nwrong\r\nEND\r\n"};
    struct hostile_server s;
    struct hr_error error = {0, ""};
    int values;
    start(&s, &script, 16);
    struct hr__peer_client *client = client_of(&s, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(request(client, GET, LONG_MS, &error, &values), 0);
        assert_int_equal(values, 0);
    }
    hr__peer_ops.close(&client);
    stop(&s);
}

/* A server that does not accept: connections wait in its backlog until it is full. */
static void test_no_accept(void **state)
{
    struct hostile_server s;
    struct hr__peer_client *clients[6];
    struct hr_error error = {0, ""};
    int values;
    start(&s, NULL, 1);
    for (int i = 0; i < 6; i++) {
        clients[i] = client_of(&s, NULL);
        assert_int_equal(request(clients[i], GET, SHORT_MS, &error, &values), -ETIMEDOUT);
    }
    for (int i = 0; i < 6; i++)
        hr__peer_ops.close(&clients[i]);
    stop(&s);
}

/* Allocations that fail anywhere are errors. */
static void test_no_memory(void **state)
{
    static const struct script scripted[] = {
        [GET] = {.name = "good", .answer = "VALUE abc 0 5\r\nhello\r\nEND\r\n"},
        [PUT] = {.name = "good", .answer = "STORED\r\nSTORED\r\n"}};
    for (int verb = GET; verb <= PUT; verb++) {
        int failed = 0, r = -1;
        for (uint64_t n = 1; r && n < 20; n++) {
            struct hostile_server s;
            struct hr_error error = {0, ""};
            int values;
            start(&s, &scripted[verb], 16);
            struct hr__peer_client *client = client_of(&s, NULL);
            hr__alloc_fail_at(n, 0);
            r = request(client, (enum verb)verb, LONG_MS, &error, &values);
            hr__alloc_fail_at(0, 0);
            assert_true(!r || r == -ENOMEM);
            failed += r == -ENOMEM;
            hr__peer_ops.close(&client);
            stop(&s);
        }
        assert_int_equal(r, 0);
        assert_int_equal(failed, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_get),       cmocka_unit_test(test_put),
        cmocka_unit_test(test_about),     cmocka_unit_test(test_login),
        cmocka_unit_test(test_binary),    cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_no_accept), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
