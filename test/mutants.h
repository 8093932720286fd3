/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/*
 * The faults that the walk or the simulator must find, each with what it does. The code has
 * MUTANT(name) at the places of each (base/mutant.h); test/mutants.c plants one. `make
 * mutants` plants them one after the other and fails if one is not found.
 */

// clang-format off
#define MUTANT_LIST(X) \
    X(absent_in_older_list, \
      "A pod that a list lacks counts as deleted, even if the list was requested before the pod was bound.") \
    X(absent_lease_is_free, \
      "A process that creates an absent Lease binds at once, although another process may hold the previous one.") \
    X(annotation_amount_trusted, \
      "A promise counts for the amount in its annotations, even beyond the limits of the pod.") \
    X(annotation_without_node, \
      "Annotations of an unbound pod count as a promise.") \
    X(barrier_of_one, \
      "A bind of a member of a gang waits for no other.") \
    X(basic_members_end_together, \
      "Members that do not wait for each other lose their reservations together.") \
    X(cardless_nowhere, \
      "A pod without a card counts nowhere on a node with several cards.") \
    X(claims_forgotten, \
      "Cards that pods of nvidia.com/gpu are about to get stay available until the podList shows them.") \
    X(compute_forgotten, \
      "The compute of a bound pod does not count.") \
    X(compute_ignored, \
      "A card with enough free memory is given to a pod whatever compute it requests.") \
    X(deleted_member_stays_held, \
      "A held bind goes on waiting when a member of its gang ends.") \
    X(deleted_pod_has_no_card, \
      "A pod of the podList that was deleted by force has no cards, although it may run.") \
    X(deleted_scv_keeps_cards, \
      "A node keeps its cards when its Scv is deleted.") \
    X(double_reserve, \
      "A second bind of a pod whose Binding is in flight starts another Binding.") \
    X(dropped_pod_list_frees, \
      "An Scv without a podList frees the cards that the last podList showed.") \
    X(early_get_is_proof, \
      "A GET that was sent while the Binding could still take effect counts as proof.") \
    X(edit_during_bind_lost, \
      "An edit that arrives while a Binding is in flight is lost when the bind fails.") \
    X(edits_of_bound_trusted, \
      "A bound pod counts on the cards that its edited annotations name.") \
    X(error_out_of_turn, \
      "Filter answers an error while another gang has the turn.") \
    X(evicted_twice, \
      "The limit for evictions on behalf of one pod is forgotten.") \
    X(eviction_before_the_answer, \
      "The next victim is evicted before the previous eviction was answered.") \
    X(eviction_of_equal_priority, \
      "Layout preemption also evicts pods of equal priority.") \
    X(foreign_annotations_trusted, \
      "Annotations of other programs that promise less than the limits are trusted.") \
    X(frozen_clock_trusted, \
      "A monotonic clock that did not advance while the machine was frozen is trusted.") \
    X(gang_in_part, \
      "Cards are reserved for the asked member of a gang alone.") \
    X(gang_keeps_a_part, \
      "A gang that is rejected keeps the reservations of its other members.") \
    X(gang_member_unreserved, \
      "filter gives a member of a gang a node although its process may not reserve any more.") \
    X(gang_of_old_members, \
      "A member that has a reservation needs no new judgment of its gang.") \
    X(gang_of_those_there, \
      "A gang is judged without the members that do not exist yet.") \
    X(gang_reservation_leaks, \
      "A later filter renews the reservations of a gang, so they need not end.") \
    X(gated_member_counts, \
      "A member with schedulingGates is planned and counts like any other.") \
    X(health_ignored, \
      "Memory of an unavailable card is promised to new pods.") \
    X(held_cards_available, \
      "Cards that a container holds through nvidia.com/gpu stay available.") \
    X(held_for_ever, \
      "A held bind has no time limit.") \
    X(hopeless_gang_stays_first, \
      "A gang that was held in vain has the next turn again.") \
    X(init_containers_forgotten, \
      "The raw limits of init containers do not count.") \
    X(instance_is_a_whole_card, \
      "A pod that asks for whole cards without a model gets instances of cards in MIG mode.") \
    X(isolation_ignored, \
      "A pod gets a node that cannot enforce its memory as its gpushare/isolation says.") \
    X(kept_cards_given_away, \
      "A bind ignores nominated pods, even those for which cards are kept.") \
    X(label_rounded_down, \
      "Memory requested by labels is rounded down to whole units.") \
    X(labeled_cardless_everywhere, \
      "A pod that requests by labels alone and has no card counts on every card.") \
    X(labels_of_bound_trusted, \
      "A bound pod that requested by labels counts for its current labels.") \
    X(lapsed_lease_binds, \
      "A leader whose lease has expired goes on binding.") \
    X(lease_ignored, \
      "A process that does not hold the lease binds.") \
    X(limits_of_invalid_forgotten, \
      "A bound pod with an invalid request loses its limits.") \
    X(listed_cards_available, \
      "Cards that the ConfigMap unhealthy-gpu-<node> lists stay available.") \
    X(longest_lease_forgotten, \
      "A process that creates a Lease waits for its own duration, although the previous one had a longer one.") \
    X(lost_answer_is_failure, \
      "A Binding without an answer counts as failed.") \
    X(memory_of_bound_trusted, \
      "Slots of a bound pod count for what its annotation asks for now, not for what the bind promised.") \
    X(min_link_ignored, \
      "A pod gets cards that are not connected as its gpushare/min-link says.") \
    X(model_ignored, \
      "Cards of any model or clock are accepted.") \
    X(no_grace_after_outage, \
      "When a list or watch works again, nodes do not get a new grace period.") \
    X(no_list_after_take_over, \
      "A new leader does not list the pods again before its first bind.") \
    X(old_event_frees, \
      "An old event that shows a bound pod without a node frees its cards.") \
    X(own_lease_duration, \
      "A process waits for its own lease duration, whatever the Lease says.") \
    X(parent_beside_instances, \
      "A card in MIG mode is promised beside its instances.") \
    X(part_of_fewer_cards, \
      "A pod that holds fewer cards than promised counts on them for its part of the promise.") \
    X(plain_pod_survives_list, \
      "A pod without GPU that a list lacks still counts on its node.") \
    X(percent_of_another_card, \
      "A percentage is of the first card of the node, whichever cards the pod gets.") \
    X(percent_of_mixed_cards, \
      "A percentage of several cards takes cards of different sizes.") \
    X(pod_list_ignored, \
      "Cards that the podList shows for a pod do not count.") \
    X(pod_list_replaces_promise, \
      "The cards of the podList count instead of the promise, not beside it.") \
    X(pod_without_card, \
      "A pod that another program bound to a node with one card does not count.") \
    X(promise_ends_with_dialect, \
      "A pod in HAMi's words counts as one of nvidia.com/gpu when its node leaves the dialect.") \
    X(record_of_another_pod_counts, \
      "A record of a bind counts for every pod that has it, as a copy of another pod does.") \
    X(record_lowers_limits, \
      "A record of a bind that asks for less than the limits in HAMi's words counts.") \
    X(recreated_lease_is_the_old_one, \
      "A Lease that was deleted and recreated between two GETs counts as the previous one.") \
    X(release_before_get, \
      "A bind with an unknown outcome frees its cards before the GET.") \
    X(renewal_counts_from_its_answer, \
      "A renewal counts from its answer, not from when it was sent.") \
    X(reservation_blocks_higher_priority, \
      "A reservation counts for pods of higher priority too.") \
    X(reservation_ignored_by_bind, \
      "A bind takes memory that is reserved for other pods.") \
    X(reservation_leaks, \
      "A bind leaves the reservation of its pod behind.") \
    X(reservation_outlives_pod, \
      "The reservation of a deleted pod stays.") \
    X(reservation_renewed, \
      "A later filter of a pod renews its reservation, which then need not end.") \
    X(reservation_survives_leadership, \
      "A process that stops leading keeps its reservations.") \
    X(reservation_without_limit, \
      "A reservation whose pod is never bound stays.") \
    X(restored_list_is_ignored, \
      "Objects that a list lacks stay if its version is older than one that was seen, and nothing is forgotten.") \
    X(send_by_ignored, \
      "A Binding may be sent any time after it was decided.") \
    X(set_broken_by_one_card, \
      "A pod of one card breaks a set of connected cards, although an equal card breaks none.") \
    X(set_ignored_by_bind, \
      "Bind takes the cards of the policy, although connected ones are free.") \
    X(shrunk_card_keeps_its_size, \
      "A card keeps its size when its Scv has a smaller one.") \
    X(sleeps_beside_a_node, \
      "A pod that fits on a node that kube-scheduler did not offer is not tried again.") \
    X(slot_of_another_card, \
      "The annotations of a pod of slots name the first card of the node, whichever counts.") \
    X(slots_of_the_pod, \
      "The memory of slots, or in HAMi's words, is what a pod has of all its cards together.") \
    X(stale_heartbeat_ignored, \
      "A node with a stale heartbeat gets new pods.") \
    X(stale_heartbeat_without_proof, \
      "A node becomes stale even if no list or watch could have delivered its renewal.") \
    X(stale_pod_list_frees, \
      "A pod that the podList lacks loses its promise, although the podList may be older.") \
    X(stale_reservation_counts, \
      "A reservation counts although its node or cards do not serve it any more.") \
    X(taken_over_nowhere, \
      "A pod that HAMi has bound counts on no card.") \
    X(text_of_a_gang_changes, \
      "The text of a failed hold says why it failed.") \
    X(tie_by_address, \
      "Among equal cards the last in memory is chosen, not the lowest index.") \
    X(units_mixed_up, \
      "A promise to several containers counts thousands instead of units.") \
    X(weaker_reservation_stays, \
      "A reservation stays when a pod of higher priority takes its cards.") \
    X(whole_card_is_shared, \
      "The unused memory of a card that is promised whole is promised to other pods.")
// clang-format on

#define MUTANT_ENUM(name, fault) MUTANT_##name,
enum mutant { MUTANT_NONE, MUTANT_LIST(MUTANT_ENUM) };
#undef MUTANT_ENUM

/* Plants the fault of that name. False if no fault has the name, or in a build without faults. */
bool mutants_plant(const char *name);
