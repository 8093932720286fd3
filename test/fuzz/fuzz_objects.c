/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The readers of API objects on arbitrary bytes: no crash, no overread, and accepted
 * objects are consistent. The first byte of a line selects the kind. An Scv or a Lease is
 * unchanged by a write and a read; errors in the details that only scv_read_all reads do not affect
 * scv_read.
 */

#include "fuzz/fuzz.h"

#include "domain/dialect.h"
#include "domain/lease.h"
#include "domain/ledger.h"
#include "domain/node.h"
#include "domain/promise.h"
#include "domain/quantity.h"
#include "placement/reason.h"
#include "placement/score.h"

static void use_pod(struct ledger *l, const struct pod *pod, struct arena *a)
{
    struct request request;
    struct promise promise = {0};
    struct err err = {0};
    const struct request_rules rules = {.unit_mib = 1024};
    cleanup_buf struct buf text = {0};
    int bad = request_of(pod, &rules, a, &request, &err);
    bool devices = request.kind == REQUEST_DEVICES;
    fuzz_fail_if(bad && request.kind != REQUEST_NONE, "an invalid request has a kind");
    fuzz_fail_if(
        request.kind != REQUEST_NONE &&
            (request.cards < 1 || (!devices && request.cards > REQUEST_MAX_CARDS)),
        "a number of cards out of range");
    fuzz_fail_if(request.kind == REQUEST_MEMORY && request.units % request.cards,
                 "units that cannot be divided evenly");
    request_write(&text, &request, 1024);
    if (!pod->meta.uid.n)
        return;
    if (pod->node.n) {
        int unreadable = 0;
        bool hami =
            promise_of_hami(pod, &dialect_hami, true, a, &promise, &unreadable, &err);
        if (!hami)
            promise_of(pod, a, &promise);
        bad = promise_of_bound(pod, &promise, &rules, a, &request, &err);
        fuzz_fail_if(hami && (limits_of(pod).mem || request.kind == REQUEST_DEVICES ||
                              request.kind == REQUEST_NONE || (unreadable && promise.n)),
                     "a pod of HAMi with two promises, or none");
    }
    struct ledger_pod *p = ledger_pod_add(l, pod, &request, bad ? err.msg : NULL);
    if (promise.n) {
        int64_t sum = 0;
        struct ledger_share *shares = arena_zalloc(a, promise.n * sizeof *shares);
        for (size_t i = 0; i < promise.n; i++) {
            shares[i].card = promise.shares[i].card;
            shares[i].uuid = promise.shares[i].uuid;
            shares[i].mib = promise_share_mib(&promise, i, &request, 1024);
            shares[i].percent = promise.shares[i].percent;
            shares[i].compute_percent = promise.shares[i].compute_percent;
            fuzz_fail_if(shares[i].mib < 0, "a negative share");
            sum += shares[i].mib;
        }
        /* Whole cards, which limits of both ask for, count whatever their size is. */
        fuzz_fail_if(request.kind != REQUEST_CARDS &&
                         sum < limits_of(pod).mem * rules.unit_mib,
                     "a bound pod counts for less than its limits");
        ledger_pod_place(l, p, pod->node, shares, (uint32_t)promise.n);
    }
    ledger_pod_running(l, p, true);
}

/* Alone, a node has all points there are, or none because it cannot take the request. */
static void check_points(const struct ledger *l, const struct ledger_node *node,
                         const struct request *ask)
{
    static struct score_scratch room;
    const struct ledger_node *const nodes[] = {node, NULL};
    const struct score_pod pod = {.pod.request = ask};
    bool fits = select_fit(node, ask) == FIT_YES;
    for (int p = 0; p < SCORE_POLICIES; p++) {
        int points[2] = {-1, -1};
        score_nodes((enum score_policy)p, &pod, ledger_requests(l), nodes, 2, &room,
                    points);
        fuzz_fail_if(points[0] < 0 || points[0] > SCORE_MAX || points[1] != 0,
                     "a score out of range");
        bool stretched = p == SCORE_SCV || p == SCORE_FGD;
        fuzz_fail_if(stretched &&
                         ask->kind != REQUEST_DEVICES && /* NVIDIA's plugin chooses */
                         points[0] != (fits ? SCORE_MAX : 0),
                     "a wrong score for the only node");
    }
}

