/*
 * Parses the text that specifies a cache. The grammar is in include/headrace/cache.h; text.h parses
 * words, numbers and sizes.
 */
#include "cache/spec.h"

#include "base/error.h"
#include "cache/text.h"

#include <headrace/form.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The parser's state. */
struct spec_reader {
    struct hr__piece text; /* all of it, with blanks at both ends stripped */
    struct hr__piece tier; /* the part of it for this tier */
    struct hr__cache_spec *out;
    struct hr_error *error;
    int seen_size, seen_share, seen_group, seen_form, seen_key;
    struct hr__piece share; /* applied once the size is known, wherever it stands in the text */
};

#define SCHEME "shm:"
#define DISK   "disk:"

#define TEXT(r)  HR__PIECE((r)->text)
#define PIECE(p) HR__PIECE(p)

static int begins_with(struct hr__piece p, const char *word)
{
    size_t length = strlen(word);
    return p.length >= length && !memcmp(p.at, word, length);
}

static struct hr__piece whole(const char *text)
{
    return hr__piece_trim((struct hr__piece){text, strlen(text)});
}

/* The part of a text that names hosts; length 0: there is none. */
static struct hr__piece hosts_of(const char *text)
{
    struct hr__piece all = whole(text), rest = all;
    if (begins_with(all, DISK))
        rest = hr__piece_trim(hr__piece_behind(all, hr__piece_until(all, ',')));
    return begins_with(rest, HR__HOSTS_SCHEME) ? rest : (struct hr__piece){all.at, 0};
}

const char *hr__hosts_text_of(const char *text)
{
    struct hr__piece hosts = hosts_of(text);
    return hosts.length ? hosts.at : NULL;
}

int hr__hosts_is(const char *text)
{
    return hosts_of(text).length > 0;
}

static int read_size(struct spec_reader *r, struct hr__piece value, const char *what)
{
    const struct hr__asked asked = {r->text, value, what};
    return hr__size_read(&r->out->size_bytes, &asked, r->error);
}

static int apply_share(struct spec_reader *r)
{
    uint64_t size = r->out->size_bytes;
    r->out->share_bytes = size;
    if (!r->seen_share)
        return 0;
    struct hr__piece p = hr__piece_trim(r->share);
    struct hr__number number = hr__number_find(p);
    uint64_t bytes = number.length == p.length && p.length ? hr__number_times(&number, size) : 0;
    /* In (0, 1], compared exactly: 1.00000000000000001 is outside, although it rounds to 1. */
    int one = number.whole.length &&
              hr__number_times(&(struct hr__number){.whole = number.whole}, 1) == 1;
    int more =
        number.whole.length && hr__number_times(&(struct hr__number){.whole = number.whole}, 1) > 1;
    for (size_t i = 0; one && i < number.fraction.length; i++)
        more |= number.fraction.at[i] != '0';
    if (more || !bytes)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": share \"%.*s\" must be a number above 0 and at most 1, "
                        "such as share=0.9",
                        TEXT(r), PIECE(p));
    r->out->share_bytes = bytes;
    return 0;
}

static int read_group(struct spec_reader *r, struct hr__piece value)
{
    struct hr__piece p = hr__piece_trim(value);
    if (!p.length || p.length >= sizeof r->out->group)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": group \"%.*s\" must be the name of a Unix group, of at "
                        "most %zu bytes",
                        TEXT(r), PIECE(p), sizeof r->out->group - 1);
    memcpy(r->out->group, p.at, p.length);
    return 0;
}

static int read_form(struct spec_reader *r, struct hr__piece value)
{
    struct hr__piece p = hr__piece_trim(value);
    if (hr__piece_equals(p, "auto")) {
        r->out->form = HR_FORM_AUTO;
        return 0;
    }
    for (int form = HR_FORM_ENCODED; form < HR_FORMS; form++)
        if (hr__piece_equals(p, hr_form_name((enum hr_form)form))) {
            r->out->form = form;
            return 0;
        }
    return hr__fail(r->error, -EINVAL,
                    "cache \"%.*s\": form \"%.*s\" does not exist: write auto, encoded, indexed, "
                    "coefficients or planes, and of sounds waveform or waveform16",
                    TEXT(r), PIECE(p));
}

static int once(struct spec_reader *r, int *seen, const char *name)
{
    return hr__option_once(r->text, seen, name, r->error);
}

