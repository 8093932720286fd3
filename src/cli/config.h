/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/opt.h"

/*
 * The options of kubectl-inspect-gpushare.
 */

enum show_format { SHOW_TABLE, SHOW_WIDE, SHOW_JSON };
enum cli_color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

struct cli_config {
    char *kubeconfig, *context, *ns, *extender, *extender_token, *extender_ca;
    int log_level;
    int64_t unit_mib; /* 0: to be determined */
    int64_t external_tolerance_mib;
    int64_t timeout_ms, node_grace_ms;
    bool require_scv;
    int clock_exact, number_shares; /* choices: 1 is exact, and share */
    bool classic, details, topology, watch, check, serve;
    /* defrag */
    char *node, *model;
    int64_t cards, memory, move_timeout_ms;
    bool apply;
    /* assess */
    char *prometheus;
    struct opt_list from;
    int64_t headroom; /* percent */
    enum show_format format;
    enum cli_color color;
    /* Options of the connection that only kubectl knows. */
    struct {
        char *as, *as_uid, *ca, *cert, *key, *cluster, *server, *server_name, *token,
            *user;
        char *username, *password;
        struct opt_list as_groups, as_extra;
        bool insecure;
    } kubectl;
    struct opt_list args; /* arguments that are not options */
};

extern const struct opt_program cli_program;
/* Those of `kubectl` in the config; ends with a NULL name. */
extern const struct opt config_kubectl[];
