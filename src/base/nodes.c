/* Reads NUMA nodes and the places of PCI devices from /sys; see machine.h. */
#include "base/machine.h"

#include "base/files.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words for a list of nodes or cores; longer ones are cut, at a range's end or not. */
#define LIST_BYTES 8192

/* Returns the set of a list of nodes. */
static uint64_t nodes_in(const char *list)
{
    unsigned first, last;
    uint64_t nodes = 0;
    while (hr__range_next(&list, &first, &last))
        for (unsigned node = first; node <= last && node < HR__NODES_MAX; node++)
            nodes |= UINT64_C(1) << node;
    return nodes;
}

uint64_t hr__nodes_usable(const char *root)
{
    char path[4096], text[LIST_BYTES];
    snprintf(path, sizeof path, "%s/sys/devices/system/node/has_memory", root);
    if (hr__read_text(path, text, sizeof text) <= 0) {
        snprintf(path, sizeof path, "%s/sys/devices/system/node/online", root);
        if (hr__read_text(path, text, sizeof text) <= 0)
            return 0;
    }
    uint64_t nodes = nodes_in(text);
    snprintf(path, sizeof path, "%s/proc/self/status", root);
    const char *key = "\nMems_allowed_list:";
    const char *allowed = hr__read_text(path, text, sizeof text) > 0 ? strstr(text, key) : NULL;
    if (!allowed)
        return nodes;
    allowed += strlen(key);
    return nodes & nodes_in(allowed + strspn(allowed, " \t"));
}

cpu_set_t *hr__cores_of_node(const char *root, int node, size_t *bytes)
{
    char path[4096], text[LIST_BYTES];
    snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d/cpulist", root, node);
    if (node < 0 || hr__read_text(path, text, sizeof text) <= 0)
        return NULL;
    cpu_set_t *mine = hr__cores_affinity(bytes);
    cpu_set_t *both = mine ? CPU_ALLOC(8 * *bytes) : NULL;
    const char *list = text;
    unsigned first, last;
    int count = 0;
    if (both)
        CPU_ZERO_S(*bytes, both);
    while (both && hr__range_next(&list, &first, &last))
        for (unsigned core = first; core <= last && core < 8 * *bytes; core++)
            if (CPU_ISSET_S(core, *bytes, mine) && !CPU_ISSET_S(core, *bytes, both)) {
                CPU_SET_S(core, *bytes, both);
                count++;
            }
    CPU_FREE(mine);
    if (count)
        return both;
    CPU_FREE(both);
    return NULL;
}

int hr__nodes_own(const char *root)
{
    uint64_t nodes = hr__nodes_usable(root);
    size_t bytes;
    cpu_set_t *mine = hr__cores_affinity(&bytes);
    int all = mine ? CPU_COUNT_S(bytes, mine) : 0, found = -1;
    CPU_FREE(mine);
    for (int node = 0; all && node < HR__NODES_MAX && found < 0; node++) {
        cpu_set_t *here = nodes >> node & 1 ? hr__cores_of_node(root, node, &bytes) : NULL;
        if (here && CPU_COUNT_S(bytes, here) == all)
            found = node;
        CPU_FREE(here);
    }
    return found;
}

/* Reads a number of a PCI device; -1 if it cannot be read. */
static long device_number(const char *root, const char *device, const char *name)
{
    char path[4096], text[32];
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%.63s/%s", root, device, name);
    return hr__read_text(path, text, sizeof text) > 0 ? strtol(text, NULL, 0) : -1;
}

/* Writes the name that /sys has for a bus id. Returns 0 if it is none: nothing but hexadecimal
 * digits, colons and points becomes part of a path. */
static int device_name(const char *bus_id, char name[64])
{
    size_t length = strlen(bus_id);
    if (!length || length >= 64)
        return 0;
    for (size_t i = 0; i <= length; i++)
        name[i] = (char)tolower((unsigned char)bus_id[i]);
    return strspn(name, "0123456789abcdef:.") == length;
}

int hr__device_node(const char *root, const char *bus_id)
{
    char name[64];
    long node = device_name(bus_id, name) ? device_number(root, name, "numa_node") : -1;
    return node >= 0 && node < HR__NODES_MAX ? (int)node : -1;
}

int hr__device_peers(const char *root, const char *bus_id)
{
    char path[4096], name[64];
    int count = 0, node = hr__device_node(root, bus_id);
    if (node < 0 || !device_name(bus_id, name))
        return 0;
    long class = device_number(root, name, "class"), vendor = device_number(root, name, "vendor");
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root);
    DIR *devices = opendir(path);
    const struct dirent *entry;
    while (devices && (entry = readdir(devices)))
        count += class >= 0 && device_number(root, entry->d_name, "class") == class &&
                 device_number(root, entry->d_name, "vendor") == vendor &&
                 device_number(root, entry->d_name, "numa_node") == node;
    if (devices)
        closedir(devices);
    return count;
}
