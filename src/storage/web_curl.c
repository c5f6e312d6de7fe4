/*
 * The transport with libcurl's multi interface; see web.h.
 *
 * Its socket interface is used, with epoll: the cost of a wake-up does not grow with the number of
 * exchanges, as it does with curl_multi_perform, which asks the kernel about each of them.
 */
#include "storage/web.h"

#include "base/clock.h"
#include "base/draft.h"
#include "base/error.h"
#include "base/memory.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#ifdef HR_CURL_AT_RUNTIME
#include "storage/curl_late.h"
/* An older libcurl than that of the headers may come. */
#define SPEAKS_NAMES 0
#else
static int hr__curl_load(struct hr_error *error)
{
    (void)error;
    return 0;
}
#define SPEAKS_NAMES (LIBCURL_VERSION_NUM >= 0x075500)
#endif

/* The most idle connections kept. */
#define KEPT_CONNECTIONS 512

/* The buffers of an exchange. What is received is copied from there: larger ones take fewer system
 * calls, but those of many exchanges do not fit into the processor's cache. */
#define RECEIVE_BYTES (64L << 10)
#define SEND_BYTES    (256L << 10)

/* Handles kept for further exchanges. */
#define KEPT_HANDLES 512

#define EVENTS      64
#define NAME_BYTES  64
#define VALUE_BYTES 2048

struct handle {
    CURL *easy;
    struct curl_slist *headers;
    struct hr__web_exchange *exchange;
    int in_head; /* the last line of the headers has not come */
    char problem[CURL_ERROR_SIZE];
    struct handle *next;
};

struct hr__web {
    CURLM *multi;
    int epoll;
    pid_t owner;
    uint64_t timer_ns;   /* when libcurl wants to be called; 0: not */
    struct handle *idle; /* for reuse */
    unsigned idle_count;
    char *certificates;
    struct hr__web_exchange *done, **done_end;
};

/* ---- signals: a broken TLS connection must not end the program ---- */

struct pipe_guard {
    sigset_t before;
    int was_pending, is_on;
};

static void guard_pipe(struct pipe_guard *guard)
{
    sigset_t pipe, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    guard->was_pending = sigismember(&pending, SIGPIPE);
    guard->is_on =
        !pthread_sigmask(SIG_BLOCK, &pipe, &guard->before) && !sigismember(&guard->before, SIGPIPE);
}

static void unguard_pipe(const struct pipe_guard *guard)
{
    sigset_t pipe, pending;
    if (!guard->is_on)
        return;
    sigpending(&pending);
    if (!guard->was_pending && sigismember(&pending, SIGPIPE)) {
        const struct timespec now = {0};
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
            ;
    }
    pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
}

/* ---- libcurl's callbacks ---- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *self, void *known)
{
    struct hr__web *web = self;
    struct epoll_event event = {.data.fd = fd};
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(web->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    event.events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
    epoll_ctl(web->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
    curl_multi_assign(web->multi, fd, web);
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *self)
{
    struct hr__web *web = self;
    (void)multi;
    web->timer_ns = timeout_ms < 0 ? 0 : hr__now_ns() + (uint64_t)timeout_ms * 1000000;
    return 0;
}

/* Passes a header on, with its name in lower case and its value without blanks around it. */
static void pass_header(struct hr__web_exchange *x, const char *line, size_t length)
{
    char name[NAME_BYTES], value[VALUE_BYTES];
    const char *colon = memchr(line, ':', length);
    if (!colon || (size_t)(colon - line) >= sizeof name)
        return;
    size_t n = (size_t)(colon - line);
    for (size_t i = 0; i < n; i++)
        name[i] = (char)(line[i] >= 'A' && line[i] <= 'Z' ? line[i] + 32 : line[i]);
    name[n] = 0;
    const char *at = colon + 1, *end = line + length;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (unsigned char)end[-1] <= ' ')
        end--;
    if ((size_t)(end - at) >= sizeof value)
        return;
    memcpy(value, at, (size_t)(end - at));
    value[end - at] = 0;
    x->header(x, name, value);
}

static size_t on_header(char *line, size_t one, size_t length, void *self)
{
    struct handle *h = self;
    struct hr__web_exchange *x = h->exchange;
    (void)one;
    x->moved_ns = hr__now_ns();
    if (length > 5 && !memcmp(line, "HTTP/", 5)) {
        h->in_head = 1;
        x->header(x, "", "");
    } else if (line[0] == '\r' || line[0] == '\n') {
        h->in_head = 0;
    } else {
        pass_header(x, line, length);
    }
    return length;
}

