/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/look_priv.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "kube/podresources.h"
#include "wire/grpcc.h"

enum { CALL_MS = 5000 };

/* Shared by all threads. */
static struct {
    pthread_mutex_t lock;
    json_t *cards; /* {tag: uuid} */
    json_t *seen;  /* {uid/container: true}: already compared */
    atomic_size_t wrong;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

void look_note_wrong(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "WRONG CARD: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    atomic_fetch_add(&known.wrong, 1);
}

size_t look_wrong(void)
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
    struct grpcc_request req = {.socket = node_podresources(),
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
    ck_assert_done(podres_list_decode(buf_span(&reply), &a, &list, &err), err);
    json_t *all = json_object();
    for (size_t i = 0; i < list.n; i++)
        if (span_eq(list.pods[i].ns, SPAN("default")))
            add_pod(all, holders, &list.pods[i]);
    return all;
}

json_t *look_held_by(const char *pod)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf message = {0}, reply = {0};
    cleanup_json json_t *holders = json_object();
    struct podres_pod shown;
    struct err err = {0};
    ck_assert_done(
        podres_get_request_encode(SPAN("default"), span_of(pod), &message, &err), err);
    json_t *all = json_object();
    if (!call(PODRES_GET, buf_span(&message), &reply, &err))
        return all;
    ck_assert_done(podres_get_decode(buf_span(&reply), &a, &shown, &err), err);
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

json_t *look_set(const char *list)
{
    json_t *set = json_object();
    struct span rest = span_of(list);
    while (rest.n) {
        struct span one = span_cut(&rest, ',');
        json_object_setn_new(set, one.p, one.n, json_true());
    }
    return set;
}

json_t *look_tags(const json_t *ids)
{
    json_t *tags = json_object(), *id;
    size_t i;
    json_array_foreach(ids, i, id)
    {
        struct span rest = span_of(json_string_value(id));
        struct span tag = span_cut(&rest, '-');
        json_int_t n = json_integer_value(json_object_getn(tags, tag.p, tag.n));
        json_object_setn_new(tags, tag.p, tag.n, json_integer(n + 1));
    }
    return tags;
}

static const char *first(const json_t *object)
{
    return json_object_iter_key(json_object_iter((json_t *)object));
}

/* Records the card of a tag; a contradiction fails the test. */
static void learn(const char *name, const char *tag, const char *uuid)
{
    const char *other;
    json_t *card;
    json_object_foreach(known.cards, other, card)
    {
        const char *is = json_string_value(card);
        if ((strcmp(other, tag) == 0) == (strcmp(is, uuid) == 0))
            continue;
        look_note_wrong("container %s holds ids %s-* and sees %s; ids %s-* are of %s",
                        name, tag, uuid, other, is);
        return;
    }
    json_object_set_new(known.cards, tag, json_string(uuid));
}

void look_at_container(const char *name, const json_t *ids, const char *log)
{
    cleanup_free char *visible = look_variable(log, "NVIDIA_VISIBLE_DEVICES");
    cleanup_json json_t *cards = look_set(visible), *tags = look_tags(ids);
    const char *tag;
    json_t *n;
    ck_assert_msg(json_object_size(cards) == json_object_size(tags),
                  "container %s sees %s and holds ids of %zu cards", name, visible,
                  json_object_size(tags));
    pthread_mutex_lock(&known.lock);
    if (!known.cards)
        known.cards = json_object();
    if (json_object_size(tags) == 1)
        learn(name, first(tags), first(cards));
    json_object_foreach(tags, tag, n)
    {
        const char *uuid = json_string_value(json_object_get(known.cards, tag));
        if (uuid && !json_object_get(cards, uuid))
            look_note_wrong("container %s holds ids of card %s and sees %s", name, uuid,
                            visible);
    }
    pthread_mutex_unlock(&known.lock);
}

bool look_is_of_go(const json_t *ids)
{
    const char *id = json_string_value(json_array_get(ids, 0));
    return id && strstr(id, "-_-");
}

void look_note(const char *uid, const char *container)
{
    cleanup_free char *key = xasprintf("%s/%s", uid, container);
    pthread_mutex_lock(&known.lock);
    if (!known.seen)
        known.seen = json_object();
    json_object_set_new(known.seen, key, json_true());
    pthread_mutex_unlock(&known.lock);
}

size_t look_count(void)
{
    pthread_mutex_lock(&known.lock);
    size_t n = json_object_size(known.seen);
    pthread_mutex_unlock(&known.lock);
    return n;
}

const char *look_card(const char *tag)
{
    pthread_mutex_lock(&known.lock);
    const char *uuid = json_string_value(json_object_get(known.cards, tag));
    for (int i = 0; uuid && i < NODE_CARDS; i++)
        if (strcmp(node_cards[i].uuid, uuid) == 0)
            uuid = node_cards[i].uuid; /* constant */
    pthread_mutex_unlock(&known.lock);
    return uuid;
}

void look_tell(void)
{
    printf(
        "measured: containers that were compared: %zu; on another card than the ledger "
        "has: %zu\n",
        look_count(), look_wrong());
    fflush(stdout);
    ck_assert_uint_eq(look_wrong(), 0);
}
