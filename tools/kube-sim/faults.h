/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "kube-sim/api.h"

/*
 * What goes wrong on purpose, and how often the server was called.
 *
 * Rules are looked at in order for each request; the first one that matches and is due
 * decides. It matters on which side of the change an answer is lost, so each way to lose
 * one exists before and after it. Pure: it decides, somebody else does it.
 *
 * A rule is a JSON object:
 *
 *   "method": "POST"          what it matches; what is left out matches everything
 *   "verb": "create"          get list watch create update patch delete
 *   "resource": "pods"
 *   "subresource": "binding"  "" matches only requests without one
 *   "namespace": "default"
 *   "name": "p"               a prefix; requests without a name do not match
 *   "nth": 3                  due from the third matching request on (1)
 *   "times": 2                and no longer than for two (1 with "nth", else for ever)
 *   "action": "answer"        answer: `status`, and nothing is changed
 *                             apply-answer: it is carried out, then answered `status`
 *                             cut: the connection is broken off, nothing is changed
 *                             apply-cut: it is carried out, then the connection is cut
 *                             hang: waits `hangMs`, then goes on as if nothing had been
 *                             hang-cut: waits `hangMs`, then cuts, nothing is changed
 *   "status": 503             for answer, apply-answer (500)
 *   "retryAfter": 1           seconds; none if left out
 *   "hangMs": 2000            left out: until the request's time is over
 */

enum fault_action {
    FAULT_NONE,
    FAULT_ANSWER,
    FAULT_APPLY_ANSWER,
    FAULT_CUT,
    FAULT_APPLY_CUT,
    FAULT_HANG,
    FAULT_HANG_CUT,
};

struct fault {
    enum fault_action action;
    unsigned status;
    int64_t retry_after_s; /* 0: none */
    int64_t hang_ms;       /* INT64_MAX: until the request's time is over */
};

struct faults;

struct faults *faults_new(void);
void faults_free(struct faults *f);

/* Adds a rule, or an array of them (all or none). */
int faults_add(struct faults *f, struct span json, struct err *err);
void faults_clear(struct faults *f); /* all rules */

/* Counts the request and says what is to be done with it. */
struct fault faults_check(struct faults *f, const char *method,
                          const struct api_target *target);

/* {"rules": [{..., "matched": n, "fired": n}]} */
void faults_write(const struct faults *f, struct buf *out);

/* {"requests": [{"method", "verb", "resource", "group", "subresource", "count"}]} in the
 * order in which they were first seen.
 */
void faults_write_counters(const struct faults *f, struct buf *out);

/* The body of an answer with this status, as an API server writes it. */
void faults_status(const struct fault *fault, struct buf *out);
