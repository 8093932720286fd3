/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/cases.h"

/* Runs conformance cases over HTTP, against kube-sim or a real API server. Uses libcurl
 * directly, so that it shares no code with the programs under test.
 */

struct cases_http;

/* Borrowed. */
struct cases_http_config {
    const char *url;             /* "https://127.0.0.1:6443" */
    const char *ca, *cert, *key; /* files, or NULL */
};

struct cases_http *cases_http_new(const struct cases_http_config *config);
void cases_http_free(struct cases_http *h);
/* Sets call, watch, next, quiet, close, wait, and their `ctx` to `h`. */
void cases_http_server(struct cases_http *h, struct cases_server *server);
void cases_http_wait(void *ctx, int64_t ms); /* the function `wait` */
/* Sends a request with a JSON body (or NULL). Returns the status, 0: no reply. */
unsigned cases_http_ask(struct cases_http *h, const char *method, const char *path,
                        const char *body);
