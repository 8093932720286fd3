/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/names_priv.h"

const char sim_name_dns_label_rule[] =
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or "
    "'-', and must start and end with an alphanumeric character (e.g. 'my-name',  or "
    "'123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const char sim_name_dns_subdomain_rule[] =
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    "'-' or '.', and must start and end with an alphanumeric character (e.g. "
    "'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const char sim_name_qualified_rule[] =
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
    "'123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const char sim_name_label_value_rule[] =
    "a valid label must be an empty string or consist of alphanumeric characters, '-', "
    "'_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  "
    "or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

enum { LABEL_MAX = 63, SUBDOMAIN_MAX = 253 };

static bool is_lower_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_alnum(char c)
{
    return is_lower_alnum(c) || (c >= 'A' && c <= 'Z');
}

bool sim_name_is_dns_label(struct span s)
{
    if (!s.n || s.n > LABEL_MAX || !is_lower_alnum(s.p[0]) ||
        !is_lower_alnum(s.p[s.n - 1]))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!is_lower_alnum(s.p[i]) && s.p[i] != '-')
            return false;
    return true;
}

bool sim_name_is_dns_subdomain(struct span s)
{
    if (!s.n || s.n > SUBDOMAIN_MAX)
        return false;
    bool edge = true; /* at the start of a part */
    for (size_t i = 0; i < s.n; i++) {
        bool last = i + 1 == s.n || s.p[i + 1] == '.';
        if (s.p[i] == '.') {
            if (edge)
                return false;
            edge = true;
            continue;
        }
        if (!is_lower_alnum(s.p[i]) && (s.p[i] != '-' || edge || last))
            return false;
        edge = false;
    }
    return !edge;
}

static bool is_plain_name(struct span s)
{
    if (!s.n || s.n > LABEL_MAX || !is_alnum(s.p[0]) || !is_alnum(s.p[s.n - 1]))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!is_alnum(s.p[i]) && !(s.p[i] == '-' || s.p[i] == '_' || s.p[i] == '.'))
            return false;
    return true;
}

bool sim_name_is_qualified(struct span s)
{
    struct span rest = s;
    struct span first = span_cut(&rest, '/');
    if (!rest.p)
        return is_plain_name(first);
    return sim_name_is_dns_subdomain(first) && is_plain_name(rest);
}

bool sim_name_is_label_value(struct span s)
{
    return s.n == 0 || is_plain_name(s);
}
