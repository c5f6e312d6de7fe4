/*
 * Sends a pack to a bucket while it is being written.
 *
 * A pack file (pack_file.h) of a URL is written to a directory of this machine first, and sent in
 * parts. The front of a pack has an index that is known last, so the parts of the items go first,
 * and those of the front at the end. A part is sent when all its items are committed; its place in
 * the file is then given back to the file system. So the directory needs room for the front, for
 * HR__UPLOAD_BACKLOG and for one commit, not for the pack.
 *
 * Beside the unfinished file is PATH.upload: the store's name of the upload, the size of the parts,
 * and a line for each part of items that the store has. After a kill the next run compares these
 * with the store's own list, and goes on.
 *
 * Its threads send; all functions are for the thread that uses the pack file. Private to this room.
 */
#ifndef HR_BULK_PACK_UPLOAD_H
#define HR_BULK_PACK_UPLOAD_H

#include "dataset/progress.h"
#include "storage/http_upload.h"

#include <headrace/pack.h>

struct hr__pack_file;
struct hr__pack_upload;

/* Bytes that wait to be sent, at most; or two parts, if these are larger. */
#define HR__UPLOAD_BACKLOG (UINT64_C(256) << 20)

/*
 * Prepares to write the object at `url`: finds the file's place in `staging` (NULL: the user's
 * cache directory), and gives its path to *partial, which the caller frees. Errors: -ENOTSUP: no
 * URL of a bucket; those of a client and of making directories.
 */
int hr__pack_upload_create(struct hr__pack_upload **out, const char *url, const char *staging,
                           char **partial, struct hr_error *error);

/* Finds out whether there is an object already. Unless `overwrite`, it must be the very pack that
 * the file describes, which a run completed before it was killed. Errors: -EEXIST; of the store. */
int hr__pack_upload_look(struct hr__pack_upload *upload, const struct hr__pack_file *file,
                         int overwrite, struct hr_error *error);

/* Returns whether an earlier run began to send the file, which may then be continued. */
int hr__pack_upload_is_begun(const struct hr__pack_upload *upload);

/* Begins a new upload of a file that has no items yet: aborts the one that an earlier run began.
 * `bytes`: about the size of the pack. `part_bytes`: of the parts; 0: chosen. */
int hr__pack_upload_begin(struct hr__pack_upload *upload, const struct hr__pack_file *file,
                          uint64_t bytes, uint64_t part_bytes, struct hr_error *error);

/* Continues that of an earlier run: checks that the store has the parts. Errors: -ESTALE: it has
 * them no more; those of the store. */
int hr__pack_upload_resume(struct hr__pack_upload *upload, const struct hr__pack_file *file,
                           struct hr_error *error);

/* Returns whether bytes of [from, to) were sent, and are not in the file any more. */
int hr__pack_upload_has(const struct hr__pack_upload *upload, uint64_t from, uint64_t to);

/* The items up to `safe` are on storage, with their entries: their parts may be sent. */
void hr__pack_upload_offer(struct hr__pack_upload *upload, uint64_t safe);

/* Waits a little if too much waits to be sent. Returns 1 if it still does, 0, or the error with
 * which sending ended. */
int hr__pack_upload_wait(struct hr__pack_upload *upload, struct hr_error *error);

/* Sends what is left of the sealed file, of `bytes` bytes, and completes the object. Errors: those
 * of the store; -ECANCELED by the progress; -EEXIST. */
int hr__pack_upload_finish(struct hr__pack_upload *upload, uint64_t bytes,
                           struct hr__progress *progress, struct hr_error *error);

/* Removes what was beside the file, after the file. */
void hr__pack_upload_forget(struct hr__pack_upload *upload);

/* Stops sending; the store keeps the parts. Accepts NULL. */
void hr__pack_upload_close(struct hr__pack_upload **upload);

#endif
