/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdio.h>

#include "base/str.h"

/*
 * What a look at a cluster has found, in the order in which it is to be read: from
 * kube-scheduler to the extender and its nodes.
 */

enum found_kind {
    FOUND_GOOD,    /* as it should be */
    FOUND_NOTE,    /* worth knowing, and nothing to repair */
    FOUND_UNKNOWN, /* could not be looked at */
    FOUND_WRONG,
};

struct finding {
    enum found_kind kind;
    const char *id; /* a word that stays: "no-option" */
    const char *what;
    const char *why; /* why it matters; NULL: that goes without saying */
    const char
        *command; /* that repairs it, or shows more; lines split by '\n'; or NULL */
};

struct found {
    struct finding *items;
    size_t n, cap;
    struct arena texts;
};

/* Adds one. What is returned can be added to until the next call. */
struct finding *found_add(struct found *f, enum found_kind kind, const char *id,
                          const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void found_why(struct found *f, struct finding *to, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void found_do(struct found *f, struct finding *to, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void found_fini(struct found *f);

bool found_has(const struct found *f, const char *id);
size_t found_count(const struct found *f, enum found_kind kind);
/* What is written for people. Control characters of foreign texts become '?'. */
void found_write(const struct found *f, struct buf *out);
/* 0: nothing is wrong; 1: something is; 2: nothing is known to be, and something could
 * not be looked at. */
int found_status(const struct found *f);
