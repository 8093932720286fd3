/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/jwrite.h"
#include "domain/links.h"
#include "domain/object.h"

/*
 * An Scv object (scvs.core.run-linux.com/v1): the cards of one node, as scv-agent reads
 * them from NVML. Memory is MiB. The SCV daemon omits zeros, so a missing number is 0.
 *
 * Fields of SCV: spec.updateInterval; status cardList, cardNumber, updateTime,
 * totalMemorySum, freeMemorySum; of a card id, health, model, power, totalMemory, clock,
 * freeMemory, core, bandwidth. The others are ours and optional: a missing one is
 * unknown, and zeros are written.
 */

enum {
    SCV_MAX_CARDS = 64,
    SCV_MAX_HELD = 8192,
    SCV_MAX_PROCESSES = 256, /* in processList */
};

/* Bits: what holds a container to the memory that it was promised. A node's are those that it can
 * use on each of its cards. */
enum {
    SCV_ISOLATION_DRIVER = 1,  /* the driver's limit of a cgroup */
    SCV_ISOLATION_LIBRARY = 2, /* libgpushare-limit.so */
    SCV_ISOLATION_MPS = 4,     /* NVIDIA's MPS daemon */
    SCV_ISOLATION_KNOWN = 8,   /* the object has the list, which may be empty */
};

/* What nvidia.com/gpu is on a node: a device of NVIDIA's plugin, or a word in the requests of
 * another system (domain/dialect.h), for which our device plugin serves it; UNSERVED: it does not
 * yet. OTHER: a system that this version does not know, or that cannot be read, so that nobody
 * knows what a request means there. */
#define SCV_UNSERVED "unserved"
enum scv_dialect {
    SCV_DIALECT_NONE,
    SCV_DIALECT_HAMI,
    SCV_DIALECT_UNSERVED,
    SCV_DIALECT_OTHER
};
enum scv_dialect scv_dialect_of(struct span word); /* empty: NONE */

/* Properties of a card. 0: unknown, because the SCV daemon omits zeros. Without padding:
 * compared byte by byte. */
struct scv_spec {
    int64_t power_w;      /* limit */
    int64_t clock_mhz;    /* highest of the memory */
    int64_t sm_clock_mhz; /* highest of the SMs */
    int64_t bandwidth;    /* MB/s: scv_bandwidth */
};

struct scv_card {
    int32_t id; /* NVML index */
    bool healthy;
    bool has_used;
    /* Every process on the card is in podList or processList with what it used when the
     * card's memory was read. */
    bool use_complete;
    int64_t total_mib, free_mib;
    int64_t reserved_mib; /* of the total: what the driver keeps; promises get the rest */
    int64_t used_mib;     /* NVML memory v2: without memory reserved by the driver */
    struct span health, model, uuid, bus_id;
    /* Of an instance of a card in MIG mode; empty: a full card. */
    struct span parent_uuid, mig_profile;
    /* A row of `nvidia-smi topo -m`: a word for each card of cardList; empty: unknown. */
    struct span links;
    struct scv_spec spec;
    int64_t numa_node;
    bool has_numa_node;
    /* Not set by scv_read: percent, degrees Celsius. */
    int64_t utilization, temperature;
    bool has_utilization, has_temperature;
    /* Not in the object: NVLinks. */
    int64_t links_down;
    bool has_links_down;
};

/* What a container uses of a card, beside what the kubelet gave it. -1: unknown. */
struct scv_use {
    struct span uuid;    /* of the card */
    struct span pod_uid; /* of the API; empty: unknown, as for a static pod */
    int64_t promised_mib, used_mib;
    int64_t unlimited_mib; /* of used_mib: without the limit of the pod; -1: none */
    int64_t sm_percent;
    uint8_t
        enforced_by; /* SCV_ISOLATION_: what holds it to its promise now; 0: unknown */
};

/* An item of status.podList: a container that holds units or cards. */
struct scv_held {
    struct span ns, pod, container;
    struct span resource; /* aliyun.com/gpu-mem or gpu-count, nvidia.com/... */
    int64_t units;        /* number of device ids */
    struct span *uuids;   /* of the cards, if the ids name them; in the arena */
    size_t n_uuids;
    struct scv_use *uses; /* by card; in the arena. scv_read: none */
    size_t n_uses;
    /* In a ledger: scv_hash of the UID of its pod, which has ended, so it has no cards; else 0. */
    uint64_t ended;
};

/* An item of status.processList: what uses a card without a device of the kubelet. It is a
 * process outside Kubernetes, or a container that podList lacks. */
