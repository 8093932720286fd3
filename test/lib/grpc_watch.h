/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/str.h"

/* A server-streaming call, as the kubelet's ListAndWatch. */

struct grpc_watch;

struct grpc_watch *grpc_watch_open(const char *socket, const char *method);
/* 1: *message is the next one; 0: none within wait_ms; -1: the stream has ended. */
int grpc_watch_next(struct grpc_watch *w, int64_t wait_ms, struct buf *message);
/* Once ended: "STATUS MESSAGE" with both as they were sent; "" without a status. */
const char *grpc_watch_status(const struct grpc_watch *w);
/* Cancels the call. NULL is accepted. */
void grpc_watch_close(struct grpc_watch *w);
