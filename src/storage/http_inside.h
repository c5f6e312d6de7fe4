/*
 * The inside of the client of objects: http_state.c (what its threads share: settings, credentials,
 * limits), http_call.c (one request and what its answer means), http_channel.c (many requests of
 * one thread); above them http.c, http_reader.c and http_list.c, which the library calls.
 */
#ifndef HR_STORAGE_HTTP_INSIDE_H
#define HR_STORAGE_HTTP_INSIDE_H

#include "base/draft.h"
#include "base/memory.h"
#include "storage/credentials.h"
#include "storage/http.h"
#include "storage/http_upload.h"
#include "storage/pace.h"
#include "storage/sign.h"
#include "storage/url.h"
#include "storage/web.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/* Where the objects of a bucket are. Constant once it is in a client's list. */
struct hr__http_place {
    char bucket[256];
    bool gs;
    char region[64];
    char
        *base; /* "https://bucket.s3.eu-west-1.amazonaws.com" or "http://host:9000/bucket"; owned */
    struct hr__http_place *older;
};

/* Settings of a client, from the environment and the profile. Constant. */
struct hr__http_settings {
    char *endpoint; /* of S3: scheme and host; NULL: AWS */
    char *gs_endpoint;
    char region[64]; /* "": not set */
    int path_style;  /* -1: as the endpoint needs */
    char *certificates;
    uint64_t deadline_ns;                 /* for one read with all its retries */
    unsigned stall_ms;                    /* without a byte: the request is given up */
    double read_usd, write_usd, list_usd; /* the price of a request */
};

#define HR__HTTP_IDLE 16

struct hr__http_channel;

struct hr__http_client {
    atomic_long references;
    struct hr__http_settings settings;
    _Atomic pid_t process; /* whose requests `active` counts */

    /* Lists that only grow; the newest entry counts. */
    _Atomic(struct hr__http_place *) places;
    _Atomic(struct hr__credentials *) credentials[2]; /* of S3, of Google Cloud Storage */
    _Atomic pid_t finding[2];      /* the process of which a thread looks for new ones; 0: none */
    _Atomic uint64_t sought_ns[2]; /* when it last looked; 0: never */

    atomic_int active;      /* requests in flight */
    atomic_uint limit;      /* the most of them, in 1/256 */
    atomic_int was_refused; /* the limit grows slowly since */
    atomic_uint bound;      /* the most of them that the link repays */
    _Atomic pid_t pacing;   /* the process of which a thread changes `pace`; 0: none */
    struct hr__pace pace;
    _Atomic uint64_t answers, took_ns; /* that `pace` does not know yet */
    _Atomic uint64_t refused_ns, latency_ns;
    atomic_int was_reached; /* some request was answered */
    _Atomic int64_t skew_s; /* of this machine's clock: added to its time in signatures */

    _Atomic uint64_t requests, lists, retries, hedges, refusals, bytes, writes;

    /* Channels of threads that are done with them. */
    _Atomic(struct hr__http_channel *) idle[HR__HTTP_IDLE];
};

/* ---- http_state.c ---- */

/* Reads the environment and the profile. Errors: as hr__http_create. */
int hr__http_read_settings(struct hr__http_settings *settings, struct hr_error *error);

/* The digest that stands for a missing ETag: of the time and size of an object. It never is that of
 * an ETag, nor compared with one. */
uint64_t hr__version_digest(int64_t mtime_ns, int64_t bytes);

/* Converts seconds since 1970. Returns 0 if they are none, or too many. */
static inline int64_t hr__mtime_of(int64_t seconds)
{
    return seconds > 0 && seconds <= INT64_MAX / 1000000000 ? seconds * 1000000000 : 0;
}

/* Prepares the limit of a new client. */
void hr__http_begin(struct hr__http_client *http);

/* Prepares the counts for this process. */
void hr__http_enter(struct hr__http_client *http);

/* Returns the credentials to use now. A thread that finds them old renews them; others wait only if
 * they have ended. They stay valid as long as the client. `refused`: those that a store called
 * expired, or NULL. Errors: those of finding them. */
int hr__http_credentials(struct hr__http_client *http, bool gs,
                         const struct hr__credentials *refused, const struct hr__credentials **out,
                         struct hr_error *error);

/* Returns where a bucket's objects are, as known now; valid as long as the client. */
int hr__http_place(struct hr__http_client *http, const struct hr__url *url,
                   const struct hr__http_place **out);

/* Notes that a bucket is in `region`. Returns 0; -EALREADY if that was known. */
int hr__http_learn(struct hr__http_client *http, const struct hr__http_place *now,
                   const char *region);

/* A request may begin: counts it. */
bool hr__http_may_begin(struct hr__http_client *http);
/* It has ended. `refused`: the store asks for fewer, or does not keep up. `latency_ns`: until its
 * first byte; 0: unknown. `took_ns`: until its last one, then. */
void hr__http_ended(struct hr__http_client *http, bool refused, uint64_t latency_ns,
                    uint64_t took_ns);

