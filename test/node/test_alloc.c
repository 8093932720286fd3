/* SPDX-License-Identifier: Apache-2.0 */
#include "node/script.h"

SCRIPT(a_container_gets_the_promised_card,
       "pod p on=1 a:mem3\n"
       "prefer mem3 => GPU-1/0 GPU-1/1 GPU-1/2\n"
       "allocate mem GPU-1/0-2 => allocated\n"
       "env ~> NVIDIA_VISIBLE_DEVICES=GPU-1\n"
       "env ~> ALIYUN_COM_GPU_MEM_IDX=1\n"
       "env ~> ALIYUN_COM_GPU_MEM_POD=3\n"
       "env ~> ALIYUN_COM_GPU_MEM_CONTAINER=3\n"
       "env ~> ALIYUN_COM_GPU_MEM_DEV=16\n"
       "log ~> patch p uid-p {\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}\n"
       "count saves 1\n"
       "count allocated 1")

/* The kubelet adds p to podresources later. */
SCRIPT(of_equal_pods_the_one_in_podresources_is_chosen,
       "api p on=0 a:mem3\n"
       "api r on=0 a:mem4\n"
       "pod q on=1 a:mem3\n"
       "admit q a mem3 => allocated\n"
       "env ~> NVIDIA_VISIBLE_DEVICES=GPU-1\n"
       "kubelet r a\n"
       "kubelet p a\n"
       "prefer mem3 => GPU-0/0 GPU-0/1 GPU-0/2")

SCRIPT(two_candidates_are_ambiguous,
       "pod p on=0 a:mem3\n"
       "pod q on=1 a:mem3\n"
       "prefer mem3 => (nothing yet)\n"
       "pass 4900\n"
       "answer => (nothing yet)\n"
       "pass 200\n"
       "answer ~> ambiguous: cannot identify the pod: 2 pods of this node lack 3 ids of\n"
       "answer ~> gpu-mem, among them default/p and default/q\n"
       "count ambiguous 1")

/* The kubelet rejected p for another reason. Since 1.34 it does not show such a pod. */
SCRIPT(a_pod_update_resolves_the_ambiguity, "pod p on=0 a:mem3\n"
                                            "pod q on=1 a:mem3\n"
                                            "prefer mem3 => (nothing yet)\n"
                                            "-kubelet p\n"
                                            "api p Failed on=0 a:mem3\n"
                                            "answer => GPU-1/0 GPU-1/1 GPU-1/2")

SCRIPT(a_late_pod_event_is_waited_for, "kubelet p a\n"
                                       "prefer mem3 => (nothing yet)\n"
                                       "pass 1000\n"
                                       "api p on=1 a:mem3\n"
                                       "answer => GPU-1/0 GPU-1/1 GPU-1/2")

/* The kubelet rejected "refused", which the API server has not reported yet; and the pod
 * that the request is for has not been sent yet. A later request cannot be for the pod that
 * an earlier one met. */
SCRIPT(an_unknown_pod_blocks_the_answer, "pod refused on=0 a:mem3\n"
                                         "kubelet unheard a\n"
                                         "prefer mem3 => (nothing yet)\n"
                                         "pass 6000\n"
                                         "answer ~> has not sent yet: default/unheard\n"
                                         "-kubelet refused\n"
                                         "api refused Failed on=0 a:mem3\n"
                                         "pod q on=1 a:mem3\n"
                                         "prefer mem3 => GPU-1/0 GPU-1/1 GPU-1/2")

/* The pod that ended can have been recreated under its name. */
SCRIPT(a_kubelet_before_1_34_lists_terminal_pods, "no-get\n"
                                                  "pod first on=1 a:mem2\n"
                                                  "prefer mem2\n"
                                                  "allocate mem GPU-1/0-1 => allocated\n"
                                                  "-kubelet first\n"
                                                  "pod ended on=0 a:mem3\n"
                                                  "pod p on=1 a:mem3\n"
                                                  "prefer mem3 => (nothing yet)\n"
                                                  "api ended Failed on=0 a:mem3\n"
                                                  "answer => (nothing yet)\n"
                                                  "pass 900\n"
                                                  "answer => (nothing yet)\n"
                                                  "pass 200\n"
                                                  "answer => GPU-1/2 GPU-1/3 GPU-1/4")

SCRIPT(a_timed_out_request_names_the_reason,
       "prefer mem3 => (nothing yet)\n"
       "pass 6000\n"
       "answer => no-pending-pod: no pod in the kubelet's view lacks 3 ids of "
       "aliyun.com/gpu-mem\n"
       "pod n a:mem3\n"
       "prefer mem3 ~> no-promise: pod default/n has no promised card\n"
       "log ~> event n GPUAllocationFailed pod default/n has no promised card: the "
       "extender did not bind it. Make its kube-scheduler call the extender "
       "(scripts/install --check), or set schedulerName to one that does, and create the "
       "pod again")

/* Node and annotations of a pod are one write of the extender: a bound pod without them never
 * gets any. The kubelet admits no other pod while it waits. */
SCRIPT(pods_bound_past_the_extender_delay_no_other_pod,
       "pod n1 a:mem3\n"
       "prefer mem3 ~> no-promise: pod default/n1\n"
       "pod n2 a:mem3\n"
       "prefer mem3 ~> no-promise: pod default/n2\n"
       "pod n3 a:cards1\n"
       "prefer cards1 ~> no-promise: pod default/n3\n"
       "pod p on=1 a:mem3\n"
       "prefer mem3 => GPU-1/0 GPU-1/1 GPU-1/2\n"
       "count unpromised 3")

SCRIPT(an_unpromised_pod_waits_for_a_card, "with unpromised\n"
                                           "pod p on=0 a:mem3\n"
                                           "admit p a mem3 => allocated\n"
                                           "pod q on=1 a:mem3\n"
                                           "admit q a mem3 => allocated\n"
                                           "pod n a:mem3\n"
                                           "prefer mem3 => (nothing yet)\n"
                                           "api q Failed on=1 a:mem3\n"
                                           "answer ~> GPU-1/")

SCRIPT(a_request_that_waits_delays_no_other_pod, "kubelet u a\n"
                                                 "prefer mem3 => (nothing yet)\n"
                                                 "pod p on=1 a:mem3\n"
                                                 "prefer mem3 => GPU-1/0 GPU-1/1 GPU-1/2")

SCRIPT(requests_are_rejected_before_the_first_pod_list, "fresh defaults\n"
                                                        "cards GPU-0 GPU-1\n"
                                                        "pod p on=1 a:mem3\n"
                                                        "prefer mem3 => (nothing yet)\n"
                                                        "pass 6000\n"
                                                        "answer ~> not-synced: ")

SCRIPT(ids_of_another_card_are_rejected,
       "pod p on=1 a:mem3\n"
       "prefer mem3\n"
       "allocate mem GPU-0/0-2 ~> wrong-card: id \n"
       "answer ~> belongs to card GPU-0; container a of pod default/p is promised 3 of "
       "card 1 GPU-1\n"
       "count allocations 0\n"
       "pod q on=1 a:mem3\n" /* p was rejected: it is no candidate */
       "prefer mem3 => GPU-1/0 GPU-1/1 GPU-1/2\n"
       "allocate mem GPU-1/0-1 GPU-0/0 ~> wrong-card: \n"
       "pod r on=1 a:mem3\n"
       "prefer mem3\n"
       "allocate mem GPU-1/0-1 GPU-1/1 => wrong-card: duplicate id")

SCRIPT(other_free_ids_of_the_promised_card_are_accepted,
       "pod p on=1 a:mem3\n"
       "prefer mem3\n"
       "allocate mem GPU-1/9-11 => allocated\n"
       "shows p a GPU-1/9-11\n"
       "pod q on=1 a:mem3\n"
       "prefer mem3\n"
       "allocate mem GPU-1/0-3 ~> wrong-card: 4 ids for container a")

SCRIPT(allocate_without_a_preference_is_rejected,
       "pod p on=1 a:mem3\n"
       "allocate mem GPU-1/0-2 ~> not-preferred: \n"
       "prefer mem3\n"
       "restart\n"
       "allocate mem GPU-1/0-2 ~> not-preferred: ")

/* The kubelet forgets p's ids when an exporter calls List; it offers them again. */
SCRIPT(held_ids_are_not_allocated_again, "pod p on=1 a:mem3\n"
                                         "admit p a mem3 => allocated\n"
                                         "pod q on=1 a:mem3\n"
                                         "prefer mem3 => GPU-1/3 GPU-1/4 GPU-1/5\n"
                                         "allocate mem GPU-1/2-4 => (nothing yet)\n"
                                         "pass 6000\n"
                                         "answer ~> in-use: \n"
                                         "answer ~> is held by pod default/p")

SCRIPT(a_terminal_pod_frees_its_ids, "pod p on=1 a:mem3\n"
                                     "admit p a mem3 => allocated\n"
                                     "pod q on=1 a:mem3\n"
                                     "prefer mem3 GPU-1/0-2 => (nothing yet)\n"
                                     "api p Succeeded on=1 a:mem3\n"
                                     "answer => GPU-1/0 GPU-1/1 GPU-1/2")

