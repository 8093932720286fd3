/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <string.h>

#include "base/mem.h"
#include "kube-sim/cases.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char **cases_files(size_t *n)
{
    char **files = NULL;
    size_t cap = 0;
    DIR *dir = opendir(CASES_DIR);
    struct dirent *e;
    *n = 0;
    while (dir && (e = readdir(dir))) {
        size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 5, ".json") != 0)
            continue;
        MEM_GROW(files, cap, *n + 1);
        files[(*n)++] = xasprintf(CASES_DIR "/%s", e->d_name);
    }
    if (dir)
        closedir(dir);
    if (*n)
        qsort(files, *n, sizeof *files, by_name);
    return files;
}

void cases_free(char **files, size_t n)
{
    while (n)
        free(files[--n]);
    free(files);
}

char *cases_name(const char *file)
{
    const char *base = strrchr(file, '/');
    char *name = xstrdup(base ? base + 1 : file);
    name[strlen(name) - strlen(".json")] = '\0';
    for (char *p = name; *p; p++)
        *p = *p == '_' ? '-' : *p;
    return name;
}
