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

/* A pending pod with this promised card, which the kubelet is admitting. */
static void add_pending(const char *name, const char *card, const char *app)
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
        ck_assert_msg(strstr(is_, (want)) != NULL, "\"%s\" does not contain \"%s\"",     \
                      is_, (want));                                                      \
    } while (0)
#define check_log(want)                                                                  \
    ck_assert_msg(rig.log.p &&strstr(rig.log.p, (want)) != NULL,                         \
                  "\"%s\" is not in:\n%s", (want), rig.log.p ? rig.log.p : "")
#define check_env(want)                                                                  \
    ck_assert_msg(strstr(rig.env, (want)) != NULL, "\"%s\" is not in:\n%s", (want),      \
                  rig.env)

START_TEST(a_container_gets_the_promised_card)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/0 GPU-1/1 GPU-1/2");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-2"), "allocated");
    ck_assert_str_eq(rig.env, "NVIDIA_VISIBLE_DEVICES=GPU-1\n"
                              "ALIYUN_COM_GPU_MEM_IDX=1\n"
                              "ALIYUN_COM_GPU_MEM_POD=3\n"
                              "ALIYUN_COM_GPU_MEM_CONTAINER=3\n"
                              "ALIYUN_COM_GPU_MEM_DEV=16\n");
    check_log("patch p uid-p {\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}");
    ck_assert_int_eq(rig.saves, 1);
    ck_assert_uint_eq(alloc_state(rig.a)->stats.allocated[IDS_MEM], 1);
    rig_stop(&rig);
}
END_TEST

START_TEST(of_equal_pods_the_one_in_podresources_is_chosen)
{
    start();
    add_pending("p", "0", MEM("a", 3));
    rig_kubelet_gone(&rig, "p"); /* the kubelet adds it later */
    add_pending("q", "1", MEM("a", 3));
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/0 GPU-1/1 GPU-1/2");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-2"), "allocated");
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

START_TEST(two_candidates_are_ambiguous)
{
    start();
    add_pending("p", "0", MEM("a", 3));
    add_pending("q", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 4900);
    ck_assert(!rig.answered);
    rig_pass(&rig, 200);
    check_answer(rig.answer, "ambiguous: cannot identify the pod: 2 pods of this node "
                             "lack 3 ids of");
    ck_assert_uint_eq(alloc_state(rig.a)->stats.rejected[REJECTED_AMBIGUOUS], 1);
    ck_assert_uint_eq(alloc_state(rig.a)->stats.deferred, 1);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_pod_update_resolves_the_ambiguity)
{
    start();
    add_pending("p", "0", MEM("a", 3));
    add_pending("q", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    /* The kubelet rejected p for another reason. Since 1.34 it does not show such a pod.
     */
    rig_kubelet_gone(&rig, "p");
    rig_api(&rig, "p", "Failed", ON("0", "GPU-0"), "", MEM("a", 3));
    ck_assert_str_eq(rig.answer, "GPU-1/0 GPU-1/1 GPU-1/2");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_pod_of_another_size_is_no_candidate)
{
    start();
    add_pending("p", "0", MEM("a", 4));
    add_pending("q", "1", MEM("a", 3));
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/0 GPU-1/1 GPU-1/2");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_late_pod_event_is_waited_for)
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

START_TEST(an_unknown_pod_blocks_the_answer)
{
    start();
    /* The kubelet rejected "refused", which the API server has not reported yet; and the
     * pod that the request is for has not been sent yet. */
    add_pending("refused", "0", MEM("a", 3));
    rig_kubelet(&rig, "unheard", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "has not sent yet: default/unheard");
    /* A later request cannot be for the pod that an earlier one met. */
    rig_kubelet_gone(&rig, "refused");
    rig_api(&rig, "refused", "Failed", ON("0", "GPU-0"), "", MEM("a", 3));
    add_pending("q", "1", MEM("a", 3));
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/0 GPU-1/1 GPU-1/2");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_kubelet_before_1_34_lists_terminal_pods)
{
    start();
    rig.no_get = true;
    add_pending("first", "1", MEM("a", 2));
    rig_prefer(&rig, 2, ALL);
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-1"), "allocated"); /* without Get */
    rig_kubelet_gone(&rig, "first");
    add_pending("ended", "0", MEM("a", 3));
    add_pending("p", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_api(&rig, "ended", "Failed", ON("0", "GPU-0"), "", MEM("a", 3));
    check_answer(rig.answer,
                 "(nothing yet)"); /* it can have been recreated under that name */
    rig_pass(&rig, 900);
    ck_assert(!rig.answered);
    rig_pass(&rig, 200);
    ck_assert_str_eq(rig.answer, "GPU-1/2 GPU-1/3 GPU-1/4");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_timed_out_request_names_the_reason)
{
    start();
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "no-pending-pod: no pod in the kubelet's view lacks "
                             "3 ids of aliyun.com/gpu-mem");
    rig_api(&rig, "n", "Pending", "", "", MEM("a", 3));
    rig_kubelet(&rig, "n", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "no-promise: pod default/n has no promised card");
    check_log(
        "event n GPUAllocationFailed pod default/n has no promised card: the extender "
        "did not bind it. Set schedulerName to a kube-scheduler that calls the "
        "extender, and create the pod again");
    rig_stop(&rig);
}
END_TEST

START_TEST(requests_are_rejected_before_the_first_pod_list)
{
    struct alloc_settings s = rig_settings();
    rig_new(&rig, &s);
    rig_cards(&rig, two_cards);
    add_pending("p", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "not-synced: ");
    rig_stop(&rig);
}
END_TEST

START_TEST(ids_of_another_card_are_rejected)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    check_answer(rig_allocate(&rig, "GPU-0/0-2"), "wrong-card: id " /* ... */);
    check_answer(rig.answer,
                 "belongs to card GPU-0; container a of pod default/p is promised "
                 "3 of card 1 GPU-1");
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 0);
    rig_stop(&rig);
}
END_TEST

START_TEST(one_id_of_another_card_is_rejected)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    check_answer(rig_allocate(&rig, "GPU-1/0-1 GPU-0/0"), "wrong-card: ");
    rig_stop(&rig);
}
END_TEST

