/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/budget.h"
#include "base/err.h"
#include "base/str.h"
#include "wire/tls.h"

/*
 * Forwards binds, and filters that reserve cards, to the leader. Its address is in the
 * Lease; scheme and certificates are the same for all replicas and come from this process's
 * options.
 *
 * A forwarded call carries a header, so that its receiver does not forward it again. A
 * bind may be forwarded twice, to the same replica or another: a second bind of a pod
 * joins the first, and a new leader lists all pods before its first bind.
 */

#define FORWARD_HEADER "X-Gpushare-Forwarded"
#define REPORT_HEADER  "X-Gpushare-Report" /* instead, on reports (below) */
enum { FORWARD_MISDIRECTED = 421 }; /* the answer of a replica that is not the leader */

struct forward_config {
    struct tls *tls; /* NULL: plain HTTP; else its certificate is used. Borrowed */
    /* CA of the leader's certificate; NULL: those of tls_set, else the system's. */
    const char *ca_file;
    const char *name; /* the name that the certificate must have; NULL: the address */
};

struct forward;

/* New. The configuration is copied and the CA file read; the error names it. Later
 * versions of the file are used once they are valid. */
struct forward *forward_new(const struct forward_config *config, struct err *err);
void forward_free(struct forward *f); /* no call may be running; NULL is accepted */

/* Reads the CA file, or the CAs of tls_set, which may have changed. To be called once a second, by
 * one thread. */
void forward_refresh(struct forward *f);
/* Closes connections that have been idle for some seconds. Does not block. */
void forward_trim(struct forward *f);

/* A call to the leader. Everything is borrowed. */
struct forward_call {
    const char *verb;   /* "bind" */
    const char *header; /* one of those above */
    const char *address;
    struct span body;
    int64_t timeout_ms;
    /* Asked now and again while the call waits; true ends it. NULL: never. */
    bool (*gone)(void *ctx);
    void *ctx;
};

/* Returns the HTTP status and appends the body of the answer to `reply`. 0 (with err): no
 * answer. *sent: whether the request may have reached the leader. */
unsigned forward_verb(struct forward *f, const struct forward_call *call,
                      struct buf *reply, bool *sent, struct err *err);

/*
 * Reports of pods that filter has rejected, for layout preemption (core/core.h). A thread sends
 * them, so the answer of filter does not wait for the leader. The leader gets the same call
 * with the header REPORT_HEADER, and reserves nothing: a report may arrive after a later filter
 * of the pod. A report that is lost is repeated by kube-scheduler's next attempt, so the queue
 * is short and nothing is retried.
 */

enum {
    FORWARD_REPORTS = 16,            /* at a time, with the one that is being sent */
    FORWARD_REPORTS_BYTES = 8 << 20, /* of their bodies */
};

struct forward_reports;

/* New. Both are borrowed; `budget` is charged for queued bodies, NULL: none. A report waits
 * up to `timeout_ms` for the leader's answer. */
struct forward_reports *forward_reports_start(struct forward *forward,
                                              struct budget *budget, int64_t timeout_ms);
/* Copies the call. False: the queue has no room for it, and the call is dropped. Never
 * blocks. */
bool forward_reports_add(struct forward_reports *r, const char *address,
                         struct span body);
/* Waits for the report that is being sent. NULL is accepted. */
void forward_reports_free(struct forward_reports *r);
