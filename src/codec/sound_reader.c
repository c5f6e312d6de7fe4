/* What decoders of sounds share: reading a file in memory, and the message on one that ends early.
 */
#include "codec/sound_format.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

size_t hr__sound_take(struct hr__sound_reader *reader, void *to, size_t bytes)
{
    size_t left = reader->file.length - reader->at;
    bytes = bytes < left ? bytes : left;
    memcpy(to, reader->file.bytes + reader->at, bytes);
    reader->at += bytes;
    return bytes;
}

int64_t hr__sound_seek(struct hr__sound_reader *reader, int64_t offset, int whence)
{
    int64_t length = (int64_t)reader->file.length;
    int64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? (int64_t)reader->at : length;
    if (offset < -from || offset > length - from)
        return -1;
    reader->at = (size_t)(from + offset);
    return from + offset;
}

int hr__sound_ends(struct hr_error *error, uint64_t frame, uint64_t frames)
{
    return hr__fail(error, -EBADMSG,
                    "it is damaged or ends at frame %" PRIu64 " of %" PRIu64
                    "; restore or remove it",
                    frame, frames);
}
