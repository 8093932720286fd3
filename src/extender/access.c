/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/access.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

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

bool access_allows_main(void *ctx, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    (void)ctx;
    (void)req;
    (void)reply;
    return true;
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
