/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/facts.h"

/*
 * Whether this node has a kube-scheduler whose settings this program can read and change;
 * pure. The checks and the plan of changes decide by this alone.
 */

/* Installs the second kube-scheduler of the chart, with a `platform` that needs it. */
#define PLATFORM_HELM                                                                    \
    "helm install gpushare manifests/chart -n gpushare --create-namespace"

enum platform_state {
    PLATFORM_USABLE,     /* kubeadm, or a server of k3s or RKE2 */
    PLATFORM_OPENSHIFT,  /* an operator writes the files */
    PLATFORM_AGENT,      /* k3s, RKE2: a node without a control plane */
    PLATFORM_UNREADABLE, /* k3s, RKE2: a file with settings cannot be read or parsed */
    PLATFORM_DISABLED,   /* k3s, RKE2: `disable-scheduler: true` */
};

/* Other states than PLATFORM_USABLE set *err to the fact. */
enum platform_state platform_state(const struct facts *f, struct err *err);
/* The command for such a node; "": none. New. `option` is that of scripts/install in the
 * command: " --check", or "" to install. */
char *platform_remedy(const struct facts *f, enum platform_state state,
                      const char *option);
