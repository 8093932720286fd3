/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The allocator with a kubelet simulated by the test: pods as JSON, podresources answers,
 * device plugin requests and their answers.
 */

#include <stdio.h>

#include "base/mem.h"
#include "domain/objects.h"
#include "plugin/alloc.h"

enum { RIG_PODS = 64, RIG_CONTAINERS = 4, RIG_IDS = 256, RIG_TEXT = 64 };

/* The kubelet's pods; ids are strings. */
struct rig_container {
    char name[RIG_TEXT];
    struct span ids[IDS_CARD_RESOURCES][RIG_IDS];
    size_t n_ids[IDS_CARD_RESOURCES];
};
struct rig_pod {
    char name[RIG_TEXT];
    struct rig_container containers[RIG_CONTAINERS];
    size_t n;
};

struct rig {
    struct alloc *a;
    struct alloc_outputs out;
    struct alloc_time now;
    struct arena arena;
    struct rig_pod pods[RIG_PODS];
    size_t n_pods;
    bool kubelet_away, no_get, hold; /* podresources does not answer until released */
    uint64_t tokens;
    int lists, gets, saves, device_lists;
    /* The last answer; patches and events, one line each. */
    char answer[4096];
    bool answered;
    struct buf log;
    struct buf said; /* log lines of the allocator */
    char env[4096];  /* of the last allocation */
};

static inline void rig_take(struct rig *r);

static inline void rig_step(struct rig *r, struct alloc_input in)
{
    alloc_step(r->a, r->now, &in, &r->out);
    rig_take(r);
}
#define RIG_STEP(r, ...) rig_step((r), (struct alloc_input){__VA_ARGS__})

static inline struct alloc_settings rig_settings(void)
{
    return (struct alloc_settings){.node = "n1", .unit_mib = 1024, .wait_ms = 5000};
}

/* Cards GPU-0, GPU-1, ... with these sizes in GiB; 0 terminates the list. */
static inline void rig_cards(struct rig *r, const int64_t *gib)
{
    struct card_seen seen[CARDS_MAX] = {0};
    size_t n = 0;
    for (; gib[n]; n++) {
        snprintf(seen[n].uuid, sizeof seen[n].uuid, "GPU-%zu", n);
        seen[n].index = (int32_t)n;
        seen[n].mib = gib[n] * 1024;
    }
    RIG_STEP(r, .type = ALLOC_IN_CARDS, .seen = seen, .n = n);
}

/* Time 1,000 s, without pods and the Node. */
static inline void rig_new(struct rig *r, const struct alloc_settings *settings)
{
    r->a = alloc_new(settings);
    r->now = (struct alloc_time){1000000, 1700000000000000000};
}

/* The list of pods ends, and the Node is read. */
static inline void rig_sync(struct rig *r)
{
    RIG_STEP(r, .type = ALLOC_IN_LIST_ENDED);
    RIG_STEP(r, .type = ALLOC_IN_NODE);
}

static inline void rig_start(struct rig *r, const struct alloc_settings *settings,
                             const int64_t *gib)
{
    rig_new(r, settings);
    rig_cards(r, gib);
    RIG_STEP(r, .type = ALLOC_IN_LIST_STARTED);
    rig_sync(r);
}

static inline void rig_stop(struct rig *r)
{
    alloc_free(r->a);
    alloc_outputs_fini(&r->out);
    arena_fini(&r->arena);
    buf_fini(&r->log);
    buf_fini(&r->said);
    r->n_pods = 0;
}

/* The namespace of a pod: "other" if its name begins so. */
static inline const char *rig_ns(const char *name)
{
    return strncmp(name, "other", 5) == 0 ? "other" : "default";
}

/* Adds the pod with UID uid-<name> to the API server. */
static inline void rig_api_text(struct rig *r, struct span json)
{
    struct pod pod = object_pod(&r->arena, json);
    RIG_STEP(r, .type = ALLOC_IN_POD, .pod = pod_allocation_new(&pod, 1024));
}
static inline void rig_api(struct rig *r, const char *name, const char *phase,
                           const char *annotations, const char *inits, const char *apps)
{
    rig_api_text(r, quoted(&r->arena,
                           "{'metadata':{'name':'%s','namespace':'%s',"
                           "'uid':'uid-%s','annotations':{%s}},'spec':{'nodeName':'n1',"
                           "'initContainers':[%s],'containers':[%s]},"
                           "'status':{'phase':'%s'}}",
                           name, rig_ns(name), name, annotations, inits, apps, phase));
}
static inline void rig_api_gone(struct rig *r, const char *name)
{
    cleanup_free char *uid = xasprintf("uid-%s", name);
    RIG_STEP(r, .type = ALLOC_IN_POD_DELETED, .uid = span_of(uid));
}

#define MEM(name, n)                                                                     \
    "{'name':'" name "','resources':{'limits':{'" KEY_GPU_MEM "':'" #n "'}}}"
#define CARDS(name, n)                                                                   \
    "{'name':'" name "','resources':{'limits':{'" KEY_GPU_COUNT "':'" #n "'}}}"
