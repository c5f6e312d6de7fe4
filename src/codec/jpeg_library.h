/*
 * What everything that calls libjpeg-turbo shares: reading and writing of whole
 * files in memory, and errors.
 *
 * Use: hr__jpeg_init once; for each image set `error`, then setjmp(escape), then
 * the calls. A failure arrives at setjmp with the code in `code` and the message
 * in `error`; whoever called setjmp destroys what libjpeg objects there are.
 */
#ifndef HR_CODEC_JPEG_LIBRARY_H
#define HR_CODEC_JPEG_LIBRARY_H

#include "codec/format.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

struct hr__jpeg {
    struct jpeg_decompress_struct cinfo; /* live between read_header and destroy */
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf escape;         /* where failures go */
    int code;               /* what they leave for the caller */
    struct hr_error *error; /* of the current call; may be NULL */
    int lenient;            /* warnings are passed over; of the image that is read */
    int finishing;          /* all of its pixels are read */
};

void hr__jpeg_init(struct hr__jpeg *jpeg);

/* Makes cinfo and reads the header into it. Leaves with longjmp on errors, also
 * for what no form of decoding here takes: not 8 bits, not 1, 3 or 4 components. */
void hr__jpeg_read_header(struct hr__jpeg *jpeg, const struct hr__encoded *in);

/* Leaves with a message of our own about the number `n`. */
void hr__jpeg_fail(struct hr__jpeg *jpeg, int code, const char *format, int n)
    __attribute__((noreturn, format(printf, 3, 0)));

/* What libjpeg does not tell about the header: the EXIF orientation (untouched
 * where there is none), and a frame type that it may or may not know: lossless
 * and hierarchical ones (the marker, or 0). Stops at the first scan. */
void hr__jpeg_walk_markers(const struct hr__encoded *in, int *orientation, int *lossless);

/* A progressive file whose scans do not give every coefficient in full is
 * smoothed across blocks. Known when all scans have been read. */
int hr__jpeg_is_smoothed(const struct jpeg_decompress_struct *cinfo);

#endif
