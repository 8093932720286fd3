/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/credential.h"

/* The result of a program: its output, truncated to the limits, and its exit status. */
struct kube_run {
    struct buf out, errors; /* standard output, standard error */
    int status;             /* as from waitpid */
};
void kube_run_fini(struct kube_run *r);

/* Runs argv[0], searched in PATH, with the environment `env`, an empty standard input and
 * its own process group. ERR_NOT_FOUND: no such program. ERR_TOO_LARGE: more than
 * `max_out` bytes of output. ERR_TIMEOUT: not finished within `limit_ms`. In both last
 * cases the process group is killed. */
int kube_run_program(char *const *argv, char *const *env, size_t max_out,
                     int64_t limit_ms, struct kube_run *r, struct err *err);

/* Parses the output of a plugin. ERR_INVALID: not an ExecCredential with a credential. */
int kube_exec_parse(const struct kube_exec *e, struct span text,
                    struct kube_exec_credential *credential, struct err *err);

/* The text on one line, without control characters, truncated to `max` bytes; new. */
char *kube_printable(struct span s, size_t max);
