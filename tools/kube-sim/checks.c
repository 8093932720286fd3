/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"

/*
 * Validation of objects as the API server does it: the shape of each field, quantities, and the
 * rules of each kind.
 */

void sim_fill_namespace(json_t *object)
{
    json_t *meta = json_object_get(object, "metadata");
    json_t *spec = sim_jsonx_make(object, "spec"),
           *status = sim_jsonx_make(object, "status");
    sim_jsonx_set_str(sim_jsonx_make(meta, "labels"), "kubernetes.io/metadata.name",
                      sim_jsonx_str(meta, "name"));
    if (!json_object_get(spec, "finalizers"))
        json_object_set_new(spec, "finalizers", json_pack("[s]", "kubernetes"));
    sim_jsonx_default_str(status, "phase", "Active");
}

/* allocatable defaults to capacity. */
void sim_fill_node(json_t *object)
{
    json_t *status = sim_jsonx_make(object, "status");
    const json_t *capacity = json_object_get(status, "capacity");
    sim_jsonx_make(object, "spec");
    if (json_object_size(capacity) && !json_object_get(status, "allocatable"))
        json_object_set_new(status, "allocatable", json_deep_copy(capacity));
}

void sim_fill_event(json_t *object)
{
    sim_jsonx_make(object, "deprecatedSource");
    sim_jsonx_make(object, "regarding");
}

void sim_fill_lease(json_t *object)
{
    sim_jsonx_make(object, "spec");
}

void sim_fill_secret(json_t *object)
{
    if (!sim_jsonx_span(object, "type").n)
        json_object_set_new(object, "type", json_string("Opaque"));
}

/* An event about a cluster-scoped object is in the namespace "default". */
static void check_event_namespace(const json_t *object, struct faultlist *f)
{
    struct span about = sim_jsonx_span(object, "regarding.namespace");
    if (!about.n &&
        !span_eq(sim_jsonx_span(object, "metadata.namespace"), SPAN("default")))
        sim_fault_invalid(f, "involvedObject.namespace", about,
                          "does not match event.namespace");
}

static void demand(const json_t *object, const char *field, size_t max,
                   struct faultlist *f)
{
    struct span v = sim_jsonx_span(object, field);
    if (!v.n)
        sim_fault_required(f, field, "");
    else if (v.n > max)
        sim_fault_too_long(f, field, max);
}

static void check_event_source(const json_t *object, struct faultlist *f)
{
    demand(object, "reportingController", 253, f);
    struct span controller = sim_jsonx_span(object, "reportingController");
    if (controller.n && !sim_name_is_qualified(controller))
        sim_fault_invalid(f, "reportingController", controller, sim_name_qualified_rule);
    demand(object, "reportingInstance", 128, f);
    demand(object, "action", 128, f);
    demand(object, "reason", 128, f);
    if (sim_jsonx_span(object, "note").n > 1024)
        sim_fault_too_long(f, "message", 1024);
}

void sim_check_event(const json_t *object, const json_t *old, struct faultlist *f)
{
    static const char *const unset[][2] = {
        {"deprecatedFirstTimestamp", "firstTimestamp"},
        {"deprecatedLastTimestamp", "lastTimestamp"},
        {"deprecatedCount", "count"},
        {"deprecatedSource.component", "source"},
        {"deprecatedSource.host", "source"},
    };
    cleanup_buf struct buf why = {0};
    bool timed = sim_jsonx_at(object, "eventTime");
    if (old)
        return; /* the other fields are validated at creation and immutable */
    check_event_namespace(object, f);
    if (timed)
        check_event_source(object, f);
    else
        sim_fault_required(f, "eventTime", "");
    struct span type = sim_jsonx_span(object, "type");
    buf_printf(&why, "has invalid value: %.*s", SPAN_ARG(type));
    if (!span_eq(type, SPAN("Normal")) && !span_eq(type, SPAN("Warning")))
        sim_fault_invalid(f, "type", SPAN(""), why.p);
    for (size_t i = 0; i < ARRAY_LEN(unset); i++)
        if (sim_jsonx_at(object, unset[i][0]))
            sim_fault_invalid(f, unset[i][1], SPAN(""), "needs to be unset");
}

void sim_check_secret(const json_t *object, const json_t *old, struct faultlist *f)
{
    static const char *const tls[] = {"tls.crt", "tls.key"};
    json_t *data = sim_jsonx_at(object, "data");
    struct span type = sim_jsonx_span(object, "type");
    for (size_t i = 0; span_eq(type, SPAN("kubernetes.io/tls")) && i < ARRAY_LEN(tls);
         i++) {
        cleanup_free char *field = xasprintf("data[%s]", tls[i]);
        if (!json_object_get(data, tls[i]))
            sim_fault_required(f, field, "");
    }
    if (old && !span_eq(type, sim_jsonx_span(old, "type")))
        sim_fault_invalid(f, "type", type, "field is immutable");
}