/* ---- http_call.c ---- */

struct hr__http_call;

/* One request of a call. */
struct hr__http_attempt {
    struct hr__web_exchange exchange; /* first */
    struct hr__http_call *call;       /* NULL: free */
    struct hr__draft url, authorization;
    struct hr__sign_pair headers[10];
    char host[300], range[64], time[17];
    const struct hr__credentials *credentials; /* NULL: plain HTTP */
    const struct hr__http_place *place;        /* likewise */
    uint64_t started_ns, first_ns;
    /* the answer */
    uint8_t *bytes; /* with 64 bytes of slack */
    size_t length, capacity;
    int64_t told;               /* bytes that the answer announces; -1: not told */
    int64_t first, last, total; /* of its range; -1: none, unknown */
    struct hr__object object;
    char region[64], date[40], etag[HR__ETAG_BYTES];
    bool is_encrypted; /* with a key of the store's owner: the ETag is no MD5 */
    unsigned pause_s;  /* it asks for */
    int refusal;       /* why its body was refused: a negative errno */
    char text[4096];   /* the body of an error */
    size_t text_length;
    bool is_hedge;
    struct hr__http_attempt *next;
};

/* One operation, which may need several requests. The caller owns it. */
struct hr__http_call {
    /* set by the caller; the rest is zero */
    const char *url;    /* of the object; of the bucket in a listing */
    const char *method; /* NULL: GET */
    struct hr__sign_pair *query;
    size_t query_count;
    const void *body; /* of PUT and POST; with the digests below */
    size_t body_bytes;
    const char *sha256, *md5; /* of the body: in digits, in base 64 */
    int is_range; /* `bytes_wanted` bytes at `offset`; with `may_end`, or those up to the end */
    int may_end;
    uint64_t offset, bytes_wanted;
    int64_t expected;        /* size of the whole object, as listed; < 0: not known */
    uint64_t change;         /* digest of its ETag, as listed; 0: not known */
    uint64_t max_bytes;      /* larger bodies fail with -EFBIG */
    struct hr__blocks *pool; /* for the bytes; NULL: none */
    const atomic_int *stop;  /* hr__http_run: non-zero ends it with -ECANCELED; may be NULL */
    void *user;
    /* results */
    int result;
    char *reason;   /* why it failed; the caller frees it */
    uint8_t *bytes; /* of success: the caller's */
    size_t length;
    struct hr__object object;
    char etag[HR__ETAG_BYTES]; /* as the store tells it; "": not told */
    bool is_encrypted;         /* it is no MD5 */
    /* used by the channel */
    struct hr__url parsed;
    uint64_t begun_ns, due_ns;
    unsigned tries, redirects, renewals;
    struct hr__http_attempt *attempts[2];
    struct hr__http_call *next;
};

/* What to do after an answer. */
enum hr__http_verdict {
    HR__HTTP_DONE = 0, /* the call has its bytes */
    HR__HTTP_FAILED,   /* it has its result and reason */
    HR__HTTP_RETRY,    /* later */
    HR__HTTP_REFUSED,  /* later, and with fewer requests */
    HR__HTTP_AGAIN,    /* at once, elsewhere or with other credentials */
};

/* Makes the request of an attempt: URL, headers, signature. `key`: kept between requests of a
 * thread. Errors: of finding credentials; -ENOMEM. May block to find credentials. */
struct hr__http_signer {
    struct hr__sign_key key;
    const struct hr__credentials *of;
    const struct hr__http_place *at;
};
int hr__http_request(struct hr__http_client *http, struct hr__http_attempt *attempt,
                     struct hr__http_signer *signer, struct hr_error *error);

/* Judges the answer of an attempt, and on DONE gives the call its bytes. `why`: what was wrong,
 * with the remedy. */
enum hr__http_verdict hr__http_judge(struct hr__http_client *http, struct hr__http_attempt *attempt,
                                     struct hr_error *why);

/* ---- http_channel.c ---- */

/* Makes a channel: the requests and connections of one thread. */
int hr__http_channel_create(struct hr__http_channel **out, struct hr__http_client *http,
                            struct hr_error *error);
/* Ends its calls without results; accepts NULL. */
void hr__http_channel_destroy(struct hr__http_channel **channel);
/* Returns whether it was made in this process. */
bool hr__http_channel_is_ours(const struct hr__http_channel *channel);
/* Returns whether calls wait because no more requests may begin. */
bool hr__http_channel_is_full(const struct hr__http_channel *channel);
/* Begins a call. */
void hr__http_channel_start(struct hr__http_channel *channel, struct hr__http_call *call);
/* Advances the calls; waits up to `timeout_ns` (< 0: without limit) for the first to be done.
 * Returns those that are, linked by `next`, oldest first. */
struct hr__http_call *hr__http_channel_wait(struct hr__http_channel *channel, int64_t timeout_ns);

/* ---- http.c ---- */

/* Runs one call alone, on a channel that the client keeps. Returns its result. */
int hr__http_run(struct hr__http_client *http, struct hr__http_call *call);

#endif
