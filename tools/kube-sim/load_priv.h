/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/api.h"
#include "kube-sim/jsonx_priv.h"

/* api_load of a tree without nulls. Changes the tree. ERR_NOT_FOUND: its kind is not
 * served. */
int sim_load_tree(struct api *api, int64_t now_ms, json_t *object, struct err *err);
