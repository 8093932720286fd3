/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kit/kit.h"

/*
 * Plays the kubelet for one static pod: in a thread, it runs the command of a manifest,
 * ends it when the manifest has changed and starts it again when it has ended. The
 * container is a folder that the program is rooted in (chroot): it sees its own binary,
 * and copies of what the manifest mounts from the node, no other file. Whatever goes
 * wrong here fails the test.
 */

struct static_pod;

/* `root` is the node's root folder, in which /etc/kubernetes/manifests/NAME.yaml is;
 * `program` the binary that the command names by its last part. */
struct static_pod *static_pod_start(const char *root, const char *name,
                                    const char *program);
void static_pod_stop(struct static_pod *s);
