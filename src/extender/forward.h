/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

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
#define REPORT_HEADER  "X-Gpushare-Report" /* instead, on reports (verb_report.h) */
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

/* Closes connections that have been idle for some seconds. To be called once a second. */
void forward_trim(struct forward *f);

/* Sends the body of a verb ("bind") to the leader at `address`, with one of the headers. Returns the HTTP status
 * and appends the body of the answer to `reply`. 0 (with err): no answer. *sent: whether
 * the request may have reached the leader. */
unsigned forward_verb(struct forward *f, const char *verb, const char *header,
                      const char *address, struct span body, int64_t timeout_ms,
                      struct buf *reply, bool *sent, struct err *err);
