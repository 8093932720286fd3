/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kubelet.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "domain/ids.h"
#include "kube/deviceplugin.h"
#include "kube/podresources.h"
#include "lib/grpc_watch.h"

static const char *const resources[] = {"aliyun.com/gpu-mem", "aliyun.com/gpu-count",
                                        "nvidia.com/gpu",
                                        "aliyun.com/gpu-core.percentage"};

static struct span text(const json_t *j)
{
    return span_of(json_string_value(j));
}

/* Podresources */

/* Like a kubelet: an entry for each id, in no fixed order. `turned`: the reverse order. */
static void show_container(const struct kubelet_container *c, bool turned,
                           struct arena *a, struct podres_container *out)
{
    size_t n = 0, at = 0, k;
    json_t *id;
    for (int r = 0; r < KUBELET_RESOURCES; r++)
        n += json_array_size(c->ids[r]);
    struct podres_devices *ds = arena_zalloc(a, (n + 1) * sizeof *ds);
    struct span *ids = arena_alloc(a, (n + 1) * sizeof *ids);
    for (int r = 0; r < KUBELET_RESOURCES; r++)
        json_array_foreach(c->ids[r], k, id)
        {
            ids[at] = text(id);
            ds[turned ? n - 1 - at : at] = (struct podres_devices){
                .resource = span_of(resources[r]), .ids = &ids[at], .n_ids = 1};
            at++;
        }
    *out = (struct podres_container){
        .name = span_of(c->name), .devices = ds, .n_devices = n};
}

static void show(const struct kubelet_pod *p, bool turned, struct arena *a,
                 struct podres_pod *out)
{
    struct podres_container *cs = arena_zalloc(a, KUBELET_CONTAINERS * sizeof *cs);
    for (int i = 0; i < p->n; i++)
        show_container(&p->containers[i], turned, a, &cs[i]);
    *out = (struct podres_pod){span_of(p->name), SPAN("default"), cs, (size_t)p->n};
}

static void answer(struct grpcd_call *call, int rc, struct buf *out,
                   const struct err *err)
{
    if (rc)
        grpcd_end(call, GRPC_INVALID_ARGUMENT, "%s", err->msg);
    else
        grpcd_reply(call, out);
}

static void on_list(void *ctx, struct grpcd_call *call, struct span request)
{
    struct kubelet *k = ctx;
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf out = {0};
    struct err err;
    (void)request;
    pthread_mutex_lock(&k->lock);
    struct podres_pod *pods = arena_zalloc(&a, KUBELET_PODS * sizeof *pods);
    bool turned = k->lists % 2;
    for (int i = 0; i < k->n_pods; i++)
        show(&k->pods[i], turned, &a, &pods[turned ? k->n_pods - 1 - i : i]);
    struct podres_list list = {pods, (size_t)k->n_pods};
    int rc = proto_encode(&podres_list_type, &list, PODRES_MESSAGE_MAX, &out, &err);
    k->lists++;
    pthread_mutex_unlock(&k->lock);
    answer(call, rc, &out, &err);
}

static struct kubelet_pod *find(struct kubelet *k, struct span name)
{
    for (int i = 0; i < k->n_pods; i++)
        if (span_eq(span_of(k->pods[i].name), name))
            return &k->pods[i];
    return NULL;
}

/* The error texts are those of a kubelet. */
static void on_get(void *ctx, struct grpcd_call *call, struct span request)
{
    struct kubelet *k = ctx;
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf out = {0};
    struct podres_pod pod = {0};
    struct podres_get_request get;
    struct err err = {0};
    int rc = proto_decode(&podres_get_request_type, request, &a, &get, &err);
    pthread_mutex_lock(&k->lock);
    k->gets++;
    struct kubelet_pod *p = rc == 0 ? find(k, get.name) : NULL;
    if (p) {
        show(p, false, &a, &pod);
        rc = proto_encode(&podres_get_type, &pod, PODRES_MESSAGE_MAX, &out, &err);
    }
    pthread_mutex_unlock(&k->lock);
    if (rc || p)
        answer(call, rc, &out, &err);
    else
        grpcd_end(call, GRPC_UNKNOWN, "pod %.*s in namespace %.*s not found",
                  SPAN_ARG(get.name), SPAN_ARG(get.ns));
}

