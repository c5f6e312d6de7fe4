/*
 * A small HTTP server, an optional part: http_microhttpd.c where libmicrohttpd was there at
 * build time, http_none.c where it was not.
 */
#ifndef HR_AGENT_SERVER_HTTP_H
#define HR_AGENT_SERVER_HTTP_H

#include <headrace/base.h>

/* What is answered to GET. */
struct hr__http_reply {
    unsigned status;  /* of HTTP */
    const char *type; /* of the body; static */
    char *body;       /* freed with hr__free by the server; NULL: none */
};

/* Called on the server's thread, one call at a time. */
typedef void (*hr__http_answer_fn)(void *arg, const char *path, struct hr__http_reply *reply);

struct hr__http {
    /* Serves the listening socket, which becomes its own on success. Errors: -ENOTSUP,
     * -ENOMEM. */
    int (*start)(void **out, int listener, hr__http_answer_fn answer, void *arg,
                 struct hr_error *error);
    /* Waits for the call in hand. */
    void (*stop)(void *server);
};

extern const struct hr__http hr__http;

#endif
