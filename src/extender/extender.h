/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/opt.h"
#include "extender/server.h"
#include "wire/entry.h"

/*
 * The extender as a program: its options, and the order in which its modules start and
 * stop.
 */

/* The options write into the settings of the modules, which lack what the process adds. */
struct extender_config {
    struct entry_options entry;
    struct core_settings core;
    struct certs_config certs;
    struct server_config server;
    int clock_exact, number_shares, ignore_links; /* 0 or 1; of struct request_rules */
    bool events, api_compression;
    bool requests_of; /* HAMi's */
    char *hami_values;
    char *advertise, *replica_name, *replica_ca;
    int64_t drain_delay_ms, drain_ms;
    int64_t await_ms; /* --await-pod-defaults; 0: serve */
};

extern const struct opt_program extender_program;

struct extender;

/* For struct entry: --await-pod-defaults. */
int extender_once(const void *config, struct err *err);

/* New; answers requests at once, and is ready once every kind of object has been listed.
 * `config` is borrowed.
 * The caller has blocked the signals that end the program, so that all threads do. */
struct extender *extender_start(const struct extender_config *config, struct err *err);
/* Graceful: finishes requests in flight and releases the lease. */
void extender_stop(struct extender *e);
