/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/peer.h"

#include "lib/lib.h"
#include "lib/network.h"

enum { CALL_MS = LIB_WAIT_MS, BODY_MAX = 64 << 20 };

static void init(struct peer *p, const char *scheme, unsigned port,
                 struct httpc_config config)
{
    char url[64];
    struct err err = {0};
    snprintf(url, sizeof url, "%s://" STR_HOST ":%u", scheme,
             STR_HOST_ARG(network_loopback()), port);
    config.url = url;
    config.user_agent = "gpushare-test";
    config.connect_ms = CALL_MS;
    *p = (struct peer){.port = port, .http = httpc_new(&config, &err)};
    ck_assert_msg(p->http != NULL, "%s", err.msg);
}

static struct span pem(const char *path)
{
    return path ? span_of(lib_file(path)) : (struct span){0};
}

void peer_init(struct peer *p, unsigned port)
{
    init(p, "http", port, (struct httpc_config){0});
}

void peer_init_tls(struct peer *p, unsigned port, const char *ca)
{
    peer_init_cert(p, port, ca, NULL, NULL);
}

void peer_init_cert(struct peer *p, unsigned port, const char *ca, const char *cert,
                    const char *key)
{
    init(p, "https", port,
         (struct httpc_config){
             .ca_pem = pem(ca), .cert_pem = pem(cert), .key_pem = pem(key)});
}

void peer_fini(struct peer *p)
{
    httpc_free(p->http);
    *p = (struct peer){0};
}

unsigned peer_call(const struct peer *p, const char *method, const char *path,
                   const char *body, struct buf *reply)
{
    bool patch = strcmp(method, "PATCH") == 0;
    struct httpc_request req = {
        .method = method,
        .path = path,
        .authorization = p->authorization,
        .content_type = patch ? "application/merge-patch+json" : "application/json",
        .body = body ? span_of(body) : (struct span){0},
        .timeout_ms = CALL_MS,
    };
    struct httpc_reply r;
    struct err err = {0};
    int rc = httpc_call(p->http, &req, BODY_MAX, &r, &err);
    unsigned status = rc ? 0 : r.status;
    buf_clear(reply);
    buf_add_span(reply, rc ? span_of(err.msg) : buf_span(&r.body));
    buf_adds(reply, "");
    httpc_reply_fini(&r);
    return status;
}

json_t *peer_json(const struct peer *p, const char *method, const char *path,
                  const char *body)
{
    cleanup_buf struct buf reply = {0};
    json_error_t error;
    unsigned status = peer_call(p, method, path, body, &reply);
    ck_assert_msg(status >= 200 && status < 300, "%s %s: %u %s", method, path, status,
                  reply.p);
    json_t *j = json_loadb(reply.p, reply.n, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(j != NULL, "%s %s: %s in %s", method, path, error.text, reply.p);
    return j;
}

json_t *peer_get(const struct peer *p, const char *path)
{
    return lib_own(peer_json(p, "GET", path, NULL));
}

json_t *peer_post(const struct peer *p, const char *path, const char *body)
{
    return lib_own(peer_json(p, "POST", path, body));
}

void peer_do(const struct peer *p, const char *method, const char *path, const char *body)
{
    json_decref(peer_json(p, method, path, body));
}

bool peer_says(const struct peer *p, const char *path, unsigned status, const char *text)
{
    cleanup_buf struct buf reply = {0};
    return peer_call(p, "GET", path, NULL, &reply) == status && strstr(reply.p, text);
}

double peer_metric_at(const struct peer *p, const char *path, const char *sample)
{
    cleanup_buf struct buf text = {0};
    cleanup_free char *start = xasprintf("\n%s ", sample);
    bool answers = peer_call(p, "GET", path, NULL, &text) == 200;
    const char *line = answers ? strstr(text.p, start) : NULL;
    return line ? strtod(line + strlen(start), NULL) : -1;
}

double peer_metric(const struct peer *p, const char *sample)
{
    return peer_metric_at(p, "/metrics", sample);
}

unsigned peer_status(const struct peer *p, const char *path)
{
    cleanup_buf struct buf reply = {0};
    return peer_call(p, "GET", path, NULL, &reply);
}
