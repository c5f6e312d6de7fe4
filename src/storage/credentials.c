/* Finds credentials; see credentials.h. */
#include "storage/credentials.h"

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "storage/aws_profile.h"
#include "storage/url.h"
#include "storage/xml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* The instance's server is near, or there is none. */
#define METADATA_MS 1000
#define STS_MS      10000

#define TOKEN_MOST 16384

/* ---- values ---- */

void hr__credentials_free(struct hr__credentials **credentials)
{
    struct hr__credentials *c = *credentials;
    *credentials = NULL;
    if (!c)
        return;
    if (c->token)
        explicit_bzero(c->token, strlen(c->token));
    hr__free(c->token);
    explicit_bzero(c, sizeof *c);
    hr__free(c);
}

bool hr__credentials_end(const struct hr__credentials *credentials, int64_t margin_s)
{
    return credentials->expires_s && time(NULL) + margin_s >= credentials->expires_s;
}

int64_t hr__time_of_text(const char *text)
{
    struct tm t = {0};
    int n = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour,
               &t.tm_min, &t.tm_sec, &n) != 6 ||
        !n)
        return -1;
    text += n;
    if (*text == '.')
        text += 1 + strspn(text + 1, "0123456789");
    if (strcmp(text, "Z") && strcmp(text, "+00:00"))
        return -1;
    if (t.tm_year < 1970 || t.tm_mon < 1 || t.tm_mon > 12 || t.tm_mday < 1 || t.tm_mday > 31)
        return -1;
    t.tm_year -= 1900;
    t.tm_mon--;
    return (int64_t)timegm(&t);
}

/* Stores the parts. Returns 0, -EBADMSG for parts that no credentials have, or -ENOMEM. */
static int set(struct hr__credentials *c, const char *key_id, const char *secret, const char *token)
{
    if (!key_id || !secret || strlen(key_id) >= sizeof c->key_id ||
        strlen(secret) >= sizeof c->secret || (token && strlen(token) > TOKEN_MOST))
        return -EBADMSG;
    for (const char *p = key_id; *p; p++)
        if (*p <= ' ' || *p > '~')
            return -EBADMSG;
    for (const char *p = token ? token : ""; *p; p++)
        if (*p <= ' ' || *p > '~')
            return -EBADMSG;
    snprintf(c->key_id, sizeof c->key_id, "%s", key_id);
    snprintf(c->secret, sizeof c->secret, "%s", secret);
    if (token && *token && !(c->token = hr__strdup(HR__TAG_STORAGE, token)))
        return -ENOMEM;
    return 0;
}

static int wrong(const struct hr__credentials *c, int code, const char *what,
                 struct hr_error *error)
{
    return hr__fail(error, code, "the credentials of %s are not usable: %s", c->source, what);
}

/* ---- the environment and files ---- */

static int from_environment(struct hr__credentials *c, const char *prefix, struct hr_error *error)
{
    char names[3][40];
    snprintf(names[0], sizeof names[0], "%s_ACCESS_KEY_ID", prefix);
    snprintf(names[1], sizeof names[1], "%s_SECRET_ACCESS_KEY", prefix);
    snprintf(names[2], sizeof names[2], "%s_SESSION_TOKEN", prefix);
    const char *id = hr__setting(names[0]), *secret = hr__setting(names[1]);
    if (!id && !secret)
        return 0;
    snprintf(c->source, sizeof c->source, "the environment");
    if (!id || !secret)
        return hr__fail(error, -EACCES, "%s is set and %s is not: set both, or neither",
                        names[id ? 0 : 1], names[id ? 1 : 0]);
    int r = set(c, id, secret, hr__setting(names[2]));
    return r ? wrong(c, r, "they are too long, or have blanks in them", error) : 1;
}

