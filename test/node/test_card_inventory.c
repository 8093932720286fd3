/* SPDX-License-Identifier: Apache-2.0 */
#include "node/card_inventory.h"

#include "node/samples.h"

static struct card_inventory *card_inventory;
static struct arena arena;

#define CARD(n)  "{'uuid':'GPU-" #n "','model':'T4','memoryTotal':9437184}"
#define BOTH     CARD(0) "," CARD(1)
#define AT(i, n) "{'index':" #i ",'uuid':'GPU-" #n "','memoryTotal':9437184}"
#define STATE(n, s, w)                                                                   \
    "{'uuid':'GPU-" #n "','memoryTotal':9437184,'state':'" s "','why':'" w "'}"

static void begin(void)
{
    static const struct card_inventory_settings settings = {
        .keep_lost_ms = 100000,
        .health = {.unhealthy_after_ms = 3000,
                   .healthy_after_ms = 30000,
                   .xid_hold_ms = 600000}};
    card_inventory = card_inventory_new(&settings);
}

static void end(void)
{
    card_inventory_free(card_inventory);
    arena_fini(&arena);
}

/* "0:GPU-0+ 1:GPU-1-": index, uuid, health. */
static void shows(const char *want)
{
    cleanup_buf struct buf got = {0};
    struct scv scv = {0};
    card_inventory_report(card_inventory, &arena, &scv);
    for (size_t i = 0; i < scv.n_cards; i++)
        buf_printf(&got, "%s%d:%.*s%c", i ? " " : "", (int)scv.cards[i].id,
                   SPAN_ARG(scv.cards[i].uuid), scv.cards[i].healthy ? '+' : '-');
    ck_assert_span_eq(buf_span(&got), want);
}

static void look(int64_t now_ms, const char *cards, const char *want)
{
    card_inventory_sample(card_inventory, now_ms, sample_of(cards));
    shows(want);
}

static void says(const char *want)
{
    cleanup_buf struct buf got = {0};
    card_inventory_message(card_inventory, &got);
    ck_assert_span_eq(buf_span(&got), want);
}

TEST(a_healthy_card_can_have_a_message)
{
    look(0, CARD(0) "," STATE(1, "warning", "a reset is due"), "0:GPU-0+ 1:GPU-1+");
    says("GPU1: a reset is due");
    look(1000,
         STATE(0, "warning", "so it is here") "," STATE(1, "unreadable", "no memory"),
         "0:GPU-0+ 1:GPU-1+");
    says("GPU0: so it is here; GPU1: a reset is due"); /* tolerated */
    look(2000, CARD(0) "," STATE(1, "not-ready", "no fabric"), "0:GPU-0+ 1:GPU-1-");
    says("GPU1 is Unhealthy: no fabric");
    look(3000, CARD(0) "," STATE(1, "warning", "a reset is due"), "0:GPU-0+ 1:GPU-1-");
    says("GPU1 is Unhealthy: no fabric");
    look(40000, BOTH, "0:GPU-0+ 1:GPU-1+");
    says("");
    look(41000, CARD(0) "," STATE(1, "warning", "a reset is due"), "0:GPU-0+ 1:GPU-1+");
    look(42000, CARD(0), "0:GPU-0+ 1:GPU-1-");
    says("GPU1 is Unhealthy: NVML no longer lists the card");
}

/* With the reason of `second`. */
static void look_unchecked(int64_t now_ms, const char *second, const char *unchecked)
{
    const struct gpu_sample *s = sample_of(lib_fmt("%s,%s", CARD(0), second));
    s->cards[0].events = true;
    strcpy(s->cards[1].unchecked, unchecked);
    card_inventory_sample(card_inventory, now_ms, s);
    ck_assert(card_inventory_has_events(card_inventory, 0));
    ck_assert(!card_inventory_has_events(card_inventory, 1));
}

