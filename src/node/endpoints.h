/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/calls.h"

/*
 * The device plugin servers of the resources: their sockets, their registrations with the
 * kubelet (node/registration.h), and the kubelet's calls that are not answered yet.
 *
 * The servers' threads decode the calls and post them to the queue. All functions are for
 * the thread that takes the messages from it.
 */

struct endpoints;

/* New. `dir` is the kubelet's device plugin directory; both it and `queue` are borrowed. */
struct endpoints *endpoints_new(const char *dir, struct dispatcher_msg_queue *queue,
                                struct err *err);
/* Stops the servers and ends the calls. NULL is accepted. */
void endpoints_free(struct endpoints *es);

/* Looks for changed sockets once a second, serves, and registers by `calls`. Returns whether a
 * kubelet has started. */
bool endpoints_step(struct endpoints *es, struct calls *calls);
int64_t endpoints_due(const struct endpoints *es); /* mono_ms of the next step */

/* Messages. Of a call: takes it. It is answered by one of the functions below. */
void endpoints_request(struct endpoints *es, struct dispatcher_msg *m);
void endpoints_stream_opened(struct endpoints *es, struct dispatcher_msg *m,
                             const struct alloc_state *s);
/* False: it is no stream, but a request, which stays. */
bool endpoints_stream_closed(struct endpoints *es, uint64_t token);
void endpoints_registered(struct endpoints *es, const struct dispatcher_msg *m);

/* The devices have changed: sends them to the open streams. A resource is registered from
 * the first card on, unless its list does not fit into a message. */
void endpoints_send_devices(struct endpoints *es, const struct alloc_state *s);
/* Answers the call of an ALLOC_PREFERRED, ALLOC_ALLOCATED (with `given`) or ALLOC_REJECTED. One
 * that has ended needs no answer. */
void endpoints_answer(struct endpoints *es, const struct alloc_output *o,
                      const struct dp_allocation *given);

bool endpoints_are_busy(const struct endpoints *es); /* a request waits for its answer */
/* 0, or -1 with the reason if the resource is not registered. *wanted: it has devices. */
int endpoints_check(const struct endpoints *es, enum ids_resource r, bool *wanted,
                    struct err *err);
