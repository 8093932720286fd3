/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the sides report of the containers on the node, compared: podresources, the meaning of
 * tags, everything at rest, podresources under constant calls, and refused pods.
 */

#include "e2e-node/look.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "domain/ids.h"
#include "e2e-node/real.h"
#include "kube/podresources.h"
#include "wire/grpcc.h"

enum {
    CALL_MS = 5000,
    REST_MS = 30 * 1000,
    EVERY_MS = 20, /* the kubelet accepts 100 calls per second in total */
};

/* -- podresources -- */

static void add_pod(json_t *all, json_t *holders, const struct podres_pod *p)
{
    for (size_t i = 0; i < p->n_containers; i++) {
        const struct podres_container *c = &p->containers[i];
        json_t *ids = json_array();
        const char *name = lib_fmt("%.*s/%.*s", SPAN_ARG(p->name), SPAN_ARG(c->name));
        json_object_set_new(all, name, ids);
        for (size_t d = 0; d < c->n_devices; d++) {
            if (!span_starts(c->devices[d].resource, SPAN("aliyun.com/")) &&
                !span_eq(c->devices[d].resource, SPAN("nvidia.com/gpu")))
                continue;
            for (size_t k = 0; k < c->devices[d].n_ids; k++) {
                const char *id = lib_fmt("%.*s", SPAN_ARG(c->devices[d].ids[k]));
                const char *other = lib_in(holders, "", id);
                ck_assert_msg(!*other, "%s is held by %s and by %s", id, other, name);
                json_object_set_new(holders, id, json_string(name));
                json_array_append_new(ids, json_string(id));
            }
        }
        if (!json_array_size(ids))
            json_object_del(all, name);
    }
}

/* False: no reply. Retries if the kubelet limits the rate. */
static bool call(const char *method, struct span message, struct buf *reply)
{
    struct grpcc_request req = {.socket = NODE_PODRESOURCES,
                                .method = method,
                                .message = message,
                                .timeout_ms = CALL_MS,
                                .max_message = PODRES_MESSAGE_MAX};
    enum grpc_status status;
    while (buf_clear(reply), grpcc_call(&req, reply, &status, NULL)) {
        if (status != GRPC_RESOURCE_EXHAUSTED)
            return false;
        lib_pause();
    }
    return true;
}

json_t *look_held(void)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf reply = {0};
    json_t *all = lib_own(json_object()), *holders = lib_own(json_object());
    struct podres_list list;
    struct err err = {0};
    if (!call(PODRES_LIST, (struct span){0}, &reply))
        return NULL;
    ck_assert_done(proto_decode(&podres_list_type, buf_span(&reply), &a, &list, &err),
                   err);
    for (size_t i = 0; i < list.n; i++)
        if (span_eq(list.pods[i].ns, SPAN("default")))
            add_pod(all, holders, &list.pods[i]);
    return all;
}

/* Asks for this pod alone, which may be gone. */
static void ask_about(struct span pod)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf message = {0}, reply = {0};
    struct podres_pod shown;
    struct err err = {0};
    ck_assert_done(proto_encode(&podres_get_request_type,
                                &(struct podres_get_request){pod, SPAN("default")},
                                PODRES_MESSAGE_MAX, &message, &err),
                   err);
    if (!call(PODRES_GET, buf_span(&message), &reply))
        return;
    ck_assert_done(proto_decode(&podres_get_type, buf_span(&reply), &a, &shown, &err),
                   err);
    add_pod(lib_own(json_object()), lib_own(json_object()), &shown);
}

/* -- cards -- */

char *look_variable(const char *log, const char *name)
{
    size_t n = strlen(name);
    for (struct span rest = span_of(log); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        if (span_starts(line, span_of(name)) && line.n > n && line.p[n] == '=')
            return lib_fmt("%.*s", (int)(line.n - n - 1), line.p + n + 1);
    }
    return lib_fmt("%s", "");
}

void look_card(const char *pod)
{
    const char *log;
    lib_wait(strstr(log = cluster_kubectl("logs", pod), "that is all\n"));
    const char *card = look_variable(log, "NVIDIA_VISIBLE_DEVICES");
    bool known = false;
    for (int i = 0; i < NODE_CARDS; i++)
        known |= strcmp(card, node_cards[i].uuid) == 0;
    ck_assert_msg(known, "pod %s sees \"%s\"", pod, card);
    ck_assert_str_eq(lib_annotation(cluster_pod(pod), "gpushare/card-uuid"), card);
}

