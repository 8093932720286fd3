/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/front_priv.h"

/* The requests under /kube-sim/: fault rules, counters, history (docs/testing.md). */
void sim_control_handle(struct sim_server *s, const struct httpd_request *req,
                        struct httpd_reply *reply);