START_TEST(other_free_ids_of_the_promised_card_are_accepted)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/9-11"), "allocated");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_wrong_number_of_ids_is_rejected)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    check_answer(rig_allocate(&rig, "GPU-1/0-3"), "wrong-card: 4 ids for container a");
    rig_stop(&rig);
}
END_TEST

START_TEST(allocate_without_a_preference_is_rejected)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    check_answer(rig_allocate(&rig, "GPU-1/0-2"), "not-preferred: ");
    rig_prefer(&rig, 3, ALL);
    RIG_STEP(&rig, .type = ALLOC_IN_KUBELET_STARTED);
    check_answer(rig_allocate(&rig, "GPU-1/0-2"), "not-preferred: ");
    rig_stop(&rig);
}
END_TEST

/* Admits the container as the kubelet does, with the preferred ids. */
static void admit(const char *pod, const char *container, enum ids_resource res,
                  int64_t size, const char *available)
{
    char ids[sizeof rig.answer];
    struct rig_pod *p = rig_find(&rig, pod);
    strcpy(ids, rig_request(&rig, ALLOC_REQUEST_PREFERRED, res, size, available, ""));
    check_answer(rig_request(&rig, ALLOC_REQUEST_ALLOCATE, res, 0, ids, ""), "allocated");
    struct span list[RIG_IDS];
    size_t n = rig_ids(&rig, ids, list);
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < n && strcmp(p->containers[i].name, container) == 0; k++)
            rig_add_id(&rig, &p->containers[i], res, list[k].p);
}

START_TEST(held_ids_are_not_allocated_again)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    admit("p", "a", IDS_MEM, 3, ALL);
    add_pending("q", "1", MEM("a", 3));
    /* The kubelet forgot p's ids because an exporter called List; it offers them again.
     */
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/3 GPU-1/4 GPU-1/5");
    check_answer(rig_allocate(&rig, "GPU-1/2-4"), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "in-use: ");
    check_answer(rig.answer, "is held by pod default/p");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_terminal_pod_frees_its_ids)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    admit("p", "a", IDS_MEM, 3, ALL);
    add_pending("q", "1", MEM("a", 3));
    rig_prefer(&rig, 3, "GPU-1/0-2");
    ck_assert_str_eq(rig.answer, "(nothing yet)"); /* p holds all of them */
    rig_api(&rig, "p", "Succeeded", ON("1", "GPU-1"), "", MEM("a", 3));
    ck_assert_str_eq(rig.answer, "GPU-1/0 GPU-1/1 GPU-1/2");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_deleted_pod_frees_its_ids_when_the_kubelet_drops_it)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    admit("p", "a", IDS_MEM, 3, ALL);
    /* Force-deleted: the kubelet still has it, and an exporter's List made it forget p's
     * ids. */
    rig_api_gone(&rig, "p");
    add_pending("q", "1", MEM("a", 1));
    ck_assert_str_eq(rig_prefer(&rig, 1, ALL), "GPU-1/3");
    rig_kubelet_gone(&rig, "p");
    ck_assert_str_eq(rig_prefer(&rig, 1, ALL), "GPU-1/0");
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 0);
    rig_stop(&rig);
}
END_TEST

START_TEST(containers_are_admitted_in_sequence)
{
    start();
    rig_api(&rig, "p", "Pending", ON("1", "GPU-1"),
            MEM("i", 2) ",{'name':'s','restartPolicy':'Always','resources':{'limits':{"
                        "'" KEY_GPU_MEM "':'1'}}}",
            MEM("a", 2) "," MEM("b", 4));
    rig_kubelet(&rig, "p", RIG_NAMES("s", "a", "b"));
    /* App containers are admitted last. */
    check_answer(rig_prefer(&rig, 4, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "no-pending-pod: ");

    ck_assert_str_eq(rig_prefer(&rig, 2, ALL), "GPU-1/0 GPU-1/1");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-1"),
                     "allocated"); /* i, which podresources never shows */
    admit("p", "s", IDS_MEM, 1, "GPU-1/2-15");
    /* a reuses i's ids, without GetPreferredAllocation. */
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-1"), "allocated");
    check_env("ALIYUN_COM_GPU_MEM_POD=7\nALIYUN_COM_GPU_MEM_CONTAINER=2\n");
    struct rig_pod *p = rig_find(&rig, "p");
    rig_add_id(&rig, &p->containers[1], IDS_MEM, rig_id(&rig, "GPU-1/0"));
    rig_add_id(&rig, &p->containers[1], IDS_MEM, rig_id(&rig, "GPU-1/1"));
    ck_assert_ptr_null(rig.log.p); /* not all containers yet */
    admit("p", "b", IDS_MEM, 4, "GPU-1/3-15");
    check_log("patch p uid-p");
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 4);
    rig_stop(&rig);
}
END_TEST

START_TEST(must_include_ids_of_the_init_container_are_kept)
{
    start();
    rig_api(&rig, "p", "Pending", ON("1", "GPU-1"), MEM("i", 2), MEM("a", 4));
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_prefer(&rig, 2, ALL);
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/6-7"), "allocated");
    ck_assert_str_eq(
        rig_request(&rig, ALLOC_REQUEST_PREFERRED, IDS_MEM, 4, ALL, "GPU-1/6-7"),
        "GPU-1/0 GPU-1/1 GPU-1/6 GPU-1/7");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-1 GPU-1/6-7"), "allocated");
    rig_stop(&rig);
}
END_TEST

START_TEST(each_promised_card_gets_its_share)
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

