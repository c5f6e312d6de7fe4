/* Fills the table of libcurl's functions; see curl_late.h. */
#include <curl/curl.h>

#include "storage/curl_late.h"

#include "base/error.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct hr__curl hr__curl;

/* The usual one; and those that Debian's programs use, with other TLS libraries. */
static void *open_library(struct hr_error *error)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};
    const char *setting = getenv("HEADRACE_LIBCURL"), *given = setting && *setting ? setting : NULL;
    void *library = given ? dlopen(given, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (given && !library)
        hr__fail(error, -ENOTSUP, "HEADRACE_LIBCURL=%s cannot be loaded: %s", given, dlerror());
    for (size_t i = 0; !given && !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!given && !library)
        hr__fail(error, -ENOTSUP,
                 "reading URLs needs libcurl, which is not on this machine: install it (apt-get "
                 "install libcurl4, dnf install libcurl), name it in HEADRACE_LIBCURL, or copy the "
                 "data to a disk");
    return library;
}

int hr__curl_load(struct hr_error *error)
{
    struct hr__curl found;
    const char *missing = NULL;
    void *library = open_library(error);
    if (!library)
        return -ENOTSUP;
#define HR__CURL_FIND(name)                                                                        \
    do {                                                                                           \
        void *function = dlsym(library, "curl_" #name);                                            \
        if (!function)                                                                             \
            missing = "curl_" #name;                                                               \
        memcpy(&found.name, &function, sizeof function);                                           \
    } while (0);
    HR__CURL_FUNCTIONS(HR__CURL_FIND)
    if (missing) {
        dlclose(library);
        return hr__fail(error, -ENOTSUP,
                        "this machine's libcurl has no %s: install libcurl 7.61 or newer", missing);
    }
    hr__curl = found; /* and the library stays */
    return 0;
}
