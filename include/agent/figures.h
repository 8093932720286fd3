/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "agent/machine.h"

/*
 * /metrics of scv-agent: what it counts, and what the machine knows of the cards. What
 * each figure means to an operator: docs/metrics.md.
 */

enum { FIGURES_CALLS = MACHINE_PATCH_LEASE + 1, FIGURES_CODES = ERR_INTERNAL + 1 };

/* Any thread may count. {0} is valid. */
struct figures {
    _Atomic uint64_t samples, failed_samples;
    _Atomic uint64_t calls[FIGURES_CALLS][FIGURES_CODES]; /* by machine_output_type */
};

/* Counts an input, as it goes to the machine. */
void figures_input(struct figures *f, const struct machine_input *in);
/* Counts the end of a call. */
void figures_call(struct figures *f, enum machine_output_type call, enum err_code code);

/* Appends the text. */
void figures_write(const struct figures *f, const struct machine *m,
                   struct machine_time now, struct buf *out);
