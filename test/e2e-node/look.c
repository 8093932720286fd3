/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the sides report of the containers on the node, compared: podresources, the meaning of
 * tags, everything at rest, podresources under constant calls, and refused pods.
 */

#include "e2e-node/look.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "domain/ids.h"
#include "e2e-node/real.h"
#include "kube/podresources.h"
#include "wire/grpcc.h"

enum {
    CALL_MS = 5000,
    REST_MS = 30 * 1000,
    EVERY_MS = 20, /* the kubelet accepts 100 calls per second in total */
};

/* Shared by all threads. */
static struct {
    pthread_mutex_t lock;
    json_t *seen; /* {uid/container: true}: already compared */
    atomic_size_t wrong;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void note_wrong(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "WRONG CARD: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    atomic_fetch_add(&known.wrong, 1);
}

static size_t count_wrong(void)
{
    return atomic_load(&known.wrong);
}

/* -- podresources -- */

static json_t *ids_of(const struct podres_container *c)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < c->n_devices; i++)
        for (size_t k = 0; k < c->devices[i].n_ids; k++)
            if (span_starts(c->devices[i].resource, SPAN("aliyun.com/")))
                json_array_append_new(
                    ids, json_stringn(c->devices[i].ids[k].p, c->devices[i].ids[k].n));
    return ids;
}

static void add_pod(json_t *all, json_t *holders, const struct podres_pod *p)
{
    for (size_t i = 0; i < p->n_containers; i++) {
        json_t *ids = ids_of(&p->containers[i]), *id;
        cleanup_free char *name =
            xasprintf("%.*s/%.*s", SPAN_ARG(p->name), SPAN_ARG(p->containers[i].name));
        size_t k;
        json_array_foreach(ids, k, id)
        {
            const char *text = json_string_value(id);
            json_t *other = json_object_get(holders, text);
            ck_assert_msg(!other, "%s is held by %s and by %s", text,
                          json_string_value(other), name);
            json_object_set_new(holders, text, json_string(name));
        }
        if (json_array_size(ids))
            json_object_set(all, name, ids);
        json_decref(ids);
    }
}

/* False: no reply. Retries if the kubelet limits the rate. */
static bool call(const char *method, struct span message, struct buf *reply,
                 struct err *err)
{
    struct grpcc_request req = {.socket = NODE_PODRESOURCES,
                                .method = method,
                                .message = message,
                                .timeout_ms = CALL_MS,
                                .max_message = PODRES_MESSAGE_MAX};
    enum grpc_status status;
    for (;;) {
        buf_clear(reply);
        if (grpcc_call(&req, reply, &status, err) == 0)
            return true;
        if (status != GRPC_RESOURCE_EXHAUSTED)
            return false;
        lib_pause();
    }
}

json_t *look_held(void)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf reply = {0};
    cleanup_json json_t *holders = json_object();
    struct podres_list list;
    struct err err = {0};
    if (!call(PODRES_LIST, (struct span){0}, &reply, &err))
        return NULL;
    ck_assert_done(proto_decode(&podres_list_type, buf_span(&reply), &a, &list, &err),
                   err);
    json_t *all = json_object();
    for (size_t i = 0; i < list.n; i++)
        if (span_eq(list.pods[i].ns, SPAN("default")))
            add_pod(all, holders, &list.pods[i]);
    return all;
}

static json_t *held_by(const char *pod)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf message = {0}, reply = {0};
    cleanup_json json_t *holders = json_object();
    struct podres_pod shown;
    struct err err = {0};
    ck_assert_done(
        proto_encode(&podres_get_request_type,
                     &(struct podres_get_request){span_of(pod), SPAN("default")},
                     PODRES_MESSAGE_MAX, &message, &err),
        err);
    json_t *all = json_object();
    if (!call(PODRES_GET, buf_span(&message), &reply, &err))
        return all;
    ck_assert_done(proto_decode(&podres_get_type, buf_span(&reply), &a, &shown, &err),
                   err);
    add_pod(all, holders, &shown);
    return all;
}

/* -- cards -- */

char *look_variable(const char *log, const char *name)
{
    struct span rest = span_of(log), line;
    size_t n = strlen(name);
    while (rest.n) {
        line = span_cut(&rest, '\n');
        if (line.n > n && memcmp(line.p, name, n) == 0 && line.p[n] == '=')
            return xmemdup0(line.p + n + 1, line.n - n - 1);
    }
    return xstrdup("");
}