START_TEST(a_whole_card_is_exclusive)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    admit("p", "a", IDS_MEM, 3, ALL);
    add_pending("w", "1", CARDS("a", 1));
    check_answer(
        rig_request(&rig, ALLOC_REQUEST_PREFERRED, IDS_COUNT, 1, "GPU-0 GPU-1", ""),
        "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "in-use: ");
    check_answer(rig.answer, "by pod default/p, through aliyun.com/gpu-mem");
    /* The reverse. */
    add_pending("v", "0", CARDS("a", 1));
    admit("v", "a", IDS_COUNT, 1, "GPU-0 GPU-1");
    ck_assert_str_eq(rig.env, "NVIDIA_VISIBLE_DEVICES=GPU-0\n"
                              "ALIYUN_COM_GPU_MEM_IDX=0\n"
                              "ALIYUN_COM_GPU_MEM_POD=8\n"
                              "ALIYUN_COM_GPU_MEM_CONTAINER=8\n"
                              "ALIYUN_COM_GPU_MEM_DEV=8\n");
    add_pending("q", "0", MEM("a", 2));
    check_answer(rig_prefer(&rig, 2, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "in-use: ");
    rig_stop(&rig);
}
END_TEST

/* The text becomes an event of the rejected pod. */
START_TEST(pods_of_other_namespaces_are_not_named)
{
    start();
    add_pending("other-p", "1", MEM("a", 3));
    admit("other-p", "a", IDS_MEM, 3, ALL);
    add_pending("q", "1", MEM("a", 3));
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/3 GPU-1/4 GPU-1/5");
    check_answer(rig_allocate(&rig, "GPU-1/2-4"), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "is held by a pod of another namespace");
    ck_assert_ptr_null(strstr(rig.answer, "other-p"));
    rig_stop(&rig);
}
END_TEST

/* The request could be for pods of two namespaces. The kubelet shows the text to who sees
 * the one that it is for; the log names the pods. */
static void check_unnamed(const char *text, const char *log)
{
    rig_pass(&rig, 6000);
    check_answer(rig.answer, text);
    ck_assert_ptr_null(strstr(rig.answer, "mine"));
    ck_assert_ptr_null(strstr(rig.answer, "other"));
    ck_assert_msg(strstr(rig.said.p, log), "%s", rig.said.p);
    rig_stop(&rig);
}

START_TEST(candidates_are_named_only_within_one_namespace)
{
    start();
    add_pending("p", "0", MEM("a", 3));
    add_pending("q", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "gpu-mem, among them default/p and default/q");
    rig_stop(&rig);

    start();
    add_pending("mine", "0", MEM("a", 3));
    add_pending("other", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    check_unnamed("ambiguous: cannot identify the pod: 2 pods of this node",
                  "other/other");

    start(); /* the pod that only the kubelet has could be of the other namespace, too */
    add_pending("mine-1", "0", MEM("a", 3));
    add_pending("mine-2", "1", MEM("a", 3));
    rig_kubelet(&rig, "other", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    check_unnamed("ambiguous: cannot identify the pod: 2 pods of this node",
                  "default/mine-1");
}
END_TEST

START_TEST(unknown_pods_are_named_only_within_one_namespace)
{
    start();
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "the API server has not sent yet: default/p");
    rig_stop(&rig);

    start();
    rig_kubelet(&rig, "mine", RIG_NAMES("a"));
    rig_kubelet(&rig, "other", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    check_unnamed("unknown-pod: the request can be for a pod that", "other/other");

    start();
    add_pending("mine", "0", MEM("a", 3));
    rig_kubelet(&rig, "other", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    check_unnamed("unknown-pod: the request can be for a pod that", "other/other");
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
    add_pending("w", "1", CARDS("a", 1));
    check_answer(
        rig_request(&rig, ALLOC_REQUEST_PREFERRED, IDS_COUNT, 1, "GPU-0 GPU-1", ""),
        "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "in-use: card GPU-1 is used by pod default/old");
    /* Its ids are not mistaken for those of GPU-0: no mismatch, no allocation. */
    ck_assert_uint_eq(alloc_state(rig.a)->stats.mismatches, 0);
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 0);
    add_pending("v", "0", MEM("a", 3));
    admit("v", "a", IDS_MEM, 3, ALL);
    rig_stop(&rig);
}
END_TEST

START_TEST(whole_cards_of_an_init_container_are_reused_in_any_order)
{
    start();
    rig_api(&rig, "p", "Pending",
            "'" KEY_MEM_IDX "':'0,1','" KEY_CARD_UUID "':'GPU-0,GPU-1'", CARDS("i", 2),
            CARDS("a", 1) "," CARDS("b", 1));
    rig_kubelet(&rig, "p", RIG_NAMES("a", "b"));
    rig_request(&rig, ALLOC_REQUEST_PREFERRED, IDS_COUNT, 2, "GPU-0 GPU-1", "");
    ck_assert_str_eq(rig.answer, "GPU-0 GPU-1");
    check_answer(
        rig_request(&rig, ALLOC_REQUEST_ALLOCATE, IDS_COUNT, 0, "GPU-0 GPU-1", ""),
        "allocated");
    /* The kubelet reuses i's cards in no order. */
    check_answer(rig_request(&rig, ALLOC_REQUEST_ALLOCATE, IDS_COUNT, 0, "GPU-1", ""),
                 "allocated");
    check_env("NVIDIA_VISIBLE_DEVICES=GPU-1\n");
    struct rig_pod *p = rig_find(&rig, "p");
    rig_add_id(&rig, &p->containers[0], IDS_COUNT, rig_id(&rig, "GPU-1"));
    check_answer(rig_request(&rig, ALLOC_REQUEST_ALLOCATE, IDS_COUNT, 0, "GPU-1", ""),
                 "(nothing yet)"); /* a holds it */
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "in-use: ");
    rig_stop(&rig);
}
END_TEST

START_TEST(an_unhealthy_or_absent_card_is_rejected)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    RIG_STEP(&rig, .type = ALLOC_IN_CARD_EVENT,
             .event = {
                 .kind = GPU_EVENT_XID, .xid = 79, .uuid = "GPU-1", .index = -1});
    check_answer(rig_allocate(&rig, "GPU-1/0-2"),
                 "unhealthy-card: pod default/p is promised card GPU-1, which is "
                 "unhealthy: XID 79");
    rig_api(&rig, "q", "Pending", ON("5", "GPU-9"), "", MEM("a", 3));
    rig_kubelet(&rig, "q", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL),
                 "unhealthy-card: pod default/q is promised card 5 "
                 "GPU-9, which is not on this node");
    rig_stop(&rig);
}
END_TEST

START_TEST(an_invalid_promise_is_rejected)
{
    start();
    rig_api(&rig, "p", "Pending", ON("0,1", "GPU-0,GPU-1"), "", MEM("a", 3));
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 3, ALL), "invalid-request: pod default/p: the "
                                           "annotations promise 2 cards, and the pod "
                                           "requests 1");
    rig_stop(&rig);
}
END_TEST

