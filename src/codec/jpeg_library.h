/*
 * Shared by all code that calls libjpeg-turbo: reading and writing whole files in memory, and error
 * handling.
 *
 * Usage: call hr__jpeg_init once. For each image set `error`, call setjmp(escape), then the
 * functions. A failure returns to setjmp, with its code in `code` and its message in `error`; the
 * caller of setjmp then destroys the existing libjpeg objects.
 */
#ifndef HR_CODEC_JPEG_LIBRARY_H
#define HR_CODEC_JPEG_LIBRARY_H

#include "codec/format.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

struct hr__jpeg {
    struct jpeg_decompress_struct cinfo; /* exists between read_header and destroy */
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf escape;         /* target of failures */
    int code;               /* the failure's code */
    struct hr_error *error; /* of the current call; may be NULL */
    int lenient;            /* for the current image: ignore warnings */
    int finishing;          /* all of its pixels have been read */
    int keep_metadata;      /* for the next image: save its APPn and COM segments */
};

void hr__jpeg_init(struct hr__jpeg *jpeg);

/* Creates cinfo and reads the header into it. Leaves with longjmp on errors, and for images that no
 * form of decoding supports: not 8 bits, not 1, 3 or 4 components. */
void hr__jpeg_read_header(struct hr__jpeg *jpeg, const struct hr__encoded *in);

/* Leaves with a message of our own that formats the number `n`. */
void hr__jpeg_fail(struct hr__jpeg *jpeg, int code, const char *format, int n)
    __attribute__((noreturn, format(printf, 3, 0)));

/* Finds what libjpeg does not report about the header: the EXIF orientation (unchanged if there is
 * none), and whether the frame type is lossless or hierarchical, which libjpeg may not support
 * (*lossless: its marker, or 0). Stops at the first scan. */
void hr__jpeg_walk_markers(const struct hr__encoded *in, int *orientation, int *lossless);

/* Returns non-zero if libjpeg smooths the image across blocks: it is progressive, and its scans do
 * not give every coefficient in full. Call it after all scans have been read. */
int hr__jpeg_is_smoothed(const struct jpeg_decompress_struct *cinfo);

#endif
