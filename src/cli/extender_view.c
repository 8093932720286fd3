/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/extender_view.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/table.h"
#include "kube/listwatch.h"

enum { FILE_MAX_BYTES = 1 << 20 };

#define INSPECT "/gpushare-scheduler/inspect"

static bool is_url(const char *address)
{
    return span_starts(span_of(address), SPAN("http://")) ||
           span_starts(span_of(address), SPAN("https://"));
}

/* "kube-system/gpushare-schd-extender:12345" */
static bool parse_service(const char *address, struct span *ns, struct span *service)
{
    struct span rest = span_of(address), name;
    *ns = span_cut(&rest, '/');
    *service = rest;
    name = span_cut(&rest, ':');
    return ns->n && name.n && rest.n && !memchr(service->p, '/', service->n);
}

static int check_address(const char *address, struct err *err)
{
    struct span ns, service;
    if (is_url(address) || parse_service(address, &ns, &service))
        return 0;
    return err_set(err, ERR_INVALID,
                   "invalid address \"%s\"; expected http://HOST:PORT, https://HOST:PORT "
                   "or NAMESPACE/SERVICE:PORT",
                   address);
}

int extender_view_check(const struct extender_view *from, struct err *err)
{
    if (check_address(from->address, err))
        return -1;
    if (from->token_file && !span_starts(span_of(from->address), SPAN("https://")))
        return err_set(
            err, ERR_INVALID,
            "a bearer token needs an address https://HOST:PORT, because others "
            "could read it on the way");
    return 0;
}

static void wipe(struct buf *b)
{
    if (b->p)
        explicit_bzero(b->p, b->cap);
    buf_fini(b);
}

static int read_files(const struct extender_view *from, struct buf *authorization,
                      struct buf *ca, struct err *err)
{
    buf_adds(authorization, "Bearer ");
    if (from->token_file &&
        file_read(from->token_file, FILE_MAX_BYTES, authorization, err))
        return -1;
    while (authorization->n && strchr(" \r\n\t", authorization->p[authorization->n - 1]))
        authorization->p[--authorization->n] = '\0';
    return from->ca_file ? file_read(from->ca_file, FILE_MAX_BYTES, ca, err) : 0;
}

static int call_url(const struct extender_view *from, int64_t timeout_ms,
                    struct httpc_reply *reply, struct err *err)
{
    struct span base = span_of(from->address);
    struct buf authorization = {0};
    cleanup_buf struct buf ca = {0};
    while (base.n && base.p[base.n - 1] == '/')
        base.n--;
    cleanup_free char *clean = xmemdup0(base.p, base.n);
    int rc = read_files(from, &authorization, &ca, err);
    const struct httpc_config config = {.url = clean,
                                        .ca_pem = buf_span(&ca),
                                        .user_agent = "kubectl-inspect-gpushare",
                                        .connect_ms = timeout_ms};
    const struct httpc_request request = {.method = "GET",
                                          .path = INSPECT,
                                          .authorization =
                                              from->token_file ? authorization.p : NULL,
                                          .timeout_ms = timeout_ms,
                                          .gzip = true};
    struct httpc *http = rc ? NULL : httpc_new(&config, err);
    rc = http ? httpc_call(http, &request, KUBE_MAX_BODY, reply, err) : -1;
    httpc_free(http);
    wipe(&authorization);
    return rc;
}

static int call_service(struct kube_client *client, const char *address,
                        int64_t timeout_ms, struct httpc_reply *reply, struct err *err)
{
    cleanup_buf struct buf path = {0};
    struct span ns, service;
    if (!parse_service(address, &ns, &service))
        return check_address(address, err);
    buf_adds(&path, "/api/v1/namespaces/");
    listwatch_escape(&path, ns);
    buf_adds(&path, "/services/");
    listwatch_escape(&path, service);
    buf_adds(&path, "/proxy" INSPECT);
    const struct kube_request request = {
        .method = "GET", .path = path.p, .gzip = true, .timeout_ms = timeout_ms};
    return kube_call(client, &request, reply, err);
}

/* An error of the extender is {"error": "..."}, one of the API server a Status object. */
static int check_reply(const struct httpc_reply *reply, struct err *err)
{
    struct span body = buf_span(&reply->body);
    if (kube_reply_check(reply->status, body, err) == 0)
        return 0;
    json_t *j = body.n ? json_loadb(body.p, body.n, 0, NULL) : NULL;
    const char *text = json_string_value(json_object_get(j, "error"));
    cleanup_buf struct buf shown = {0};
    table_plain(&shown, span_of(text ? text : ""));
    if (text)
        err_set(err, err->code, "HTTP %u: %.*s", reply->status,
                SPAN_ARG(buf_span(&shown)));
    json_decref(j);
    return -1;
}

json_t *extender_view_get(struct kube_client *client, const struct extender_view *from,
                          int64_t timeout_ms, struct err *err)
{
    const char *address = from->address;
    struct httpc_reply reply = {0};
    json_error_t bad;
    json_t *view = NULL;
    int rc = is_url(address) ? call_url(from, timeout_ms, &reply, err)
                             : call_service(client, address, timeout_ms, &reply, err);
    if (rc == 0)
        rc = check_reply(&reply, err);
    if (rc == 0 &&
        !(view = json_loadb(reply.body.n ? reply.body.p : "", reply.body.n, 0, &bad)))
        err_set(err, ERR_INVALID, "the response is not JSON: %s", bad.text);
    httpc_reply_fini(&reply);
    return view;
}
