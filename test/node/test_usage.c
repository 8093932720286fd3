/* SPDX-License-Identifier: Apache-2.0 */
#include "node/usage.h"

#include <stdio.h>

#include "base/mem.h"
#include "lib/unit.h"

enum { MIB = 1 << 20 };

/* Two cards; processes, places, names and promises are set by each test. */
static struct gpu_card cards[3];
static struct gpu_sample sample;
static struct usage_input in;
static struct usage u;

static void setup(void)
{
    memset(cards, 0, sizeof cards);
    for (int i = 0; i < 3; i++) {
        cards[i].index = i;
        snprintf(cards[i].uuid, sizeof cards[i].uuid, "GPU-%d", i);
        cards[i].known = UINT32_C(1) << GPU_MEM_TOTAL | UINT32_C(1) << GPU_MEM_FREE;
        cards[i].value[GPU_MEM_TOTAL] = INT64_C(16384) * MIB;
        cards[i].value[GPU_MEM_FREE] = INT64_C(4096) * MIB;
        cards[i].processes_known = true;
    }
    sample = (struct gpu_sample){.cards = cards, .n_cards = 2};
    in = (struct usage_input){.taken_ms = 7, .sample = &sample, .promises_known = true};
}

static void teardown(void)
{
    usage_fini(&u);
}

static void processes(int card, const struct gpu_process *list, size_t n)
{
    cards[card].processes = list;
    cards[card].n_processes = n;
}

#define PROCESSES(card, ...)                                                             \
    static const struct gpu_process processes_##card[] = {__VA_ARGS__};                  \
    processes(card, processes_##card, ARRAY_LEN(processes_##card))
#define PLACES(...)                                                                      \
    static const struct usage_place places_[] = {__VA_ARGS__};                           \
    in.places = places_, in.n_places = ARRAY_LEN(places_)
#define NAMES(...)                                                                       \
    static const struct usage_name names_[] = {__VA_ARGS__};                             \
    in.names = names_, in.n_names = ARRAY_LEN(names_)
#define PROMISES(...)                                                                    \
    static const struct usage_promise promises_[] = {__VA_ARGS__};                       \
    in.promises = promises_, in.n_promises = ARRAY_LEN(promises_)
#define S(literal)                                                                       \
    {                                                                                    \
        literal, sizeof(literal) - 1                                                     \
    }
#define IN(pid, uid, id)                                                                 \
    {                                                                                    \
        {pid, 1000 + pid}, USAGE_CONTAINER, S(id), S(uid), S("python")                   \
    }

/* "card ns/pod/name uid id used sm promised pids" of every container. */
static const char *text(void)
{
    static char out[4096];
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < u.n_containers; i++) {
        const struct usage_container *c = &u.containers[i];
        n += (size_t)snprintf(
            out + n, sizeof out - n, "%zu %.*s/%.*s/%.*s %.*s %.*s %lld %lld %lld",
            c->card, SPAN_ARG(c->ns), SPAN_ARG(c->pod), SPAN_ARG(c->name),
            SPAN_ARG(c->pod_uid), SPAN_ARG(c->container_id), (long long)c->used_mib,
            (long long)c->sm_percent, (long long)c->promised_mib);
        for (size_t k = 0; k < c->n_pids; k++)
            n += (size_t)snprintf(out + n, sizeof out - n, " %lld@%llu",
                                  (long long)c->pids[k].pid,
                                  (unsigned long long)c->pids[k].started);
        n += (size_t)snprintf(out + n, sizeof out - n, "\n");
    }
    return out;
}

