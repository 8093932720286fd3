/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/peer.h"

/*
 * Writes JSON schemas for `kubeconform -strict` from the API server's /openapi/v2, custom
 * resources included: no download, and exactly the running release. Each kind is a
 * self-contained file, dir/GROUP_VERSION_KIND.json in lower case (core group:
 * v1_v1_KIND.json), that allows no additional members.
 */
#define SCHEMAS_LOCATION "{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json"

/* Returns the number of files. */
size_t schemas_write(const struct peer *api, const char *dir);
