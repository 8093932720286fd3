/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * The Secret gpushare-scheduler-tls in the extender's namespace, from which kube-scheduler gets the
 * certificate that the extender asks for. The extender or cert-manager writes it, as type
 * kubernetes.io/tls. And the files of a control plane node that hold its content.
 */

#define CLIENT_SECRET_NAME "gpushare-scheduler-tls"

/* As kube-scheduler sees them, in its container. */
#define CLIENT_SECRET_DIR "/etc/kubernetes/gpushare"

/* The files, in the order of facts.tls. */
enum client_secret_file { CLIENT_SECRET_CA, CLIENT_SECRET_CERT, CLIENT_SECRET_KEY };
enum { CLIENT_SECRET_FILES = 3 };

/* The member of tlsConfig ("caFile") and the path in the container. Static. */
const char *client_secret_member(enum client_secret_file file);
const char *client_secret_path(enum client_secret_file file);

struct client_secret {
    struct buf pem[CLIENT_SECRET_FILES];
};

/* Decodes the API server's JSON. -1: a key is missing or is not base64, or the certificate
 * is not one of ca.crt, or does not belong to the key. */
int client_secret_read(struct span json, struct client_secret *out, struct err *err);
void client_secret_fini(struct client_secret *s); /* overwrites the key */
