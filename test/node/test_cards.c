/* SPDX-License-Identifier: Apache-2.0 */
#include "node/cards.h"

#include "node/samples.h"

/*
 * From samples through the inventory to the device list. Scripts: a line is "TIME COMMAND ->
 * STATE". Health over time: test/node/test_card_health.c.
 *
 *     see UUID@INDEX=MIB...   a sample; "!" behind a card: it is failed, "?": unreadable
 *     fail                    a sample that failed
 *     tick [MS]               time passes; the process was suspended for MS of it
 *     xid UUID@INDEX          an XID; each may be missing
 *     index I, uuid UUID      the card that cards_by_index, cards_by_uuid finds
 *     check                   the error of cards_check
 *
 * The state begins with "*" if the device list has changed. Then each card has its units now,
 * and the most ever, and why it is unhealthy.
 */

static struct cards cards;
static struct card_inventory *inventory;

/* The index, -1 if the word has none. Cuts the word behind the UUID. */
static int32_t cut_index(struct span *word)
{
    struct span rest = *word;
    *word = span_cut(&rest, '@');
    return rest.p ? atoi(rest.p) : -1;
}

static bool take(int64_t now, const struct err *why, enum err_code say)
{
    struct card_seen seen[CARDS_MAX];
    size_t n_present;
    struct err err;
    size_t n = card_inventory_seen(inventory, seen, &n_present);
    bool changed = cards_take(&cards, now, seen, n, why, &err);
    ck_assert(!say || err.code == say);
    return changed;
}

static bool sample(int64_t now, struct span words)
{
    cleanup_buf struct buf text = {0};
    bool hung = cards.failure.err.code == ERR_TIMEOUT;
    for (size_t n = 0; words.n; n++) {
        struct span word = span_cut(&words, ' '), mib = word;
        bool failed = word.p[word.n - 1] == '!', unreadable = word.p[word.n - 1] == '?';
        span_cut(&mib, '=');
        int32_t index = cut_index(&word);
        buf_printf(&text, "%s{'index':%d", n ? "," : "", (int)index);
        if (word.n)
            buf_printf(&text, ",'uuid':'%.*s'", SPAN_ARG(word));
        if (atoll(mib.p))
            buf_printf(&text, ",'memoryTotal':%lld", atoll(mib.p) << 20);
        if (failed || unreadable)
            buf_printf(&text, ",'state':'%s','why':'gone'",
                       failed ? "lost" : "unreadable");
        buf_addc(&text, '}');
    }
    if (hung) /* as node/allocating.c does, when the call into the driver returns */
        card_inventory_failed(inventory, now, "the driver does not respond", true);
    card_inventory_sample(inventory, now, sample_of(text.p ? text.p : ""));
    return take(now, NULL, ERR_NONE);
}

static bool fail_sample(int64_t now)
{
    static const struct err no_driver = {ERR_UNAVAILABLE, "no driver"};
    card_inventory_failed(inventory, now, no_driver.msg, false);
    return take(now, &no_driver, cards.failure.failures ? ERR_NONE : ERR_UNAVAILABLE);
}

static bool xid(int64_t now, struct span word)
{
    struct gpu_event e = {.kind = GPU_EVENT_XID, .xid = 79, .index = cut_index(&word)};
    snprintf(e.uuid, sizeof e.uuid, "%.*s", SPAN_ARG(word));
    card_inventory_event(inventory, now, &e);
    return take(now, NULL, ERR_NONE);
}

