/* Reads XML; see xml.h. */
#include "storage/xml.h"

#include <stdlib.h>
#include <string.h>

void hr__xml_begin(struct hr__xml *xml, char *text, size_t length)
{
    memset(xml, 0, sizeof *xml);
    text[length] = 0;
    xml->at = text;
    xml->end = text + length;
    xml->name = xml->text = xml->end;
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Writes a character as UTF-8. Returns the bytes; 0: it is none. */
static size_t put_character(char *to, unsigned long c)
{
    if (!c || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

/* Decodes one entity at `from`, which begins with '&', to `to`. Returns the bytes read, 0 if it is
 * none; *written: those written, which are never more. */
static size_t decode_entity(const char *from, char *to, size_t *written)
{
    static const struct {
        const char *text;
        char is;
    } known[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(from, known[i].text, strlen(known[i].text))) {
            *to = known[i].is;
            *written = 1;
            return strlen(known[i].text);
        }
    if (from[1] != '#')
        return 0;
    int base = from[2] == 'x' ? 16 : 10;
    const char *digits = from + (base == 16 ? 3 : 2);
    size_t count = strspn(digits, base == 16 ? "0123456789abcdefABCDEF" : "0123456789");
    if (!count || count > 8 || digits[count] != ';')
        return 0;
    *written = put_character(to, strtoul(digits, NULL, base));
    return *written ? (size_t)(digits - from) + count + 1 : 0;
}

/* Decodes the entities of a text in place. Returns non-zero if one is unknown. */
static int decode(char *text)
{
    char *to = strchr(text, '&');
    for (const char *from = to; from && *from;) {
        if (*from != '&') {
            *to++ = *from++;
            continue;
        }
        size_t written = 0, got = decode_entity(from, to, &written);
        if (!got)
            return 1;
        from += got;
        to += written;
    }
    if (to)
        *to = 0;
    return 0;
}

/* Cuts the name that begins at `name` off at its end, and leaves a prefix out. Returns the first
 * byte after it, which it stores in *next before it becomes 0. */
static char *cut_name(char **name, char *next)
{
    char *end = *name;
    while (*end && !is_blank(*end) && *end != '/' && *end != '>' && *end != '<')
        end++;
    *next = *end;
    *end = 0;
    char *colon = strchr(*name, ':');
    if (colon)
        *name = colon + 1;
    return end;
}

/* Skips the attributes up to '>'. Returns where that is, or NULL. */
static char *skip_attributes(char *at)
{
    char quote = 0;
    for (; *at; at++) {
        if (quote)
            quote = *at == quote ? 0 : quote;
        else if (*at == '"' || *at == '\'')
            quote = *at;
        else if (*at == '>')
            return at;
    }
    return NULL;
}

static enum hr__xml_event open_element(struct hr__xml *xml, char *at)
{
    char next;
    xml->name = at;
    char *end = cut_name(&xml->name, &next);
    if (!*xml->name || xml->depth == HR__XML_DEPTH)
        return HR__XML_WRONG;
    char *close = next == '>' ? end : next ? skip_attributes(end + 1) : NULL;
    if (next == '/' && end[1] == '>')
        close = end + 1;
    if (!close)
        return HR__XML_WRONG;
    xml->closes = next == '/' || (close > end && close[-1] == '/');
    xml->names[xml->depth++] = xml->name;
    xml->at = xml->pending = close + 1;
    return HR__XML_OPEN;
}

/* Closes the innermost element. `text_end`: where its text ends. */
static enum hr__xml_event close_element(struct hr__xml *xml, char *text_end)
{
    xml->name = xml->names[--xml->depth];
    xml->text = xml->pending ? xml->pending : xml->end;
    if (xml->pending)
        *text_end = 0;
    xml->pending = NULL;
    return decode(xml->text) ? HR__XML_WRONG : HR__XML_CLOSE;
}

static enum hr__xml_event end_element(struct hr__xml *xml, char *tag)
{
    char next, *name = tag + 2;
    char *end = cut_name(&name, &next);
    while (is_blank(next))
        next = *++end;
    if (next != '>' || !xml->depth || strcmp(name, xml->names[xml->depth - 1]))
        return HR__XML_WRONG;
    xml->at = end + 1;
    return close_element(xml, tag);
}

enum hr__xml_event hr__xml_next(struct hr__xml *xml)
{
    if (xml->closes) {
        xml->closes = 0;
        xml->pending = NULL;
        return close_element(xml, NULL);
    }
    for (;;) {
        char *tag = strchr(xml->at, '<');
        if (!tag) /* blanks may follow the outermost element, and zero bytes may not */
            return !xml->depth && xml->names[0] && xml->at + strspn(xml->at, " \t\r\n") == xml->end
                       ? HR__XML_END
                       : HR__XML_WRONG;
        if (tag[1] == '?' || !strncmp(tag, "<!--", 4)) {
            const char *mark = tag[1] == '?' ? "?>" : "-->";
            char *close = strstr(tag + 2, mark);
            if (!close)
                return HR__XML_WRONG;
            xml->at = close + strlen(mark);
            /* a text with a comment inside is none that a store writes */
            xml->pending = NULL;
            continue;
        }
        if (tag[1] == '!')
            return HR__XML_WRONG;
        return tag[1] == '/' ? end_element(xml, tag) : open_element(xml, tag + 1);
    }
}
