/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "kube-sim/api.h"

/*
 * Fault injection rules and request counters. Pure: it returns the fault, and the caller
 * applies it.
 *
 * Each request is checked against the rules in order; the first rule that matches and
 * fires applies. A reply can be lost before or after the change is made, so each fault
 * exists in both variants.
 *
 * A rule is a JSON object:
 *
 *   "method": "POST"          an absent member matches every request
 *   "verb": "create"          get list watch create update patch delete
 *   "resource": "pods"
 *   "group": "apps"           "" is the core group
 *   "subresource": "binding"  "" matches requests without a subresource
 *   "namespace": "default"
 *   "name": "p"               a prefix; never matches a request without a name
 *   "nth": 3                  fires from the third matching request on (1)
 *   "times": 2                for two requests (1 with "nth", else unlimited)
 *   "action": "answer"        answer: reply with `status`, do not execute
 *                             apply-answer: execute, then reply with `status`
 *                             cut: reset the connection, do not execute
 *                             apply-cut: execute, then reset the connection
 *                             hang: wait `hangMs`, then execute and reply
 *                             hang-cut: wait `hangMs`, then reset the connection
 *   "status": 503             of answer and apply-answer (500)
 *   "retryAfter": 1           seconds (no header)
 *   "hangMs": 2000            (until the request times out)
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
    int64_t hang_ms;       /* INT64_MAX: until the request times out */
};

struct faults;

struct faults *faults_new(void);
void faults_free(struct faults *f);

/* Adds a rule or an array of rules: all, or none on error. */
int faults_add(struct faults *f, struct span json, struct err *err);
void faults_clear(struct faults *f); /* all rules */

/* Counts the request and returns its fault. */
struct fault faults_check(struct faults *f, const char *method,
                          const struct api_target *target);

/* {"rules": [{..., "matched": n, "fired": n}]} */
void faults_write(const struct faults *f, struct buf *out);

/* {"requests": [{"method", "verb", "resource", "group", "subresource", "count"}]} in the
 * order of their first request. */
void faults_write_counters(const struct faults *f, struct buf *out);

/* Appends the Status body of a reply with this status. */
void faults_status(const struct fault *fault, struct buf *out);