static int from_profile(struct hr__credentials *c, struct hr_error *error)
{
    static const char *const unread[] = {"role_arn", "sso_session", "sso_start_url",
                                         "credential_process"};
    const char *name = hr__setting("AWS_PROFILE");
    struct hr__aws_profile p;
    int r = hr__aws_profile_read(&p, name ? name : "default", error);
    if (r)
        return r;
    snprintf(c->source, sizeof c->source, "the profile %.40s", name ? name : "default");
    const char *id = hr__aws_profile_get(&p, "aws_access_key_id");
    const char *secret = hr__aws_profile_get(&p, "aws_secret_access_key");
    if (id && secret) {
        r = set(c, id, secret, hr__aws_profile_get(&p, "aws_session_token"));
        r = r ? wrong(c, r, "they are too long, or have blanks in them", error) : 1;
    }
    for (size_t i = 0; !r && i < sizeof unread / sizeof *unread; i++)
        if (hr__aws_profile_get(&p, unread[i]))
            r = hr__fail(error, -ENOTSUP,
                         "%s gets its credentials by %s, which Headrace does not run: run "
                         "`eval \"$(aws configure export-credentials --profile %.40s --format "
                         "env)\"` first",
                         c->source, unread[i], name ? name : "default");
    if (!r && name && !p.is_found)
        r = hr__fail(error, -ENOENT,
                     "AWS_PROFILE is %.40s, and neither ~/.aws/credentials nor ~/.aws/config has "
                     "that profile: correct the name",
                     name);
    hr__aws_profile_clear(&p);
    return r;
}

/* ---- servers ---- */

/* Copies a member that is a text. Returns NULL if it is absent. */
static const char *member(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

int hr__credentials_from_json(struct hr__credentials *out, const char *text, size_t length,
                              struct hr_error *error)
{
    struct hr__json reader = {.where = "the answer of a credentials server", .error = error};
    json_t *all = hr__json_parse(&reader, text, length);
    if (!all)
        return reader.code;
    const char *code = member(all, "Code"), *expires = member(all, "Expiration");
    int r = code && strcmp(code, "Success")
                ? -EACCES
                : set(out, member(all, "AccessKeyId"), member(all, "SecretAccessKey"),
                      member(all, "Token"));
    out->expires_s = expires ? hr__time_of_text(expires) : 0;
    if (!r && out->expires_s < 0)
        r = -EBADMSG;
    if (r)
        hr__fail(error, r, "the answer of a credentials server holds no credentials");
    json_decref(all);
    return r;
}

int hr__credentials_from_xml(struct hr__credentials *out, char *text, size_t length,
                             struct hr_error *error)
{
    struct hr__xml xml;
    const char *id = NULL, *secret = NULL, *token = NULL, *code = NULL, *message = "";
    enum hr__xml_event event;
    hr__xml_begin(&xml, text, length);
    while ((event = hr__xml_next(&xml)) == HR__XML_OPEN || event == HR__XML_CLOSE) {
        if (event == HR__XML_OPEN)
            continue;
        if (!strcmp(xml.name, "AccessKeyId"))
            id = xml.text;
        else if (!strcmp(xml.name, "SecretAccessKey"))
            secret = xml.text;
        else if (!strcmp(xml.name, "SessionToken"))
            token = xml.text;
        else if (!strcmp(xml.name, "Expiration"))
            out->expires_s = hr__time_of_text(xml.text);
        else if (!strcmp(xml.name, "Code"))
            code = xml.text;
        else if (!strcmp(xml.name, "Message"))
            message = xml.text;
    }
    if (code)
        return hr__fail(error, -EACCES, "the token service refuses: %.60s (%.200s)", code, message);
    int r = event == HR__XML_WRONG || out->expires_s < 0 ? -EBADMSG : set(out, id, secret, token);
    return r ? hr__fail(error, r, "the token service's answer holds no credentials") : 0;
}

/* Asks one server once. On success the caller frees answer->text. */
static int ask(struct hr__web *web, struct hr__web_exchange *x, struct hr__web_answer *answer,
               struct hr_error *error)
{
    x->stall_ms = x->connect_ms;
    int r = hr__web_ask(web, x, answer, error);
    if (!r && answer->status / 100 != 2) {
        r = hr__fail(error, -EACCES, "it answers with the status %d", answer->status);
        explicit_bzero(answer->text, answer->length);
        hr__free(answer->text);
        answer->text = NULL;
    }
    return r;
}

static void drop(struct hr__web_answer *answer)
{
    explicit_bzero(answer->text, answer->length);
    hr__free(answer->text);
    answer->text = NULL;
}

/* Reads a small file with a token, without the line's end. Returns 0 or a negative errno. */
static int read_token(const char *path, char *out, size_t capacity)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return -errno;
    size_t length = fread(out, 1, capacity - 1, file);
    int r = ferror(file) ? -EIO : !feof(file) ? -EFBIG : 0;
    fclose(file);
    while (length && (unsigned char)out[length - 1] <= ' ')
        length--;
    out[length] = 0;
    return r ? r : length ? 0 : -ENODATA;
}

