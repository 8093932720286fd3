/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * The files of NVIDIA's driver on the host that a container with a card needs: device
 * nodes, libraries, programs. The lists are those of nvidia-container-toolkit
 * (internal/discover, internal/platform-support).
 *
 * The host's root directory, or parts of it, is mounted in the plugin's container. Paths are
 * resolved inside of that mount, as the host resolves them: an absolute symbolic link does
 * not lead out of it. The driver has a root of its own on the host: "/", or the directory
 * in which a driver container shows its file system (/run/nvidia/driver with the GPU
 * Operator).
 */

struct driver_root {
    const char *mount;  /* the host's root in this container: "/host"; "": the same */
    const char *driver; /* the driver's root on the host: "/", "/run/nvidia/driver" */
};

/* Paths on the host, and where a container finds the same file. */
struct driver_file {
    const char *host, *container;
};

/* "libcuda.so.1" in "/usr/lib64", which leads to "libcuda.so.570.12" beside it. */
struct driver_link {
    const char *directory, *name, *target; /* target: the text of the link */
    const char *library;                   /* path of the library on the host */
};

enum { DRIVER_CARDS_MAX = 256, DRIVER_NODES_MAX = 4 };

struct driver_files {
    /* Device nodes that every container with a card gets: /dev/nvidiactl, /dev/nvidia-uvm,
     * ... */
    struct driver_file *nodes;
    size_t n_nodes;
    const char *dev;                 /* prefix of device nodes on the host: "", or the
                                        * driver's root if its dev has /dev/nvidiactl */
    bool has_card[DRIVER_CARDS_MAX]; /* /dev/nvidia<minor> exists */
    struct driver_file *libraries;   /* of the driver's version */
    size_t n_libraries;
    struct driver_link *links; /* symbolic links to these libraries beside them */
    size_t n_links;
    struct driver_file *others; /* programs and sockets */
    size_t n_others;
    const char *hook; /* nvidia-cdi-hook or nvidia-ctk on the host; NULL */
    bool hook_is_ctk; /* it is nvidia-ctk: `nvidia-ctk hook NAME` */
};

/* Finds them. `version`: the driver's, as NVML returns it; libraries have names that end
 * with it. What is missing is missing: a host without a driver has no file. Strings live
 * in the arena or are static. ERR_NOT_FOUND: `root->mount` is not a directory. */
int driver_files_find(const struct driver_root *root, const char *version,
                      struct arena *a, struct driver_files *out, struct err *err);

/* Writes the device node of a card, with its path on the host. False: it is missing. */
bool driver_files_card(const struct driver_files *files, int64_t minor, struct arena *a,
                       struct driver_file *out);
