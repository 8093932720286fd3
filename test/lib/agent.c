/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/agent.h"

#include <stdarg.h>

#include "lib/network.h"

void agent_setup(const struct sim *s)
{
    sim_load(s,
             "[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\","
             "\"uid\":\"uid-of-n1\"},\"status\":{\"nodeInfo\":{\"kubeletVersion\":"
             "\"v1.35.4\",\"containerRuntimeVersion\":\"containerd://2.1.4\"}}},"
             "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":"
             "\"nvidia-gpu-scheduler-node-lease\"}}]");
}

char *agent_file(void)
{
    return xasprintf("file:%s/cards.json", lib_dir);
}

char *agent_nvml(void)
{
    setenv("FAKE_NVML", lib_path("script"), 1);
    return lib_fmt("nvml:%s", lib_built("fake-nvml/libnvidia-ml.so.1"));
}

void agent_start(struct agent *a, const struct sim *s, const char *source,
                 const char *const *more)
{
    agent_start_at(a, sim_kubeconfig(s), source, more);
}

void agent_start_at(struct agent *a, const char *kubeconfig, const char *source,
                    const char *const *more)
{
    if (!source)
        source = lib_keep(agent_file(), free);
    lib_program(&a->program, "scv-agent",
                ARGV("--listen", network_loopback(), "--port", "0", "--node-name", "n1",
                     "--kubeconfig", kubeconfig, "--gpu-source", source),
                more);
    peer_init(&a->health, program_port(&a->program, "listening on "));
}

void agent_stop(struct agent *a)
{
    peer_fini(&a->health);
    program_stop(&a->program);
}

void agent_cards(const char *fmt, ...)
{
    cleanup_buf struct buf cards = {0}, text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&cards, fmt, ap);
    va_end(ap);
    buf_printf(&text, "{'driverVersion':'535.1','cudaVersion':'12.2','cards':[%s]}",
               cards.p);
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] == '\'')
            text.p[i] = '"';
    temp_write(lib_dir, "cards.json", text.p);
}

void agent_script(const char *text)
{
    temp_write(lib_dir, "script", text);
}

#define SCV_PATH "/apis/core.run-linux.com/v1/scvs/n1"

json_t *agent_scv(const struct sim *s)
{
    cleanup_buf struct buf reply = {0};
    if (peer_call(&s->api, "GET", SCV_PATH, NULL, &reply) != 200)
        return NULL;
    return lib_parse(reply.p, reply.n);
}

json_int_t agent_number(const struct sim *s, const char *path)
{
    const json_t *at = lib_at(agent_scv(s), path);
    return at ? json_integer_value(at) : -1;
}

bool agent_scv_is(const struct sim *s, const char *health, const char *message)
{
    const json_t *scv = agent_scv(s);
    cleanup_buf struct buf is = {0};
    size_t i;
    json_t *card;
    buf_adds(&is, "");
    json_array_foreach(lib_at(scv, "status.cardList"), i, card)
        buf_printf(&is, "%s%s", i ? " " : "", lib_str(card, "health"));
    const char *text = lib_annotation(scv, "gpushare/message");
    return strcmp(is.p, health) == 0 &&
           (*message ? strstr(text, message) != NULL : !*text);
}

char *agent_line(const struct peer *health, const char *path, const char *part)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = peer_call(health, "GET", path, NULL, &reply);
    ck_assert(status == 200 || status == 503);
    const char *mark = lib_fmt("\n%s: ", part), *text = lib_fmt("\n%s", reply.p);
    const char *at = strstr(text, mark);
    ck_assert_msg(at != NULL, "no %s in %s", part, reply.p);
    at += strlen(mark);
    return lib_fmt("%.*s", (int)strcspn(at, "\n"), at);
}

bool agent_part_is(const struct agent *a, const char *part, const char *text)
{
    return strstr(agent_line(&a->health, "/healthz", part), text) != NULL;
}
