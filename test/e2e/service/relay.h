/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Forwards TCP connections between sockets of 127.0.0.1. */

/* Returns a socket that listens on the port, or -1 with errno. The caller closes it. */
int relay_listen(unsigned port);
/* Returns a socket that is connected to the port, or -1. The caller closes it. */
int relay_connect(unsigned port);
/* Forwards each connection that `listener` accepts to the socket that open(ctx) returns, in
 * a thread of its own; -1 resets the connection. Does not return. */
void relay_serve(int listener, int (*open)(void *ctx), void *ctx)
    __attribute__((noreturn));
