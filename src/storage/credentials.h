/*
 * Credentials for object stores, found where AWS's tools find them, in this order: the environment
 * (AWS_ACCESS_KEY_ID, ...), a web identity (AWS_WEB_IDENTITY_TOKEN_FILE), the profile AWS_PROFILE
 * of the shared files, the container's server, the instance's metadata server (version 2). Without
 * any of them requests are anonymous.
 *
 * For gs:// they are HMAC keys: GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY.
 *
 * Nothing here writes a secret into a message or a log.
 */
#ifndef HR_STORAGE_CREDENTIALS_H
#define HR_STORAGE_CREDENTIALS_H

#include "storage/web.h"

#include <stdbool.h>
#include <stdint.h>

struct hr__credentials {
    char key_id[160]; /* "": anonymous */
    char secret[200];
    char *token;                   /* of a session; NULL: none. Owned */
    int64_t expires_s;             /* since 1970; 0: never */
    char source[96];               /* where they come from, for messages: "the environment" */
    struct hr__credentials *older; /* for the one who keeps a list of them */
};

/*
 * Finds the credentials now. `gs`: those for gs://. `region`: for the server that exchanges a web
 * identity. `web`: of the calling thread. On success the caller owns *out. Blocks up to some
 * seconds. Errors: -EACCES and others, with a message that says which source fails and what to do.
 */
int hr__credentials_find(struct hr__credentials **out, struct hr__web *web, bool gs,
                         const char *region, struct hr_error *error);

/* Wipes and frees; accepts NULL. */
void hr__credentials_free(struct hr__credentials **credentials);

/* Returns whether they end within `margin_s` seconds. Reads the clock. */
bool hr__credentials_end(const struct hr__credentials *credentials, int64_t margin_s);

/* Reads the JSON of a metadata or container server. Errors: -EBADMSG with a message. */
int hr__credentials_from_json(struct hr__credentials *out, const char *text, size_t length,
                              struct hr_error *error);

/* Reads the XML of AssumeRoleWithWebIdentity, which it writes to; text[length] must be writable. */
int hr__credentials_from_xml(struct hr__credentials *out, char *text, size_t length,
                             struct hr_error *error);

/* Reads a time as "2026-11-23T18:00:00Z". Returns seconds since 1970, or -1. Pure. */
int64_t hr__time_of_text(const char *text);

#endif
