/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "node/cards.h"

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

/* Paths on the host, and where a container finds the same file. */
struct driver_file {
    const char *host, *container;
};

/* "/usr/lib64/libcuda.so.1", which leads to "libcuda.so.570.12" beside it. */
struct driver_link {
    const char *path;
    const char *target;  /* the text of the link */
    const char *library; /* path of the library on the host */
};

enum { DRIVER_CARDS_MAX = 256, DRIVER_NODES_MAX = 4, DRIVER_CARD_FILES = 3 };

/* The capability files /dev/nvidia-caps/nvidia-cap<n> of an instance: of its GPU instance and its
 * compute instance. Who can open them and the card's device node has the instance. */
struct driver_caps {
    struct card_place place;
    struct driver_file files[2];
};

/* The hook of nvidia-container-toolkit 1.20.1 and newer that sets the driver's limit of memory on
 * the container's cgroup, as the variables NVIDIA_GPU_MEMORY_LIMIT and _REQUEST say. An older one
 * answers this name with a warning and success: what a specification names is not enough. */
#define DRIVER_LIMIT_HOOK "apply-cuda-memory-limits"

struct driver_files {
    /* Device nodes that every container with a card gets: /dev/nvidiactl, /dev/nvidia-uvm,
     * ... */
    struct driver_file *nodes;
    size_t n_nodes;
    const char *dev;                 /* prefix of device nodes on the host: "", or the
                                        * driver's root if its dev has /dev/nvidiactl */
    bool has_card[DRIVER_CARDS_MAX]; /* /dev/nvidia<minor> exists */
    struct driver_caps *caps;        /* of the instances that have both files */
    size_t n_caps;
    struct driver_file *libraries; /* of the driver's version */
    size_t n_libraries;
    struct driver_link *links; /* symbolic links to these libraries beside them */
    size_t n_links;
    struct driver_file *others; /* programs and sockets */
    size_t n_others;
    const char *hook; /* nvidia-cdi-hook or nvidia-ctk on the host; NULL */
    bool hook_is_ctk; /* it is nvidia-ctk: `nvidia-ctk hook NAME` */
    bool hook_limits; /* it has DRIVER_LIMIT_HOOK */
};

/* Writes the device nodes of a card or instance, with their paths on the host, and returns their
 * number; 0: one is missing. */
size_t driver_card_files(const struct driver_files *files, const struct card_place *place,
                         struct arena *a, struct driver_file out[DRIVER_CARD_FILES]);

/*
 * Specifications of the Container Device Interface: JSON or YAML files in /etc/cdi and
 * /var/run/cdi that describe to the container runtime what a named device adds to a container
 * (github.com/cncf-tags/container-device-interface, SPEC.md). nvidia-ctk generates one for
 * the kind nvidia.com/gpu. Where nobody did, the plugin writes one of its own kind: two
 * files that define the same name make that name invalid.
 */

#define DRIVER_CDI_KIND "gpushare.io/gpu"
#define DRIVER_CDI_FILE "gpushare.io-gpu.json"

/*
 * How containers of this node can get their cards: the driver's files on the host, and the
 * kind of CDI names that a specification defines for all cards. The thread that samples
 * the cards makes a view; it writes our specification where no generator did.
 */

enum driver_strategy { /* --device-list-strategy; the names are those of NVIDIA's plugin */
                       DRIVER_AUTO,   /* cdi-cri where the node has it, else envvar */
                       DRIVER_ENVVAR, /* the variable NVIDIA_VISIBLE_DEVICES */
                       DRIVER_VOLUME_MOUNTS, /* a mount of /dev/null for each card */
                       DRIVER_CDI_ANNOTATIONS, /* CDI names in an annotation of the container */
                       DRIVER_CDI_CRI,         /* CDI names in a field of the CRI */
};

const char *driver_strategy_name(enum driver_strategy s); /* "envvar", ... */

struct driver_view_settings { /* strings are borrowed */
    enum driver_strategy strategy;
    const char *host_root; /* where the host's root is mounted; "": it is not */
    const char *driver_root;
    const char *cdi_dir;  /* /var/run/cdi: the directory of our specification */
    const char *cdi_kind; /* use this kind; "": find one */
    int by_index;         /* name cards by index instead of by UUID */
};

struct driver_view {
    struct arena arena;
    struct driver_files files;
    const char *cdi_kind; /* NULL: no specification names the cards */
    bool is_ours;         /* cdi_kind: the cards in `files` have names */
    char reason[256];     /* why cdi_kind is NULL */
    char unfit[256]; /* why the names of a generator are not used; empty: none has any */
    /* Why a container with these names would have no limit of the driver on a card of it; empty:
     * each card's names run DRIVER_LIMIT_HOOK, whose program has it. */
    char no_hook[256];
    /* Of the caller, who has NVML: why the driver limits no memory here; empty: it does. */
    char no_limit[256];
    bool refuses_limit; /* it says so: the hook keeps a container from starting */
    bool sets_limits;   /* this program sets limits itself, so that no hook is needed */
};

/* New. `version`: the driver's. Reads the specifications in /etc/cdi of the host and in
 * `cdi_dir`. A name of a generator counts if one file alone of its directory defines it, and what
 * it needs is on the host, as far as `host_root` shows the host: /dev, /usr and the driver's root.
 * Writes ours atomically, if it differs, unless a strategy without CDI finds none. */
struct driver_view *driver_view_new(const struct driver_view_settings *settings,
                                    const char *version, const struct card_seen *cards,
                                    size_t n);
void driver_view_free(struct driver_view *view); /* NULL is accepted */

/* From status.nodeInfo of the Node: "containerd://2.1.4", "v1.35.0"; "": unknown. */
struct driver_node {
    char runtime[64], kubelet[64];
};

/* Is the kubelet of Kubernetes 1.minor or newer? False: it is older, or unknown. */
bool driver_node_is_since(const struct driver_node *node, unsigned minor);

/* What DRIVER_AUTO stands for: DRIVER_CDI_CRI if a specification names the cards, and the
 * runtime and the kubelet pass CDI names on by default: containerd 2.0, CRI-O 1.28 and
 * Kubernetes 1.29 (KEP-4009) do. Else DRIVER_ENVVAR. Writes the reason. */
enum driver_strategy driver_view_choose(const struct driver_view *view,
                                        const struct driver_node *node, struct buf *why);
