/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "wire/httpc.h"
#include "wire/x509.h"

/*
 * A client of the Kubernetes API server. All threads share one client.
 *
 * The client adds credentials and refreshes them when they expire or the server responds
 * with 401. A call is retried once after a 401, which has no side effects, if the
 * credentials can change (a token file, a certificate file, `kubectl proxy`). Nothing else
 * is retried: only the caller knows whether that is safe.
 *
 * Certificate authorities and client certificates are reloaded, too. After a change, new
 * calls use new connections; running calls and streams keep theirs.
 */

struct kube_client;
struct kube_config;

struct kube_request {
    const char *method;
    const char *path;         /* "/api/v1/namespaces/default/pods/p1?..." */
    const char *content_type; /* NULL: application/json */
    struct span body;
    bool gzip;
    int64_t timeout_ms, tcp_user_timeout_ms, stall_ms; /* as in wire/httpc.h */
    struct clock_deadline send_by;
};

enum { KUBE_MAX_BODY = 64 << 20 }; /* bytes of a response to kube_call */

/* New. Takes the content of *config, also when it fails. Does not connect. Must be called before
 * other threads start, because it initializes libcurl and jansson. */
struct kube_client *kube_client_new(struct kube_config *config, struct err *err);
void kube_client_free(struct kube_client *c); /* no call may run; streams may */

/* Like httpc_call. A redirect is an error; a status of 400 or above is a reply, not an error: see
 * kube_reply_check. Without credentials the call is not sent: ERR_UNAVAILABLE, whatever is wrong
 * with their file. timeout_ms and send_by cover both attempts. */
int kube_call(struct kube_client *c, const struct kube_request *req,
              struct httpc_reply *reply, struct err *err);

/* kube_call and kube_reply_check: 0 for a status of 2xx. `client` is a kube_client. */
int kube_ask(void *client, const struct kube_request *request, struct httpc_reply *reply,
             struct err *err);
/* The same, for calls whose answer has nothing to read. */
int kube_send(void *client, const struct kube_request *request, struct err *err);

/* -1: the body is HTML, as of a login page; err has its first words. */
int kube_check_html(struct span body, struct err *err);
/* 0 for 2xx without HTML. Otherwise -1 with the message of the Status object in the body, or with
 * the first bytes of another body. Codes: 400 and 422 ERR_INVALID, 401 ERR_UNAUTHORIZED, 403
 * ERR_FORBIDDEN, 404 ERR_NOT_FOUND, 409 ERR_CONFLICT, 410 ERR_GONE, 413 ERR_TOO_LARGE, 429 and 503
 * ERR_UNAVAILABLE, 408 and 504 ERR_TIMEOUT, other 4xx ERR_INVALID, all others ERR_INTERNAL. */
int kube_reply_check(unsigned status, struct span body, struct err *err);

/* Has `kubectl proxy` answered instead of the API server? It says with status 500 and plain text
 * that it has no connection or no credentials: ERR_UNAVAILABLE. kube_call asks this itself. */
bool kube_client_lost(const struct kube_client *c, unsigned status, struct span body,
                      struct err *err);

/* Can it be a part of a path, unescaped? Names of objects are DNS subdomains; a pod that names
 * an object may have any text. */
bool kube_is_path_part(struct span name);

/* Starts a list or watch on a loop, like httpc_stream_start. NULL if there are no
 * credentials: ERR_UNAVAILABLE. */
struct httpc_stream *kube_stream_start(struct kube_client *c, struct httpc_loop *loop,
                                       const struct kube_request *req,
                                       const struct httpc_sink *sink, void *ctx,
                                       struct err *err);
/* Reports a 401 of a stream: the next call refreshes the credentials. */
void kube_client_unauthorized(struct kube_client *c);

/* Appends the family of the metric, with `kube-client`, the client certificate, and `kube-ca`. */
void kube_client_family(struct kube_client *c, enum x509_metric metric, struct buf *out);
/* Appends these families. */
void kube_client_metrics(struct kube_client *c, struct buf *out);

/* A client of another server ("https://host:port"), such as the extender. The files of its CAs
 * and of a bearer token may be NULL. The strings are borrowed. New. */
struct kube_client *kube_client_at(const char *url, const char *ca_file,
                                   const char *token_file, struct err *err);

/* A client of the Unix socket of `kubectl proxy`, which has the credentials. New. */
struct kube_client *kube_client_proxied(const char *socket, struct err *err);

/* The kubeconfig that kube_connect reads: *files is new; NULL: the pod's service account; a list
 * with ':' if several files of the option exist. -1: there is no source. */
int kube_config_path(const char *kubeconfig, char **files, struct err *err);

/* The API client of a program, configured from its options --kubeconfig and --context
 * (NULL or "": not given) and its environment. Logs the server and the source of its
 * configuration. New. Errors as for kube_config_load. */
struct kube_client *kube_connect(const char *kubeconfig, const char *context,
                                 struct err *err);
/* Like kube_connect; *ns is set to the namespace of the context, a new string. */
struct kube_client *kube_connect_in(const char *kubeconfig, const char *context,
                                    char **ns, struct err *err);
