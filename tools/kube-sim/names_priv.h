/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/* The syntax of Kubernetes names. */

bool sim_name_is_dns_label(struct span s);     /* up to 63 of [a-z0-9-] */
bool sim_name_is_dns_subdomain(struct span s); /* labels joined by dots, up to 253 */
bool sim_name_is_qualified(
    struct span s); /* [subdomain/]name: label and annotation keys */
bool sim_name_is_label_value(struct span s); /* up to 63, may be empty */

extern const char sim_name_dns_label_rule[];
extern const char sim_name_dns_subdomain_rule[];
extern const char sim_name_qualified_rule[];
extern const char sim_name_label_value_rule[];
