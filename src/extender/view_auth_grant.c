/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/view_auth_priv.h"

enum {
    RENEW_MS = 30 * 1000, /* how often a stream's right is checked */
    RETRY_MS = 200,       /* likewise, while an answer is missing */
};

void view_auth_grant_begin(struct view_auth_grant *g)
{
    int64_t now_ms = g->auth->conf.now_ms();
    g->renew_ms = now_ms + RENEW_MS;
    g->until_ms = now_ms + VIEW_AUTH_STREAM_MS;
}

void view_auth_grant_fini(struct view_auth_grant *g)
{
    view_auth_user_free(g->user);
    view_scope_free(g->scope);
    *g = (struct view_auth_grant){0};
}

enum view_auth_grant_state view_auth_grant_renew(struct view_auth_grant *g)
{
    enum view_auth_result may = VIEW_AUTH_YES;
    struct view_scope *scope = NULL;
    int64_t now_ms = g->auth ? g->auth->conf.now_ms() : 0;
    if (!g->auth || now_ms < g->renew_ms)
        return GRANT_KEPT;
    if (now_ms >= g->until_ms)
        return GRANT_ENDED;
    if (g->access.verb)
        may = view_auth_may(g->auth, g->user, &g->access, NULL, NULL);
    if (may == VIEW_AUTH_NO)
        return GRANT_ENDED;
    if (may == VIEW_AUTH_YES && g->has_scope)
        may = view_auth_compute_scope(g->auth, g->user, NULL, &scope, NULL);
    if (may != VIEW_AUTH_YES) { /* the next call tries again */
        g->renew_ms = now_ms + RETRY_MS;
        return GRANT_KEPT;
    }
    g->renew_ms = now_ms + RENEW_MS;
    bool same = view_scope_equal(scope, g->scope);
    view_scope_free(g->scope);
    g->scope = scope;
    return same ? GRANT_KEPT : GRANT_CHANGED;
}

int64_t view_auth_grant_due(const struct view_auth_grant *g)
{
    if (!g->auth)
        return INT64_MAX;
    return g->renew_ms < g->until_ms ? g->renew_ms : g->until_ms;
}
