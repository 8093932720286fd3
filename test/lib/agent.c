/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/agent.h"

#include <stdarg.h>
#include <string.h>

#include "base/mem.h"

void agent_setup(const struct sim *s)
{
    sim_load(s, "[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\","
                "\"uid\":\"uid-of-n1\"}},{\"apiVersion\":\"v1\",\"kind\":\"Namespace\","
                "\"metadata\":{\"name\":\"nvidia-gpu-scheduler-node-lease\"}}]");
}

char *agent_file(void)
{
    return xasprintf("file:%s/cards.json", lib_dir);
}

char *agent_nvml(void)
{
    cleanup_free char *library = program_path("fake-nvml/libnvidia-ml.so.1");
    cleanup_free char *script = temp_path(lib_dir, "script");
    setenv("FAKE_NVML", script, 1);
    return xasprintf("nvml:%s", library);
}

void agent_start(struct agent *a, const struct sim *s, const char *source,
                 const char *const *more)
{
    cleanup_free char *kubeconfig = lib_kubeconfig(
        "agent-kubeconfig", s->authorization ? "https" : "http", s->api.port, "", "");
    lib_program(&a->program, "scv-agent",
                ARGV("--listen", "127.0.0.1", "--port", "0", "--node-name", "n1",
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
    unsigned status = peer_call(&s->api, "GET", SCV_PATH, NULL, &reply);
    if (status != 200)
        return NULL;
    json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    ck_assert_ptr_nonnull(j);
    return j;
}

json_int_t agent_number(const struct sim *s, const char *path)
{
    cleanup_json json_t *scv = agent_scv(s);
    const json_t *at = scv ? lib_at(scv, path) : NULL;
    return at ? json_integer_value(at) : -1;
}

bool agent_scv_is(const struct sim *s, const char *health, const char *message)
{
    cleanup_json json_t *scv = agent_scv(s);
    cleanup_buf struct buf is = {0};
    size_t i;
    json_t *card;
    buf_adds(&is, "");
    json_array_foreach(scv ? lib_at(scv, "status.cardList") : NULL, i, card)
        buf_printf(&is, "%s%s", i ? " " : "", lib_str(card, "health"));
    const char *text = lib_annotation(scv, "gpushare/message");
    return strcmp(is.p, health) == 0 && (*message ? strstr(text, message) != NULL : !*text);
}

char *agent_line(const struct peer *health, const char *path, const char *part)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = peer_call(health, "GET", path, NULL, &reply);
    struct span rest = buf_span(&reply);
    size_t n = strlen(part);
    ck_assert(status == 200 || status == 503);
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        if (line.n > n && memcmp(line.p, part, n) == 0 && line.p[n] == ':')
            return xmemdup0(line.p + n + 2, line.n - n - 2);
    }
    ck_abort_msg("no %s in %s", part, reply.p);
    return NULL;
}

bool agent_part_is(const struct agent *a, const char *part, const char *text)
{
    cleanup_free char *line = agent_line(&a->health, "/healthz", part);
    return strstr(line, text) != NULL;
}