static json_t *set_of(const char *list)
{
    json_t *set = json_object();
    struct span rest = span_of(list);
    while (rest.n) {
        struct span one = span_cut(&rest, ',');
        json_object_setn_new(set, one.p, one.n, json_true());
    }
    return set;
}

/* The number of ids of each card: {uuid: n}; an id of no card of this node: {tag: n}. */
static json_t *cards_of(const json_t *ids)
{
    json_t *cards = json_object(), *id;
    size_t i;
    json_array_foreach(ids, i, id)
    {
        struct span rest = span_of(json_string_value(id));
        struct span card = span_cut(&rest, '-');
        for (int k = 0; k < NODE_CARDS; k++) {
            struct ids_tag tag = ids_tag_of(span_of(node_cards[k].uuid));
            if (span_eq(card, span_of(tag.text)))
                card = span_of(node_cards[k].uuid);
        }
        json_int_t n = json_integer_value(json_object_getn(cards, card.p, card.n));
        json_object_setn_new(cards, card.p, card.n, json_integer(n + 1));
    }
    return cards;
}

static bool has_same_keys(json_t *a, json_t *b)
{
    const char *key;
    json_t *v;
    bool same = json_object_size(a) == json_object_size(b);
    json_object_foreach(a, key, v) same &= json_object_get(b, key) != NULL;
    return same;
}

/* The container sees the cards whose ids it holds. */
static void compare_container(const char *name, const json_t *ids, const char *log)
{
    cleanup_free char *visible = look_variable(log, "NVIDIA_VISIBLE_DEVICES");
    cleanup_json json_t *seen = set_of(visible), *held = cards_of(ids);
    if (!has_same_keys(seen, held)) {
        cleanup_free char *text = json_dumps(held, 0);
        note_wrong("container %s holds ids of %s and sees %s", name, text, visible);
    }
}

static bool is_of_go(const json_t *ids)
{
    const char *id = json_string_value(json_array_get(ids, 0));
    return id && strstr(id, "-_-");
}

static void note_compared(const char *uid, const char *container)
{
    cleanup_free char *key = xasprintf("%s/%s", uid, container);
    pthread_mutex_lock(&known.lock);
    if (!known.seen)
        known.seen = json_object();
    json_object_set_new(known.seen, key, json_true());
    pthread_mutex_unlock(&known.lock);
}

static size_t count_compared(void)
{
    pthread_mutex_lock(&known.lock);
    size_t n = json_object_size(known.seen);
    pthread_mutex_unlock(&known.lock);
    return n;
}

void look_tell(void)
{
    printf(
        "measured: containers that were compared: %zu; on another card than the ledger "
        "has: %zu\n",
        count_compared(), count_wrong());
    fflush(stdout);
    ck_assert_uint_eq(count_wrong(), 0);
}

/* -- all sides, while nothing changes -- */

#define ANNOTATION(pod, key)                                                             \
    json_string_value(json_object_get(lib_at(pod, "metadata.annotations"), key))

/* {uid: {uuid: units}}. New. */
static json_t *ledger(void)
{
    cleanup_json json_t *n = extender_inspect(&cluster.extender, NODE);
    json_t *all = json_object(), *card, *pod;
    size_t i, k;
    json_array_foreach(lib_at(n, "devs"), i, card)
    {
        json_array_foreach(lib_at(card, "pods"), k, pod)
        {
            const char *uid = lib_str(pod, "uid");
            if (!json_object_get(all, uid))
                json_object_set_new(all, uid, json_object());
            json_object_set(json_object_get(all, uid), lib_str(card, "uuid"),
                            lib_at(pod, "usedGPU"));
        }
    }
    return all;
}

static int limit(const json_t *container, const char **resource)
{
    const char *name;
    json_t *value;
    json_object_foreach(lib_at(container, "resources.limits"), name, value)
    {
        if (strncmp(name, "aliyun.com/", 11) == 0) {
            *resource = name + 11;
            return atoi(json_string_value(value));
        }
    }
    return 0;
}

static const char *uuid_at(const char *index)
{
    int i = atoi(index);
    ck_assert_int_lt(i, NODE_CARDS);
    return node_cards[i].uuid;
}

