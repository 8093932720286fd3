/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/gpu_priv.h"

/*
 * The part of NVML that we call, declared here, so that neither building nor starting
 * needs a header or library of NVIDIA.
 *
 * Source: nvml.h of the NVML API versions 11, 12 and 13 as
 * github.com/NVIDIA/go-nvml ships it (v0.11.1-0 to v0.13.4-1); the layouts below
 * are the same in all that have them. Sizes are asserted for x86-64 and arm64, which
 * agree.
 *
 * A function whose meaning changed got a new name with a version at its end; the old name
 * stays in the library. The macros of nvml.h hide that; dlsym sees it.
 */

/* nvmlReturn_t */
enum {
    NVML_OK = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_TIMEOUT = 10,
    NVML_FUNCTION_NOT_FOUND = 13,
    NVML_GPU_IS_LOST = 15,
    NVML_RESET_REQUIRED = 16,
    NVML_OPERATING_SYSTEM = 17,
    NVML_VERSION_MISMATCH = 18, /* of driver and library: NVML_ERROR_LIB_RM_... */
    NVML_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_UNKNOWN = 999,
};

/* Buffers: NVML_DEVICE_UUID_V2_BUFFER_SIZE, NVML_DEVICE_NAME_V2_BUFFER_SIZE (96 each),
 * NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE (80). */
enum { NVML_TEXT = 96, NVML_VERSION_TEXT = 80 };

enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };
enum { NVML_TEMPERATURE_GPU = 0 };
enum { NVML_EVENT_DOUBLE_BIT = 0x2, NVML_EVENT_XID = 0x8 };
enum { NVML_FI_RECOVERY_ACTION = 230 }; /* NVML_FI_DEV_GET_GPU_RECOVERY_ACTION */
enum { NVML_VALUE_UNSIGNED_INT = 1, NVML_VALUE_SIGNED_INT = 5 };

/* Behind each struct that a driver fills on our stack: room for what a later driver adds. An
 * array of a list has ITEM_ROOM instead (nvml.c). */
#define NVML_SPARE char spare[64]

struct nvml_memory { /* nvmlMemory_t: used includes the driver's reserve */
    unsigned long long total, free, used;
    NVML_SPARE;
};

/* nvmlMemory_v2_t: the first version with the reserve. Total is free + used + reserved.
 * (Comments of some nvml.h say that used includes the reserve. No tested driver does
 * that; gpu_set_memory handles both.) */
struct nvml_memory_v2 {
    unsigned version; /* NVML_MEMORY_V2 */
    unsigned long long total, reserved, free, used;
    NVML_SPARE;
};
/* NVML_STRUCT_VERSION: the size, and the version from bit 24 on. */
#define NVML_MEMORY_V2 ((unsigned)(offsetof(struct nvml_memory_v2, spare) | 2U << 24))

/* nvmlGpuFabricInfo_v2_t. Before driver 550 it had no version, and began with the cluster. */
struct nvml_fabric {
    unsigned version; /* NVML_FABRIC_V2 */
    unsigned char cluster[16];
    int status; /* an nvmlReturn_t, if the state is NVML_FABRIC_COMPLETED */
    unsigned clique;
    unsigned char state;
    unsigned health;
    NVML_SPARE;
};
#define NVML_FABRIC_V2 ((unsigned)(offsetof(struct nvml_fabric, spare) | 2U << 24))

struct nvml_pci { /* nvmlPciInfo_t */
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32]; /* "%08X:%02X:%02X.0" */
    NVML_SPARE;
};

/* nvmlGpuTopologyLevel_t: the closest common ancestor of two cards. */
enum {
    NVML_TOPOLOGY_SINGLE = 10,
    NVML_TOPOLOGY_MULTIPLE = 20,
    NVML_TOPOLOGY_HOSTBRIDGE = 30,
    NVML_TOPOLOGY_NODE = 40,
};
enum { NVML_LINKS = 36 };      /* more than NVML_NVLINK_MAX_LINKS of any version */
enum { NVML_LINK_SWITCH = 2 }; /* NVML_NVLINK_DEVICE_TYPE_SWITCH */
enum { NVML_AFFINITY_NODE = 0 };

struct nvml_utilization {
    unsigned gpu, memory;
    NVML_SPARE;
};

