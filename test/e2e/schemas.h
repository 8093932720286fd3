/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kit/peer.h"

/*
 * JSON schemas for `kubeconform -strict`, of what the API server itself says of its kinds
 * (/openapi/v2), custom ones too: no network, and just the release that runs. Each kind
 * is a file that needs no other, dir/GROUP_VERSION_KIND.json in lower case (for the core
 * group v1_v1_KIND.json), and knows no members but those that it names.
 */
#define SCHEMAS_LOCATION "{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json"

/* Returns how many were written. */
size_t schemas_write(const struct peer *api, const char *dir);
