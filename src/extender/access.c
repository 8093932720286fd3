/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/access.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "extender/cert_secrets.h"
#include "extender/forward.h"

struct access {
    struct certs *certs;
    struct view_auth *auth;
};

static bool is_one_of(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

enum access_class access_class_of(const char *path)
{
    static const char *const health[] = {"/healthz", "/readyz", "/version"};
    static const char *const verbs[] = {"filter", "prioritize", "preempt", "bind"};
    const char *name = strrchr(path, '/');
    if (strstr(path, "/inspect/")) /* the rest is the name of a node */
        return ACCESS_VIEW;
    if (is_one_of(health, ARRAY_LEN(health), path))
        return ACCESS_HEALTH;
    if (name && is_one_of(verbs, ARRAY_LEN(verbs), name + 1))
        return ACCESS_VERB;
    return ACCESS_VIEW;
}

/* -- what a web page could send -- */

/* A page on another origin may POST any body as text/plain without asking first (CORS,
 * "simple requests"), so this type is required; parameters are allowed. */
static bool is_json(const char *content_type)
{
    struct span rest = span_of(content_type);
    return span_eq_nocase(span_trim(span_cut(&rest, ';')), SPAN("application/json"));
}

/* Whether the origin is scheme://Host (RFC 6454). The scheme may be that of a proxy. */
static bool is_same_origin(const char *origin, const char *host)
{
    struct span at = span_of(origin);
    size_t scheme = span_starts(at, SPAN("https://"))  ? strlen("https://")
                    : span_starts(at, SPAN("http://")) ? strlen("http://")
                                                       : 0;
    at.p += scheme;
    at.n -= scheme;
    return scheme && host && span_eq_nocase(at, span_of(host));
}

bool access_checks_form(const struct httpd_request *req, struct httpd_reply *reply)
{
    const char *origin = httpd_header(req, "Origin");
    if (origin && !is_same_origin(origin, httpd_header(req, "Host"))) {
        httpd_fail(reply, 403,
                   "Origin: requests from pages of another origin are "
                   "rejected");
        return false;
    }
    if (strcmp(req->method, "POST") == 0 && !is_json(httpd_header(req, "Content-Type"))) {
        httpd_fail(reply, 415, "Content-Type: expected application/json");
        return false;
    }
    return true;
}

/* -- who may call -- */

/* 401 without a certificate that a CA of this port verifies, 403 with another's. */
static bool reject(const struct httpd_request *req, struct httpd_reply *reply)
{
    const char *name = httpd_any_client_name(req);
    if (name)
        httpd_fail(reply, 403, "the client certificate of \"%s\" is not allowed here",
                   name);
    else
        httpd_fail(reply, 401,
                   "a client certificate is required: see TLS in docs/operations.md, or "
                   "--insecure on a trusted network");
    return false;
}

/* kube-scheduler, or another replica. */
static bool is_verb_client(const struct httpd_request *req)
{
    return httpd_client_name(req) || httpd_own_client_name(req);
}

static bool allows_verb(const struct access *a, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    const char *own = httpd_own_client_name(req);
    if (!is_verb_client(req))
        return reject(req, reply);
    bool forwarded =
        httpd_header(req, FORWARD_HEADER) || httpd_header(req, REPORT_HEADER);
    if (certs_mode(a->certs) != CERTS_SECRETS || !forwarded ||
        (own && strcmp(own, CERT_SECRETS_SERVER_NAME) == 0))
        return true;
    httpd_fail(reply, 403, "only a replica of the extender may forward a bind");
    return false;
}

/* What the client's certificate proves about views. The main port knows kube-scheduler and
 * replicas by it, the observers' port the front proxy and clients of --observe-client-ca.
 */
static enum view_access_trust trust_of(bool main, const struct httpd_request *req)
{
    if (httpd_secondary_client_name(req) || httpd_own_client_name(req))
        return VIEW_ACCESS_ALL;
    if (!httpd_client_name(req))
        return VIEW_ACCESS_NONE;
    return main ? VIEW_ACCESS_ALL : VIEW_ACCESS_FRONT;
}

static bool allows(const struct access *a, bool main, const struct httpd_request *req,
                   struct httpd_reply *reply)
{
    if (!access_checks_form(req, reply))
        return false;
    if (certs_mode(a->certs) == CERTS_INSECURE)
        return true;
    switch (access_class_of(req->path)) {
    case ACCESS_HEALTH:
        return true;
    case ACCESS_VERB:
        return allows_verb(a, req, reply);
    default:
        if (!view_access_allows(a->auth, trust_of(main, req), req, reply))
            return false;
        /* A full port closes others first. On the main port that, and the reserved
         * handlers, are for kube-scheduler and replicas: many users may have a token. */
        if (!main)
            httpd_trust(req);
        return true;
    }
}

bool access_allows_main(void *ctx, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    return allows(ctx, true, req, reply);
}

bool access_allows_observer(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    return allows(ctx, false, req, reply);
}

struct view_auth_grant access_grant(const struct access *a, bool main,
                                    const struct httpd_request *req)
{
    return view_access_grant(a->auth, trust_of(main, req), req);
}

struct access *access_new(const struct access_config *config)
{
    struct access *a = xcalloc(1, sizeof *a);
    a->certs = config->certs;
    a->auth = config->auth;
    return a;
}

void access_free(struct access *a)
{
    free(a);
}
