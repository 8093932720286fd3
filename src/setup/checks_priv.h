/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/checks.h"

/* False: it is not known, and that was said. */
bool checks_list_known(const struct facts *f, enum facts_kind kind, const char *what,
                      struct findings *out);
const json_t *checks_items(const struct facts *f, enum facts_kind kind);
const char *checks_name(const json_t *object);

/* Of checks_cluster: kinds, cards, nodes, their plugins, and pods that wait. */
void checks_nodes(const struct facts *f, struct findings *out);

/* Does kube-scheduler ask there by way of a proxy? */
void checks_proxy(const struct facts *f, const struct extender_entry_url *url,
                 struct findings *out);
