/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kubelet.h"

#include <sys/stat.h>

#include "kube/deviceplugin.h"
#include "kube/podresources.h"
#include "lib/grpc_watch.h"

static const char *const resources[KUBELET_RESOURCES] = {
    "aliyun.com/gpu-mem", "aliyun.com/gpu-count", "nvidia.com/gpu",
    "aliyun.com/gpu-core.percentage", "aliyun.com/gpu-share"};

/* The strings of an array. */
static struct dp_ids spans_of(const json_t *ids, struct arena *a)
{
    size_t n = json_array_size(ids);
    struct span *spans = arena_alloc(a, (n + 1) * sizeof *spans);
    for (size_t i = 0; i < n; i++)
        spans[i] = span_of(json_string_value(json_array_get(ids, i)));
    return (struct dp_ids){spans, n};
}

static json_t *string_of(struct span s)
{
    return json_stringn(s.p, s.n);
}

/* Podresources */

/* Like a kubelet: an entry for each id, in no fixed order. `turned`: the reverse order. */
static struct podres_container show_container(const char *name, json_t *by_resource,
                                              bool turned, struct arena *a)
{
    size_t n = 0, at = 0;
    const char *resource;
    json_t *ids;
    json_object_foreach(by_resource, resource, ids) n += json_array_size(ids);
    struct podres_devices *ds = arena_zalloc(a, (n + 1) * sizeof *ds);
    json_object_foreach(by_resource, resource, ids)
    {
        struct dp_ids each = spans_of(ids, a);
        for (size_t i = 0; i < each.n; i++, at++)
            ds[turned ? n - 1 - at : at] = (struct podres_devices){
                .resource = span_of(resource), .ids = &each.items[i], .n_ids = 1};
    }
    return (struct podres_container){
        .name = span_of(name), .devices = ds, .n_devices = n};
}

static struct podres_pod show(const char *name, json_t *containers, bool turned,
                              struct arena *a)
{
    struct podres_container *cs =
        arena_zalloc(a, (json_object_size(containers) + 1) * sizeof *cs);
    const char *container;
    json_t *by_resource;
    size_t n = 0;
    json_object_foreach(containers, container, by_resource) cs[n++] =
        show_container(container, by_resource, turned, a);
    return (struct podres_pod){span_of(name), SPAN("default"), cs, n};
}

/* Encodes the message and answers with it. */
static void answer(struct grpcd_call *call, const struct proto_type *type,
                   const void *message)
{
    cleanup_buf struct buf out = {0};
    struct err err;
    if (proto_encode(type, message, PODRES_MESSAGE_MAX, &out, &err))
        grpcd_end(call, GRPC_INVALID_ARGUMENT, "%s", err.msg);
    else
        grpcd_reply(call, &out);
}

static void on_list(void *ctx, struct grpcd_call *call, struct span request)
{
    struct kubelet *k = ctx;
    cleanup_arena struct arena a = {0};
    const char *name;
    json_t *containers;
    (void)request;
    pthread_mutex_lock(&k->lock);
    size_t n = json_object_size(k->pods), i = 0;
    struct podres_pod *pods = arena_zalloc(&a, (n + 1) * sizeof *pods);
    bool turned = k->lists++ % 2;
    json_object_foreach(k->pods, name, containers)
    {
        pods[turned ? n - 1 - i : i] = show(name, containers, turned, &a);
        i++;
    }
    answer(call, &podres_list_type, &(struct podres_list){pods, n});
    pthread_mutex_unlock(&k->lock);
}

/* The error texts are those of a kubelet. */
static void on_get(void *ctx, struct grpcd_call *call, struct span request)
{
    struct kubelet *k = ctx;
    cleanup_arena struct arena a = {0};
    struct podres_get_request get;
    struct err err = {0};
    if (proto_decode(&podres_get_request_type, request, &a, &get, &err)) {
        grpcd_end(call, GRPC_INVALID_ARGUMENT, "%s", err.msg);
        return;
    }
    cleanup_free char *name = xmemdup0(get.name.p, get.name.n);
    pthread_mutex_lock(&k->lock);
    json_t *containers = json_object_get(k->pods, name);
    struct podres_pod pod = show(name, containers, false, &a);
    if (containers)
        answer(call, &podres_get_type, &pod);
    else
        grpcd_end(call, GRPC_UNKNOWN, "pod %s in namespace %.*s not found", name,
                  SPAN_ARG(get.ns));
    pthread_mutex_unlock(&k->lock);
}