/* The units that the annotations promise to the container, by card: {uuid: units}. */
static json_t *promised(const json_t *pod, size_t container)
{
    cleanup_json json_t *all =
        json_loads(ANNOTATION(pod, "scheduler.framework.gpushare.allocation"), 0, NULL);
    json_t *cards = json_object(), *units;
    const char *index;
    char key[16];
    snprintf(key, sizeof key, "%zu", container);
    json_object_foreach(json_object_get(all, key), index, units)
        json_object_set(cards, uuid_at(index), units);
    return cards;
}

static void variable_is(const char *who, const char *log, const char *name,
                        const char *value)
{
    cleanup_free char *is = look_variable(log, name);
    ck_assert_msg(strcmp(is, value) == 0, "container %s: %s is \"%s\", not \"%s\"", who,
                  name, is, value);
}

/* Fails unless the ids are of the promised cards and amounts. */
static void check_ids(const char *who, const json_t *ids, json_t *promised, bool whole)
{
    cleanup_json json_t *held = cards_of(ids);
    if (whole ? has_same_keys(held, promised) : json_equal(held, promised))
        return;
    cleanup_free char *is = json_dumps(held, 0), *want = json_dumps(promised, 0);
    note_wrong("container %s holds %s, promised are %s", who, is, want);
}

/* The kubelet's UID of the pod; for a mirror pod it differs from the API's. */
static const char *uid_of(const json_t *pod)
{
    const char *uid = ANNOTATION(pod, "kubernetes.io/config.hash");
    return uid ? uid : lib_str(pod, "metadata.uid");
}

static void check_container(const json_t *pod, size_t i, const json_t *container,
                            const json_t *held)
{
    const char *resource, *name = lib_str(pod, "metadata.name");
    const char *uid = uid_of(pod);
    int n = limit(container, &resource);
    if (!n)
        return;
    cleanup_free char *who = xasprintf("%s/%s", name, lib_str(container, "name"));
    cleanup_free char *log = real_log(name, uid, lib_str(container, "name"));
    cleanup_json json_t *cards = promised(pod, i);
    json_t *ids = json_object_get(held, who);
    ck_assert_msg(log != NULL, "container %s has printed nothing", who);
    ck_assert_msg((int)json_array_size(ids) == n, "container %s holds %zu ids of %d", who,
                  json_array_size(ids), n);
    if (is_of_go(ids)) {
        variable_is(who, log, "NVIDIA_VISIBLE_DEVICES",
                    ANNOTATION(pod, "ALIYUN_COM_GPU_MEM_IDX"));
        note_compared(uid, lib_str(container, "name"));
        return;
    }
    compare_container(who, ids, log);
    check_ids(who, ids, cards, strcmp(resource, "gpu-count") == 0);
    variable_is(who, log, "ALIYUN_COM_GPU_MEM_POD",
                ANNOTATION(pod, "ALIYUN_COM_GPU_MEM_POD"));
    note_compared(uid, lib_str(container, "name"));
}

/* An init container has no entry in podresources and in the allocation. */
static void check_init(const json_t *pod, const json_t *container)
{
    const char *resource, *name = lib_str(pod, "metadata.name");
    const char *uid = uid_of(pod), *uuid;
    if (!limit(container, &resource))
        return;
    cleanup_free char *log = real_log(name, uid, lib_str(container, "name"));
    ck_assert_msg(log != NULL, "an init container of %s has printed nothing", name);
    cleanup_free char *visible = look_variable(log, "NVIDIA_VISIBLE_DEVICES");
    cleanup_json json_t *seen = set_of(visible);
    cleanup_json json_t *cards = set_of(ANNOTATION(pod, "gpushare/card-uuid"));
    json_t *v;
    ck_assert_uint_gt(json_object_size(seen), 0);
    json_object_foreach(seen, uuid, v)
    {
        if (!json_object_get(cards, uuid))
            note_wrong("an init container of %s sees %s, which was not promised to it",
                       name, uuid);
    }
    note_compared(uid, lib_str(container, "name"));
}