/* Force-deleted: the kubelet still has it. */
SCRIPT(a_deleted_pod_frees_its_ids_when_the_kubelet_drops_it,
       "pod p on=1 a:mem3\n"
       "admit p a mem3 => allocated\n"
       "-api p\n"
       "pod q on=1 a:mem1\n"
       "prefer mem1 => GPU-1/3\n"
       "-kubelet p\n"
       "prefer mem1 => GPU-1/0\n"
       "count allocations 0")

/* The kubelet shows the pod that runs on, and before it a younger one of the same name. */
SCRIPT(a_deleted_pod_keeps_its_ids_beside_another_of_its_name,
       "pod z a:none\n"
       "pod p on=1 a:mem3\n"
       "admit p a mem3 => allocated\n"
       "-api p\n"
       "kubelet p a\n"
       "-kubelet z\n"
       "shows p a GPU-1/8-9\n"
       "pod q on=1 a:mem1\n"
       "prefer mem1 => GPU-1/3")

/* App containers are admitted last. podresources never shows i; a reuses its ids, without
 * GetPreferredAllocation. */
SCRIPT(containers_are_admitted_in_sequence,
       "pod p on=1 i:init:mem2 s:side:mem1 a:mem2 b:mem4\n"
       "prefer mem4 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> no-pending-pod: \n"
       "prefer mem2 => GPU-1/0 GPU-1/1\n"
       "allocate mem GPU-1/0-1 => allocated\n"
       "admit p s mem1 GPU-1/2-15 => allocated\n"
       "allocate mem GPU-1/0-1 => allocated\n"
       "env ~> ALIYUN_COM_GPU_MEM_POD=7\n"
       "env ~> ALIYUN_COM_GPU_MEM_CONTAINER=2\n"
       "shows p a GPU-1/0-1\n"
       "log => \n"
       "admit p b mem4 GPU-1/3-15 => allocated\n"
       "log ~> patch p uid-p\n"
       "count allocations 4")

SCRIPT(must_include_ids_of_the_init_container_are_kept,
       "pod p on=1 i:init:mem2 a:mem4\n"
       "prefer mem2\n"
       "allocate mem GPU-1/6-7 => allocated\n"
       "prefer mem4 GPU-0/0-7 GPU-1/0-15 + GPU-1/6-7 => GPU-1/0 GPU-1/1 GPU-1/6 GPU-1/7\n"
       "allocate mem GPU-1/0-1 GPU-1/6-7 => allocated")

SCRIPT(each_promised_card_gets_its_share,
       "pod p count=2 on=0,1 a:mem4\n"
       "prefer mem4 => GPU-0/0 GPU-0/1 GPU-1/0 GPU-1/1\n"
       "allocate mem GPU-0/0-2 GPU-1/0 ~> wrong-card: \n"
       "pod q count=2 on=0,1 a:mem4\n"
       "admit q a mem4 => allocated\n"
       "env ~> NVIDIA_VISIBLE_DEVICES=GPU-0,GPU-1\n"
       "env ~> ALIYUN_COM_GPU_MEM_IDX=0,1\n"
       "env ~> ALIYUN_COM_GPU_MEM_DEV=8,16")

SCRIPT(a_whole_card_is_exclusive,
       "pod p on=1 a:mem3\n"
       "admit p a mem3 => allocated\n"
       "pod w on=1 a:cards1\n"
       "prefer cards1 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> in-use: \n"
       "answer ~> by pod default/p, through aliyun.com/gpu-mem\n"
       "pod v on=0 a:cards1\n" /* the reverse */
       "admit v a cards1 => allocated\n"
       "env ~> NVIDIA_VISIBLE_DEVICES=GPU-0\n"
       "env ~> ALIYUN_COM_GPU_MEM_POD=8\n"
       "env ~> ALIYUN_COM_GPU_MEM_CONTAINER=8\n"
       "pod q on=0 a:mem2\n"
       "prefer mem2 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> in-use: ")

/* The text becomes an event of the rejected pod. */
SCRIPT(pods_of_other_namespaces_are_not_named,
       "pod other-p on=1 a:mem3\n"
       "admit other-p a mem3 => allocated\n"
       "pod q on=1 a:mem3\n"
       "prefer mem3 => GPU-1/3 GPU-1/4 GPU-1/5\n"
       "allocate mem GPU-1/2-4 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> is held by a pod of another namespace")

/* The request could be for pods of two namespaces. The kubelet shows the text to who sees
 * the one that it is for; the log names the pods. */
SCRIPT(pods_are_named_only_within_one_namespace,
       "with defaults\n"
       "pod mine on=0 a:mem3\n"
       "pod other on=1 a:mem3\n"
       "prefer mem3 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> ambiguous: cannot identify the pod: 2 pods of this node\n"
       "answer !> mine\n"
       "answer !> other\n"
       "said ~> other/other\n"
       "with defaults\n"
       "pod mine-1 on=0 a:mem3\n"
       "pod mine-2 on=1 a:mem3\n"
       "kubelet other a\n"
       "prefer mem3 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> ambiguous: cannot identify the pod: 2 pods of this node\n"
       "answer !> mine\n"
       "answer !> other\n"
       "said ~> default/mine-1\n"
       "with defaults\n"
       "kubelet mine a\n"
       "kubelet other a\n"
       "prefer mem3 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> unknown-pod: the request can be for a pod\n"
       "answer !> mine\n"
       "answer !> other\n"
       "said ~> other/other\n"
       "with defaults\n"
       "pod mine on=0 a:mem3\n"
       "kubelet other a\n"
       "prefer mem3 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> unknown-pod: the request can be for a pod\n"
       "answer !> mine\n"
       "answer !> other\n"
       "said ~> other/other")

/* Its ids are not mistaken for those of GPU-0: no mismatch, no allocation. */
SCRIPT(a_pod_of_the_go_plugin_keeps_its_card,
       "api old Running index=1 a:mem3\n"
       "kubelet old a\n"
       "shows old a GPU-0-_-7 GPU-0-_-8 GPU-0-_-9\n"
       "pod w on=1 a:cards1\n"
       "prefer cards1 => (nothing yet)\n"
       "pass 6000\n"
       "answer => in-use: card GPU-1 is used by pod default/old\n"
       "count mismatches 0\n"
       "count allocations 0\n"
       "pod v on=0 a:mem3\n"
       "admit v a mem3 => allocated")

/* The kubelet reuses i's cards in no order. */
SCRIPT(whole_cards_of_an_init_container_are_reused_in_any_order,
       "pod p on=0,1 i:init:cards2 a:cards1 b:cards1\n"
       "prefer cards2 => GPU-0 GPU-1\n"
       "allocate cards GPU-0 GPU-1 => allocated\n"
       "allocate cards GPU-1 => allocated\n"
       "env ~> NVIDIA_VISIBLE_DEVICES=GPU-1\n"
       "shows p a GPU-1\n"
       "allocate cards GPU-1 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> in-use: ")

/* a reuses an id that is not in its turn; b gets what is left, in any order. */
SCRIPT(whole_cards_beside_reused_ones_are_any_of_the_pod,
       "cards GPU-0 GPU-1 GPU-2\n"
       "pod p on=0,1,2 i:init:cards2 a:cards1 b:cards2\n"
       "prefer cards2 GPU-0 GPU-1 GPU-2 => GPU-0 GPU-1\n"
       "allocate cards GPU-0 GPU-1 => allocated\n"
       "allocate cards GPU-1 => allocated\n"
       "shows p a GPU-1\n"
       "prefer cards2 GPU-2 + GPU-0 => GPU-0 GPU-2\n"
       "allocate cards GPU-0 GPU-2 => allocated")

SCRIPT(
    an_unhealthy_or_absent_card_is_rejected,
    "pod p on=1 a:mem3\n"
    "prefer mem3\n"
    "xid GPU-1\n"
    "allocate mem GPU-1/0-2 => unhealthy-card: pod default/p is promised card GPU-1, "
    "which is unhealthy: XID 79\n"
    "pod q on=9 a:mem3\n"
    "prefer mem3 => unhealthy-card: pod default/q is promised card 9 GPU-9, which is not "
    "on this node")

SCRIPT(
    an_invalid_promise_is_rejected,
    "pod p on=0,1 a:mem3\n"
    "prefer mem3 => invalid-request: pod default/p: the annotations promise 2 cards, and "
    "the pod requests 1")

/* Another tenant's annotations name the card, without any limit. */
SCRIPT(a_forged_promise_blocks_no_card, "with unpromised\n"
                                        "api f Running on=0 a:none\n"
                                        "pod p on=0 a:cards1\n"
                                        "admit p a cards1 GPU-0 => allocated\n"
                                        "env ~> NVIDIA_VISIBLE_DEVICES=GPU-0")

/* The extender knew no UUID, because the node had no Scv yet. The UUIDs of a promise without
 * allocation, as of the Go extender, would mean nothing. */
