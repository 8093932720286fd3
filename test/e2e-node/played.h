/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A simulated kubelet without containers: a thread that drives the fake kubelet
 * (lib/kubelet.h) like a real kubelet handles the pods of its node. It admits pods one
 * after the other through the plugin, writes their status, removes deleted pods, and
 * renews the Node's heartbeat. One simplification: an init container's ids go to the next
 * container, which must request the same number.
 */

void played_start(void); /* creates the Node; the plugin's folder is in lib_dir */
void played_stop(void);
void played_restart(void); /* keeps pods and ids, like a kubelet's checkpoint */
const char *played_plugin_dir(void);
const char *played_podresources(void);
/* The environment of the container, new; NULL: none yet. */
char *played_log(const char *uid, const char *container);
