/*
 * Parses a list of hosts and its options (hosts.h). The grammar is in include/headrace/cache.h.
 *
 * A host is identified by its name as written, with its port, because that is the same on all
 * machines, whatever addresses they see. So names are kept as they are, except that the port is
 * added and an IPv6 address is put in brackets.
 */
#include "cluster/hosts.h"

#include "base/error.h"
#include "base/memory.h"
#include "cache/spec.h"
#include "cache/text.h"

#include <headrace/form.h>

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>
#include <xxhash.h>

#define PORT_DEFAULT 11211
#define TIMEOUT_MS   1000
#define MEET_S       300

enum option {
    OPTION_SIZE,
    OPTION_SELF,
    OPTION_SOCKET,
    OPTION_USER,
    OPTION_PASSWORD_FILE,
    OPTION_FORM,
    OPTION_MTIME,
    OPTION_TIMEOUT,
    OPTION_MEET,
    OPTION_KEY_FILE,
    OPTION_TLS,
    OPTION_PROTOCOL,
    OPTION_SASL,
    OPTION_COUNT
};

static const char *const option_names[OPTION_COUNT] = {
    "size",    "self", "socket",   "user", "password-file", "form", "mtime",
    "timeout", "meet", "key_file", "tls",  "protocol",      "sasl"};

/* State of the parser, also for messages. */
struct host_reader {
    struct hr__piece text; /* the whole text, without blanks around */
    struct hr__hosts *out;
    struct hr_error *error;
    int seen[OPTION_COUNT];
    struct hr__piece values[OPTION_COUNT];
};

#define TEXT(r) HR__PIECE((r)->text)

/* ---- one host ---- */

static int refuse_host(const struct host_reader *r, struct hr__piece host, const char *why)
{
    return hr__fail(r->error, -EINVAL, "cache \"%.*s\": host \"%.*s\" %s", TEXT(r), HR__PIECE(host),
                    why);
}

static int copy(char *out, size_t room, struct hr__piece p)
{
    if (p.length >= room)
        return -1;
    memcpy(out, p.at, p.length);
    out[p.length] = 0;
    return 0;
}

static int read_path(struct host_reader *r, struct hr__host *h, struct hr__piece text)
{
    if (text.length >= sizeof((struct sockaddr_un *)0)->sun_path)
        return refuse_host(r, text, "is longer than the path of a Unix socket may be");
    copy(h->address, sizeof h->address, text);
    memcpy(h->name, h->address, sizeof h->name);
    return 0;
}

static int read_port(struct host_reader *r, struct hr__host *h, struct hr__piece host,
                     struct hr__piece port)
{
    uint32_t value = 0;
    for (size_t i = 0; i < port.length && value <= UINT16_MAX; i++)
        value = hr__is_digit(port.at[i]) ? value * 10 + (uint32_t)(port.at[i] - '0') : UINT32_MAX;
    if (!port.length || !value || value > UINT16_MAX)
        return refuse_host(r, host, "has an invalid port: write NAME:PORT, such as node1:11211");
    h->port = (uint16_t)value;
    return 0;
}

