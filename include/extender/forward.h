/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "wire/tls.h"

/*
 * Handing binds on to the process that holds the lease. Its address is in the Lease; how
 * to get there (plain or TLS, which certificates) is the same for all replicas and known
 * from our own options.
 *
 * A bind that was handed on says so in a header, and who gets one does not hand it on
 * again. It may be handed on twice, to the same process or another: a second bind of a
 * pod joins the first, and a new holder knows of all binds of the one before.
 */

#define FORWARD_HEADER "X-Gpushare-Forwarded"
enum { FORWARD_MISDIRECTED = 421 }; /* what a process that is not the holder answers */

struct forward_config {
    struct tls *tls;     /* NULL: plain HTTP; else we show its certificate. Borrowed */
    const char *ca_file; /* who the other's certificate must be of; NULL: the system's */
    const char *name;    /* which name it must have; NULL: its address */
};

struct forward;

/* New. The configuration is copied. The error names the file of authorities, which is
 * read; later ones are taken when they are good. */
struct forward *forward_new(const struct forward_config *config, struct err *err);
void forward_free(struct forward *f); /* no call may run; NULL is accepted */

/* Closes connections that were not used for some seconds; to be called once a second. */
void forward_trim(struct forward *f);

/* Sends the body of a bind to the process at that address. Returns the status and appends
 * the answer to reply; 0 (with err): there was none. *sent: it may have got there. */
unsigned forward_bind(struct forward *f, const char *address, struct span body,
                      int64_t timeout_ms, struct buf *reply, bool *sent, struct err *err);