/* Exchanges a web identity for credentials. */
static int from_web_identity(struct hr__credentials *c, struct hr__web *web, const char *region,
                             struct hr_error *error)
{
    const char *path = hr__setting("AWS_WEB_IDENTITY_TOKEN_FILE");
    const char *role = hr__setting("AWS_ROLE_ARN");
    const char *session = hr__setting("AWS_ROLE_SESSION_NAME");
    const char *endpoint = hr__setting("AWS_ENDPOINT_URL_STS");
    struct hr__draft body = {0}, url = {0};
    struct hr__web_answer answer;
    struct hr_error why = {.code = 0};
    char token[TOKEN_MOST];
    if (!path || !role)
        return 0;
    snprintf(c->source, sizeof c->source, "the web identity");
    int r = read_token(path, token, sizeof token);
    if (r)
        return hr__fail(error, r, "cannot read AWS_WEB_IDENTITY_TOKEN_FILE %s: %s", path,
                        hr__errno_text(r));
    hr__draft_put(&body, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=");
    hr__url_escape(&body, role, strlen(role), false);
    hr__draft_put(&body, "&RoleSessionName=");
    hr__url_escape(&body, session ? session : "headrace", strlen(session ? session : "headrace"),
                   false);
    hr__draft_put(&body, "&WebIdentityToken=");
    hr__url_escape(&body, token, strlen(token), false);
    if (endpoint)
        hr__draft_print(&url, "%s/", endpoint);
    else
        hr__draft_print(&url, "https://sts.%s.amazonaws.com/", region);
    const struct hr__sign_pair header = {"content-type", "application/x-www-form-urlencoded"};
    struct hr__web_exchange x = {.method = "POST",
                                 .url = url.text,
                                 .headers = &header,
                                 .header_count = 1,
                                 .body = body.text,
                                 .body_bytes = body.length,
                                 .connect_ms = STS_MS,
                                 .stall_ms = STS_MS};
    r = body.failed || url.failed ? hr__fail(&why, -ENOMEM, "out of memory")
                                  : hr__web_ask(web, &x, &answer, &why);
    if (!r) {
        r = hr__credentials_from_xml(c, answer.text, answer.length, &why);
        drop(&answer);
    }
    if (r)
        hr__fail(error, r,
                 "the role %s cannot be assumed with the web identity in %s: %s; check the role "
                 "and that the token is fresh",
                 role, path, why.message);
    explicit_bzero(token, sizeof token);
    if (body.text)
        explicit_bzero(body.text, body.length);
    hr__draft_clear(&body);
    hr__draft_clear(&url);
    return r ? r : 1;
}

/* Returns whether a container's server is on this machine, so that a token may be sent to it
 * without TLS: AWS's tools send it to the same. */
static bool is_local(const char *url)
{
    static const char *const hosts[] = {"localhost",     "127.0.0.1",      "[::1]",
                                        "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    if (strncmp(url, "http://", 7) || memchr(url + 7, '@', strcspn(url + 7, "/?")))
        return false;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        size_t n = strlen(hosts[i]);
        if (!strncmp(url + 7, hosts[i], n) && strchr(":/?", url[7 + n]))
            return true;
    }
    return false;
}

/* Asks the server of a container (ECS, EKS). */
static int from_container(struct hr__credentials *c, struct hr__web *web, struct hr_error *error)
{
    const char *full = hr__setting("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *relative = hr__setting("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *file = hr__setting("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *given = hr__setting("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char url[1024], token[TOKEN_MOST] = "";
    struct hr__web_answer answer;
    struct hr_error why = {.code = 0};
    if (!full && !relative)
        return 0;
    snprintf(c->source, sizeof c->source, "the container's server");
    int n = snprintf(url, sizeof url, "%s%s", relative ? "http://169.254.170.2" : "",
                     relative ? relative : full);
    if (n >= (int)sizeof url || (!is_local(url) && strncmp(url, "https://", 8)))
        return hr__fail(error, -EINVAL,
                        "AWS_CONTAINER_CREDENTIALS_FULL_URI is not one that a token may be sent "
                        "to: it begins with https://, or with http:// and a host of this machine");
    int r = file ? read_token(file, token, sizeof token) : 0;
    if (!file && given && snprintf(token, sizeof token, "%s", given) >= (int)sizeof token)
        r = -EFBIG;
    const struct hr__sign_pair header = {"authorization", token};
    struct hr__web_exchange x = {.method = "GET",
                                 .url = url,
                                 .headers = &header,
                                 .header_count = *token != 0,
                                 .connect_ms = METADATA_MS,
                                 .is_near = is_local(url)};
    if (r)
        hr__fail(&why, r, "its token cannot be read: %s", hr__errno_text(r));
    else if (!(r = ask(web, &x, &answer, &why))) {
        r = hr__credentials_from_json(c, answer.text, answer.length, &why);
        drop(&answer);
    }
    explicit_bzero(token, sizeof token);
    return r ? hr__fail(error, r, "no credentials from %s: %s", c->source, why.message) : 1;
}

/* Asks the instance's metadata server, version 2. Returns 0 if there is none. */
static int from_instance(struct hr__credentials *c, struct hr__web *web, struct hr_error *error)
{
    const char *off = hr__setting("AWS_EC2_METADATA_DISABLED");
    const char *server = hr__setting("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    static const char path[] = "latest/meta-data/iam/security-credentials/";
    struct hr__web_answer token = {.text = NULL}, answer = {.text = NULL};
    struct hr_error why = {.code = 0};
    char url[1024], role[256];
    if (off && !strcasecmp(off, "true"))
        return 0;
    server = server ? server : "http://169.254.169.254";
    const char *slash = server[strlen(server) - 1] == '/' ? "" : "/";
    snprintf(c->source, sizeof c->source, "the instance's metadata server");
    snprintf(url, sizeof url, "%s%slatest/api/token", server, slash);
    const struct hr__sign_pair life = {"x-aws-ec2-metadata-token-ttl-seconds", "21600"};
    struct hr__web_exchange x = {.method = "PUT",
                                 .url = url,
                                 .headers = &life,
                                 .header_count = 1,
                                 .body = "",
                                 .connect_ms = METADATA_MS,
                                 .is_near = 1};
    if (ask(web, &x, &token, NULL))
        return 0;
    const struct hr__sign_pair header = {"x-aws-ec2-metadata-token", token.text};
    snprintf(url, sizeof url, "%s%s%s", server, slash, path);
    x = (struct hr__web_exchange){.method = "GET",
                                  .url = url,
                                  .headers = &header,
                                  .header_count = 1,
                                  .connect_ms = METADATA_MS,
                                  .is_near = 1};
    int r = ask(web, &x, &answer, &why);
    if (!r) {
        snprintf(role, sizeof role, "%.*s", (int)strcspn(answer.text, "\r\n"), answer.text);
        drop(&answer);
        snprintf(url, sizeof url, "%s%s%s%s", server, slash, path, role);
        r = ask(web, &x, &answer, &why);
    }
    if (!r) {
        r = hr__credentials_from_json(c, answer.text, answer.length, &why);
        drop(&answer);
    }
    drop(&token);
    return r ? hr__fail(error, r,
                        "no credentials from %s: %s; give the instance a role, or set "
                        "AWS_EC2_METADATA_DISABLED=true",
                        c->source, why.message)
             : 1;
}

/* Returns whether requests are to be anonymous. */
static bool wants_none(void)
{
    const char *value = hr__setting("AWS_NO_SIGN_REQUEST");
    return value && strcasecmp(value, "no") && strcasecmp(value, "false") && strcmp(value, "0");
}

int hr__credentials_find(struct hr__credentials **out, struct hr__web *web, bool gs,
                         const char *region, struct hr_error *error)
{
    struct hr__credentials *c = hr__alloc(HR__TAG_STORAGE, 1, sizeof *c);
    int r = 0;
    *out = NULL;
    if (!c)
        return hr__fail(error, -ENOMEM, "out of memory for credentials");
    if (gs) {
        r = from_environment(c, "GS", error);
    } else if (!wants_none()) {
        r = from_environment(c, "AWS", error);
        if (!r)
            r = from_web_identity(c, web, region, error);
        if (!r)
            r = from_profile(c, error);
        if (!r)
            r = from_container(c, web, error);
        if (!r)
            r = from_instance(c, web, error);
    }
    if (r < 0) {
        hr__credentials_free(&c);
        return r;
    }
    if (!r)
        snprintf(c->source, sizeof c->source, "nobody (no credentials were found)");
    *out = c;
    return 0;
}