static size_t on_part(char *bytes, size_t one, size_t length, void *self)
{
    struct handle *h = self;
    struct hr__web_exchange *x = h->exchange;
    long status = 0;
    (void)one;
    x->moved_ns = hr__now_ns();
    curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    x->status = (int)status;
    return x->part(x, bytes, length) ? CURL_WRITEFUNC_ERROR : length;
}

static int on_progress(void *self, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                       curl_off_t up)
{
    struct hr__web_exchange *x = ((struct handle *)self)->exchange;
    (void)down_all, (void)down, (void)up_all;
    if (x && (uint64_t)up > x->sent) {
        x->sent = (uint64_t)up;
        x->moved_ns = hr__now_ns();
    }
    return 0;
}

/* ---- handles ---- */

static void free_handle(struct handle *h)
{
    if (!h)
        return;
    if (h->easy)
        curl_easy_cleanup(h->easy);
    curl_slist_free_all(h->headers);
    hr__free(h);
}

/* What is the same in all exchanges. */
static int set_up(struct hr__web *web, struct handle *h)
{
    int bad = 0;
    CURL *e = h->easy;
    bad |= curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    bad |= curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
    bad |= curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    bad |= curl_easy_setopt(e, CURLOPT_BUFFERSIZE, RECEIVE_BYTES);
    bad |= curl_easy_setopt(e, CURLOPT_MAXREDIRS, 5L);
    bad |= curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    bad |= curl_easy_setopt(e, CURLOPT_HEADERDATA, h);
    bad |= curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_part);
    bad |= curl_easy_setopt(e, CURLOPT_WRITEDATA, h);
    bad |= curl_easy_setopt(e, CURLOPT_ERRORBUFFER, h->problem);
    bad |= curl_easy_setopt(e, CURLOPT_PRIVATE, h);
    bad |= curl_easy_setopt(e, CURLOPT_XFERINFOFUNCTION, on_progress);
    bad |= curl_easy_setopt(e, CURLOPT_XFERINFODATA, h);
    (void)curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, SEND_BYTES); /* 7.61 has none */
#if SPEAKS_NAMES
    bad |= curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    bad |= curl_easy_setopt(e, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    if (web->certificates)
        bad |= curl_easy_setopt(e, CURLOPT_CAINFO, web->certificates);
    return bad ? -ENOMEM : 0;
}

static struct handle *take_handle(struct hr__web *web)
{
    struct handle *h = web->idle;
    if (h) {
        web->idle = h->next;
        web->idle_count--;
        return h;
    }
    h = hr__alloc(HR__TAG_STORAGE, 1, sizeof *h);
    if (h && (!(h->easy = curl_easy_init()) || set_up(web, h))) {
        free_handle(h);
        h = NULL;
    }
    return h;
}

static void put_handle(struct hr__web *web, struct handle *h)
{
    curl_slist_free_all(h->headers);
    h->headers = NULL;
    h->exchange = NULL;
    if (web->idle_count >= KEPT_HANDLES) {
        free_handle(h);
        return;
    }
    h->next = web->idle;
    web->idle = h;
    web->idle_count++;
}

static int set_headers(struct handle *h, const struct hr__web_exchange *x)
{
    for (size_t i = 0; i < x->header_count; i++) {
        struct hr__draft line = {0};
        hr__draft_print(&line, "%s: %s", x->headers[i].name, x->headers[i].value);
        struct curl_slist *more = line.failed ? NULL : curl_slist_append(h->headers, line.text);
        hr__draft_clear(&line);
        if (!more)
            return -ENOMEM;
        h->headers = more;
    }
    return 0;
}

/* Sets where redirects may lead to. */
static int set_redirects(CURL *e, const struct hr__web_exchange *x)
{
    int is_tls = !strncasecmp(x->url, "https:", 6), bad = 0;
#if SPEAKS_NAMES
    bad |= curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS_STR, is_tls ? "https" : "http,https");
#else
    bad |= curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS,
                            (long)(is_tls ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    bad |= curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, (long)(x->follow != 0));
    return bad;
}

