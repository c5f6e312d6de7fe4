/* headrace cache servers: what the memcached servers of a list of hosts are, as text and JSON. */
#ifndef HR_CLI_CACHE_SERVERS_H
#define HR_CLI_CACHE_SERVERS_H

#include <headrace/cache.h>

/* Prints a line for each server, and one for each problem that there is. Returns how many
 * problems. */
int cache_servers_print(const struct hr_cache_servers *servers);

/* The JSON that headrace-cache(1) describes; *problems as above. Returns 0 or -1. */
int cache_servers_print_json(const struct hr_cache_servers *servers, int *problems);

#endif
