/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain_load.h"

#include "base/clock.h"
#include "base/jread.h"
#include "base/mem.h"
#include "kube/pod_group.h"

static int call(void *ctx, const struct kube_request *request, struct httpc_reply *reply,
                struct err *err)
{
    return kube_call(ctx, request, reply, err);
}

/* 0: unknown; a user need not be allowed to read these objects. */
static uint32_t minimum_of(const struct session *s, struct span body)
{
    const struct pod_group_reader from = {call, s->client, clock_mono_ms};
    cleanup_arena struct arena a = {0};
    struct jread j;
    struct pod pod;
    struct gang gang;
    struct err ignored;
    uint32_t minimum = 0;
    jread_init(&j, body.p, body.n);
    pod_read(&j, &a, &pod);
    if (jread_finish(&j, &ignored) || !gang_of(&pod, &gang) || gang.minimum)
        return 0;
    pod_group_read(&from, pod.meta.ns, &gang, s->config->timeout_ms, &minimum, &ignored);
    return minimum;
}

void explain_load(struct session *s, struct span ns, struct span name,
                  struct explain_load *loaded)
{
    cleanup_buf struct buf path = {0};
    struct httpc_reply reply = {0};
    *loaded = (struct explain_load){
        .facts = {.view = session_view(s), .now_s = clock_wall_ns() / 1000000000}};
    session_pod_path(&path, ns, name);
    const struct kube_request request = {
        .method = "GET", .path = path.p, .timeout_ms = s->config->timeout_ms};
    if (kube_call(s->client, &request, &reply, NULL) == 0 && reply.status == 200 &&
        reply.body.n) {
        loaded->pod = json_loadb(reply.body.p, reply.body.n, 0, NULL);
        loaded->facts.object = loaded->pod;
        loaded->facts.minimum = minimum_of(s, buf_span(&reply.body));
    }
    httpc_reply_fini(&reply);
}

void explain_load_fini(struct explain_load *loaded)
{
    json_decref(loaded->pod);
}