static void on_all(void *ctx, struct grpcd_call *call, struct span request)
{
    struct kubelet *k = ctx;
    cleanup_arena struct arena a = {0};
    (void)request;
    pthread_mutex_lock(&k->lock);
    struct podres_container all = show_container("", k->allocatable, false, &a);
    if (k->allocatable)
        answer(call, &podres_allocatable_type,
               &(struct podres_allocatable){all.devices, all.n_devices});
    else
        grpcd_end(call, GRPC_UNIMPLEMENTED, "unknown method");
    pthread_mutex_unlock(&k->lock);
}

static const struct grpcd_method podresources_methods[] = {{PODRES_LIST, on_list, NULL},
                                                           {PODRES_GET, on_get, NULL},
                                                           {PODRES_ALL, on_all, NULL},
                                                           {0}};

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
    bool accepted =
        k->n_asked < ARRAY_LEN(k->asked) && span_eq(r.version, SPAN(DP_VERSION)) &&
        r.options.preferred_allocation != span_eq(r.resource, span_of(resources[CORE]));
    if (accepted) {
        struct kubelet_asked *asked = &k->asked[k->n_asked++];
        asked->call = call;
        snprintf(asked->endpoint, sizeof asked->endpoint, "%.*s", SPAN_ARG(r.endpoint));
        snprintf(asked->resource, sizeof asked->resource, "%.*s", SPAN_ARG(r.resource));
    }
    pthread_mutex_unlock(&k->lock);
    if (!accepted)
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

static int unary(const char *socket, const char *method, const struct buf *message,
                 struct buf *reply, struct kubelet_answer *a)
{
    struct grpcc_request req = {.socket = socket,
                                .method = method,
                                .message = buf_span(message),
                                .timeout_ms = 30000};
    struct err err = {0};
    int rc = grpcc_call(&req, reply, &a->status, &err);
    snprintf(a->words, sizeof a->words, "%s", err.msg);
    return rc;
}

/* Like the kubelet: calls GetDevicePluginOptions, answers Register, then ListAndWatch. */
static void connect_plugin(struct kubelet *k, const struct kubelet_asked *asked)
{
    int r = 0;
    while (r < KUBELET_RESOURCES && strcmp(asked->resource, resources[r]) != 0)
        r++;
    ck_assert_msg(r < KUBELET_RESOURCES, "%s is registered", asked->resource);
    cleanup_buf struct buf reply = {0}, none = {0};
    struct kubelet_answer a = {0};
    struct dp_options options = {0};
    struct err err = {0};
    char *socket = xasprintf("%s/plugins/%s", lib_dir, asked->endpoint);
    int rc = unary(socket, DP_OPTIONS, &none, &reply, &a);
    if (rc && access(socket, F_OK) != 0) { /* the plugin has ended meanwhile */
        grpcd_end(asked->call, GRPC_UNKNOWN, "%s", a.words);
        free(socket);
        return;
    }
    ck_assert_msg(rc == 0, "%s", a.words);
    ck_assert_done(proto_decode(&dp_options_type, buf_span(&reply), NULL, &options, &err),
                   err);
    ck_assert(options.preferred_allocation == (r != CORE) && !options.pre_start_required);
    close_plugin(&k->plugins[r]);
    grpcd_reply(asked->call, &none);
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
    json_t *fresh = json_object(), *v;
    const char *id;
    for (size_t i = 0; i < list.n; i++) {
        json_object_setn_new(
            fresh, list.items[i].id.p, list.items[i].id.n,
            json_boolean(span_eq(list.items[i].health, SPAN("Healthy"))));
    }
    ck_assert_uint_eq(json_object_size(fresh), list.n); /* no id twice */
    /* Stays in the list until the process ends. */
    json_object_foreach(e->devices, id, v)
        ck_assert_msg(json_object_get(fresh, id) != NULL, "id %s is not listed", id);
    json_decref(e->devices);
    e->devices = fresh;
    return true;
}