/* Reads "[fd00::1]" or "[fe80::1%eth0]" and what follows it. */
static int read_bracketed(struct host_reader *r, struct hr__host *h, struct hr__piece text)
{
    struct hr__piece inside =
        hr__piece_until((struct hr__piece){text.at + 1, text.length - 1}, ']');
    struct hr__piece rest = {inside.at + inside.length, text.length - 1 - inside.length};
    char literal[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (!rest.length || (rest.length > 1 && rest.at[1] != ':'))
        return refuse_host(r, text, "is not an IPv6 address: write [ADDRESS]:PORT");
    if (copy(literal, sizeof literal, hr__piece_until(inside, '%')) ||
        inet_pton(AF_INET6, literal, &address) != 1 || copy(h->address, sizeof h->address, inside))
        return refuse_host(r, text,
                           "is not an IPv6 address: write [ADDRESS]:PORT, such as "
                           "[fd00::1]:11211");
    h->port = PORT_DEFAULT;
    if (rest.length > 1)
        return read_port(r, h, text, (struct hr__piece){rest.at + 2, rest.length - 2});
    return 0;
}

/* Returns non-zero if the name can be looked up: letters, digits, '-', '_' and '.'. Digits and dots
 * alone must be a full IPv4 address, because the system would take "10.1" for 10.0.0.1. */
static int is_name(const char *name)
{
    struct in_addr address;
    static const char digits[] = "0123456789.";
    static const char rest[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    size_t length = strlen(name), known = 0;
    for (; known < length; known++)
        if (!strchr(digits, name[known]) && !strchr(rest, name[known]))
            return 0;
    if (strspn(name, digits) == length)
        return inet_pton(AF_INET, name, &address) == 1;
    return length && length <= 253 && name[0] != '-' && name[0] != '.';
}

static int read_named(struct host_reader *r, struct hr__host *h, struct hr__piece text)
{
    struct hr__piece name = hr__piece_until(text, ':'), port = hr__piece_behind(text, name);
    int has_port = name.length < text.length;
    if (memchr(port.at, ':', port.length))
        return refuse_host(r, text, "has several colons: write an IPv6 address as [ADDRESS]:PORT");
    if (copy(h->address, sizeof h->address, name) || strlen(h->address) != name.length ||
        !is_name(h->address))
        return refuse_host(r, text,
                           "is neither a name nor an address: write NAME:PORT, 10.0.0.1:PORT, "
                           "[fd00::1]:PORT, or the absolute path of a Unix socket");
    h->port = PORT_DEFAULT;
    return has_port ? read_port(r, h, text, port) : 0;
}

static int read_host(struct host_reader *r, struct hr__host *h, struct hr__piece entry)
{
    struct hr__piece text = hr__piece_until(entry, '='), size = hr__piece_behind(entry, text);
    int has_size = text.length < entry.length, failed;
    text = hr__piece_trim(text);
    if (!text.length)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": a host is missing: write memcached:NAME:PORT,NAME:PORT"
                        "?size=64GiB",
                        TEXT(r));
    if (text.at[0] == '/')
        failed = read_path(r, h, text);
    else if (text.at[0] == '[')
        failed = read_bracketed(r, h, text);
    else
        failed = read_named(r, h, text);
    if (failed)
        return failed;
    int is_literal = h->port && strchr(h->address, ':') != NULL;
    if (h->port && snprintf(h->name, sizeof h->name, is_literal ? "[%s]:%u" : "%s:%u", h->address,
                            (unsigned)h->port) >= (int)sizeof h->name)
        return refuse_host(r, text, "is too long");
    if (!has_size)
        return 0;
    const struct hr__asked asked = {r->text, size, "the size of a host,"};
    return hr__size_read(&h->budget_bytes, &asked, r->error);
}

/* ---- the list ---- */

static int by_name(const void *a, const void *b)
{
    const struct hr__host *const *x = a, *const *y = b;
    return strcasecmp((*x)->name, (*y)->name);
}

/* Checks that no host is listed twice: one server would be given two budgets. */
static int check_once(struct host_reader *r)
{
    struct hr__hosts *hosts = r->out;
    const struct hr__host **sorted = hr__alloc(HR__TAG_CACHE, (size_t)hosts->count, sizeof *sorted);
    int failed = 0;
    if (!sorted)
        return hr__fail(r->error, -ENOMEM, "out of memory for a list of hosts");
    for (int i = 0; i < hosts->count; i++)
        sorted[i] = &hosts->hosts[i];
    qsort(sorted, (size_t)hosts->count, sizeof *sorted, by_name);
    for (int i = 1; !failed && i < hosts->count; i++)
        if (!strcasecmp(sorted[i - 1]->name, sorted[i]->name))
            failed = hr__fail(r->error, -EINVAL,
                              "cache \"%.*s\": host %s is there twice: write it once, with its "
                              "whole size",
                              TEXT(r), sorted[i]->name);
    hr__free(sorted);
    return failed;
}

/* Checks that paths are used for all hosts or none: a path is a server of this machine alone, so it
 * cannot stand beside other machines. */
static int check_paths(struct host_reader *r)
{
    int paths = 0;
    for (int i = 0; i < r->out->count; i++)
        paths += !r->out->hosts[i].port;
    if (!paths || paths == r->out->count)
        return 0;
    return hr__fail(r->error, -EINVAL,
                    "cache \"%.*s\": other machines cannot reach the path of a Unix socket: write "
                    "NAME:PORT for all hosts, and &socket=PATH for this machine's own server",
                    TEXT(r));
}

static int read_list(struct host_reader *r, struct hr__piece list)
{
    size_t count = 1;
    for (size_t i = 0; i < list.length; i++)
        count += list.at[i] == ',';
    if (count > HR__HOST_LIST_MAX)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": %zu hosts are more than the %d that there may be", TEXT(r),
                        count, HR__HOST_LIST_MAX);
    r->out->hosts = hr__alloc(HR__TAG_CACHE, count, sizeof *r->out->hosts);
    if (!r->out->hosts)
        return hr__fail(r->error, -ENOMEM, "out of memory for a list of %zu hosts", count);
    for (size_t i = 0; i < count; i++) {
        struct hr__piece entry = hr__piece_until(list, ',');
        int failed = read_host(r, &r->out->hosts[i], hr__piece_trim(entry));
        if (failed)
            return failed;
        list = hr__piece_behind(list, entry);
        r->out->count++;
    }
    int failed = check_once(r);
    return failed ? failed : check_paths(r);
}