/* Another tenant's annotations name the card, without any limit. */
START_TEST(a_forged_promise_blocks_no_card)
{
    struct alloc_settings s = rig_settings();
    s.allow_unpromised = true;
    start_with(s);
    rig_api(&rig, "f", "Running", ON("0", "GPU-0") ",'" KEY_MEM_ASSIGNED "':'true'", "",
            "{'name':'a'}");
    rig_api(&rig, "p", "Pending", ON("0", "GPU-0"), "", CARDS("a", 1));
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    admit("p", "a", IDS_COUNT, 1, "GPU-0");
    check_env("NVIDIA_VISIBLE_DEVICES=GPU-0\n");
    rig_stop(&rig);
}
END_TEST

START_TEST(too_few_free_ids_are_rejected)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    check_answer(
        rig_prefer(&rig, 3, "GPU-0/0-7 GPU-1/0-1"),
        "insufficient-ids: the kubelet offers too few free ids of card GPU-1: 1 missing");
    rig_stop(&rig);
}
END_TEST

START_TEST(unknown_ids_are_rejected)
{
    struct span id = SPAN("GPU-1-_-3");
    start();
    add_pending("p", "1", MEM("a", 1));
    rig_prefer(&rig, 1, ALL);
    struct alloc_request req = {
        .type = ALLOC_REQUEST_ALLOCATE, .token = 77, .ids = &id, .n_ids = 1};
    rig.answered = false;
    RIG_STEP(&rig, .type = ALLOC_IN_REQUEST, .request = req);
    check_answer(rig.answer, "unknown-id: \"GPU-1-_-3\" is not a device id of this node");
    rig_stop(&rig);
}
END_TEST

START_TEST(an_unpromised_pod_gets_an_untouched_card)
{
    struct alloc_settings s = rig_settings();
    s.allow_unpromised = true;
    start_with(s);
    add_pending("p", "0", MEM("a", 3));
    rig_kubelet_gone(&rig, "p"); /* promised, but not admitted yet */
    rig_api(&rig, "n", "Pending", "", "", MEM("a", 2));
    rig_kubelet(&rig, "n", RIG_NAMES("a"));
    admit("n", "a", IDS_MEM, 2, ALL);
    check_env("NVIDIA_VISIBLE_DEVICES=GPU-1\n");
    check_log(
        "patch n uid-n {\"ALIYUN_COM_GPU_MEM_IDX\":\"1\",\"ALIYUN_COM_GPU_MEM_DEV\":"
        "\"16\",\"ALIYUN_COM_GPU_MEM_POD\":\"2\"");
    check_log("\"gpushare/card-uuid\":\"GPU-1\"}");
    check_log("patch n uid-n {\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}");
    /* An older version of the pod changes nothing. */
    rig_api(&rig, "n", "Pending", "", "", MEM("a", 2));
    rig_api(&rig, "m", "Pending", "", "", MEM("a", 2));
    rig_kubelet(&rig, "m", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 2, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "no-promise: pod default/m has no promised card, and fewer "
                             "than 1 cards of 2 units have no promises");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_static_pod_gets_an_untouched_card)
{
    start();
    /* The API server has no object of it before its admission. */
    rig_kubelet(&rig, "s-n1", RIG_NAMES("a"));
    check_answer(rig_prefer(&rig, 2, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    ck_assert_str_eq(rig.answer, "GPU-0/0 GPU-0/1");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-0/0-1"), "allocated");
    ck_assert_ptr_null(rig.log.p);
    /* Its mirror pod is annotated. */
    rig_api(&rig, "s-n1", "Pending", "'" KEY_MIRROR "':'1'", "", MEM("a", 2));
    check_log("patch s-n1 uid-s-n1 {\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"");
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 1);
    ck_assert_span_eq(alloc_state(rig.a)->allocations.items[0]->uid, "uid-s-n1");
    rig_stop(&rig);
}
END_TEST

START_TEST(an_invalid_pod_keeps_its_card)
{
    start();
    rig_api(&rig, "g", "Running",
            "'" KEY_MEM_IDX "':'0','" KEY_PLACEMENT "':'no such placement'", "",
            MEM("a", 2));
    rig_kubelet(&rig, "s-n1", RIG_NAMES("a")); /* a static pod */
    check_answer(rig_prefer(&rig, 2, ALL), "(nothing yet)");
    rig_pass(&rig, 6000);
    ck_assert_str_eq(rig.answer, "GPU-1/0 GPU-1/1");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_container_that_sets_visible_devices_is_reported)
{
    static const char app[] =
        "{'name':'a','env':[{'name':'NVIDIA_VISIBLE_DEVICES','value':'all'}],"
        "'resources':{'limits':{'" KEY_GPU_MEM "':'3'}}}";
    start();
    add_pending("p", "1", app);
    admit("p", "a", IDS_MEM, 3, ALL);
    check_log("event p GPUEnvOverridden container a sets NVIDIA_VISIBLE_DEVICES itself");
    rig_stop(&rig);
    memset(&rig, 0, sizeof rig);
    struct alloc_settings s = rig_settings();
    s.strict_env = true;
    start_with(s);
    add_pending("p", "1", app);
    check_answer(rig_prefer(&rig, 3, ALL),
                 "env-override: container a of pod default/p sets");
    rig_stop(&rig);
}
END_TEST

START_TEST(legacy_rejections_are_successes_without_a_card)
{
    struct alloc_settings s = rig_settings();
    s.legacy_env = true;
    s.wait_ms = 0;
    start_with(s);
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-2"), "allocated");
    ck_assert_str_eq(rig.env, "NVIDIA_VISIBLE_DEVICES=no-gpu-has-3GiB-to-run\n"
                              "ALIYUN_COM_GPU_MEM_IDX=-1\n"
                              "ALIYUN_COM_GPU_MEM_POD=3\n"
                              "ALIYUN_COM_GPU_MEM_CONTAINER=3\n"
                              "ALIYUN_COM_GPU_MEM_DEV=0\n");
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 0);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_kubelet_without_get_is_called_once)
{
    start();
    rig.no_get = true;
    add_pending("p", "1", MEM("a", 3));
    admit("p", "a", IDS_MEM, 3, ALL);
    ck_assert_int_eq(rig.gets, 1);
    add_pending("q", "1", MEM("a", 3));
    admit("q", "a", IDS_MEM, 3, "GPU-1/3-15");
    ck_assert_int_eq(rig.gets, 1); /* Get is not called again */
    ck_assert_int_eq(rig.lists, 2);
    rig_stop(&rig);
}
END_TEST

START_TEST(no_list_during_an_allocate)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    int lists = rig.lists;
    rig_allocate(&rig, "GPU-1/0-2");
    ck_assert_int_eq(rig.lists, lists);
    ck_assert_int_eq(rig.gets, 1);
    rig_stop(&rig);
}
END_TEST

