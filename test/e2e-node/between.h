/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kit/kubelet.h"

/*
 * Between the kubelet of the node and the plugin: the kubelet prefers, and has the plugin
 * allocate, what the test makes of the ids that the plugin prefers. To the plugin it is
 * the kubelet of the test kit that asks; to a real kubelet, a stand-in (node/standin.h)
 * that answers.
 */

/* What it is to be instead of the right ids, new. In a thread of its own. */
typedef json_t *(*between_fn)(struct kubelet *k, json_t *right);

void between_start(void);           /* after node_up */
void between_meddle(between_fn fn); /* NULL: the right ids go through */
void between_end(void);