TEST(a_check_that_cannot_run_is_a_message)
{
    look_unchecked(0, CARD(1), "its XIDs are not watched: Not Supported (3)");
    shows("0:GPU-0+ 1:GPU-1+");
    says("GPU1: its XIDs are not watched: Not Supported (3)");
    look_unchecked(1000, STATE(1, "warning", "a reset is due"), "its rows are unknown");
    says("GPU1: a reset is due; its rows are unknown");
    look_unchecked(2000, STATE(1, "ecc", "a row"), "its rows are unknown");
    says("GPU1 is Unhealthy: a row");
    look(3000, "", "0:GPU-0- 1:GPU-1-");
    ck_assert(!card_inventory_has_events(card_inventory, 0));
}

/* GPU-0 at index 0, GPU-1 at index 1, a card without UUID at index 2, an instance of
 * GPU-m, and GPU-9, which had index 1 and is lost. */
TEST(the_cards_that_an_event_concerns)
{
    static const struct {
        const char *name, *uuid;
        int32_t index;
        const char *shows;
    } events[] = {
        {"a UUID: that card", "GPU-1", -1, "0:GPU-0+ 1:GPU-1- 2:+ 3:GPU-9- 88:MIG-a+"},
        {"a UUID counts before the index", "GPU-0", 1,
         "0:GPU-0- 1:GPU-1+ 2:+ 3:GPU-9- 88:MIG-a+"},
        {"a lost card has its events, too", "GPU-9", -1,
         "0:GPU-0+ 1:GPU-1+ 2:+ 3:GPU-9- 88:MIG-a+"},
        {"the UUID of no card: none", "GPU-7", 0,
         "0:GPU-0+ 1:GPU-1+ 2:+ 3:GPU-9- 88:MIG-a+"},
        {"a card in MIG mode, which is none: its instances", "GPU-m", 0,
         "0:GPU-0+ 1:GPU-1+ 2:+ 3:GPU-9- 88:MIG-a-"},
        {"an index: the present card that has it", "", 1,
         "0:GPU-0+ 1:GPU-1- 2:+ 3:GPU-9- 88:MIG-a+"},
        {"an index of a card without UUID", "", 2,
         "0:GPU-0+ 1:GPU-1+ 2:- 3:GPU-9- 88:MIG-a+"},
        {"an index that no present card has: every card", "", 5,
         "0:GPU-0- 1:GPU-1- 2:- 3:GPU-9- 88:MIG-a-"},
        {"neither: every card", "", -1, "0:GPU-0- 1:GPU-1- 2:- 3:GPU-9- 88:MIG-a-"},
    };
    array_items(event, events) {
        struct gpu_event e = {.kind = GPU_EVENT_ECC, .index = event->index};
        strcpy(e.uuid, event->uuid);
        end();
        begin();
        look(0, AT(1, 9), "1:GPU-9+");
        look(1,
             BOTH ",{'index':2,'memoryTotal':9437184},"
                  "{'index':3,'uuid':'GPU-m','migMode':1,'memoryTotal':9437184},"
                  "{'index':88,'uuid':'MIG-a','parentUUID':'GPU-m','migProfile':'1g.5gb',"
                  "'memoryTotal':9437184}",
             "0:GPU-0+ 1:GPU-1+ 2:+ 3:GPU-9- 88:MIG-a+");
        bool any = card_inventory_event(card_inventory, 2, &e);
        shows(event->shows);
        ck_assert_msg(any == (strcmp(event->uuid, "GPU-7") != 0), "%s", event->name);
    }
}

TEST(an_unreadable_card_is_tolerated)
{
    look(0, BOTH, "0:GPU-0+ 1:GPU-1+");
    look(1000, CARD(0) "," STATE(1, "unreadable", "no memory"), "0:GPU-0+ 1:GPU-1+");
    look(2000, BOTH, "0:GPU-0+ 1:GPU-1+");
    look(3000, CARD(0) "," STATE(1, "unreadable", "no memory"), "0:GPU-0+ 1:GPU-1+");
    says("");
    look(6000, CARD(0) "," STATE(1, "unreadable", "no memory"), "0:GPU-0+ 1:GPU-1-");
    says("GPU1 is Unhealthy: no memory");
    look(7000, STATE(0, "lost", "off the bus") "," CARD(1), "0:GPU-0- 1:GPU-1-");
    look(37000, STATE(0, "lost", "off the bus") "," CARD(1), "0:GPU-0- 1:GPU-1+");
    says("GPU0 is Unhealthy: off the bus");
}

