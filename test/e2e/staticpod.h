/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Plays the kubelet for one static pod: a thread runs the command of a manifest, restarts
 * it when it ends or the manifest changes. The container is a chroot that contains only
 * the binary and copies of the manifest's mounts. An error fails the test.
 */

/* `root`: root folder of the node. `manifest`: path of the manifest. `program`: the binary
 * whose base name the command has. The strings must live as long as the pod. */
void static_pod_start(const char *root, const char *manifest, const char *program);
void static_pod_stop(void);
