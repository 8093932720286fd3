/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/access.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "extender/cert_plan.h"
#include "extender/forward.h"

struct access {
    struct certs *certs;
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
    if (is_one_of(health, ARRAY_LEN(health), path))
        return ACCESS_HEALTH;
    if (name && is_one_of(verbs, ARRAY_LEN(verbs), name + 1))
        return ACCESS_VERB;
    return ACCESS_VIEW;
}

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
    if (certs_mode(a->certs) != CERTS_SECRETS || !httpd_header(req, FORWARD_HEADER) ||
        (own && strcmp(own, CERT_PLAN_SERVER_NAME) == 0))
        return true;
    httpd_fail(reply, 403, "only a replica of the extender may forward a bind");
    return false;
}

bool access_allows_main(void *ctx, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    const struct access *a = ctx;
    if (certs_mode(a->certs) == CERTS_INSECURE)
        return true;
    switch (access_class_of(req->path)) {
    case ACCESS_HEALTH:
        return true;
    case ACCESS_VERB:
        return allows_verb(a, req, reply);
    default:
        return is_verb_client(req) || httpd_secondary_client_name(req) ||
               reject(req, reply);
    }
}

bool access_allows_observer(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    const struct access *a = ctx;
    if (!certs_observers_restricted(a->certs) || httpd_secondary_client_name(req) ||
        httpd_client_name(req) || access_class_of(req->path) == ACCESS_HEALTH ||
        strcmp(req->path, "/metrics") == 0)
        return true;
    httpd_fail(reply, 401, "a client certificate of --observe-client-ca is required");
    return false;
}

struct access *access_new(const struct access_config *config)
{
    struct access *a = xcalloc(1, sizeof *a);
    a->certs = config->certs;
    return a;
}

void access_free(struct access *a)
{
    free(a);
}