TEST(a_missing_card_stays_and_gets_a_free_index)
{
    look(0, BOTH "," CARD(2), "0:GPU-0+ 1:GPU-1+ 2:GPU-2+");
    /* NVML is reopened and numbers the other cards from 0. */
    look(1000, AT(0, 0) "," AT(1, 2), "0:GPU-0+ 1:GPU-2+ 2:GPU-1-");
    ck_assert(card_inventory_any_lost(card_inventory));
    says("GPU2 is Unhealthy: NVML no longer lists the card");
    look(2000, AT(0, 0) "," AT(1, 2), "0:GPU-0+ 1:GPU-2+ 2:GPU-1-");
    /* A new card takes its place in the row, and it moves on. */
    look(3000, AT(0, 0) "," AT(1, 2) "," AT(2, 9), "0:GPU-0+ 1:GPU-2+ 2:GPU-9+ 3:GPU-1-");
    /* It comes back. */
    look(4000, AT(0, 0) "," AT(1, 1) "," AT(2, 2) "," AT(3, 9),
         "0:GPU-0+ 1:GPU-1- 2:GPU-2+ 3:GPU-9+");
    ck_assert(!card_inventory_any_lost(card_inventory));
    look(34000, AT(0, 0) "," AT(1, 1) "," AT(2, 2) "," AT(3, 9),
         "0:GPU-0+ 1:GPU-1+ 2:GPU-2+ 3:GPU-9+");
}

/* The cards of this sample, and their rows in the Scv: "X NV2|NV2 X". */
static void rows(int64_t now_ms, const char *cards, const char *want)
{
    cleanup_buf struct buf got = {0};
    struct scv scv = {0};
    card_inventory_sample(card_inventory, now_ms, sample_of(cards));
    card_inventory_report(card_inventory, &arena, &scv);
    for (size_t i = 0; i < scv.n_cards; i++)
        buf_printf(&got, "%s%.*s", i ? "|" : "", SPAN_ARG(scv.cards[i].links));
    ck_assert_span_eq(buf_span(&got), want);
}

/* The words of a sample are in the order of its cards, those of the Scv in that of cardList. */
TEST(links_have_a_word_for_each_card_of_the_list)
{
#define LINKED(i, n, row)                                                                \
    "{'index':" #i ",'uuid':'GPU-" #n "','memoryTotal':9437184,'links':'" row "'}"
    rows(0, BOTH "," CARD(2), "||");
    rows(1,
         LINKED(0, 0, "X NV2 PIX") "," LINKED(1, 1, "NV2 X PXB") "," LINKED(2, 2,
                                                                            "PIX PXB X"),
         "X NV2 PIX|NV2 X PXB|PIX PXB X");
    /* GPU-1 is not listed, and becomes the last. */
    rows(2, LINKED(0, 0, "X PIX") "," LINKED(1, 2, "PIX X"),
         "X PIX SYS|PIX X SYS|SYS SYS X");
    /* GPU-2 is lost, and known; GPU-0 is in MIG mode. */
    rows(
        3,
        LINKED(0, 0, "X NV2 PIX") "," LINKED(
            1, 1,
            "NV2 X PXB") ",{'index':2,'uuid':'GPU-2','state':'lost','links':'PIX PXB X'}",
        "X NV2 PIX|NV2 X PXB|PIX PXB X");
    rows(4,
         "{'index':0,'uuid':'GPU-0','migMode':1,'links':'X NV2 PIX'}," LINKED(
             1, 1, "NV2 X PXB") "," LINKED(2, 2, "PIX PXB X"),
         "X PXB|PXB X");
    /* A row is unknown, or has a word that is: so is it in the Scv, and for the allocator. */
    rows(5, AT(0, 0) "," LINKED(1, 1, "NV2 X PXB") "," LINKED(2, 2, "PIX PXB X"),
         "|NV2 X PXB|PIX PXB X");
    rows(6,
         LINKED(0, 0, "X WAN PIX") "," LINKED(1, 1, "NV2 X PXB") "," LINKED(2, 2,
                                                                            "PIX PXB X"),
         "|NV2 X PXB|PIX PXB X");
    struct card_seen seen[CARDS_MAX];
    size_t present;
    ck_assert_uint_eq(card_inventory_seen(card_inventory, seen, &present), 3);
    ck_assert_int_eq(seen[0].near.width[2], LINK_UNKNOWN);
    ck_assert_int_eq(seen[2].near.width[0], LINK_PIX);
}

