/*
 * Messages between an agent and its jobs: any datagram is parsed, or refused with a reason. Packing
 * a parsed message gives the same bytes again, and its values are in range.
 */
#include "agent/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int is_ended(const char *text, size_t bytes)
{
    return strnlen(text, bytes) < bytes;
}

/* Checks again the bounds of a few structs. */
static int is_kept(const struct hr__wire_message *m)
{
    const struct hr__wire_attach *a = &m->attach;
    switch (m->type) {
    case HR__WIRE_HELLO:
        return m->hello.pid > 0 && is_ended(m->hello.program, sizeof m->hello.program);
    case HR__WIRE_ATTACH:
        return a->batch_size >= 1 && a->batch_size <= 1 << 24 && a->rank >= 0 &&
               a->rank < a->world_size &&
               (!a->external_order || (a->world_size == 1 && !a->stream[0])) &&
               is_ended(a->stream, sizeof a->stream) && is_ended(a->cache, sizeof a->cache);
    case HR__WIRE_ATTACHED:
        return m->attached.spec.bytes > 0 && hr_dtype_bytes(m->attached.spec.dtype) > 0;
    case HR__WIRE_HALT:
        return m->halt.error.code < 0 && is_ended(m->halt.path, sizeof m->halt.path) &&
               is_ended(m->halt.error.message, sizeof m->halt.error.message);
    default:
        return m->type >= HR__WIRE_HELLO && m->type < HR__WIRE_TYPES;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char packed[HR__WIRE_BYTES_MAX];
    struct hr__wire_message message;
    struct hr_error error = {0};
    int r = hr__wire_unpack(&message, data, size, &error);
    if (r ? !error.message[0] || (r != -EPROTO && r != -EPROTONOSUPPORT)
          : !is_kept(&message) || message.file_count || hr__wire_pack(&message, packed) != size ||
                memcmp(packed, data, size))
        abort();
    return 0;
}
