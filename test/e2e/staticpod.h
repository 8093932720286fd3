/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kit/kit.h"

/*
 * Simulates the kubelet for one static pod: a thread runs the command of a manifest,
 * stops it when the manifest has changed and restarts it when it has ended. The
 * container is a chroot folder with its own binary and copies of the mounts of the
 * manifest, and no other file. Every error fails the test.
 */

struct static_pod;

/* `root` is the node's root folder, in which /etc/kubernetes/manifests/NAME.yaml is;
 * `program` the binary that the command names by its last part. */
struct static_pod *static_pod_start(const char *root, const char *name,
                                    const char *program);
void static_pod_stop(struct static_pod *s);
