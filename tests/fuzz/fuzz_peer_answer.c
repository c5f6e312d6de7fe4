/*
 * A server's answer to any request: it is parsed, or refused with a reason. Values belong to
 * requested keys, each at most once, and are complete.
 *
 * The first byte chooses the request; the rest is in a socket whose other end is closed for
 * writing, so that no read waits.
 */
#include "cluster/peer_text.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define COUNT 3

static int get(struct hr__peer_link *link, size_t size, struct hr_error *error)
{
    struct hr__peer_value values[COUNT] = {{.key = "a"}, {.key = "bc"}, {.key = "def"}};
    size_t bytes = 0;
    int r = hr__peer_text_get(link, NULL, values, COUNT, error);
    for (int i = 0; i < COUNT; i++) {
        if (!values[i].bytes)
            continue;
        bytes += values[i].length;
        memset(values[i].bytes + values[i].length, 1, HR__PEER_SLACK);
        hr__free(values[i].bytes);
    }
    if (bytes > size)
        abort();
    return r;
}

static int put(struct hr__peer_link *link, struct hr_error *error)
{
    struct hr__peer_store stores[COUNT] = {
        {.key = "a", .bytes = "1", .length = 1, .tail = "", .result = 1},
        {.key = "bc", .bytes = "22", .length = 2, .tail = "x", .tail_length = 1, .result = 1},
        {.key = "def", .bytes = "", .length = 0, .tail = "", .result = 1}};
    int r = hr__peer_text_put(link, stores, COUNT, error);
    for (int i = 0; i < COUNT && !r; i++)
        if (stores[i].result > 0)
            abort();
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hr__peer_link link;
    struct hr_error error = {0, ""};
    struct hr__peer_about about;
    int ends[2], r;
    if (!size || size > 65536)
        return 0;
    memset(&link, 0, sizeof link);
    if (hr__peer_link_open(&link, "/s", 0, NULL) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
        abort();
    if (send(ends[1], data + 1, size - 1, MSG_NOSIGNAL) != (ssize_t)size - 1)
        abort();
    shutdown(ends[1], SHUT_WR);
    link.socket = ends[0];
    link.deadline_ns = hr__now_ns() + 5000000000u;
    switch (data[0]) {
    case 0:
        r = get(&link, size, &error);
        break;
    case 1:
        r = put(&link, &error);
        break;
    case 2:
        r = hr__peer_text_login(&link, "me", "secret", &error);
        break;
    default:
        r = hr__peer_text_about(&link, &about, &error);
    }
    if (r ? !error.message[0] || r == -ETIMEDOUT : error.code)
        abort();
    hr__peer_link_close(&link);
    close(ends[1]);
    if (hr__allocated(HR__TAG_CACHE))
        abort();
    return 0;
}
