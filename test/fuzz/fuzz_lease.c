/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Leases, and the ConfigMaps that exclude cards. A Lease is unchanged by a write and a
 * read. The cards of a ConfigMap are within bounds, and white space and empty items in
 * the list do not change them.
 */

#include "fuzz/fuzz.h"

#include <jansson.h>

#include "base/mem.h"
#include "domain/node.h"
#include "domain/keys.h"
#include "domain/lease.h"

/* buf_add_json would replace invalid UTF-8, but the reader has rejected that already. */
static void check_lease(const struct lease *lease, struct arena *a)
{
    struct lease again;
    struct jread j;
    cleanup_buf struct buf text = {0};
    lease_write(&text, lease);
    json_t *object = json_loadb(text.p, text.n, JSON_ALLOW_NUL, NULL);
    if (!object)
        fuzz_fail("the written Lease is not JSON");
    json_decref(object);
    jread_init(&j, text.p, text.n);
    lease_read(&j, a, &again);
    if (jread_finish(&j, NULL))
        fuzz_fail("the written Lease cannot be read");
    if (!span_eq(lease->meta.name, again.meta.name) ||
        !span_eq(lease->meta.ns, again.meta.ns) ||
        !span_eq(lease->meta.version, again.meta.version) ||
        !span_eq(lease->holder, again.holder) ||
        !span_eq(lease->renew_time, again.renew_time) ||
        !span_eq(lease->acquire_time, again.acquire_time) ||
        lease->duration_s != again.duration_s || lease->transitions != again.transitions)
        fuzz_fail("the Lease changes when written and read");
}

/* The same cards in a different notation: with spaces and empty items. */
static void check_cards(const struct unhealthy_cards *u, struct arena *a)
{
    struct unhealthy_cards again;
    struct jread j;
    cleanup_buf struct buf text = {0};
    buf_adds(&text, "{\"data\":{\"" KEY_UNHEALTHY_DATA "\":\"");
    for (size_t i = 0; i < u->n; i++)
        buf_printf(&text, "%s %d ,", i % 2 ? "," : "", (int)u->cards[i]);
    buf_adds(&text, "\"},\"metadata\":{\"name\":");
    buf_add_json(&text, u->meta.name);
    buf_adds(&text, "}}");
    jread_init(&j, text.p, text.n);
    node_unhealthy_read(&j, a, &again);
    if (jread_finish(&j, NULL) || again.damaged)
        fuzz_fail("a written list of cards cannot be read");
    if (!span_eq(u->node, again.node) || u->n != again.n ||
        (u->n && memcmp(u->cards, again.cards, u->n * sizeof *u->cards) != 0))
        fuzz_fail("the notation of the list changes its cards");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lease lease;
    struct unhealthy_cards u;
    struct jread j;
    cleanup_arena struct arena a = {0};
    jread_init(&j, (const char *)data, size);
    lease_read(&j, &a, &lease);
    if (!jread_finish(&j, NULL)) {
        if (!object_is_name(lease.meta.name))
            fuzz_fail("a Lease without a name");
        check_lease(&lease, &a);
    }
    jread_init(&j, (const char *)data, size);
    node_unhealthy_read(&j, &a, &u);
    if (jread_finish(&j, NULL))
        return 0;
    for (size_t i = 0; i < u.n; i++)
        if (u.cards[i] < 0 || u.cards[i] > 65535)
            fuzz_fail("a card out of range");
    if (!u.node.n && u.n && !span_eq(u.meta.name, SPAN(KEY_UNHEALTHY_PREFIX)))
        fuzz_fail("an unrelated ConfigMap excludes cards");
    if (u.node.n && !u.damaged)
        check_cards(&u, &a);
    return 0;
}
