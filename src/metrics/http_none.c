/* No HTTP server: the library was built without libmicrohttpd. */
#include "metrics/http.h"

#include "base/error.h"

#include <errno.h>

static int none_start(void **out, int listener, hr__http_answer_fn answer, void *arg,
                      struct hr_error *error)
{
    return hr__fail(error, -ENOTSUP,
                    "this library was built without libmicrohttpd, so there is no metrics "
                    "endpoint: install libmicrohttpd-dev and build it again");
}

static void do_nothing(void *server)
{
}

const struct hr__http hr__http = {none_start, do_nothing, do_nothing, do_nothing};
