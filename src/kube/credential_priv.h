/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/credential.h"

/* A finished program: what it wrote, cut at the limits, and how it ended. */
struct kube_run {
    struct buf out, errors;
    int status; /* as from waitpid */
};
void kube_run_fini(struct kube_run *r);

/* Runs argv[0], looked for in PATH, with the environment `env`, empty standard input and
 * a process group of its own. More than `max_out` bytes of output, or no end within
 * `limit_ms`: the group is killed, and that is an error. ERR_NOT_FOUND: there is no such
 * program. */
int kube_run_program(char *const *argv, char *const *env, size_t max_out,
                     int64_t limit_ms, struct kube_run *r, struct err *err);

/* Reads what a plugin has printed. */
int kube_exec_parse(const struct kube_exec *e, struct span text,
                    struct kube_exec_credential *answer, struct err *err);

/* The text in one line without control characters, at most `max` bytes; new. */
char *kube_printable(struct span s, size_t max);
