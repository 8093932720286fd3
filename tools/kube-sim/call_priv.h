/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/api_priv.h"
#include "kube-sim/query_priv.h"
#include "kube-sim/route_priv.h"
#include "kube-sim/status_priv.h"

/* One request and its replies. */

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

/* Each sim_refuse function writes an error reply and returns -1. */

int sim_refuse(struct call *c, unsigned code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* 500 without a reason: the reply of a real server to an unexpected error. */
int sim_refuse_unknown(struct call *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* With details of the object of the request. */
int sim_refuse_about(struct call *c, unsigned code, const char *reason, struct span name,
                     const char *fmt, ...) __attribute__((format(printf, 5, 6)));
int sim_refuse_not_found(struct call *c, const struct kind *kind, struct span name);
int sim_refuse_modified(struct call *c); /* stale resourceVersion */
/* A failed precondition: `what` is "UID" or "ResourceVersion". */
int sim_refuse_precondition(struct call *c, const char *what, const char *wanted,
                            struct span found);
/* A failed precondition of a deletion. */
int sim_refuse_deletion(struct call *c, const char *what, const char *wanted,
                        struct span found);
int sim_refuse_no_version(struct call *c); /* 422: the update lacks a resourceVersion */
/* 422: the patched object does not match the types of its kind. */
int sim_refuse_patch(struct call *c, const json_t *object, const char *why);
int sim_refuse_invalid(struct call *c, struct span name, const struct faultlist *f);
/* 422: invalid options of a list or watch. */
int sim_refuse_options(struct call *c, const struct faultlist *f);
int sim_refuse_option(struct call *c, const char *field, const char *why);
void sim_answer_object(struct call *c, unsigned code, const struct object *o);