/* A UUID counts only beside an allocation; this one leaves the amounts to the index. */
#define ON(i, uuid)                                                                      \
    "'" KEY_MEM_IDX "':'" i "','" KEY_ALLOCATION "':'{}','" KEY_CARD_UUID "':'" uuid "'"

/* The pods in podresources. */
static inline struct rig_pod *rig_find(struct rig *r, const char *name)
{
    for (size_t i = 0; i < r->n_pods; i++)
        if (strcmp(r->pods[i].name, name) == 0)
            return &r->pods[i];
    return NULL;
}
static inline struct rig_pod *rig_kubelet(struct rig *r, const char *name,
                                          const char *const *containers)
{
    struct rig_pod *p = &r->pods[r->n_pods++];
    ck_assert_uint_le(r->n_pods, RIG_PODS);
    *p = (struct rig_pod){0};
    snprintf(p->name, sizeof p->name, "%s", name);
    for (; *containers; containers++)
        snprintf(p->containers[p->n++].name, RIG_TEXT, "%s", *containers);
    return p;
}
#define RIG_NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
static inline void rig_kubelet_gone(struct rig *r, const char *name)
{
    struct rig_pod *p = rig_find(r, name);
    ck_assert_ptr_nonnull(p);
    *p = r->pods[--r->n_pods];
}

static inline void rig_add_id(struct rig *r, struct rig_container *c,
                              enum ids_resource res, const char *id)
{
    ck_assert_uint_lt(c->n_ids[res], RIG_IDS);
    c->ids[res][c->n_ids[res]++] = arena_copy(&r->arena, span_of(id));
}

/* The id of unit 3 of card GPU-1 ("GPU-1/3") or of the whole card ("GPU-1"). */
static inline const char *rig_id(struct rig *r, const char *text)
{
    cleanup_buf struct buf b = {0};
    struct span rest = span_of(text);
    struct ids_id id = {ids_tag_of(span_cut(&rest, '/')), -1};
    if (rest.p)
        ck_assert(span_i64(rest, &id.unit));
    ids_write(&b, &id);
    return arena_copy(&r->arena, buf_span(&b)).p;
}

/* The reverse of rig_id. */
static inline void rig_name_id(struct rig *r, struct span text, struct buf *out)
{
    struct ids_id id;
    ck_assert(ids_read(text.n > IDS_TAG ? IDS_MEM : IDS_COUNT, text, &id));
    const struct plugin_card *c = cards_by_tag(&alloc_state(r->a)->cards, &id.tag);
    ck_assert_ptr_nonnull(c);
    buf_adds(out, c->uuid);
    if (id.unit >= 0)
        buf_printf(out, "/%lld", (long long)id.unit);
}

static inline void rig_show(struct rig *r, uint64_t query, const char *name, bool get)
{
    static struct alloc_kubelet_container containers[RIG_PODS][RIG_CONTAINERS];
    static struct alloc_kubelet_pod pods[RIG_PODS];
    struct alloc_kubelet_view view = {.query = query, .pods = pods};
    struct err err = {.code = ERR_UNAVAILABLE, .msg = "away"};
    for (size_t i = 0; i < r->n_pods; i++) {
        struct rig_pod *p = &r->pods[i];
        if (get && strcmp(p->name, name) != 0)
            continue;
        for (size_t k = 0; k < p->n; k++) {
            containers[i][k] = (struct alloc_kubelet_container){
                span_of(p->containers[k].name), {0}, {0}};
            for (int res = 0; res < IDS_CARD_RESOURCES; res++) {
                containers[i][k].ids[res] = p->containers[k].ids[res];
                containers[i][k].n_ids[res] = p->containers[k].n_ids[res];
            }
        }
        pods[view.n_pods++] = (struct alloc_kubelet_pod){
            span_of(rig_ns(p->name)), span_of(p->name), containers[i], p->n};
    }
    if (r->kubelet_away || (get && r->no_get)) {
        view.err = &err;
        view.n_pods = 0;
        view.unsupported = get && r->no_get;
    }
    struct alloc_input in = {.type = ALLOC_IN_PODRESOURCES, .view = view};
    alloc_step(r->a, r->now, &in, &r->out);
}

static inline void rig_answer(struct rig *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static inline void rig_answer(struct rig *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->answer, sizeof r->answer, fmt, ap);
    va_end(ap);
    ck_assert_msg(!r->answered, "two answers");
    r->answered = true;
}

static inline void rig_granted(struct rig *r, const struct response *response)
{
    cleanup_buf struct buf b = {0};
    buf_adds(&b, "");
    for (size_t i = 0; i < response->n_envs; i++)
        buf_printf(&b, "%s=%s\n", response->envs[i].key, response->envs[i].value);
    for (size_t i = 0; i < response->n_mounts; i++)
        buf_printf(&b, "mount %s=%s\n", response->mounts[i].key,
                   response->mounts[i].value);
    for (size_t i = 0; i < response->n_cdi; i++)
        buf_printf(&b, "cdi %s\n", response->cdi[i]);
    for (size_t i = 0; i < response->n_annotations; i++)
        buf_printf(&b, "annotation %s=%s\n", response->annotations[i].key,
                   response->annotations[i].value);
    for (size_t i = 0; i < response->n_nodes; i++)
        buf_printf(&b, "device %s=%s\n", response->nodes[i].container,
                   response->nodes[i].host);
    snprintf(r->env, sizeof r->env, "%s", b.p);
    rig_answer(r, "allocated");
}

