/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/cli.h"
#include "cli/session.h"

/* The command being run. */
struct cli_run {
    const struct cli_config *config;
    struct session session;
    struct span node; /* empty: all */
    struct buf out;
};

bool cli_has_colors(const struct cli_config *c);
/* Writes `out` to standard output and clears it. */
int cli_print(struct buf *out, struct err *err);
/* Connects and reads the cluster. */
int cli_load(struct cli_run *r, struct err *err);
const struct cluster_state *cli_state(const struct cli_run *r);

/* The commands. Each returns the exit status of the program, or -1. */
int cli_check(struct cli_run *r, struct err *err);   /* --check */
int cli_explain(struct cli_run *r, struct err *err); /* explain pod */
int cli_defrag(struct cli_run *r, struct err *err);
/* Do the options describe a shape, in place of a pod? */
bool cli_has_shape(const struct cli_config *c);
