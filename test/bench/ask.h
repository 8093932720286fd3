/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

/*
 * An HTTP client for sequential calls on keep-alive connections to servers on the loopback.
 * Not thread-safe.
 */

struct ask;

struct ask *ask_new(void);
void ask_free(struct ask *a);

/* Returns the status; 0: no reply. `body`: JSON, or NULL; a PATCH sends a merge patch.
 * *answer (`answer` may be NULL) gets the JSON of a 2xx reply (new), otherwise NULL. */
long ask_call(struct ask *a, const char *method, unsigned port, const char *path,
              const char *body, json_t **answer);
/* Sends a tree. Takes `body`. */
long ask_send(struct ask *a, const char *method, unsigned port, const char *path,
              json_t *body);
