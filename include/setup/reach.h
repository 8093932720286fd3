/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/facts.h"

/*
 * Calls the extender as kube-scheduler does: POST to the filter verb, with a pod that
 * requests nothing and without nodes. The call changes nothing.
 */

/* A TLS client's files; empty or NULL: none. Without `ca` the server's certificate is not
 * verified, as by kube-scheduler. */
struct reach_tls {
    struct span ca, cert, key;
    const char *server_name;
};

/* Calls f->reach.url and, if nothing answers there, the same port of this machine's other
 * addresses, which may set f->reachable_at. `verb` is the filterVerb. */
void reach_call(struct facts *f, const char *verb, const struct reach_tls *tls);
/* The call that kube-scheduler makes after the changes of change_plan: to the configured
 * entry, or to the one that will be added, at `address` if not NULL; with the Secret's
 * certificate where the plan sets it. */
void reach_call_planned(struct facts *f, const char *address, bool insecure);
/* The same, with URL and TLS files of our entry in f->config; `address` (HOST:PORT or
 * NULL) replaces the entry's. */
void reach_call_configured(struct facts *f, const char *address);
