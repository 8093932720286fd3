/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/deviceplugin.h"

#include "kube/deviceplugin.pb-c.h"

/* The messages between the kubelet and a device plugin, field by field (kube/proto.h). */

const struct proto_type dp_options_type = {
    &dp__options__descriptor,
    "DevicePluginOptions",
    sizeof(struct dp_options),
    {{PROTO_AT(dp_options, pre_start_required)},
     {PROTO_AT(dp_options, preferred_allocation)}}};

const struct proto_type dp_register_type = {
    &dp__register_request__descriptor,
    "RegisterRequest",
    sizeof(struct dp_register),
    {{PROTO_AT(dp_register, version)},
     {PROTO_AT(dp_register, endpoint)},
     {PROTO_AT(dp_register, resource)},
     {PROTO_AT(dp_register, options), .type = &dp_options_type}}};

static const struct proto_type device_type = {
    &dp__device__descriptor,
    NULL,
    sizeof(struct dp_device),
    {{PROTO_AT(dp_device, id), .max = DP_ID_MAX}, {PROTO_AT(dp_device, health)}}};

const struct proto_type dp_devices_type = {
    &dp__device_list__descriptor,
    "ListAndWatchResponse",
    sizeof(struct dp_devices),
    {{PROTO_AT(dp_devices, items), .type = &device_type}}};

const struct proto_type dp_ids_type = {&dp__ids__descriptor,
                                       "PreStartContainerRequest",
                                       sizeof(struct dp_ids),
                                       {{PROTO_AT(dp_ids, items), .max = DP_ID_MAX}}};

const struct proto_type dp_groups_type = {
    &dp__containers_ids__descriptor,
    "device ids",
    sizeof(struct dp_groups),
    {{PROTO_AT(dp_groups, items), .type = &dp_ids_type}}};

static const struct proto_type preference_type = {
    &dp__container_preference__descriptor,
    NULL,
    sizeof(struct dp_preference),
    {{PROTO_AT(dp_preference, available), .max = DP_ID_MAX},
     {PROTO_AT(dp_preference, must_include), .max = DP_ID_MAX},
     {PROTO_AT(dp_preference, size)}}};

const struct proto_type dp_preferences_type = {
    &dp__preferred_request__descriptor,
    "PreferredAllocationRequest",
    sizeof(struct dp_preferences),
    {{PROTO_AT(dp_preferences, items), .type = &preference_type}}};

static const struct proto_type entry_type = {
    &dp__entry__descriptor,
    NULL,
    sizeof(struct dp_entry),
    {{PROTO_AT(dp_entry, key)}, {PROTO_AT(dp_entry, value)}}};

static const struct proto_type mount_type = {&dp__mount__descriptor,
                                             NULL,
                                             sizeof(struct dp_mount),
                                             {{PROTO_AT(dp_mount, container_path)},
                                              {PROTO_AT(dp_mount, host_path)},
                                              {PROTO_AT(dp_mount, read_only)}}};

static const struct proto_type spec_type = {&dp__device_spec__descriptor,
                                            NULL,
                                            sizeof(struct dp_spec),
                                            {{PROTO_AT(dp_spec, container_path)},
                                             {PROTO_AT(dp_spec, host_path)},
                                             {PROTO_AT(dp_spec, permissions)}}};

static const struct proto_type cdi_type = {
    &dp__cdi_device__descriptor, NULL, sizeof(struct span), {{0}}};

static const struct proto_type allocation_type = {
    &dp__container_allocation__descriptor,
    NULL,
    sizeof(struct dp_allocation),
    {{PROTO_AT(dp_allocation, envs), .type = &entry_type},
     {PROTO_AT(dp_allocation, mounts), .type = &mount_type},
     {PROTO_AT(dp_allocation, specs), .type = &spec_type},
     {PROTO_AT(dp_allocation, annotations), .type = &entry_type},
     {PROTO_AT(dp_allocation, cdi), .type = &cdi_type}}};

const struct proto_type dp_allocations_type = {
    &dp__allocate_response__descriptor,
    "AllocateResponse",
    sizeof(struct dp_allocations),
    {{PROTO_AT(dp_allocations, items), .type = &allocation_type}}};