bool kubelet_serve(struct kubelet *k)
{
    struct kubelet_asked asked[ARRAY_LEN(k->asked)];
    pthread_mutex_lock(&k->lock);
    size_t n = k->n_asked;
    memcpy(asked, k->asked, sizeof asked);
    k->n_asked = 0;
    pthread_mutex_unlock(&k->lock);
    for (size_t i = 0; i < n; i++)
        connect_plugin(k, &asked[i]);
    bool something = n > 0;
    for (int r = 0; r < KUBELET_RESOURCES; r++)
        something |= read_list(&k->plugins[r]);
    return something;
}

bool kubelet_is_asked(struct kubelet *k)
{
    pthread_mutex_lock(&k->lock);
    bool asked = k->n_asked > 0;
    pthread_mutex_unlock(&k->lock);
    return asked;
}

static bool is_registered(const struct kubelet *k, int resource)
{
    for (int r = 0; r < KUBELET_RESOURCES; r++) {
        const struct kubelet_endpoint *e = &k->plugins[r];
        bool wanted = resource < 0 ? r != NVIDIA : r == resource;
        if (wanted && !(e->stream && e->devices))
            return false;
    }
    return true;
}

void kubelet_wait_registered(struct kubelet *k, int resource)
{
    lib_wait((kubelet_serve(k), is_registered(k, resource)));
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

static struct grpcd *serve(const char *socket, const struct grpcd_method *methods,
                           struct kubelet *k)
{
    cleanup_free char *path = temp_path(lib_dir, socket);
    struct grpcd_config config = {.path = path, .methods = methods, .ctx = k};
    struct err err = {0};
    struct grpcd *d = grpcd_start(&config, &err);
    ck_assert_msg(d != NULL, "%s", err.msg);
    return d;
}

void kubelet_start(struct kubelet *k)
{
    mkdir(lib_path("plugins"), 0750);
    lib_output(0, ARGV("sh", "-c", "rm -f \"$0\"/plugins/*.sock*", lib_dir));
    if (!k->pods)
        k->pods = json_object();
    pthread_mutex_init(&k->lock, NULL);
    k->podresources = serve("podresources.sock", podresources_methods, k);
    k->registration = serve("plugins/kubelet.sock", registration_methods, k);
}

void kubelet_stop(struct kubelet *k)
{
    for (int r = 0; r < KUBELET_RESOURCES; r++)
        close_plugin(&k->plugins[r]);
    pthread_mutex_lock(&k->lock);
    while (k->n_asked)
        grpcd_end(k->asked[--k->n_asked].call, GRPC_UNAVAILABLE, "stopping");
    pthread_mutex_unlock(&k->lock);
    grpcd_free(k->registration);
    grpcd_free(k->podresources);
    k->registration = k->podresources = NULL;
    pthread_mutex_destroy(&k->lock);
}

void kubelet_fini(struct kubelet *k)
{
    if (k->registration)
        kubelet_stop(k);
    json_decref(k->pods);
    json_decref(k->allocatable);
    k->pods = k->allocatable = NULL;
}

void kubelet_set_allocatable(struct kubelet *k, json_t *ids)
{
    pthread_mutex_lock(&k->lock);
    json_decref(k->allocatable);
    k->allocatable = ids;
    pthread_mutex_unlock(&k->lock);
}

void kubelet_add(struct kubelet *k, const char *name, const char *const *containers)
{
    json_t *pod = json_object();
    for (; *containers; containers++)
        json_object_set_new(pod, *containers, json_object());
    pthread_mutex_lock(&k->lock);
    json_object_set_new(k->pods, name, pod);
    pthread_mutex_unlock(&k->lock);
}

void kubelet_remove(struct kubelet *k, const char *name)
{
    pthread_mutex_lock(&k->lock);
    ck_assert_int_eq(json_object_del(k->pods, name), 0);
    pthread_mutex_unlock(&k->lock);
}

void kubelet_give(struct kubelet *k, const char *pod, const char *container, int resource,
                  json_t *ids)
{
    pthread_mutex_lock(&k->lock);
    json_object_set(json_object_get(json_object_get(k->pods, pod), container),
                    resources[resource], ids);
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

/* Is the id of that resource one of those of the pods? Ids are names within a resource. */
static bool is_held(json_t *pods, const char *resource, const char *id)
{
    const char *name, *key;
    json_t *pod, *container;
    bool held = false;
    json_object_foreach(pods, name, pod) json_object_foreach(pod, key, container) held |=
        lib_find(json_object_get(container, resource), "", id) != NULL;
    return held;
}

/* Free and healthy. */
static json_t *available(struct kubelet *k, int resource)
{
    json_t *all = lib_own(json_array()), *healthy;
    const char *id;
    json_object_foreach(k->plugins[resource].devices, id, healthy)
    {
        if (json_is_true(healthy) && !is_held(k->pods, resources[resource], id))
            json_array_append_new(all, json_string(id));
    }
    return all;
}

void kubelet_prefer(struct kubelet *k, int resource, int amount, struct kubelet_answer *a)
{
    cleanup_arena struct arena arena = {0};
    cleanup_buf struct buf message = {0}, reply = {0};
    struct dp_preference one = {.available = spans_of(available(k, resource), &arena),
                                .size = amount};
    struct dp_groups groups;
    struct err err = {0};
    ck_assert_done(proto_encode(&dp_preferences_type, &(struct dp_preferences){&one, 1},
                                DP_MESSAGE_MAX, &message, &err),
                   err);
    if (unary(k->plugins[resource].socket, DP_PREFERRED, &message, &reply, a))
        return;
    ck_assert_done(proto_decode(&dp_groups_type, buf_span(&reply), &arena, &groups, &err),
                   err);
    a->ids = json_array();
    for (size_t i = 0; groups.n && i < groups.items->n; i++)
        json_array_append_new(a->ids, string_of(groups.items->items[i]));
}

void kubelet_allocate(struct kubelet *k, int resource, json_t *ids,
                      struct kubelet_answer *a)
{
    cleanup_arena struct arena arena = {0};
    cleanup_buf struct buf message = {0}, reply = {0};
    struct dp_ids one = spans_of(ids, &arena);
    struct dp_allocations out;
    struct err err = {0};
    ck_assert_done(proto_encode(&dp_groups_type, &(struct dp_groups){&one, 1},
                                DP_MESSAGE_MAX, &message, &err),
                   err);
    if (unary(k->plugins[resource].socket, DP_ALLOCATE, &message, &reply, a))
        return;
    ck_assert_done(
        proto_decode(&dp_allocations_type, buf_span(&reply), &arena, &out, &err), err);
    ck_assert_uint_eq(out.n, 1);
    const struct dp_allocation *al = out.items;
    struct buf mounts = {0}, devices = {0};
    a->env = json_object();
    for (size_t i = 0; i < al->n_envs; i++)
        json_object_set_new(a->env, al->envs[i].key.p, string_of(al->envs[i].value));
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
    if (a->status == GRPC_OK)
        kubelet_allocate(k, resource, a->ids, a);
    if (a->status == GRPC_OK)
        kubelet_give(k, pod, container, resource, a->ids);
}

json_t *kubelet_pick(struct kubelet *k, int resource, int n, json_t *like, bool same)
{
    const char *model = lib_str(like, "0");
    json_t *picked = lib_own(json_array()), *id;
    lib_each(id, available(k, resource))
        if (same == (strncmp(json_string_value(id), model, strcspn(model, "-")) == 0) &&
            (int)json_array_size(picked) < n)
            json_array_append(picked, id);
    ck_assert_int_eq((int)json_array_size(picked), n);
    return picked;
}