SCRIPT(
    a_promise_without_a_uuid_gets_it,
    "pod p index=1 parts={\\'0\\':{\\'1\\':3}} a:mem3\n"
    "admit p a mem3 => allocated\n"
    "log ~> patch p uid-p "
    "{\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\",\"gpushare/card-uuid\":"
    "\"GPU-1\"}\n"
    "api p Running assigned=true index=1 parts={\\'0\\':{\\'1\\':3}} a:mem3\n"
    "count patches 1\n"
    "pass 31000\n"
    "count patches 3\n"
    "api p Running assigned=true index=1 parts={\\'0\\':{\\'1\\':3}} uuid=GPU-1 a:mem3\n"
    "pass 31000\n"
    "count patches 3\n"
    "pod g index=1 a:mem3\n"
    "admit g a mem3 => allocated\n"
    "log ~> patch g uid-g {\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}")

SCRIPT(too_few_or_unknown_ids_are_rejected,
       "pod p on=1 a:mem3\n"
       "prefer mem3 GPU-0/0-7 GPU-1/0-1 => insufficient-ids: the kubelet offers too few "
       "free ids of card GPU-1: 1 missing\n"
       "allocate mem GPU-1-_-3 => unknown-id: \"GPU-1-_-3\" is not a device id of this "
       "node")

/* Card 0 is promised to p, which is not admitted yet. An older version of n changes nothing. */
SCRIPT(an_unpromised_pod_gets_an_untouched_card,
       "with unpromised\n"
       "api p on=0 a:mem3\n"
       "pod n a:mem2\n"
       "admit n a mem2 => allocated\n"
       "env ~> NVIDIA_VISIBLE_DEVICES=GPU-1\n"
       "log ~> patch n uid-n "
       "{\"ALIYUN_COM_GPU_MEM_IDX\":\"1\",\"ALIYUN_COM_GPU_MEM_DEV\":\"16\",\"ALIYUN_COM_"
       "GPU_MEM_POD\":\"2\"\n"
       "log ~> \"gpushare/card-uuid\":\"GPU-1\"}\n"
       "log ~> patch n uid-n {\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}\n"
       "api n a:mem2\n"
       "pod m a:mem2\n"
       "prefer mem2 => (nothing yet)\n"
       "pass 6000\n"
       "answer => no-promise: pod default/m has no promised card, and fewer than 1 cards "
       "of 2 units have no promises")

/* The second card is of b, which is not admitted yet. */
SCRIPT(chosen_cards_outlast_a_change_of_the_pod, "with unpromised\n"
                                                 "pod n a:cards1 b:cards1\n"
                                                 "admit n a cards1 => allocated\n"
                                                 "api n a:cards1 b:cards1\n"
                                                 "prefer cards1 => GPU-1")

SCRIPT(a_chosen_card_counts_before_its_container_has_ids,
       "with unpromised\n"
       "pod n a:mem2\n"
       "prefer mem2 => GPU-0/0 GPU-0/1\n"
       "api n a:mem2\n"
       "api q on=0 a:mem3\n"
       "allocate mem GPU-0/0-1 => allocated")

/* Its pod was deleted by force, and the container runs on. */
SCRIPT(a_card_in_use_is_not_untouched, "with unpromised\n"
                                       "pod p on=0 a:mem3\n"
                                       "admit p a mem3 => allocated\n"
                                       "-api p\n"
                                       "pod n a:mem2\n"
                                       "prefer mem2 => GPU-1/0 GPU-1/1")

/* The API server has no object of it before its admission. Its mirror pod is annotated. */
SCRIPT(a_static_pod_gets_an_untouched_card,
       "kubelet s-n1 a\n"
       "prefer mem2 => (nothing yet)\n"
       "pass 6000\n"
       "answer => GPU-0/0 GPU-0/1\n"
       "allocate mem GPU-0/0-1 => allocated\n"
       "log => \n"
       "list\n"
       "listed\n"
       "api s-n1 mirror=1 a:mem2\n"
       "log ~> patch s-n1 uid-s-n1 {\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"\n"
       "count allocations 1\n"
       "-api s-n1\n"
       "-kubelet s-n1\n"
       "prefer mem1\n"
       "count allocations 0")

/* A process that starts between the admission and the mirror pod has only the state file. */
SCRIPT(the_ids_of_a_static_pod_outlive_the_process,
       "kubelet s-n1 a\n"
       "prefer mem2\n"
       "pass 6000\n"
       "allocate mem GPU-0/0-1 => allocated\n"
       "shows s-n1 a GPU-0/0-1\n"
       "plugin\n"
       "cards GPU-0 GPU-1\n"
       "api s-n1 Running mirror=1 a:mem2\n"
       "list\n"
       "api s-n1 Running mirror=1 a:mem2\n"
       "listed\n"
       "prefer mem1\n"
       "count allocations 1\n"
       "count recovered 0\n"
       "count mismatches 0\n"
       "-api s-n1\n"
       "prefer mem1\n"
       "count allocations 1\n"
       "-kubelet s-n1\n"
       "prefer mem1\n"
       "count allocations 0")

/* Its namespace does not exist, so that it never has a mirror pod. */
SCRIPT(a_static_pod_without_a_mirror_pod_holds_its_ids_while_it_is_shown,
       "kubelet s-n1 a\n"
       "prefer mem6\n"
       "pass 6000\n"
       "allocate mem GPU-0/0-5 => allocated\n"
       "shows s-n1 a GPU-0/0-5\n"
       "pod p on=0 a:mem8\n"
       "prefer mem8\n"
       "count allocations 1\n"
       "pass 6000\n"
       "answer ~> in-use\n"
       "-kubelet s-n1\n"
       "pod q on=0 a:mem8\n"
       "admit q a mem8 GPU-0/0-7 => allocated\n"
       "list\n"
       "api q on=0 a:mem8\n"
       "listed\n"
       "count pods 1")

/* The kubelet deletes the pod and admits another one of its name. */
SCRIPT(an_edited_static_pod_gets_what_it_requests_now,
       "kubelet s-n1 a\n"
       "prefer mem6\n"
       "pass 6000\n"
       "allocate mem GPU-0/0-5 => allocated\n"
       "shows s-n1 a GPU-0/0-5\n"
       "-kubelet s-n1\n"
       "kubelet s-n1 a\n"
       "prefer mem4\n"
       "pass 6000\n"
       "answer => GPU-0/0 GPU-0/1 GPU-0/2 GPU-0/3\n"
       "allocate mem GPU-0/0-3 => allocated\n"
       "count allocations 1")

/* A List of reconcile can be older than the kubelet's record of the answer. */
SCRIPT(a_static_pod_holds_its_ids_before_they_are_shown,
       "with reconcile\n"
       "no-get\n"
       "kubelet s-n1 a\n"
       "prefer mem2\n"
       "pass 6000\n"
       "allocate mem GPU-0/0-1 => allocated\n"
       "mark\n"
       "pass 120000\n"
       "least lists 1\n"
       "count allocations 1")

/* The file of the limit would be found by a UID, which a static pod does not have. */
SCRIPT(a_static_pod_has_no_limit_and_its_mirror_pod_says_so,
       "with limit\n"
       "kubelet s-n1 a\n"
       "prefer mem2\n"
       "pass 6000\n"
       "allocate mem GPU-0/0-1 => allocated\n"
       "env ~> NVIDIA_VISIBLE_DEVICES=GPU-0\n"
       "env !> libgpushare-limit\n"
       "log => \n"
       "said ~> pod default/s-n1: a static pod has no limit\n"
       "count not-isolated 1\n"
       "shows s-n1 a GPU-0/0-1\n"
       "plugin\n"
       "cards GPU-0 GPU-1\n"
       "api s-n1 mirror=1 a:mem2\n"
       "log ~> event s-n1 GPUIsolationFailed a static pod has no limit\n"
       "list\n"
       "api s-n1 mirror=1 a:mem2\n"
       "listed\n"
       "node\n"
       "pod p on=1 a:mem2\n"
       "admit p a mem2 => allocated\n"
       "env ~> libgpushare-limit\n"
       "with limit\n"
       "kubelet s-n1 a\n"
       "prefer mem2\n"
       "pass 6000\n"
       "allocate mem GPU-0/0-1 => allocated\n"
       "api s-n1 mirror=1 a:mem2\n"
       "log ~> event s-n1 GPUIsolationFailed a static pod has no limit")

/* s-n1 is a static pod. */
SCRIPT(an_invalid_pod_keeps_its_card, "api g Running index=0 placement=x a:mem2\n"
                                      "kubelet s-n1 a\n"
                                      "prefer mem2 => (nothing yet)\n"
                                      "pass 6000\n"
                                      "answer => GPU-1/0 GPU-1/1")

SCRIPT(a_container_that_sets_visible_devices_is_reported,
       "pod p on=1 a:env:mem3\n"
       "admit p a mem3 => allocated\n"
       "log ~> event p GPUEnvOverridden container a sets NVIDIA_VISIBLE_DEVICES itself\n"
       "with strict\n"
       "pod p on=1 a:env:mem3\n"
       "prefer mem3 ~> env-override: container a of pod default/p sets")

SCRIPT(a_static_pod_of_more_cards_than_a_node_can_have_is_invalid,
       "kubelet s-n1 a\n"
       "prefer cards65 GPU-0 GPU-1\n"
       "pass 6000\n"
       "answer ~> invalid-request: pod default/s-n1: 65 whole cards exceed the limit")

