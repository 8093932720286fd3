/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/lib.h"
#include "lib/peer.h"

/* gpushare-extender as a process, and requests to it. */

struct extender {
    struct program program;
    struct peer verbs, observers;
};

/* Writes the kubeconfig lib_dir/NAME. `cluster` and `user`: further members in YAML flow
 * style ("", or ", token: x"). Returns the path, new. */
char *lib_kubeconfig(const char *name, const char *scheme, unsigned port,
                     const char *cluster, const char *user);
/* Starts it with the options `more` (ends with NULL) and waits until it listens. */
void extender_start_at(struct extender *e, const char *kubeconfig,
                       const char *const *more);
/* Connects again, with TLS: `ca`, and for the verbs a client certificate, or NULL (files). */
void extender_connect(struct extender *e, const char *ca, const char *cert,
                      const char *key);
/* The same with the files of the Secret of kube-scheduler in that namespace, which it writes
 * to lib_dir. `client`: with its certificate, too. */
void extender_connect_secret(struct extender *e, const struct peer *api, const char *ns,
                             bool client);
void extender_stop(struct extender *e); /* SIGTERM; must exit with status 0 */
void extender_kill(struct extender *e); /* SIGKILL */
bool extender_ready(const struct extender *e);
void extender_wait_ready(const struct extender *e);
/* extender_wait_ready for an extender that another process has started. */
void extender_wait_answers(const struct extender *e);

/* Appends the JSON of a pod in namespace default that requests `units`, with UID
 * "uid-<name>"; `node` NULL: pending; `annotations` is a JSON object. */
void lib_pod(struct buf *out, const char *name, int units, const char *node,
             const char *annotations);
/* Append the request bodies of kube-scheduler for such a pending pod. */
void lib_filter_body(struct buf *out, const char *pod, int units,
                     const char *const *nodes);
void lib_bind_body(struct buf *out, const char *pod, const char *node);

/* True: bound. False: `why` (may be NULL) gets the reason. */
bool extender_bind(const struct extender *e, const char *pod, const char *node,
                   struct buf *why);
enum filter_result { FITS, NOT_NOW, NEVER, UNANSWERED };
/* Asks filter whether a new pod that requests `units` fits on the node. The pod has no UID,
 * so that nothing is reserved for it. */
enum filter_result extender_filter(const struct extender *e, int units, const char *node,
                                   struct buf *why);
/* The inspect reply for a node, kept; NULL: there is none. */
json_t *extender_node(const struct extender *e, const char *node);
/* The same, new. */
json_t *extender_inspect(const struct extender *e, const char *node);
/* Units of aliyun.com/gpu-mem that are promised on the node. */
json_int_t extender_promised(const struct extender *e, const char *node);
/* Does it lead? False also if it does not answer. */
bool extender_leads(const struct extender *e);
/* The value of a sample: "gpushare_binds_total{result=\"ok\"}". -1: there is none. */
int64_t extender_metric(const struct extender *e, const char *sample);
