/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/object.h"

/*
 * An Scv object (scvs.core.run-linux.com/v1): the cards of one node, as the sniffer on it
 * reads them from NVML. Memory is MiB. The sniffer leaves out zeros, so a number that is
 * missing is 0.
 *
 * Fields of SCV: spec.updateInterval; status cardList, cardNumber, updateTime,
 * totalMemorySum, freeMemorySum; of a card id, health, model, power, totalMemory, clock,
 * freeMemory, core, bandwidth. The others are ours, and optional: one that is not there
 * is not known, and a 0 is written.
 */

enum {
    SCV_MAX_CARDS = 64,
    SCV_MAX_HELD = 8192,
};

/* What a card can do. 0: not known, because the sniffer leaves out zeros. */
struct scv_spec {
    int64_t power_w;   /* limit */
    int64_t clock_mhz; /* highest of the memory */
    int64_t core_mhz;  /* highest of the SMs */
    int64_t bandwidth; /* MB/s: scv_bandwidth */
};

/* What the ledger has no use for. */
struct scv_extra {
    int64_t utilization, temperature; /* percent, degrees Celsius */
    bool has_utilization, has_temperature;
};

struct scv_card {
    int32_t id; /* NVML index */
    bool healthy;
    bool has_used;
    int64_t total_mib, free_mib;
    int64_t used_mib; /* NVML memory v2: without what the driver reserves */
    struct span health, model, uuid, bus_id;
    struct scv_spec spec;
    struct scv_extra *extra; /* in the arena; NULL: not read, or nothing to write */
};

/* An item of status.podList: a container that holds units or cards. */
struct scv_held {
    struct span ns, pod, container;
    struct span resource; /* aliyun.com/gpu-mem or gpu-count, nvidia.com/... */
    int64_t units;        /* ids that the kubelet gave it */
    struct span *uuids;   /* of the cards, where the ids say it; in the arena */
    size_t n_uuids;
};

/* A card that a container of a pod got through a resource of ours. There are many, and
 * nobody shows them: hashes will do. */
struct scv_assignment {
    uint64_t pod, card; /* of scv_pod_hash and scv_card_hash */
};
uint64_t scv_pod_hash(struct span ns, struct span name);
uint64_t scv_card_hash(struct span uuid);

struct scv {
    struct object_meta meta;
    struct scv_card *cards; /* by rising id; in the arena */
    size_t n_cards;
    bool damaged; /* it had a fault: nothing in it can be relied on */
    bool has_update_time;
    int64_t update_time;   /* seconds since 1970: when the values were read */
    struct scv_held *held; /* scv_read: only what is held through nvidia.com/... */
    size_t n_held;
    struct scv_assignment *assignments; /* scv_read: the first SCV_MAX_HELD; scv_read_all: none */
    size_t n_assignments;

    /* scv_read leaves these alone. */
    int64_t update_interval_ms; /* 0: none */
    struct span driver_version, cuda_version;
    struct span owner_uid; /* for scv_write: of the Node; never read */
};

/* Reads an Scv. More than SCV_MAX_CARDS cards, an id that comes twice, and a size that is
 * negative or above 2^40 MiB are faults; so are a spec and a podList that cannot be true.
 */
void scv_read(struct jread *j, struct arena *a, struct scv *scv);
/* The same with all the rest; each card has an extra. That a number of the rest is
 * negative or above 2^40 is a fault, too. */
void scv_read_all(struct jread *j, struct arena *a, struct scv *scv);

/* What is in use on the card by anybody, without the driver's reserve where that is
 * known. */
int64_t scv_card_used(const struct scv_card *card);

/* Appends the value of "status" as SCV writes it, with the sums, and the cards in the
 * order in which they are (which has to be that of their ids). Members are in the order
 * of their names, so the same status is the same bytes. For one request that changes
 * nothing else: a JSON patch that adds /status. */
void scv_write_status(struct buf *out, const struct scv *scv);
/* Appends the whole object. With owner_uid the Node of its name owns it, and it goes with
 * it; without meta.version it is for a create. */
void scv_write(struct buf *out, const struct scv *scv);

/* Is it a resource of NVIDIA's own device plugin? It gives whole cards out by itself. */
bool scv_is_nvidia_resource(struct span resource);

/* What SCV calls bandwidth: MB/s of a PCIe link with so many lanes, by the rate of one
 * lane in that generation. SCV knows 1 to 4 and says 0 for the others; 5 and 6 are ours.
 */
int64_t scv_bandwidth(int64_t generation, int64_t lanes);
