/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/*
 * Resource quantities ("8", "500m", "2Gi", "1e3").
 *
 * An API server normalizes every quantity to its shortest exact form: "1000" becomes "1k",
 * and "1024Mi" becomes "1Gi".
 */

enum quantity_form { QUANTITY_DECIMAL, QUANTITY_BINARY, QUANTITY_EXPONENT };

struct quantity {
    __extension__ __int128 nano; /* in units of 1e-9; smaller parts are rounded up */
    enum quantity_form form;     /* notation of the input */
};

bool sim_quantity_parse(struct span s, struct quantity *q);
void sim_quantity_format(struct quantity q, struct buf *out);
bool sim_quantity_is_whole(struct quantity q);
/* <0, 0, >0 */
int sim_quantity_cmp(struct quantity a, struct quantity b);
