/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

/*
 * A client for calls one after the other, on connections that are kept, to any server on
 * the loopback. For one thread.
 */

struct ask;

struct ask *ask_new(void);
void ask_free(struct ask *a);

/* The status; 0: no answer. `body`: JSON, or NULL; that of a PATCH is a merge patch.
 * `answer`, unless NULL, gets what came with 2xx as JSON (new), else NULL. */
long ask_call(struct ask *a, const char *method, unsigned port, const char *path,
              const char *body, json_t **answer);
/* The same with a tree, which is taken. */
long ask_send(struct ask *a, const char *method, unsigned port, const char *path,
              json_t *body);
