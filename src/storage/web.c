/* One small exchange alone; see web.h. */
#include "storage/web.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <string.h>

#define ANSWER_MOST ((size_t)1 << 20)

/* Seconds for the whole of one small exchange. */
#define ASK_NS INT64_C(30000000000)

struct asking {
    struct hr__web_exchange exchange;
    struct hr__web_answer *answer;
};

static void ignore_header(struct hr__web_exchange *exchange, const char *name, const char *value)
{
    (void)exchange;
    (void)name;
    (void)value;
}

static int keep_part(struct hr__web_exchange *exchange, const void *bytes, size_t length)
{
    struct hr__web_answer *a = ((struct asking *)exchange)->answer;
    if (length > ANSWER_MOST - a->length ||
        hr__reserve(HR__TAG_STORAGE, &a->text, a->length + length + 1))
        return -ENOMEM;
    memcpy(a->text + a->length, bytes, length);
    a->length += length;
    a->text[a->length] = 0;
    return 0;
}

int hr__web_ask(struct hr__web *web, struct hr__web_exchange *exchange,
                struct hr__web_answer *answer, struct hr_error *error)
{
    struct asking a = {.exchange = *exchange, .answer = answer};
    *answer = (struct hr__web_answer){.text = hr__alloc(HR__TAG_STORAGE, 1, 1)};
    if (!answer->text)
        return hr__fail(error, -ENOMEM, "out of memory for an answer");
    a.exchange.header = ignore_header;
    a.exchange.part = keep_part;
    int r = hr__web_start(web, &a.exchange);
    uint64_t until_ns = hr__now_ns() + (uint64_t)ASK_NS;
    struct hr__web_exchange *done = NULL;
    while (!r && !done) {
        uint64_t now_ns = hr__now_ns();
        uint64_t stalled_ns = a.exchange.moved_ns + exchange->stall_ms * UINT64_C(1000000);
        uint64_t end_ns = until_ns < stalled_ns ? until_ns : stalled_ns;
        if (now_ns >= end_ns) {
            hr__web_stop(web, &a.exchange);
            r = hr__fail(error, -ETIMEDOUT, "no answer came in time");
        } else {
            done = hr__web_wait(web, (int64_t)(end_ns - now_ns));
        }
    }
    if (done && done->end)
        r = hr__fail(error, -EIO, "%s", done->detail);
    else if (done)
        answer->status = done->status;
    else if (r == -ENOMEM)
        hr__fail(error, r, "out of memory for a request");
    if (r) {
        hr__free(answer->text);
        answer->text = NULL;
    }
    return r;
}