static int read_option(struct spec_reader *r, struct hr__piece option)
{
    struct hr__piece name = hr__piece_until(option, '='), value = hr__piece_behind(option, name);
    int has_value = name.length < option.length;
    name = hr__piece_trim(name);
    int failed;
    if (!has_value)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": \"%.*s\" is no option: they are size=, share=, group=, "
                        "form= and key_file=, with & between them",
                        TEXT(r), PIECE(name));
    if (hr__piece_equals(name, "size")) {
        failed = once(r, &r->seen_size, "size");
        return failed ? failed : read_size(r, value, "size");
    }
    if (hr__piece_equals(name, "share")) {
        r->share = value;
        return once(r, &r->seen_share, "share");
    }
    if (hr__piece_equals(name, "group") && *r->out->path)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": a cache on disk is its owner's only: leave group= out, or "
                        "share shm:NAME?size=64GiB&group=...",
                        TEXT(r));
    if (hr__piece_equals(name, "group")) {
        failed = once(r, &r->seen_group, "group");
        return failed ? failed : read_group(r, value);
    }
    if (hr__piece_equals(name, "key_file")) {
        failed = once(r, &r->seen_key, "key_file");
        return failed
                   ? failed
                   : hr__key_file_read(r->out->key_file, r->text, hr__piece_trim(value), r->error);
    }
    if (hr__piece_equals(name, "form")) {
        failed = once(r, &r->seen_form, "form");
        return failed ? failed : read_form(r, value);
    }
    return hr__fail(r->error, -EINVAL,
                    "cache \"%.*s\": option \"%.*s\" is unknown: there are size, share, group, "
                    "form and key_file",
                    TEXT(r), PIECE(name));
}

static int read_name(struct spec_reader *r, struct hr__piece name)
{
    if (!name.length)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": it needs a name: write shm:NAME?size=64GiB", TEXT(r));
    if (name.length >= sizeof r->out->name)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": its name is too long: write at most %zu characters",
                        TEXT(r), sizeof r->out->name - 1);
    if (name.at[0] == '-')
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": the name \"%.*s\" may not begin with '-', which commands "
                        "take for an option",
                        TEXT(r), PIECE(name));
    for (size_t i = 0; i < name.length; i++) {
        char c = name.at[i];
        int letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        if (!letter && !hr__is_digit(c) && c != '-' && c != '_')
            return hr__fail(r->error, -EINVAL,
                            "cache \"%.*s\": the name \"%.*s\" may have letters, digits, '-' and "
                            "'_' only",
                            TEXT(r), PIECE(name));
    }
    memcpy(r->out->name, name.at, name.length);
    return 0;
}

/* Reads the options behind "?", which must have a size. `kind`: as the message calls the cache;
 * `example`: what to write before "?". */
static int read_options(struct spec_reader *r, struct hr__piece rest, const char *kind,
                        const char *example)
{
    int failed = 0;
    while (!failed && rest.length) {
        struct hr__piece option = hr__piece_until(rest, '&');
        rest = hr__piece_behind(rest, option);
        failed = read_option(r, option);
    }
    if (failed)
        return failed;
    if (!r->seen_size)
        return hr__fail(r->error, -EINVAL, "cache \"%.*s\": %s needs a size: write %s?size=64GiB",
                        TEXT(r), kind, example);
    return apply_share(r);
}

static int read_kept(struct spec_reader *r, struct hr__piece text)
{
    char example[sizeof SCHEME + HR__CACHE_NAME];
    struct hr__piece name = hr__piece_until(text, '?'), rest = hr__piece_behind(text, name);
    int failed = read_name(r, hr__piece_trim(name));
    snprintf(example, sizeof example, SCHEME "%s", r->out->name);
    return failed ? failed : read_options(r, rest, "shm:NAME", example);
}

/* Reads the directory of a cache on disk. */
static int read_directory(char out[HR__CACHE_PATH], struct hr__piece text, struct hr__piece path,
                          struct hr_error *error)
{
    while (path.length > 1 && path.at[path.length - 1] == '/')
        path.length--;
    if (path.length < 2 || path.at[0] != '/' || path.length >= HR__CACHE_PATH)
        return hr__fail(error, -EINVAL,
                        "cache \"%.*s\": \"%.*s\" must be a directory on a disk of this machine, "
                        "beginning with '/', of at most %d bytes: write "
                        "disk:/nvme/headrace?size=1TiB",
                        PIECE(text), PIECE(path), HR__CACHE_PATH - 1);
    memcpy(out, path.at, path.length);
    out[path.length] = 0;
    return 0;
}

static int read_disk(struct spec_reader *r, struct hr__piece text)
{
    struct hr__piece path = hr__piece_until(text, '?'), rest = hr__piece_behind(text, path);
    int failed = read_directory(r->out->path, r->text, hr__piece_trim(path), r->error);
    memcpy(r->out->name, HR__DISK_NAME, sizeof HR__DISK_NAME);
    return failed ? failed : read_options(r, rest, "disk:DIRECTORY", "disk:/nvme/headrace");
}

