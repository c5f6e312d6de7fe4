/*
 * The loader's part in a cache that lies on several hosts: meets the other ranks, has the
 * plan of each epoch, fetches items from the servers that own them, and stores what it read.
 *
 * A batch that is opened gets its samples from the plan. Fetchers hand jobs whose item has
 * an owner to the host threads, in groups by owner; these ask each server once a group, and
 * deliver what they find to the workers like a read. What is missing comes back to the
 * fetchers, to be read from storage; once it was prepared without an error it is stored at
 * its owner. While storage has nothing to do, samples of later batches are read into their
 * owners' servers, in the order of their use. So each sample is read by the rank that uses
 * it first, and by nobody else.
 *
 * Lock order: the loader's lock, then a hosts' own. Servers are talked to under no lock.
 */
#ifndef HR_ENGINE_HOSTS_H
#define HR_ENGINE_HOSTS_H

#include "cache/hosts.h"
#include "cache/meeting.h"
#include "cache/peers.h"
#include "order/placement.h"
#include "order/plan.h"

#include <headrace/loader.h>

struct hr_loader;
struct hr__job;
struct hr__epoch;
struct hr__hosting; /* all of it; hr_loader has a pointer, NULL without hosts */

#endif