SCRIPT(a_kubelet_without_get_is_called_once, "no-get\n"
                                             "pod p on=1 a:mem3\n"
                                             "admit p a mem3 => allocated\n"
                                             "count gets 1\n"
                                             "pod q on=1 a:mem3\n"
                                             "admit q a mem3 GPU-1/3-15 => allocated\n"
                                             "count gets 1\n"
                                             "count lists 2")

/* List makes the kubelet forget ids in flight. */
SCRIPT(no_list_during_an_allocate, "pod p on=1 a:mem3\n"
                                   "prefer mem3\n"
                                   "count lists 1\n"
                                   "allocate mem GPU-1/0-2 => allocated\n"
                                   "count lists 1\n"
                                   "count gets 1")

SCRIPT(podresources_failures_are_retried, "away\n"
                                          "pod p on=1 a:mem3\n"
                                          "prefer mem3 => (nothing yet)\n"
                                          "pass 1000\n"
                                          "back\n"
                                          "pass 1000\n"
                                          "answer => GPU-1/0 GPU-1/1 GPU-1/2\n"
                                          "away\n"
                                          "allocate mem GPU-1/0-2 => (nothing yet)\n"
                                          "pass 6000\n"
                                          "answer => podresources: podresources: away")

SCRIPT(allocate_requires_the_pod_in_podresources,
       "pod p on=1 a:mem3\n"
       "prefer mem3\n"
       "-kubelet p\n"
       "allocate mem GPU-1/0-2 => (nothing yet)\n"
       "-api p\n"
       "answer ~> not-preferred: ")

/* Both containers have allocations, and the kubelet shows neither. */
SCRIPT(a_lost_kubelet_checkpoint_voids_allocations,
       "pod p Running on=1 i:init:mem2 a:mem3\n"
       "prefer mem2\n"
       "allocate mem GPU-1/0-1 => allocated\n"
       "prefer mem3 GPU-1/0-15 + GPU-1/0-1 => GPU-1/0 GPU-1/1 GPU-1/2\n"
       "allocate mem GPU-1/0-2 => allocated\n"
       "restart\n"
       "prefer mem2 => GPU-1/0 GPU-1/1\n"
       "allocate mem GPU-1/0-1 => allocated\n"
       "count allocations 1")

/* Since 1.27 the kubelet allocates nothing for containers that run when it starts: it never shows
 * ids of p again. Before, p may ask; and until p's container runs. */
TEST(a_running_pod_without_ids_does_not_ask)
{
    static const struct {
        const char *node, *now, *answer;
    } cases[] = {
        {"containerd://2.1.4 v1.27.0", "Running on=1 a:run:mem3",
         "=> GPU-0/0 GPU-0/1 GPU-0/2"},
        {"containerd://2.1.4 v1.26.9", "Running on=1 a:run:mem3", "=> (nothing yet)"},
        {"", "Running on=1 a:run:mem3", "=> (nothing yet)"},
        {"containerd://2.1.4 v1.35.0", "Running on=1 a:mem3", "=> (nothing yet)"},
        /* What the API server last heard is older than the boot, or cannot be compared: after a
         * power loss the kubelet may ask for p. The clock of the script is 1000 s after the boot. */
        {"containerd://2.1.4 v1.35.0", "Running on=1 a:run-1:mem3", "=> (nothing yet)"},
        {"containerd://2.1.4 v1.35.0", "Running on=1 a:run0:mem3", "=> (nothing yet)"},
        {"containerd://2.1.4 v1.35.0", "Running on=1 a:run?:mem3", "=> (nothing yet)"},
        {"containerd://2.1.4 v1.35.0", "Running on=1 a:run1001:mem3", "=> (nothing yet)"},
        {"containerd://2.1.4 v1.35.0", "Running on=1 a:run1000:mem3",
         "=> GPU-0/0 GPU-0/1 GPU-0/2"},
    };
    array_items(c, cases) {
        cleanup_free char *script =
            xasprintf("with defaults\nnode %s\npod p on=1 a:mem3\n"
                      "prefer mem3\nallocate mem GPU-1/0-2 => allocated\n"
                      "api p %s\nrestart\npod q on=0 a:mem3\n"
                      "prefer mem3 %s",
                      c->node, c->now, c->answer);
        play(script);
    }
}

#define SINCE_1_27 "with defaults\nnode containerd://2.1.4 v1.35.0\n"

/* It is still the one that asks if no other can be: its container has just ended. */
SCRIPT(a_running_pod_asks_if_no_other_can,
       SINCE_1_27 "pod p on=1 a:mem3\n"
                  "prefer mem3\n"
                  "allocate mem GPU-1/0-2 => allocated\n"
                  "api p Running on=1 a:run:mem3\n"
                  "restart\n"
                  "prefer mem3 => GPU-1/0 GPU-1/1 GPU-1/2\n"
                  "allocate mem GPU-1/0-2 => allocated\n"
                  "count allocations 1")

/* No allocation is known: what runs can be of another node's state file. */
SCRIPT(a_running_pod_without_an_allocation_may_ask,
       SINCE_1_27 "pod p Running on=1 a:run:mem3\n"
                  "pod q on=0 a:mem3\n"
                  "prefer mem3 => (nothing yet)")

/* b of p has ended and asks again, as each container of a pod that does not run. */
SCRIPT(of_a_running_pod_another_container_may_ask,
       SINCE_1_27 "pod p on=1 a:mem2 b:mem3\n"
                  "admit p a mem2 => allocated\n"
                  "prefer mem3\n"
                  "allocate mem GPU-1/2-4 => allocated\n"
                  "restart\n"
                  "-kubelet p\n"
                  "pod p Running on=1 a:run:mem2 b:mem3\n"
                  "pod q on=0 a:mem3\n"
                  "prefer mem3 => (nothing yet)\n"
                  "-kubelet q\n"
                  "-api q\n"
                  "answer => GPU-1/2 GPU-1/3 GPU-1/4\n"
                  "allocate mem GPU-1/2-4 => allocated\n"
                  "count allocations 2")

/* The kubelet allocates for the init container again, and not for the one that runs. */
SCRIPT(an_init_container_does_not_void_a_running_one,
       SINCE_1_27 "pod p on=1 i:init:mem2 a:mem3\n"
                  "prefer mem2\n"
                  "allocate mem GPU-1/0-1 => allocated\n"
                  "prefer mem3 GPU-1/0-15 + GPU-1/0-1\n"
                  "allocate mem GPU-1/0-2 => allocated\n"
                  "api p Running on=1 i:init:mem2 a:run:mem3\n"
                  "restart\n"
                  "prefer mem2 => GPU-1/0 GPU-1/1\n"
                  "allocate mem GPU-1/0-1 => allocated\n"
                  "count allocations 2\n"
                  "pod q on=0 a:mem3\n"
                  "prefer mem3 => GPU-0/0 GPU-0/1 GPU-0/2")

/* After a power loss p does not run, whatever its status says: q gets nothing of what p asks for. */
SCRIPT(a_pod_that_ran_before_the_boot_is_ambiguous, SINCE_1_27
       "pod p on=1 a:mem3\n"
       "prefer mem3\n"
       "allocate mem GPU-1/0-2 => allocated\n"
       "api p Running on=1 a:run-60:mem3\n"
       "restart\n"
       "pod q on=0 a:mem3\n"
       "prefer mem3 => (nothing yet)\n"
       "pass 5100\n"
       "answer ~> ambiguous: cannot identify the pod: 2 pods of this node lack 3 ids\n"
       "count allocations 1")

SCRIPT(two_running_pods_are_ambiguous, SINCE_1_27
       "pod p on=1 a:mem3\n"
       "prefer mem3\n"
       "allocate mem GPU-1/0-2 => allocated\n"
       "shows p a GPU-1/0-2\n"
       "pod q on=1 a:mem3\n"
       "prefer mem3\n"
       "allocate mem GPU-1/3-5 => allocated\n"
       "restart\n"
       "-kubelet p\n"
       "-kubelet q\n"
       "pod p Running on=1 a:run:mem3\n"
       "pod q Running on=1 a:run:mem3\n"
       "prefer mem3 => (nothing yet)\n"
       "pass 5100\n"
       "answer ~> ambiguous: cannot identify the pod: 2 pods of this node lack 3 ids\n"
       "pod r on=0 a:mem3\n"
       "prefer mem3 => GPU-0/0 GPU-0/1 GPU-0/2")

SCRIPT(a_lost_state_file_is_recovered_from_podresources,
       "pod p Running on=1 a:mem3\n"
       "shows p a GPU-1/0-2\n"
       "pod q on=1 a:mem2\n"
       "prefer mem2 => GPU-1/3 GPU-1/4\n"
       "count recovered 1\n"
       "count mismatches 0\n"
       "log ~> patch p uid-p {\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}")

SCRIPT(reconciliation_reports_a_container_on_another_card,
       "with reconcile\n"
       "pod p Running on=1 a:mem1\n"
       "shows p a GPU-0/0\n"
       "pass 2000\n"
       "count lists 0\n"
       "count mismatches 1\n"
       "log ~> event p GPUMismatch container a holds 1 ids of card GPU-0, more than the "
       "promise allows\n"
       "pass 125000\n"
       "count mismatches 1\n"
       "least gets 3\n"
       "pod q Running on=0 a:mem1\n"
       "shows q a GPU-0/0\n"
       "pass 2000\n"
       "log ~> event q GPUMismatch container a and container a of pod default/p hold the "
       "same id of card GPU-0\n"
       "pod other Running on=0 a:mem1\n"
       "shows other a GPU-0/0\n"
       "pass 2000\n"
       "log ~> event other GPUMismatch container a and a container of another namespace "
       "hold the same id of card GPU-0\n"
       "said ~> card GPU-0: container a of pod default/")

