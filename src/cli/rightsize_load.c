/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/rightsize_load.h"

#include "kube/listwatch.h"

enum { PAGE = 500 };

static json_t *read_page(const struct session *s, const char *path, struct err *err)
{
    const struct kube_request request = {
        .method = "GET", .path = path, .gzip = true, .timeout_ms = s->config->timeout_ms};
    struct httpc_reply reply = {0};
    json_t *list = NULL;
    int rc = kube_call(s->client, &request, &reply, err);
    if (rc == 0)
        rc = kube_reply_check(reply.status, buf_span(&reply.body), err);
    if (rc == 0)
        list = json_loadb(reply.body.n ? reply.body.p : "", reply.body.n, 0, NULL);
    if (rc == 0 && !list)
        err_set(err, ERR_INVALID, "GET %s: the response is not JSON", path);
    httpc_reply_fini(&reply);
    return list;
}

int rightsize_load(struct session *s, struct rightsize *r, struct err *err)
{
    cleanup_buf struct buf next = {0}, path = {0};
    do {
        buf_clear(&path);
        buf_printf(&path, "/apis/core.run-linux.com/v1/scvs?limit=%d", PAGE);
        if (next.n) {
            buf_adds(&path, "&continue=");
            listwatch_escape(&path, buf_span(&next));
        }
        json_t *list = read_page(s, path.p, err);
        if (!list)
            return -1;
        const json_t *meta = json_object_get(list, "metadata");
        const char *token = json_string_value(json_object_get(meta, "continue"));
        buf_clear(&next);
        buf_adds(&next, token ? token : "");
        rightsize_add(r, json_object_get(list, "items"), span_of(s->config->ns));
        json_decref(list);
    } while (next.n);
    return 0;
}