START_TEST(promised_and_used)
{
    PROCESSES(0, {10, INT64_C(1000) * MIB + 1, 30}, {11, INT64_C(500) * MIB + 1, 80},
              {20, INT64_C(8000) * MIB, 5});
    PROCESSES(1, {10, MIB, 0});
    PLACES(IN(10, "u1", "c1"), IN(11, "u1", "c1"), IN(20, "u2", "c2"));
    NAMES({S("c2"), S("team"), S("train"), S("main")},
          {S("c1"), S("team"), S("serve"), S("main")});
    PROMISES({S("team"), S("serve"), S("main"), S("GPU-0"), 1024},
             {S("team"), S("serve"), S("main"), S("GPU-0"), 1024},
             {S("team"), S("idle"), S("main"), S("GPU-1"), 4096},
             {S("team"), S("gone"), S("main"), S("GPU-9"), 4096});
    usage_build(&in, &u);
    ck_assert(u.complete);
    ck_assert_int_eq(u.taken_ms, 7);
    ck_assert_uint_eq(u.n_cards, 2);
    ck_assert_int_eq(u.cards[1].total_mib, 16384);
    ck_assert_int_eq(u.cards[1].free_mib, 4096);
    ck_assert_str_eq(text(), "0 team/serve/main u1 c1 1501 100 2048 10@1010 11@1011\n"
                             "0 team/train/main u2 c2 8000 5 -1 20@1020\n"
                             "1 team/idle/main   0 0 4096\n"
                             "1 team/serve/main u1 c1 1 0 0 10@1010\n");
    ck_assert_uint_eq(u.n_outside, 0);
}
END_TEST

START_TEST(outside_kubernetes)
{
    PROCESSES(0, {10, MIB, 1}, {30, INT64_C(300) * MIB, 2});
    PLACES(IN(10, "u1", "c1"),
           {.pid = {30, 5}, .kind = USAGE_OUTSIDE, .name = S("Xorg\n\xff")});
    NAMES({S("c1"), S("team"), S("serve"), S("main")});
    usage_build(&in, &u);
    ck_assert(u.complete && u.cards[0].complete);
    ck_assert_uint_eq(u.n_outside, 1);
    ck_assert_int_eq(u.outside[0].pid.pid, 30);
    ck_assert_uint_eq(u.outside[0].pid.started, 5);
    ck_assert_str_eq(u.outside[0].name, "Xorg??");
    ck_assert_int_eq(u.outside[0].used_mib, 300);
    ck_assert_int_eq(u.outside[0].sm_percent, 2);
    ck_assert(!u.outside[0].unmapped);
}
END_TEST

/* Each way in which a card is not complete; the other card stays so. */
START_TEST(what_is_not_complete)
{
    PROCESSES(0, {10, MIB, 1});
    PROMISES({S("team"), S("idle"), S("main"), S("GPU-0"), 4096});
    static const struct {
        struct usage_place place;
        bool missing;
    } rows[] = {
        {{.pid = {10, 1}, .kind = USAGE_UNMAPPED}, false},
        {{.pid = {10, 1}, .kind = USAGE_CONTAINER}, false},
        {{.pid = {10, 1}, .kind = USAGE_OUTSIDE}, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        in.places = &rows[i].place;
        in.n_places = !rows[i].missing;
        usage_build(&in, &u);
        ck_assert(!u.complete && !u.cards[0].complete && u.cards[1].complete);
        ck_assert_str_eq(u.cards[0].incomplete, "it is not known where a process runs");
        ck_assert_uint_eq(u.n_outside, 1);
        ck_assert(u.outside[0].unmapped);
        /* The process may be of the container that has the promise. */
        ck_assert_str_eq(text(), "0 team/idle/main   -1 -1 4096\n");
    }
    cards[0].processes_known = false;
    cards[0].n_processes = 0;
    usage_build(&in, &u);
    ck_assert(!u.complete && !u.cards[0].complete && u.cards[1].complete);
    ck_assert_str_eq(u.cards[0].incomplete, "NVML does not list its processes");
}
END_TEST

START_TEST(unknown_memory_is_neither_0_nor_huge)
{
    PROCESSES(0, {10, -1, -1}, {11, MIB, 4});
    PLACES(IN(10, "u1", "c1"), IN(11, "u1", "c1"));
    NAMES({S("c1"), S("team"), S("serve"), S("main")});
    PROMISES({S("team"), S("serve"), S("main"), S("GPU-0"), 1});
    usage_build(&in, &u);
    ck_assert(!u.complete);
    ck_assert_str_eq(u.cards[0].incomplete, "NVML does not know what a process uses");
    ck_assert_str_eq(text(), "0 team/serve/main u1 c1 -1 -1 1 10@1010 11@1011\n");
}
END_TEST

START_TEST(a_container_without_a_name)
{
    PROCESSES(0, {10, MIB, 1});
    PLACES(IN(10, "u1", "c1"));
    PROMISES({S("team"), S("idle"), S("main"), S("GPU-0"), 4096},
             {S("team"), S("idle"), S("main"), S("GPU-1"), 4096});
    usage_build(&in, &u);
    ck_assert(u.complete);
    ck_assert_str_eq(text(), "0 // u1 c1 1 1 -1 10@1010\n"
                             "0 team/idle/main   -1 -1 4096\n"
                             "1 team/idle/main   0 0 4096\n");
}
END_TEST

/* "container card" of each whose promise is not clear. */
static const char *unclear(void)
{
    static char out[256];
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < u.n_containers; i++)
        if (u.containers[i].promise_unclear)
            n += (size_t)snprintf(out + n, sizeof out - n, "%.*s %zu\n",
                                  SPAN_ARG(u.containers[i].name), u.containers[i].card);
    return out;
}

