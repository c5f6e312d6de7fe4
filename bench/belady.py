"""Simulates Belady's rule: the reads of an optimal cache that knows the future.

Several jobs share one cache and use the same items, each in its own order, one item
each in turn. If the cache is full, it evicts the item whose next use, by any of the
jobs, is furthest ahead; that may be the new item, which is then not cached. For items
of equal size this is optimal (L. A. Belady, "A study of replacement algorithms for a
virtual-storage computer", IBM Systems Journal 5(2), 1966); for sizes that differ
little it is close to that.
"""

import heapq

NEVER = float("inf")


def interleave(orders):
    """Merges all jobs' uses into one stream, one of each job in turn."""
    stream = []
    for uses in zip(*orders, strict=True):
        stream.extend(uses)
    return stream


def next_uses(stream):
    """Returns, for each use in a stream, the position of the same item's next use."""
    following = [NEVER] * len(stream)
    last = {}
    for at in range(len(stream) - 1, -1, -1):
        following[at] = last.get(stream[at], NEVER)
        last[stream[at]] = at
    return following


def misses(stream, sizes, capacity):
    """Returns the bytes that each use in the stream reads. The cache starts empty."""
    following = next_uses(stream)
    until = {}  # the next use of each cached item
    furthest = []  # heap of (-next use, item); outdated entries are skipped
    free = capacity
    reads = [0] * len(stream)
    for at, item in enumerate(stream):
        if item not in until:
            reads[at] = sizes[item]
            free -= sizes[item]
        until[item] = following[at]
        heapq.heappush(furthest, (-following[at], item))
        while free < 0:
            use, candidate = heapq.heappop(furthest)
            if until.get(candidate) == -use:
                del until[candidate]
                free += sizes[candidate]
    return reads


def epoch_reads(orders, sizes, capacity):
    """Returns the bytes read in each epoch. orders[job][epoch]: a permutation of the items. In
    the last epoch no item has a next use, so callers should not count that epoch."""
    epochs = len(orders[0])
    stream = interleave([[item for epoch in job for item in epoch] for job in orders])
    reads = misses(stream, sizes, capacity)
    step = len(stream) // epochs
    return [sum(reads[epoch * step:(epoch + 1) * step]) for epoch in range(epochs)]
