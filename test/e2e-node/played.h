/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e-node/between.h"

/*
 * A kubelet without containers: a thread that takes the kubelet of the test kit
 * (kit/kubelet.h) through what a real one does with the pods of the node. It admits them
 * one after the other, asking the plugin; says in their status that they run, or why they
 * failed; lets them go when they are deleted; and keeps the Node alive. It has what
 * matters here and no more: an init container's ids go to the next container, which must
 * ask for as many.
 */

void played_start(void); /* makes the Node; the plugin's directory is in kit_dir */
void played_stop(void);
void played_restart(void); /* it remembers what it had on the disk: pods and ids */
const char *played_plugin_dir(void);
const char *played_podresources(void);
/* See node/between.h. */
void played_meddle(between_fn fn);
/* The environment that the container got, new; NULL: it did not (yet). */
char *played_log(const char *uid, const char *container);
