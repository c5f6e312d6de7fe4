/*
 * HTTP exchanges, many at a time on one thread: the transport below the client of objects (http.h).
 *
 * libcurl does the work (web_curl.c): connections are kept and reused, TLS certificates verified,
 * proxies taken from the environment. Without libcurl, web_none.c stands in, and creating fails;
 * a package looks for it when it runs (curl_late.h).
 * Signing, retries and the meaning of answers are the caller's.
 */
#ifndef HR_STORAGE_WEB_H
#define HR_STORAGE_WEB_H

#include "storage/sign.h"

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

struct hr__web;

/* How an exchange ended. */
enum hr__web_end {
    HR__WEB_ANSWERED = 0, /* `status` and the whole body came */
    HR__WEB_NO_NAME,      /* the host's name was not found */
    HR__WEB_NO_CONNECTION,
    HR__WEB_NO_PROXY,
    HR__WEB_NO_TLS,  /* the certificate or the handshake was refused */
    HR__WEB_SLOW,    /* no connection in time, or nothing came for a while */
    HR__WEB_BROKEN,  /* the connection ended before or within the answer */
    HR__WEB_REFUSED, /* the caller's `part` refused the body */
    HR__WEB_AWAY,    /* a redirect leads from https to http, or there are too many */
    HR__WEB_OTHER,
};

/* One request and its answer. The caller owns it and keeps it until it is done or stopped. */
struct hr__web_exchange {
    const char *method; /* "GET", "PUT", "POST", "DELETE" */
    const char *url;    /* escaped */
    const struct hr__sign_pair *headers;
    size_t header_count;
    const void *body; /* of PUT and POST */
    size_t body_bytes;
    unsigned connect_ms; /* limit for making a connection */
    unsigned stall_ms;   /* limit for a time without any progress, at least 100 */
    int follow;          /* non-zero: follow redirects, but not from https to http */
    int is_near;         /* non-zero: no proxy is between */

    /* Called with each header of an answer, the name in lower case; and, as "", when another answer
     * begins (a redirect). */
    void (*header)(struct hr__web_exchange *exchange, const char *name, const char *value);
    /* Called with a piece of the body. Non-zero ends the exchange. */
    int (*part)(struct hr__web_exchange *exchange, const void *bytes, size_t length);

    int status; /* of the answer; during `part` too */
    enum hr__web_end end;
    char detail[160];  /* the transport's own words on an exchange that was not answered */
    uint64_t moved_ns; /* when something last came or went: hr__now_ns */
    uint64_t sent;     /* bytes of the body */

    struct hr__web_exchange *next;
    void *handle; /* the transport's */
};

/* Makes a transport for one thread. `certificates`: a file of certificates to trust, or NULL for
 * the system's. On success the caller owns *out. Errors: -ENOTSUP: there is no libcurl; -ENOMEM;
 * those of epoll. */
int hr__web_create(struct hr__web **out, const char *certificates, struct hr_error *error);

/* Ends all exchanges. In a forked child it only forgets the parent's connections. Accepts NULL. */
void hr__web_destroy(struct hr__web **web);

/* Begins an exchange. Errors: -ENOMEM. */
int hr__web_start(struct hr__web *web, struct hr__web_exchange *exchange);

/* Stops an exchange that is not done: it is the caller's again. */
void hr__web_stop(struct hr__web *web, struct hr__web_exchange *exchange);

/* Advances the exchanges; waits up to `timeout_ns` (0: not at all, < 0: without limit) for one to
 * be done. Returns those that are, linked by `next`, or NULL. */
struct hr__web_exchange *hr__web_wait(struct hr__web *web, int64_t timeout_ns);

/* An answer that is kept in memory, for small texts. */
struct hr__web_answer {
    int status;
    char *text; /* 0-terminated; the caller frees it with hr__free */
    size_t length;
};

/* Runs one exchange alone and keeps the answer's body, of at most 1 MiB. `exchange` has the
 * request; its callbacks are not used. Errors: -EIO with the transport's words. */
int hr__web_ask(struct hr__web *web, struct hr__web_exchange *exchange,
                struct hr__web_answer *answer, struct hr_error *error);

#endif