struct scv_process {
    struct span uuid;
    struct span ns, pod, container; /* empty: unknown; of a process: empty */
    struct span pod_uid;            /* as in struct scv_use */
    int64_t pid;                    /* 0: a container */
    struct span name;               /* of the process */
    bool unmapped;                  /* it is not known where the process runs */
    int64_t unlimited_mib;          /* as in struct scv_use */
    int64_t used_mib, sm_percent;   /* -1: unknown */
};

/* Whose process it is that uses a card. */
enum scv_user {
    SCV_USER_NAME,    /* a container of the pod with this name */
    SCV_USER_UID,     /* a container of the pod with this UID */
    SCV_USER_PROCESS, /* a process outside Kubernetes, or unmapped */
};

/* What a container or a process uses of this card. */
struct scv_pod_use {
    uint64_t pod;  /* of scv_pod_hash, or scv_hash of a UID; of a process 0 */
    uint64_t card; /* scv_hash of its UUID */
    int64_t used_mib, sm_percent; /* -1: unknown */
    enum scv_user user;
    uint8_t enforced_by; /* as in struct scv_use */
};

/* A card that is assigned to a pod through our resources. Hashes, because there are many
 * and they are only compared. */
struct scv_assignment {
    uint64_t pod, card; /* scv_pod_hash; scv_hash of the UUID */
};
uint64_t scv_pod_hash(struct span ns, struct span name);
uint64_t scv_hash(struct span uid); /* a UID of a pod, a UUID of a card */

struct scv {
    struct object_meta meta;
    struct scv_card *cards; /* by rising id; in the arena */
    size_t n_cards;
    bool damaged; /* it had a fault: ignore its contents */
    bool
        links_unordered; /* cardList is not by rising id, so the rows are of other cards */
    bool has_update_time;
    int64_t update_time;   /* seconds since 1970: when the values were read */
    struct scv_held *held; /* scv_read: only what is held through nvidia.com/... */
    size_t n_held;
    /* scv_read: the first SCV_MAX_HELD, in a dialect with nvidia.com/gpu; scv_read_all: none */
    struct scv_assignment *assignments;
    size_t n_assignments;
    struct scv_pod_use *uses; /* of podList and processList; the first SCV_MAX_HELD */
    size_t n_uses;
    uint8_t isolation;   /* bits; 0: the Scv has no such list */
    struct span dialect; /* "hami", or a word of a later version; empty: none */

    /* Not set by scv_read. */
    struct scv_process *processes;
    size_t n_processes;         /* at most SCV_MAX_PROCESSES */
    int64_t update_interval_ms; /* 0: none */
    struct span driver_version, cuda_version;
    struct span owner_uid; /* for scv_write: of the Node; never read */
};

/* Reads an Scv. Faults: more than SCV_MAX_CARDS cards, a duplicate id, a size below 0 or
 * above 2^40 MiB, an impossible spec, podList or processList. */
void scv_read(struct jread *j, struct arena *a, struct scv *scv);
/* Like scv_read, with all fields. Their numbers must be in 0..2^40 too. */
void scv_read_all(struct jread *j, struct arena *a, struct scv *scv);

/* What connects the cards, as links_take; NULL: unknown, because a card has no row, or one with a
 * word that is none or with other than one word for each card. */
const struct links *scv_links(const struct scv *scv, struct list *pool);

/* Memory in use by all processes, without the driver's reserve if known. -1: unknown, as of
 * an Unhealthy card without usedMemory and freeMemory. A Healthy one without them is full:
 * the SCV daemon omits zeros. */
int64_t scv_card_used(const struct scv_card *card);

/* Appends the value of "status" in the format of SCV, with the sums. Cards must be ordered
 * by id. Members are sorted by name, so equal statuses are equal bytes. Use it in a JSON
 * patch that adds /status. */
void scv_write_status(struct buf *out, const struct scv *scv);
/* Appends the whole object. With owner_uid it is owned by the Node of its name, for garbage
 * collection; without meta.version it is for a create. */
void scv_write(struct buf *out, const struct scv *scv);

/* Appends the words of the bits as a member; nothing without SCV_ISOLATION_KNOWN. */
void scv_write_isolation(struct jwrite *w, const char *name, uint8_t bits);
/* Appends the words of the bits for people; "nothing" if there is none. */
void scv_isolation_add(struct buf *out, uint8_t bits, const char *between);

/* Is it a resource of NVIDIA's device plugin, which allocates whole cards? */
bool scv_is_nvidia_resource(struct span resource);

/* SCV's bandwidth: MB/s of a PCIe link, lanes times the rate of one lane in that
 * generation. SCV knows generations 1 to 4 and writes 0 for others; 5 and 6 are ours. */
int64_t scv_bandwidth(int64_t generation, int64_t lanes);
