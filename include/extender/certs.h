/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/opt.h"
#include "wire/tls.h"

/*
 * TLS of the two listeners, as the options say: one certificate for both, and whom each
 * believes. A thread looks at the files once a second.
 *
 * The verbs' port lets in only who has a certificate of --client-ca; the observers' port
 * lets in everybody, because neither the kubelet's probes nor a scraper has one, and
 * believes nobody but the API server's front proxy. With --observe-client-ca it shows the
 * cluster only to clients of these authorities, and to the front proxy.
 */

struct certs_config {
    const char *cert_file, *key_file;    /* NULL: plain HTTP */
    const char *client_ca_file;          /* NULL: any client may use the verbs */
    const struct opt_list *client_names; /* an item may be a comma list */
    const char *front_ca_file;           /* of the front proxy; NULL: none is believed */
    const struct opt_list *front_names;  /* common names */
    const char *observe_ca_file;         /* who may look; NULL: all */
};

struct certs;

/* New; reads the files and starts the thread. The error names option or file. */
struct certs *certs_start(const struct certs_config *config, struct err *err);
/* When the listeners have ended. All of the rest accept NULL: no TLS. */
void certs_stop(struct certs *c);
/* For a listener; NULL: plain HTTP. */
struct tls *certs_verbs(struct certs *c);
struct tls *certs_observers(struct certs *c);
/* Is there a front proxy to believe? */
bool certs_has_front_proxy(const struct certs *c);
/* Is the cluster shown only to known clients? */
bool certs_observers_restricted(const struct certs *c);
/* Appends what somebody should see to, a line each. */
void certs_report(struct certs *c, struct buf *out);