/* Runs a command, and writes what is behind its "->". */
static void run(struct span line, struct buf *out)
{
    struct span rest = line;
    int64_t now = atoll(span_cut(&rest, ' ').p);
    struct span verb = span_cut(&rest, ' ');
    struct err err = {0};
    bool changed = false;
#define IS(text) span_eq(verb, SPAN(text))
    if (IS("check")) {
        buf_adds(out, cards_check(&cards, now, &err) ? err.msg : "ok");
        return;
    }
    if (IS("index") || IS("uuid")) {
        const struct plugin_card *c = IS("uuid") ? cards_by_uuid(&cards, rest)
                                                 : cards_by_index(&cards, atoi(rest.p));
        buf_adds(out, c ? c->uuid : "none");
        ck_assert(!c || cards_by_tag(&cards, &c->tag) == c);
        return;
    }
    if (IS("see"))
        changed = sample(now, rest);
    else if (IS("fail"))
        changed = fail_sample(now);
    else if (IS("tick"))
        changed = cards_tick(&cards, now, rest.n ? atoll(rest.p) : 0);
    else
        changed = xid(now, rest);
#undef IS
    buf_adds(out, changed ? "*" : "");
    for (size_t i = 0; i < cards.n; i++) {
        const struct plugin_card *c = &cards.items[i];
        buf_printf(out, " %s %lld/%lld", c->uuid, (long long)c->units,
                   (long long)c->most_units);
        if (!c->health.healthy)
            buf_printf(out, " (%s)", c->health.reason);
    }
}

static void play(int64_t unit_mib, const char *script)
{
    cards_init(&cards,
               &(struct cards_settings){.unit_mib = unit_mib, .silent_ms = 35000});
    card_inventory_free(inventory);
    inventory = card_inventory_new(
        &(struct card_inventory_settings){.keep_lost_ms = INT64_MAX,
                                          .health = {.unhealthy_after_ms = 3000,
                                                     .healthy_after_ms = 30000,
                                                     .xid_hold_ms = 600000}});
    for (struct span rest = span_of(script); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        const char *arrow = memmem(line.p, line.n, " ->", 3);
        cleanup_buf struct buf is = {0};
        struct span want = {arrow + 3, line.n - (size_t)(arrow + 3 - line.p)};
        buf_adds(&is, arrow[3] == ' ' ? " " : "");
        run((struct span){line.p, (size_t)(arrow - line.p)}, &is);
        ck_assert_msg(span_eq(buf_span(&is), want), "%.*s: %s", SPAN_ARG(line), is.p);
    }
}

#define TWO "GPU-a@0=4096 GPU-b@1=8192"

