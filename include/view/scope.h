/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

/*
 * Of which namespaces a client may see the pods: those in which it may list pods. A view
 * keeps the amounts of other pods and leaves out their names, namespaces and UIDs.
 * Immutable and reference-counted. NULL: everything is shown.
 */

struct view_scope;

/* New. The names are copied. */
struct view_scope *view_scope_new(const struct span *namespaces, size_t n);
struct view_scope *view_scope_ref(struct view_scope *s);
void view_scope_free(struct view_scope *s); /* releases one reference */
bool view_scope_shows(const struct view_scope *s, struct span ns);
bool view_scope_equal(const struct view_scope *a, const struct view_scope *b);