TEST(a_missing_card_is_dropped_after_keep_lost)
{
    look(0, BOTH, "0:GPU-0+ 1:GPU-1+");
    look(1000, CARD(0), "0:GPU-0+ 1:GPU-1-");
    look(100999, CARD(0), "0:GPU-0+ 1:GPU-1-");
    /* Time without NVML counts, but nothing is dropped in it. */
    card_inventory_failed(card_inventory, 200000, "no driver", true);
    shows("0:GPU-0- 1:GPU-1-");
    look(200001, CARD(0), "0:GPU-0-");
}

TEST(a_card_without_uuid_is_the_one_at_its_index)
{
    look(0, BOTH, "0:GPU-0+ 1:GPU-1+");
    look(1000, CARD(0) ",{'state':'lost','why':'gone'}", "0:GPU-0+ 1:GPU-1-");
    struct scv scv = {0};
    card_inventory_report(card_inventory, &arena, &scv);
    ck_assert_int_eq(scv.cards[1].total_mib, 9);
    ck_assert_span_eq(scv.cards[0].model, "T4");
    ck_assert_span_eq(scv.cards[1].model, "T4");
}

/* A failed card may report little: its constant properties stay. */
TEST(a_failed_card_keeps_its_properties)
{
    static const char *const states[] = {"ecc", "reset"};
    array_indices(i, states) {
        struct scv scv = {0};
        look(0,
             "{'uuid':'GPU-0','model':'T4','busId':'0:1:0.0','memoryTotal':9437184,"
             "'memoryFree':1048576,'temperature':40,'powerLimit':70000,'clockSmMax':1590,"
             "'clockMemoryMax':5001,'pcieGenerationMax':3,'pcieWidthMax':16}",
             i ? "0:GPU-0-" : "0:GPU-0+");
        cleanup_free char *failed = xasprintf("{'state':'%s'}", states[i]);
        look(1000, failed, "0:GPU-0-");
        card_inventory_report(card_inventory, &arena, &scv);
        const struct scv_card *c = scv.cards;
        ck_assert_span_eq(c->model, "T4");
        ck_assert_span_eq(c->bus_id, "0:1:0.0");
        ck_assert_int_eq(c->total_mib, 9);
        ck_assert_int_eq(c->free_mib, 0);
        ck_assert(!c->has_temperature);
        ck_assert_int_eq(c->spec.power_w, 70);
        ck_assert_int_eq(c->spec.sm_clock_mhz, 1590);
        ck_assert_int_eq(c->spec.clock_mhz, 5001);
        ck_assert_int_eq(c->spec.bandwidth, scv_bandwidth(3, 16));
        look(2000, "{'uuid':'GPU-0','memoryTotal':9437184}", "0:GPU-0-");
        card_inventory_report(card_inventory, &arena, &scv);
        ck_assert_span_eq(scv.cards[0].model, "");
        ck_assert_int_eq(scv.cards[0].spec.power_w, 0);
    }
}

