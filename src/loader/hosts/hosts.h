/*
 * The loader's part in a cache that lies on several hosts: meets the other ranks, has the
 * plan of each epoch, fetches items from the servers that own them, and stores what it read.
 *
 * A batch that is opened gets its samples from the plan (deal.c). Whoever opens it
 * routes its samples (route.c): those whose item has an owner wait in a queue by owner for
 * the host threads (threads.c), which ask each server for a group at once and deliver what
 * they find to the workers like a read; the others, and what is missing, wait for the fetchers
 * to be read from storage. Once a sample was prepared without an error it is stored at its
 * owner (store.c). While storage has nothing to do, samples of later batches are read
 * into their owners' servers, in the order of their use (ahead.c). So each sample is read
 * by the rank that uses it first, and by nobody else.
 *
 * Everything is guarded by the loader's lock; servers are talked to under no lock.
 */
#ifndef HR_LOADER_HOSTS_HOSTS_H
#define HR_LOADER_HOSTS_HOSTS_H

#include <headrace/loader.h>

struct hr_loader;

/* Non-zero where the options' cache is one of hosts. */
int hr__hosting_is_wanted(const struct hr_loader_options *options);

/* Of taken options: whether what is asked for goes with hosts. Errors: -ENOTSUP, -EINVAL. */
int hr__hosting_check(const struct hr_loader_options *options, struct hr_error *error);

/* Makes l->hosting, and hangs it on the loader; no I/O but name lookups. Errors: those of
 * hr__hosts_parse, hr__hosts_find_self and hr__peers_create. */
int hr__hosting_create(struct hr_loader *l, struct hr_error *error);

#endif
