/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/opt.h"
#include "extender/certs.h"
#include "extender/metrics.h"
#include "extender/verb.h"
#include "placement/score.h"
#include "wire/entry.h"

/*
 * The extender as a program: its options, and the order in which its modules start and
 * stop.
 */

struct extender_config {
    struct entry_options entry;
    int64_t port, observe_port, connections;
    int64_t max_body;
    int64_t unit_mib, external_tolerance_mib;
    int64_t node_grace_ms, preempt_after_ms;
    bool require_scv, bind_any, api_compression;
    int clock_exact, number_shares; /* 0 or 1; of struct request_rules */
    char *lease_namespace;
    struct certs_config certs;
    enum score_policy node_score;
    int64_t filter_answer; /* of struct verbs_config */
    enum metrics_detail metrics_detail;
    bool events;
    char *advertise, *replica_name, *replica_ca;
    int64_t drain_delay_ms, drain_ms;
};

extern const struct opt_program extender_program;

struct extender;

/* New; answers requests at once, and is ready once every kind of object has been listed.
 * The caller has blocked the signals that end the program, so that all threads do. */
struct extender *extender_start(const struct extender_config *config, struct err *err);
/* Graceful: finishes requests in flight and releases the lease. */
void extender_stop(struct extender *e);
