/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "setup/jsonpath.h"

/*
 * The extenders in kube-scheduler's configuration, a KubeSchedulerConfiguration or the
 * Policy of Kubernetes up to 1.22, and the entry that is meant for gpushare-extender.
 */

/* The urlPrefix, parsed. */
struct extender_entry_url {
    bool tls;
    char host[256]; /* without the brackets of an IPv6 address */
    unsigned port;
    char path[256]; /* "/gpushare-scheduler", without a trailing '/'; may be "" */
};

int extender_entry_read_url(const char *text, struct extender_entry_url *out,
                            struct err *err);
/* Appends "http://127.0.0.1:32766". */
void extender_entry_url_base(const struct extender_entry_url *u, struct buf *out);
/* -1: `address` is neither HOST:PORT nor [HOST]:PORT. */
int extender_entry_check_address(const char *address, struct err *err);

/* The list of extenders; NULL: none. `json` is the whole file here and below. */
const json_t *extender_entry_list(const json_t *json);
/* Our entry, recognized by its urlPrefix or its managedResources; NULL: none. */
const json_t *extender_entry_find(const json_t *json);
/* The number of extenders with a bindVerb. */
size_t extender_entry_count_binders(const json_t *json);
/* httpTimeout in ms, rounded up; 0: not set. A Policy has a number of nanoseconds, a
 * KubeSchedulerConfiguration a text such as "30s". False: malformed. */
bool extender_entry_timeout(const json_t *entry, bool policy, int64_t *ms);

/* The newest apiVersion of KubeSchedulerConfiguration that kube-scheduler 1.MINOR reads,
 * and whether it reads `api`. */
const char *extender_entry_newest_api(int minor);
bool extender_entry_supports_api(const char *api, int minor);
