/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kit/peer.h"

/*
 * JSON schemas for `kubeconform -strict`, from the /openapi/v2 of the running API
 * server, custom kinds included: no network, and exactly the running release. Each kind
 * is a self-contained file, dir/GROUP_VERSION_KIND.json in lower case (for the core
 * group v1_v1_KIND.json), and allows no other fields.
 */
#define SCHEMAS_LOCATION "{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json"

/* Returns the number of files. */
size_t schemas_write(const struct peer *api, const char *dir);
