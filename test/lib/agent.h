/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/sim.h"

/*
 * scv-agent of the node n1, with kube-sim as API server. Its cards come from the file
 * lib_dir/cards.json, or from the fake NVML with the script lib_dir/script.
 */

struct agent {
    struct program program;
    struct peer health;
};

/* Creates the Node, whose runtime and kubelet pass CDI names on, and the namespace of the heartbeat
 * Leases. */
void agent_setup(const struct sim *s);
/* Starts it with the options `more` and waits until it listens. `source`: --gpu-source, NULL:
 * the file. */
void agent_start(struct agent *a, const struct sim *s, const char *source,
                 const char *const *more);
void agent_start_at(struct agent *a, const char *kubeconfig, const char *source,
                    const char *const *more);
char *agent_file(void); /* --gpu-source for the file; new */
char *agent_nvml(void); /* --gpu-source for the fake NVML; kept */
void agent_stop(struct agent *a);

/* Writes lib_dir/cards.json; ' replaces ". */
void agent_cards(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Writes the script of the fake NVML. */
void agent_script(const char *text);

/* The Scv, kept; NULL: there is none. */
json_t *agent_scv(const struct sim *s);
/* The number at a path of the Scv; -1: absent. */
json_int_t agent_number(const struct sim *s, const char *path);
/* Does the Scv have this health of its cards, such as "Healthy Unhealthy", and this text in its
 * annotation gpushare/message ("": none)? */
bool agent_scv_is(const struct sim *s, const char *health, const char *message);
/* The line of a check in the reply of a health endpoint. Kept. */
char *agent_line(const struct peer *health, const char *path, const char *part);
/* Does agent_line in /healthz contain the text? */
bool agent_part_is(const struct agent *a, const char *part, const char *text);
