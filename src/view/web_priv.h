/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* A file of src/view/web, compiled in by scripts/embed. */
struct view_web_file {
    const char *path; /* "/page.css"; NULL ends the list */
    const char *type; /* Content-Type */
    const char *etag; /* with its quotes */
    const unsigned char *bytes;
    size_t n;
};

extern const struct view_web_file view_web_files[];