/* Sets what differs between exchanges. */
static int set_request(struct handle *h, const struct hr__web_exchange *x)
{
    CURL *e = h->easy;
    int is_get = !strcmp(x->method, "GET"), bad = set_headers(h, x) | set_redirects(e, x);
    bad |= curl_easy_setopt(e, CURLOPT_URL, x->url);
    bad |= curl_easy_setopt(e, CURLOPT_HTTPGET, 1L);
    bad |= curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, is_get ? NULL : x->method);
    if (x->body) {
        bad |= curl_easy_setopt(e, CURLOPT_POST, 1L);
        bad |= curl_easy_setopt(e, CURLOPT_POSTFIELDS, x->body);
        bad |= curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)x->body_bytes);
    }
    bad |= curl_easy_setopt(e, CURLOPT_NOPROGRESS, (long)!x->body);
    bad |= curl_easy_setopt(e, CURLOPT_HTTPHEADER, h->headers);
    bad |= curl_easy_setopt(e, CURLOPT_PROXY, x->is_near ? "" : NULL);
    bad |= curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)x->connect_ms);
    return bad ? -ENOMEM : 0;
}

/* ---- the interface ---- */

/* What became of libcurl. It is a variable of the process because libcurl is: curl_global_init is
 * called once, and a library that was loaded stays. Constant after pthread_once. */
static struct {
    int result;
    struct hr_error error;
} library;

static void init_library(void)
{
    library.result = hr__curl_load(&library.error);
    if (!library.result)
        curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* Returns the file of certificates to trust if libcurl's own is not on this machine: a package
 * brings a library that was built on another. NULL: libcurl's own. */
static const char *find_certificates(void)
{
    static const char *const usual[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
                                        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"};
    const char *own = NULL;
#if LIBCURL_VERSION_NUM >= 0x074600
    const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);
    own = info->age >= CURLVERSION_SEVENTH ? info->cainfo : NULL;
#endif
    if (own && !access(own, R_OK))
        return NULL;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (!access(usual[i], R_OK))
            return usual[i];
    return NULL;
}

int hr__web_create(struct hr__web **out, const char *certificates, struct hr_error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_library);
    *out = NULL;
    if (library.result)
        return hr__fail(error, library.result, "%s", library.error.message);
    struct hr__web *web = hr__alloc(HR__TAG_STORAGE, 1, sizeof *web);
    if (!web)
        return hr__fail(error, -ENOMEM, "out of memory for connections");
    web->owner = getpid();
    web->done_end = &web->done;
    web->epoll = epoll_create1(EPOLL_CLOEXEC);
    int r = web->epoll < 0 ? -errno : 0;
    if (!certificates)
        certificates = find_certificates();
    if (!r && certificates && !(web->certificates = hr__strdup(HR__TAG_STORAGE, certificates)))
        r = -ENOMEM;
    if (!r && !(web->multi = curl_multi_init()))
        r = -ENOMEM;
    if (r) {
        hr__web_destroy(&web);
        return hr__fail(error, r, "cannot prepare connections: %s", hr__errno_text(r));
    }
    curl_multi_setopt(web->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(web->multi, CURLMOPT_SOCKETDATA, web);
    curl_multi_setopt(web->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(web->multi, CURLMOPT_TIMERDATA, web);
    curl_multi_setopt(web->multi, CURLMOPT_MAXCONNECTS, (long)KEPT_CONNECTIONS);
    *out = web;
    return 0;
}

void hr__web_destroy(struct hr__web **web)
{
    struct hr__web *w = *web;
    *web = NULL;
    if (!w)
        return;
    if (w->epoll >= 0)
        close(w->epoll);
    /* libcurl would say goodbye on connections that the parent still uses */
    if (w->owner == getpid()) {
        struct pipe_guard guard;
        guard_pipe(&guard);
        while (w->idle) {
            struct handle *h = w->idle;
            w->idle = h->next;
            free_handle(h);
        }
        if (w->multi)
            curl_multi_cleanup(w->multi);
        unguard_pipe(&guard);
    }
    hr__free(w->certificates);
    hr__free(w);
}

int hr__web_start(struct hr__web *web, struct hr__web_exchange *x)
{
    struct handle *h = take_handle(web);
    if (!h)
        return -ENOMEM;
    h->exchange = x;
    h->problem[0] = 0;
    h->in_head = 0;
    x->handle = h;
    x->status = 0;
    x->end = HR__WEB_ANSWERED;
    x->detail[0] = 0;
    x->moved_ns = hr__now_ns();
    x->sent = 0;
    if (!set_request(h, x) && !curl_multi_add_handle(web->multi, h->easy))
        return 0;
    x->handle = NULL;
    put_handle(web, h);
    return -ENOMEM;
}

void hr__web_stop(struct hr__web *web, struct hr__web_exchange *x)
{
    struct handle *h = x->handle;
    if (!h)
        return;
    struct pipe_guard guard;
    guard_pipe(&guard);
    curl_multi_remove_handle(web->multi, h->easy);
    unguard_pipe(&guard);
    x->handle = NULL;
    put_handle(web, h);
}

static enum hr__web_end end_of(CURLcode code)
{
    switch (code) {
    case CURLE_OK:
        return HR__WEB_ANSWERED;
    case CURLE_COULDNT_RESOLVE_HOST:
        return HR__WEB_NO_NAME;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_PROXY:
        return HR__WEB_NO_PROXY;
    case CURLE_COULDNT_CONNECT:
        return HR__WEB_NO_CONNECTION;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_USE_SSL_FAILED:
        return HR__WEB_NO_TLS;
    case CURLE_OPERATION_TIMEDOUT:
        return HR__WEB_SLOW;
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_WEIRD_SERVER_REPLY:
        return HR__WEB_BROKEN;
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return HR__WEB_AWAY;
    case CURLE_WRITE_ERROR:
        return HR__WEB_REFUSED;
    default:
        return HR__WEB_OTHER;
    }
}

static void finish(struct hr__web *web, struct handle *h, CURLcode code)
{
    struct hr__web_exchange *x = h->exchange;
    long status = 0, tunnel = 0;
    curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(h->easy, CURLINFO_HTTP_CONNECTCODE, &tunnel);
    x->status = (int)status;
    x->end = end_of(code);
    if (code != CURLE_OK && tunnel >= 300) /* a proxy makes no way to the server */
        x->end = HR__WEB_NO_PROXY;
    /* libcurl's word for bytes that are no answer of HTTP, too */
    if (code == CURLE_UNSUPPORTED_PROTOCOL && status / 100 != 3)
        x->end = HR__WEB_BROKEN;
    /* an answer that ends within its headers is one without a body to libcurl */
    if (code == CURLE_OK && h->in_head)
        x->end = HR__WEB_BROKEN;
    if (x->end)
        hr__printable(x->detail, sizeof x->detail,
                      h->problem[0] ? h->problem : curl_easy_strerror(code));
    curl_multi_remove_handle(web->multi, h->easy);
    x->handle = NULL;
    put_handle(web, h);
    x->next = NULL;
    *web->done_end = x;
    web->done_end = &x->next;
}

static void collect(struct hr__web *web)
{
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(web->multi, &left));) {
        char *h = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &h);
        finish(web, (struct handle *)h, code);
    }
}

