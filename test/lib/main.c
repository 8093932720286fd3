/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/unit.h"

/* Linked into programs that define no main function. */
UNIT_MAIN(60)
