/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/facts.h"

/*
 * Asks the extender as kube-scheduler does: POST to the filter verb, of a pod that asks
 * for nothing, and of no node. That changes nothing and is counted nowhere but in the
 * metrics of filter.
 */

/* What a client of TLS has; NULL or empty: none. Without `ca` the certificate is not
 * checked, as kube-scheduler does it. */
struct reach_tls {
    struct span ca, cert, key;
    const char *server_name;
};

/* Fills in all of *out but the url, which it is to ask. `verb` is the filterVerb. */
void reach_ask(struct reach_result *out, const char *verb, const struct reach_tls *tls);
/* The same of f->reach; and if nothing answers there, whether the extender does on
 * another address of this machine, into f->elsewhere. */
void reach_ask_around(struct facts *f, const char *verb,
                      const struct reach_tls *tls);
/* The same as our entry in f->config says; with `address` (HOST:PORT) as if it had that
 * one. */
void reach_ask_as_configured(struct facts *f, const char *address);
