/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/*
 * Temporary directories and files.
 */

/* Creates a directory under TMPDIR or /tmp; temp_dir_remove removes it recursively. */
char *temp_dir(void);
void temp_dir_remove(const char *dir);
/* dir/name, new. */
char *temp_path(const char *dir, const char *name);
/* The bytes of dir/name, new string. */
char *temp_read(const char *dir, const char *name);
/* Replaces the file atomically. */
void temp_write(const char *dir, const char *name, const char *text);
/* Writes any bytes; faster, but not atomic. */
void temp_write_bytes(const char *dir, const char *name, struct span bytes);
void temp_remove(const char *dir, const char *name);
void temp_mkdir(const char *dir, const char *name);
/* Writes an executable shell script; the text follows the #! line. */
void temp_script(const char *dir, const char *name, const char *text);