static const char *const scripts[] = {
    /* Units are rounded down; nothing new. */
    "0 see GPU-a@0=143771 GPU-b@1=1023 -> * GPU-a 140/140 GPU-b 0/0\n"
    "1 see GPU-a@0=143771 GPU-b@1=1023 ->  GPU-a 140/140 GPU-b 0/0\n"
    "1 uuid GPU-b -> GPU-b\n"
    "1 uuid GPU-c -> none\n"
    "1 index 1 -> GPU-b\n"
    "1 index 2 -> none",
    /* A lost card stays on the list. The driver renumbers: the remaining card has the other
     * one's index. A card that is smaller than before keeps all its ids. */
    "0 see " TWO " -> * GPU-a 4/4 GPU-b 8/8\n"
    "1 see GPU-b@0=8192 -> * GPU-a 4/4 (NVML no longer lists the card) GPU-b 8/8\n"
    "1 index 0 -> GPU-b\n"
    "2 see GPU-b@0=2048 -> * GPU-a 4/4 (NVML no longer lists the card) GPU-b 2/8",
    /* One failed sample is tolerated. */
    "1000 see GPU-a@0=4096 -> * GPU-a 4/4\n"
    "2000 fail ->  GPU-a 4/4\n"
    "5000 fail -> * GPU-a 4/4 (no driver)\n"
    "25000 check -> no sample for 23s: no driver",
    /* A driver that hangs makes all cards unhealthy, and then responds again. */
    "1000 see " TWO " -> * GPU-a 4/4 GPU-b 8/8\n"
    "35999 tick ->  GPU-a 4/4 GPU-b 8/8\n"
    "36000 tick -> * GPU-a 4/4 (the driver does not respond) GPU-b 8/8 (the driver does "
    "not respond)\n"
    "36000 check -> no sample for 35s: the driver does not respond\n"
    "37000 tick ->  GPU-a 4/4 (the driver does not respond) GPU-b 8/8 (the driver does "
    "not respond)\n"
    "50000 see " TWO " ->  GPU-a 4/4 (the driver does not respond) GPU-b 8/8 (the driver "
    "does not respond)\n"
    "80000 see " TWO " -> * GPU-a 4/4 GPU-b 8/8",
    /* An error is a response of the driver. */
    "1000 see GPU-a@0=4096 -> * GPU-a 4/4\n"
    "10000 fail ->  GPU-a 4/4\n"
    "44999 tick ->  GPU-a 4/4",
    /* A suspended process has not waited. */
    "1000 see GPU-a@0=4096 -> * GPU-a 4/4\n"
    "1000000 tick 998000 ->  GPU-a 4/4\n"
    "1033999 tick ->  GPU-a 4/4\n"
    "1034000 tick -> * GPU-a 4/4 (the driver does not respond)",
    /* The check gives the reason; an event concerns one card or all. */
    "1 check -> no card was sampled yet\n"
    "2 fail ->\n"
    "3 check -> no card was sampled yet: no driver\n"
    "1000 see " TWO " -> * GPU-a 4/4 GPU-b 8/8\n"
    "1000 check -> ok\n"
    "1000 xid GPU-b -> * GPU-a 4/4 GPU-b 8/8 (XID 79)\n"
    "1000 xid GPU-b ->  GPU-a 4/4 GPU-b 8/8 (XID 79)\n"
    "1000 check -> ok\n"
    "1000 xid @0 -> * GPU-a 4/4 (XID 79) GPU-b 8/8 (XID 79)\n"
    "1000 check -> none of 2 cards is healthy; GPU-a: XID 79",
    "0 see " TWO " -> * GPU-a 4/4 GPU-b 8/8\n"
    "1 xid  -> * GPU-a 4/4 (XID 79) GPU-b 8/8 (XID 79)",
    /* The index identifies a card without UUID. One that was never readable is not listed. */
    "0 see @3=4096 -> * index-3 4/4\n"
    "1 see @4=0! -> * index-3 4/4 (NVML no longer lists the card)",
    /* A card that cannot be opened is the one at its index. */
    "0 see " TWO " -> * GPU-a 4/4 GPU-b 8/8\n"
    "1000 see GPU-a@0=4096 @1=0? ->  GPU-a 4/4 GPU-b 8/8\n"
    "4000 see GPU-a@0=4096 @1=0? -> * GPU-a 4/4 GPU-b 8/8 (gone)",
};

TEST_LOOP(cards_over_time, ARRAY_LEN(scripts))
{
    play(1024, scripts[_i]);
}

/* A card too many is left out. A unit that makes the list too long is reported. */
TEST(limits_of_the_list)
{
    cleanup_buf struct buf many = {0}, eight = {0};
    for (int i = 0; i < CARDS_MAX; i++)
        buf_printf(&many, "%sGPU-%d@%d=4096", i ? " " : "", i, i);
    for (int i = 0; i < 8; i++)
        buf_printf(&eight, "%sGPU-%d@%d=143771", i ? " " : "", i, i);
    play(1024, "");
    ck_assert(sample(0, buf_span(&many)));
    ck_assert_uint_eq(cards.n, CARDS_MAX);
    play(1024, "");
    ck_assert(sample(0, buf_span(&eight)));
    struct err err = {0};
    ck_assert_done(cards_fit(&cards, &err), err);
    play(1, "");
    ck_assert(sample(0, buf_span(&eight)));
    ck_assert_int_eq(cards_fit(&cards, &err), -1);
    ck_assert_msg(strstr(err.msg, "in units of MiB") &&
                      strstr(err.msg, "limit of 4194304") &&
                      strstr(err.msg, "--memory-unit=8MiB"),
                  "%s", err.msg);
}
