/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

/*
 * Acts as NVIDIA's container runtime in its mode "legacy", the default runtime of nodes
 * with GPUs: a container whose environment has NVIDIA_VISIBLE_DEVICES gets the driver's
 * library, here the fake NVML with the cards of the node.
 *
 *   e2e-nvidia-runtime RUNC LIBRARY CARDS ARGUMENT...
 *
 * Runs RUNC, which it finds in PATH, with the arguments. Before `create` it adds LIBRARY and CARDS, the script of the
 * fake NVML, to the container of --bundle. A card that is not in CARDS is an error.
 */

enum { CONFIG_MAX = 4 << 20 };

#define VARIABLE "NVIDIA_VISIBLE_DEVICES="
#define SCRIPT   "/etc/fake-nvml"
/* The first library folder of Debian's loader. */
#ifdef __aarch64__
#define LIBRARIES "/usr/lib/aarch64-linux-gnu"
#else
#define LIBRARIES "/usr/lib/x86_64-linux-gnu"
#endif

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "e2e-nvidia-runtime: %s: %s\n", what, why);
    exit(1);
}

/* The value in the container's environment; NULL: no GPU is wanted. */
static const char *visible(const json_t *config)
{
    const json_t *env = json_object_get(json_object_get(config, "process"), "env"), *item;
    size_t i;
    json_array_foreach(env, i, item)
    {
        const char *text = json_string_value(item);
        if (!text || strncmp(text, VARIABLE, strlen(VARIABLE)) != 0)
            continue;
        text += strlen(VARIABLE);
        return *text && strcmp(text, "void") != 0 ? text : NULL;
    }
    return NULL;
}

static void check_cards(const char *list, const char *cards)
{
    cleanup_buf struct buf text = {0};
    struct err err = {0};
    if (file_read(cards, CONFIG_MAX, &text, &err))
        fail(cards, err.msg);
    struct span rest = span_of(list);
    while (rest.n && strcmp(list, "all") != 0 && strcmp(list, "none") != 0) {
        struct span card = span_cut(&rest, ',');
        cleanup_free char *mark = xasprintf("card uuid=%.*s;", SPAN_ARG(card));
        if (!strstr(text.p, mark))
            fail("unknown device", list);
    }
}

static void add_mount(json_t *config, const char *from, const char *to)
{
    json_array_append_new(json_object_get(config, "mounts"),
                          json_pack("{s:s, s:s, s:s, s:[s, s, s, s]}", "destination", to,
                                    "source", from, "type", "bind", "options", "bind",
                                    "ro", "nosuid", "nodev"));
}

static void change(const char *bundle, const char *library, const char *cards)
{
    cleanup_free char *path = xasprintf("%s/config.json", bundle);
    json_error_t error;
    json_t *config = json_load_file(path, 0, &error);
    if (!config)
        fail(path, error.text);
    const char *list = visible(config);
    if (list) {
        check_cards(list, cards);
        add_mount(config, library, LIBRARIES "/libnvidia-ml.so.1");
        add_mount(config, cards, SCRIPT);
        json_array_append_new(json_object_get(json_object_get(config, "process"), "env"),
                              json_string("FAKE_NVML=" SCRIPT));
        if (json_dump_file(config, path, JSON_COMPACT))
            fail(path, "cannot be written");
    }
    json_decref(config);
}

int main(int argc, char **argv)
{
    const char *bundle = NULL;
    bool create = false;
    if (argc < 4) {
        fprintf(stderr, "usage: %s RUNC LIBRARY CARDS ARGUMENT...\n", argv[0]);
        return 2;
    }
    for (int i = 4; i < argc; i++) {
        create |= strcmp(argv[i], "create") == 0;
        if (strcmp(argv[i], "--bundle") == 0 && i + 1 < argc)
            bundle = argv[i + 1];
    }
    if (create && bundle)
        change(bundle, argv[2], argv[3]);
    argv[3] = argv[1];
    execvp(argv[1], argv + 3);
    perror(argv[1]);
    return 1;
}
