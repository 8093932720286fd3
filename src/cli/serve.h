/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/session.h"

/*
 * --serve: the web page (view/web.h) on 127.0.0.1, or on ::1 where there is no IPv4, with
 * the ledger of this process, so that it shows what the user may read at the API server and
 * needs no access to the extender.
 *
 * Every path begins with a random token that only the printed URL has: other users of
 * this machine, and pages of other origins in the user's browser, cannot read the page. A
 * cookie would not do, because browsers send it to every port of 127.0.0.1. Host and
 * Origin must be this server's, because a name of another site can resolve to 127.0.0.1
 * (DNS rebinding).
 */

/* May a request with these headers (NULL: absent) and this path be answered, if the
 * server listens on this loopback address and port? The rest of the path after the token,
 * from '/' on. NULL, with the reason: no. */
const char *serve_check(const char *token, const char *address, unsigned port,
                        const char *host, const char *origin, const char *path,
                        struct err *err);

/* Prints the URL and serves until SIGINT or SIGTERM. The session is loaded. */
int serve_run(struct session *session, struct err *err);