START_TEST(podresources_failures_are_retried)
{
    start();
    rig.kubelet_away = true;
    add_pending("p", "1", MEM("a", 3));
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    rig_pass(&rig, 1000);
    rig.kubelet_away = false;
    rig_pass(&rig, 1000);
    ck_assert_str_eq(rig.answer, "GPU-1/0 GPU-1/1 GPU-1/2");
    rig.kubelet_away = true;
    check_answer(rig_allocate(&rig, "GPU-1/0-2"), "(nothing yet)");
    rig_pass(&rig, 6000);
    check_answer(rig.answer, "podresources: podresources: away");
    rig_stop(&rig);
}
END_TEST

START_TEST(allocate_requires_the_pod_in_podresources)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    rig_kubelet_gone(&rig, "p");
    check_answer(rig_allocate(&rig, "GPU-1/0-2"), "(nothing yet)");
    rig_api_gone(&rig, "p");
    check_answer(rig.answer, "not-preferred: ");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_lost_kubelet_checkpoint_voids_allocations)
{
    start();
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), MEM("i", 2), MEM("a", 3));
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_prefer(&rig, 2, ALL);
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-1"), "allocated");
    ck_assert_str_eq(
        rig_request(&rig, ALLOC_REQUEST_PREFERRED, IDS_MEM, 3, ALL, "GPU-1/0-1"),
        "GPU-1/0 GPU-1/1 GPU-1/2");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-2"), "allocated");
    /* Both containers have allocations, and the kubelet shows neither. */
    RIG_STEP(&rig, .type = ALLOC_IN_KUBELET_STARTED);
    ck_assert_str_eq(rig_prefer(&rig, 2, ALL), "GPU-1/0 GPU-1/1");
    ck_assert_str_eq(rig_allocate(&rig, "GPU-1/0-1"), "allocated");
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 1);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_lost_state_file_is_recovered_from_podresources)
{
    start();
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 3));
    struct rig_pod *p = rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-1/0"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-1/1"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-1/2"));
    add_pending("q", "1", MEM("a", 2));
    ck_assert_str_eq(rig_prefer(&rig, 2, ALL), "GPU-1/3 GPU-1/4");
    ck_assert_uint_eq(alloc_state(rig.a)->stats.recovered, 1);
    ck_assert_uint_eq(alloc_state(rig.a)->stats.mismatches, 0);
    check_log("patch p uid-p {\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}");
    rig_stop(&rig);
}
END_TEST

START_TEST(reconciliation_reports_a_container_on_another_card)
{
    struct alloc_settings s = rig_settings();
    s.reconcile_interval_ms = 60000;
    start_with(s);
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    struct rig_pod *p = rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-0/0"));
    rig_pass(&rig, 2000);
    ck_assert_int_eq(rig.lists, 0);
    ck_assert_int_ge(rig.gets, 1);
    ck_assert_uint_eq(alloc_state(rig.a)->stats.mismatches, 1);
    check_log("event p GPUMismatch container a holds 1 ids of card GPU-0, more than "
              "the promise allows");
    rig_pass(&rig, 125000); /* reported once */
    ck_assert_uint_eq(alloc_state(rig.a)->stats.mismatches, 1);
    ck_assert_int_ge(rig.gets, 3);
    /* A second pod with the same id. */
    rig_api(&rig, "q", "Running", ON("0", "GPU-0"), "", MEM("a", 1));
    struct rig_pod *q = rig_kubelet(&rig, "q", RIG_NAMES("a"));
    rig_add_id(&rig, &q->containers[0], IDS_MEM, rig_id(&rig, "GPU-0/0"));
    rig_pass(&rig, 2000);
    check_log("event q GPUMismatch container a and container a of pod default/p "
              "hold the same id of card GPU-0");
    rig_api(&rig, "other", "Running", ON("0", "GPU-0"), "", MEM("a", 1));
    struct rig_pod *other = rig_kubelet(&rig, "other", RIG_NAMES("a"));
    rig_add_id(&rig, &other->containers[0], IDS_MEM, rig_id(&rig, "GPU-0/0"));
    rig_pass(&rig, 2000);
    check_log("event other GPUMismatch container a and a container of another namespace "
              "hold the same id of card GPU-0");
    ck_assert_ptr_nonnull(strstr(rig.said.p, "card GPU-0: container a of pod default/"));
    rig_stop(&rig);
}
END_TEST

