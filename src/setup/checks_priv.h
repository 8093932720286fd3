/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/checks.h"

/* False: the list could not be read, and a finding says so. */
bool checks_has_list(const struct facts *f, enum facts_kind kind, const char *what,
                     struct findings *out);
const json_t *checks_items(const struct facts *f, enum facts_kind kind);
const char *checks_name(const json_t *object);
bool checks_is_loopback(const char *host);

/* Nodes and pending pods; a part of checks_cluster. */
void checks_nodes(const struct facts *f, struct findings *out);

/* The admission policies that protect promises; a part of checks_cluster. */
void checks_policies(const struct facts *f, struct findings *out);
/* The client certificate of our entry: its validity, and whether it is of the Secret. */
void checks_certificate(const struct facts *f, const struct extender_entry_url *url,
                        struct findings *out);

/* Does kube-scheduler call `url` through a proxy? */
void checks_proxy(const struct facts *f, const struct extender_entry_url *url,
                  struct findings *out);

/* What the node's distribution is, and whether it can be checked further. */
bool checks_platform(const struct facts *f, struct findings *out);
/* k3s and RKE2: does the process run with the current settings? False: check the process
 * as kubeadm's. */
bool checks_process_of_platform(const struct facts *f, const struct scheduler_pod *pod,
                                struct findings *out);