static void on_allocatable(void *ctx, struct grpcd_call *call, struct span request)
{
    struct kubelet *k = ctx;
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    size_t i;
    json_t *id;
    (void)request;
    pthread_mutex_lock(&k->lock);
    struct span *ids =
        arena_alloc(&a, (json_array_size(k->allocatable) + 1) * sizeof *ids);
    json_array_foreach(k->allocatable, i, id) ids[i] =
        arena_copy(&a, span_of(json_string_value(id)));
    const struct podres_devices devices = {
        .resource = SPAN("aliyun.com/gpu-mem"), .ids = ids, .n_ids = i};
    pthread_mutex_unlock(&k->lock);
    const struct podres_allocatable all = {&devices, devices.n_ids > 0};
    answer(call,
           proto_encode(&podres_allocatable_type, &all, PODRES_MESSAGE_MAX, &out, &err),
           &out, &err);
}

static const struct grpcd_method podresources_methods[] = {
    {PODRES_LIST, on_list, NULL},
    {PODRES_GET, on_get, NULL},
    {PODRES_ALLOCATABLE, on_allocatable, NULL},
    {0}};

/* Shows the devices of the plugin in GetAllocatableResources. */
static void show_allocatable(struct kubelet *k)
{
    const char *id;
    json_t *v;
    pthread_mutex_lock(&k->lock);
    json_decref(k->allocatable);
    k->allocatable = json_array();
    json_object_foreach(k->plugins[MEM].devices, id, v)
        json_array_append_new(k->allocatable, json_string(id));
    pthread_mutex_unlock(&k->lock);
}

/* Registration */

static void on_register(void *ctx, struct grpcd_call *call, struct span request)
{
    struct kubelet *k = ctx;
    cleanup_arena struct arena a = {0};
    struct dp_register r;
    struct err err;
    if (proto_decode(&dp_register_type, request, &a, &r, &err)) {
        grpcd_end(call, GRPC_INVALID_ARGUMENT, "%s", err.msg);
        return;
    }
    pthread_mutex_lock(&k->lock);
    bool refused =
        k->refuse > 0 || k->n_asked == 8 || !span_eq(r.version, SPAN(DP_VERSION)) ||
        r.options.preferred_allocation == span_eq(r.resource, span_of(resources[CORE]));
    k->refuse -= k->refuse > 0;
    if (!refused) {
        snprintf(k->endpoints[k->n_asked], sizeof k->endpoints[0], "%.*s",
                 SPAN_ARG(r.endpoint));
        snprintf(k->resources[k->n_asked], sizeof k->resources[0], "%.*s",
                 SPAN_ARG(r.resource));
        k->asked[k->n_asked++] = call;
    }
    pthread_mutex_unlock(&k->lock);
    if (refused)
        grpcd_end(call, GRPC_UNKNOWN, "not now");
}

static const struct grpcd_method registration_methods[] = {
    {DP_REGISTER, on_register, NULL}, {0}};

static void close_plugin(struct kubelet_endpoint *e)
{
    grpc_watch_close(e->stream);
    free(e->socket);
    json_decref(e->devices);
    *e = (struct kubelet_endpoint){0};
}

static int unary(const char *socket, const char *method, struct span message,
                 struct buf *reply, struct kubelet_answer *a)
{
    struct grpcc_request req = {
        .socket = socket, .method = method, .message = message, .timeout_ms = 30000};
    struct err err = {0};
    int rc = grpcc_call(&req, reply, &a->status, &err);
    snprintf(a->words, sizeof a->words, "%s", err.msg);
    return rc;
}

/* Like the kubelet: calls GetDevicePluginOptions, answers Register, then ListAndWatch. */
static void connect_plugin(struct kubelet *k, struct grpcd_call *call,
                           const char *endpoint, const char *resource)
{
    int r = 0;
    while (r < KUBELET_RESOURCES && strcmp(resource, resources[r]) != 0)
        r++;
    ck_assert_msg(r < KUBELET_RESOURCES, "%s is registered", resource);
    cleanup_buf struct buf reply = {0}, none = {0};
    struct kubelet_answer a = {0};
    struct dp_options options = {0};
    struct err err = {0};
    char *socket = xasprintf("%s/plugins/%s", lib_dir, endpoint);
    ck_assert_msg(unary(socket, DP_OPTIONS, (struct span){0}, &reply, &a) == 0, "%s",
                  a.words);
    ck_assert_done(proto_decode(&dp_options_type, buf_span(&reply), NULL, &options, &err),
                   err);
    ck_assert(options.preferred_allocation == (r != CORE) && !options.pre_start_required);
    close_plugin(&k->plugins[r]);
    grpcd_reply(call, &none);
    k->plugins[r].socket = socket;
    k->plugins[r].stream = grpc_watch_open(socket, DP_WATCH);
    k->registrations++;
}

