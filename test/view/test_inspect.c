/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jwrite.h"
#include "core/rig.h"
#include "domain/dialect.h"
#include "domain/objects.h"
#include "lib/program.h"
#include "view/inspect.h"

/* What inspect says of the shares of a card: promised to pods, and reserved for pods. */

enum { CARD_MIB = 100 };

static struct arena arena;
static struct ledger *ledger;

static void start(void)
{
    const struct ledger_settings s = {.unit_mib = 1, .external_tolerance_mib = 1024};
    struct scv scv = object_scv_even(&arena, "n1", 2, CARD_MIB);
    struct node node = object_node(
        &arena, quoted(&arena, "{'metadata':{'name':'n1'},'status':{'capacity':{"
                               "'" KEY_GPU_MEM "':'200','" KEY_GPU_CORE "':'200'}}}"));
    ledger = ledger_new(&s, 1);
    ledger_scv_seen(ledger, &scv, 0);
    ledger_node_seen(ledger, &node, 0);
}

static void stop(void)
{
    ledger_free(ledger);
    arena_fini(&arena);
}

static void reserve(const char *name, int card, uint8_t core)
{
    struct ledger_share share = {.card = card, .mib = 10};
    const struct request asked = {
        .kind = REQUEST_MEMORY, .cards = 1, .mib_per_card = 10, .compute_percent = core};
    const struct ledger_reservation one = {.uid = span_of(name),
                                           .ns = SPAN("default"),
                                           .name = span_of(name),
                                           .request = &asked,
                                           .shares = &share,
                                           .n_shares = 1};
    ledger_reserve(ledger, &one, SPAN("n1"));
}

static void place(const char *uid, int card, uint8_t core)
{
    struct pod pod = object_pod_mem(&arena, uid, 1);
    const struct request asked = {.kind = REQUEST_MEMORY,
                                  .cards = 1,
                                  .units = 20,
                                  .mib_per_card = 20,
                                  .compute_percent = core};
    const struct ledger_share share = {.card = card, .mib = 20};
    ledger_pod_place(ledger, ledger_pod_add(ledger, &pod, &asked, NULL), SPAN("n1"),
                     &share, 1);
}

static char *shown(void)
{
    cleanup_buf struct buf out = {0};
    view_inspect_write_node(&(struct jwrite){.out = &out}, ledger,
                            ledger_node_find(ledger, SPAN("n1")));
    return buf_take(&out);
}

TEST(reserved_compute_is_shown_beside_reserved_memory)
{
    start();
    place("p", 0, 30);
    reserve("r", 0, 40);
    reserve("s", 0, 5);
    reserve("m", 1, 0);
    cleanup_free char *text = shown();
    char *second = strstr(text, "{\"id\":1,");
    ck_assert_ptr_nonnull(second);
    ck_assert_contains(second, "\"reservedMiB\":10,\"reservations\":[{\"name\":\"m\"");
    ck_assert_lacks(second, "omputePercent");
    *second = '\0';
    ck_assert_contains(text, "\"mib\":20,\"computePercent\":30}],\"uuid\"");
    ck_assert_contains(text, "\"promisedComputePercent\":30,");
    ck_assert_contains(text, "\"reservedMiB\":20,\"reservedComputePercent\":45,"
                             "\"reservations\":[");
    ck_assert_contains(text, "\"uid\":\"r\",\"mib\":10,\"computePercent\":40}");
    ck_assert_contains(text, "\"uid\":\"s\",\"mib\":10,\"computePercent\":5}");
    stop();
}

TEST(what_connects_cards_is_a_row_of_words)
{
    start();
    struct scv scv = object_scv_even(&arena, "n1", 2, CARD_MIB);
    scv.cards[0].links = SPAN("X NV12");
    scv.cards[1].links = SPAN("NV12 X");
    scv.cards[1].has_numa_node = true;
    ledger_scv_seen(ledger, &scv, 0);
    cleanup_free char *text = shown();
    ck_assert_contains(text, ",\"links\":\"X NV12\"},{\"id\":1,");
    ck_assert_contains(text, ",\"links\":\"NV12 X\",\"numaNode\":0}]");
    scv.cards[1].links = SPAN("NV12 X X");
    ledger_scv_seen(ledger, &scv, 0);
    cleanup_free char *unknown = shown();
    ck_assert_lacks(unknown, "links");
    ck_assert_lacks(unknown, "numaNode");
    stop();
}

static const struct core *borrow(void *ctx)
{
    (void)ctx;
    return r.core;
}

static void give_back(void *ctx)
{
    (void)ctx;
}

/* The text is rendered again when its state changes, so it has no age. */
TEST(quotas_are_unknown_or_not)
{
    static const struct view_source source = {.read = borrow, .read_end = give_back};
    const char *states[2], *texts[2];
    for (int fresh = 0; fresh < 2; fresh++) {
        cleanup_buf struct buf state = {0}, text = {0};
        rig_new(
            (struct core_settings){.quotas = true, .ledger = {.dialect = &dialect_hami}});
        rig_lead();
        rig_list_end(CORE_QUOTAS);
        rig_see(rig_json("{'metadata':{'namespace':'d','name':'a','uid':'a'},'spec':{"
                         "'containers':[{'name':'c','resources':{'limits':{"
                         "'nvidia.com/gpu':'1','nvidia.com/gpumem':'1'}}}]}}"));
        r.now = step_now(); /* the view's time; the rig's is another */
        for (int kind = 0; kind < CORE_KINDS; kind++)
            rig_progress(kind);
        if (fresh)
            rig_progress(CORE_QUOTAS);
        view_inspect_state(&source, &state);
        view_inspect_write_cluster(&source, &text);
        states[fresh] = lib_fmt("%s", state.p);
        texts[fresh] = lib_fmt("%s", text.p);
    }
    ck_assert_str_ne(states[0], states[1]);
    ck_assert_contains(texts[0], "\"quota\":\"not ready: resourcequotas are unknown\"");
    ck_assert_lacks(texts[1], "\"quota\"");
}
