/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "kube-sim/api.h"

/* Loads the objects of a YAML or JSON file: one or more documents, each an object or a
 * List. Skips objects of kinds that are not served with a warning; everything else that
 * cannot be loaded is an error. */
int manifest_load(struct api *api, int64_t now_ms, const char *path, struct err *err);
