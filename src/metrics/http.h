/*
 * A small HTTP server, an optional part: http_microhttpd.c if libmicrohttpd was found at build
 * time, else http_none.c.
 */
#ifndef HR_METRICS_HTTP_H
#define HR_METRICS_HTTP_H

#include <headrace/base.h>

/* The reply to a GET request. */
struct hr__http_reply {
    unsigned status;  /* HTTP status code */
    const char *type; /* content type of the body; static */
    char *body;       /* the server frees it with hr__free; NULL: none */
};

/* Called on the server's thread, one call at a time. */
typedef void (*hr__http_answer_fn)(void *arg, const char *path, struct hr__http_reply *reply);

struct hr__http {
    /* Serves a listening socket, which becomes the server's on success. Errors: -ENOTSUP,
     * -ENOMEM. */
    int (*start)(void **out, int listener, hr__http_answer_fn answer, void *arg,
                 struct hr_error *error);
    /* Accepts no more connections, so that the address is free. */
    void (*close)(void *server);
    /* Ends the server. Waits for a call of `answer` that is running. */
    void (*stop)(void *server);
    /* In a forked child, where the thread does not exist: closes the listening socket. Takes no
     * lock and frees nothing. */
    void (*abandon)(void *server);
};

extern const struct hr__http hr__http;

#endif
