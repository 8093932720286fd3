/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/deviceplugin.h"
#include "lib/cluster.h"

/*
 * The device plugin of another system, in this process, registered with the kubelet of the node. It
 * takes each Allocate as one for other_plugin_pod. One at a time.
 */

struct other_plugin {
    const char *resource, *socket; /* the latter is the name of a file */
    json_t *ids;                   /* in the order of its preference */
    /* The variables of the container of `pod`; strings are kept. Returns their number. */
    size_t (*give)(const char *pod, struct dp_entry envs[8]);
};

/* Registers; waits until the kubelet offers all ids. Borrows `of`. */
void other_plugin_start(const struct other_plugin *of);
void other_plugin_stop(void); /* the kubelet sees it end */
/* Creates the pod, and waits until it runs and the plugin has given it its variables. */
void other_plugin_run(const char *pod, const char *text);
int other_plugin_offers(const char *resource); /* what is allocatable of the Node */
