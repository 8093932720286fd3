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

struct plugin_dir;

/* New. Sockets of plugins that are dead are removed. */
struct plugin_dir *plugin_dir_open(const char *path, struct err *err);
void plugin_dir_close(struct plugin_dir *d); /* NULL is accepted */
const char *plugin_dir_endpoint(const struct plugin_dir *d,
                                enum ids_resource r); /* a file name */
const char *plugin_dir_socket(const struct plugin_dir *d,
                              enum ids_resource r); /* its path */
const char *
plugin_dir_kubelet(const struct plugin_dir *d); /* path of the kubelet's socket */

/* Inode of the kubelet's socket; 0: there is none. */
uint64_t plugin_dir_kubelet_id(const struct plugin_dir *d);
/* Is a newer plugin of ours there that answers for this resource? */
bool plugin_dir_has_newer(const struct plugin_dir *d, enum ids_resource r);
/* Readable when something in the directory has changed; -1: look at it now and then. */
int plugin_dir_fd(const struct plugin_dir *d);
/* Takes note of the changes; watches the directory anew if it was replaced. */
void plugin_dir_drain(struct plugin_dir *d);
