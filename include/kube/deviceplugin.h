/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kube/proto.h"

/*
 * The messages of the kubelet's device plugin API, v1beta1, for proto_encode and proto_decode.
 * The message Empty has no struct: it is encoded as no bytes, and its bytes are ignored.
 */

#define DP_VERSION      "v1beta1"
#define DP_DIR          "/var/lib/kubelet/device-plugins" /* regardless of --root-dir */
#define DP_KUBELET_SOCK "kubelet.sock"                    /* in DP_DIR */

#define DP_REGISTER  "/v1beta1.Registration/Register"
#define DP_OPTIONS   "/v1beta1.DevicePlugin/GetDevicePluginOptions"
#define DP_WATCH     "/v1beta1.DevicePlugin/ListAndWatch"
#define DP_PREFERRED "/v1beta1.DevicePlugin/GetPreferredAllocation"
#define DP_ALLOCATE  "/v1beta1.DevicePlugin/Allocate"

enum {
    DP_ID_MAX = 63,           /* bytes of a device id */
    DP_MESSAGE_MAX = 4 << 20, /* bytes of a message; the kubelet's limit */
};

struct dp_options {
    bool pre_start_required, preferred_allocation;
};

/* RegisterRequest. */
struct dp_register {
    struct span version, endpoint, resource; /* endpoint: a file name in DP_DIR */
    struct dp_options options;
};

/* ListAndWatchResponse. */
struct dp_device {
    struct span id;
    struct span health; /* "Healthy", "Unhealthy" */
};
struct dp_devices {
    const struct dp_device *items;
    size_t n;
};

/* PreStartContainerRequest, and the device ids of one container in other messages. */
struct dp_ids {
    const struct span *items;
    size_t n;
};

/* AllocateRequest, and PreferredAllocationResponse: the ids of each container. */
struct dp_groups {
    const struct dp_ids *items;
    size_t n;
};

/* PreferredAllocationRequest. */
struct dp_preference {
    struct dp_ids available, must_include;
    int32_t size; /* number of requested devices; not negative */
};
struct dp_preferences {
    const struct dp_preference *items;
    size_t n;
};

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
struct dp_allocation {           /* of one container */
    const struct dp_entry *envs; /* the last of equal keys wins */
    size_t n_envs;
    const struct dp_entry *annotations;
    size_t n_annotations;
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

/* Messages of at most DP_MESSAGE_MAX bytes. */
extern const struct proto_type dp_options_type, dp_register_type, dp_devices_type,
    dp_ids_type, dp_groups_type, dp_preferences_type, dp_allocations_type;
