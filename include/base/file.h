/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Small files, read whole.
 */

/* Appends the bytes of the file to out. More than `max` bytes are ERR_TOO_LARGE; a
 * missing file is ERR_NOT_FOUND, one that may not be read ERR_FORBIDDEN, anything else
 * ERR_UNAVAILABLE. The message names the file. After an error out is as it was. */
int file_read(const char *path, size_t max, struct buf *out, struct err *err);