struct nvml_process_v1 {
    unsigned pid;
    unsigned long long used; /* all ones: unknown */
};
struct nvml_process_v2 { /* of the calls named _v2 and _v3 */
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

/* nvmlProcessUtilizationSample_t: one for each process that used the card in the last
 * sampling period of the driver, at most 1 s long. */
struct nvml_process_utilization {
    unsigned pid;
    unsigned long long at;                 /* microseconds since 1970 */
    unsigned sm, memory, encoder, decoder; /* percent */
};

struct nvml_event { /* nvmlEventData_t; nvmlEventSetWait fills all but the last two */
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
    NVML_SPARE;
};

struct nvml_field { /* nvmlFieldValue_t; `value` is a union of 8 bytes */
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, rc;
    union {
        unsigned u;
        unsigned long long ull;
    } value;
    NVML_SPARE; /* of one value */
};

struct nvml_attributes { /* nvmlDeviceAttributes_t: of an instance */
    unsigned multiprocessors, engines[5], gpu_slices, compute_slices;
    unsigned long long memory_mib;
    NVML_SPARE;
};

struct nvml_limits {    /* nvmlSetMemoryLimits_v1_t, as the next one since driver 615 */
    const char *cgroup; /* the path of its folder */
    unsigned long long soft, hard;
    NVML_SPARE;
};
struct nvml_limits_used { /* nvmlGetMemoryLimits_v1_t */
    const char *cgroup;
    unsigned long long soft, hard, used;
    NVML_SPARE;
};
#define NVML_NO_LIMIT 0xFFFFFFFFFFFFFFFF /* NVML_DEVICE_MEMORY_LIMIT_MAX */

_Static_assert(offsetof(struct nvml_limits, spare) == 24, "nvmlSetMemoryLimits_v1_t");
_Static_assert(offsetof(struct nvml_limits_used, spare) == 32,
               "nvmlGetMemoryLimits_v1_t");
_Static_assert(offsetof(struct nvml_attributes, spare) == 40, "nvmlDeviceAttributes_t");
_Static_assert(offsetof(struct nvml_memory, spare) == 24, "nvmlMemory_t");
_Static_assert(NVML_MEMORY_V2 == 0x02000028, "nvmlMemory_v2_t");
_Static_assert(NVML_FABRIC_V2 == 0x02000024, "nvmlGpuFabricInfo_v2_t");
_Static_assert(offsetof(struct nvml_pci, spare) == 68, "nvmlPciInfo_t");
_Static_assert(offsetof(struct nvml_pci, bus_id) == 36, "nvmlPciInfo_t");
_Static_assert(sizeof(struct nvml_process_v1) == 16, "nvmlProcessInfo_v1_t");
_Static_assert(sizeof(struct nvml_process_v2) == 24, "nvmlProcessInfo_v2_t");
_Static_assert(sizeof(struct nvml_process_utilization) == 32,
               "nvmlProcessUtilizationSample_t");
_Static_assert(offsetof(struct nvml_event, spare) == 32, "nvmlEventData_t");
_Static_assert(offsetof(struct nvml_field, spare) == 40, "nvmlFieldValue_t");

/* X(member, arguments, name, perhaps the name if that is absent); NEEDED: the library must have it.
 * Devices and event sets are opaque pointers; all functions return an nvmlReturn_t. Of the lists
 * of processes, the layout of _v2 never changed, and that of _v3 did. */
#define NVML_CALLS(X, NEEDED)                                                            \
    NEEDED(init, (void), "nvmlInit_v2")                                                  \
    NEEDED(shutdown, (void), "nvmlShutdown")                                             \
    X(driver_version, (char *, unsigned), "nvmlSystemGetDriverVersion")                  \
    X(cuda_version, (int *), "nvmlSystemGetCudaDriverVersion_v2")                        \
    NEEDED(count, (unsigned *), "nvmlDeviceGetCount_v2")                                 \
    NEEDED(by_index, (unsigned, void **), "nvmlDeviceGetHandleByIndex_v2")               \
    X(uuid, (void *, char *, unsigned), "nvmlDeviceGetUUID")                             \
    X(name, (void *, char *, unsigned), "nvmlDeviceGetName")                             \
    X(minor, (void *, unsigned *), "nvmlDeviceGetMinorNumber")                           \
    X(pci, (void *, struct nvml_pci *), "nvmlDeviceGetPciInfo_v3")                       \
    NEEDED(memory, (void *, struct nvml_memory *), "nvmlDeviceGetMemoryInfo")            \
    X(memory_v2, (void *, struct nvml_memory_v2 *), "nvmlDeviceGetMemoryInfo_v2")        \
    X(max_clock, (void *, int, unsigned *), "nvmlDeviceGetMaxClockInfo")                 \
    X(pcie_gen, (void *, unsigned *), "nvmlDeviceGetMaxPcieLinkGeneration")              \
    X(pcie_width, (void *, unsigned *), "nvmlDeviceGetMaxPcieLinkWidth")                 \
    X(power_limit, (void *, unsigned *), "nvmlDeviceGetPowerManagementLimit")            \
    X(utilization, (void *, struct nvml_utilization *), "nvmlDeviceGetUtilizationRates") \
    X(temperature, (void *, int, unsigned *), "nvmlDeviceGetTemperature")                \
    X(pages_pending, (void *, unsigned *), "nvmlDeviceGetRetiredPagesPendingStatus")     \
    X(remapped_rows, (void *, unsigned *, unsigned *, unsigned *, unsigned *),           \
      "nvmlDeviceGetRemappedRows")                                                       \
    X(fields, (void *, int, struct nvml_field *), "nvmlDeviceGetFieldValues")            \
    X(mig_mode, (void *, unsigned *, unsigned *), "nvmlDeviceGetMigMode")                \
    X(compute_mode, (void *, unsigned *), "nvmlDeviceGetComputeMode")                    \
    X(fabric_v, (void *, struct nvml_fabric *), "nvmlDeviceGetGpuFabricInfoV")           \
    X(fabric, (void *, unsigned char *), "nvmlDeviceGetGpuFabricInfo")                   \
    X(max_instances, (void *, unsigned *), "nvmlDeviceGetMaxMigDeviceCount")             \
    X(instance, (void *, unsigned, void **), "nvmlDeviceGetMigDeviceHandleByIndex")      \
    X(gpu_instance, (void *, unsigned *), "nvmlDeviceGetGpuInstanceId")                  \
    X(compute_instance, (void *, unsigned *), "nvmlDeviceGetComputeInstanceId")          \
    X(attributes, (void *, struct nvml_attributes *), "nvmlDeviceGetAttributes_v2")      \
    X(ancestor, (void *, void *, int *), "nvmlDeviceGetTopologyCommonAncestor")          \
    X(link_state, (void *, unsigned, int *), "nvmlDeviceGetNvLinkState")                 \
    X(link_type, (void *, unsigned, int *), "nvmlDeviceGetNvLinkRemoteDeviceType")       \
    X(link_remote, (void *, unsigned, struct nvml_pci *),                                \
      "nvmlDeviceGetNvLinkRemotePciInfo_v2")                                             \
    X(affinity, (void *, unsigned, unsigned long *, unsigned),                           \
      "nvmlDeviceGetMemoryAffinity")                                                     \
    X(compute, (void *, unsigned *, void *), "nvmlDeviceGetComputeRunningProcesses_v2",  \
      "nvmlDeviceGetComputeRunningProcesses_v3")                                         \
    X(graphics, (void *, unsigned *, void *),                                            \
      "nvmlDeviceGetGraphicsRunningProcesses_v2",                                        \
      "nvmlDeviceGetGraphicsRunningProcesses_v3")                                        \
    X(compute_v1, (void *, unsigned *, void *), "nvmlDeviceGetComputeRunningProcesses")  \
    X(graphics_v1, (void *, unsigned *, void *),                                         \
      "nvmlDeviceGetGraphicsRunningProcesses")                                           \
    X(mps, (void *, unsigned *, void *), "nvmlDeviceGetMPSComputeRunningProcesses_v2",   \
      "nvmlDeviceGetMPSComputeRunningProcesses_v3")                                      \
    X(mps_v1, (void *, unsigned *, void *), "nvmlDeviceGetMPSComputeRunningProcesses")   \
    X(process_utilization,                                                               \
      (void *, struct nvml_process_utilization *, unsigned *, unsigned long long),       \
      "nvmlDeviceGetProcessUtilization")                                                 \
    X(set_create, (void **), "nvmlEventSetCreate")                                       \
    X(set_free, (void *), "nvmlEventSetFree")                                            \
    X(set_wait, (void *, struct nvml_event *, unsigned), "nvmlEventSetWait_v2")          \
    X(event_types, (void *, unsigned long long *), "nvmlDeviceGetSupportedEventTypes")   \
    X(watch, (void *, unsigned long long, void *), "nvmlDeviceRegisterEvents")           \
    X(limits_set, (void *, struct nvml_limits *), "nvmlDeviceSetMemoryLimits_v1")        \
    X(limits_get, (void *, struct nvml_limits_used *), "nvmlDeviceGetMemoryLimits_v1")

#define NVML_MEMBER(member, args, ...) int(*member) args;
struct nvml_calls {
    NVML_CALLS(NVML_MEMBER, NVML_MEMBER)
    const char *(*error_string)(int); /* also before nvmlInit; never NULL */
};
#undef NVML_MEMBER

/*
 * What connects the cards, read from NVML and kept: NVLinks are many calls, and change rarely
 * (links.c).
 */
struct nvml_links {
    size_t n;       /* cards */
    uint64_t cards; /* bit i: card i could be read then */
    int64_t due_ms; /* when they are read again */
    struct nvml_linked {
        char row[GPU_MAX_LINKED * 6]; /* as gpu_card.links */
        bool linked;                  /* an NVLink of it was up */
        int32_t numa, down;           /* -1: unknown */
    } card[GPU_MAX_LINKED];
};

/* Sets the links of the sample's cards, and reads them before if they are due, or if a card can
 * be read that could not. `devices`: of each card; NULL of one that cannot be read. `sysfs`: where
 * it is mounted. */
void nvml_links_set(struct nvml_links *links, const struct nvml_calls *call,
                    void *const *devices, struct gpu_sample *s, const char *sysfs);
