/*
 * URLs: any text is parsed or refused with a message; what is taken has parts that lie in the text,
 * no secret, and escapes that come back.
 */
#include "storage/url.h"

#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct hr__url *url, const char *text)
{
    if (url->host < text || url->host + url->host_length > text + strlen(text) ||
        url->path < url->host || url->path > text + strlen(text) || !url->host_length ||
        memchr(url->host, '@', url->host_length) || memchr(url->host, '/', url->host_length))
        abort();
    if (!hr__url_is(text) || !hr__url_root_length(text))
        abort();
    if (!hr__url_has_bucket(url) && strpbrk(url->path, "?# "))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__url url;
    struct hr_error error = {0};
    struct hr__draft escaped = {0};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (!hr__url_parse(&url, text, &error))
        check(&url, text);
    else if (!error.message[0])
        abort();
    hr__url_escape(&escaped, text, strlen(text), size & 1);
    if (!escaped.failed && escaped.text) {
        hr__url_unescape(escaped.text);
        if (strcmp(escaped.text, text))
            abort();
    }
    hr__draft_clear(&escaped);
    hr__url_unescape(text);
    free(text);
    return 0;
}
