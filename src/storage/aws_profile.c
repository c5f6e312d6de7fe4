/* Reads profiles; see aws_profile.h. */
#include "storage/aws_profile.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Larger files are none that a person wrote. */
#define FILE_MOST (1 << 20)

const char *hr__setting(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Part of a line. */
struct ini_span {
    const char *at;
    size_t length;
};

static struct ini_span trim(const char *at, size_t length)
{
    while (length && (*at == ' ' || *at == '\t')) {
        at++;
        length--;
    }
    while (length && (unsigned char)at[length - 1] <= ' ')
        length--;
    return (struct ini_span){at, length};
}

static int is_text(struct ini_span s, const char *text)
{
    return strlen(text) == s.length && !memcmp(s.at, text, s.length);
}

/* Returns whether a line "[...]" begins the section. */
static int is_section(struct ini_span line, const char *name, int is_config)
{
    struct ini_span inside = trim(line.at + 1, line.length - 2);
    if (is_text(inside, name) && (!is_config || !strcmp(name, "default")))
        return 1;
    if (!is_config || inside.length < 8 || memcmp(inside.at, "profile", 7) ||
        (inside.at[7] != ' ' && inside.at[7] != '\t'))
        return 0;
    return is_text(trim(inside.at + 8, inside.length - 8), name);
}

static int add(struct hr__aws_profile *p, struct ini_span above, struct ini_span key,
               struct ini_span value)
{
    if (hr__reserve(HR__TAG_STORAGE, &p->keys, p->count + 1) ||
        hr__reserve(HR__TAG_STORAGE, &p->values, p->count + 1))
        return -ENOMEM;
    size_t room = above.length + key.length + 2;
    char *k = hr__alloc(HR__TAG_STORAGE, room, 1), *v = NULL;
    if (k)
        v = hr__alloc(HR__TAG_STORAGE, value.length + 1, 1);
    if (!v) {
        hr__free(k);
        return -ENOMEM;
    }
    snprintf(k, room, "%.*s%s%.*s", (int)above.length, above.at, above.length ? "." : "",
             (int)key.length, key.at);
    memcpy(v, value.at, value.length);
    p->keys[p->count] = k;
    p->values[p->count++] = v;
    return 0;
}

/* Cuts a comment off a value: " #" or " ;" begins one. */
static struct ini_span without_comment(struct ini_span value)
{
    for (size_t i = 1; i < value.length; i++)
        if ((value.at[i] == '#' || value.at[i] == ';') &&
            (value.at[i - 1] == ' ' || value.at[i - 1] == '\t'))
            return trim(value.at, i);
    return value;
}

int hr__aws_profile_parse(struct hr__aws_profile *profile, const char *text, size_t length,
                          const char *name, int is_config)
{
    struct ini_span above = {"", 0}; /* the key that indented lines belong to */
    int is_ours = 0, r = 0;
    for (const char *end = text + length; !r && text < end;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t bytes = (size_t)((newline ? newline : end) - text);
        int is_indented = bytes && (*text == ' ' || *text == '\t');
        struct ini_span line = trim(text, bytes);
        text += bytes + 1;
        if (!line.length || *line.at == '#' || *line.at == ';' || memchr(line.at, 0, line.length))
            continue;
        if (*line.at == '[') {
            is_ours = line.length > 2 && line.at[line.length - 1] == ']' &&
                      is_section(line, name, is_config);
            profile->is_found |= is_ours;
            above.length = 0;
            continue;
        }
        const char *equals = memchr(line.at, '=', line.length);
        if (!is_ours || !equals)
            continue;
        struct ini_span key = trim(line.at, (size_t)(equals - line.at));
        struct ini_span value =
            without_comment(trim(equals + 1, line.length - (size_t)(equals + 1 - line.at)));
        if (!is_indented)
            above = value.length ? (struct ini_span){"", 0} : key;
        if (key.length && value.length)
            r = add(profile, is_indented ? above : (struct ini_span){"", 0}, key, value);
    }
    return r;
}

static int read_file(struct hr__aws_profile *p, const char *path, const char *name, int is_config,
                     struct hr_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    char *text = fd < 0 ? NULL : hr__alloc(HR__TAG_STORAGE, FILE_MOST, 1);
    size_t length = 0;
    ssize_t got = fd < 0 ? -1 : 1;
    while (text && length < FILE_MOST &&
           ((got = read(fd, text + length, FILE_MOST - length)) > 0 || (got < 0 && errno == EINTR)))
        length += got > 0 ? (size_t)got : 0;
    int r = got < 0 ? -errno : text ? 0 : -ENOMEM;
    if (!r)
        r = hr__aws_profile_parse(p, text, length, name, is_config);
    if (text)
        explicit_bzero(text, length);
    hr__free(text);
    if (fd >= 0)
        close(fd);
    return r ? hr__fail(error, r, "cannot read the AWS settings in %s: %s", path, hr__errno_text(r))
             : 0;
}

int hr__aws_profile_read(struct hr__aws_profile *out, const char *name, struct hr_error *error)
{
    static const struct {
        const char *variable, *file;
    } files[2] = {{"AWS_SHARED_CREDENTIALS_FILE", "credentials"}, {"AWS_CONFIG_FILE", "config"}};
    char path[PATH_MAX];
    int r = 0;
    *out = (struct hr__aws_profile){.count = 0};
    for (int i = 0; !r && i < 2; i++) {
        const char *named = hr__setting(files[i].variable), *home = hr__setting("HOME");
        if (!named && !home)
            continue;
        int n = named ? snprintf(path, sizeof path, "%s", named)
                      : snprintf(path, sizeof path, "%s/.aws/%s", home, files[i].file);
        if (n > 0 && n < (int)sizeof path)
            r = read_file(out, path, name, i, error);
    }
    if (r)
        hr__aws_profile_clear(out);
    return r;
}

const char *hr__aws_profile_get(const struct hr__aws_profile *profile, const char *key)
{
    for (size_t i = 0; i < profile->count; i++)
        if (!strcmp(profile->keys[i], key))
            return profile->values[i];
    return NULL;
}

void hr__aws_profile_clear(struct hr__aws_profile *profile)
{
    for (size_t i = 0; i < profile->count; i++) {
        explicit_bzero(profile->values[i], strlen(profile->values[i]));
        hr__free(profile->keys[i]);
        hr__free(profile->values[i]);
    }
    hr__free(profile->keys);
    hr__free(profile->values);
    *profile = (struct hr__aws_profile){.count = 0};
}
