/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/rig.h"

static struct rig rig;

static const int64_t two_cards[] = {8, 16, 0};
#define ALL "GPU-0/0-7 GPU-1/0-15"

static void start(void)
{
    struct alloc_settings s = rig_settings();
    rig_start(&rig, &s, two_cards);
}

static void start_with(struct alloc_settings s)
{
    rig_start(&rig, &s, two_cards);
}

/* A pod that waits, promised card 1, and that the kubelet is admitting. */
static void waiting(const char *name, const char *card, const char *app)
{
    cleanup_free char *notes = xasprintf("'" KEY_MEM_IDX "':'%s','" KEY_ALLOCATION
                                         "':'{}','" KEY_CARD_UUID "':'GPU-%s'",
                                         card, card);
    rig_api(&rig, name, "Pending", notes, "", app);
    rig_kubelet(&rig, name, RIG_NAMES("a"));
}

#define check_answer(call, want)                                                         \
    do {                                                                                 \
        const char *is_ = (call);                                                        \
        ck_assert_msg(strstr(is_, (want)) != NULL, "\"%s\" does not say \"%s\"", is_,    \
                      (want));                                                           \
    } while (0)
#define check_log(want)                                                                  \
    ck_assert_msg(rig.log.p &&strstr(rig.log.p, (want)) != NULL,                         \
                  "\"%s\" is not in:\n%s", (want), rig.log.p ? rig.log.p : "")
#define check_env(want)                                                                  \
    ck_assert_msg(strstr(rig.env, (want)) != NULL, "\"%s\" is not in:\n%s", (want),      \
                  rig.env)

START_TEST(the_container_gets_the_card_that_was_promised)
{
    start();
    waiting("p", "1", MEM("a", 3));
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/0 GPU-1/1 GPU-1/2");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-2"), "granted");
    ck_assert_str_eq(rig.env, "NVIDIA_VISIBLE_DEVICES=GPU-1\n"
                              "ALIYUN_COM_GPU_MEM_IDX=1\n"
                              "ALIYUN_COM_GPU_MEM_POD=3\n"
                              "ALIYUN_COM_GPU_MEM_CONTAINER=3\n"
                              "ALIYUN_COM_GPU_MEM_DEV=16\n");
    check_log("patch p uid-p {\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}");
    ck_assert_int_eq(rig.saves, 1);
    ck_assert_uint_eq(alloc_stats(rig.a)->granted[IDS_MEM], 1);
    rig_stop(&rig);
}
END_TEST

START_TEST(of_equal_pods_it_is_the_one_that_the_kubelet_has)
{
    start();
    waiting("p", "0", MEM("a", 3));
    rig_kubelet_gone(&rig, "p"); /* comes later */
    waiting("q", "1", MEM("a", 3));
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/0 GPU-1/1 GPU-1/2");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-2"), "granted");
    struct rig_pod *q = rig_find(&rig, "q");
    for (int i = 0; i < 3; i++) {
        cleanup_free char *text = xasprintf("GPU-1/%d", i);
        rig_add_id(&rig, &q->containers[0], IDS_MEM, rig_id(&rig, text));
    }
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-0/0 GPU-0/1 GPU-0/2");
    rig_stop(&rig);
}
END_TEST

START_TEST(which_of_two_is_not_guessed)
{
    start();
    waiting("p", "0", MEM("a", 3));
    waiting("q", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 4900);
    ck_assert(!rig.answered);
    rig_pass(&rig, 200);
    check_answer(rig.answer, "ambiguous: 2 pods of this node wait for 3 of");
    ck_assert_uint_eq(alloc_stats(rig.a)->refused[REFUSED_AMBIGUOUS], 1);
    ck_assert_uint_eq(alloc_stats(rig.a)->waited, 1);
    rig_stop(&rig);
}
END_TEST

