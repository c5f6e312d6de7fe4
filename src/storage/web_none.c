/* Stands in for libcurl in builds without it: creating fails, so nothing else is called. */
#include "storage/web.h"

#include "base/error.h"

#include <errno.h>

int hr__web_create(struct hr__web **out, const char *certificates, struct hr_error *error)
{
    (void)certificates;
    *out = NULL;
    return hr__fail(error, -ENOTSUP,
                    "this build of Headrace reads no URLs, because libcurl was absent: install "
                    "libcurl (libcurl4-openssl-dev on Debian and Ubuntu) and build again, or copy "
                    "the data to a disk");
}

void hr__web_destroy(struct hr__web **web)
{
    *web = NULL;
}

int hr__web_start(struct hr__web *web, struct hr__web_exchange *exchange)
{
    (void)web;
    (void)exchange;
    return -ENOTSUP;
}

void hr__web_stop(struct hr__web *web, struct hr__web_exchange *exchange)
{
    (void)web;
    (void)exchange;
}

struct hr__web_exchange *hr__web_wait(struct hr__web *web, int64_t timeout_ns)
{
    (void)web;
    (void)timeout_ns;
    return NULL;
}
