/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "kube-sim/api.h"

/* Loads the objects of a YAML (or JSON) file: one or more documents, each an object or a
 * list of them. Objects of kinds that are not served are skipped with a warning; so is
 * nothing else. */
int manifest_load(struct api *api, int64_t now_ms, const char *path, struct err *err);
