/* SPDX-License-Identifier: Apache-2.0 */

/* The driver's limits of memory as CDI devices. */

#include "node/limit_cdi.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/jwrite.h"
#include "base/log.h"
#include "base/mem.h"
#include "node/limit_dir.h"

#define PREFIX "gpushare.io-limit-"
#define SUFFIX ".json"

enum { CONTAINER_MAX = 63, FILE_MAX = 1 << 20 };

bool limit_cdi_is_name(struct span uid, struct span container)
{
    return limit_dir_is_uid(uid) && limit_dir_is_uid(container) &&
           container.n <= CONTAINER_MAX && uid.p[0] != '-' &&
           container.p[container.n - 1] != '-';
}

int limit_cdi_write(const char *dir, struct span uid,
                    const struct limit_cdi_container *containers, size_t n,
                    struct err *err)
{
    cleanup_free char *path = xasprintf("%s/" PREFIX "%.*s" SUFFIX, dir, SPAN_ARG(uid));
    cleanup_buf struct buf text = {0}, before = {0};
    struct jwrite w = {.out = &text};
    struct err ignored;
    jwrite_object(&w, NULL);
    jwrite_str(&w, "cdiVersion", SPAN("0.5.0"));
    jwrite_str(&w, "kind", SPAN(LIMIT_CDI_KIND));
    jwrite_array(&w, "devices");
    for (size_t i = 0; i < n; i++) {
        cleanup_free char *name =
            xasprintf("%.*s-%.*s", SPAN_ARG(uid), SPAN_ARG(containers[i].name));
        jwrite_object(&w, NULL);
        jwrite_str(&w, "name", span_of(name));
        jwrite_object(&w, "containerEdits");
        jwrite_array(&w, "env");
        if (containers[i].mib > 0) {
            cleanup_free char *limit =
                xasprintf("NVIDIA_GPU_MEMORY_LIMIT=%lld", (long long)containers[i].mib);
            jwrite_str(&w, NULL, span_of(limit));
            jwrite_str(&w, NULL, SPAN("NVIDIA_GPU_MEMORY_REQUEST=0"));
        } else { /* without any edit the runtime drops the device, and the file with it */
            jwrite_str(&w, NULL, SPAN("GPUSHARE_MEMORY_LIMIT=none"));
        }
        jwrite_array_end(&w);
        jwrite_object_end(&w);
        jwrite_object_end(&w);
    }
    jwrite_array_end(&w);
    jwrite_object_end(&w);
    buf_addc(&text, '\n');
    if (file_read(path, FILE_MAX, &before, &ignored) == 0 &&
        span_eq(buf_span(&before), buf_span(&text)))
        return 0;
    return file_write(path, buf_span(&text), err);
}

void limit_cdi_sweep(const char *dir, bool (*is_known)(void *ctx, const char *uid),
                     void *ctx)
{
    cleanup_folder DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char uid[NAME_MAX + 1] = "";
        int end = 0;
        sscanf(e->d_name, PREFIX "%[^.]" SUFFIX "%n", uid, &end);
        if (!end || e->d_name[end] || !limit_dir_is_uid(span_of(uid)) ||
            is_known(ctx, uid))
            continue;
        cleanup_free char *path = xasprintf("%s/%s", dir, e->d_name);
        if (unlink(path))
            log_warn("limit", "cannot remove the file of a pod that is gone; retrying",
                     LOG_S("file", path));
    }
}