/* A number with bounds in the schema. */
static void check_bounds(const json_t *at, const char *path, const char *member,
                         int64_t max, struct faultlist *f)
{
    cleanup_free char *field = xasprintf("%s.%s", path, member);
    int64_t v = sim_jsonx_int(at, member, 0);
    if (v < 0 || v > max)
        sim_fault(f, "FieldValueInvalid", field,
                  "Invalid value: %lld: %s in body should be %s than or equal to %lld",
                  (long long)v, field, v < 0 ? "greater" : "less",
                  v < 0 ? 0LL : (long long)max);
}

static void check_card(const json_t *card, size_t i, struct faultlist *f)
{
    static const char *const members[] = {"id",         "power",      "totalMemory",
                                          "freeMemory", "usedMemory", "clock",
                                          "core",       "bandwidth"};
    char path[48], id[56];
    snprintf(path, sizeof path, "status.cardList[%zu]", i);
    snprintf(id, sizeof id, "%s.id", path);
    if (!sim_jsonx_at(card, "id"))
        sim_fault_required(f, id, "");
    for (size_t k = 0; k < ARRAY_LEN(members); k++)
        check_bounds(card, path, members[k], INT64_MAX, f);
    check_bounds(card, path, "utilization", 100, f);
}

void sim_check_scv(const json_t *object, const json_t *old, struct faultlist *f)
{
    static const char *const members[] = {"cardNumber", "totalMemorySum",
                                          "freeMemorySum"};
    const json_t *status = sim_jsonx_at(object, "status");
    size_t i;
    json_t *card;
    (void)old;
    for (i = 0; i < ARRAY_LEN(members); i++)
        check_bounds(status, "status", members[i], INT64_MAX, f);
    json_array_foreach(sim_jsonx_at(object, "status.cardList"), i, card)
        check_card(card, i, f);
}

static const char meta[] = "metadata object\n"
                           "metadata.name string\n"
                           "metadata.generateName string\n"
                           "metadata.namespace string\n"
                           "metadata.uid string\n"
                           "metadata.resourceVersion string\n"
                           "metadata.creationTimestamp time\n"
                           "metadata.deletionTimestamp time\n"
                           "metadata.deletionGracePeriodSeconds int\n"
                           "metadata.labels texts\n"
                           "metadata.annotations texts\n"
                           "metadata.finalizers strings\n"
                           "metadata.ownerReferences objects\n"
                           "metadata.managedFields objects\n";

struct type {
    const char *name, *go, *schema;
    json_type json;
    const struct type *element;
    int (*check)(json_t *v, struct err *err);
};

static int refuse_time(struct span s, const char *layout, struct err *err)
{
    return err_set(err, ERR_INVALID, "parsing time \"%.*s\" as \"%s\": cannot parse",
                   (int)(s.n < 64 ? s.n : 64), s.p, layout);
}

static int check_time(json_t *v, struct err *err)
{
    struct span s = sim_jsonx_text(v);
    int64_t seconds;
    return clock_parse(s, &seconds) ? 0
                                    : refuse_time(s, "2006-01-02T15:04:05Z07:00", err);
}

/* RFC 3339 with exactly six decimals: Go's layout of MicroTime. */
static int check_micro(json_t *v, struct err *err)
{
    struct span s = sim_jsonx_text(v);
    int64_t seconds;
    const char *point = memchr(s.p, '.', s.n);
    if (clock_parse(s, &seconds) && point && s.n - (size_t)(point - s.p) > 7 &&
        strspn(point + 1, "0123456789") == 6)
        return 0;
    return refuse_time(s, "2006-01-02T15:04:05.000000Z07:00", err);
}

