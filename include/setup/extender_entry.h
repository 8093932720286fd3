/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"

/*
 * The file that tells kube-scheduler of extenders: a KubeSchedulerConfiguration, or the
 * Policy of Kubernetes up to 1.22. Of those extenders, which is ours, and what it says.
 */

enum { EXTENDER_ENTRY_URL_MAX = 512 };

/* An URL of an extender, taken apart. */
struct extender_entry_url {
    bool tls;
    char host[256]; /* without the brackets of IPv6 */
    unsigned port;
    char path[256]; /* "/gpushare-scheduler", without a '/' at its end; or "" */
};

int extender_entry_read_url(const char *text, struct extender_entry_url *out, struct err *err);
/* "http://127.0.0.1:32766", for one who wants host and port. */
void extender_entry_url_base(const struct extender_entry_url *u, struct buf *out);
/* HOST:PORT or [HOST]:PORT, without anything else. */
int extender_entry_check_address(const char *address, struct err *err);

/* The list; NULL if there is none. `json` is the whole file, as for all of these. */
const json_t *extender_entry_list(const json_t *json);
/* The extender that is meant for us: by its urlPrefix or by the resources that it
 * manages; NULL: none. */
const json_t *extender_entry_find(const json_t *json);
/* How many extenders bind. */
size_t extender_entry_count_binders(const json_t *json);
/* A member of an extender that this form of the file does not have (names are told apart
 * by case, too: enableHttps is of the Policy, enableHTTPS of the other); NULL: there is
 * none. */
const char *setup_extender_stranger(const json_t *extender, bool policy);
/* httpTimeout in milliseconds, rounded up to one; 0 when it is left out. The Policy of
 * old has a number of nanoseconds, the other a text such as "30s". -1: it is neither. */
int extender_entry_timeout(const json_t *extender, bool policy, int64_t *ms,
                           struct err *err);

/* The newest apiVersion of KubeSchedulerConfiguration that a kube-scheduler 1.MINOR
 * reads, and whether it reads this one. */
const char *extender_entry_newest_api(int minor);
bool extender_entry_supports_api(const char *api, int minor);
