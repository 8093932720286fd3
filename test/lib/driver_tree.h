/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * File trees of hosts with NVIDIA's driver, version 570.12, in a directory of the test.
 * Device nodes are those of /dev/null: only their kind counts.
 */

#define DRIVER_TREE_LIBRARIES "/usr/lib/x86_64-linux-gnu"
#define DRIVER_TREE_VERSION   "570.12"

/* An empty file, or a device node, at an absolute path below `host`. Directories are made
 * as needed. */
void driver_tree_file(const char *host, const char *at);
void driver_tree_node(const char *host, const char *at);
/* Debian's layout of the driver, with cards 0 and 3, below `root` of the host ("" or
 * "/run/nvidia/driver"): a merged /usr, absolute links, leftovers of another version. */
void driver_tree_make(const char *host, const char *root);
