/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Gangs in a suite with a cluster (lib/cluster.h): what must hold under every gang
 * scheduler. Such a scheduler lets the members of a gang wait at Permit until enough of them
 * have a node, and counts the memory of a node, not of its cards.
 */

/* How a gang is written. The strings are kept. */
struct gangs {
    const char
        *objects; /* path of the objects that say how large a gang is; NULL: none */
    char *(*object)(const char *name, int minimum);
    char *(*metadata)(
        const char *name); /* of a member, for cluster_create_pod; or NULL */
    char *(*spec)(const char *name);
    const char *scheduler; /* program of the cluster that judges gangs */
};

/* Three members of 10 GiB on two cards of 16,276 MiB: none starts, the reason says how many
 * find no place, and nothing is kept for them. With a third card all run. */
void gangs_wait_for_a_third_card(const struct gangs *g);

/* Three members on two cards, of which the object asks for `minimum` at once: two run.
 * `name`: of the gang; PodGroups outlive their deletion for a while. */
void gangs_of_three_start_two(const struct gangs *g, const char *name, int minimum);

/* 50 gangs of four on 40 cards: ten gangs fit at a time. When all those have run, the next
 * ten start. Each time all cards are used, and no gang stays bound in part. */
void gangs_use_every_card(const struct gangs *g);

/* Calls filter for members of gangs of each kind whose size an object says, with node n1. No
 * such object exists. */
void gangs_filter_members(void);