/* podresources shows the pod before the API server sends it. */
SCRIPT(a_pod_first_seen_in_podresources_holds_its_ids_once,
       "fresh reconcile\n"
       "cards GPU-0 GPU-1\n"
       "list\n"
       "kubelet p a\n"
       "shows p a GPU-1/0\n"
       "pod q on=1 a:mem2\n"
       "prefer mem2 => (nothing yet)\n"
       "api p Running on=1 a:mem1\n"
       "listed\n"
       "node\n"
       "pass 1000\n"
       "answer => GPU-1/1 GPU-1/2\n"
       "allocate mem GPU-1/1-2 => allocated\n"
       "count allocations 2\n"
       "pass 125000\n"
       "count allocations 2\n"
       "count mismatches 0")

/* The pods can be known before the cards: looking at the driver takes time. */
SCRIPT(ids_are_not_judged_before_the_first_cards, "fresh reconcile\n"
                                                  "list\n"
                                                  "pod p Running on=1 a:mem1\n"
                                                  "shows p a GPU-1/0\n"
                                                  "listed\n"
                                                  "node\n"
                                                  "pass 5000\n"
                                                  "count mismatches 0\n"
                                                  "count reconciled 0\n"
                                                  "cards GPU-0 GPU-1\n"
                                                  "pass 5000\n"
                                                  "count mismatches 0\n"
                                                  "count reconciled 1\n"
                                                  "count allocations 1")

SCRIPT(a_view_older_than_a_request_is_discarded, "with reconcile\n"
                                                 "pod p Running on=1 a:mem1\n"
                                                 "shows p a GPU-1/0\n"
                                                 "tick\n"
                                                 "allocate mem GPU-1/5\n"
                                                 "count allocations 0\n"
                                                 "pass 1000\n"
                                                 "count allocations 1")

/* More often during a failure. */
SCRIPT(podresources_is_probed_without_gpu_pods, "with reconcile\n"
                                                "pod other Running a:none\n"
                                                "pass 61000\n"
                                                "count gets 1\n"
                                                "pass 182000\n"
                                                "count gets 4\n"
                                                "count failed 0\n"
                                                "away\n"
                                                "pass 90000\n"
                                                "count failed 1\n"
                                                "least failed-ms 30000\n"
                                                "least gets 8\n"
                                                "back\n"
                                                "pass 6000\n"
                                                "count failed 0\n"
                                                "count lists 0")

SCRIPT(a_kubelet_without_get_is_no_failure, "with reconcile\n"
                                            "no-get\n"
                                            "pod other Running a:none\n"
                                            "pass 191000\n"
                                            "count gets 1\n"
                                            "count failed 0\n"
                                            "least lists 2\n"
                                            "away\n"
                                            "pass 130000\n"
                                            "count failed 1")

/* The request is rejected by the time of the first count. */
SCRIPT(without_reconciliation_the_end_of_a_failure_is_detected,
       "pod p Running on=1 a:mem1\n"
       "pass 130000\n"
       "count calls 0\n"
       "away\n"
       "prefer mem1\n"
       "pass 60000\n"
       "count failed 1\n"
       "back\n"
       "pass 10000\n"
       "count failed 0\n"
       "mark\n"
       "pass 130000\n"
       "count calls 0")

/* The pod "gone" was deleted meanwhile. */
SCRIPT(allocations_of_the_state_file_are_held, "pod p on=1 a:mem1\n"
                                               "admit p a mem1 => allocated\n"
                                               "pod gone on=1 a:mem1\n"
                                               "admit gone a mem1 => allocated\n"
                                               "-kubelet gone\n"
                                               "plugin\n"
                                               "cards GPU-0 GPU-1\n"
                                               "list\n"
                                               "api p Running on=1 a:mem1\n"
                                               "listed\n"
                                               "node\n"
                                               "pod q on=1 a:mem2\n"
                                               "prefer mem2 => GPU-1/1 GPU-1/2\n"
                                               "count allocations 1")

SCRIPT(a_canceled_request_is_answered_immediately, "prefer mem3 => (nothing yet)\n"
                                                   "cancel\n"
                                                   "answer ~> no-pending-pod: ")

/* It has the device nodes of every card: CUDA's first one would be another pod's. */
SCRIPT(
    a_privileged_container_has_every_card,
    "pod p on=1 a:priv:mem3\n"
    "admit p a mem3 => allocated\n"
    "env ~> NVIDIA_VISIBLE_DEVICES=GPU-1\n"
    "env ~> CUDA_VISIBLE_DEVICES=GPU-1\n"
    "log ~> event p GPUEnvOverridden container a is privileged: it has every card of the "
    "node, and only CUDA_VISIBLE_DEVICES names its own\n"
    "pod q on=1 a:mem3\n"
    "admit q a mem3 => allocated\n"
    "env !> CUDA_VISIBLE_DEVICES\n"
    "with by-index\n"
    "pod r on=1 a:priv:mem3\n"
    "admit r a mem3 => allocated\n"
    "env ~> NVIDIA_VISIBLE_DEVICES=1\n"
    "env ~> CUDA_VISIBLE_DEVICES=GPU-1\n"
    "with cdi-annotations\n"
    "cdi nvidia.com/gpu\n"
    "pod s on=1 a:priv:mem3\n"
    "admit s a mem3 => allocated\n"
    "env ~> CUDA_VISIBLE_DEVICES=GPU-1\n"
    "log ~> event s GPUEnvOverridden container a is privileged\n"
    "with strict\n"
    "pod t on=1 a:priv:mem3\n"
    "prefer mem3 ~> env-override: container a of pod default/t is privileged, and has "
    "every card of the node")

SCRIPT(the_node_label_disables_cgpu,
       "with volume-mounts\n"
       "node disable\n"
       "pod p on=1 a:mem3\n"
       "admit p a mem3 => allocated\n"
       "env ~> CGPU_DISABLE=true\n"
       "env ~> NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices\n"
       "env ~> mount /var/run/nvidia-container-devices/GPU-1=/dev/null")

/* The runtime and the kubelet must take CDI names, and a specification must have them. */
TEST(auto_takes_cdi_names_where_the_node_has_them)
{
    static const struct {
        const char *runtime, *kubelet, *kind, *answer;
    } cases[] = {
        {"containerd://2.1.4", "v1.35.0", "nvidia.com/gpu", "cdi nvidia.com/gpu=GPU-1"},
        {"containerd://v2.4.2", "v1.37.2", "a/b",
         "cdi a/b=GPU-1"}, /* built from source */
        {"cri-o://1.28.1", "v1.29.0-eks-1", "a/b", "cdi a/b=GPU-1"},
        {"containerd://1.7.28", "v1.35.0", "a/b", "NVIDIA_VISIBLE_DEVICES=GPU-1"},
        {"cri-o://1.27.9", "v1.35.0", "a/b", "NVIDIA_VISIBLE_DEVICES=GPU-1"},
        {"docker://28.0", "v1.35.0", "a/b", "NVIDIA_VISIBLE_DEVICES=GPU-1"},
        {"containerd://2.1.4", "v1.28.9", "a/b", "NVIDIA_VISIBLE_DEVICES=GPU-1"},
        {"containerd://2.1.4", "v1.35.0", "-", "NVIDIA_VISIBLE_DEVICES=GPU-1"},
        {"", "", "a/b", "NVIDIA_VISIBLE_DEVICES=GPU-1"},
    };
    array_items(c, cases) {
        bool cdi = strncmp(c->answer, "cdi", 3) == 0;
        cleanup_free char *script = xasprintf(
            "with auto\nnode %s %s\ncdi %s\npod p on=1 a:mem3\n"
            "admit p a mem3 => allocated\nenv ~> %s\nenv !> %s",
            c->runtime, c->kubelet, c->kind, c->answer, cdi ? "NVIDIA_VISIBLE" : "cdi");
        play(script);
    }
}

SCRIPT(a_card_without_a_cdi_name_is_rejected,
       "with cdi-annotations\n"
       "cdi -\n"
       "pod p on=1 a:mem3\n"
       "prefer mem3\n"
       "allocate mem GPU-1/0-2 ~> no-cdi-name: no CDI specification names the cards")

SCRIPT(allocate_waits_for_the_first_read_of_the_node,
       "fresh defaults\n"
       "cards GPU-0 GPU-1\n"
       "list\n"
       "listed\n"
       "pod p on=1 a:mem3\n"
       "prefer mem3 => GPU-1/0 GPU-1/1 GPU-1/2\n"
       "allocate mem GPU-1/0-2 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> not-synced: the API server has not yet sent the Node\n"
       "no-node\n"
       "pod q on=1 a:mem3\n"
       "prefer mem3 => GPU-1/0 GPU-1/1 GPU-1/2\n"
       "allocate mem GPU-1/0-2 => (nothing yet)\n"
       "pass 3000\n"
       "answer => (nothing yet)\n"
       "node disable\n"
       "answer => allocated\n"
       "env ~> CGPU_DISABLE=true")

