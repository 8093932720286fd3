/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/attempt.h"

enum { CALL_MS = LIB_WAIT_MS, BODY_MAX = 1 << 24 };

static void release(void *p)
{
    peer_fini(p);
    free(p);
}

static struct peer *new_peer(void)
{
    return lib_keep(xcalloc(1, sizeof(struct peer)), release);
}

struct peer *attempt_user(const char *name, const char *subject)
{
    struct peer *p = new_peer();
    cluster_add_user(name, subject);
    peer_init_cert(p, cluster.api.port, cluster_pki("ca.crt"),
                   cluster_pki(lib_fmt("%s.crt", name)),
                   cluster_pki(lib_fmt("%s.key", name)));
    return p;
}

struct peer *attempt_token(const char *token)
{
    struct peer *p = new_peer();
    peer_init_tls(p, cluster.api.port, cluster_pki("ca.crt"));
    p->authorization = lib_fmt("Bearer %s", token);
    return p;
}

/* The method and content type of `how`. */
static const char *const *request_of(const char *how)
{
    static const char *const kinds[][3] = {
        {"MERGE", "PATCH", "application/merge-patch+json"},
        {"JSON", "PATCH", "application/json-patch+json"},
        {"STRATEGIC", "PATCH", "application/strategic-merge-patch+json"},
        {"APPLY", "PATCH", "application/apply-patch+yaml"},
        {"POST", "POST", "application/json"},
        {"PUT", "PUT", "application/json"},
    };
    array_indices(i, kinds)
        if (strcmp(how, kinds[i][0]) == 0)
            return kinds[i] + 1;
    ck_abort_msg("no kind of request: %s", how);
    return NULL;
}

unsigned attempt(const struct peer *as, const char *how, const char *path,
                 const char *body, struct buf *reply)
{
    const char *const *request = request_of(how);
    char *json = lib_fmt("%s", body);
    for (char *p = json; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    struct httpc_reply r;
    struct err err = {0};
    struct httpc_request req = {.method = request[0],
                                .path = path,
                                .authorization = as->authorization,
                                .content_type = request[1],
                                .body = span_of(json),
                                .timeout_ms = CALL_MS};
    ck_assert_done(httpc_call(as->http, &req, BODY_MAX, &r, &err), err);
    buf_clear(reply);
    buf_add_span(reply, buf_span(&r.body));
    buf_adds(reply, "");
    unsigned status = r.status;
    httpc_reply_fini(&r);
    return status;
}

void attempt_accepted(const struct peer *as, const char *how, const char *path,
                      const char *body)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = attempt(as, how, path, body, &reply);
    ck_assert_msg(status / 100 == 2, "%s %s %s: %u %s", how, path, body, status, reply.p);
}

void attempt_denied(const struct peer *as, const char *policy, const char *words,
                    const char *how, const char *path, const char *body)
{
    cleanup_buf struct buf reply = {0};
    const char *by = lib_fmt("ValidatingAdmissionPolicy '%s'", policy);
    unsigned status = attempt(as, how, path, body, &reply);
    bool denied = status == 403 || status == 422; /* by the reason in the policy */
    ck_assert_msg(denied && strstr(reply.p, by) && strstr(reply.p, words),
                  "%s %s %s: expected a denial by %s with \"%s\": %u %s", how, path, body,
                  policy, words, status, reply.p);
}

/* Does the API server deny a pod with an annotation of a promise? */
static bool protects(void)
{
    cleanup_buf struct buf reply = {0};
    return attempt(&cluster.api, "POST", CLUSTER_PODS "?dryRun=All",
                   "{'metadata':{'name':'p','annotations':{'gpushare/card-uuid':'x'}},"
                   "'spec':{'containers':[{'name':'c','image':'i'}]}}",
                   &reply) == 403;
}

void attempt_wait_policies(void)
{
    lib_wait(protects());
}

/* Does it deny a Binding with one? There is no such pod, which it finds out later. */
static bool protects_bindings(void)
{
    cleanup_buf struct buf reply = {0};
    attempt(&cluster.api, "POST", CLUSTER_PODS "/p/binding",
            "{'apiVersion':'v1','kind':'Binding','metadata':{'name':'p',"
            "'annotations':{'gpushare/card-uuid':'x'}},"
            "'target':{'kind':'Node','name':'n'}}",
            &reply);
    return strstr(reply.p, "gpushare-bindings");
}

/* The API server stops applying each policy at a time of its own. */
void attempt_without_policies(void)
{
    cluster_kubectl("delete", "--ignore-not-found", "validatingadmissionpolicybinding",
                    "gpushare-promises", "gpushare-bindings");
    lib_wait(!protects() && !protects_bindings());
}