static inline void rig_output(struct rig *r, const struct alloc_output *o)
{
    cleanup_buf struct buf b = {0};
    switch (o->type) {
    case ALLOC_PREFERRED:
        buf_adds(&b, "");
        for (size_t i = 0; i < o->n_ids; i++) {
            buf_adds(&b, i ? " " : "");
            rig_name_id(r, span_of(o->ids[i]), &b);
        }
        rig_answer(r, "%s", b.p);
        break;
    case ALLOC_ALLOCATED:
        rig_granted(r, o->response);
        break;
    case ALLOC_START:
        rig_answer(r, "started");
        break;
    case ALLOC_REJECTED:
        rig_answer(r, "%s: %s", alloc_rejection_name(o->rejection), o->text);
        break;
    case ALLOC_SAVE:
        r->saves++;
        break;
    case ALLOC_DEVICES:
        r->device_lists++;
        break;
    case ALLOC_PATCH:
        buf_printf(&r->log, "patch %s %s %s\n", o->name, o->uid, o->annotations);
        break;
    case ALLOC_EVENT:
        buf_printf(&r->log, "event %s %s %s\n", o->name, o->reason, o->text);
        break;
    case ALLOC_LOG:
        buf_printf(&r->said, "%s\n", o->text);
        break;
    default:
        break;
    }
}

/* Carries out the outputs, including those that this causes. */
static inline void rig_take(struct rig *r)
{
    while (r->out.n) {
        struct alloc_outputs out = r->out;
        r->out = (struct alloc_outputs){0};
        for (size_t i = 0; i < out.n; i++) {
            const struct alloc_output *o = &out.items[i];
            bool query = o->type == ALLOC_LIST || o->type == ALLOC_GET;
            r->lists += o->type == ALLOC_LIST;
            r->gets += o->type == ALLOC_GET;
            if (query)
                rig_show(r, o->query, o->name, o->type == ALLOC_GET);
            else
                rig_output(r, o);
        }
        alloc_outputs_fini(&out);
    }
}

static inline void rig_pass(struct rig *r, int64_t ms)
{
    for (int64_t end = r->now.mono_ms + ms; r->now.mono_ms < end;) {
        int64_t due = alloc_state(r->a)->due_ms;
        r->now.mono_ms = due > r->now.mono_ms && due < end ? due : end;
        RIG_STEP(r, .type = ALLOC_IN_TICK);
    }
}

/* Sends a request. Returns the answer, which is also in r->answer. Ids are as in rig_id,
 * separated by spaces; "GPU-0/0-3" is four ids. */
static inline size_t rig_ids(struct rig *r, const char *text, struct span *ids)
{
    size_t n = 0;
    struct span rest = span_of(text);
    while (rest.p) {
        struct span one = span_cut(&rest, ' '), card = one, range;
        int64_t from, to;
        if (!one.n)
            continue;
        range = card;
        card = span_cut(&range, '/');
        cleanup_free char *uuid = xmemdup0(card.p, card.n);
        struct span first = span_cut(&range, '-');
        if (!first.p || !span_i64(first, &from)) { /* the whole card */
            ids[n++] = span_of(rig_id(r, uuid));
            continue;
        }
        if (!range.p || !span_i64(range, &to))
            to = from;
        for (; from <= to; from++) {
            cleanup_free char *unit = xasprintf("%s/%lld", uuid, (long long)from);
            ck_assert_uint_lt(n, RIG_IDS);
            ids[n++] = span_of(rig_id(r, unit));
        }
    }
    return n;
}

static inline const char *rig_request(struct rig *r, enum alloc_request_type type,
                                      enum ids_resource res, int64_t size,
                                      const char *ids, const char *must)
{
    struct span all[RIG_IDS], have[RIG_IDS];
    struct alloc_request req = {.type = type,
                                .resource = res,
                                .token = ++r->tokens,
                                .ids = all,
                                .n_ids = rig_ids(r, ids, all),
                                .must = have,
                                .n_must = rig_ids(r, must, have),
                                .size = size};
    r->answered = false;
    strcpy(r->answer, "(nothing yet)");
    RIG_STEP(r, .type = ALLOC_IN_REQUEST, .request = req);
    return r->answer;
}
static inline const char *rig_prefer(struct rig *r, int64_t size, const char *available)
{
    return rig_request(r, ALLOC_REQUEST_PREFERRED, IDS_MEM, size, available, "");
}
static inline const char *rig_allocate(struct rig *r, const char *ids)
{
    return rig_request(r, ALLOC_REQUEST_ALLOCATE, IDS_MEM, 0, ids, "");
}