/* Until the API server has them. */
SCRIPT(annotations_are_sent_again, "with reconcile\n"
                                   "pod p on=1 a:mem3\n"
                                   "admit p a mem3 => allocated\n"
                                   "count patches 1\n"
                                   "pass 900\n"
                                   "count patches 1\n"
                                   "pass 1100\n"
                                   "count patches 2\n"
                                   "pass 28000\n"
                                   "count patches 2\n"
                                   "pass 3000\n"
                                   "count patches 3\n"
                                   "api p on=1 assigned=true a:mem3\n"
                                   "pass 62000\n"
                                   "count patches 3")

SCRIPT(the_node_is_read_again, "fresh defaults\n"
                               "pass 1\n"
                               "count node-reads 1\n"
                               "no-node\n"
                               "count node-failed 1\n"
                               "pass 1900\n"
                               "count node-reads 1\n"
                               "pass 200\n"
                               "count node-reads 2\n"
                               "node\n"
                               "count node-failed 0\n"
                               "pass 59000\n"
                               "count node-reads 2\n"
                               "pass 2000\n"
                               "count node-reads 3")

/* -- the driver's limit -- */

#define NEW_NODE "node containerd://2.1.4 v1.35.0\n"

SCRIPT(a_container_gets_the_drivers_limit_where_it_can,
       "with isolation-auto\n" NEW_NODE "cdi nvidia.com/gpu\n"
       "said ~> the driver limits the memory of containers\n"
       "count limit-devices 1\n"
       "pod p on=1 i:init:mem5 a:mem3 b:mem2\n"
       "admit p i mem5 => allocated\n"
       "env ~> cdi nvidia.com/gpu=GPU-1\n"
       "env ~> cdi gpushare.io/limit=uid-p-i\n"
       "count limit-devices 2\n"
       "admit p a mem3 => allocated\n"
       "env ~> cdi gpushare.io/limit=uid-p-a\n"
       "env !> NVIDIA_GPU_MEMORY\n"
       "admit p b mem2 => allocated\n"
       "limits => p i 5120 device, p a 3072 device, p b 2048 device\n"
       "log !> GPUIsolationFailed\n"
       "plugin\n"
       "limits => p i 5120 device, p a 3072 device, p b 2048 device")

/* The driver is older, the cgroups are v1, ...: as with release 1.0. */
SCRIPT(
    a_container_starts_without_it_where_the_driver_cannot,
    "with isolation-auto\n" NEW_NODE "cdi nvidia.com/gpu driver 580.95.05: needs 615\n"
    "said ~> the driver cannot limit the memory of containers: driver 580.95.05: needs "
    "615\n"
    "pod p on=1 a:mem3\n"
    "admit p a mem3 => allocated\n"
    "env !> gpushare.io/limit\n"
    "limits => p a 0\n"
    "log !> GPUIsolationFailed\n"
    "count not-isolated 0\n"
    "pod n on=1 isolation=none a:mem3\n"
    "admit n a mem3 => allocated\n"
    "count not-isolated 0\n"
    "pod d on=1 isolation=driver a:mem3\n"
    "prefer mem3 => GPU-1/6 GPU-1/7 GPU-1/8\n"
    "allocate mem GPU-1/6-8 ~> no-driver-limit: container a may not start without the "
    "driver's limit of memory: driver 580.95.05: needs 615\n"
    "log ~> event d GPUAllocationFailed container a may not start")

SCRIPT(no_container_starts_without_it_on_a_node_that_must,
       "with driver\n" NEW_NODE "cdi nvidia.com/gpu cgroup v1\n"
       "pod p on=1 a:mem3\n"
       "prefer mem3 => GPU-1/0 GPU-1/1 GPU-1/2\n"
       "allocate mem GPU-1/0-2 ~> no-driver-limit: container a may not start without the "
       "driver's limit of memory: cgroup v1\n"
       "-api p\n-kubelet p\n"
       "pod n on=1 isolation=none a:mem3\n"
       "prefer mem3 => GPU-1/0 GPU-1/1 GPU-1/2\n"
       "allocate mem GPU-1/0-2 ~> no-driver-limit\n"
       "-api n\n-kubelet n\n"
       "pod w on=1 a:cards1\n" /* whole cards have no limit */
       "admit w a cards1 GPU-1 => allocated\n"
       "cdi nvidia.com/gpu\n"
       "pod q on=0 a:mem3\n"
       "admit q a mem3 => allocated\n"
       "limits => w a 0, q a 3072 device")

/* The driver changes under a pod: what the allocation set stays recorded. */
SCRIPT(the_limits_follow_the_driver_and_the_promise,
       "with isolation-auto\n" NEW_NODE "cdi nvidia.com/gpu\n"
       "pod p on=1 a:mem3\n"
       "admit p a mem3 => allocated\n"
       "count limit-devices 2\n"
       "cdi nvidia.com/gpu\n"
       "count limit-devices 2\n"
       "cdi nvidia.com/gpu driver 580: needs 615\n"
       "count limit-devices 3\n"
       "limits => p a 3072 device\n"
       "cdi nvidia.com/gpu\n"
       "count limit-devices 4\n"
       "api p on=1 a:mem3\n"
       "count limit-devices 4\n"
       "count saves 1\n"
       "api p on=1 a:mem5\n" /* as after a resize */
       "count limit-devices 5\n"
       "count saves 2\n"
       "limits => p a 5120 device\n"
       "api p a:mem5\n" /* what is no longer known changes nothing */
       "limits => p a 5120 device\n"
       "api p Succeeded on=1 a:mem5\n"
       "limits => \n"
       "pass 4000\n" /* the file is removed */
       "least limit-devices 6")

/* They were given when the pod was read for the first time after the start. */
SCRIPT(the_cards_can_come_after_the_pods,
       "with isolation-auto\n" NEW_NODE "cdi nvidia.com/gpu\n"
       "pod p on=1 a:mem3\n"
       "admit p a mem3 => allocated\n"
       "plugin\n"
       "list\napi p on=1 a:mem3\nlisted\n"
       "limits => p a 3072 device\n"
       "pass 4000\n"
       "limits => p a 3072 device")

/* It was allocated by 1.0, or on a node that could not. */
SCRIPT(an_allocation_without_a_limit_stays_without,
       "with isolation-auto\n" NEW_NODE "cdi nvidia.com/gpu driver 580: needs 615\n"
       "pod p on=1 a:mem3\n"
       "admit p a mem3 => allocated\n"
       "cdi nvidia.com/gpu\n"
       "api p on=1 a:mem3\n"
       "limits => p a 0")

/* The kubelet lost its checkpoint and gave the container other ids. */
SCRIPT(a_recovered_allocation_keeps_its_limit,
       "with isolation-auto\n" NEW_NODE "cdi nvidia.com/gpu\n"
       "pod p Running on=1 a:mem3\n"
       "admit p a mem3 => allocated\n"
       "-kubelet p\nkubelet p a\n"
       "shows p a GPU-1/7-9\n"
       "pod q on=0 a:mem2\n"
       "prefer mem2 => GPU-0/0 GPU-0/1\n"
       "count recovered 1\n"
       "limits => p a 3072 device")

SCRIPT(a_static_pod_has_no_limit_of_the_driver,
       "with isolation-auto\n" NEW_NODE "cdi nvidia.com/gpu\n"
       "kubelet static-n1 a\n"
       "prefer mem3 => (nothing yet)\n"
       "pass 2600\n"
       "allocate mem GPU-0/0-2 => allocated\n"
       "env !> gpushare.io/limit\n"
       "said ~> a static pod has no limit: it starts before it has a UID")

SCRIPT(cards_by_cdi_name_by_index_and_with_mps,
       "with mps\n"
       "cdi nvidia.com/gpu\n"
       "pod p on=1 a:mem4\n"
       "admit p a mem4 => allocated\n"
       "env ~> cdi nvidia.com/gpu=GPU-1\n"
       "env ~> CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M\n"
       "env ~> CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25\n"
       "env ~> mount /tmp/nvidia-mps=/run/mps/pipe\n"
       "env ~> mount /dev/shm=/run/mps/shm\n"
       "env !> NVIDIA_VISIBLE_DEVICES\n"
       "with by-index\n"
       "pod p on=1 a:mem4\n"
       "admit p a mem4 => allocated\n"
       "env ~> NVIDIA_VISIBLE_DEVICES=1")

/* Shares of compute: an id of a container must stay. */
SCRIPT(a_replaced_card_is_counted_once, "count core-ids 200\n"
                                        "cards GPU-0\n"
                                        "count core-ids 200\n"
                                        "cards GPU-0 GPU-9\n"
                                        "count core-ids 200\n"
                                        "cards GPU-0 GPU-9 GPU-8\n"
                                        "count core-ids 300")

