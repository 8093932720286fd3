/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/deviceplugin.h"

#include "kube/deviceplugin.pb-c.h"

/* The messages between the kubelet and a device plugin, field by field (kube/proto.h). */

const struct proto_type dp_options_type = {
    &dp__options__descriptor,
    "DevicePluginOptions",
    sizeof(struct dp_options),
    {{.at = offsetof(struct dp_options, pre_start_required)},
     {.at = offsetof(struct dp_options, preferred_allocation)}}};

const struct proto_type dp_register_type = {
    &dp__register_request__descriptor,
    "RegisterRequest",
    sizeof(struct dp_register),
    {{.at = offsetof(struct dp_register, version)},
     {.at = offsetof(struct dp_register, endpoint)},
     {.at = offsetof(struct dp_register, resource)},
     {.at = offsetof(struct dp_register, options), .type = &dp_options_type}}};

static const struct proto_type device_type = {
    &dp__device__descriptor,
    NULL,
    sizeof(struct dp_device),
    {{.at = offsetof(struct dp_device, id), .max = DP_ID_MAX},
     {.at = offsetof(struct dp_device, health)}}};

const struct proto_type dp_devices_type = {
    &dp__device_list__descriptor,
    "ListAndWatchResponse",
    sizeof(struct dp_devices),
    {{.at = offsetof(struct dp_devices, items), .type = &device_type}}};

const struct proto_type dp_ids_type = {
    &dp__ids__descriptor,
    "PreStartContainerRequest",
    sizeof(struct dp_ids),
    {{.at = offsetof(struct dp_ids, items), .max = DP_ID_MAX}}};

const struct proto_type dp_groups_type = {
    &dp__containers_ids__descriptor,
    "device ids",
    sizeof(struct dp_groups),
    {{.at = offsetof(struct dp_groups, items), .type = &dp_ids_type}}};

static const struct proto_type preference_type = {
    &dp__container_preference__descriptor,
    NULL,
    sizeof(struct dp_preference),
    {{.at = offsetof(struct dp_preference, available), .max = DP_ID_MAX},
     {.at = offsetof(struct dp_preference, must_include), .max = DP_ID_MAX},
     {.at = offsetof(struct dp_preference, size)}}};

const struct proto_type dp_preferences_type = {
    &dp__preferred_request__descriptor,
    "PreferredAllocationRequest",
    sizeof(struct dp_preferences),
    {{.at = offsetof(struct dp_preferences, items), .type = &preference_type}}};

static const struct proto_type entry_type = {
    &dp__entry__descriptor,
    NULL,
    sizeof(struct dp_entry),
    {{.at = offsetof(struct dp_entry, key)}, {.at = offsetof(struct dp_entry, value)}}};

static const struct proto_type mount_type = {
    &dp__mount__descriptor,
    NULL,
    sizeof(struct dp_mount),
    {{.at = offsetof(struct dp_mount, container_path)},
     {.at = offsetof(struct dp_mount, host_path)},
     {.at = offsetof(struct dp_mount, read_only)}}};

static const struct proto_type spec_type = {
    &dp__device_spec__descriptor,
    NULL,
    sizeof(struct dp_spec),
    {{.at = offsetof(struct dp_spec, container_path)},
     {.at = offsetof(struct dp_spec, host_path)},
     {.at = offsetof(struct dp_spec, permissions)}}};

static const struct proto_type cdi_type = {
    &dp__cdi_device__descriptor, NULL, sizeof(struct span), {{.at = 0}}};

static const struct proto_type allocation_type = {
    &dp__container_allocation__descriptor,
    NULL,
    sizeof(struct dp_allocation),
    {{.at = offsetof(struct dp_allocation, envs), .type = &entry_type},
     {.at = offsetof(struct dp_allocation, mounts), .type = &mount_type},
     {.at = offsetof(struct dp_allocation, specs), .type = &spec_type},
     {.at = offsetof(struct dp_allocation, annotations), .type = &entry_type},
     {.at = offsetof(struct dp_allocation, cdi), .type = &cdi_type}}};

const struct proto_type dp_allocations_type = {
    &dp__allocate_response__descriptor,
    "AllocateResponse",
    sizeof(struct dp_allocations),
    {{.at = offsetof(struct dp_allocations, items), .type = &allocation_type}}};
