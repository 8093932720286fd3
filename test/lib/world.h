/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/sim.h"

/*
 * A kube-sim with one extender, and the pods of a tenant: what a user writes, as JSON.
 */

/* The member `containers` of a spec: one container with these limits. */
#define LIMITS(text)                                                                     \
    "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{" text   \
    "}}}]"
/* The same with n units of aliyun.com/gpu-mem; n is a string. */
#define MEM(n) LIMITS("\"aliyun.com/gpu-mem\":\"" n "\"")

struct world {
    struct sim sim;
    struct extender extender;
};

void world_start(struct world *w);
/* Kills the extender and starts another one. */
void world_restart(struct world *w);
void world_stop(struct world *w);

/* Creates or replaces a pod in namespace default with UID "uid-<name>". `meta`: empty, or
 * more members of its metadata, each after a comma; `spec`: the members of its spec. */
void world_add_pod(const struct world *w, const char *name, const char *meta,
                   const char *spec);
/* The same, in phase Running. */
void world_add_running(const struct world *w, const char *name, const char *meta,
                       const char *spec);
/* Merges the members into the pod's metadata. */
void world_edit_pod(const struct world *w, const char *name, const char *meta);

/* Fails the test if the pod is rejected. */
void world_bind(const struct world *w, const char *name, const char *node);
/* Creates pods of 1 GiB until one is rejected. Returns how many the node took. */
int world_fill(const struct world *w, const char *node);
/* MiB promised on the card with this index, as /inspect shows them. */
json_int_t world_promised(const struct world *w, const char *node, size_t card);