/* Its compute is not that of the new card: kube-scheduler subtracts what the pod requests. */
SCRIPT(a_lost_card_counts_as_long_as_a_pod_has_it,
       "pod p on=1 a:mem3\n"
       "admit p a mem3 => allocated\n"
       "cards GPU-0 GPU-9\n"
       "count core-ids 300\n"
       "-api p\n"
       "-kubelet p\n"
       "cards GPU-0 GPU-9\n"
       "count core-ids 300") /* ids are never withdrawn */

/* A pod on the new card keeps its ids, which the kubelet compares when it restarts. */
SCRIPT(a_restart_counts_a_card_that_was_lost_before, "pod p on=1 a:mem3\n"
                                                     "admit p a mem3 => allocated\n"
                                                     "pod q on=1 a:mem3\n"
                                                     "admit q a mem3 => allocated\n"
                                                     "cards GPU-0 GPU-9\n"
                                                     "count core-ids 300\n"
                                                     "plugin\n"
                                                     "cards GPU-0 GPU-9\n"
                                                     "count core-ids 300\n"
                                                     "plugin\n"
                                                     "cards GPU-0 GPU-1\n"
                                                     "count core-ids 200")

SCRIPT(a_card_that_returns_adds_its_ids, "cards GPU-0 GPU-9\n"
                                         "count device-lists 2\n"
                                         "cards GPU-0 GPU-9 GPU-1:lost\n"
                                         "count device-lists 3\n"
                                         "count core-ids 300\n"
                                         "cards GPU-0 GPU-9 GPU-1:lost\n"
                                         "count device-lists 3")

/* Slots: one of each promised card, whatever other ids the kubelet offers, and MiB by the record
 * of the bind. */
SCRIPT(a_container_gets_one_slot_of_each_promised_card,
       "with isolation-auto\n" NEW_NODE "cdi nvidia.com/gpu\n"
       "pod p on=0,1 memory=6Gi record=6144+uid-p a:slots2 b:slots2\n"
       "admit p a slots2 => allocated\n"
       "env ~> ALIYUN_COM_GPU_MEM_IDX=0,1\n"
       "env ~> ALIYUN_COM_GPU_MEM_POD=12288\n"
       "env ~> ALIYUN_COM_GPU_MEM_CONTAINER=6144\n"
       "env ~> ALIYUN_COM_GPU_MEM_DEV=8192,16384\n"
       "env ~> cdi nvidia.com/gpu=GPU-0\n"
       "env ~> cdi nvidia.com/gpu=GPU-1\n"
       "env ~> cdi gpushare.io/limit=uid-p-a\n"
       "prefer slots2 => GPU-0/s1 GPU-1/s1\n"
       "admit p b slots2 => allocated\n"
       "limits => p a 3072 device, p b 3072 device\n"
       "log ~> patch p uid-p {\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}\n"
       "pod q on=1 memory=1Gi record=1024+uid-q a:slots1\n"
       "prefer slots1 GPU-0/s0-31 ~> insufficient-ids: the kubelet offers too few\n"
       "pod two on=0,1 memory=1Gi record=1024+uid-two a:slots2\n"
       "prefer slots2 => GPU-0/s2 GPU-1/s2\n"
       "allocate slots GPU-0/s2-3 ~> is promised 1 of card 0 GPU-0, 1 of card 1 GPU-1")

/* Slot 0 and unit 0 of a card are different ids. A whole card excludes both. */
SCRIPT(slots_and_units_are_held_apart,
       "pod p on=1 memory=2Gi record=2048+uid-p a:slots1\n"
       "admit p a slots1 => allocated\n"
       "pod q on=1 a:mem3\n"
       "prefer mem3 => GPU-1/0 GPU-1/1 GPU-1/2\n"
       "admit q a mem3 => allocated\n"
       "pod r on=1 memory=50% record=8192+uid-r a:slots1\n"
       "prefer slots1 => GPU-1/s1\n"
       "admit r a slots1 => allocated\n"
       "pod w on=1 a:cards1\n"
       "prefer cards1 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> in-use: id \n"
       "count mismatches 0")

SCRIPT(slots_are_known_after_a_restart,
       "with isolation-auto\n" NEW_NODE "cdi nvidia.com/gpu\n"
       "pod p on=1 memory=2Gi record=2048+uid-p i:init:slots1 a:slots1\n"
       "admit p i slots1 => allocated\n"
       "admit p a slots1 GPU-1/s5 => allocated\n"
       "slots => p i 2048, p a 2048\n"
       "plugin\n"
       "slots => p i 2048, p a 2048\n"
       /* The state file is lost; the annotation has changed since the bind. */
       "fresh reconcile\n"
       "kubelet p a\n"
       "shows p a GPU-1/s5\n"
       "api p Running on=1 memory=7Gi record=2048+uid-p a:slots1\n"
       "cards GPU-0 GPU-1\n"
       "list\n"
       "api p Running on=1 memory=7Gi record=2048+uid-p a:slots1\n"
       "listed\n"
       "pass 1000\n"
       "slots => p a 2048\n"
       "api p Running on=1 memory=7Gi record=3072+uid-p a:slots1\n"
       "slots => p a 3072\n"
       /* An invalid promise changes no container that runs. */
       "api p Running on=1 memory=7Gi a:slots1\n"
       "slots => p a 3072\n"
       "count recovered 1\n"
       "count mismatches 0")

SCRIPT(slots_need_the_extender,
       "with unpromised\n"
       "pod p memory=2Gi a:slots1\n"
       "prefer slots1 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> no-promise: pod default/p has no promised card: the extender did not\n"
       "kubelet s-n1 a\n"
       "-kubelet p\n"
       "prefer slots1 => (nothing yet)\n"
       "pass 6000\n"
       "answer ~> invalid-request: pod default/s-n1 is static: the kubelet asks for its "
       "slots")

/* A started pod without a promise gets no part of the cards that it holds by chance. */
SCRIPT(slots_without_a_promise_are_not_guessed, "with reconcile\n"
                                                "pod p Running memory=2Gi a:slots1\n"
                                                "shows p a GPU-1/s3\n"
                                                "pass 130000\n"
                                                "count recovered 1\n"
                                                "slots => p a 0\n"
                                                "log => ")

/* Without a label the option counts. A word of a later version serves nothing, and says so. */
SCRIPT(the_label_of_the_node_beats_the_option,
       "said !> nvidia.com/gpu\n"
       "count dialect 0\n"
       "mark\n"
       "dialect hami\n"
       "said ~> nvidia.com/gpu is now HAMi's\n"
       "count dialect 1\n"
       "count relists 1\n"
       "dialect hami\n"
       "count relists 1\n"
       "dialect kai\n"
       "said ~> the Node's label gpushare/dialect is \"kai\", neither hami nor none\n"
       "said ~> nvidia.com/gpu is no longer HAMi's\n"
       "count dialect 0\n"
       "dialect none\n"
       "count dialect 0\n"
       "with hami\n"
       "count dialect 1\n"
       "dialect none\n"
       "count dialect 0\n"
       "no-node\n"
       "dialect\n"
       "count dialect 1\n"
       "fresh hami\n" /* not before the Node is read */
       "cards GPU-0 GPU-1\n"
       "count dialect 0")

/* -- ids of the plugin before -- */

#define TAKEN                                                                            \
    "pod p Running on=1 memory=2Gi record=4096+uid-p a:slots1 b:slots1\n"                \
    "shows p a other:GPU-0-7\n"                                                          \
    "shows p b other:GPU-1-3\n"                                                          \
    "pass 1000\n"

/* The kubelet asks for the devices of containers that do not run when it restarts. While it has not
 * read its pods, it shows none. */
SCRIPT(ids_of_another_plugin_are_listed_until_their_pod_ends,
       "with reconcile\n"
       "others => \n"
       "count device-lists 1\n" TAKEN "others => GPU-0-7 GPU-1-3\n"
       "count device-lists 2\n"
       "count recovered 2\n"
       "slots => p a 2048, p b 2048\n"
       "pass 182000\n"
       "count device-lists 2\n"
       "count saves 1\n"
       "plugin\n"
       "others => GPU-0-7 GPU-1-3\n"
       "cards GPU-0 GPU-1\n"
       "list\n"
       "-kubelet p\n"
       "api p Running on=1 memory=2Gi record=4096+uid-p a:slots1 b:slots1\n"
       "listed\n"
       "restart\n"
       "pass 182000\n"
       "others => GPU-0-7 GPU-1-3\n"
       "log => \n"
       "count mismatches 0\n"
       "api p Succeeded on=1 memory=2Gi record=4096+uid-p a:slots1 b:slots1\n"
       "others => ")

/* Its watch says that the pod has ended; the kubelet can follow later. */
SCRIPT(ids_of_another_plugin_leave_with_their_pod, "with reconcile\n" TAKEN "-api p\n"
                                                   "mark\n"
                                                   "pass 20000\n"
                                                   "others => GPU-0-7 GPU-1-3\n"
                                                   "least lists 1\n"
                                                   "count lists 4\n"
                                                   "away\n"
                                                   "-kubelet p\n"
                                                   "pass 20000\n"
                                                   "others => GPU-0-7 GPU-1-3\n"
                                                   "back\n"
                                                   "pass 6000\n"
                                                   "others => \n"
                                                   "count allocations 0\n"
                                                   "mark\n"
                                                   "pass 182000\n"
                                                   "count lists 0")

