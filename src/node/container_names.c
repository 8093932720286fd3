/* SPDX-License-Identifier: Apache-2.0 */
#include "node/container_names.h"

#include <dirent.h>
#include <stdlib.h>

#include "base/mem.h"

enum { ID_MIN = 32 };

static bool is_id(struct span s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!(s.p[i] >= '0' && s.p[i] <= '9') && !(s.p[i] >= 'a' && s.p[i] <= 'f'))
            return false;
    return s.n >= ID_MIN;
}

bool container_names_parse(struct span link, struct usage_name *name)
{
    static const struct span log = {".log", 4};
    if (link.n <= log.n || memcmp(link.p + link.n - log.n, log.p, log.n))
        return false;
    link.n -= log.n;
    *name = (struct usage_name){.pod = span_cut(&link, '_')};
    name->ns = span_cut(&link, '_');
    const char *dash = link.n ? memrchr(link.p, '-', link.n) : NULL;
    if (!dash)
        return false;
    name->container = (struct span){link.p, (size_t)(dash - link.p)};
    name->container_id = (struct span){dash + 1, link.n - name->container.n - 1};
    return name->pod.n && name->ns.n && name->container.n && is_id(name->container_id) &&
           !memchr(link.p, '_', link.n);
}

static void closed(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

int container_names_read(const char *host_root, struct arena *a,
                         const struct usage_name **names, size_t *n, struct err *err)
{
    cleanup_free char *path = xasprintf("%s/" CONTAINER_NAMES_FOLDER, host_root);
    __attribute__((cleanup(closed))) DIR *dir = opendir(path);
    cleanup_free struct usage_name *list = NULL;
    size_t cap = 0;
    struct dirent *entry;
    *n = 0;
    if (!dir)
        return err_set(err, ERR_UNAVAILABLE, "%s: %m", path);
    while (*n < USAGE_MAX_IDS && (entry = readdir(dir))) {
        struct usage_name name;
        if (!container_names_parse(arena_copy(a, span_of(entry->d_name)), &name))
            continue;
        MEM_GROW(list, cap, *n + 1);
        list[(*n)++] = name;
    }
    struct usage_name *kept = arena_alloc(a, (*n + 1) * sizeof *kept);
    if (*n)
        memcpy(kept, list, *n * sizeof *kept);
    *names = kept;
    return 0;
}
