/* Error messages, the log callback, and printable text. */
#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STR_(x) #x
#define STR(x)  STR_(x)

const char *hr_version(void)
{
    return STR(HR_VERSION_MAJOR) "." STR(HR_VERSION_MINOR) "." STR(HR_VERSION_PATCH);
}

const char *hr__errno_text(int code)
{
    /* These errors have the same cause and remedy wherever they occur. */
    if (abs(code) == EMFILE)
        return "Too many open files in this process: raise the limit (ulimit -n)";
    if (abs(code) == ENFILE)
        return "Too many open files on this machine: raise the limit (sysctl fs.file-max)";
    static _Thread_local char text[128];
    return strerror_r(abs(code), text, sizeof text);
}

/* Returns the length of the well-formed UTF-8 sequence at s (Unicode 15, table 3-7), or 0 if there
 * is none. */
static size_t utf8_length(const unsigned char *s)
{
    unsigned char c = s[0];
    unsigned char low = 0x80, high = 0xBF;
    size_t n;
    if (c < 0x80)
        return 1;
    if (c >= 0xC2 && c <= 0xDF)
        n = 2;
    else if (c >= 0xE0 && c <= 0xEF)
        n = 3;
    else if (c >= 0xF0 && c <= 0xF4)
        n = 4;
    else
        return 0;
    if (c == 0xE0)
        low = 0xA0;
    else if (c == 0xED)
        high = 0x9F;
    else if (c == 0xF0)
        low = 0x90;
    else if (c == 0xF4)
        high = 0x8F;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if (s[i] < 0x80 || s[i] > 0xBF)
            return 0;
    return n;
}

void hr__printable(char *out, size_t capacity, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t used = 0;
    if (!capacity)
        return;
    while (*s) {
        size_t n = utf8_length(s);
        int plain = n > 1 || (n == 1 && *s >= 0x20 && *s != 0x7F);
        size_t need = plain ? n : 4;
        if (used + need + 1 > capacity)
            break;
        if (plain)
            memcpy(out + used, s, n);
        else
            snprintf(out + used, 5, "\\x%02X", *s);
        used += need;
        s += plain ? n : 1;
    }
    out[used] = 0;
}

/* Removes the incomplete character at the end of a text that was cut in the middle of one. */
static void drop_cut_character(char *text)
{
    size_t length = strlen(text), last = length;
    if (length + 1 < HR_ERROR_MESSAGE_BYTES)
        return;
    while (last > 0 && length - last < 3 && ((unsigned char)text[last - 1] & 0xC0) == 0x80)
        last--;
    if (last > 0 && (unsigned char)text[last - 1] >= 0xC2 &&
        !utf8_length((const unsigned char *)text + last - 1))
        text[last - 1] = 0;
}

/* Formats into `out` as printable text. Arguments are often file names and may contain any bytes.
 * They may point into `out`, because the text is formatted into a buffer first. */
static void format_printable(char *out, size_t capacity, const char *format, va_list args)
{
    char raw[HR_ERROR_MESSAGE_BYTES];
    vsnprintf(raw, sizeof raw, format, args);
    drop_cut_character(raw);
    hr__printable(out, capacity, raw);
}

int hr__fail(struct hr_error *error, int code, const char *format, ...)
{
    if (error) {
        va_list args;
        va_start(args, format);
        format_printable(error->message, sizeof error->message, format, args);
        va_end(args);
        error->code = code;
    }
    return code;
}

/* Guards log_fn and log_arg. Held only to copy them, never during a call of log_fn, and across
 * fork, so that no child inherits it from another thread. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static hr_log_fn log_fn;
static void *log_arg;

static void lock_log(void)
{
    pthread_mutex_lock(&log_lock);
}

static void unlock_log(void)
{
    pthread_mutex_unlock(&log_lock);
}

/* When the library is loaded: handlers that are registered later take their locks before this one,
 * as code that logs under a lock does. */
static __attribute__((constructor)) void set_log_handlers(void)
{
    pthread_atfork(lock_log, unlock_log, unlock_log);
}

void hr_log_set(hr_log_fn fn, void *arg)
{
    lock_log();
    log_fn = fn;
    log_arg = arg;
    unlock_log();
}

void hr__log(enum hr_log_level level, const char *format, ...)
{
    lock_log();
    hr_log_fn fn = log_fn;
    void *arg = log_arg;
    unlock_log();
    if (!fn)
        return;
    char line[HR_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    format_printable(line, sizeof line, format, args);
    va_end(args);
    fn(arg, level, line);
}
