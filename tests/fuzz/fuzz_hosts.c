/*
 * The text that lists hosts: any bytes are parsed completely, or refused with a message. Accepted
 * values are within the bounds of their struct, and the list can be parsed again from its own
 * names.
 */
#include "cluster/hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int ends(const char *text, size_t room)
{
    return strnlen(text, room) < room;
}

static void check(const struct hr__hosts *h)
{
    char text[256], again[HR__HOST_NAME + 64];
    if (h->count < 1 || h->self < -1 || h->self >= h->count || h->form < 0 || h->form > 2 ||
        h->timeout_ms < 10 || h->timeout_ms > 60000 || h->meet_s < 1 || h->meet_s > 86400 ||
        !ends(h->socket, sizeof h->socket) || !ends(h->user, sizeof h->user) ||
        !ends(h->password_file, sizeof h->password_file) || !*h->user != !*h->password_file)
        abort();
    for (int i = 0; i < h->count; i++) {
        const struct hr__host *host = &h->hosts[i];
        struct hr__hosts one;
        if (!ends(host->name, sizeof host->name) || !ends(host->address, sizeof host->address) ||
            !*host->name || !host->budget_bytes || !host->port != (*host->address == '/') ||
            hr__hosts_index(h, host->name) < 0)
            abort();
        snprintf(again, sizeof again, "memcached:%s?size=1B", host->name);
        if (i < 8 && (hr__hosts_parse(&one, again, NULL) || strcmp(one.hosts->name, host->name)))
            abort();
        if (i < 8)
            hr__hosts_clear(&one);
    }
    hr__hosts_text(h, text, sizeof text);
    if (!ends(text, sizeof text) || !*text)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char scheme[] = "memcached:";
    struct hr__hosts hosts;
    struct hr_error error = {0};
    char *text = malloc(sizeof scheme + size);
    if (!text)
        return 0;
    memcpy(text, scheme, sizeof scheme - 1);
    memcpy(text + sizeof scheme - 1, data, size);
    text[sizeof scheme - 1 + size] = 0;
    /* With the scheme, so that the parser soon gets past it, and without. */
    for (int skip = 0; skip < 2; skip++) {
        if (!hr__hosts_parse(&hosts, text + (skip ? sizeof scheme - 1 : 0), &error))
            check(&hosts);
        else if (!error.message[0] || hosts.hosts)
            abort();
        hr__hosts_clear(&hosts);
    }
    free(text);
    return 0;
}
