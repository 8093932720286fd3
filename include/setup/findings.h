/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdio.h>

#include "base/str.h"

/*
 * What a look at a cluster has found, in the order in which it is to be read: from
 * kube-scheduler to the extender and its nodes.
 */

enum finding_kind {
    FINDING_OK,    /* as it should be */
    FINDING_NOTE,    /* worth knowing, and nothing to repair */
    FINDING_UNKNOWN, /* could not be looked at */
    FINDING_PROBLEM,
};

struct finding {
    enum finding_kind kind;
    const char *id; /* a word that stays: "no-option" */
    const char *what;
    const char *why; /* why it matters; NULL: that goes without saying */
    const char
        *command; /* that repairs it, or shows more; lines split by '\n'; or NULL */
};

struct findings {
    struct finding *items;
    size_t n, cap;
    struct arena texts;
};

/* Adds one. What is returned can be added to until the next call. */
struct finding *findings_add(struct findings *f, enum finding_kind kind, const char *id,
                          const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void findings_set_reason(struct findings *f, struct finding *to, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void findings_set_command(struct findings *f, struct finding *to, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void findings_fini(struct findings *f);

bool findings_has(const struct findings *f, const char *id);
size_t findings_count(const struct findings *f, enum finding_kind kind);
/* What is written for people. Control characters of foreign texts become '?'. */
void findings_write(const struct findings *f, struct buf *out);
/* 0: nothing is wrong; 1: something is; 2: nothing is known to be, and something could
 * not be looked at. */
int findings_exit_status(const struct findings *f);
