/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/host.h"

/* Reads file->path into bytes, or sets why. Regular files only: reading a pipe might
 * never end. */
void host_read_file(struct facts_file *file);
/* Reads the processes that run kube-scheduler on f->platform. */
void host_read_processes(const char *proc, struct facts *f);

/* By the folders and files of the distribution alone. */
enum facts_platform host_find_platform(const char *root);
/* k3s and RKE2: their settings, and the pod that they describe. */
void host_read_rancher(const char *root, struct facts *f);
