/* headrace cache servers: reports on a list of memcached servers, as text and JSON. */
#ifndef HR_CLI_CACHE_SERVERS_H
#define HR_CLI_CACHE_SERVERS_H

#include <headrace/cache.h>

/* Prints a line for each server and a line for each problem. Returns the number of problems. */
int cache_servers_print(const struct hr_cache_servers *servers);

/* Returns the JSON described in headrace-cache(1); NULL: out of memory. *problems: as above. */
struct json_t *cache_servers_json(const struct hr_cache_servers *servers, int *problems);

#endif
