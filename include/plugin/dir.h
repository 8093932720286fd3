/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "domain/ids.h"

/*
 * The directory in which the kubelet and its plugins have their sockets. Ours are called
 *
 *     gpushare-mem-<start>-<pid>.sock    gpushare-count-<start>-<pid>.sock
 *
 * with the time at which the process started, so that two plugins in a rolling update do
 * not take the socket from each other, and each knows which of them is newer.
 */

struct dir;

/* New. Sockets of plugins that are dead are removed. */
struct dir *dir_open(const char *path, struct err *err);
void dir_close(struct dir *d);                                      /* NULL is accepted */
const char *dir_endpoint(const struct dir *d, enum ids_resource r); /* a file name */
const char *dir_socket(const struct dir *d, enum ids_resource r);   /* its path */
const char *dir_kubelet(const struct dir *d); /* path of the kubelet's socket */

/* Inode of the kubelet's socket; 0: there is none. */
uint64_t dir_kubelet_inode(const struct dir *d);
/* Is a newer plugin of ours there that answers for this resource? */
bool dir_has_rival(const struct dir *d, enum ids_resource r);
/* Readable when something in the directory has changed; -1: look at it now and then. */
int dir_fd(const struct dir *d);
/* Takes note of the changes; watches the directory anew if it was replaced. */
void dir_drain(struct dir *d);