/* ---- options ---- */

static int read_option(struct host_reader *r, struct hr__piece option)
{
    struct hr__piece name = hr__piece_until(option, '='), value = hr__piece_behind(option, name);
    int has_value = name.length < option.length;
    name = hr__piece_trim(name);
    for (int i = 0; has_value && i < OPTION_COUNT; i++)
        if (hr__piece_equals(name, option_names[i])) {
            r->values[i] = hr__piece_trim(value);
            return hr__option_once(r->text, &r->seen[i], option_names[i], r->error);
        }
    return hr__fail(
        r->error, -EINVAL,
        "cache \"%.*s\": option \"%.*s\" is unknown: there are size=, self=, socket=, "
        "user=, password-file=, form=, mtime=, timeout=, meet= and key_file=, with & between "
        "them",
        TEXT(r), HR__PIECE(name));
}

static int apply_size(struct host_reader *r)
{
    uint64_t bytes = 0;
    const struct hr__asked asked = {r->text, r->values[OPTION_SIZE], "size"};
    int failed = r->seen[OPTION_SIZE] ? hr__size_read(&bytes, &asked, r->error) : 0;
    for (int i = 0; !failed && i < r->out->count; i++) {
        struct hr__host *h = &r->out->hosts[i];
        h->budget_bytes = h->budget_bytes ? h->budget_bytes : bytes;
        if (!h->budget_bytes)
            failed = hr__fail(r->error, -EINVAL,
                              "cache \"%.*s\": host %s needs a size: write ?size=64GiB for all "
                              "hosts, or %s=64GiB",
                              TEXT(r), h->name, h->name);
    }
    return failed;
}

static int apply_self(struct host_reader *r)
{
    char word[HR__HOST_NAME];
    struct hr__piece value = r->values[OPTION_SELF];
    if (!r->seen[OPTION_SELF])
        return 0;
    r->out->self = copy(word, sizeof word, value) ? -1 : hr__hosts_index(r->out, word);
    if (r->out->self >= 0)
        return 0;
    return hr__fail(r->error, -EINVAL,
                    "cache \"%.*s\": self=%.*s is none of its %d hosts: write an index from 0 to "
                    "%d, or an entry of the list",
                    TEXT(r), HR__PIECE(value), r->out->count, r->out->count - 1);
}

static int apply_socket(struct host_reader *r)
{
    struct hr__piece value = r->values[OPTION_SOCKET];
    if (!r->seen[OPTION_SOCKET])
        return 0;
    if (!value.length || value.at[0] != '/' || copy(r->out->socket, sizeof r->out->socket, value))
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": socket \"%.*s\" must be the absolute path of a Unix "
                        "socket, of at most %zu bytes",
                        TEXT(r), HR__PIECE(value), sizeof r->out->socket - 1);
    return 0;
}

/* Checks a user's name: lines of an authfile are USER:PASSWORD, and a login is "USER PASSWORD". */
static int is_user(struct hr__piece name)
{
    for (size_t i = 0; i < name.length; i++)
        if ((unsigned char)name.at[i] <= ' ' || name.at[i] == 0x7f || name.at[i] == ':')
            return 0;
    return name.length > 0;
}

