/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/access.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

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

/* What the client's certificate proves about views. The main port verifies kube-scheduler
 * and replicas, the observers' port the front proxy and clients of --observe-client-ca.
 */
static enum view_access_trust trust_of(bool main, const struct httpd_request *req)
{
    if (httpd_secondary_client_name(req))
        return VIEW_ACCESS_ALL;
    if (!httpd_client_name(req))
        return VIEW_ACCESS_NONE;
    return main ? VIEW_ACCESS_ALL : VIEW_ACCESS_FRONT;
}

static bool allows(const struct access *a, bool main, const struct httpd_request *req,
                   struct httpd_reply *reply)
{
    if (access_class_of(req->path) != ACCESS_VIEW)
        return true;
    return view_access_allows(a->auth, trust_of(main, req), req, reply);
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