/* podresources shows the pod before the API server sends it. */
START_TEST(a_pod_first_seen_in_podresources_holds_its_ids_once)
{
    struct alloc_settings s = rig_settings();
    s.reconcile_interval_ms = 60000;
    rig_new(&rig, &s);
    rig_cards(&rig, two_cards);
    RIG_STEP(&rig, .type = ALLOC_IN_LIST_STARTED);
    struct rig_pod *p = rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-1/0"));
    rig_kubelet(&rig, "q", RIG_NAMES("a"));
    rig_api(&rig, "q", "Pending", ON("1", "GPU-1"), "", MEM("a", 2));
    check_answer(rig_prefer(&rig, 2, ALL), "(nothing yet)");
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    rig_sync(&rig);
    rig_pass(&rig, 1000);
    check_answer(rig.answer, "GPU-1/1 GPU-1/2");
    check_answer(rig_allocate(&rig, "GPU-1/1-2"), "allocated");
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 2);
    rig_pass(&rig, 125000);
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 2);
    ck_assert_uint_eq(alloc_state(rig.a)->stats.mismatches, 0);
    rig_stop(&rig);
}
END_TEST

/* The pods can be known before the cards: looking at the driver takes time. */
START_TEST(ids_are_not_judged_before_the_first_cards)
{
    struct alloc_settings s = rig_settings();
    char id[64];
    s.reconcile_interval_ms = 60000;
    start_with(s);
    snprintf(id, sizeof id, "%s", rig_id(&rig, "GPU-1/0"));
    rig_stop(&rig);
    memset(&rig, 0, sizeof rig);
    rig_new(&rig, &s);
    RIG_STEP(&rig, .type = ALLOC_IN_LIST_STARTED);
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    struct rig_pod *p = rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, id);
    rig_sync(&rig);
    rig_pass(&rig, 5000);
    ck_assert_uint_eq(alloc_state(rig.a)->stats.mismatches, 0);
    ck_assert_uint_eq(alloc_state(rig.a)->stats.reconciled, 0);
    rig_cards(&rig, two_cards);
    rig_pass(&rig, 5000);
    ck_assert_uint_eq(alloc_state(rig.a)->stats.mismatches, 0);
    ck_assert_uint_ge(alloc_state(rig.a)->stats.reconciled, 1);
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 1);
    rig_stop(&rig);
}
END_TEST

/* Outputs stay in rig.out. */
static void tick_unanswered(void)
{
    struct alloc_input tick = {.type = ALLOC_IN_TICK};
    alloc_step(rig.a, rig.now, &tick, &rig.out);
}

START_TEST(a_view_older_than_a_request_is_discarded)
{
    struct alloc_settings s = rig_settings();
    s.reconcile_interval_ms = 60000;
    start_with(s);
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    struct rig_pod *p = rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-1/0"));
    tick_unanswered(); /* calls Get for p */
    ck_assert_uint_eq(rig.out.n, 1);
    ck_assert_int_eq(rig.out.items[0].type, ALLOC_GET);
    rig_request(&rig, ALLOC_REQUEST_START, IDS_MEM, 0, "GPU-1/5",
                ""); /* then Get answers */
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 0);
    rig_pass(&rig, 1000);
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 1);
    rig_stop(&rig);
}
END_TEST

static void pass_with_interval(int64_t reconcile_interval_ms)
{
    struct alloc_settings s = rig_settings();
    s.reconcile_interval_ms = reconcile_interval_ms;
    start_with(s);
    /* A pod without GPU resources. */
    rig_api(&rig, "other", "Running", "", "", "{'name':'a'}");
    rig_kubelet(&rig, "other", RIG_NAMES("a"));
    rig_pass(&rig, 1000);
}

START_TEST(podresources_is_probed_without_gpu_pods)
{
    pass_with_interval(60000);
    ck_assert_int_eq(rig.gets, 1);
    rig_pass(&rig, 182000);
    ck_assert_int_eq(rig.gets, 4);
    ck_assert_int_eq(alloc_state(rig.a)->podresources.since_ms, 0);
    /* More often during a failure. */
    rig.kubelet_away = true;
    rig_pass(&rig, 90000);
    ck_assert_int_ge(rig.gets, 8);
    int64_t since = alloc_state(rig.a)->podresources.since_ms;
    ck_assert_int_ge(rig.now.mono_ms - since, 30000);
    ck_assert_str_eq(alloc_state(rig.a)->podresources.err.msg, "away");
    rig.kubelet_away = false;
    rig_pass(&rig, 6000);
    ck_assert_int_eq(alloc_state(rig.a)->podresources.since_ms, 0);
    ck_assert_int_eq(rig.lists, 0);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_kubelet_without_get_is_no_failure)
{
    rig.no_get = true;
    pass_with_interval(60000);
    ck_assert_int_eq(rig.gets, 1);
    rig_pass(&rig, 130000);
    ck_assert_int_eq(rig.gets, 1);
    ck_assert_int_ge(rig.lists, 2);
    ck_assert_int_eq(alloc_state(rig.a)->podresources.since_ms, 0);
    rig.kubelet_away = true;
    rig_pass(&rig, 130000);
    ck_assert_int_ne(alloc_state(rig.a)->podresources.since_ms, 0);
    rig_stop(&rig);
}
END_TEST

START_TEST(without_reconciliation_the_end_of_a_failure_is_detected)
{
    struct alloc_settings s = rig_settings();
    s.reconcile_interval_ms = 0;
    start_with(s);
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_pass(&rig, 130000);
    ck_assert_int_eq(rig.gets + rig.lists, 0);
    rig.kubelet_away = true;
    rig_prefer(&rig, 1, ALL);
    rig_pass(&rig, 60000); /* the request is rejected by now */
    ck_assert_int_ne(alloc_state(rig.a)->podresources.since_ms, 0);
    rig.kubelet_away = false;
    rig_pass(&rig, 10000);
    ck_assert_int_eq(alloc_state(rig.a)->podresources.since_ms, 0);
    int asked = rig.gets + rig.lists;
    rig_pass(&rig, 130000);
    ck_assert_int_eq(rig.gets + rig.lists, asked);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_missing_answer_is_a_failure)
{
    struct alloc_settings s = rig_settings();
    s.reconcile_interval_ms = 60000;
    start_with(s);
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    int64_t asked = rig.now.mono_ms;
    tick_unanswered(); /* calls Get, which gets no answer */
    ck_assert_uint_eq(rig.out.n, 1);
    alloc_outputs_reset(&rig.out);
    rig_pass(&rig, 9000);
    ck_assert_int_eq(alloc_state(rig.a)->podresources.since_ms, 0);
    rig_pass(&rig, 2000);
    ck_assert_int_eq(alloc_state(rig.a)->podresources.since_ms, asked);
    rig_stop(&rig);
}
END_TEST

