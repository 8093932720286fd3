/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/*
 * Directories of a test's own, and the files in them.
 */

/* A new directory under TMPDIR or /tmp, and its end with all that is in it. */
char *temp_dir(void);
void temp_dir_remove(const char *dir);
/* dir/name, new. */
char *temp_path(const char *dir, const char *name);
/* The bytes of dir/name, new string. */
char *temp_read(const char *dir, const char *name);
/* Readers see the old file or the new one. */
void temp_write(const char *dir, const char *name, const char *text);
/* Quicker, and of any bytes. */
void temp_write_bytes(const char *dir, const char *name, struct span bytes);
void temp_remove(const char *dir, const char *name);
void temp_mkdir(const char *dir, const char *name);
/* A program: the text is a shell script behind its first line. */
void temp_script(const char *dir, const char *name, const char *text);
