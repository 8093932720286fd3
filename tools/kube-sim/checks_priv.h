/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/jsonx_priv.h"
#include "kube-sim/status_priv.h"

/* The defaults and validation of each kind except Pod, beyond types and metadata: functions
 * for struct kind. */

void sim_fill_namespace(json_t *object);
void sim_fill_node(json_t *object);
void sim_fill_event(json_t *object);
void sim_fill_event_v1(json_t *object);
void sim_fill_lease(json_t *object);
void sim_fill_secret(json_t *object);
void sim_check_namespace(const json_t *object, const json_t *old, struct faultlist *f);
void sim_check_node(const json_t *object, const json_t *old, struct faultlist *f);
void sim_check_event(const json_t *object, const json_t *old, struct faultlist *f);
void sim_check_event_v1(const json_t *object, const json_t *old, struct faultlist *f);
void sim_check_configmap(const json_t *object, const json_t *old, struct faultlist *f);
void sim_check_secret(const json_t *object, const json_t *old, struct faultlist *f);
void sim_check_lease(const json_t *object, const json_t *old, struct faultlist *f);
void sim_check_scv(const json_t *object, const json_t *old, struct faultlist *f);
