/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <dirent.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Small files, read and written as a whole.
 */

/* Appends the content of the file to out. More than `max` bytes are ERR_TOO_LARGE, a
 * missing file is ERR_NOT_FOUND, a denied access ERR_FORBIDDEN, anything else
 * ERR_UNAVAILABLE. The message names the file. On error, out is unchanged. */
int file_read(const char *path, size_t max, struct buf *out, struct err *err);

/* Replaces the file atomically (write, fsync, rename): a reader finds either the old content or the
 * new one, also after a crash, and never a mix of two writers. Mode 0600. Errors as for
 * file_read. */
int file_write(const char *path, struct span bytes, struct err *err);

/* openat of an absolute path as a root directory's own programs resolve it: an absolute
 * symbolic link does not lead out of the directory `root`. (Before Linux 5.6 it does.)
 * Close-on-exec. Returns the descriptor, or -1 with errno. */
int file_open_inside(int root, const char *path, int flags);

/* Closes a folder, unless it is NULL, when its scope ends. */
void file_cleanup_folder(DIR **folder);
#define cleanup_folder __attribute__((cleanup(file_cleanup_folder)))

/* Raises the soft limit of open descriptors to the hard one, at most to 65,536: no program
 * needs more. To be called once, before anything depends on the limit. */
void file_raise_limit(void);