START_TEST(news_of_the_api_server_tell_which_it_is)
{
    start();
    waiting("p", "0", MEM("a", 3));
    waiting("q", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    /* The kubelet had refused p for a reason of its own. (It does not show such a pod any
     * more, since 1.34.) */
    rig_kubelet_gone(&rig, "p");
    rig_api(&rig, "p", "Failed", ON("0", "GPU-0"), "", MEM("a", 3));
    ck_assert_str_eq(rig.answer, "GPU-1/0 GPU-1/1 GPU-1/2");
    rig_stop(&rig);
}
END_TEST

START_TEST(another_size_is_not_meant)
{
    start();
    waiting("p", "0", MEM("a", 4));
    waiting("q", "1", MEM("a", 3));
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/0 GPU-1/1 GPU-1/2");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_pod_that_comes_late_is_waited_for)
{
    start();
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 1000);
    rig_api(&rig, "p", "Pending", ON("1", "GPU-1"), "", MEM("a", 3));
    ck_assert_str_eq(rig.answer, "GPU-1/0 GPU-1/1 GPU-1/2");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_stranger_may_be_the_one)
{
    start();
    /* Refused by the kubelet, which the API server does not say yet; and the pod that it
     * is about has not been heard of. */
    waiting("refused", "0", MEM("a", 3));
    rig_kubelet(&rig, "unheard", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "stranger: it may be pod default/unheard");
    /* Whoever comes after it cannot be it any more. */
    rig_kubelet_gone(&rig, "refused");
    rig_api(&rig, "refused", "Failed", ON("0", "GPU-0"), "", MEM("a", 3));
    waiting("q", "1", MEM("a", 3));
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/0 GPU-1/1 GPU-1/2");
    rig_stop(&rig);
}
END_TEST

START_TEST(an_old_kubelet_shows_what_is_over)
{
    start();
    rig.no_get = true;
    waiting("first", "1", MEM("a", 2));
    rig_prefer(&rig, 2, ALL);
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-1"), "granted"); /* it has no Get */
    rig_kubelet_gone(&rig, "first");
    waiting("over", "0", MEM("a", 3));
    waiting("p", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_api(&rig, "over", "Failed", ON("0", "GPU-0"), "", MEM("a", 3));
    check_answer(rig.answer, "(nothing yet)"); /* it may be another one of that name */
    rig_pass(&rig, 900);
    ck_assert(!rig.answered);
    rig_pass(&rig, 200);
    ck_assert_str_eq(rig.answer, "GPU-1/2 GPU-1/3 GPU-1/4");
    rig_stop(&rig);
}
END_TEST

START_TEST(who_waits_in_vain_is_told_why)
{
    start();
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "no-pod: no pod of this node that the kubelet has waits for "
                             "3 of aliyun.com/gpu-mem");
    rig_api(&rig, "n", "Pending", "", "", MEM("a", 3));
    rig_kubelet(&rig, "n", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "no-promise: pod default/n was promised no card");
    check_log("event n GPURefused pod default/n was promised no card");
    rig_stop(&rig);
}
END_TEST

START_TEST(without_a_list_of_the_api_server_nothing_is_given)
{
    struct alloc_settings s = rig_settings();
    rig.a = alloc_new(&s);
    rig.now = (struct alloc_time){1000, 1};
    rig_cards(&rig, two_cards);
    waiting("p", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "no-news: ");
    rig_stop(&rig);
}
END_TEST

START_TEST(ids_of_another_card_are_refused)
{
    start();
    waiting("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    check_answer(rig_allocate(&rig, "GPU-0/0-2"), "wrong-card: id " /* ... */);
    check_answer(rig.answer,
                 "is of card GPU-0; container a of pod default/p was promised "
                 "3 of 1 GPU-1");
    ck_assert_uint_eq(alloc_grants(rig.a)->n, 0);
    rig_stop(&rig);
}
END_TEST

START_TEST(one_id_of_another_card_is_enough)
{
    start();
    waiting("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    check_answer(rig_allocate(&rig, "GPU-1/0-1 GPU-0/0"), "wrong-card: ");
    rig_stop(&rig);
}
END_TEST

START_TEST(other_free_ids_of_the_right_card_will_do)
{
    start();
    waiting("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/9-11"), "granted");
    rig_stop(&rig);
}
END_TEST

START_TEST(more_or_less_than_it_asks_for_is_refused)
{
    start();
    waiting("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    check_answer(rig_allocate(&rig, "GPU-1/0-3"), "wrong-card: 4 ids for container a");
    rig_stop(&rig);
}
END_TEST

START_TEST(an_allocate_without_a_preference_is_refused)
{
    start();
    waiting("p", "1", MEM("a", 3));
    check_answer(rig_allocate(&rig, "GPU-1/0-2"), "not-offered: ");
    rig_prefer(&rig, 3, ALL);
    alloc_kubelet_started(rig.a, rig.now, &rig.out);
    check_answer(rig_allocate(&rig, "GPU-1/0-2"), "not-offered: ");
    rig_stop(&rig);
}
END_TEST

/* Admits it as the kubelet does; takes what is preferred. */
static void admit(const char *pod, const char *container, enum ids_resource res,
                  int64_t size, const char *available)
{
    char ids[sizeof rig.answer];
    struct rig_pod *p = rig_find(&rig, pod);
    strcpy(ids, rig_ask(&rig, ALLOC_ASK_PREFER, res, size, available, ""));
    check_answer(rig_ask(&rig, ALLOC_ASK_ALLOCATE, res, 0, ids, ""), "granted");
    struct span list[RIG_IDS];
    size_t n = rig_ids(&rig, ids, list);
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < n && strcmp(p->containers[i].name, container) == 0; k++)
            rig_add_id(&rig, &p->containers[i], res, list[k].p);
}

START_TEST(ids_that_are_held_are_not_given_again)
{
    start();
    waiting("p", "1", MEM("a", 3));
    admit("p", "a", IDS_MEM, 3, ALL);
    waiting("q", "1", MEM("a", 3));
    /* The kubelet has forgotten p's ids (List of some exporter): it offers them again. */
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/3 GPU-1/4 GPU-1/5");
    check_answer(rig_allocate(&rig, "GPU-1/2-4"), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "held: ");
    check_answer(rig.answer, "is held by container a of pod default/p");
    rig_stop(&rig);
}
END_TEST

START_TEST(what_a_pod_held_is_free_when_it_is_over)
{
    start();
    waiting("p", "1", MEM("a", 3));
    admit("p", "a", IDS_MEM, 3, ALL);
    waiting("q", "1", MEM("a", 3));
    rig_prefer(&rig, 3, "GPU-1/0-2");
    ck_assert_str_eq(rig.answer, "(nothing yet)"); /* all of them are p's */
    rig_api(&rig, "p", "Succeeded", ON("1", "GPU-1"), "", MEM("a", 3));
    ck_assert_str_eq(rig.answer, "GPU-1/0 GPU-1/1 GPU-1/2");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_deleted_pod_holds_nothing)
{
    start();
    waiting("p", "1", MEM("a", 3));
    admit("p", "a", IDS_MEM, 3, ALL);
    /* By force: the kubelet has it still, and an exporter's List made it forget. */
    rig_api_gone(&rig, "p");
    waiting("q", "1", MEM("a", 1));
    ck_assert_str_eq(rig_prefer(&rig, 1, ALL), "GPU-1/3");
    rig_kubelet_gone(&rig, "p");
    ck_assert_str_eq(rig_prefer(&rig, 1, ALL), "GPU-1/0");
    ck_assert_uint_eq(alloc_grants(rig.a)->n, 0);
    rig_stop(&rig);
}
END_TEST

START_TEST(containers_come_in_sequence)
{
    start();
    rig_api(&rig, "p", "Pending", ON("1", "GPU-1"),
            MEM("i", 2) ",{'name':'s','restartPolicy':'Always','resources':{'limits':{"
                        "'" KEY_GPU_MEM "':'1'}}}",
            MEM("a", 2) "," MEM("b", 4));
    rig_kubelet(&rig, "p", RIG_NAMES("s", "a", "b"));
    /* The app containers are not what the kubelet asks for now. */
    check_answer(rig_prefer(&rig, 4, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "no-pod: ");

    ck_assert_str_eq(rig_prefer(&rig, 2, ALL), "GPU-1/0 GPU-1/1");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-1"), "granted"); /* i, never shown */
    admit("p", "s", IDS_MEM, 1, "GPU-1/2-15");
    /* a takes over i's ids: the kubelet asks for no preference. */
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-1"), "granted");
    check_env("ALIYUN_COM_GPU_MEM_POD=7\nALIYUN_COM_GPU_MEM_CONTAINER=2\n");
    struct rig_pod *p = rig_find(&rig, "p");
    rig_add_id(&rig, &p->containers[1], IDS_MEM, rig_id(&rig, "GPU-1/0"));
    rig_add_id(&rig, &p->containers[1], IDS_MEM, rig_id(&rig, "GPU-1/1"));
    ck_assert_ptr_null(rig.log.p); /* not all of them yet */
    admit("p", "b", IDS_MEM, 4, "GPU-1/3-15");
    check_log("patch p uid-p");
    ck_assert_uint_eq(alloc_grants(rig.a)->n, 4);
    rig_stop(&rig);
}
END_TEST

START_TEST(ids_of_the_init_container_that_must_be_taken)
{
    start();
    rig_api(&rig, "p", "Pending", ON("1", "GPU-1"), MEM("i", 2), MEM("a", 4));
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_prefer(&rig, 2, ALL);
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/6-7"), "granted");
    ck_assert_str_eq(rig_ask(&rig, ALLOC_ASK_PREFER, IDS_MEM, 4, ALL, "GPU-1/6-7"),
                     "GPU-1/0 GPU-1/1 GPU-1/6 GPU-1/7");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-1 GPU-1/6-7"), "granted");
    rig_stop(&rig);
}
END_TEST

START_TEST(several_cards_get_their_shares)
{
    start();
    rig_api(&rig, "p", "Pending",
            "'" KEY_GPU_COUNT "':'2','" KEY_MEM_IDX "':'0,1','" KEY_CARD_UUID
            "':'GPU-0,GPU-1'",
            "", MEM("a", 4));
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    ck_assert_str_eq(rig_prefer(&rig, 4, ALL), "GPU-0/0 GPU-0/1 GPU-1/0 GPU-1/1");
    check_answer(rig_allocate(&rig, "GPU-0/0-2 GPU-1/0"), "wrong-card: ");
    rig_stop(&rig);
    memset(&rig, 0, sizeof rig);
    start();
    rig_api(&rig, "p", "Pending",
            "'" KEY_GPU_COUNT "':'2','" KEY_MEM_IDX "':'0,1','" KEY_CARD_UUID
            "':'GPU-0,GPU-1'",
            "", MEM("a", 4));
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    admit("p", "a", IDS_MEM, 4, ALL);
    ck_assert_str_eq(rig.env, "NVIDIA_VISIBLE_DEVICES=GPU-0,GPU-1\n"
                              "ALIYUN_COM_GPU_MEM_IDX=0,1\n"
                              "ALIYUN_COM_GPU_MEM_POD=4\n"
                              "ALIYUN_COM_GPU_MEM_CONTAINER=4\n"
                              "ALIYUN_COM_GPU_MEM_DEV=8,16\n");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_whole_card_is_nobody_elses)
{
    start();
    waiting("p", "1", MEM("a", 3));
    admit("p", "a", IDS_MEM, 3, ALL);
    waiting("w", "1", CARDS("a", 1));
    check_answer(rig_ask(&rig, ALLOC_ASK_PREFER, IDS_COUNT, 1, "GPU-0 GPU-1", ""),
                 "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "held: ");
    check_answer(rig.answer, "of pod default/p, through the other resource");
    /* And the other way round. */
    waiting("v", "0", CARDS("a", 1));
    admit("v", "a", IDS_COUNT, 1, "GPU-0 GPU-1");
    ck_assert_str_eq(rig.env, "NVIDIA_VISIBLE_DEVICES=GPU-0\n"
                              "ALIYUN_COM_GPU_MEM_IDX=0\n"
                              "ALIYUN_COM_GPU_MEM_POD=8\n"
                              "ALIYUN_COM_GPU_MEM_CONTAINER=8\n"
                              "ALIYUN_COM_GPU_MEM_DEV=8\n");
    waiting("q", "0", MEM("a", 2));
    check_answer(rig_prefer(&rig, 2, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "held: ");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_pod_of_the_go_plugin_keeps_its_card)
{
    start();
    rig_api(&rig, "old", "Running", "'" KEY_MEM_IDX "':'1','" KEY_MEM_ASSIGNED "':'true'",
            "", MEM("a", 3));
    struct rig_pod *old = rig_kubelet(&rig, "old", RIG_NAMES("a"));
    rig_add_id(&rig, &old->containers[0], IDS_MEM, "GPU-0-_-7");
    rig_add_id(&rig, &old->containers[0], IDS_MEM, "GPU-0-_-8");
    rig_add_id(&rig, &old->containers[0], IDS_MEM, "GPU-0-_-9");
    waiting("w", "1", CARDS("a", 1));
    check_answer(rig_ask(&rig, ALLOC_ASK_PREFER, IDS_COUNT, 1, "GPU-0 GPU-1", ""),
                 "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "held: card GPU-1 is used by pod default/old");
    /* Its ids are not looked upon as those of GPU-0: no complaint, no grant. */
    ck_assert_uint_eq(alloc_stats(rig.a)->mismatches, 0);
    ck_assert_uint_eq(alloc_grants(rig.a)->n, 0);
    waiting("v", "0", MEM("a", 3));
    admit("v", "a", IDS_MEM, 3, ALL);
    rig_stop(&rig);
}
END_TEST

START_TEST(cards_of_a_pod_with_an_init_container_go_in_any_order)
{
    start();
    rig_api(&rig, "p", "Pending",
            "'" KEY_MEM_IDX "':'0,1','" KEY_CARD_UUID "':'GPU-0,GPU-1'", CARDS("i", 2),
            CARDS("a", 1) "," CARDS("b", 1));
    rig_kubelet(&rig, "p", RIG_NAMES("a", "b"));
    rig_ask(&rig, ALLOC_ASK_PREFER, IDS_COUNT, 2, "GPU-0 GPU-1", "");
    ck_assert_str_eq(rig.answer, "GPU-0 GPU-1");
    check_answer(rig_ask(&rig, ALLOC_ASK_ALLOCATE, IDS_COUNT, 0, "GPU-0 GPU-1", ""),
                 "granted");
    /* What i had is handed on at random. */
    check_answer(rig_ask(&rig, ALLOC_ASK_ALLOCATE, IDS_COUNT, 0, "GPU-1", ""), "granted");
    check_env("NVIDIA_VISIBLE_DEVICES=GPU-1\n");
    struct rig_pod *p = rig_find(&rig, "p");
    rig_add_id(&rig, &p->containers[0], IDS_COUNT, rig_id(&rig, "GPU-1"));
    check_answer(rig_ask(&rig, ALLOC_ASK_ALLOCATE, IDS_COUNT, 0, "GPU-1", ""),
                 "(nothing yet)"); /* a's */
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "held: ");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_lost_card_is_not_given)
{
    start();
    waiting("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    alloc_card_struck(rig.a, rig.now, SPAN("GPU-1"), "XID 79", &rig.out);
    check_answer(rig_allocate(&rig, "GPU-1/0-2"),
                 "card-out: pod default/p was promised card GPU-1, which is out: XID 79");
    rig_api(&rig, "q", "Pending", ON("5", "GPU-9"), "", MEM("a", 3));
    rig_kubelet(&rig, "q", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL), "card-out: pod default/q was promised card 5 "
                                           "GPU-9, which is not on this node");
    rig_stop(&rig);
}
END_TEST

START_TEST(what_cannot_be_meant_is_refused)
{
    start();
    rig_api(&rig, "p", "Pending", ON("0,1", "GPU-0,GPU-1"), "", MEM("a", 3));
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL), "unmeant: pod default/p: 2 cards are "
                                           "promised");
    rig_stop(&rig);
}
END_TEST

START_TEST(too_few_free_ids_are_said)
{
    start();
    waiting("p", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, "GPU-0/0-7 GPU-1/0-1"),
                 "short: the kubelet has 1 ids of card GPU-1 too few");
    rig_stop(&rig);
}
END_TEST

START_TEST(ids_that_are_none_of_ours)
{
    struct span id = SPAN("GPU-1-_-3");
    start();
    waiting("p", "1", MEM("a", 1));
    rig_prefer(&rig, 1, ALL);
    struct alloc_ask ask = {
        .type = ALLOC_ASK_ALLOCATE, .token = 77, .ids = &id, .n_ids = 1};
    rig.answered = false;
    alloc_ask(rig.a, rig.now, &ask, &rig.out);
    rig_take(&rig);
    check_answer(rig.answer, "unknown-id: \"GPU-1-_-3\" is no id of this node's cards");
    rig_stop(&rig);
}
END_TEST

START_TEST(the_unpromised_get_an_untouched_card)
{
    struct alloc_settings s = rig_settings();
    s.allow_unpromised = true;
    start_with(s);
    waiting("p", "0", MEM("a", 3));
    rig_kubelet_gone(&rig, "p"); /* promised, not even admitted yet */
    rig_api(&rig, "n", "Pending", "", "", MEM("a", 2));
    rig_kubelet(&rig, "n", RIG_NAMES("a"));
    admit("n", "a", IDS_MEM, 2, ALL);
    check_env("NVIDIA_VISIBLE_DEVICES=GPU-1\n");
    check_log(
        "patch n uid-n {\"ALIYUN_COM_GPU_MEM_IDX\":\"1\",\"ALIYUN_COM_GPU_MEM_DEV\":"
        "\"16\",\"ALIYUN_COM_GPU_MEM_POD\":\"2\"");
    check_log("\"gpushare/card-uuid\":\"GPU-1\"}");
    check_log("patch n uid-n {\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}");
    /* News of the pod that are older than that change nothing. */
    rig_api(&rig, "n", "Pending", "", "", MEM("a", 2));
    rig_api(&rig, "m", "Pending", "", "", MEM("a", 2));
    rig_kubelet(&rig, "m", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 2, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "no-promise: pod default/m was promised no card, and there "
                             "are not 1 cards with 2 units on which nothing is promised");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_static_pod_is_given_an_untouched_card)
{
    start();
    /* The API has nothing of it before it is admitted. */
    rig_kubelet(&rig, "s-n1", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 2, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    ck_assert_str_eq(rig.answer, "GPU-0/0 GPU-0/1");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-0/0-1"), "granted");
    ck_assert_ptr_null(rig.log.p);
    /* Its mirror pod comes, and is annotated. */
    rig_api(&rig, "s-n1", "Pending", "'" KEY_MIRROR "':'1'", "", MEM("a", 2));
    check_log("patch s-n1 uid-s-n1 {\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"");
    ck_assert_uint_eq(alloc_grants(rig.a)->n, 1);
    ck_assert_span_eq(alloc_grants(rig.a)->items[0]->uid, "uid-s-n1");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_container_that_names_its_devices_itself)
{
    static const char app[] =
        "{'name':'a','env':[{'name':'NVIDIA_VISIBLE_DEVICES','value':'all'}],"
        "'resources':{'limits':{'" KEY_GPU_MEM "':'3'}}}";
    start();
    waiting("p", "1", app);
    admit("p", "a", IDS_MEM, 3, ALL);
    check_log("event p GPUEnvOverridden container a sets NVIDIA_VISIBLE_DEVICES itself");
    rig_stop(&rig);
    memset(&rig, 0, sizeof rig);
    struct alloc_settings s = rig_settings();
    s.strict_env = true;
    start_with(s);
    waiting("p", "1", app);
    check_answer(rig_prefer(&rig, 3, ALL), "own-env: container a of pod default/p sets");
    rig_stop(&rig);
}
END_TEST

START_TEST(the_old_way_of_failing)
{
    struct alloc_settings s = rig_settings();
    s.legacy_env = true;
    s.wait_ms = 0;
    start_with(s);
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-2"), "granted");
    ck_assert_str_eq(rig.env, "NVIDIA_VISIBLE_DEVICES=no-gpu-has-3GiB-to-run\n"
                              "ALIYUN_COM_GPU_MEM_IDX=-1\n"
                              "ALIYUN_COM_GPU_MEM_POD=3\n"
                              "ALIYUN_COM_GPU_MEM_CONTAINER=3\n"
                              "ALIYUN_COM_GPU_MEM_DEV=0\n");
    ck_assert_uint_eq(alloc_grants(rig.a)->n, 0);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_kubelet_without_get)
{
    start();
    rig.no_get = true;
    waiting("p", "1", MEM("a", 3));
    admit("p", "a", IDS_MEM, 3, ALL);
    ck_assert_int_eq(rig.gets, 1);
    waiting("q", "1", MEM("a", 3));
    admit("q", "a", IDS_MEM, 3, "GPU-1/3-15");
    ck_assert_int_eq(rig.gets, 1); /* it is not asked again */
    ck_assert_int_eq(rig.lists, 2);
    rig_stop(&rig);
}
END_TEST

START_TEST(no_list_during_an_allocate)
{
    start();
    waiting("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    int lists = rig.lists;
    rig_allocate(&rig, "GPU-1/0-2");
    ck_assert_int_eq(rig.lists, lists);
    ck_assert_int_eq(rig.gets, 1);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_kubelet_that_does_not_answer)
{
    start();
    rig.kubelet_away = true;
    waiting("p", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 1000);
    rig.kubelet_away = false;
    rig_pass(&rig, 1000);
    ck_assert_str_eq(rig.answer, "GPU-1/0 GPU-1/1 GPU-1/2");
    rig.kubelet_away = true;
    check_answer(rig_allocate(&rig, "GPU-1/0-2"), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "kubelet: the kubelet's podresources service: away");
    rig_stop(&rig);
}
END_TEST

START_TEST(the_pod_must_still_be_there_at_allocate)
{
    start();
    waiting("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    rig_kubelet_gone(&rig, "p");
    check_answer(rig_allocate(&rig, "GPU-1/0-2"), "(nothing yet)");
    rig_api_gone(&rig, "p");
    check_answer(rig.answer, "not-offered: ");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_lost_checkpoint_begins_anew)
{
    start();
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), MEM("i", 2), MEM("a", 3));
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_prefer(&rig, 2, ALL);
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-1"), "granted");
    ck_assert_str_eq(rig_ask(&rig, ALLOC_ASK_PREFER, IDS_MEM, 3, ALL, "GPU-1/0-1"),
                     "GPU-1/0 GPU-1/1 GPU-1/2");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-2"), "granted");
    /* It has both, and the kubelet shows neither. */
    alloc_kubelet_started(rig.a, rig.now, &rig.out);
    ck_assert_str_eq(rig_prefer(&rig, 2, ALL), "GPU-1/0 GPU-1/1");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-1"), "granted");
    ck_assert_uint_eq(alloc_grants(rig.a)->n, 1);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_lost_state_file_is_made_up_for)
{
    start();
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 3));
    struct rig_pod *p = rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-1/0"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-1/1"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-1/2"));
    waiting("q", "1", MEM("a", 2));
    ck_assert_str_eq(rig_prefer(&rig, 2, ALL), "GPU-1/3 GPU-1/4");
    ck_assert_uint_eq(alloc_stats(rig.a)->adopted, 1);
    ck_assert_uint_eq(alloc_stats(rig.a)->mismatches, 0);
    check_log("patch p uid-p {\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}");
    rig_stop(&rig);
}
END_TEST

START_TEST(the_audit_finds_a_container_on_another_card)
{
    struct alloc_settings s = rig_settings();
    s.audit_ms = 60000;
    start_with(s);
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    struct rig_pod *p = rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-0/0"));
    rig_pass(&rig, 2000);
    ck_assert_int_eq(rig.lists, 0);
    ck_assert_int_ge(rig.gets, 1);
    ck_assert_uint_eq(alloc_stats(rig.a)->mismatches, 1);
    check_log("event p GPUMismatch container a holds 1 of card GPU-0, which is not what "
              "was promised to it");
    rig_pass(&rig, 125000); /* said once */
    ck_assert_uint_eq(alloc_stats(rig.a)->mismatches, 1);
    ck_assert_int_ge(rig.gets, 3);
    /* And another one that holds the same. */
    rig_api(&rig, "q", "Running", ON("0", "GPU-0"), "", MEM("a", 1));
    struct rig_pod *q = rig_kubelet(&rig, "q", RIG_NAMES("a"));
    rig_add_id(&rig, &q->containers[0], IDS_MEM, rig_id(&rig, "GPU-0/0"));
    rig_pass(&rig, 2000);
    check_log("event q GPUMismatch container a holds what container a of pod default/p "
              "holds, on card GPU-0");
    rig_stop(&rig);
}
END_TEST

/* The kubelet shows it before the API server has told of it. */
START_TEST(a_pod_that_is_told_of_late_holds_its_ids_once)
{
    struct alloc_settings s = rig_settings();
    s.audit_ms = 60000;
    rig.a = alloc_new(&s);
    rig.now = (struct alloc_time){1000, 1};
    rig_cards(&rig, two_cards);
    alloc_list_begins(rig.a);
    struct rig_pod *p = rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-1/0"));
    rig_kubelet(&rig, "q", RIG_NAMES("a"));
    rig_api(&rig, "q", "Pending", ON("1", "GPU-1"), "", MEM("a", 2));
    check_answer(rig_prefer(&rig, 2, ALL), "(nothing yet)");
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    alloc_list_ended(rig.a, rig.now, &rig.out);
    rig_take(&rig);
    rig_pass(&rig, 1000);
    check_answer(rig.answer, "GPU-1/1 GPU-1/2");
    check_answer(rig_allocate(&rig, "GPU-1/1-2"), "granted");
    ck_assert_uint_eq(alloc_grants(rig.a)->n, 2);
    rig_pass(&rig, 125000);
    ck_assert_uint_eq(alloc_grants(rig.a)->n, 2);
    ck_assert_uint_eq(alloc_stats(rig.a)->mismatches, 0);
    rig_stop(&rig);
}
END_TEST

START_TEST(an_audit_that_an_ask_overtook_is_made_again)
{
    struct alloc_settings s = rig_settings();
    s.audit_ms = 60000;
    start_with(s);
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    struct rig_pod *p = rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-1/0"));
    alloc_tick(rig.a, rig.now, &rig.out); /* asks for p */
    ck_assert_uint_eq(rig.out.n, 1);
    ck_assert_int_eq(rig.out.items[0].type, ALLOC_GET);
    rig_ask(&rig, ALLOC_ASK_START, IDS_MEM, 0, "GPU-1/5", ""); /* and then p is shown */
    ck_assert_uint_eq(alloc_grants(rig.a)->n, 0);
    rig_pass(&rig, 1000);
    ck_assert_uint_eq(alloc_grants(rig.a)->n, 1);
    rig_stop(&rig);
}
END_TEST

static void pass_with_audits(int64_t audit_ms)
{
    struct alloc_settings s = rig_settings();
    s.audit_ms = audit_ms;
    start_with(s);
    /* A pod of no interest to us. */
    rig_api(&rig, "other", "Running", "", "", "{'name':'a'}");
    rig_kubelet(&rig, "other", RIG_NAMES("a"));
    rig_pass(&rig, 1000);
}

START_TEST(podresources_is_asked_even_if_there_is_nothing_to_ask)
{
    pass_with_audits(60000);
    ck_assert_int_eq(rig.gets, 1);
    rig_pass(&rig, 182000);
    ck_assert_int_eq(rig.gets, 4);
    ck_assert_int_eq(alloc_kubelet_trouble(rig.a)->since_ms, 0);
    /* More often while it does not answer. */
    rig.kubelet_away = true;
    rig_pass(&rig, 90000);
    ck_assert_int_ge(rig.gets, 8);
    int64_t since = alloc_kubelet_trouble(rig.a)->since_ms;
    ck_assert_int_ge(rig.now.mono_ms - since, 30000);
    ck_assert_str_eq(alloc_kubelet_trouble(rig.a)->err.msg, "away");
    rig.kubelet_away = false;
    rig_pass(&rig, 6000);
    ck_assert_int_eq(alloc_kubelet_trouble(rig.a)->since_ms, 0);
    ck_assert_int_eq(rig.lists, 0);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_kubelet_without_get_is_no_trouble)
{
    rig.no_get = true;
    pass_with_audits(60000);
    ck_assert_int_eq(rig.gets, 1);
    rig_pass(&rig, 130000);
    ck_assert_int_eq(rig.gets, 1);
    ck_assert_int_ge(rig.lists, 2);
    ck_assert_int_eq(alloc_kubelet_trouble(rig.a)->since_ms, 0);
    rig.kubelet_away = true;
    rig_pass(&rig, 130000);
    ck_assert_int_ne(alloc_kubelet_trouble(rig.a)->since_ms, 0);
    rig_stop(&rig);
}
END_TEST

START_TEST(without_audits_the_end_of_trouble_is_found_out_all_the_same)
{
    struct alloc_settings s = rig_settings();
    s.audit_ms = 0;
    start_with(s);
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_pass(&rig, 130000);
    ck_assert_int_eq(rig.gets + rig.lists, 0);
    rig.kubelet_away = true;
    rig_prefer(&rig, 1, ALL);
    rig_pass(&rig, 60000); /* who has asked has given up */
    ck_assert_int_ne(alloc_kubelet_trouble(rig.a)->since_ms, 0);
    rig.kubelet_away = false;
    rig_pass(&rig, 10000);
    ck_assert_int_eq(alloc_kubelet_trouble(rig.a)->since_ms, 0);
    int asked = rig.gets + rig.lists;
    rig_pass(&rig, 130000);
    ck_assert_int_eq(rig.gets + rig.lists, asked);
    rig_stop(&rig);
}
END_TEST

START_TEST(an_answer_that_never_comes_is_trouble)
{
    struct alloc_settings s = rig_settings();
    s.audit_ms = 60000;
    start_with(s);
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    int64_t asked = rig.now.mono_ms;
    alloc_tick(rig.a, rig.now, &rig.out); /* asks, and nobody hears it */
    ck_assert_uint_eq(rig.out.n, 1);
    alloc_outputs_reset(&rig.out);
    rig_pass(&rig, 9000);
    ck_assert_int_eq(alloc_kubelet_trouble(rig.a)->since_ms, 0);
    rig_pass(&rig, 2000);
    ck_assert_int_eq(alloc_kubelet_trouble(rig.a)->since_ms, asked);
    rig_stop(&rig);
}
END_TEST

START_TEST(state_of_the_file_is_held)
{
    struct grants gs = {0};
    struct grant *g = grant_new(SPAN("uid-p"), SPAN("default"), SPAN("p"), SPAN("a"),
                                CONTAINER_APP, IDS_MEM);
    grant_add(g, SPAN("GPU-1"), 1, 0);
    grants_put(&gs, g);
    g = grant_new(SPAN("uid-gone"), SPAN("default"), SPAN("gone"), SPAN("a"),
                  CONTAINER_APP, IDS_MEM);
    grant_add(g, SPAN("GPU-1"), 1, 1);
    grants_put(&gs, g);
    struct alloc_settings s = rig_settings();
    rig.a = alloc_new(&s);
    rig.now = (struct alloc_time){1000, 1};
    rig_cards(&rig, two_cards);
    alloc_adopt(rig.a, &gs);
    alloc_list_begins(rig.a);
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    struct rig_pod *p = rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-1/0"));
    alloc_list_ended(rig.a, rig.now, &rig.out);
    rig_take(&rig);
    waiting("q", "1", MEM("a", 2));
    ck_assert_str_eq(rig_prefer(&rig, 2, ALL), "GPU-1/1 GPU-1/2");
    ck_assert_uint_eq(alloc_grants(rig.a)->n, 1);
    check_answer(rig_ask(&rig, ALLOC_ASK_START, IDS_MEM, 0, "GPU-1/0", ""), "started");
    check_answer(rig_ask(&rig, ALLOC_ASK_START, IDS_MEM, 0, "GPU-1/5", ""),
                 "not-offered: these ids were granted to nobody");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_cancelled_ask_is_answered_at_once)
{
    start();
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    alloc_cancel(rig.a, rig.now, rig.tokens, &rig.out);
    rig_take(&rig);
    check_answer(rig.answer, "no-pod: ");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_pod_that_was_refused_is_not_meant_again)
{
    start();
    waiting("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    check_answer(rig_allocate(&rig, "GPU-0/0-2"), "wrong-card: ");
    waiting("q", "1", MEM("a", 3));
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/0 GPU-1/1 GPU-1/2");
    rig_stop(&rig);
}
END_TEST

START_TEST(the_node_can_switch_isolation_off)
{
    struct alloc_settings s = rig_settings();
    s.response.strategy = RESPONSE_VOLUME_MOUNTS;
    start_with(s);
    alloc_cgpu_disable(rig.a, true);
    waiting("p", "1", MEM("a", 3));
    admit("p", "a", IDS_MEM, 3, ALL);
    check_env("CGPU_DISABLE=true\n");
    check_env("NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices\n");
    check_env("mount /var/run/nvidia-container-devices/GPU-1=/dev/null\n");
    rig_stop(&rig);
}
END_TEST

START_TEST(devices_by_name_by_index_and_with_mps)
{
    struct alloc_settings s = rig_settings();
    s.response.strategy = RESPONSE_CDI;
    s.response.mps_dir = "/run/mps";
    start_with(s);
    waiting("p", "1", MEM("a", 4));
    admit("p", "a", IDS_MEM, 4, ALL);
    check_env("cdi nvidia.com/gpu=GPU-1\n");
    check_env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M\n");
    check_env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25\n");
    check_env("mount /tmp/nvidia-mps=/run/mps/pipe\n");
    check_env("mount /dev/shm=/run/mps/shm\n");
    ck_assert_ptr_null(strstr(rig.env, "NVIDIA_VISIBLE_DEVICES"));
    rig_stop(&rig);
    memset(&rig, 0, sizeof rig);
    s = rig_settings();
    s.response.by_index = true;
    start_with(s);
    waiting("p", "1", MEM("a", 4));
    admit("p", "a", IDS_MEM, 4, ALL);
    check_env("NVIDIA_VISIBLE_DEVICES=1\n");
    rig_stop(&rig);
}
END_TEST

UNIT_MAIN(
    "alloc", the_container_gets_the_card_that_was_promised,
    of_equal_pods_it_is_the_one_that_the_kubelet_has, which_of_two_is_not_guessed,
    news_of_the_api_server_tell_which_it_is, another_size_is_not_meant,
    a_pod_that_comes_late_is_waited_for, a_stranger_may_be_the_one,
    an_old_kubelet_shows_what_is_over, who_waits_in_vain_is_told_why,
    without_a_list_of_the_api_server_nothing_is_given, ids_of_another_card_are_refused,
    one_id_of_another_card_is_enough, other_free_ids_of_the_right_card_will_do,
    more_or_less_than_it_asks_for_is_refused, an_allocate_without_a_preference_is_refused,
    ids_that_are_held_are_not_given_again, what_a_pod_held_is_free_when_it_is_over,
    a_deleted_pod_holds_nothing, containers_come_in_sequence,
    ids_of_the_init_container_that_must_be_taken, several_cards_get_their_shares,
    a_whole_card_is_nobody_elses, a_pod_of_the_go_plugin_keeps_its_card,
    cards_of_a_pod_with_an_init_container_go_in_any_order, a_lost_card_is_not_given,
    what_cannot_be_meant_is_refused, too_few_free_ids_are_said, ids_that_are_none_of_ours,
    the_unpromised_get_an_untouched_card, a_static_pod_is_given_an_untouched_card,
    a_container_that_names_its_devices_itself, the_old_way_of_failing,
    a_kubelet_without_get, no_list_during_an_allocate, a_kubelet_that_does_not_answer,
    the_pod_must_still_be_there_at_allocate, a_lost_checkpoint_begins_anew,
    a_lost_state_file_is_made_up_for, the_audit_finds_a_container_on_another_card,
    a_pod_that_is_told_of_late_holds_its_ids_once,
    an_audit_that_an_ask_overtook_is_made_again,
    podresources_is_asked_even_if_there_is_nothing_to_ask,
    a_kubelet_without_get_is_no_trouble,
    without_audits_the_end_of_trouble_is_found_out_all_the_same,
    an_answer_that_never_comes_is_trouble, state_of_the_file_is_held,
    a_cancelled_ask_is_answered_at_once, a_pod_that_was_refused_is_not_meant_again,
    the_node_can_switch_isolation_off, devices_by_name_by_index_and_with_mps)
