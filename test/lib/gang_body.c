/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/gang_body.h"

#include "lib/unit.h"

char *gang_body(size_t i)
{
    static const char *const members[][2] = {
        {"", "\"schedulingGroup\":{\"podGroupName\":\"g\"},"},
        {"", "\"workloadRef\":{\"name\":\"g\",\"podGroup\":\"g\"},"},
        {",\"labels\":{\"scheduling.x-k8s.io/pod-group\":\"g\"}", ""},
        {",\"annotations\":{\"scheduling.volcano.sh/group-name\":\"g\"}", ""}};
    if (i >= ARRAY_LEN(members))
        return NULL;
    return lib_fmt(
        "{\"NodeNames\":[\"n1\"],\"Pod\":{\"metadata\":{\"name\":\"m\",\"namespace\":"
        "\"default\",\"uid\":\"uid-m%zu\"%s},\"spec\":{%s\"containers\":[{"
        "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"99\"}}}]}}}",
        i, members[i][0], members[i][1]);
}
