/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/peer.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/lib.h"

enum { CALL_MS = LIB_WAIT_MS, BODY_MAX = 64 << 20 };

static void init(struct peer *p, const char *scheme, unsigned port,
                 struct httpc_config config)
{
    char url[64];
    struct err err = {0};
    snprintf(url, sizeof url, "%s://127.0.0.1:%u", scheme, port);
    config.url = url;
    config.user_agent = "gpushare-test";
    config.connect_ms = CALL_MS;
    *p = (struct peer){.port = port, .http = httpc_new(&config, &err)};
    ck_assert_msg(p->http != NULL, "%s", err.msg);
}

static void read_pem(struct buf *pem, const char *path)
{
    struct err err = {0};
    ck_assert_done(file_read(path, 1 << 20, pem, &err), err);
}

void peer_init(struct peer *p, unsigned port)
{
    init(p, "http", port, (struct httpc_config){0});
}

void peer_init_tls(struct peer *p, unsigned port, const char *ca)
{
    peer_init_cert(p, port, ca, NULL, NULL);
}

static void init_tls(struct peer *p, unsigned port, const char *ca, const char *name,
                     const char *cert, const char *key)
{
    cleanup_buf struct buf ca_pem = {0}, cert_pem = {0}, key_pem = {0};
    read_pem(&ca_pem, ca);
    if (cert)
        read_pem(&cert_pem, cert);
    if (key)
        read_pem(&key_pem, key);
    init(p, "https", port,
         (struct httpc_config){.ca_pem = buf_span(&ca_pem),
                               .cert_pem = buf_span(&cert_pem),
                               .key_pem = buf_span(&key_pem),
                               .server_name = name});
}

void peer_init_cert(struct peer *p, unsigned port, const char *ca, const char *cert,
                    const char *key)
{
    init_tls(p, port, ca, NULL, cert, key);
}

void peer_init_server(struct peer *p, unsigned port, const char *ca, const char *server,
                      const char *cert, const char *key)
{
    cleanup_free char *name = xasprintf("%s.test", server);
    init_tls(p, port, ca, name, cert, key);
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

unsigned peer_status(const struct peer *p, const char *path)
{
    cleanup_buf struct buf reply = {0};
    return peer_call(p, "GET", path, NULL, &reply);
}