static bool read_list(struct kubelet_endpoint *e)
{
    cleanup_buf struct buf message = {0};
    cleanup_arena struct arena a = {0};
    struct dp_devices list;
    struct err err = {0};
    int got = e->stream ? grpc_watch_next(e->stream, 0, &message) : 0;
    if (got == 0)
        return false;
    if (got < 0) {
        grpc_watch_close(e->stream);
        e->stream = NULL;
        return true;
    }
    ck_assert_done(proto_decode(&dp_devices_type, buf_span(&message), &a, &list, &err),
                   err);
    json_t *fresh = json_object();
    for (size_t i = 0; i < list.n; i++) {
        ck_assert_ptr_null(
            json_object_getn(fresh, list.items[i].id.p, list.items[i].id.n));
        json_object_setn_new(
            fresh, list.items[i].id.p, list.items[i].id.n,
            json_boolean(span_eq(list.items[i].health, SPAN("Healthy"))));
    }
    /* Stays in the list until the process ends. */
    const char *id;
    json_t *v;
    json_object_foreach(e->devices, id, v)
        ck_assert_msg(json_object_get(fresh, id) != NULL, "id %s is not listed", id);
    json_decref(e->devices);
    e->devices = fresh;
    return true;
}

bool kubelet_serve(struct kubelet *k)
{
    bool something = false;
    for (;;) {
        struct grpcd_call *call = NULL;
        char endpoint[80], resource[40];
        pthread_mutex_lock(&k->lock);
        if (k->n_asked > 0) {
            call = k->asked[--k->n_asked];
            memcpy(endpoint, k->endpoints[k->n_asked], sizeof endpoint);
            memcpy(resource, k->resources[k->n_asked], sizeof resource);
        }
        pthread_mutex_unlock(&k->lock);
        if (!call)
            break;
        connect_plugin(k, call, endpoint, resource);
        something = true;
    }
    for (int r = 0; r < KUBELET_RESOURCES; r++)
        something |= read_list(&k->plugins[r]);
    if (something)
        show_allocatable(k);
    return something;
}

static bool is_registered(const struct kubelet *k, int resource)
{
    static const int all[] = {MEM, COUNT, CORE};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const struct kubelet_endpoint *e = &k->plugins[all[i]];
        bool only_other = resource != all[i] && (resource == MEM || resource == COUNT);
        if (!only_other && !(e->stream && e->devices))
            return false;
    }
    return true;
}

void kubelet_wait_registered(struct kubelet *k, int resource)
{
    lib_wait((kubelet_serve(k), is_registered(k, resource)));
}

bool kubelet_lost(struct kubelet *k, int resource)
{
    kubelet_serve(k);
    return k->plugins[resource].stream == NULL;
}

size_t kubelet_devices(struct kubelet *k, int resource, bool healthy)
{
    const char *id;
    json_t *v;
    size_t n = 0;
    kubelet_serve(k);
    json_object_foreach(k->plugins[resource].devices, id, v) n +=
        json_is_true(v) == healthy;
    return n;
}

static struct grpcd *serve(const char *path, const struct grpcd_method *methods,
                           struct kubelet *k)
{
    struct grpcd_config config = {.path = path, .methods = methods, .ctx = k};
    struct err err = {0};
    struct grpcd *d = grpcd_start(&config, &err);
    ck_assert_msg(d != NULL, "%s", err.msg);
    return d;
}

void kubelet_start(struct kubelet *k)
{
    cleanup_free char *dir = temp_path(lib_dir, "plugins");
    cleanup_free char *own = xasprintf("%s/kubelet.sock", dir);
    cleanup_free char *podresources = temp_path(lib_dir, "podresources.sock");
    struct dirent *entry;
    mkdir(dir, 0750);
    DIR *all = opendir(dir);
    while ((entry = readdir(all)) != NULL)
        if (strstr(entry->d_name, ".sock"))
            unlinkat(dirfd(all), entry->d_name, 0);
    closedir(all);
    pthread_mutex_init(&k->lock, NULL);
    k->podresources = serve(podresources, podresources_methods, k);
    k->registration = serve(own, registration_methods, k);
}

