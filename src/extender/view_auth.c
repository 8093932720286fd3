/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/view_auth.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extender/view_auth_priv.h"

enum {
    SCOPE_MS = 5000, /* how long a computed scope is used for new requests */
};

/* -- waiters -- */

static void wait_for(struct waiters *w, const struct view_auth_waiter *waiter)
{
    if (!waiter)
        return;
    MEM_GROW(w->items, w->cap, w->n + 1);
    w->items[w->n++] = waiter->begin(waiter->ctx);
}

void view_auth_wake(struct view_auth *a, struct waiters *w)
{
    for (size_t i = 0; i < w->n; i++)
        a->conf.wake(w->items[i]);
    free(w->items);
    *w = (struct waiters){0};
}

/* -- users -- */

static struct view_auth_user *user_ref(struct view_auth_user *u)
{
    atomic_fetch_add(&u->refs, 1);
    return u;
}

/* Only drops the reference: user_of frees, so that nobody gets a user that is gone. */
void view_auth_user_free(struct view_auth_user *u)
{
    if (u)
        atomic_fetch_sub(&u->refs, 1);
}

const char *view_auth_user_name(const struct view_auth_user *u)
{
    return u->id.name;
}

static void user_destroy(struct view_auth *a, struct view_auth_user *u)
{
    view_auth_wake(a, &u->waiters);
    for (size_t i = 0; i < u->n; i++)
        free(u->decisions[i].key);
    free(u->decisions);
    view_scope_free(u->scope);
    review_user_fini(&u->id);
    free(u);
}

/* Frees the users without a reference. */
static void sweep_users(struct view_auth *a)
{
    for (struct view_auth_user **at = &a->users; *at;) {
        struct view_auth_user *u = *at;
        if (atomic_load(&u->refs)) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        user_destroy(a, u);
    }
}

/* A new reference. Requires the lock, like all functions below that have no other
 * comment. */
static struct view_auth_user *user_of(struct view_auth *a, const struct review_user *id)
{
    for (struct view_auth_user *u = a->users; u; u = u->next)
        if (strcmp(u->id.spec, id->spec) == 0)
            return user_ref(u);
    sweep_users(a);
    struct view_auth_user *u = xcalloc(1, sizeof *u);
    atomic_init(&u->refs, 1);
    u->id = (struct review_user){xstrdup(id->name), xstrdup(id->spec)};
    u->next = a->users;
    a->users = u;
    return u;
}

/* -- tokens -- */

/* What the API server said is in the log: the client is not known yet. */
static int fail_unavailable(struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE,
                   "cannot check credentials now; the log of the extender says why");
}

static int64_t grace_ms(const struct view_auth_waiter *waiter)
{
    return waiter ? 0 : VIEW_AUTH_GRACE_MS;
}

static enum view_auth_result find_token(struct view_auth *a, const struct digest *key,
                                        struct span token,
                                        const struct view_auth_waiter *waiter,
                                        struct view_auth_user **user, struct err *err)
{
    int64_t now_ms = a->conf.now_ms();
    struct token *known = view_auth_tokens_find(a->known, key, now_ms);
    if (known && known->until_ms + grace_ms(waiter) > now_ms) {
        *user = user_ref(known->user);
        return VIEW_AUTH_YES;
    }
    const struct token *bad = view_auth_tokens_find(a->rejected, key, now_ms);
    if (bad && bad->until_ms > now_ms && bad->failed) {
        fail_unavailable(err);
        return VIEW_AUTH_UNAVAILABLE;
    }
    if (bad && bad->until_ms > now_ms) {
        err_set(err, ERR_UNAUTHORIZED, "the bearer token is not valid");
        return VIEW_AUTH_NO;
    }
    struct call *c = view_auth_calls_review(a, key, token, !known);
    if (!c) {
        err_set(err, ERR_UNAVAILABLE, "too many unknown bearer tokens; retry later");
        return VIEW_AUTH_UNAVAILABLE;
    }
    wait_for(&c->waiters, waiter);
    return VIEW_AUTH_WAIT;
}

enum view_auth_result view_auth_token(struct view_auth *a, struct span token,
                                      const struct view_auth_waiter *waiter,
                                      struct view_auth_user **user, struct err *err)
{
    if (!review_token_is_plausible(token)) {
        err_set(err, ERR_UNAUTHORIZED, "the bearer token is malformed");
        return VIEW_AUTH_NO;
    }
    struct digest key = digest_of(a->key, token);
    pthread_mutex_lock(&a->lock);
    enum view_auth_result r = find_token(a, &key, token, waiter, user, err);
    pthread_mutex_unlock(&a->lock);
    return r;
}

