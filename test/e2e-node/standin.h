/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/lib.h"
#include "wire/grpc.h"

/*
 * A stand-in device plugin for gpu-mem that the test drives, registered with the kubelet of
 * the node: an earlier plugin, or a proxy between the kubelet and our plugin.
 */

/* A pending call of the kubelet. */
struct standin_call {
    enum { STANDIN_PREFER, STANDIN_ALLOCATE } what;
    json_t *ids; /* PREFER: available ids; ALLOCATE: ids to allocate */
    int size;    /* PREFER: requested number */
    struct grpcd_call *call;
};

/* Serves and registers; all devices are healthy. `ids` is borrowed. */
void standin_start(json_t *ids);
void standin_stop(void);
/* Registers again after a restart of the kubelet. */
void standin_register(void);
/* Takes the next call, which must be answered. False: no call within 20 ms. */
bool standin_next(struct standin_call *c);
void standin_prefer(struct standin_call *c, json_t *ids);
void standin_allocate(struct standin_call *c, json_t *env);
void standin_refuse(struct standin_call *c, enum grpc_status status, const char *words);