void kubelet_stop(struct kubelet *k)
{
    for (int r = 0; r < KUBELET_RESOURCES; r++)
        close_plugin(&k->plugins[r]);
    struct grpcd_call *asked[ARRAY_LEN(k->asked)];
    pthread_mutex_lock(&k->lock);
    int n = k->n_asked;
    memcpy(asked, k->asked, sizeof asked);
    k->n_asked = 0;
    pthread_mutex_unlock(&k->lock);
    for (int i = 0; i < n; i++)
        grpcd_end(asked[i], GRPC_UNAVAILABLE, "stopping");
    grpcd_free(k->registration);
    grpcd_free(k->podresources);
    k->registration = k->podresources = NULL;
    pthread_mutex_destroy(&k->lock);
}

static void free_pod(struct kubelet_pod *p)
{
    for (int i = 0; i < p->n; i++)
        for (int r = 0; r < KUBELET_RESOURCES; r++)
            json_decref(p->containers[i].ids[r]);
}

void kubelet_fini(struct kubelet *k)
{
    if (k->registration)
        kubelet_stop(k);
    for (int i = 0; i < k->n_pods; i++)
        free_pod(&k->pods[i]);
    json_decref(k->allocatable);
    k->allocatable = NULL;
    k->n_pods = 0;
}

struct kubelet_pod *kubelet_add(struct kubelet *k, const char *name,
                                const char *const *containers)
{
    pthread_mutex_lock(&k->lock);
    ck_assert_int_lt(k->n_pods, KUBELET_PODS);
    struct kubelet_pod *p = &k->pods[k->n_pods++];
    *p = (struct kubelet_pod){0};
    snprintf(p->name, sizeof p->name, "%s", name);
    for (; *containers; containers++)
        snprintf(p->containers[p->n++].name, sizeof p->containers[0].name, "%s",
                 *containers);
    pthread_mutex_unlock(&k->lock);
    return p;
}

void kubelet_remove(struct kubelet *k, const char *name)
{
    pthread_mutex_lock(&k->lock);
    struct kubelet_pod *p = find(k, span_of(name));
    ck_assert_ptr_nonnull(p);
    free_pod(p);
    *p = k->pods[--k->n_pods];
    pthread_mutex_unlock(&k->lock);
}

void kubelet_give(struct kubelet *k, const char *pod, const char *container, int resource,
                  json_t *ids)
{
    pthread_mutex_lock(&k->lock);
    struct kubelet_pod *p = find(k, span_of(pod));
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->containers[i].name, container) == 0)
            p->containers[i].ids[resource] = json_incref(ids);
    pthread_mutex_unlock(&k->lock);
}

void kubelet_answer_fini(struct kubelet_answer *a)
{
    json_decref(a->env);
    json_decref(a->ids);
    free(a->devices);
    free(a->mounts);
    *a = (struct kubelet_answer){0};
}

static bool is_held(struct kubelet *k, const char *id)
{
    for (int i = 0; i < k->n_pods; i++)
        for (int c = 0; c < k->pods[i].n; c++)
            for (int r = 0; r < KUBELET_RESOURCES; r++) {
                json_t *one;
                size_t n;
                json_array_foreach(k->pods[i].containers[c].ids[r], n,
                                   one) if (strcmp(json_string_value(one), id) ==
                                            0) return true;
            }
    return false;
}

/* Free and healthy. */
static json_t *available(struct kubelet *k, int resource)
{
    json_t *all = json_array(), *healthy;
    const char *id;
    json_object_foreach(k->plugins[resource].devices, id, healthy)
    {
        if (json_is_true(healthy) && !is_held(k, id))
            json_array_append_new(all, json_string(id));
    }
    return all;
}

static struct dp_ids spans_of(json_t *ids, struct arena *a)
{
    struct span *spans = arena_alloc(a, (json_array_size(ids) + 1) * sizeof *spans);
    json_t *id;
    size_t i;
    json_array_foreach(ids, i, id) spans[i] = text(id);
    return (struct dp_ids){spans, json_array_size(ids)};
}

void kubelet_prefer(struct kubelet *k, int resource, int amount, struct kubelet_answer *a)
{
    cleanup_arena struct arena arena = {0};
    cleanup_buf struct buf message = {0}, reply = {0};
    cleanup_json json_t *free_ids = available(k, resource);
    struct dp_preference one = {.available = spans_of(free_ids, &arena), .size = amount};
    struct dp_preferences all = {&one, 1};
    struct dp_groups groups;
    struct err err = {0};
    ck_assert_done(
        proto_encode(&dp_preferences_type, &all, DP_MESSAGE_MAX, &message, &err), err);
    if (unary(k->plugins[resource].socket, DP_PREFERRED, buf_span(&message), &reply, a))
        return;
    ck_assert_done(proto_decode(&dp_groups_type, buf_span(&reply), &arena, &groups, &err),
                   err);
    a->ids = json_array();
    for (size_t i = 0; groups.n && i < groups.items->n; i++)
        json_array_append_new(
            a->ids, json_stringn(groups.items->items[i].p, groups.items->items[i].n));
}

