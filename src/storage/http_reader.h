/* The reader's backend for objects: requests with `http` (reader.h). Private to the storage room.
 */
#ifndef HR_STORAGE_HTTP_READER_H
#define HR_STORAGE_HTTP_READER_H

#include "storage/backend.h"
#include "storage/http.h"

/* Creates a backend for the objects of one client, of which it holds a reference; otherwise as
 * hr__uring_create. Errors: those of making connections. */
int hr__http_open(void **self, struct hr__http_client *http, const struct hr__transfer_rules *rules,
                  struct hr__read_list *done);
extern const struct hr__reader_backend hr__http_backend;

#endif
