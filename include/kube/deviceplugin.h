/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Decoders and encoders for the messages of the kubelet's device plugin API, v1beta1.
 *
 * A decoder takes the bytes of one message and allocates from the arena; strings are
 * NUL-terminated. ERR_INVALID: the bytes are not such a message, or a string is not UTF-8
 * or contains a NUL; the error names the field. ERR_TOO_LARGE: the decoded message would
 * take much more memory than its bytes. Unknown fields are skipped. After an error, *out
 * is undefined.
 *
 * An encoder appends to `out`. It rejects what the receiver would reject or misread, with
 * ERR_INVALID: invalid strings as above, ids that are empty or longer than 63 bytes,
 * names of environment variables that are empty or contain '='. ERR_TOO_LARGE: the
 * message is larger than the kubelet accepts. After an error, `out` is unchanged.
 */

#define DP_VERSION      "v1beta1"
#define DP_DIR          "/var/lib/kubelet/device-plugins" /* regardless of --root-dir */
#define DP_KUBELET_SOCK "kubelet.sock"                    /* in DP_DIR */

#define DP_REGISTER  "/v1beta1.Registration/Register"
#define DP_OPTIONS   "/v1beta1.DevicePlugin/GetDevicePluginOptions"
#define DP_WATCH     "/v1beta1.DevicePlugin/ListAndWatch"
#define DP_PREFERRED "/v1beta1.DevicePlugin/GetPreferredAllocation"
#define DP_ALLOCATE  "/v1beta1.DevicePlugin/Allocate"
#define DP_PRESTART  "/v1beta1.DevicePlugin/PreStartContainer"

enum {
    DP_ID_MAX = 63,           /* bytes of a device id */
    DP_MESSAGE_MAX = 4 << 20, /* bytes of a message; the kubelet's limit */
};

/* The message Empty has no struct: it is encoded as no bytes, and its bytes are ignored.
 */

struct dp_options {
    bool pre_start_required, preferred_allocation;
};
int dp_options_encode(const struct dp_options *m, struct buf *out, struct err *err);

/* RegisterRequest. */
struct dp_register {
    struct span version, endpoint, resource; /* endpoint: a file name in DP_DIR */
    struct dp_options options;
};
int dp_register_encode(const struct dp_register *m, struct buf *out, struct err *err);

/* ListAndWatchResponse. */
struct dp_device {
    struct span id;
    bool is_healthy; /* "Healthy"; a decoder takes any other text as unhealthy */
    const int64_t *numa;
    size_t n_numa; /* 0: no Topology */
};
struct dp_devices {
    const struct dp_device *items;
    size_t n;
};
int dp_devices_encode(const struct dp_devices *m, struct buf *out, struct err *err);

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
int dp_groups_encode(const struct dp_groups *m, struct buf *out, struct err *err);
int dp_groups_decode(struct span bytes, struct arena *a, struct dp_groups *out,
                     struct err *err);

/* PreferredAllocationRequest. */
struct dp_preference {
    struct dp_ids available, must_include;
    int32_t size; /* number of requested devices; not negative */
};
struct dp_preferences {
    const struct dp_preference *items;
    size_t n;
};
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
int dp_allocations_encode(const struct dp_allocations *m, struct buf *out,
                          struct err *err);
