/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/lib.h"

/*
 * Plays the kubelet for one static pod: a thread runs the command of a manifest, restarts
 * it when it ends or the manifest changes. The container is a chroot that contains only
 * the binary and copies of the manifest's mounts. An error fails the test.
 */

struct static_pod;

/* `root`: root folder of the node. `manifest`: the manifest's path below it; while there is
 * none, nothing runs. `program`: the binary whose base name the command has. */
struct static_pod *static_pod_start(const char *root, const char *manifest,
                                    const char *program);
void static_pod_stop(struct static_pod *s);
