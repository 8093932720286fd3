/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/cdi_spec.h"

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
    const char *cdi_kind; /* use this kind, and write none; "": find one */
    bool by_index;
};

struct driver_view {
    struct arena arena;
    struct driver_files files;
    const char *cdi_kind; /* NULL: no specification names the cards */
    bool is_ours;         /* cdi_kind: the cards in `files` have names */
    char reason[256];     /* why cdi_kind is NULL */
};

/* New. `version`: the driver's. Reads the specifications in /etc/cdi of the host and in
 * `cdi_dir`; writes ours atomically, if it differs. */
struct driver_view *driver_view_new(const struct driver_view_settings *settings,
                                    const char *version, const struct card_seen *cards,
                                    size_t n);
void driver_view_free(struct driver_view *view); /* NULL is accepted */

/* From status.nodeInfo of the Node: "containerd://2.1.4", "v1.35.0"; "": unknown. */
struct driver_node {
    char runtime[64], kubelet[64];
};

/* What DRIVER_AUTO stands for: DRIVER_CDI_CRI if a specification names the cards, and the
 * runtime and the kubelet pass CDI names on by default: containerd 2.0, CRI-O 1.28 and
 * Kubernetes 1.29 (KEP-4009) do. Else DRIVER_ENVVAR. Writes the reason. */
enum driver_strategy driver_view_choose(const struct driver_view *view,
                                        const struct driver_node *node, struct buf *why);