/* Normalizes one quantity. */
static int check_amount(json_t *map, const char *key, json_t *v, struct err *err)
{
    cleanup_buf struct buf text = {0};
    struct quantity q;
    if (json_is_string(v))
        buf_add_span(&text, sim_jsonx_text(v));
    else if (json_is_number(v))
        buf_printf(&text, "%.15g", json_number_value(v));
    if (!text.n || !sim_quantity_parse(buf_span(&text), &q))
        return err_set(err, ERR_INVALID,
                       "quantities must match the regular expression "
                       "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
    cleanup_buf struct buf best = {0};
    sim_quantity_format(q, &best);
    if (!json_is_string(v) || !span_eq(buf_span(&best), sim_jsonx_text(v)))
        json_object_set_new(map, key, json_stringn(best.p, best.n));
    return 0;
}

static int check_amounts(json_t *v, struct err *err)
{
    const char *key;
    json_t *amount;
    json_object_foreach(v, key, amount) if (check_amount(v, key, amount, err)) return -1;
    return 0;
}

static const struct type types[] = {
    {"object", "struct", "object", JSON_OBJECT, NULL, NULL},
    {"string", "string", "string", JSON_STRING, NULL, NULL},
    {"int", "int64", "integer", JSON_INTEGER, NULL, NULL},
    {"bool", "bool", "boolean", JSON_TRUE, NULL, NULL},
    {"objects", "[]struct", "array", JSON_ARRAY, &types[0], NULL},
    {"strings", "[]string", "array", JSON_ARRAY, &types[1], NULL},
    {"texts", "map[string]string", "object", JSON_OBJECT, &types[1], NULL},
    {"amounts", "v1.ResourceList", "object", JSON_OBJECT, NULL, check_amounts},
    {"time", "time.Time", "string", JSON_STRING, NULL, check_time},
    {"micro", "time.Time", "string", JSON_STRING, NULL, check_micro},
};

/* `path` is the row's, without its type. */
static int check_value(const struct type *type, struct span path, json_t *v,
                       struct err *err)
{
    size_t i;
    const char *key;
    json_t *item;
    if ((json_is_false(v) ? JSON_TRUE : json_typeof(v)) != type->json)
        return err_set(err, ERR_INVALID,
                       "json: cannot unmarshal %s into Go struct field %s%.*s of type %s",
                       sim_jsonx_type(v),
                       span_starts(path, SPAN("metadata.")) ? "ObjectMeta." : "",
                       SPAN_ARG(path), type->go);
    if (!type->element)
        return type->check ? type->check(v, err) : 0;
    json_array_foreach(v, i,
                       item) if (check_value(type->element, path, item, err)) return -1;
    json_object_foreach(v, key,
                        item) if (check_value(type->element, path, item, err)) return -1;
    return 0;
}

/* Follows the path from `at` on, into each element of an array. `n` bytes of fault->where
 * lead to it. */
static int follow(const struct type *type, struct span path, const char *rest, json_t *at,
                  struct shape_fault *fault, size_t n)
{
    char key[64];
    size_t len = strcspn(rest, ".[ ");
    snprintf(key, sizeof key, "%.*s", (int)len, rest);
    json_t *v = json_object_get(at, key);
    if (!v || json_is_null(v))
        return 0;
    n += (size_t)snprintf(fault->where + n, sizeof fault->where - n, "%s%s", n ? "." : "",
                          key);
    rest += len;
    if (*rest == '.')
        return follow(type, path, rest + 1, v, fault, n);
    if (*rest == ' ') {
        bool text = type->json == JSON_STRING && type->check && json_is_string(v);
        fault->given = text ? json_string_value(v) : sim_jsonx_type(v);
        fault->wanted = text ? "date-time" : type->schema;
        return check_value(type, path, v, &fault->err);
    }
    size_t i;
    json_t *item;
    json_array_foreach(v, i, item)
    {
        int index = snprintf(fault->where + n, sizeof fault->where - n, "[%zu]", i);
        if (follow(type, path, rest + 3, item, fault, n + (size_t)index))
            return -1;
    }
    return 0;
}

static int check(const char *shape, json_t *object, struct shape_fault *fault)
{
    struct span rows = span_of(shape);
    while (rows.n) {
        struct span name = span_cut(&rows, '\n'), path = span_cut(&name, ' ');
        const struct type *type = types;
        while (!span_eq(name, span_of(type->name)))
            type++;
        if (follow(type, path, path.p, object, fault, 0))
            return -1;
    }
    return 0;
}

int sim_shape_check(const char *shape, json_t *object, struct shape_fault *fault)
{
    return check(meta, object, fault) || check(shape, object, fault) ? -1 : 0;
}

__extension__ typedef __int128 wide;

static const wide NANO = 1000000000;

struct unit {
    const char *suffix;
    enum quantity_form form;
    int power; /* of 10, or of 1024 */
};

static const struct unit units[] = {
    {"n", QUANTITY_DECIMAL, -9}, {"u", QUANTITY_DECIMAL, -6}, {"m", QUANTITY_DECIMAL, -3},
    {"", QUANTITY_DECIMAL, 0},   {"k", QUANTITY_DECIMAL, 3},  {"M", QUANTITY_DECIMAL, 6},
    {"G", QUANTITY_DECIMAL, 9},  {"T", QUANTITY_DECIMAL, 12}, {"P", QUANTITY_DECIMAL, 15},
    {"E", QUANTITY_DECIMAL, 18}, {"Ki", QUANTITY_BINARY, 1},  {"Mi", QUANTITY_BINARY, 2},
    {"Gi", QUANTITY_BINARY, 3},  {"Ti", QUANTITY_BINARY, 4},  {"Pi", QUANTITY_BINARY, 5},
    {"Ei", QUANTITY_BINARY, 6},
};

static const struct unit *unit_of(enum quantity_form form, int power)
{
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (units[i].form == form && units[i].power == power)
            return &units[i];
    return NULL;
}

static bool parse_unit(struct span s, struct unit *unit)
{
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (span_eq(s, span_of(units[i].suffix))) {
            *unit = units[i];
            return true;
        }
    }
    int64_t power;
    if (s.n < 2 || (s.p[0] != 'e' && s.p[0] != 'E'))
        return false;
    struct span digits = {s.p + 1, s.n - 1};
    if (digits.p[0] == '+') {
        digits.p++;
        digits.n--;
    }
    if (!span_i64(digits, &power) || power < -1000 || power > 1000)
        return false;
    *unit = (struct unit){"", QUANTITY_EXPONENT, (int)power};
    return true;
}