START_TEST(allocations_of_the_state_file_are_held)
{
    struct allocation_set set = {0};
    struct allocation *al = allocation_new(SPAN("uid-p"), SPAN("default"), SPAN("p"),
                                           SPAN("a"), CONTAINER_APP, IDS_MEM);
    allocation_add(al, SPAN("GPU-1"), 1, 0);
    allocation_set_put(&set, al);
    al = allocation_new(SPAN("uid-gone"), SPAN("default"), SPAN("gone"), SPAN("a"),
                        CONTAINER_APP, IDS_MEM);
    allocation_add(al, SPAN("GPU-1"), 1, 1);
    allocation_set_put(&set, al);
    struct alloc_settings s = rig_settings();
    rig_new(&rig, &s);
    rig_cards(&rig, two_cards);
    RIG_STEP(&rig, .type = ALLOC_IN_RESTORE, .set = &set);
    RIG_STEP(&rig, .type = ALLOC_IN_LIST_STARTED);
    rig_api(&rig, "p", "Running", ON("1", "GPU-1"), "", MEM("a", 1));
    struct rig_pod *p = rig_kubelet(&rig, "p", RIG_NAMES("a"));
    rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, "GPU-1/0"));
    rig_sync(&rig);
    add_pending("q", "1", MEM("a", 2));
    ck_assert_str_eq(rig_prefer(&rig, 2, ALL), "GPU-1/1 GPU-1/2");
    ck_assert_uint_eq(alloc_state(rig.a)->allocations.n, 1);
    check_answer(rig_request(&rig, ALLOC_REQUEST_START, IDS_MEM, 0, "GPU-1/0", ""),
                 "started");
    check_answer(rig_request(&rig, ALLOC_REQUEST_START, IDS_MEM, 0, "GPU-1/5", ""),
                 "not-preferred: no container holds these ids");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_canceled_request_is_answered_immediately)
{
    start();
    check_answer(rig_prefer(&rig, 3, ALL), "(nothing yet)");
    RIG_STEP(&rig, .type = ALLOC_IN_CANCEL, .request.token = rig.tokens);
    check_answer(rig.answer, "no-pending-pod: ");
    rig_stop(&rig);
}
END_TEST

