/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kit/kit.h"
#include "wire/grpc.h"

/*
 * A device plugin that the test plays, for gpu-mem, towards the kubelet of the node: one
 * that was there before ours, or one that stands between the kubelet and ours.
 */

/* A call of the kubelet, which waits for its answer. */
struct standin_call {
    enum { STANDIN_PREFER, STANDIN_ALLOCATE } what;
    json_t *ids; /* PREFER: those that are free; ALLOCATE: those that it is about */
    int size;    /* PREFER: how many it wants */
    struct grpcd_call *call;
};

/* Serves and registers; all devices are healthy. `ids` is borrowed. */
void standin_start(json_t *ids);
void standin_stop(void);
/* Registers again: the kubelet was started anew. */
void standin_register(void);
/* The next call; each must get one of the answers. False: none came in 20 ms. */
bool standin_next(struct standin_call *c);
void standin_prefer(struct standin_call *c, json_t *ids);
void standin_allocate(struct standin_call *c, json_t *env);
void standin_refuse(struct standin_call *c, enum grpc_status status, const char *words);