void view_auth_reviewed(struct view_auth *a, const struct call *c, int result,
                        const struct review_user *user)
{
    int64_t now_ms = a->conf.now_ms();
    if (result > 0) {
        struct view_auth_user *u = user_of(a, user);
        struct token *t = view_auth_tokens_add(a->known, &c->key, now_ms);
        t->user = u;
        t->until_ms = now_ms + VIEW_AUTH_AUTHENTICATED_MS;
        return;
    }
    if (result == 0)
        view_auth_tokens_drop(view_auth_tokens_find(a->known, &c->key, now_ms));
    struct token *t = view_auth_tokens_add(a->rejected, &c->key, now_ms);
    t->failed = result < 0;
    t->until_ms = now_ms + (t->failed ? VIEW_AUTH_FAILED_MS : VIEW_AUTH_REJECTED_MS);
}

/* In the table of known tokens, so that its decisions last. */
struct view_auth_user *view_auth_vouched(struct view_auth *a,
                                         const struct review_user *id)
{
    struct digest key = digest_of(a->key, span_of(id->spec));
    int64_t now_ms = a->conf.now_ms();
    pthread_mutex_lock(&a->lock);
    struct token *t = view_auth_tokens_find(a->known, &key, now_ms);
    if (!t) {
        struct view_auth_user *u = user_of(a, id);
        t = view_auth_tokens_add(a->known, &key, now_ms);
        t->user = u;
    }
    struct view_auth_user *u = user_ref(t->user);
    pthread_mutex_unlock(&a->lock);
    return u;
}

/* -- decisions -- */

static char *key_of(const struct review_access *access)
{
    return access->path ? xasprintf("%s %s", access->verb, access->path)
                        : xasprintf("%s %s/%s/%.*s", access->verb, access->group,
                                    access->resource, SPAN_ARG(access->ns));
}

/* NULL: the user has too many. */
static struct decision *decision_of(struct view_auth *a, struct view_auth_user *u,
                                    const char *key)
{
    int64_t now_ms = a->conf.now_ms();
    struct decision *old = NULL;
    for (size_t i = 0; i < u->n; i++) {
        struct decision *d = &u->decisions[i];
        if (strcmp(d->key, key) == 0)
            return d;
        if (d->state != DECISION_PENDING && d->until_ms <= now_ms)
            old = d;
    }
    if (u->n < DECISIONS_MAX) {
        MEM_GROW(u->decisions, u->cap, u->n + 1);
        old = &u->decisions[u->n++];
        *old = (struct decision){0};
    }
    if (!old)
        return NULL;
    free(old->key);
    *old = (struct decision){.key = xstrdup(key)};
    return old;
}

static enum view_auth_result decide(struct view_auth *a, struct view_auth_user *u,
                                    const struct review_access *access, struct err *err)
{
    cleanup_free char *key = key_of(access);
    struct decision *d = decision_of(a, u, key);
    bool fresh = d && d->until_ms > a->conf.now_ms();
    if (d && d->state == DECISION_PENDING)
        return VIEW_AUTH_WAIT;
    if (fresh && d->state == DECISION_MADE)
        return d->allowed ? VIEW_AUTH_YES : VIEW_AUTH_NO;
    if (fresh && d->state == DECISION_FAILED) {
        fail_unavailable(err);
        return VIEW_AUTH_UNAVAILABLE;
    }
    if (!d || !view_auth_calls_access(a, u, access, key)) {
        err_set(err, ERR_UNAVAILABLE, "too many permissions are being checked");
        return VIEW_AUTH_UNAVAILABLE;
    }
    d->state = DECISION_PENDING;
    u->pending++;
    return VIEW_AUTH_WAIT;
}

void view_auth_decided(struct view_auth *a, const struct call *c, int result)
{
    struct view_auth_user *u = c->user;
    struct decision *d = decision_of(a, u, c->decision); /* pending ones are kept */
    d->state = result < 0 ? DECISION_FAILED : DECISION_MADE;
    d->allowed = result > 0;
    d->until_ms = a->conf.now_ms() + (result < 0    ? VIEW_AUTH_FAILED_MS
                                      : result == 0 ? VIEW_AUTH_DENIED_MS
                                                    : VIEW_AUTH_ALLOWED_MS);
    if (--u->pending == 0)
        view_auth_wake(a, &u->waiters);
}

enum view_auth_result view_auth_may(struct view_auth *a, struct view_auth_user *u,
                                    const struct review_access *access,
                                    const struct view_auth_waiter *waiter,
                                    struct err *err)
{
    pthread_mutex_lock(&a->lock);
    enum view_auth_result r = decide(a, u, access, err);
    if (r == VIEW_AUTH_WAIT)
        wait_for(&u->waiters, waiter);
    pthread_mutex_unlock(&a->lock);
    return r;
}

/* -- scopes -- */

