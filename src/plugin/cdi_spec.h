/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/cards.h"
#include "plugin/driver_files.h"

/*
 * Specifications of the Container Device Interface: JSON or YAML files in /etc/cdi and
 * /var/run/cdi that describe to the container runtime what a named device adds to a container
 * (github.com/cncf-tags/container-device-interface, SPEC.md). nvidia-ctk generates one for
 * the kind nvidia.com/gpu. Where nobody did, the plugin writes one of its own kind: two
 * files that define the same name make that name invalid.
 */

#define CDI_SPEC_KIND           "gpushare.io/gpu"
#define CDI_SPEC_FILE           "gpushare.io-gpu.json"
#define CDI_SPEC_GENERATED_KIND "nvidia.com/gpu"

/* Appends our specification: every card of the sample that has a device node, by UUID and
 * by index, with the driver's files. Version 0.5.0 of the format, which every runtime with
 * CDI reads. With NVIDIA's hook, libraries are at the host's paths, and hooks make the
 * links and the loader's cache; without it they are in /usr/local/nvidia/lib64, which
 * CUDA images have in LD_LIBRARY_PATH. Returns the number of cards. */
size_t cdi_spec_write(const struct driver_files *files, const struct card_seen *cards,
                      size_t n, struct buf *out);

/* Does the specification in `path`, JSON or YAML, define names of this kind for all of
 * the cards, by UUID (`by_index`: by index)? False also for an invalid file, with the
 * reason in `err`; else its code is ERR_NONE. */
bool cdi_spec_names_all(const char *path, const char *kind, bool by_index,
                        const struct card_seen *cards, size_t n, struct err *err);