SCRIPT(ids_of_another_plugin_are_never_given,
       "with reconcile\n" TAKEN "pod q on=1 memory=1Gi record=1024+uid-q a:slots1\n"
       "prefer slots1 other:GPU-0-7 other:GPU-1-8 GPU-1/s5 => GPU-1/s5\n"
       "allocate slots other:GPU-0-7 ~> unknown-id: \"GPU-0-7\" is not a device id\n"
       "prefer slots1 other:GPU-0-7 ~> insufficient-ids: \n"
       "pod r on=1 memory=1Gi record=1024+uid-r a:slots1\n"
       "prefer slots1 GPU-1/s5 => GPU-1/s5\n"
       "allocate slots other:GPU-0-7 ~> unknown-id: \"GPU-0-7\" is not a device id\n"
       "others => GPU-0-7 GPU-1-3")

/* Its ids leave with its containers. */
SCRIPT(ids_of_a_pod_that_only_the_kubelet_has_are_listed,
       "with reconcile\n"
       "kubelet late a\n"
       "shows late a other:GPU-0-7\n"
       "pod q on=1 memory=1Gi record=1024+uid-q a:slots1\n"
       "admit q a slots1 => allocated\n"
       "others => GPU-0-7\n"
       "plugin\n"
       "cards GPU-0 GPU-1\n"
       "list\n"
       "listed\n"
       "pass 1000\n"
       "others => GPU-0-7\n"
       "-kubelet late\n"
       "pod r on=1 memory=1Gi record=1024+uid-r a:slots1\n"
       "prefer slots1\n"
       "others => ")

/* Where nvidia.com/gpu is ours. Elsewhere its ids are those of NVIDIA's plugin. */
SCRIPT(ids_of_hamis_plugin_are_listed, "with reconcile\n"
                                       "dialect hami\n"
                                       "prefer gpus1\n"
                                       "count surveyed 0\n"
                                       "cancel\n"
                                       "list\n"
                                       "pod p Running a:gpus1 b:gpus1\n"
                                       "shows p a other:GPU-0-7\n"
                                       "shows p b other:GPU-0-8\n"
                                       "pass 1000\n"
                                       "count surveyed 0\n"
                                       "others => \n"
                                       "listed\n"
                                       "pass 1000\n"
                                       "count surveyed 1\n"
                                       "others => GPU-0-7 GPU-0-8\n"
                                       "pass 61000\n"
                                       "count mismatches 0\n"
                                       "log => \n"
                                       "with reconcile\n"
                                       "kubelet q a\n"
                                       "shows q a nvidia:GPU-0\n"
                                       "pod r on=1 a:mem1\n"
                                       "admit r a mem1 => allocated\n"
                                       "count allocations 1")

/* Its ids are those of another system on purpose; with units, nobody else has ids of the node. */
SCRIPT(an_id_of_units_that_is_none_of_the_node_is_no_id_of_another_plugin,
       "with reconcile\n"
       "pod p Running on=1 memory=2Gi record=2048+uid-p a:slots1\n"
       "shows p a GPU-7/s3\n"
       "pass 12000\n"
       "others => \n"
       "log ~> GPUMismatch container a holds")

/* Without it, ids of another plugin could be missing from the first list. */
SCRIPT(what_containers_hold_is_listed_before_slots_are_registered,
       "fresh defaults\n"
       "away\n"
       "cards GPU-0 GPU-1\n"
       "list\n"
       "pod p Running on=1 memory=2Gi record=2048+uid-p a:slots1\n"
       "shows p a other:GPU-0-7\n"
       "pass 5000\n"
       "count calls 0\n"
       "listed\n"
       "pass 5000\n"
       "least lists 4\n"
       "count surveyed 0\n"
       "count failed 1\n"
       "back\n"
       "pass 1000\n"
       "count surveyed 1\n"
       "others => GPU-0-7\n"
       "mark\n"
       "pass 182000\n"
       "count lists 0")

#define HAMI_P                                                                           \
    "index=0,1 uuid=GPU-0,GPU-1 record=6000+uid-p "                                      \
    "parts={\\'0\\':{\\'0\\':3000,\\'1\\':3000},\\'1\\':{\\'0\\':2500,\\'1\\':2500}} "

/* Each container has the part that the Binding gave it, whatever its limits would be by other defaults;
 * a plain init container what the pod was promised. */
SCRIPT(pods_of_hami_get_a_slot_of_each_card,
       "with isolation-auto\n" NEW_NODE "dialect hami\nlisted\n"
       "cdi nvidia.com/gpu\n"
       "pod p " HAMI_P "i:init:gpus2 a:gpus2 b:gpus2\n"
       "admit p i gpus2 => allocated\n"
       "env ~> ALIYUN_COM_GPU_MEM_CONTAINER=12000\n"
       "prefer gpus2 => GPU-0/g0 GPU-1/g0\n"
       "admit p a gpus2 => allocated\n"
       "env ~> ALIYUN_COM_GPU_MEM_IDX=0,1\n"
       "env ~> ALIYUN_COM_GPU_MEM_POD=12000\n"
       "env ~> ALIYUN_COM_GPU_MEM_CONTAINER=6000\n"
       "env ~> ALIYUN_COM_GPU_MEM_DEV=8192,16384\n"
       "env ~> cdi nvidia.com/gpu=GPU-0\n"
       "env ~> cdi gpushare.io/limit=uid-p-a\n"
       "prefer gpus2 => GPU-0/g1 GPU-1/g1\n"
       "admit p b gpus2 => allocated\n"
       "limits => p i 6000 device, p a 3000 device, p b 2500 device\n"
       "slots => p i 6000, p a 3000, p b 2500\n"
       "log ~> patch p uid-p {\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"true\"}\n"
       /* aliyun.com/gpu-share has slots of its own there. */
       "pod q on=1 memory=1Gi record=1024+uid-q a:slots1\n"
       "prefer slots1 => GPU-1/s0\n"
       "admit q a slots1 => allocated\n"
       "plugin\n"
       "slots => p i 6000, p a 3000, p b 2500, q a 1024\n"
       "count mismatches 0")

SCRIPT(compute_of_hami, "with mps\n" NEW_NODE "dialect hami\nlisted\n"
                        "cdi nvidia.com/gpu\n"
                        "pod p index=0,1 uuid=GPU-0,GPU-1 record=2000+uid-p "
                        "parts={\\'0\\':{\\'0\\':2000,\\'1\\':2000}} a:cores30:gpus2\n"
                        "admit p a gpus2 => allocated\n"
                        "env ~> CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\n"
                        "env ~> CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2000M,1=2000M")

SCRIPT(whole_cards_of_hami, "with limit\n" NEW_NODE "dialect hami\nlisted\n"
                            "pod w index=1 uuid=GPU-1 dev=16384 record=whole+uid-w "
                            "parts={\\'0\\':{\\'1\\':16000}} a:gpus1\n"
                            "admit w a gpus1 => allocated\n"
                            "env ~> ALIYUN_COM_GPU_MEM_POD=16384\n"
                            "env ~> ALIYUN_COM_GPU_MEM_CONTAINER=16000\n"
                            "slots => w a 16000\n"
                            "count mismatches 0")

SCRIPT(
    pods_of_hami_need_the_extender,
    "with hami\n"
    "pod p a:gpus1\n"
    "prefer gpus1 ~> no-promise: pod default/p has no promised card: the extender did\n"
    "-kubelet p\n"
    "kubelet s-n1 a\n"
    "prefer gpus1 => (nothing yet)\n"
    "pass 6000\n"
    "answer ~> invalid-request: pod default/s-n1 is static: the kubelet asks for its "
    "slots of nvidia.com/gpu\n"
    "-kubelet s-n1\n"
    /* The record of another pod, parts above it, and another number of cards. */
    "pod q index=1 record=6000+uid-p parts={\\'0\\':{\\'1\\':3000}} a:gpus1\n"
    "prefer gpus1 ~> invalid-request: pod default/q: the annotations\n"
    "-kubelet q\n"
    "pod r index=1 record=6000+uid-r parts={\\'0\\':{\\'1\\':6001}} a:gpus1\n"
    "prefer gpus1 ~> invalid-request\n"
    "-kubelet r\n"
    "pod t index=1 record=6000+uid-t parts={\\'0\\':{\\'1\\':3000}} a:gpus2\n"
    "prefer gpus2 ~> invalid-request\n"
    "-kubelet t\n"
    "pod u index=1 record=6000+uid-u parts={\\'0\\':{\\'1\\':3000}} a:gpus1\n"
    "prefer gpus1 => GPU-1/g0")

/* Elsewhere they are NVIDIA's, whatever their annotations say. */
SCRIPT(pods_of_nvidias_plugin_are_not_ours, "with reconcile\n"
                                            "pod p Running a:gpus1\n"
                                            "shows p a GPU-1/g3\n"
                                            "pass 130000\n"
                                            "count allocations 0\n"
                                            "dialect hami\n"
                                            "list\n"
                                            "api p Running a:gpus1\n"
                                            "listed\n"
                                            "pass 2000\n"
                                            "count allocations 1\n"
                                            "slots => p a 0\n"
                                            "log => ")

UNIT_MAIN_AROUND(begin, end)