void kubelet_allocate(struct kubelet *k, int resource, json_t *ids,
                      struct kubelet_answer *a)
{
    cleanup_arena struct arena arena = {0};
    cleanup_buf struct buf message = {0}, reply = {0};
    struct dp_ids one = spans_of(ids, &arena);
    struct dp_groups all = {&one, 1};
    struct dp_allocations out;
    struct err err = {0};
    ck_assert_done(proto_encode(&dp_groups_type, &all, DP_MESSAGE_MAX, &message, &err),
                   err);
    if (unary(k->plugins[resource].socket, DP_ALLOCATE, buf_span(&message), &reply, a))
        return;
    ck_assert_done(
        proto_decode(&dp_allocations_type, buf_span(&reply), &arena, &out, &err), err);
    ck_assert_uint_eq(out.n, 1);
    a->env = json_object();
    for (size_t i = 0; i < out.items->n_envs; i++)
        json_object_set_new(
            a->env, out.items->envs[i].key.p,
            json_stringn(out.items->envs[i].value.p, out.items->envs[i].value.n));
    const struct dp_allocation *al = out.items;
    struct buf mounts = {0}, devices = {0};
    for (size_t i = 0; i < al->n_mounts; i++)
        buf_printf(&mounts, "%.*s:%.*s:%s ", SPAN_ARG(al->mounts[i].host_path),
                   SPAN_ARG(al->mounts[i].container_path),
                   al->mounts[i].read_only ? "ro" : "rw");
    for (size_t i = 0; i < al->n_specs; i++)
        buf_printf(&devices, "%.*s:%.*s:%.*s ", SPAN_ARG(al->specs[i].host_path),
                   SPAN_ARG(al->specs[i].container_path),
                   SPAN_ARG(al->specs[i].permissions));
    for (size_t i = 0; i < al->n_cdi; i++)
        buf_printf(&devices, "%.*s ", SPAN_ARG(al->cdi[i]));
    for (size_t i = 0; i < al->n_annotations; i++)
        buf_printf(&devices, "%.*s=%.*s ", SPAN_ARG(al->annotations[i].key),
                   SPAN_ARG(al->annotations[i].value));
    a->devices = buf_take(&devices);
    a->mounts = buf_take(&mounts);
}

void kubelet_admit(struct kubelet *k, const char *pod, const char *container,
                   int resource, int amount, struct kubelet_answer *a)
{
    kubelet_prefer(k, resource, amount, a);
    if (a->status != GRPC_OK)
        return;
    kubelet_allocate(k, resource, a->ids, a);
    if (a->status != GRPC_OK)
        return;
    kubelet_give(k, pod, container, resource, a->ids);
}

json_t *kubelet_pick(struct kubelet *k, int resource, int n, json_t *like, bool same)
{
    cleanup_json json_t *all = available(k, resource);
    const char *model = json_string_value(json_array_get(like, 0));
    json_t *picked = json_array(), *id;
    size_t i;
    json_array_foreach(all, i, id)
    {
        bool is = strncmp(json_string_value(id), model, strcspn(model, "-")) == 0;
        if (is == same && (int)json_array_size(picked) < n)
            json_array_append(picked, id);
    }
    ck_assert_int_eq((int)json_array_size(picked), n);
    return picked;
}

json_t *kubelet_units(const char *uuid, int from, int to)
{
    json_t *ids = json_array();
    for (int i = from; i < to; i++) {
        cleanup_buf struct buf id = {0};
        ids_write(&id, &(struct ids_id){ids_tag_of(span_of(uuid)), i});
        json_array_append_new(ids, json_string(id.p));
    }
    return ids;
}

void kubelet_add_units(struct kubelet *k, const char *uuid, int n)
{
    cleanup_json json_t *ids = kubelet_units(uuid, 0, n);
    pthread_mutex_lock(&k->lock);
    if (!k->allocatable)
        k->allocatable = json_array();
    json_array_extend(k->allocatable, ids);
    pthread_mutex_unlock(&k->lock);
}