START_TEST(promises_that_are_not_clear)
{
    static const struct usage_listed listed[] = {{S("team"), S("serve"), S("main")},
                                                 {S("team"), S("serve"), S("side")}};
    PROCESSES(0, {10, MIB, 1}, {11, MIB, 1}, {12, MIB, 1});
    PROCESSES(1, {11, MIB, 1});
    PLACES(IN(10, "u1", "c1"), IN(11, "u1", "c2"), IN(12, "u1", "c3"));
    NAMES({S("c1"), S("team"), S("serve"), S("init")},
          {S("c2"), S("team"), S("serve"), S("main")},
          {S("c3"), S("team"), S("serve"), S("side")});
    PROMISES({S("team"), S("serve"), S("main"), S("GPU-0"), 1024},
             {S("team"), S("serve"), S("main"), S("GPU-1"), -1},
             {S("team"), S("idle"), S("main"), S("GPU-1"), -1});
    in.listed = listed;
    in.n_listed = ARRAY_LEN(listed);
    usage_build(&in, &u);
    ck_assert_str_eq(text(), "0 team/serve/init u1 c1 1 1 -1 10@1010\n"
                             "0 team/serve/main u1 c2 1 1 1024 11@1011\n"
                             "0 team/serve/side u1 c3 1 1 -1 12@1012\n"
                             "1 team/idle/main   0 0 -1\n"
                             "1 team/serve/main u1 c2 1 1 -1 11@1011\n");
    ck_assert_str_eq(unclear(), "init 0\nmain 1\nmain 1\n");
    /* The promises on a card without a UUID are not known. */
    cards[0].uuid[0] = '\0';
    usage_build(&in, &u);
    ck_assert_str_eq(unclear(), "init 0\nmain 0\nside 0\nmain 1\nmain 1\n");
    in.promises_known = false;
    cards[0].uuid[0] = 'G';
    usage_build(&in, &u);
    ck_assert_str_eq(unclear(), "init 0\nmain 0\nside 0\nmain 1\n");
}
END_TEST

START_TEST(promises_that_are_not_known)
{
    PROCESSES(0, {10, MIB, 1});
    PLACES(IN(10, "u1", "c1"));
    NAMES({S("c1"), S("team"), S("serve"), S("main")});
    PROMISES({S("team"), S("serve"), S("main"), S("GPU-0"), -1});
    usage_build(&in, &u);
    ck_assert_str_eq(text(), "0 team/serve/main u1 c1 1 1 -1 10@1010\n");
    in.promises_known = false;
    in.n_promises = 0;
    usage_build(&in, &u);
    ck_assert_str_eq(text(), "0 team/serve/main u1 c1 1 1 -1 10@1010\n");
}
END_TEST

START_TEST(cards_in_mig_mode_are_left_out)
{
    PROCESSES(0, {10, MIB, 1});
    PROCESSES(1, {11, MIB, 1});
    PLACES(IN(10, "u1", "c1"), IN(11, "u2", "c2"));
    cards[0].state = GPU_MIG;
    usage_build(&in, &u);
    ck_assert_uint_eq(u.n_cards, 1);
    ck_assert_int_eq(u.cards[0].index, 1);
    ck_assert_str_eq(text(), "0 // u2 c2 1 1 -1 11@1011\n");
}
END_TEST