static struct review_access list_pods(struct span ns)
{
    return (struct review_access){
        .verb = "list", .group = "", .version = "v1", .resource = "pods", .ns = ns};
}

/* Asks for all namespaces before it waits for any. */
static enum view_auth_result decide_scope(struct view_auth *a, struct view_auth_user *u,
                                          const struct span *namespaces, size_t n,
                                          struct view_scope **scope, struct err *err)
{
    struct review_access all = list_pods(SPAN(""));
    enum view_auth_result r = decide(a, u, &all, err);
    *scope = NULL;
    if (r != VIEW_AUTH_NO)
        return r;
    struct span shown[VIEW_AUTH_NAMESPACES];
    size_t n_shown = 0;
    bool waits = false;
    for (size_t i = 0; i < n; i++) {
        struct review_access one = list_pods(namespaces[i]);
        r = decide(a, u, &one, err);
        if (r == VIEW_AUTH_UNAVAILABLE)
            return r;
        waits |= r == VIEW_AUTH_WAIT;
        if (r == VIEW_AUTH_YES)
            shown[n_shown++] = namespaces[i];
    }
    if (waits)
        return VIEW_AUTH_WAIT;
    *scope = view_scope_new(shown, n_shown);
    return VIEW_AUTH_YES;
}

enum view_auth_result view_auth_compute_scope(struct view_auth *a,
                                              struct view_auth_user *u,
                                              const struct view_auth_waiter *waiter,
                                              struct view_scope **scope, struct err *err)
{
    cleanup_arena struct arena arena = {0};
    struct span names[VIEW_AUTH_NAMESPACES];
    size_t n =
        a->conf.namespaces(a->conf.namespaces_ctx, &arena, names, ARRAY_LEN(names));
    pthread_mutex_lock(&a->lock);
    enum view_auth_result r = decide_scope(a, u, names, n, scope, err);
    if (r == VIEW_AUTH_WAIT)
        wait_for(&u->waiters, waiter);
    if (r == VIEW_AUTH_YES) {
        view_scope_free(u->scope);
        u->scope = view_scope_ref(*scope);
        u->has_scope = true;
        u->scope_ms = a->conf.now_ms();
    }
    pthread_mutex_unlock(&a->lock);
    return r;
}

enum view_auth_result view_auth_scope(struct view_auth *a, struct view_auth_user *u,
                                      const struct view_auth_waiter *waiter,
                                      struct view_scope **scope, struct err *err)
{
    pthread_mutex_lock(&a->lock);
    bool recent =
        u->has_scope && a->conf.now_ms() - u->scope_ms < SCOPE_MS + grace_ms(waiter);
    *scope = recent ? view_scope_ref(u->scope) : NULL;
    pthread_mutex_unlock(&a->lock);
    return recent ? VIEW_AUTH_YES : view_auth_compute_scope(a, u, waiter, scope, err);
}

/* -- start and stop -- */

struct view_auth *view_auth_start(const struct view_auth_config *config, struct err *err)
{
    struct view_auth *a = xcalloc(1, sizeof *a);
    a->conf = *config;
    if (!a->conf.now_ms)
        a->conf.now_ms = clock_mono_ms;
    a->known = xcalloc(1, sizeof *a->known);
    a->rejected = xcalloc(1, sizeof *a->rejected);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->cond, NULL);
    if (view_auth_calls_start(a, err) == 0)
        return a;
    view_auth_free(a);
    return NULL;
}

void view_auth_stop(struct view_auth *a)
{
    if (!a)
        return;
    view_auth_calls_stop(a);
    for (struct view_auth_user *u = a->users; u; u = u->next)
        view_auth_wake(a, &u->waiters);
}

void view_auth_free(struct view_auth *a)
{
    if (!a)
        return;
    view_auth_tokens_fini(a->known);
    view_auth_tokens_fini(a->rejected);
    sweep_users(a);
    free(a->known);
    free(a->rejected);
    digest_key_free(a->key);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->cond);
    free(a);
}

void view_auth_write(struct view_auth *a, struct buf *out)
{
    static const char name[] = "gpushare_view_reviews_total";
    static const char *const kinds[] = {"token", "access", "failed", "rate-limited"};
    uint64_t n[ARRAY_LEN(kinds)] = {0};
    if (a) {
        pthread_mutex_lock(&a->lock);
        n[0] = a->token_reviews;
        n[1] = a->access_reviews;
        n[2] = a->failed_reviews;
        n[3] = a->limited;
        pthread_mutex_unlock(&a->lock);
    }
    prom_family(out, name, PROM_COUNTER, "Reviews of clients of views, by kind.");
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        prom_sample(out, name, &(struct prom_label){"kind", span_of(kinds[i])}, 1,
                    (int64_t)n[i]);
}
