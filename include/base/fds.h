/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Raises the soft limit of open descriptors to the hard one, at most to 65,536: no program
 * needs more. To be called once, before anything depends on the limit. */
void fds_raise_limit(void);