/* Returns how long epoll may wait, in ms. */
static int wait_ms(const struct hr__web *web, uint64_t until_ns, int has_end)
{
    uint64_t end_ns = until_ns, now_ns = hr__now_ns();
    if (web->timer_ns && (!has_end || web->timer_ns < end_ns)) {
        end_ns = web->timer_ns;
        has_end = 1;
    }
    if (!has_end)
        return -1;
    uint64_t ms = end_ns > now_ns ? (end_ns - now_ns + 999999) / 1000000 : 0;
    return ms < 60000 ? (int)ms : 60000;
}

static void turn(struct hr__web *web, int ms)
{
    struct epoll_event events[EVENTS];
    int running, n = epoll_wait(web->epoll, events, EVENTS, ms);
    for (int i = 0; i < n; i++) {
        uint32_t e = events[i].events;
        int what = (e & EPOLLIN ? CURL_CSELECT_IN : 0) | (e & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (e & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        curl_multi_socket_action(web->multi, events[i].data.fd, what, &running);
    }
    if (web->timer_ns && hr__now_ns() >= web->timer_ns) {
        web->timer_ns = 0;
        curl_multi_socket_action(web->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
}

struct hr__web_exchange *hr__web_wait(struct hr__web *web, int64_t timeout_ns)
{
    uint64_t until_ns = timeout_ns < 0 ? 0 : hr__now_ns() + (uint64_t)timeout_ns;
    struct pipe_guard guard;
    guard_pipe(&guard);
    do {
        turn(web, web->done ? 0 : wait_ms(web, until_ns, timeout_ns >= 0));
        collect(web);
    } while (!web->done && (timeout_ns < 0 || hr__now_ns() < until_ns));
    unguard_pipe(&guard);
    struct hr__web_exchange *done = web->done;
    web->done = NULL;
    web->done_end = &web->done;
    return done;
}