static json_t *set_of(const char *list)
{
    json_t *set = lib_own(json_object());
    for (struct span rest = span_of(list); rest.n;) {
        struct span one = span_cut(&rest, ',');
        json_object_setn_new(set, one.p, one.n, json_true());
    }
    return set;
}

/* The number of ids of each card: {uuid: n}; an id of no card of this node: {tag: n}. */
static json_t *cards_of(const json_t *ids)
{
    json_t *cards = lib_own(json_object()), *id;
    lib_each(id, ids) {
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

static bool has_same_keys(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *v;
    bool same = json_object_size(a) == json_object_size(b);
    json_object_foreach((json_t *)a, key, v) same &= json_object_get(b, key) != NULL;
    return same;
}

/* The container sees the cards whose ids it holds. */
static void compare_container(const char *name, const json_t *ids, const char *log)
{
    const char *visible = look_variable(log, "NVIDIA_VISIBLE_DEVICES");
    const json_t *held = cards_of(ids);
    ck_assert_msg(has_same_keys(set_of(visible), held),
                  "WRONG CARD: container %s holds ids of %s and sees %s", name,
                  lib_text(held, ""), visible);
}

static json_t *compared; /* {uid/container: true} */

void look_tell(void)
{
    printf("measured: containers that were compared, each on the card that the ledger "
           "has: %zu\n",
           json_object_size(compared));
    fflush(stdout);
}

/* -- all sides, while nothing changes -- */

/* {uid: {uuid: MiB}}. */
static json_t *ledger(void)
{
    json_t *all = lib_own(json_object()), *card, *pod;
    lib_each(card, lib_at(extender_node(&cluster.extender, NODE), "devs")) {
        lib_each(pod, lib_at(card, "pods")) {
            const char *uid = lib_str(pod, "uid");
            if (!json_object_get(all, uid))
                json_object_set_new(all, uid, json_object());
            json_object_set(json_object_get(all, uid), lib_str(card, "uuid"),
                            lib_at(pod, "mib"));
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
        if (strncmp(name, "aliyun.com/", 11) == 0 ||
            strcmp(name, "nvidia.com/gpu") == 0) {
            *resource = strchr(name, '/') + 1;
            return atoi(json_string_value(value));
        }
    }
    return 0;
}

/* The units that the annotations promise to the container, by card: {uuid: units}. */
static json_t *promised(const json_t *pod, size_t container)
{
    const char *note = lib_annotation(pod, "scheduler.framework.gpushare.allocation");
    json_t *cards = lib_own(json_object()), *units,
           *all = lib_at(lib_parse(note, strlen(note)), lib_fmt("%zu", container));
    const char *index;
    json_object_foreach(all, index, units)
    {
        int i = atoi(index);
        ck_assert_int_lt(i, NODE_CARDS);
        json_object_set(cards, node_cards[i].uuid, units);
    }
    return cards;
}

static json_int_t sum(const json_t *cards)
{
    const char *uuid;
    json_t *v;
    json_int_t sum = 0;
    json_object_foreach((json_t *)cards, uuid, v) sum += json_integer_value(v);
    return sum;
}

static void variable_is(const char *who, const char *log, const char *name,
                        const char *value)
{
    const char *is = look_variable(log, name);
    ck_assert_msg(strcmp(is, value) == 0, "container %s: %s is \"%s\", not \"%s\"", who,
                  name, is, value);
}

/* The output of the container; NULL: incomplete. The kubelet's UID of a mirror pod differs
 * from the API's. */
static const char *log_of(const json_t *pod, const json_t *container)
{
    const char *hash = lib_annotation(pod, "kubernetes.io/config.hash");
    return real_log(lib_str(pod, "metadata.name"),
                    *hash ? hash : lib_str(pod, "metadata.uid"),
                    lib_str(container, "name"));
}

/* log_of a container that is compared. */
static const char *begin_compare(const json_t *pod, const json_t *container,
                                 const char *who)
{
    const char *log = log_of(pod, container);
    ck_assert_msg(log != NULL, "container %s has printed nothing", who);
    if (!compared)
        compared = lib_own(json_object());
    json_object_set_new(compared, lib_fmt("%s/%s", lib_str(pod, "metadata.uid"), who),
                        json_true());
    return log;
}

static const char *who_is(const json_t *pod, const json_t *container)
{
    return lib_fmt("%s/%s", lib_str(pod, "metadata.name"), lib_str(container, "name"));
}

static void check_container(const json_t *pod, size_t i, const json_t *container,
                            const json_t *held)
{
    const char *resource, *who = who_is(pod, container);
    int n = limit(container, &resource);
    if (!n)
        return;
    const char *log = begin_compare(pod, container, who);
    const json_t *ids = json_object_get(held, who), *cards = cards_of(ids), *want;
    ck_assert_msg((int)json_array_size(ids) == n, "container %s holds %zu ids of %d", who,
                  json_array_size(ids), n);
    if (strstr(lib_str(ids, "0"), "-_-")) { /* of the Go plugin */
        variable_is(who, log, "NVIDIA_VISIBLE_DEVICES",
                    lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX"));
        return;
    }
    compare_container(who, ids, log);
    want = promised(pod, i);
    ck_assert_msg(strcmp(resource, "gpu-mem") == 0 ? json_equal(cards, want)
                                                   : has_same_keys(cards, want),
                  "WRONG CARD: container %s holds %s, promised are %s", who,
                  lib_text(cards, ""), lib_text(want, ""));
    if (strcmp(resource, "gpu-count") != 0)
        variable_is(who, log, "ALIYUN_COM_GPU_MEM_CONTAINER",
                    lib_fmt("%lld", (long long)sum(want)));
    variable_is(who, log, "ALIYUN_COM_GPU_MEM_POD",
                lib_annotation(pod, "ALIYUN_COM_GPU_MEM_POD"));
}

/* An init container has no entry in podresources and in the allocation. */
static void check_init(const json_t *pod, const json_t *container)
{
    const char *resource, *uuid, *who = who_is(pod, container);
    if (!limit(container, &resource))
        return;
    json_t *seen = set_of(
        look_variable(begin_compare(pod, container, who), "NVIDIA_VISIBLE_DEVICES"));
    const json_t *cards = set_of(lib_annotation(pod, "gpushare/card-uuid"));
    json_t *v;
    ck_assert_uint_gt(json_object_size(seen), 0);
    json_object_foreach(seen, uuid, v) ck_assert_msg(
        json_object_get(cards, uuid) != NULL,
        "WRONG CARD: init container %s sees %s, which was not promised to it", who, uuid);
}

static size_t check_pod(const json_t *pod, const json_t *held, const json_t *books)
{
    const char *name = lib_str(pod, "metadata.name"),
               *notes = lib_annotation(pod, "gpushare/card-uuid");
    if (!*notes)
        return 0;
    const json_t *entry = json_object_get(books, lib_str(pod, "metadata.uid"));
    json_t *c;
    size_t i, n = lib_size(pod, "spec.containers"), sidecars = 0;
    ck_assert_msg(has_same_keys(entry, set_of(notes)),
                  "the ledger has pod %s on %s, its annotations on %s", name,
                  lib_text(entry, ""), notes);
    ck_assert_int_eq(sum(entry), atoi(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_POD")) *
                                     atoi(lib_annotation(pod, "gpushare/memory-unit")));
    json_array_foreach(lib_at(pod, "spec.containers"), i, c)
        check_container(pod, i, c, held);
    lib_each(c, lib_at(pod, "spec.initContainers")) {
        if (strcmp(lib_str(c, "restartPolicy"), "Always") == 0)
            check_container(pod, n + sidecars++, c, held);
        else
            check_init(pod, c);
    }
    return n + lib_size(pod, "spec.initContainers");
}

static bool is_over(const json_t *pod)
{
    return strcmp(lib_str(pod, "status.phase"), "Failed") == 0;
}

/* Not, or no longer, on this node. */
static bool is_elsewhere(const json_t *pod)
{
    const char *node = lib_str(pod, "spec.nodeName");
    return is_over(pod) || (*node && strcmp(node, NODE) != 0);
}

/* Does every pod run, and has every container printed its environment? */
static bool at_rest(const json_t *pods, json_t **who)
{
    json_t *pod, *c;
    lib_each(pod, pods) {
        *who = pod;
        if (is_elsewhere(pod))
            continue;
        const char *assigned = lib_annotation(pod, "ALIYUN_COM_GPU_MEM_ASSIGNED");
        if (strcmp(lib_str(pod, "status.phase"), "Running") != 0 ||
            *lib_str(pod, "metadata.deletionTimestamp") ||
            (*assigned && strcmp(assigned, "true") != 0))
            return false;
        lib_each(c, lib_at(pod, "spec.containers"))
            if (!log_of(pod, c))
                return false;
    }
    return true;
}

/* A restarted kubelet shows no pods at first. */
static bool shows_all(const json_t *held, const json_t *pods)
{
    json_t *pod, *c;
    const char *resource;
    lib_each(pod, pods)
        lib_each(c, lib_at(pod, "spec.containers"))
            if (limit(c, &resource) && !is_elsewhere(pod) &&
                !json_object_get(held, who_is(pod, c)))
                return false;
    return true;
}

size_t look_check(void)
{
    const json_t *pods, *held, *books;
    json_t *pod;
    size_t n = 0;
    lib_wait_within(2 * LIB_WAIT_MS, at_rest(pods = cluster_list(CLUSTER_PODS), &pod),
                    "pod %s does not run: %s", lib_str(pod, "metadata.name"),
                    lib_text(pod, "status"));
    oracle_agrees_within(&cluster.api, &cluster.extender, REST_MS);
    lib_wait((held = look_held()) && shows_all(held, pods));
    books = ledger();
    lib_each(pod, pods)
        n += is_elsewhere(pod) ? 0 : check_pod(pod, held, books);
    ck_assert(node_metric("mismatches_total") == 0); /* the plugin's audit */
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
    json_t *pod;
    if (peer_call(&cluster.api, "GET", CLUSTER_PODS, NULL, &reply) != 200)
        return;
    lib_each(pod, lib_at(lib_parse(reply.p, reply.n), "items"))
        json_object_set(watch.uids, lib_str(pod, "metadata.name"),
                        lib_at(pod, "metadata.uid"));
}

static void compare_held(json_t *held)
{
    const char *who;
    json_t *ids;
    bool strange = false;
    json_object_foreach(held, who, ids)
    {
        const char *pod = lib_fmt("%.*s", (int)strcspn(who, "/"), who),
                   *uid = lib_in(watch.uids, "", pod),
                   *log = *uid ? real_log(pod, uid, strchr(who, '/') + 1) : NULL;
        strange |= !*uid;
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
        size_t mark = lib_mark();
        json_t *held = look_held();
        const char *who = json_object_iter_key(json_object_iter(held));
        watch.lists += held != NULL;
        watch.unanswered += !held;
        if (turn % 8 == 0)
            compare_held(held);
        if (who) {
            ask_about((struct span){who, strcspn(who, "/")});
            watch.gets++;
        }
        lib_release(mark);
        nanosleep(&(struct timespec){.tv_nsec = EVERY_MS * 1000000L}, NULL);
    }
    return arg;
}

void look_watch(void)
{
    watch.uids = lib_own(json_object());
    watch.stopped = false;
    ck_assert_int_eq(pthread_create(&watch.thread, NULL, ask_always, NULL), 0);
}

void look_watch_end(void)
{
    watch.stopped = true;
    pthread_join(watch.thread, NULL);
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
    json_t *pod;
    size_t fresh = 0;
    if (!refused)
        refused = lib_own(json_object());
    lib_each(pod, cluster_list(CLUSTER_PODS)) {
        const char *uid = lib_str(pod, "metadata.uid"),
                   *name = lib_str(pod, "metadata.name");
        if (!is_over(pod) || json_object_get(refused, uid))
            continue;
        json_object_set_new(refused, uid, json_true());
        fprintf(stderr, "refused: %s: %s: %s\n", name, lib_str(pod, "status.reason"),
                lib_str(pod, "status.message"));
        fresh++;
        if (again && !lib_at(pod, "metadata.ownerReferences")) {
            cluster_delete(lib_fmt(CLUSTER_PODS "/%s", name));
            again(name);
        }
    }
    return fresh;
}

void look_tell_refusals(void)
{
    look_refusals(NULL);
    printf("measured: pods that the kubelet refused: %zu\n", json_object_size(refused));
    fflush(stdout);
}

void look_finish(void)
{
    look_tell_refusals();
    look_tell();
    cluster_delete_pods();
    cluster_agrees();
    ck_assert_uint_eq(json_object_size(oracle_promised(&cluster.api, NULL)), 0);
}
