/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/brain.h"

/*
 * The server of one resource: from the kubelet's messages to the brain's, and back.
 */

struct endpoint;

/* New; serves at once. `brain` is borrowed. */
struct endpoint *endpoint_start(const char *socket, enum ids_resource r,
                                struct brain *brain, struct err *err);
bool endpoint_is_reachable(const struct endpoint *e);
/* Removes the socket, ends the streams, waits a little for answers under way. */
void endpoint_stop(struct endpoint *e);
void endpoint_free(struct endpoint *e); /* NULL is accepted */

/* Messages for the kubelet, appended to out. */
int endpoint_list(const struct cards *cards, enum ids_resource r, struct buf *out,
                  struct err *err);
int endpoint_preferred(const char *const *ids, size_t n, struct buf *out,
                       struct err *err);
int endpoint_granted(const struct response *response, struct buf *out, struct err *err);
