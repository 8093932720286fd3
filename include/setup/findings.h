/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdio.h>

#include "base/str.h"

/*
 * The results of the checks, in the order of a pod's way: from kube-scheduler to the
 * extender and its nodes.
 */

enum finding_kind {
    FINDING_OK,
    FINDING_NOTE,    /* worth knowing; nothing to repair */
    FINDING_UNKNOWN, /* could not be checked */
    FINDING_PROBLEM,
};

struct finding {
    enum finding_kind kind;
    const char *id;      /* stable: "no-option" */
    const char *what;    /* the fact */
    const char *why;     /* its effect; or NULL */
    const char *command; /* repairs it or shows more; several lines; or NULL */
};

struct findings {
    struct finding *items;
    size_t n, cap;
    struct arena texts;
};

/* Adds a finding. The result may be used until the next call. */
struct finding *findings_add(struct findings *f, enum finding_kind kind, const char *id,
                             const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void findings_why(struct findings *f, struct finding *to, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void findings_fix(struct findings *f, struct finding *to, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void findings_fini(struct findings *f);

bool findings_has(const struct findings *f, const char *id);
size_t findings_count(const struct findings *f, enum finding_kind kind);
/* Appends the findings as text. Control characters, which objects of the cluster may
 * contain, become '?'. */
void findings_write(const struct findings *f, struct buf *out);
/* 1: there is a problem; 2: no problem is known, but something could not be checked; 0:
 * neither. */
int findings_exit_status(const struct findings *f);