TEST(failed_samples_are_tolerated)
{
    look(0, CARD(0), "0:GPU-0+");
    card_inventory_failed(card_inventory, 1000, "no driver", false);
    shows("0:GPU-0+");
    says("");
    card_inventory_failed(card_inventory, 4000, "no driver", false);
    shows("0:GPU-0-");
    says("no driver"); /* once, not for each card */
    look(5000, CARD(0), "0:GPU-0-");
    look(35000, CARD(0), "0:GPU-0+");
    says("");
}

TEST(mig_is_left_out)
{
    look(0, BOTH, "0:GPU-0+ 1:GPU-1+");
    look(1000, CARD(0) "," STATE(1, "mig", ""), "0:GPU-0+");
    says("GPU1 is left out: set by the file");
    look(2000, BOTH, "0:GPU-0+ 1:GPU-1+");
}

#define MIG(n) "{'uuid':'GPU-" #n "','memoryTotal':9437184,'migMode':1}"
#define INSTANCE(i, n, more)                                                             \
    "{'index':" #i ",'uuid':'MIG-" #n "','model':'A MIG 1g.5gb','parentUUID':'GPU-1',"   \
    "'migProfile':'1g.5gb','memoryTotal':1048576" more "}"

TEST(an_instance_is_a_card_until_it_is_destroyed)
{
    struct scv scv = {0};
    look(0, BOTH, "0:GPU-0+ 1:GPU-1+");
    look(1000, CARD(0) "," MIG(1), "0:GPU-0+");
    says("GPU1 is left out: the card is in MIG mode");
    look(2000, CARD(0) "," MIG(1) "," INSTANCE(72, 2, "") "," INSTANCE(73, 3, ""),
         "0:GPU-0+ 72:MIG-2+ 73:MIG-3+");
    card_inventory_report(card_inventory, &arena, &scv);
    ck_assert_span_eq(scv.cards[0].parent_uuid, "");
    ck_assert_span_eq(scv.cards[0].mig_profile, "");
    ck_assert_span_eq(scv.cards[1].parent_uuid, "GPU-1");
    ck_assert_span_eq(scv.cards[1].mig_profile, "1g.5gb");
    /* One is destroyed, and the driver renumbers the other. */
    look(3000, CARD(0) "," MIG(1) "," INSTANCE(72, 3, ""),
         "0:GPU-0+ 64:MIG-2- 72:MIG-3+");
    says("GPU64 is Unhealthy: NVML no longer lists the card; "
         "GPU1 is left out: the card is in MIG mode");
    card_inventory_report(card_inventory, &arena, &scv);
    ck_assert_span_eq(scv.cards[1].parent_uuid, "GPU-1");
    ck_assert_int_eq(scv.cards[1].total_mib, 1);
    /* The card leaves MIG mode. */
    look(4000, BOTH, "0:GPU-0+ 1:GPU-1+ 64:MIG-2- 72:MIG-3-");
    look(104000, BOTH, "0:GPU-0+ 1:GPU-1+");
}

TEST(an_event_of_the_card_is_one_of_its_instances)
{
    struct gpu_event e = {.kind = GPU_EVENT_XID, .xid = 79, .uuid = "GPU-1", .index = 1};
    look(0, CARD(0) "," MIG(1) "," INSTANCE(72, 2, ""), "0:GPU-0+ 72:MIG-2+");
    ck_assert(card_inventory_event(card_inventory, 1, &e));
    shows("0:GPU-0+ 72:MIG-2-");
}

/* The cards keep their connections beside an instance, which has none. */
TEST(cards_beside_an_instance_are_connected)
{
    struct scv scv = {0};
    card_inventory_sample(
        card_inventory, 0,
        sample_of("{'uuid':'GPU-0','memoryTotal':9437184,'links':'X SYS NV2'}," MIG(
            1) ",{'uuid':'GPU-2','memoryTotal':9437184,'links':'NV2 SYS "
               "X'}," INSTANCE(72, 2, "")));
    card_inventory_report(card_inventory, &arena, &scv);
    ck_assert_uint_eq(scv.n_cards, 3);
    ck_assert_span_eq(scv.cards[0].links, "X NV2 SYS");
    ck_assert_span_eq(scv.cards[1].links, "NV2 X SYS");
    ck_assert_span_eq(scv.cards[2].links, "SYS SYS X");
}