START_TEST(ended_processes_and_failed_samples)
{
    PROCESSES(0, {10, MIB, 1});
    PLACES({.pid = {10, 0}, .kind = USAGE_ENDED});
    usage_build(&in, &u);
    ck_assert(u.complete);
    ck_assert(u.n_containers == 0 && u.n_outside == 0);
    in.sample = NULL;
    usage_build(&in, &u);
    ck_assert(!u.complete && !u.n_cards);
    ck_assert_int_eq(u.taken_ms, 7);
}
END_TEST

START_TEST(the_order_of_the_input_does_not_matter)
{
    PROCESSES(0, {10, MIB, 1}, {11, MIB, 2}, {12, MIB, 3});
    PLACES(IN(10, "u2", "c2"), IN(11, "u1", "c1"), IN(12, "u1", "c0"));
    NAMES({S("c2"), S("b"), S("p"), S("x")}, {S("c0"), S("a"), S("p"), S("y")},
          {S("c1"), S("a"), S("p"), S("x")});
    usage_build(&in, &u);
    ck_assert_str_eq(text(), "0 a/p/x u1 c1 1 2 -1 11@1011\n"
                             "0 a/p/y u1 c0 1 3 -1 12@1012\n"
                             "0 b/p/x u2 c2 1 1 -1 10@1010\n");
}
END_TEST

/* What the kubelet does not list comes from the device plugin, by UID. */
START_TEST(promises_of_init_containers)
{
    PROCESSES(0, {10, MIB, 1}, {11, MIB, 1}, {12, MIB, 1});
    PROCESSES(1, {10, MIB, 1});
    PLACES(IN(10, "u1", "c1"), IN(11, "u2", "c2"), IN(12, "u1", "c3"));
    NAMES({S("c1"), S("a"), S("p"), S("init")}, {S("c2"), S("a"), S("p"), S("init")},
          {S("c3"), S("a"), S("p"), S("debug")});
    static const struct usage_init_promise inits[] = {
        {S("u1"), S("a"), S("p"), S("init"), S("GPU-0"), 2048, 1024},
        {S("u1"), S("a"), S("p"), S("done"), S("GPU-0"), -1, 0},
        {S("u1"), S("a"), S("p"), S("done"), S("GPU-9"), 1, 0}};
    in.inits = inits;
    in.n_inits = ARRAY_LEN(inits);
    usage_build(&in, &u);
    ck_assert_str_eq(text(), "0 a/p/debug u1 c3 1 1 -1 12@1012\n"
                             "0 a/p/init u1 c1 1 1 2048 10@1010\n"
                             "0 a/p/init u2 c2 1 1 -1 11@1011\n"
                             "1 a/p/init u1 c1 1 1 0 10@1010\n");
    ck_assert_str_eq(unclear(), "debug 0\ninit 0\n"); /* the second init: of u2 */
    ck_assert(u.containers[1].init && !u.containers[1].promise_unclear);
    ck_assert(!u.containers[2].init && u.containers[2].promise_unclear);
    ck_assert(u.containers[3].init);
    ck_assert_uint_eq(u.n_inits, 2);
    ck_assert_int_eq(u.inits[0].mib, 2048);
    ck_assert_int_eq(u.inits[0].beside_mib, 1024);
    ck_assert_int_eq(u.inits[1].mib, -1);
    in.promises_known = false;
    usage_build(&in, &u);
    ck_assert_uint_eq(u.n_inits, 0);
    ck_assert(!u.containers[1].init && u.containers[1].promise_unclear);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        promised_and_used,
        outside_kubernetes,
        what_is_not_complete,
        unknown_memory_is_neither_0_nor_huge,
        a_container_without_a_name,
        promises_that_are_not_known,
        promises_that_are_not_clear,
        promises_of_init_containers,
        cards_in_mig_mode_are_left_out,
        ended_processes_and_failed_samples,
        the_order_of_the_input_does_not_matter,
    };
    static const struct unit_fixtures around = {.begin = setup, .end = teardown};
    return unit_run_with("usage", tests, ARRAY_LEN(tests), 60, &around);
}
