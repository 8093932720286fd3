/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"

/*
 * What the gRPC server (wire/grpcd.h) and client (wire/grpcc.h) have in common: the
 * status codes. The numbers are those of the protocol.
 */

enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8, /* also what is too large */
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_DATA_LOSS = 15,
    GRPC_UNAUTHENTICATED = 16,
};

enum {
    GRPC_MESSAGE_MAX = 4 << 20, /* what Go's gRPC takes unless it is told otherwise */
    GRPC_PATH_MAX = 107,        /* bytes of the path of a unix socket, without its NUL */
};

/* "UNAVAILABLE"; "unknown status" for a number that is none. */
const char *grpc_status_name(enum grpc_status status);
/* The code that stands for a status. RESOURCE_EXHAUSTED is ERR_UNAVAILABLE: from a peer
 * it means that it is asked too often, mostly. */
enum err_code grpc_status_err(enum grpc_status status);
/* The other way round, for handlers that answer with an error. */
enum grpc_status grpc_status_of(enum err_code code);