START_TEST(a_rejected_pod_is_no_candidate)
{
    start();
    add_pending("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    check_answer(rig_allocate(&rig, "GPU-0/0-2"), "wrong-card: ");
    add_pending("q", "1", MEM("a", 3));
    ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/0 GPU-1/1 GPU-1/2");
    rig_stop(&rig);
}
END_TEST

START_TEST(the_node_label_disables_cgpu)
{
    struct alloc_settings s = rig_settings();
    s.response.strategy = DRIVER_VOLUME_MOUNTS;
    start_with(s);
    RIG_STEP(&rig, .type = ALLOC_IN_NODE, .cgpu_disable = true);
    add_pending("p", "1", MEM("a", 3));
    admit("p", "a", IDS_MEM, 3, ALL);
    check_env("CGPU_DISABLE=true\n");
    check_env("NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices\n");
    check_env("mount /var/run/nvidia-container-devices/GPU-1=/dev/null\n");
    rig_stop(&rig);
}
END_TEST

static void use_cdi_kind(const char *kind)
{
    struct driver_view *view = xcalloc(1, sizeof *view);
    view->cdi_kind = kind;
    struct card_seen seen[2];
    for (int i = 0; i < 2; i++) {
        seen[i] = (struct card_seen){.index = i, .mib = two_cards[i] * 1024};
        snprintf(seen[i].uuid, sizeof seen[i].uuid, "GPU-%d", i);
    }
    RIG_STEP(&rig, .type = ALLOC_IN_CARDS, .seen = seen, .n = 2, .driver = view);
}

/* The runtime and the kubelet must take CDI names, and a specification must have them. */
START_TEST(auto_takes_cdi_names_where_the_node_has_them)
{
    static const struct {
        const char *runtime, *kubelet, *kind, *answer;
    } cases[] = {
        {"containerd://2.1.4", "v1.35.0", "nvidia.com/gpu", "cdi nvidia.com/gpu=GPU-1\n"},
        {"containerd://v2.4.2", "v1.37.2", "a/b",
         "cdi a/b=GPU-1\n"}, /* built from source */
        {"cri-o://1.28.1", "v1.29.0-eks-1", "a/b", "cdi a/b=GPU-1\n"},
        {"containerd://1.7.28", "v1.35.0", "a/b", "NVIDIA_VISIBLE_DEVICES=GPU-1\n"},
        {"cri-o://1.27.9", "v1.35.0", "a/b", "NVIDIA_VISIBLE_DEVICES=GPU-1\n"},
        {"docker://28.0", "v1.35.0", "a/b", "NVIDIA_VISIBLE_DEVICES=GPU-1\n"},
        {"containerd://2.1.4", "v1.28.9", "a/b", "NVIDIA_VISIBLE_DEVICES=GPU-1\n"},
        {"containerd://2.1.4", "v1.35.0", NULL, "NVIDIA_VISIBLE_DEVICES=GPU-1\n"},
        {"", "", "a/b", "NVIDIA_VISIBLE_DEVICES=GPU-1\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct driver_node node = {0};
        struct alloc_settings s = rig_settings();
        s.response.strategy = DRIVER_AUTO;
        memset(&rig, 0, sizeof rig);
        start_with(s);
        snprintf(node.runtime, sizeof node.runtime, "%s", cases[i].runtime);
        snprintf(node.kubelet, sizeof node.kubelet, "%s", cases[i].kubelet);
        RIG_STEP(&rig, .type = ALLOC_IN_NODE, .node = node);
        use_cdi_kind(cases[i].kind);
        add_pending("p", "1", MEM("a", 3));
        admit("p", "a", IDS_MEM, 3, ALL);
        check_env(cases[i].answer);
        ck_assert(!strstr(rig.env, "NVIDIA_VISIBLE") ==
                  !strncmp(cases[i].answer, "cdi", 3));
        rig_stop(&rig);
    }
}
END_TEST

START_TEST(a_card_without_a_cdi_name_is_rejected)
{
    struct alloc_settings s = rig_settings();
    s.response.strategy = DRIVER_CDI_ANNOTATIONS;
    start_with(s);
    use_cdi_kind(NULL);
    add_pending("p", "1", MEM("a", 3));
    rig_prefer(&rig, 3, ALL);
    check_answer(rig_allocate(&rig, "GPU-1/0-2"),
                 "no-cdi-name: no CDI specification names the cards");
    rig_stop(&rig);
}
END_TEST

START_TEST(allocate_waits_for_the_first_read_of_the_node)
{
    static const char *const pods[] = {"p", "q"};
    struct alloc_settings s = rig_settings();
    rig_new(&rig, &s);
    rig_cards(&rig, two_cards);
    RIG_STEP(&rig, .type = ALLOC_IN_LIST_STARTED);
    RIG_STEP(&rig, .type = ALLOC_IN_LIST_ENDED);
    for (size_t i = 0; i < ARRAY_LEN(pods); i++) {
        add_pending(pods[i], "1", MEM("a", 3));
        ck_assert_str_eq(rig_prefer(&rig, 3, ALL), "GPU-1/0 GPU-1/1 GPU-1/2");
        check_answer(rig_allocate(&rig, "GPU-1/0-2"), "(nothing yet)");
        rig_pass(&rig, 3000);
        check_answer(rig.answer, "(nothing yet)");
        if (i == 0) {
            rig_pass(&rig, 3000);
            check_answer(rig.answer,
                         "not-synced: the API server has not yet sent the Node");
        }
    }
    RIG_STEP(&rig, .type = ALLOC_IN_NODE, .cgpu_disable = true);
    check_answer(rig.answer, "allocated");
    check_env("CGPU_DISABLE=true\n");
    rig_stop(&rig);
}
END_TEST

START_TEST(cards_by_cdi_name_by_index_and_with_mps)
{
    struct alloc_settings s = rig_settings();
    s.response.strategy = DRIVER_CDI_CRI;
    s.response.isolation = ISOLATION_MPS;
    s.response.mps_dir = "/run/mps";
    start_with(s);
    use_cdi_kind("nvidia.com/gpu");
    add_pending("p", "1", MEM("a", 4));
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
    add_pending("p", "1", MEM("a", 4));
    admit("p", "a", IDS_MEM, 4, ALL);
    check_env("NVIDIA_VISIBLE_DEVICES=1\n");
    rig_stop(&rig);
}
END_TEST

UNIT_MAIN("alloc", ids_are_not_judged_before_the_first_cards,
          auto_takes_cdi_names_where_the_node_has_them,
          a_card_without_a_cdi_name_is_rejected, a_container_gets_the_promised_card,
          of_equal_pods_the_one_in_podresources_is_chosen, two_candidates_are_ambiguous,
          a_pod_update_resolves_the_ambiguity, a_pod_of_another_size_is_no_candidate,
          a_late_pod_event_is_waited_for, an_unknown_pod_blocks_the_answer,
          a_kubelet_before_1_34_lists_terminal_pods, a_timed_out_request_names_the_reason,
          requests_are_rejected_before_the_first_pod_list,
          ids_of_another_card_are_rejected, one_id_of_another_card_is_rejected,
          other_free_ids_of_the_promised_card_are_accepted,
          a_wrong_number_of_ids_is_rejected, allocate_without_a_preference_is_rejected,
          held_ids_are_not_allocated_again, a_terminal_pod_frees_its_ids,
          a_deleted_pod_frees_its_ids_when_the_kubelet_drops_it,
          containers_are_admitted_in_sequence,
          must_include_ids_of_the_init_container_are_kept,
          each_promised_card_gets_its_share, a_whole_card_is_exclusive,
          pods_of_other_namespaces_are_not_named,
          candidates_are_named_only_within_one_namespace,
          unknown_pods_are_named_only_within_one_namespace,
          a_pod_of_the_go_plugin_keeps_its_card,
          whole_cards_of_an_init_container_are_reused_in_any_order,
          an_unhealthy_or_absent_card_is_rejected, an_invalid_promise_is_rejected,
          a_forged_promise_blocks_no_card, too_few_free_ids_are_rejected,
          unknown_ids_are_rejected, an_unpromised_pod_gets_an_untouched_card,
          a_static_pod_gets_an_untouched_card, an_invalid_pod_keeps_its_card,
          a_container_that_sets_visible_devices_is_reported,
          legacy_rejections_are_successes_without_a_card,
          a_kubelet_without_get_is_called_once, no_list_during_an_allocate,
          podresources_failures_are_retried, allocate_requires_the_pod_in_podresources,
          a_lost_kubelet_checkpoint_voids_allocations,
          a_lost_state_file_is_recovered_from_podresources,
          reconciliation_reports_a_container_on_another_card,
          a_pod_first_seen_in_podresources_holds_its_ids_once,
          a_view_older_than_a_request_is_discarded,
          podresources_is_probed_without_gpu_pods, a_kubelet_without_get_is_no_failure,
          without_reconciliation_the_end_of_a_failure_is_detected,
          a_missing_answer_is_a_failure, allocations_of_the_state_file_are_held,
          a_canceled_request_is_answered_immediately, a_rejected_pod_is_no_candidate,
          the_node_label_disables_cgpu, allocate_waits_for_the_first_read_of_the_node,
          cards_by_cdi_name_by_index_and_with_mps)