static int apply_user(struct host_reader *r)
{
    struct hr__piece user = r->values[OPTION_USER], file = r->values[OPTION_PASSWORD_FILE];
    if (r->seen[OPTION_USER] != r->seen[OPTION_PASSWORD_FILE])
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": %s: write &user=NAME&password-file=PATH", TEXT(r),
                        r->seen[OPTION_USER] ? "a user needs the file of a password"
                                             : "a password needs its user");
    if (!r->seen[OPTION_USER])
        return 0;
    if (!is_user(user) || copy(r->out->user, sizeof r->out->user, user))
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": user \"%.*s\" must be a name of at most %zu bytes, "
                        "without blanks and colons",
                        TEXT(r), HR__PIECE(user), sizeof r->out->user - 1);
    if (!file.length || copy(r->out->password_file, sizeof r->out->password_file, file))
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": password-file \"%.*s\" must be a path of at most %zu "
                        "bytes",
                        TEXT(r), HR__PIECE(file), sizeof r->out->password_file - 1);
    return 0;
}

static int apply_form(struct host_reader *r)
{
    struct hr__piece value = r->values[OPTION_FORM];
    if (!r->seen[OPTION_FORM])
        return 0;
    for (int form = HR_FORM_ENCODED; form < HR_FORMS; form++)
        if (hr__piece_equals(value, hr_form_name((enum hr_form)form))) {
            r->out->form = form;
            return 0;
        }
    return hr__fail(r->error, -EINVAL,
                    "cache \"%.*s\": form \"%.*s\" must be one that all hosts keep: write encoded, "
                    "indexed, coefficients or planes, and of sounds waveform or waveform16",
                    TEXT(r), HR__PIECE(value));
}

static int apply_mtime(struct host_reader *r)
{
    struct hr__piece value = r->values[OPTION_MTIME];
    int no = hr__piece_equals(value, "no");
    if (r->seen[OPTION_MTIME] && !no && !hr__piece_equals(value, "yes"))
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": mtime \"%.*s\" must be yes, or no where copies of the "
                        "dataset have other modification times",
                        TEXT(r), HR__PIECE(value));
    r->out->with_mtime = !no;
    return 0;
}

static int apply_key_file(struct host_reader *r)
{
    return r->seen[OPTION_KEY_FILE]
               ? hr__key_file_read(r->out->key_file, r->text, r->values[OPTION_KEY_FILE], r->error)
               : 0;
}

static int apply_times(struct host_reader *r)
{
    const struct hr__asked timeout = {r->text, r->values[OPTION_TIMEOUT], "timeout"};
    const struct hr__asked meet = {r->text, r->values[OPTION_MEET], "meet"};
    uint64_t timeout_ms = TIMEOUT_MS, meet_ms = MEET_S * 1000;
    int failed = 0;
    if (r->seen[OPTION_TIMEOUT])
        failed = hr__duration_read(&timeout_ms, &timeout, 10, 60000, r->error);
    if (!failed && r->seen[OPTION_MEET])
        failed = hr__duration_read(&meet_ms, &meet, 1000, 86400000, r->error);
    r->out->timeout_ms = (uint32_t)timeout_ms;
    r->out->meet_s = (uint32_t)((meet_ms + 999) / 1000);
    return failed;
}

/* Refuses options of other clients that a user may expect here. */
static int refuse_unsupported(const struct host_reader *r)
{
    if (r->seen[OPTION_TLS])
        return hr__fail(r->error, -ENOTSUP,
                        "cache \"%.*s\": tls is not supported: let a sidecar such as stunnel carry "
                        "the connections, and name its local ports here",
                        TEXT(r));
    if (r->seen[OPTION_PROTOCOL] || r->seen[OPTION_SASL])
        return hr__fail(r->error, -ENOTSUP,
                        "cache \"%.*s\": %s= is not supported: only memcached's text protocol is "
                        "supported, without SASL. For a user, start memcached with -Y "
                        "FILE instead of -S, and write &user=NAME&password-file=PATH",
                        TEXT(r),
                        option_names[r->seen[OPTION_SASL] ? OPTION_SASL : OPTION_PROTOCOL]);
    return 0;
}

