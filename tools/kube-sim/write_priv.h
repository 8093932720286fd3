/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/call_priv.h"

/* The requests that change objects. Each writes the reply. */

void sim_create_handle(struct call *c);   /* POST on a collection */
void sim_update_handle(struct call *c);   /* PUT and PATCH of an object or its status */
void sim_delete_handle(struct call *c);   /* DELETE of an object */
void sim_binding_handle(struct call *c);  /* POST on pods/NAME/binding */
void sim_eviction_handle(struct call *c); /* POST on pods/NAME/eviction */

/* Refuses a deletion whose DeleteOptions (NULL: none) have a precondition that the object
 * does not meet. */
int sim_delete_check(struct call *c, const json_t *options, const struct object *o);
/* Deletes a pod gracefully; `grace_s` -1: with its own grace period. Writes no reply.
 * Returns its last version, borrowed. */
const struct object *sim_delete_pod(struct call *c, const struct object *o,
                                    int64_t grace_s);

/* Parses the body, checks its types and removes nulls. New; NULL: the request has been
 * refused. */
json_t *sim_body_object(struct call *c);
/* Refuses a body that has members of the wrong type. */
int sim_body_check(struct call *c, json_t *object);
/* Refuses a patched object that has members of the wrong type. */
int sim_body_check_patched(struct call *c, json_t *object);
/* Is this the content type, without parameters? An absent content type is JSON. */
bool sim_body_is(const struct call *c, const char *type);

/* Sets the members of a new object (UID, creation time, defaults) and validates it. `keep`
 * keeps the given UID, creation time and version (api_load). */
int sim_create_prepare(struct call *c, json_t *object, bool keep);
/* Stores a validated object and writes the reply. */
void sim_create_store(struct call *c, json_t *object);
