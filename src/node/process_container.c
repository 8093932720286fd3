/* SPDX-License-Identifier: Apache-2.0 */
#include "node/process_container.h"

enum { ID_MIN = 32 }; /* shortest container ID; no other cgroup has such a name */

static bool ends(struct span s, struct span suffix)
{
    return s.n >= suffix.n && !memcmp(s.p + s.n - suffix.n, suffix.p, suffix.n);
}

static struct span without(struct span s, size_t head, size_t tail)
{
    return (struct span){s.p + head, s.n - head - tail};
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* A UID as in the name of a cgroup; '_' is systemd's '-'. */
static bool copy_uid(struct span s, char out[PROCESS_CONTAINER_ID])
{
    if (!s.n || s.n >= PROCESS_CONTAINER_ID)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (!is_word(s.p[i]) && s.p[i] != '-' && s.p[i] != '_')
            return false;
        out[i] = s.p[i] == '_' ? '-' : s.p[i];
    }
    out[s.n] = '\0';
    return true;
}

static bool copy_id(struct span s, char out[PROCESS_CONTAINER_ID])
{
    if (s.n < ID_MIN || s.n >= PROCESS_CONTAINER_ID)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!is_hex(s.p[i]))
            return false;
    memcpy(out, s.p, s.n);
    out[s.n] = '\0';
    return true;
}

/* "<ID>", or "<runtime>-<ID>.scope". */
static bool read_container(struct span name, char id[PROCESS_CONTAINER_ID])
{
    if (!ends(name, SPAN(".scope")))
        return copy_id(name, id);
    name = without(name, 0, sizeof ".scope" - 1);
    for (size_t i = name.n; i > 0; i--)
        if (name.p[i - 1] == '-')
            return copy_id(without(name, i, 0), id);
    return false;
}

/* Is "kubepods" one of the words between the '-' of a slice's name? A kubelet with a
 * --cgroup-root has further words before it. */
static bool has_kubepods(struct span slice)
{
    while (slice.p) {
        if (span_eq(span_cut(&slice, '-'), SPAN("kubepods")))
            return true;
    }
    return false;
}

/* "kubepods-burstable-pod<UID>.slice", where the UID has no '-'. */
static bool read_pod_slice(struct span name, char uid[PROCESS_CONTAINER_ID])
{
    static const size_t pod = sizeof "-pod" - 1;
    if (!ends(name, SPAN(".slice")))
        return false;
    name = without(name, 0, sizeof ".slice" - 1);
    size_t at = name.n;
    while (at && name.p[at - 1] != '-')
        at--;
    if (!at || !span_starts(without(name, at - 1, 0), SPAN("-pod")))
        return false;
    return has_kubepods((struct span){name.p, at - 1}) &&
           copy_uid(without(name, at - 1 + pod, 0), uid);
}

static bool is_up(struct span name)
{
    return span_eq(name, SPAN(".."));
}

/* "pod<UID>" in kubepods, or in burstable or besteffort in kubepods. What is above the
 * root of the reader's namespace is "..". */
static bool read_pod_folder(const struct span last[3], char uid[PROCESS_CONTAINER_ID])
{
    struct span parent = last[1], grandparent = last[2];
    bool class =
        span_eq(parent, SPAN("burstable")) || span_eq(parent, SPAN("besteffort"));
    bool in = is_up(parent) || span_eq(parent, SPAN("kubepods")) ||
              (class && (is_up(grandparent) || span_eq(grandparent, SPAN("kubepods"))));
    return in && span_starts(last[0], SPAN("pod")) &&
           copy_uid(without(last[0], 3, 0), uid);
}

/* One path. */
static struct process_container read_path(struct span path)
{
    struct process_container c = {.kind = PROCESS_CONTAINER_NONE};
    struct span last[3] = {0}; /* this component, its parent, and the parent of that */
    if (!span_starts(path, SPAN("/"))) {
        c.kind = PROCESS_CONTAINER_UNCLEAR;
        return c;
    }
    if (ends(path, SPAN(" (deleted)"))) /* cgroup v2: the process outlived it */
        path = without(path, 0, sizeof " (deleted)" - 1);
    while (path.p) {
        last[2] = last[1];
        last[1] = last[0];
        last[0] = span_cut(&path, '/');
        if (c.kind == PROCESS_CONTAINER_FOUND) {
            read_container(last[0], c.id);
            return c;
        }
        struct span rest = last[0], slice = span_cut(&rest, ':');
        if (read_pod_slice(slice, c.pod_uid) || read_pod_folder(last, c.pod_uid))
            c.kind = PROCESS_CONTAINER_FOUND;
        if (c.kind == PROCESS_CONTAINER_FOUND && rest.p) {
            span_cut(&rest, ':'); /* the runtime */
            read_container(rest, c.id);
            return c;
        }
    }
    /* A container in the pod of the reader, whose name the path lacks. */
    if (is_up(last[1]) && last[2].p && !last[2].n && read_container(last[0], c.id))
        c = (struct process_container){.kind = PROCESS_CONTAINER_UNCLEAR};
    return c;
}

/* Joins the paths of two hierarchies of cgroup v1, which can lack each other's cgroups. */
static void join(struct process_container *c, const struct process_container *line)
{
    bool same = !strcmp(c->pod_uid, line->pod_uid) &&
                (!c->id[0] || !line->id[0] || !strcmp(c->id, line->id));
    if (line->kind == PROCESS_CONTAINER_NONE || c->kind == PROCESS_CONTAINER_UNCLEAR)
        return;
    if (c->kind == PROCESS_CONTAINER_NONE)
        *c = *line;
    else if (line->kind == PROCESS_CONTAINER_UNCLEAR || !same)
        *c = (struct process_container){.kind = PROCESS_CONTAINER_UNCLEAR};
    else if (!c->id[0])
        memcpy(c->id, line->id, sizeof c->id);
}

struct process_container process_container_of(struct span text)
{
    static const struct process_container unclear = {.kind = PROCESS_CONTAINER_UNCLEAR};
    struct process_container c = {.kind = PROCESS_CONTAINER_NONE};
    bool any = false;
    if (text.n > PROCESS_CONTAINER_TEXT || memchr(text.n ? text.p : "", 0, text.n))
        return unclear;
    while (text.p && text.n) { /* "<number>:<controllers>:<path>" */
        struct span rest = span_cut(&text, '\n'), number = span_cut(&rest, ':');
        int64_t hierarchy;
        if (!rest.p || !span_i64(number, &hierarchy) || hierarchy < 0)
            return unclear;
        span_cut(&rest, ':');
        if (!rest.p)
            return unclear;
        struct process_container line = read_path(rest);
        join(&c, &line);
        any = true;
    }
    return any ? c : unclear;
}
