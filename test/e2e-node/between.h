/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/kubelet.h"

/*
 * A proxy between the kubelet of the node and the plugin that lets the test replace the ids
 * that the plugin prefers; the kubelet then allocates the replaced ids. Towards the plugin
 * it is the fake kubelet (lib/kubelet.h), towards a real kubelet a stand-in plugin
 * (node/standin.h).
 */

/* Returns the ids to use instead of the right ones, new. Called in another thread. */
typedef json_t *(*between_fn)(struct kubelet *k, json_t *right);

void between_start(void);           /* after node_up */
void between_meddle(between_fn fn); /* NULL: pass the right ids on */
void between_end(void);
