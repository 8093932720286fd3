/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/opt.h"
#include "cli/show.h"

/*
 * The options of kubectl-inspect-gpushare.
 */

enum cli_color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

struct cli_config {
    char *kubeconfig, *context, *ns, *extender;
    int log_level;
    int64_t unit_mib; /* 0: to be found out */
    int64_t external_tolerance_mib;
    int64_t timeout_ms, node_grace_ms;
    bool require_scv, clock_exact, number_shares; /* as the extender has it */
    bool classic, details, watch, check;
    enum show_form form;
    enum cli_color color;
    struct opt_list words; /* what is no option */
};

extern const struct opt_program cli_program;
