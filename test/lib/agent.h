/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/sim.h"

/*
 * scv-agent in front of kube-sim, on the node n1. Its cards come from the file
 * lib_dir/cards.json, or from the fake NVML with the script lib_dir/script.
 */

struct agent {
    struct program program;
    struct peer health;
};

/* A Node, and the namespace of the Leases. */
void agent_setup(const struct sim *s);
/* Starts it with further options (end with NULL) and waits until it listens. */
void agent_start(struct agent *a, const struct sim *s, const char *source,
                 const char *const *more);
char *agent_file(void); /* the source that is a file; new */
char *agent_nvml(void); /* the source that is the fake library; new */
void agent_stop(struct agent *a);

/* The cards, in the form of the file source with ' for ". */
void agent_cards(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The script of the fake NVML. */
void agent_script(const char *text);

/* The Scv, new; NULL: there is none. */
json_t *agent_scv(const struct sim *s);
/* The number behind the path; -1: there is none. */
json_int_t agent_number(const struct sim *s, const char *path);
/* What "gpushare/message" says; "" if it is not there. New. */
char *agent_message(const struct sim *s);
/* "Healthy Unhealthy" of the cards, new. */
char *agent_health(const struct sim *s);
/* Does the Scv say that? */
bool agent_scv_is(const struct sim *s, const char *health, const char *message);
/* The line of this part in what a program answers there, new. */
char *agent_line(const struct peer *health, const char *path, const char *part);
/* ... in /healthz, new. */
char *agent_part(const struct agent *a, const char *part);
bool agent_part_is(const struct agent *a, const char *part, const char *text);
