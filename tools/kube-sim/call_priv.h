/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/api_priv.h"
#include "kube-sim/query_priv.h"
#include "kube-sim/route_priv.h"
#include "kube-sim/status_priv.h"

/* One request, and the ways to answer it. */

struct call {
    struct api *api;
    int64_t now_ms;
    const struct api_request *req;
    struct api_reply *reply;
    struct route route;
    struct store *store; /* of route.kind */
    struct query query;
    bool dry_run;
};

/* Each refusal returns -1, so that refusing is one statement. */

int sim_refuse(struct call *c, unsigned code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* 500 without a reason, as errors come out that a real server did not foresee. */
int sim_refuse_unknown(struct call *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* About the object of the request: fills in details. */
int sim_refuse_about(struct call *c, unsigned code, const char *reason, struct span name,
                     const char *fmt, ...) __attribute__((format(printf, 5, 6)));
int sim_refuse_not_found(struct call *c, const struct kind *kind, struct span name);
int sim_refuse_modified(struct call *c); /* stale resourceVersion */
/* A failed precondition: `what` is "UID" or "ResourceVersion". */
int sim_refuse_precondition(struct call *c, const char *what, const char *wanted,
                            struct span found);
/* The same of a deletion. */
int sim_refuse_deletion(struct call *c, const char *what, const char *wanted,
                        struct span found);
int sim_refuse_no_version(struct call *c); /* an update must have one */
/* What a patch made of the object is none of the kind. */
int sim_refuse_patch(struct call *c, const json_t *object, const char *why);
int sim_refuse_invalid(struct call *c, struct span name, const struct faultlist *f);
/* Options of a list or watch that may not be given so. */
int sim_refuse_options(struct call *c, const struct faultlist *f);
int sim_refuse_option(struct call *c, const char *field, const char *why);
void sim_answer_object(struct call *c, unsigned code, const struct object *o);
