/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/mem.h"
#include "setup/facts.h"

/*
 * Evaluates the facts; pure. The findings are in the order of a pod's way: from
 * kube-scheduler to the extender. There is a finding for each problem, for what could not
 * be checked, and for what is correct.
 */

enum checks_kind {
    CHECKS_OK,
    CHECKS_NOTE,    /* worth knowing; nothing to repair */
    CHECKS_UNKNOWN, /* could not be checked */
    CHECKS_PROBLEM,
};

struct checks_finding {
    enum checks_kind kind;
    const char *id;   /* stable: "no-option" */
    const char *what; /* the fact */
    const char *why;  /* its effect; or NULL */
    const char *fix; /* a command that repairs it or shows more; several lines; or NULL */
};

struct checks {
    struct checks_finding *items;
    size_t n, cap;
    struct arena texts;
};

/* All checks; that of the API server only if `with_cluster`. */
void checks_run(const struct facts *f, bool with_cluster, struct checks *out);
/* The extender's answer alone. */
void checks_reach(const struct facts *f, struct checks *out);
void checks_fini(struct checks *c);

/* Appends the findings as text. Control characters, which objects of the cluster may
 * contain, become '?'. */
void checks_write(const struct checks *c, struct buf *out);
/* 1: there is a problem; 2: no problem is known, but something could not be checked; 0:
 * neither. */
int checks_exit_status(const struct checks *c);
