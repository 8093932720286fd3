/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "domain/ids.h"

/*
 * The kubelet's device plugin directory: the kubelet's registration socket and the
 * sockets (endpoints) of plugins. Endpoints of this plugin are named
 *
 *     gpushare-mem-<start>-<pid>.sock    gpushare-count-<start>-<pid>.sock
 *
 * with the start time of the process. During a rolling update two plugins thus have
 * different sockets, and each can tell which one is newer.
 */

struct plugin_dir;

/* New. Removes sockets of plugins that have died. */
struct plugin_dir *plugin_dir_open(const char *path, struct err *err);
void plugin_dir_close(struct plugin_dir *d); /* NULL is accepted */
/* The endpoint's file name, and its path. */
const char *plugin_dir_endpoint(const struct plugin_dir *d, enum ids_resource r);
const char *plugin_dir_socket(const struct plugin_dir *d, enum ids_resource r);
/* Path of the kubelet's registration socket. */
const char *plugin_dir_kubelet(const struct plugin_dir *d);

/* Identifies the kubelet's socket: changes when a kubelet creates a new one. 0: there is
 * no socket. */
uint64_t plugin_dir_kubelet_id(const struct plugin_dir *d);
/* Does a newer gpushare plugin serve this resource? */
bool plugin_dir_has_newer(const struct plugin_dir *d, enum ids_resource r);
/* Readable when the directory has changed. -1: no inotify; poll the directory. */
int plugin_dir_fd(const struct plugin_dir *d);
/* Reads the pending events; watches the directory again if it was replaced. */
void plugin_dir_drain(struct plugin_dir *d);
