/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/cases_pure.h"

#include "lib/unit.h"

static void handle(struct cases_pure *p, const struct cases_request *req,
                   struct cases_reply *out, void **watch)
{
    char *query = lib_fmt("%s", req->path);
    const char *path = strsep(&query, "?");
    struct api_reply reply = {0};
    struct api_request r = {.method = req->method,
                            .path = path,
                            .query = query ? query : "",
                            .content_type = req->type,
                            .body = req->body};
    api_handle(p->api, p->now_ms, &r, &reply);
    *out = (struct cases_reply){.status = reply.status};
    buf_add_span(&out->body, buf_span(&reply.body));
    if (watch)
        *watch = steal(&reply.watch);
    api_reply_fini(&reply);
}

static void call(void *ctx, const struct cases_request *req, struct cases_reply *reply)
{
    handle(ctx, req, reply, NULL);
}

static void watch(void *ctx, const struct cases_request *req, void **opened,
                  struct cases_reply *reply)
{
    handle(ctx, req, reply, opened);
}

static int next(void *ctx, void *opened, struct buf *line)
{
    struct cases_pure *p = ctx;
    return api_watch_next(opened, p->now_ms, line);
}

static void close_watch(void *ctx, void *opened)
{
    (void)ctx;
    api_watch_free(opened);
}

static void space(void *ctx, const char *name)
{
    struct cases_request req = {
        .method = "POST",
        .path = "/api/v1/namespaces",
        .body = span_of(lib_fmt("{\"metadata\":{\"name\":\"%s\"}}", name))};
    struct cases_reply reply;
    handle(ctx, &req, &reply, NULL);
    ck_assert_uint_eq(reply.status, 201);
    buf_fini(&reply.body);
}

static void pass(void *ctx, int64_t ms)
{
    struct cases_pure *p = ctx;
    p->now_ms += ms;
    api_tick(p->api, p->now_ms);
}

static void compact(void *ctx)
{
    struct cases_pure *p = ctx;
    api_compact(p->api);
}

void cases_pure_init(struct cases_pure *p)
{
    struct api_config config = {.seed = 1};
    *p = (struct cases_pure){api_new(&config), 1763715600000};
}

void cases_pure_fini(struct cases_pure *p)
{
    api_free(p->api);
}

void cases_pure_server(struct cases_pure *p, struct cases_server *server)
{
    *server = (struct cases_server){.name = "pure",
                                    .call = call,
                                    .watch = watch,
                                    .next = next,
                                    .close = close_watch,
                                    .space = space,
                                    .wait = pass,
                                    .compact = compact,
                                    .forget = compact,
                                    .ctx = p};
}
