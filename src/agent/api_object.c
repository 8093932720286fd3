/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the Scv, the Lease and the Node as the publisher needs them. */
#include "agent/api_object.h"

#include "base/mem.h"

/* -- metadata -- */

static void read_meta(struct jread *j, struct arena *a, struct api_object *o)
{
    const struct object_field message = {OBJECT_ANNOTATION, SPAN(KEY_MESSAGE),
                                         &o->message};
    struct span raw;
    struct jread inner;
    struct jread_str key;
    if (!jread_raw(j, &raw))
        return;
    jread_init(&inner, raw.p, raw.n);
    object_meta_read(&inner, a, &o->meta, &message, 1);
    jread_init(&inner, raw.p, raw.n);
    jread_object(&inner, "metadata");
    while (jread_member(&inner, &key)) {
        if (!jread_key_is(key, "ownerReferences")) {
            jread_skip(&inner);
            continue;
        }
        jread_array(&inner, "metadata.ownerReferences");
        for (; jread_item(&inner); o->owned = true)
            jread_skip(&inner);
    }
}

/* -- spec and status -- */

static void read_spec(struct jread *j, struct api_object *o)
{
    struct jread_str key;
    jread_object(j, "spec");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "updateInterval"))
            o->has_interval = jread_i64(j, "spec.updateInterval", &o->interval_ms);
        else
            jread_skip(j);
    }
}

static void read_cards(struct span object, struct arena *a, struct api_object *o)
{
    struct jread j;
    jread_init(&j, object.p, object.n);
    scv_read_all(&j, a, &o->scv);
    if (jread_finish(&j, NULL))
        o->scv = (struct scv){0};
}

static void read_object(struct span bytes, struct arena *a, struct api_object *o)
{
    struct jread j;
    struct jread_str key;
    *o = (struct api_object){0};
    jread_init(&j, bytes.p, bytes.n);
    jread_object(&j, "object");
    while (jread_member(&j, &key)) {
        if (jread_key_is(key, "metadata"))
            read_meta(&j, a, o);
        else if (jread_key_is(key, "spec"))
            read_spec(&j, o);
        else if (jread_key_is(key, "status"))
            jread_raw(&j, &o->status);
        else
            jread_skip(&j);
    }
}

static int check(const struct api_object *o, struct err *err)
{
    if (object_is_name(o->meta.name))
        return 0;
    return err_set(err, ERR_INVALID, "the object has no name");
}

int api_object_read(struct span bytes, struct arena *a, struct api_object *o,
                    struct err *err)
{
    struct jread j;
    *o = (struct api_object){0};
    jread_init(&j, bytes.p, bytes.n);
    jread_skip(&j);
    if (jread_finish(&j, err))
        return -1;
    read_object(bytes, a, o);
    return check(o, err);
}

int api_object_read_list(struct span bytes, struct arena *a, struct api_object *o,
                         bool *found, struct span *version, struct err *err)
{
    struct jread j;
    struct jread_str key;
    struct object_meta meta = {0};
    struct span item = {0};
    *found = false;
    jread_init(&j, bytes.p, bytes.n);
    jread_object(&j, "list");
    while (jread_member(&j, &key)) {
        if (jread_key_is(key, "metadata")) {
            object_meta_read(&j, a, &meta, NULL, 0);
        } else if (jread_key_is(key, "items")) {
            jread_array(&j, "items");
            while (jread_item(&j))
                jread_raw(&j, &item);
        } else {
            jread_skip(&j);
        }
    }
    if (jread_finish(&j, err))
        return -1;
    *version = meta.version;
    *found = item.n > 0;
    if (!*found)
        return 0;
    read_object(item, a, o);
    read_cards(item, a, o);
    return check(o, err);
}

void api_object_status_patch(struct buf *out, struct span status)
{
    static const char *const names[] = {
        "cardList", "cardNumber",  "cudaVersion",    "driverVersion", "freeMemorySum",
        "podList",  "processList", "totalMemorySum", "updateTime"};
    bool present[ARRAY_LEN(names)] = {0}, any = false;
    struct jread j;
    struct jread_str key;
    jread_init(&j, status.p, status.n);
    jread_object(&j, "status");
    while (jread_member(&j, &key)) {
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            present[i] |= jread_str_eq(key, span_of(names[i]));
        any = true;
        jread_skip(&j);
    }
    buf_add(out, status.p, status.n - 1); /* without the closing brace */
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (present[i])
            continue;
        buf_printf(out, "%s\"%s\":null", any ? "," : "", names[i]);
        any = true;
    }
    buf_addc(out, '}');
}
