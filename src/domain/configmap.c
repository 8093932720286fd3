/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/configmap.h"

#include "domain/keys.h"

enum {
    CARDS_MAX = 256,
};

static void read_list(struct arena *a, struct span text, struct unhealthy_cards *u)
{
    u->n = 0;
    u->cards = arena_alloc(a, CARDS_MAX * sizeof *u->cards);
    while (text.p) {
        struct span item = span_trim(span_cut(&text, ','));
        int64_t index;
        if (!item.n)
            continue;
        if (!span_i64(item, &index) || index < 0 || index > 65535 || u->n == CARDS_MAX) {
            u->damaged = true;
            return;
        }
        u->cards[u->n++] = (int32_t)index;
    }
}

static void read_data(struct jread *j, struct arena *a, struct span *gpus)
{
    struct jread_str key;
    jread_object(j, "data");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, KEY_UNHEALTHY_DATA))
            jread_text(j, "data.gpus", a, gpus);
        else
            jread_skip(j);
    }
}

void unhealthy_cards_read(struct jread *j, struct arena *a, struct unhealthy_cards *u)
{
    struct jread_str key;
    struct span gpus = {0}, prefix = SPAN(KEY_UNHEALTHY_PREFIX);
    *u = (struct unhealthy_cards){0};
    jread_object(j, "configmap");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, a, &u->meta, NULL, 0);
        else if (jread_key_is(key, "data"))
            read_data(j, a, &gpus);
        else
            jread_skip(j);
    }
    object_meta_check(j, &u->meta);
    if (!span_starts(u->meta.name, prefix))
        return;
    u->node = (struct span){u->meta.name.p + prefix.n, u->meta.name.n - prefix.n};
    read_list(a, gpus, u);
}