static int read_options(struct host_reader *r, struct hr__piece rest)
{
    int failed = 0;
    while (!failed && rest.length) {
        struct hr__piece option = hr__piece_until(rest, '&');
        rest = hr__piece_behind(rest, option);
        failed = read_option(r, option);
    }
    if (!failed)
        failed = refuse_unsupported(r);
    int (*const apply[])(struct host_reader *) = {apply_size,  apply_self,    apply_socket,
                                                  apply_user,  apply_form,    apply_mtime,
                                                  apply_times, apply_key_file};
    for (size_t i = 0; !failed && i < sizeof apply / sizeof *apply; i++)
        failed = apply[i](r);
    return failed;
}

int hr__hosts_parse(struct hr__hosts *out, const char *text, struct hr_error *error)
{
    *out = (struct hr__hosts){.self = -1, .form = HR_FORM_ENCODED};
    const char *hosts = hr__hosts_text_of(text);
    if (hosts)
        text = hosts;
    struct host_reader r = {
        .text = hr__piece_trim((struct hr__piece){text, strlen(text)}), .out = out, .error = error};
    if (!hosts)
        return hr__fail(error, -EINVAL,
                        "cache \"%.*s\" is not a list of hosts: write memcached:NAME:PORT,NAME:PORT"
                        "?size=64GiB",
                        TEXT(&r));
    size_t skip = sizeof HR__HOSTS_SCHEME - 1;
    struct hr__piece rest = {r.text.at + skip, r.text.length - skip};
    struct hr__piece list = hr__piece_until(rest, '?');
    int failed = read_list(&r, list);
    if (!failed)
        failed = read_options(&r, hr__piece_behind(rest, list));
    if (failed)
        hr__hosts_clear(out);
    return failed;
}

void hr__hosts_clear(struct hr__hosts *hosts)
{
    hr__free(hosts->hosts);
    *hosts = (struct hr__hosts){.self = -1};
}

/* ---- functions on a list ---- */

/* Formats a size in the largest unit that it is a whole multiple of: "64GiB". */
static void put_size(char out[32], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (unit < 4 && bytes % 1024 == 0)
        bytes /= 1024, unit++;
    snprintf(out, 32, "%" PRIu64 "%s", bytes, units[unit]);
}

void hr__hosts_text(const struct hr__hosts *hosts, char *out, size_t room)
{
    char entry[HR__HOST_NAME + 40], size[32];
    XXH128_hash_t digest = {0, 0};
    size_t length = 0;
    int is_cut = 0;
    const size_t end = room - 32; /* room for the mark of a cut text */
    out[0] = 0;
    for (int i = 0; i < hosts->count; i++) {
        put_size(size, hosts->hosts[i].budget_bytes);
        int n = snprintf(entry, sizeof entry, "%s%s=%s", i ? ", " : "", hosts->hosts[i].name, size);
        struct {
            XXH128_hash_t before, of;
        } step = {digest, XXH3_128bits(entry, (size_t)n)};
        digest = XXH3_128bits(&step, sizeof step);
        is_cut |= length + (size_t)n >= end;
        if (!is_cut) {
            memcpy(out + length, entry, (size_t)n + 1);
            length += (size_t)n;
        }
    }
    if (is_cut)
        snprintf(out + length, room - length, ", ... (%08" PRIx32 ")", (uint32_t)digest.low64);
}

static int index_of_number(const struct hr__hosts *hosts, const char *word)
{
    uint32_t value = 0;
    for (const char *at = word; *at && value < HR__HOST_LIST_MAX; at++)
        value = value * 10 + (uint32_t)(*at - '0');
    return value < (uint32_t)hosts->count ? (int)value : -1;
}

int hr__hosts_index(const struct hr__hosts *hosts, const char *word)
{
    int found = -1;
    if (*word && strspn(word, "0123456789") == strlen(word))
        return index_of_number(hosts, word);
    for (int i = 0; i < hosts->count; i++) {
        const struct hr__host *h = &hosts->hosts[i];
        if (!strcasecmp(h->name, word))
            return i;
        if (!strcasecmp(h->address, word))
            found = found == -1 ? i : -2;
    }
    return found < 0 ? -1 : found;
}

uint64_t hr__host_id(const struct hr__host *host)
{
    return XXH3_64bits(host->name, strlen(host->name));
}