static size_t check_pod(const json_t *pod, const json_t *held, const json_t *books)
{
    const char *name = lib_str(pod, "metadata.name"), *uuid;
    const char *notes = ANNOTATION(pod, "gpushare/card-uuid");
    if (!notes)
        return 0;
    cleanup_json json_t *cards = set_of(notes);
    const json_t *entry = json_object_get(books, lib_str(pod, "metadata.uid"));
    json_t *v, *c;
    size_t i, n = json_array_size(lib_at(pod, "spec.containers"));
    json_int_t sum = 0;
    ck_assert_msg(json_object_size(entry) == json_object_size(cards),
                  "the ledger has pod %s on %zu cards, its annotations on %s", name,
                  json_object_size(entry), notes);
    json_object_foreach((json_t *)entry, uuid, v)
    {
        ck_assert_msg(json_object_get(cards, uuid) != NULL,
                      "the ledger has pod %s on %s, its annotations on %s", name, uuid,
                      notes);
        sum += json_integer_value(v);
    }
    ck_assert_int_eq(sum, atoi(ANNOTATION(pod, "ALIYUN_COM_GPU_MEM_POD")));
    json_array_foreach(lib_at(pod, "spec.containers"), i, c)
        check_container(pod, i, c, held);
    size_t sidecars = 0;
    json_array_foreach(lib_at(pod, "spec.initContainers"), i, c)
    {
        if (strcmp(lib_str(c, "restartPolicy"), "Always") == 0)
            check_container(pod, n + sidecars++, c, held);
        else
            check_init(pod, c);
    }
    return n + json_array_size(lib_at(pod, "spec.initContainers"));
}

static bool is_over(const json_t *pod)
{
    return strcmp(lib_str(pod, "status.phase"), "Failed") == 0;
}

/* Does every pod run, and has every container printed its environment? */
static bool at_rest(const json_t *pods, const json_t **who)
{
    size_t i, k;
    json_t *pod, *c;
    json_array_foreach(pods, i, pod)
    {
        *who = pod;
        if (is_over(pod))
            continue;
        if (strcmp(lib_str(pod, "status.phase"), "Running") != 0 ||
            *lib_str(pod, "metadata.deletionTimestamp"))
            return false;
        const char *assigned = ANNOTATION(pod, "ALIYUN_COM_GPU_MEM_ASSIGNED");
        if (assigned && strcmp(assigned, "true") != 0)
            return false;
        json_array_foreach(lib_at(pod, "spec.containers"), k, c)
        {
            cleanup_free char *log =
                real_log(lib_str(pod, "metadata.name"), uid_of(pod), lib_str(c, "name"));
            if (!log)
                return false;
        }
    }
    return true;
}

static json_t *await_rest(void)
{
    for (int64_t end = lib_now_ms() + 2 * LIB_WAIT_MS;; lib_pause()) {
        json_t *pods = cluster_items(CLUSTER_PODS);
        const json_t *who = NULL;
        if (at_rest(pods, &who))
            return pods;
        if (lib_now_ms() >= end) {
            cleanup_free char *status = json_dumps(lib_at(who, "status"), 0);
            ck_abort_msg("pod %s does not run: %s", lib_str(who, "metadata.name"),
                         status);
        }
        json_decref(pods);
    }
}

/* A restarted kubelet shows no pods at first. */
static bool shows_all(const json_t *held, const json_t *pods)
{
    size_t i, k;
    json_t *pod, *c;
    const char *resource;
    json_array_foreach(pods, i, pod)
    {
        json_array_foreach(lib_at(pod, "spec.containers"), k, c)
        {
            cleanup_free char *who =
                xasprintf("%s/%s", lib_str(pod, "metadata.name"), lib_str(c, "name"));
            if (limit(c, &resource) && !is_over(pod) && !json_object_get(held, who))
                return false;
        }
    }
    return true;
}

static json_t *await_held(const json_t *pods)
{
    json_t *held = NULL;
    lib_wait((json_decref(held), held = look_held()) && shows_all(held, pods));
    return held;
}

size_t look_check(void)
{
    cleanup_json json_t *pods = await_rest();
    oracle_agrees_within(&cluster.api, &cluster.extender, REST_MS);
    cleanup_json json_t *held = await_held(pods), *books = ledger();
    json_t *pod;
    size_t i, n = 0;
    json_array_foreach(pods, i, pod) n += is_over(pod) ? 0 : check_pod(pod, held, books);
    ck_assert(node_metric("mismatches_total") == 0); /* the plugin's audit */
    ck_assert_msg(count_wrong() == 0, "%zu containers are on another card",
                  count_wrong());
    return n;
}

