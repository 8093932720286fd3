/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/judge.h"

/* False: it is not known, and that was said. */
bool judge_list_known(const struct setup_facts *f, enum setup_kind kind, const char *what,
                      struct found *out);
const json_t *judge_items(const struct setup_facts *f, enum setup_kind kind);
const char *judge_name(const json_t *object);

/* Of judge_cluster: kinds, cards, nodes, their plugins, and pods that wait. */
void judge_nodes(const struct setup_facts *f, struct found *out);

/* Does kube-scheduler ask there by way of a proxy? */
void judge_proxy(const struct setup_facts *f, const struct setup_url *url,
                 struct found *out);
