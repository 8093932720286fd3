/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/view_access.h"

#include <string.h>

#include "base/mem.h"

#define API "/apis/nvidia-gpu-scheduler/v1"

enum { GROUPS_MAX = 64 };

/* What is asked of the API server for a path. */
struct wanted {
    struct review_access access;
    bool pods; /* the view names pods */
};

static struct review_access get_path(const char *path)
{
    return (struct review_access){.verb = "get", .path = path};
}

static struct review_access of_api(const struct httpd_request *req, const char *resource)
{
    const char *watch = httpd_param(req, "watch");
    return (struct review_access){.verb =
                                      watch && !strcmp(watch, "true") ? "watch" : "list",
                                  .group = "nvidia-gpu-scheduler",
                                  .version = "v1",
                                  .resource = resource};
}

static struct wanted wanted_of(const struct httpd_request *req)
{
    struct span path = span_of(req->path);
    if (span_eq(path, SPAN("/metrics")))
        return (struct wanted){get_path("/metrics"), false};
    if (span_eq(path, SPAN(API "/gpunodes")))
        return (struct wanted){of_api(req, "gpunodes"), false};
    if (span_eq(path, SPAN(API "/gpupods")))
        return (struct wanted){of_api(req, "gpupods"), true};
    if (span_starts(path, SPAN("/apis")))
        return (struct wanted){get_path(API), false};
    if (span_starts(path, SPAN("/inspect")) ||
        span_starts(path, SPAN("/gpushare-scheduler/inspect")))
        return (struct wanted){get_path("/inspect"), true};
    return (struct wanted){get_path("/"), false};
}

/* The token of "Authorization: Bearer TOKEN"; empty if there is none. */
static struct span bearer(const struct httpd_request *req)
{
    struct span rest = span_of(httpd_header(req, "Authorization"));
    struct span scheme = rest.n ? span_cut(&rest, ' ') : rest;
    if (!span_eq_nocase(scheme, SPAN("Bearer")))
        return (struct span){0};
    return span_trim(rest);
}

static void *begin_wait(void *ctx)
{
    return httpd_wait(ctx);
}

/* The user that the front proxy names; NULL: none. A new reference. */
static struct view_auth_user *vouched(struct view_auth *auth,
                                      const struct httpd_request *req)
{
    const char *name = httpd_header(req, "X-Remote-User"), *groups[GROUPS_MAX];
    if (!name || !*name)
        return NULL;
    struct review_user id;
    review_user_of(name, groups, httpd_headers(req, "X-Remote-Group", groups, GROUPS_MAX),
                   &id);
    struct view_auth_user *u = view_auth_vouched(auth, &id);
    review_user_fini(&id);
    return u;
}

/* The user of the request, new. `waiter` may be NULL. */
static enum view_auth_result identify(struct view_auth *auth,
                                      enum view_access_trust trust,
                                      const struct httpd_request *req,
                                      const struct view_auth_waiter *waiter,
                                      struct view_auth_user **user, struct err *err)
{
    *user = trust == VIEW_ACCESS_FRONT ? vouched(auth, req) : NULL;
    if (trust == VIEW_ACCESS_FRONT)
        return VIEW_AUTH_YES;
    struct span token = bearer(req);
    if (token.n)
        return view_auth_token(auth, token, waiter, user, err);
    err_set(err, ERR_UNAUTHORIZED,
            "a bearer token or a client certificate is required for %s", req->path);
    return VIEW_AUTH_NO;
}

static void add_access(struct buf *out, const struct review_access *access)
{
    if (access->path)
        buf_printf(out, "%s nonResourceURL %s", access->verb, access->path);
    else
        buf_printf(out, "%s %s.%s", access->verb, access->resource, access->group);
}

static bool reject(enum view_auth_result r, const struct err *err,
                   struct httpd_reply *reply)
{
    bool no = r == VIEW_AUTH_NO, unknown = err->code == ERR_UNAUTHORIZED;
    if (r == VIEW_AUTH_WAIT)
        return false;
    httpd_fail(reply, !no ? 503 : unknown ? 401 : 403, "%s", err->msg);
    if (!no) {
        reply->header[0][0] = "Retry-After";
        reply->header[0][1] = "1";
    } else if (unknown) {
        reply->header[0][0] = "WWW-Authenticate";
        reply->header[0][1] = "Bearer realm=\"gpushare\"";
    }
    return false;
}

static enum view_auth_result check(struct view_auth *auth, enum view_access_trust trust,
                                   const struct wanted *want, struct view_auth_user *user,
                                   const struct view_auth_waiter *waiter, struct err *err)
{
    enum view_auth_result r = VIEW_AUTH_YES;
    struct view_scope *scope = NULL;
    if (trust != VIEW_ACCESS_FRONT) /* the API server has already checked this */
        r = view_auth_may(auth, user, &want->access, waiter, err);
    if (r == VIEW_AUTH_NO) {
        cleanup_buf struct buf text = {0};
        add_access(&text, &want->access);
        err_set(err, ERR_FORBIDDEN,
                "user \"%s\" lacks the permission %s; ClusterRole gpushare-viewer has it",
                view_auth_user_name(user), text.p);
    }
    if (r == VIEW_AUTH_YES && want->pods)
        r = view_auth_scope(auth, user, waiter, &scope, err);
    view_scope_free(scope);
    return r;
}

bool view_access_allows(struct view_auth *auth, enum view_access_trust trust,
                        const struct httpd_request *req, struct httpd_reply *reply)
{
    struct view_auth_waiter waiter = {begin_wait, (void *)req};
    struct view_auth_user *user;
    struct err err = {0};
    if (!auth || trust == VIEW_ACCESS_ALL)
        return true;
    struct wanted want = wanted_of(req);
    enum view_auth_result r = identify(auth, trust, req, &waiter, &user, &err);
    if (r == VIEW_AUTH_YES && user)
        r = check(auth, trust, &want, user, &waiter, &err);
    view_auth_user_free(user);
    return r == VIEW_AUTH_YES || reject(r, &err, reply);
}

struct view_auth_grant view_access_grant(struct view_auth *auth,
                                         enum view_access_trust trust,
                                         const struct httpd_request *req)
{
    struct view_auth_user *user;
    struct view_scope *scope = NULL;
    if (!auth || trust == VIEW_ACCESS_ALL)
        return (struct view_auth_grant){0};
    struct wanted want = wanted_of(req);
    enum view_auth_result r = identify(auth, trust, req, NULL, &user, NULL);
    if (r == VIEW_AUTH_YES && !user) /* the front proxy itself */
        return (struct view_auth_grant){0};
    if (trust == VIEW_ACCESS_FRONT)
        want.access = (struct review_access){0};
    /* Answers that were there a moment ago may be gone: then no pod is named, and a stream
     * asks again at once, or ends if the user is not known. */
    bool gone = want.pods && r == VIEW_AUTH_YES &&
                view_auth_scope(auth, user, NULL, &scope, NULL) != VIEW_AUTH_YES;
    if (r != VIEW_AUTH_YES || gone)
        scope = view_scope_new(NULL, 0);
    if (r != VIEW_AUTH_YES)
        return (struct view_auth_grant){.auth = auth, .scope = scope};
    struct view_auth_grant grant = {auth, user, want.access, want.pods, scope, 0, 0};
    view_auth_grant_begin(&grant);
    if (gone)
        grant.renew_ms = 0;
    return grant;
}