static void check_node(const struct ledger *l, struct span name)
{
    static const struct request asks[] = {
        {.kind = REQUEST_MEMORY, .cards = 1, .units = 1, .mib_per_card = 1024},
        {.kind = REQUEST_MEMORY, .cards = 3, .units = 3, .mib_per_card = 1024},
        {.kind = REQUEST_CARDS, .cards = 2},
        {.kind = REQUEST_MEMORY, .cards = 1, .mib_per_card = 9, .models = {"T4", 2}},
        {.kind = REQUEST_CARDS, .cards = 1, .clock_mhz = 5001, .clock_exact = true},
        {.kind = REQUEST_DEVICES, .cards = 2, .models = {"T4, V100", 8}, .clock_mhz = 1},
    };
    const struct ledger_node *node = ledger_node_find(l, name);
    for (const struct ledger_pod *pod = ledger_first_pod(l); node && pod;
         pod = ledger_next_pod(l, pod))
        fuzz_fail_if(terms_judge(pod->terms, NULL, name) == TERMS_TAINTS,
                     "a node without taints is excluded by them");
    for (uint32_t i = 0; node && i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        fuzz_fail_if(card->free_mib < 0 || card->free_mib > card->total_mib,
                     "free memory out of range");
        fuzz_fail_if(i && card->index <= node->cards[i - 1].index,
                     "the cards are not sorted");
    }
    for (const struct request *ask = asks; node && ask < asks + ARRAY_LEN(asks); ask++) {
        cleanup_buf struct buf why = {0};
        check_points(l, node, ask);
        enum fit fit = select_fit(node, ask);
        struct select_view view;
        uint64_t chosen;
        select_view(&view, node, NULL, SELECT_AS_IS);
        select_cards(&view, ask, SELECT_ALL_CARDS, &chosen);
        fuzz_fail_if(ask->kind != REQUEST_DEVICES && (chosen != 0) != (fit == FIT_YES),
                     "cards are chosen on a node where the request does not fit, or the "
                     "reverse");
        for (; chosen; chosen &= chosen - 1) {
            const struct card *card = &node->cards[__builtin_ctzll(chosen)];
            fuzz_fail_if(!request_accepts_card(ask, card->kind),
                         "a chosen card does not match the request");
        }
        reason_add(&why, node, ask, fit);
        for (size_t k = 0; k < why.n; k++)
            fuzz_fail_if(why.p[k] == '"' || why.p[k] == '\\' ||
                             (unsigned char)why.p[k] < 0x20,
                         "a reason that needs escapes in a JSON string");
    }
}

static bool read_all(struct span text, struct arena *a, struct scv *scv)
{
    struct jread j;
    jread_init(&j, text.p, text.n);
    scv_read_all(&j, a, scv);
    return jread_finish(&j, NULL) == 0;
}

static void check_scv(struct span text, const struct scv *plain, bool ok, struct arena *a)
{
    struct scv scv, again;
    cleanup_buf struct buf once = {0}, twice = {0};
    if (!read_all(text, a, &scv))
        return;
    fuzz_fail_if(!ok || scv.n_cards != plain->n_cards ||
                     !span_eq(scv.meta.name, plain->meta.name) ||
                     scv.has_update_time != plain->has_update_time ||
                     scv.update_time != plain->update_time,
                 "scv_read and scv_read_all differ");
    for (size_t i = 0; i < scv.n_cards; i++) {
        const struct scv_card *card = &scv.cards[i], *other = &plain->cards[i];
        fuzz_fail_if(card->id != other->id || other->has_temperature ||
                         other->has_utilization ||
                         scv_card_used(card) != scv_card_used(other) ||
                         memcmp(&card->spec, &other->spec, sizeof card->spec) != 0,
                     "scv_read and scv_read_all have different cards");
    }
    if (scv.has_update_time &&
        (scv.update_time < -62135596800 || scv.update_time > 253402300799))
        return; /* years beyond RFC 3339, because of a time zone */
    scv_write(&once, &scv);
    json_t *object = json_loadb(once.p, once.n, JSON_ALLOW_NUL, NULL);
    fuzz_fail_if(!object, "the written Scv is not JSON");
    json_decref(object);
    fuzz_fail_if(!read_all(buf_span(&once), a, &again), "the written Scv cannot be read");
    scv_write(&twice, &again);
    fuzz_check_same(&once, &twice, "the Scv changes when written and read");
}

