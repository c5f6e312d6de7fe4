/* Parses and escapes URLs; see url.h. */
#include "storage/url.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

/* A longer URL is a mistake: S3 keys have at most 1024 bytes. */
#define URL_MOST 4096

static const struct {
    const char *name;
    enum hr__url_scheme scheme;
} schemes[] = {
    {"s3", HR__URL_S3}, {"gs", HR__URL_GS}, {"https", HR__URL_HTTPS}, {"http", HR__URL_HTTP}};

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns the length of "scheme://", or 0. */
static size_t scheme_length(const char *text)
{
    size_t n = 0;
    while (is_letter(text[n]) || (n && (is_digit(text[n]) || strchr("+-.", text[n])))) {
        if (!text[n])
            return 0;
        n++;
    }
    return n >= 2 && !strncmp(text + n, "://", 3) ? n + 3 : 0;
}

bool hr__url_is(const char *text)
{
    return scheme_length(text) != 0;
}

size_t hr__url_root_length(const char *text)
{
    size_t n = scheme_length(text);
    return n ? n + strcspn(text + n, "/") : 0;
}

static int find_scheme(struct hr__url *out, const char *text, struct hr_error *error)
{
    size_t n = scheme_length(text);
    for (size_t i = 0; n && i < sizeof schemes / sizeof *schemes; i++)
        if (strlen(schemes[i].name) == n - 3 && !strncasecmp(text, schemes[i].name, n - 3)) {
            out->scheme = schemes[i].scheme;
            return 0;
        }
    return hr__fail(error, -EINVAL,
                    "%.*s is not a kind of URL that can be read: s3://, gs://, https:// and "
                    "http:// are",
                    (int)(n < 32 ? n : 32), text);
}

/* Checks a bucket's name: what may stand in a host name or a path. */
static bool is_bucket(const char *name, size_t length)
{
    if (length < 3 || length > 255 || name[0] == '.' || name[0] == '-')
        return false;
    for (size_t i = 0; i < length; i++)
        if (!is_letter(name[i]) && !is_digit(name[i]) && !strchr("-._", name[i]))
            return false;
    return !memmem(name, length, "..", 2);
}

/* Checks host[:port]; an IPv6 address is in brackets. */
static bool is_host(const char *host, size_t length)
{
    size_t at = 0;
    if (length && host[0] == '[') {
        for (at = 1; at < length && host[at] != ']'; at++)
            if (!strchr("0123456789abcdefABCDEF:.", host[at]))
                return false;
        if (at < 3 || at >= length)
            return false;
        at++;
    } else {
        while (at < length &&
               (is_letter(host[at]) || is_digit(host[at]) || strchr("-._", host[at])))
            at++;
        if (!at)
            return false;
    }
    if (at == length)
        return true;
    size_t digits = length - at - 1;
    if (host[at] != ':' || !digits || digits > 5)
        return false;
    while (++at < length)
        if (!is_digit(host[at]))
            return false;
    return true;
}

/* Checks a path of http:// or https://. Returns what is wrong, or NULL. */
static const char *wrong_path(const char *path)
{
    for (const unsigned char *c = (const unsigned char *)path; *c; c++) {
        if (*c == '?' || *c == '#')
            return "ends in a query or a fragment, which may carry a secret: leave it out, and "
                   "give credentials by the environment with s3:// or gs://";
        if (*c <= ' ' || *c == 0x7f)
            return "has a blank or a control byte: write %20 for a blank";
    }
    return NULL;
}

int hr__url_parse(struct hr__url *out, const char *text, struct hr_error *error)
{
    *out = (struct hr__url){.host = NULL};
    int r = find_scheme(out, text, error);
    if (r)
        return r;
    size_t prefix = scheme_length(text);
    out->host = text + prefix;
    out->host_length = strcspn(out->host, "/");
    out->path = out->host + out->host_length;
    out->path += *out->path == '/';
    bool is_named = hr__url_has_bucket(out) ? is_bucket(out->host, out->host_length)
                                            : is_host(out->host, out->host_length);
    /* a password may hold a slash */
    if (memchr(out->host, '@', out->host_length) ||
        (!is_named && memchr(out->host, ':', out->host_length) && strchr(out->host, '@')))
        return hr__fail(error, -EINVAL,
                        "a URL %.*s... with a user or password before an @ is not read: secrets in "
                        "URLs get into logs. Leave them out, and give credentials by the "
                        "environment (AWS_ACCESS_KEY_ID, a profile)",
                        (int)prefix, text);
    if (strlen(text) > URL_MOST)
        return hr__fail(error, -EINVAL, "the URL %.64s... is longer than %d bytes", text, URL_MOST);
    if (hr__url_has_bucket(out))
        return is_named
                   ? 0
                   : hr__fail(error, -EINVAL,
                              "%s names no bucket: write %.*sBUCKET/KEY, with a bucket of letters, "
                              "digits, '-', '.' and '_'",
                              text, (int)prefix, text);
    const char *wrong = wrong_path(out->path);
    if (wrong)
        return hr__fail(error, -EINVAL, "the URL %.*s %s", (int)strcspn(text, "?#"), text, wrong);
    if (!is_named)
        return hr__fail(error, -EINVAL, "the URL %s names no host: write %.*sHOST/PATH", text,
                        (int)prefix, text);
    return 0;
}

void hr__url_escape(struct hr__draft *draft, const char *text, size_t length, bool slashes)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < length;) {
        size_t n = i;
        while (n < length && text[n] &&
               (is_letter(text[n]) || is_digit(text[n]) || strchr("-._~", text[n]) ||
                (slashes && text[n] == '/')))
            n++;
        hr__draft_add(draft, text + i, n - i);
        if (n < length) {
            unsigned char c = (unsigned char)text[n++];
            const char escape[3] = {'%', digits[c >> 4], digits[c & 15]};
            hr__draft_add(draft, escape, sizeof escape);
        }
        i = n;
    }
}

static int hex_digit(char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

size_t hr__url_unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        int high = *from == '%' ? hex_digit(from[1]) : -1;
        int low = high >= 0 ? hex_digit(from[2]) : -1;
        /* %00 would end the text early */
        if (low >= 0 && (high || low)) {
            *to++ = (char)(high << 4 | low);
            from += 3;
        } else {
            *to++ = *from++;
        }
    }
    *to = 0;
    return (size_t)(to - text);
}