TEST(a_restart_keeps_instances)
{
    struct scv_card cards[] = {{.id = 0, .healthy = true, .uuid = SPAN("GPU-0")},
                               {.id = 1, .healthy = true, .uuid = SPAN("GPU-1")},
                               {.id = 72,
                                .healthy = true,
                                .uuid = SPAN("MIG-2"),
                                .parent_uuid = SPAN("GPU-1"),
                                .mig_profile = SPAN("1g.5gb")},
                               {.id = 576, .healthy = true, .uuid = SPAN("MIG-9")}};
    struct scv scv = {.cards = cards, .n_cards = 4};
    look(0, CARD(0) "," MIG(1) "," INSTANCE(73, 3, ""), "0:GPU-0+ 73:MIG-3+");
    card_inventory_adopt(card_inventory, 1, &scv);
    shows("0:GPU-0+ 72:MIG-2- 73:MIG-3+");
    card_inventory_report(card_inventory, &arena, &scv);
    ck_assert_span_eq(scv.cards[1].parent_uuid, "GPU-1");
}

static void adopt(int64_t now_ms)
{
    struct scv_card cards[] = {
        {.id = 0,
         .healthy = true,
         .uuid = SPAN("GPU-0"),
         .total_mib = 9,
         .use_complete = true},
        {.id = 1, .healthy = false, .uuid = SPAN("GPU-1"), .total_mib = 9},
        {.id = 2, .healthy = true, .uuid = SPAN("GPU-2"), .total_mib = 9}};
    struct scv scv = {.cards = cards, .n_cards = 3};
    card_inventory_adopt(card_inventory, now_ms, &scv);
}

TEST(a_restart_keeps_cards_and_their_health)
{
    struct scv scv = {0};
    adopt(0);
    shows("0:GPU-0+ 1:GPU-1- 2:GPU-2+");
    card_inventory_report(card_inventory, &arena, &scv);
    ck_assert(!scv.cards[0].use_complete); /* the former process measured the use */
    look(1000, BOTH, "0:GPU-0+ 1:GPU-1- 2:GPU-2-");
    look(31000, BOTH, "0:GPU-0+ 1:GPU-1+ 2:GPU-2-");
}

TEST(adoption_after_the_first_sample)
{
    look(0, BOTH, "0:GPU-0+ 1:GPU-1+");
    adopt(500);
    shows("0:GPU-0+ 1:GPU-1- 2:GPU-2-");
    look(1000, BOTH, "0:GPU-0+ 1:GPU-1- 2:GPU-2-");
    look(31000, BOTH, "0:GPU-0+ 1:GPU-1+ 2:GPU-2-");
}

TEST(a_full_list_drops_a_missing_card)
{
    cleanup_buf struct buf cards = {0};
    for (int i = 0; i < GPU_MAX_CARDS; i++)
        buf_printf(&cards, "%s{'uuid':'GPU-%d'}", i ? "," : "", i);
    card_inventory_sample(card_inventory, 0, sample_of(cards.p));
    buf_clear(&cards);
    for (int i = 0; i < GPU_MAX_CARDS; i++)
        buf_printf(&cards, "%s{'uuid':'GPU-%d'}", i ? "," : "", i + 32);
    card_inventory_sample(card_inventory, 1000, sample_of(cards.p));
    struct scv scv = {0};
    card_inventory_report(card_inventory, &arena, &scv);
    ck_assert_uint_eq(scv.n_cards, GPU_MAX_CARDS);
    for (int i = 0; i < GPU_MAX_CARDS; i++)
        ck_assert_int_eq(scv.cards[i].id, i);
    ck_assert_span_eq(scv.cards[63].uuid, "GPU-95");
}

UNIT_MAIN_AROUND(begin, end)
