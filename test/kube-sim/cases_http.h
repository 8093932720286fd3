/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/cases.h"

/* What conformance cases need of a server that is reached over HTTP: kube-sim, or a real
 * API server. On libcurl itself, so that it shares no code with the programs under test.
 */

struct cases_http;

struct cases_http_config {
    const char *url;             /* "https://127.0.0.1:6443" */
    const char *ca, *cert, *key; /* files, or NULL */
};

struct cases_http *cases_http_new(const struct cases_http_config *config);
void cases_http_free(struct cases_http *h);
/* Fills in call, watch, next, quiet, close, wait, and `ctx` for them, which is `h`. */
void cases_http_server(struct cases_http *h, struct cases_server *server);
void cases_http_wait(void *ctx, int64_t ms); /* what `wait` is */
/* One request with a body of JSON (or NULL): its status, 0 if there was no answer. */
unsigned cases_http_ask(struct cases_http *h, const char *method, const char *path,
                        const char *body);
