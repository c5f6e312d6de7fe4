/*
 * The loader's side of a cache on several hosts: meets the other ranks, computes the plan of each
 * epoch, fetches items from the servers that own them, and stores what it read.
 *
 * When a batch is opened, the plan determines its samples (deal.c) and the opening thread routes
 * them (route.c). Samples whose item has an owner wait in that owner's queue for the host threads
 * (threads.c). These ask the server for a group of items at once and pass those found to the
 * workers, like a read. All other samples, and items that the server lacks, wait for the fetchers
 * to read them from storage. Once a sample was prepared without an error, it is stored at its owner
 * (store.c). While storage is idle, samples of later batches are read ahead into their owners'
 * servers, in order of use (ahead.c). So each sample is read by the rank that uses it first, and by
 * no other.
 *
 * With a disk before the hosts, what no host's memory has room for is kept on disks: each rank
 * looks on its host's disk before it reads such a sample, and keeps it there (caching.h). The
 * placement assigns these samples to hosts, too, and the plan gives them to the ranks there,
 * because nobody else can read a disk.
 *
 * The loader's lock guards everything; no lock is held while talking to servers.
 */
#ifndef HR_LOADER_HOSTS_HOSTS_H
#define HR_LOADER_HOSTS_HOSTS_H

#include <headrace/loader.h>

struct hr_loader;

/* Returns non-zero if the options ask for a cache on several hosts. */
int hr__hosting_is_wanted(const struct hr_loader_options *options);

/* Checks that taken options are compatible with hosts. Errors: -ENOTSUP, -EINVAL. */
int hr__hosting_check(const struct hr_loader_options *options, struct hr_error *error);

/* Makes l->hosting and attaches it to the loader; no I/O except name lookups. Errors: those of
 * hr__hosts_parse, hr__hosts_find_self and hr__peers_create. */
int hr__hosting_create(struct hr_loader *l, struct hr_error *error);

#endif
