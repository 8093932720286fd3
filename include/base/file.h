/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Small files, read and written whole.
 */

/* Appends the bytes of the file to out. More than `max` bytes are ERR_TOO_LARGE; a
 * missing file is ERR_NOT_FOUND, one that may not be read ERR_FORBIDDEN, anything else
 * ERR_UNAVAILABLE. The message names the file. After an error out is as it was. */
int file_read(const char *path, size_t max, struct buf *out, struct err *err);

/* Puts the bytes where the path says, all of them or none: whoever reads the file, after
 * a crash too, finds what was there before or what is there now. Mode 0600. Codes and
 * message as above. */
int file_write(const char *path, struct span bytes, struct err *err);