/* buf_add_json would replace invalid UTF-8, but the reader has rejected that already. */
static void check_lease(const struct lease *lease, struct arena *a)
{
    struct lease again;
    struct jread j;
    cleanup_buf struct buf once = {0}, twice = {0};
    lease_write(&once, lease);
    jread_init(&j, once.p, once.n);
    lease_read(&j, a, &again);
    fuzz_fail_if(jread_finish(&j, NULL), "the written Lease cannot be read");
    lease_write(&twice, &again);
    fuzz_check_same(&once, &twice, "the Lease changes when written and read");
}

/* The same Node as an autoscaler would send it. */
static void check_template(const struct ledger *l, struct span text)
{
    struct node_cards cards = {0};
    struct ledger *alone = ledger_of_template(text, ledger_settings(l), &cards, NULL);
    if (!alone)
        return;
    const struct ledger_node *node = ledger_node_at(alone, 0);
    fuzz_fail_if(!ledger_is_template(text) || !node || node->n_cards != cards.n ||
                     cards.n < 1 || cards.n > SCV_MAX_CARDS ||
                     node->best_free_mib != cards.mib || cards.mib < 1 ||
                     cards.mib > NODE_CARD_MIB_MAX,
                 "the cards of a template Node are not those that it names");
    check_node(alone, node->name);
    ledger_free(alone);
}

/* Returns the name of its node; empty: it is invalid. */
static struct span read_one(struct ledger *l, char kind, struct span text,
                            struct arena *a)
{
    struct node node;
    struct scv scv;
    struct lease lease;
    struct pod pod;
    struct unhealthy_cards u;
    struct jread j;
    bool good;
    jread_init(&j, text.p, text.n);
#define IS_READ(call) ((call), jread_finish(&j, NULL) == 0)
    switch (kind) {
    case 'n':
        if (!IS_READ(node_read(&j, a, &node)))
            break;
        ledger_node_seen(l, &node, 1);
        check_template(l, text);
        return node.meta.name;
    case 's':
        good = IS_READ(scv_read(&j, a, &scv));
        check_scv(text, &scv, good, a);
        if (!good)
            break;
        ledger_scv_seen(l, &scv, 1);
        return scv.meta.name;
    case 'l':
        if (!IS_READ(lease_read(&j, a, &lease)))
            break;
        check_lease(&lease, a);
        ledger_lease_seen(l, &lease, 1);
        return lease.meta.name;
    case 'c':
        if (!IS_READ(node_unhealthy_read(&j, a, &u)) || !u.node.n)
            break;
        ledger_unhealthy_seen(l, &u, 1);
        return u.node;
    default:
        if (!IS_READ(pod_read(&j, a, &pod)))
            break;
        use_pod(l, &pod, a);
        return pod.node;
    }
    return (struct span){0};
}

/* Several objects, one per line, in one ledger. */
void fuzz_input(struct span in)
{
    struct ledger *l = ledger_new(
        &(struct ledger_settings){.unit_mib = 1024, .external_tolerance_mib = 1024}, 3);
    cleanup_arena struct arena a = {0};
    int64_t value;
    struct span text = {in.p, in.n < 40 ? in.n : 40};
    fuzz_fail_if(quantity_read(text, &value, NULL) == 0 && value < 0,
                 "a negative quantity");
    while (in.n) {
        struct span line = span_cut(&in, '\n');
        if (line.n < 2)
            continue;
        struct span node =
            read_one(l, *line.p, (struct span){line.p + 1, line.n - 1}, &a);
        if (node.n)
            check_node(l, node);
    }
    const struct ledger_node *node;
    for (size_t at = 0; (node = ledger_unlisted(l, LEDGER_SCV, 2, &at));)
        ledger_object_deleted(l, LEDGER_SCV, node->name);
    ledger_free(l);
}
