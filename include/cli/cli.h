/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/config.h"

/*
 * kubectl-inspect-gpushare as a program: what each command does.
 */

/* The exit status: 0; 1 something went wrong, or --classic was asked for a node that
 * there is not; 2 --check has found differences. */
int cli_main(int argc, char **argv);

/* `completion SHELL`: the script. */
int complete_script(const char *shell, struct buf *out, struct err *err);
/* What the last of the words can become, one per line, and then ":4", as kubectl wants it
 * from its plugins (nothing else is to be offered). `names` appends what the cluster has,
 * a line each: its nodes; or its pods, as NAMESPACE/NAME, those of the user's own
 * namespace as NAME until there is a slash in what is `begun`. */
typedef void (*complete_names_fn)(void *ctx, const struct cli_config *config, bool pods,
                                  struct span begun, struct buf *out);
void complete_words(int argc, char *const *argv, char *const *env,
                    complete_names_fn names, void *ctx, struct buf *out);