static int read_private(struct spec_reader *r)
{
    struct hr__piece options = hr__piece_until(r->tier, '?');
    if (begins_with(r->tier, HR__HOSTS_SCHEME))
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": items on several hosts are for loaders; here write 64GiB "
                        "or shm:NAME?size=64GiB",
                        TEXT(r));
    if (options.length < r->tier.length)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": a private cache is a size alone, %.*s; options are for "
                        "kept ones: shm:NAME?size=%.*s&...",
                        TEXT(r), PIECE(options), PIECE(options));
    if (!r->tier.length || (!hr__is_digit(r->tier.at[0]) && r->tier.at[0] != '.'))
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\" is neither a size nor the name of a kept one: write 64GiB, "
                        "shm:NAME?size=64GiB, or disk:/nvme/headrace?size=1TiB",
                        TEXT(r));
    int failed = read_size(r, r->tier, "size");
    return failed ? failed : apply_share(r);
}

static int read_tier(struct hr__cache_spec *out, struct hr__piece text, struct hr__piece tier,
                     struct hr_error *error)
{
    memset(out, 0, sizeof *out);
    out->form = HR__FORM_UNSET;
    struct spec_reader r = {.text = text, .tier = hr__piece_trim(tier), .out = out, .error = error};
    const size_t shm = sizeof SCHEME - 1, disk = sizeof DISK - 1;
    if (begins_with(r.tier, DISK))
        return read_disk(&r, (struct hr__piece){r.tier.at + disk, r.tier.length - disk});
    if (begins_with(r.tier, SCHEME))
        return read_kept(&r, (struct hr__piece){r.tier.at + shm, r.tier.length - shm});
    return read_private(&r);
}

int hr__cache_spec_is_kept(const char *text)
{
    return begins_with(whole(text), SCHEME);
}

int hr__cache_spec_is_disk(const char *text)
{
    return begins_with(whole(text), DISK);
}

int hr__cache_spec_directory(char out[HR__CACHE_PATH], const char *text, struct hr_error *error)
{
    struct hr__piece all = whole(text), path = hr__piece_behind(all, hr__piece_until(all, ':'));
    return read_directory(out, all, hr__piece_trim(hr__piece_until(path, '?')), error);
}

int hr__cache_spec_parse(struct hr__cache_spec *out, const char *text, struct hr_error *error)
{
    struct hr__piece all = whole(text);
    if (!begins_with(all, HR__HOSTS_SCHEME) && memchr(all.at, ',', all.length))
        return hr__fail(error, -EINVAL,
                        "cache \"%.*s\": tiers in a row are for loaders; here write one of them",
                        PIECE(all));
    return read_tier(out, all, all, error);
}

/* Reads the tier of a disk beside memory. */
static int read_second(struct hr__cache_spec *out, struct hr__piece text, struct hr__piece tier,
                       struct hr_error *error)
{
    int failed = read_tier(out, text, tier, error);
    if (!failed && out->form != HR__FORM_UNSET)
        return hr__fail(error, -EINVAL,
                        "cache \"%.*s\": a disk beside memory keeps files, or files with an index: "
                        "write form= for the memory, or leave it out",
                        PIECE(text));
    return failed;
}

int hr__cache_tiers_parse(struct hr__cache_tiers *out, const char *text, struct hr_error *error)
{
    memset(out, 0, sizeof *out);
    struct hr__piece all = whole(text), first = hr__piece_until(all, ',');
    if (begins_with(all, HR__HOSTS_SCHEME) || first.length == all.length)
        return read_tier(&out->first, all, all, error);
    struct hr__piece second = hr__piece_trim(hr__piece_behind(all, first));
    int failed = read_tier(&out->first, all, first, error);
    if (failed)
        return failed;
    if (*out->first.path || !begins_with(second, DISK) || memchr(second.at, ',', second.length))
        return hr__fail(error, -EINVAL,
                        "cache \"%.*s\": two tiers are memory and a disk behind it: write "
                        "64GiB,disk:/nvme/headrace?size=1TiB, or shm:NAME?... in place of 64GiB; "
                        "or a disk before hosts: disk:/nvme/headrace?size=1TiB,memcached:...",
                        PIECE(all));
    return read_second(&out->disk, all, second, error);
}

int hr__hosts_disk_parse(struct hr__cache_spec *out, const char *text, struct hr_error *error)
{
    struct hr__piece all = whole(text);
    memset(out, 0, sizeof *out);
    return begins_with(all, DISK) ? read_second(out, all, hr__piece_until(all, ','), error) : 0;
}
