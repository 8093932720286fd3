/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/call_priv.h"

/* The requests that change objects. Each answers. */

void sim_create_handle(struct call *c);  /* POST on a collection */
void sim_update_handle(struct call *c);  /* PUT and PATCH of an object or its status */
void sim_delete_handle(struct call *c);  /* DELETE of an object */
void sim_binding_handle(struct call *c); /* POST on pods/NAME/binding */

/* The body as an object of the request's kind: JSON, types checked, no nulls. New; NULL
 * when the request has been refused. */
json_t *sim_body_object(struct call *c);
/* Refuses a body whose members have the wrong types. */
int sim_body_check(struct call *c, json_t *object);
/* The same of what a patch has made. */
int sim_body_check_patched(struct call *c, json_t *object);
/* Is the content type (without parameters) this one? Nothing given counts as JSON. */
bool sim_body_is(const struct call *c, const char *type);

/* Gives `object` what it needs to be new, and checks it. `keep` takes over UID, creation
 * time and version that are given (a manifest that is loaded). */
int sim_create_prepare(struct call *c, json_t *object, bool keep);
/* Stores a checked object and answers. */
void sim_create_store(struct call *c, json_t *object);