/* -- podresources, called continuously -- */

static struct {
    pthread_t thread;
    atomic_bool stopped;
    size_t lists, gets, unanswered, most;
    json_t *uids; /* {pod: uid} */
} watch;

/* podresources has no UIDs; the tests do not reuse names. */
static void learn_uids(void)
{
    cleanup_buf struct buf reply = {0};
    if (peer_call(&cluster.api, "GET", CLUSTER_PODS, NULL, &reply) != 200)
        return;
    cleanup_json json_t *pods = json_loadb(reply.p, reply.n, 0, NULL);
    size_t i;
    json_t *pod;
    json_array_foreach(lib_at(pods, "items"), i, pod) json_object_set(
        watch.uids, lib_str(pod, "metadata.name"), lib_at(pod, "metadata.uid"));
}

static void compare_held(const json_t *held)
{
    const char *who;
    json_t *ids;
    bool strange = false;
    json_object_foreach((json_t *)held, who, ids)
    {
        cleanup_free char *pod = xmemdup0(who, strcspn(who, "/"));
        const char *uid = json_string_value(json_object_get(watch.uids, pod));
        strange |= !uid;
        cleanup_free char *log = uid ? real_log(pod, uid, strchr(who, '/') + 1) : NULL;
        if (log)
            compare_container(who, ids, log);
    }
    if (strange)
        learn_uids();
    if (json_object_size(held) > watch.most)
        watch.most = json_object_size(held);
}

static void *ask_always(void *arg)
{
    for (size_t turn = 0; !watch.stopped; turn++) {
        cleanup_json json_t *held = look_held();
        if (!held) {
            watch.unanswered++;
        } else {
            watch.lists++;
            if (turn % 8 == 0)
                compare_held(held);
        }
        const char *who = held ? json_object_iter_key(json_object_iter(held)) : NULL;
        if (who) {
            cleanup_free char *pod = xmemdup0(who, strcspn(who, "/"));
            cleanup_json json_t *one = held_by(pod);
            watch.gets++;
        }
        nanosleep(&(struct timespec){.tv_nsec = EVERY_MS * 1000000L}, NULL);
    }
    return arg;
}

void look_watch(void)
{
    watch.uids = json_object();
    watch.stopped = false;
    ck_assert_int_eq(pthread_create(&watch.thread, NULL, ask_always, NULL), 0);
}

void look_watch_end(void)
{
    watch.stopped = true;
    pthread_join(watch.thread, NULL);
    json_decref(watch.uids);
    printf(
        "measured: podresources was asked %zu times for all, %zu times for one pod (%zu "
        "without an answer); %zu containers at most\n",
        watch.lists, watch.gets, watch.unanswered, watch.most);
    fflush(stdout);
    ck_assert_uint_gt(watch.lists, 0);
}

/* -- pods that the kubelet refused -- */

static json_t *refused; /* {uid: true} */

size_t look_refusals(void (*again)(const char *name))
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS);
    json_t *pod;
    size_t i, fresh = 0;
    if (!refused)
        refused = json_object();
    json_array_foreach(pods, i, pod)
    {
        const char *uid = lib_str(pod, "metadata.uid"),
                   *name = lib_str(pod, "metadata.name");
        if (strcmp(lib_str(pod, "status.phase"), "Failed") != 0 ||
            json_object_get(refused, uid))
            continue;
        json_object_set_new(refused, uid, json_true());
        fprintf(stderr, "refused: %s: %s: %s\n", name, lib_str(pod, "status.reason"),
                lib_str(pod, "status.message"));
        fresh++;
        if (again && !lib_at(pod, "metadata.ownerReferences")) {
            cleanup_free char *path = xasprintf(CLUSTER_PODS "/%s", name);
            cluster_delete(path);
            again(name);
        }
    }
    return fresh;
}

size_t look_tell_refusals(void)
{
    look_refusals(NULL);
    printf("measured: pods that the kubelet refused: %zu\n", json_object_size(refused));
    fflush(stdout);
    return json_object_size(refused);
}

void look_finish(void)
{
    look_tell_refusals();
    look_tell();
    cluster_delete_pods();
    cluster_agrees();
    cleanup_json json_t *promised = oracle_promised(&cluster.api);
    ck_assert_uint_eq(json_object_size(promised), 0);
}
