/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The root of a driver container in the folder of the cell: device nodes with NVIDIA's
 * numbers, behind which there is no driver, and libraries, each of which is the fake NVML.
 */

#define DRIVER_VERSION   "535.129.03" /* that of node_write_cards */
#define DRIVER_LIBRARIES "/usr/lib/x86_64-linux-gnu"

/* Makes it unless an earlier test of the suite has. Returns its path, new. */
char *driver_make(void);
