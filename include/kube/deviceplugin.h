/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * The messages of the kubelet's device plugin API, v1beta1: bytes to structs and back.
 *
 * A decoder takes the bytes of one message and puts what it found into the arena, strings
 * with a NUL behind them. Bytes that are no such message, and strings that are not UTF-8
 * or hold a NUL, are ERR_INVALID with the place; a small message that would take much
 * memory is ERR_TOO_LARGE. Unknown fields are skipped. After an error *out is not to be
 * looked at.
 *
 * An encoder appends to `out`. It refuses what the other side would refuse or misread:
 * strings as above, empty ids, ids longer than 63 bytes, names of variables that are
 * empty or have a '=' in them (ERR_INVALID), and messages that are larger than the
 * kubelet takes (ERR_TOO_LARGE). After an error `out` is as it was.
 */

#define DP_VERSION      "v1beta1"
#define DP_DIR          "/var/lib/kubelet/device-plugins" /* whatever --root-dir says */
#define DP_KUBELET_SOCK "kubelet.sock"                    /* in DP_DIR */

#define DP_REGISTER  "/v1beta1.Registration/Register"
#define DP_OPTIONS   "/v1beta1.DevicePlugin/GetDevicePluginOptions"
#define DP_WATCH     "/v1beta1.DevicePlugin/ListAndWatch"
#define DP_PREFERRED "/v1beta1.DevicePlugin/GetPreferredAllocation"
#define DP_ALLOCATE  "/v1beta1.DevicePlugin/Allocate"
#define DP_PRESTART  "/v1beta1.DevicePlugin/PreStartContainer"

enum {
    DP_ID_MAX = 63,           /* bytes of a device id */
    DP_MESSAGE_MAX = 4 << 20, /* bytes of a message that a kubelet takes */
};

/* Empty, the request or answer of some methods, is no bytes at all; what is in it is of
 * no interest. */

struct dp_options {
    bool pre_start_required, preferred_allocation;
};
int dp_options_encode(const struct dp_options *m, struct buf *out, struct err *err);
int dp_options_decode(struct span bytes, struct dp_options *out, struct err *err);

/* RegisterRequest. */
struct dp_register {
    struct span version, endpoint, resource; /* endpoint: a file name in DP_DIR */
    struct dp_options options;
};
int dp_register_encode(const struct dp_register *m, struct buf *out, struct err *err);
int dp_register_decode(struct span bytes, struct arena *a, struct dp_register *out,
                       struct err *err);

/* ListAndWatchResponse. */
struct dp_device {
    struct span id;
    bool is_healthy; /* "Healthy"; anything else that comes is not */
    const int64_t *numa;
    size_t n_numa; /* 0: no Topology */
};
struct dp_devices {
    const struct dp_device *items;
    size_t n;
};
int dp_devices_encode(const struct dp_devices *m, struct buf *out, struct err *err);
int dp_devices_decode(struct span bytes, struct arena *a, struct dp_devices *out,
                      struct err *err);

/* PreStartContainerRequest; and a container's part of others. */
struct dp_ids {
    const struct span *items;
    size_t n;
};
int dp_ids_encode(const struct dp_ids *m, struct buf *out, struct err *err);
int dp_ids_decode(struct span bytes, struct arena *a, struct dp_ids *out,
                  struct err *err);

/* AllocateRequest, and PreferredAllocationResponse: the ids of each container. */
struct dp_groups {
    const struct dp_ids *items;
    size_t n;
};
int dp_groups_encode(const struct dp_groups *m, struct buf *out, struct err *err);
int dp_groups_decode(struct span bytes, struct arena *a, struct dp_groups *out,
                     struct err *err);

/* PreferredAllocationRequest. */
struct dp_preference {
    struct dp_ids available, must_include;
    int32_t size; /* so many are wanted; never negative */
};
struct dp_preferences {
    const struct dp_preference *items;
    size_t n;
};
int dp_preferences_encode(const struct dp_preferences *m, struct buf *out,
                          struct err *err);
int dp_preferences_decode(struct span bytes, struct arena *a, struct dp_preferences *out,
                          struct err *err);

/* AllocateResponse. */
struct dp_entry {
    struct span key, value;
};
struct dp_mount {
    struct span container_path, host_path;
    bool read_only;
};
struct dp_spec {
    struct span container_path, host_path, permissions; /* "rwm" */
};
struct dp_allocation {                         /* of a container */
    const struct dp_entry *envs, *annotations; /* of equal keys the last one counts */
    size_t n_envs, n_annotations;
    const struct dp_mount *mounts;
    size_t n_mounts;
    const struct dp_spec *specs; /* device nodes */
    size_t n_specs;
    const struct span *cdi; /* "vendor.com/gpu=0" */
    size_t n_cdi;
};
struct dp_allocations {
    const struct dp_allocation *items;
    size_t n;
};
int dp_allocations_encode(const struct dp_allocations *m, struct buf *out,
                          struct err *err);
int dp_allocations_decode(struct span bytes, struct arena *a, struct dp_allocations *out,
                          struct err *err);
