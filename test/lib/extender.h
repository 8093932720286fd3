/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/lib.h"
#include "lib/peer.h"

/* The extender, and requests to it. */

struct extender {
    struct program program;
    struct peer verbs, observers;
};

/* Writes lib_dir/NAME: the server, further members of cluster and user as YAML flow
 * ("", or ", token: x"). Returns the path, new. */
char *lib_kubeconfig(const char *name, const char *scheme, unsigned port,
                     const char *cluster, const char *user);
/* Starts it with further options (end with NULL) and waits until it listens. */
void extender_start_at(struct extender *e, const char *kubeconfig,
                       const char *const *more);
void extender_stop(struct extender *e); /* cleanly */
void extender_kill(struct extender *e); /* SIGKILL */
bool extender_ready(const struct extender *e);
void extender_wait_ready(const struct extender *e);
/* The same of one that is no program of this process. */
void extender_wait_answers(const struct extender *e);

/* A pod in namespace default with UID "uid-<name>" that asks for so many units; `node`
 * NULL: not bound; `annotations` is a JSON object. */
void lib_pod(struct buf *out, const char *name, int units, const char *node,
             const char *annotations);
/* The request bodies of kube-scheduler for such a pod that waits. */
void lib_filter_body(struct buf *out, const char *pod, int units,
                     const char *const *nodes);
void lib_bind_body(struct buf *out, const char *pod, const char *node);

/* True: bound. Otherwise `why` says why not (may be NULL). */
bool extender_bind(const struct extender *e, const char *pod, const char *node,
                   struct buf *why);
enum fit { FITS, NOT_NOW, NEVER, UNANSWERED };
/* Does a new pod of so many units fit on the node? */
enum fit extender_filter(const struct extender *e, int units, const char *node,
                         struct buf *why);
/* What inspect says of a node. New. */
json_t *extender_inspect(const struct extender *e, const char *node);
