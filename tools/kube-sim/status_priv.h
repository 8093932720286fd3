/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"
#include "kube-sim/jsonx_priv.h"

/*
 * The Status object of error replies and successes without a body, and the validation
 * errors of an object (reason Invalid).
 */

struct status_about {
    const char *group; /* "" for core; may be NULL */
    const char *kind;  /* the resource ("pods"), or the kind, as Kubernetes has it */
    struct span name;
    const char *uid; /* or NULL */
    json_t *causes;  /* array or NULL; borrowed */
    int64_t retry_s; /* details.retryAfterSeconds, if > 0 */
};

/* Appends a Status object. `reason` may be NULL; `about` may be NULL. */
void sim_status_write(struct buf *out, unsigned code, const char *reason,
                      const char *message, const struct status_about *about);
/* The 504 of a real server's timeout handler, which writes a Status without kind as
 * text. */
void sim_status_write_timeout(struct buf *out);
#define SIM_STATUS_TIMEOUT_TYPE "text/plain; charset=utf-8"
void sim_status_write_success(struct buf *out, unsigned code,
                              const struct status_about *about);

/* The default reason of a code: "Conflict" for 409. */
const char *sim_status_reason(unsigned code);

/* Validation errors by field. {0} is empty. */
struct faultlist {
    json_t *causes; /* array of {reason, message, field} */
    struct buf text;
    size_t n;
};

void sim_faultlist_fini(struct faultlist *f);
#define cleanup_faultlist __attribute__((cleanup(sim_faultlist_fini)))

void sim_fault_invalid(struct faultlist *f, const char *field, struct span value,
                       const char *detail);
/* An invalid number. */
void sim_fault_number(struct faultlist *f, const char *field, int64_t value,
                      const char *detail);
/* A value of the wrong JSON type, with the message of a schema. */
void sim_fault_type(struct faultlist *f, const char *field, const char *given,
                    const char *wanted);
void sim_fault_required(struct faultlist *f, const char *field, const char *detail);
void sim_fault_forbidden(struct faultlist *f, const char *field, const char *detail);
void sim_fault_unsupported(struct faultlist *f, const char *field, struct span value,
                           const char *supported);
void sim_fault_duplicate(struct faultlist *f, const char *field, struct span value);
void sim_fault_too_long(struct faultlist *f, const char *field, int64_t limit);

/* The message of the Status with reason Invalid: `Pod "p" is invalid: ...`. */
void sim_faultlist_message(const struct faultlist *f, struct buf *out, const char *group,
                           const char *kind, struct span name);