/* The largest amount, as in Kubernetes: 2^63 - 1 whole units. */
static wide limit(void)
{
    return (wide)INT64_MAX * NANO;
}

/* v * base^power, rounded up when power is negative. */
static wide scale(wide v, int base, int power)
{
    for (; power > 0 && v; power--) {
        if (v > limit() / base)
            return limit();
        v *= base;
    }
    bool cut = false;
    for (; power < 0 && v; power++) {
        cut |= v % base != 0;
        v /= base;
    }
    return v + cut;
}

/* Reads "12.34" as nano and advances *s. False: there is no digit. */
static bool parse_number(struct span *s, wide *nano, int *more_digits)
{
    wide v = 0;
    size_t i = 0;
    int digits = 0, after = 0;
    bool point = false;
    for (; i < s->n; i++) {
        char c = s->p[i];
        if (c == '.' && !point) {
            point = true;
            continue;
        }
        if (c < '0' || c > '9')
            break;
        digits++;
        if (v <= limit()) { /* the amount is capped, so further digits do not matter */
            v = v * 10 + (c - '0');
            after += point;
        } else if (!point) {
            after--;
        }
    }
    *s = (struct span){s->p + i, s->n - i};
    *nano = v;
    *more_digits = after;
    return digits > 0;
}

bool sim_quantity_parse(struct span s, struct quantity *q)
{
    bool negative = s.n && s.p[0] == '-';
    if (s.n && (s.p[0] == '-' || s.p[0] == '+'))
        s = (struct span){s.p + 1, s.n - 1};
    wide v;
    int after;
    struct unit unit;
    if (s.n > 256 || !parse_number(&s, &v, &after) || !parse_unit(s, &unit))
        return false;
    if (unit.form == QUANTITY_BINARY) {
        v = scale(v, 1024, unit.power);
        v = scale(v, 10, 9 - after);
    } else {
        v = scale(v, 10, unit.power + 9 - after);
    }
    if (v > limit())
        v = limit();
    *q = (struct quantity){negative ? -v : v, unit.form};
    return true;
}

bool sim_quantity_is_whole(struct quantity q)
{
    return q.nano % NANO == 0;
}

/* Decimal; a value of more than 64 bits in two parts of 18 digits (limit() has 28). */
static void add_wide(struct buf *out, wide v)
{
    static const wide half = 1000000000000000000;
    if (v > INT64_MIN && v <= INT64_MAX) {
        buf_add_i64(out, (int64_t)v);
        return;
    }
    buf_add_i64(out, (int64_t)(v / half));
    wide rest = v % half;
    buf_printf(out, "%018lld", (long long)(rest < 0 ? -rest : rest));
}

static void add_decimal(struct buf *out, wide v, bool exponent)
{
    int power = -9;
    for (; v % 10 == 0; v /= 10)
        power++;
    for (; power % 3; power--)
        v *= 10;
    add_wide(out, v);
    if (!exponent)
        buf_adds(out, unit_of(QUANTITY_DECIMAL, power)->suffix);
    else if (power)
        buf_printf(out, "e%d", power);
}

void sim_quantity_format(struct quantity q, struct buf *out)
{
    wide v = q.nano, whole = q.nano / NANO;
    if (v == 0) {
        buf_addc(out, '0');
        return;
    }
    bool small = whole > -1024 && whole < 1024;
    if (q.form != QUANTITY_BINARY || small || !sim_quantity_is_whole(q)) {
        add_decimal(out, v, q.form == QUANTITY_EXPONENT);
        return;
    }
    int power = 0;
    for (; whole % 1024 == 0 && power < 6; whole /= 1024)
        power++;
    buf_add_i64(out, (int64_t)whole);
    if (power)
        buf_adds(out, unit_of(QUANTITY_BINARY, power)->suffix);
}
