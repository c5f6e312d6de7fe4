/*
 * What object stores and credential servers answer, and the settings of AWS's tools: any bytes end
 * in values within bounds, or are refused. The first byte chooses the parser.
 */
#include "storage/aws_profile.h"
#include "storage/credentials.h"
#include "storage/http.h"
#include "storage/http_upload.h"

#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take(void *arg, const char *key, const struct hr__object *object)
{
    const char *const *text = arg;
    if (key < text[0] || key + strlen(key) > text[1] || object->bytes < -1)
        abort();
    return 0;
}

static void list(char *text, size_t size)
{
    const char *next, *bounds[2] = {text, text + size};
    const struct hr__http_listing listing = {.url = "s3://bucket",
                                             .prefix = "",
                                             .delimiter = "/",
                                             .each = take,
                                             .each_prefix = take,
                                             .arg = bounds};
    int r = hr__http_list_page(&listing, text, size, &next);
    if ((r && next) || (next && (next < text || next + strlen(next) > text + size)))
        abort();
}

static int take_part(void *arg, unsigned number, const char *etag, int64_t bytes)
{
    (void)arg;
    if (!number || number > HR__UPLOAD_PARTS || bytes < 0 || !*etag ||
        strlen(etag) >= HR__ETAG_BYTES || etag[strcspn(etag, "\n<>&")])
        abort();
    return 0;
}

static void list_parts(char *text, size_t size)
{
    unsigned next;
    if (hr__upload_page(text, size, take_part, NULL, &next) ? next : next > HR__UPLOAD_PARTS)
        abort();
}

static void credentials(char *text, size_t size, int is_xml)
{
    struct hr__credentials *c = hr__alloc(HR__TAG_STORAGE, 1, sizeof *c);
    struct hr_error error = {0};
    if (!c)
        return;
    int r = is_xml ? hr__credentials_from_xml(c, text, size, &error)
                   : hr__credentials_from_json(c, text, size, &error);
    if (r ? !error.message[0] : !memchr(c->key_id, 0, sizeof c->key_id) || c->expires_s < 0)
        abort();
    hr__credentials_free(&c);
}

static void profile(const char *text, size_t size)
{
    struct hr__aws_profile p = {.count = 0};
    for (int is_config = 0; is_config < 2; is_config++)
        if (hr__aws_profile_parse(&p, text, size, "a", is_config))
            break;
    for (size_t i = 0; i < p.count; i++)
        if (!*p.keys[i] || !*p.values[i] || !hr__aws_profile_get(&p, p.keys[i]))
            abort();
    hr__aws_profile_clear(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!size || !text) {
        free(text);
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    if (data[0] % 8 == 4)
        list_parts(text, size - 1);
    else if (data[0] % 4 == 0)
        list(text, size - 1);
    else if (data[0] % 4 == 3)
        profile(text, size - 1);
    else
        credentials(text, size - 1, data[0] % 4 == 1);
    free(text);
    return 0;
}
