/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/config.h"
#include "cli/cluster_client.h"

/*
 * The cluster as the options want it looked at: the API server by the kubeconfig, and,
 * where its objects leave something open, the extender.
 */

struct session {
    const struct cli_config *config; /* borrowed */
    struct kube_client *client;
    struct cluster_client *look;
    char *ns;     /* of the context */
    bool guessed; /* what one unit of memory is */

    /* of scene.c alone */
    json_t *view;
    bool asked;
};

/* Lists everything, finds out what a unit is if that was not said, and whose scv-agent is
 * alive. `s` is zeroed but for its config; release with session_fini, also after -1. */
int session_load(struct session *s, struct err *err);
void session_fini(struct session *s);
const struct cluster_state *session_world(const struct session *s); /* borrowed */

/* The extender's view of now, new. NULL: it is not to be asked (`why` is left alone), or
 * cannot be. */
json_t *session_ask(struct session *s, int64_t timeout_ms, struct err *why);
