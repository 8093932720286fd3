/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/keys.h"
#include "lib/attempt.h"

/*
 * A tenant of a namespace tries to take, forge and change promises under the real API
 * server: with the ClusterRole edit, and with more rights than that. What our own accounts
 * and exempt accounts may write: test_writers.
 */

#define PODS     CLUSTER_PODS
#define DEFAULT  "/api/v1/namespaces/default"
#define APPS     "/apis/apps/v1/namespaces/default"
#define PROMISES "gpushare-promises"
#define FORGED                                                                           \
    "'ALIYUN_COM_GPU_MEM_IDX':'0',"                                                      \
    "'scheduler.framework.gpushare.allocation':'{}'"
#define REMOVE       "remove these annotations from the pod, or from the template"
#define LEAVE        "are its promise of GPU memory"
#define NODE_NAME    "remove spec.nodeName"
#define NOBODY       ",'schedulerName':'nobody'"
#define LIMIT(of, n) ",'resources':{'limits':{'" of "':'" n "'}}"

static const struct peer *editor, /* has the ClusterRole edit in namespace default */
    *owner; /* and every right on pods, their subresources and bindings */

/* RBAC follows what is written a moment later. */
static bool may_create_pods(const struct peer *as)
{
    cleanup_buf struct buf reply = {0};
    return attempt(as, "POST", PODS "?dryRun=All",
                   "{'metadata':{'name':'p'},'spec':{'containers':[{'name':'c','image':"
                   "'i'}]}}",
                   &reply) == 201;
}

static void begin(void)
{
    static const char roles[] =
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        "kind: RoleBinding\n"
        "metadata: {name: editors, namespace: default}\n"
        "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}\n"
        "subjects: [{kind: User, name: editor}, {kind: User, name: owner}]\n"
        "---\n"
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        "kind: Role\n"
        "metadata: {name: owner, namespace: default}\n"
        "rules: [{apiGroups: ['', apps], resources: ['*'], verbs: ['*']}]\n"
        "---\n"
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        "kind: RoleBinding\n"
        "metadata: {name: owners, namespace: default}\n"
        "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: owner}\n"
        "subjects: [{kind: User, name: owner}]\n";
    temp_write(lib_dir, "roles.yaml", roles);
    cluster_kubectl("apply", "-f", lib_path("roles.yaml"));
    editor = attempt_user("editor", "/CN=editor");
    owner = attempt_user("owner", "/CN=owner");
    attempt_wait_policies();
    lib_wait(may_create_pods(editor) && may_create_pods(owner));
}

/* The body of a pod. `meta` and `spec`: further members, each preceded by a comma. */
static char *pod(const char *name, const char *meta, const char *spec,
                 const char *container)
{
    return lib_fmt("{'apiVersion':'v1','kind':'Pod','metadata':{'name':'%s'%s},"
                   "'spec':{'containers':[{'name':'c','image':'i'%s}]%s}}",
                   name, meta, container, spec);
}

static void denied_pod(const char *words, const char *meta, const char *spec,
                       const char *container)
{
    attempt_denied(editor, PROMISES, words, "POST", PODS,
                   pod("p", meta, spec, container));
}

static void accepted_pod(const char *name, const char *meta, const char *spec,
                         const char *container)
{
    attempt_accepted(editor, "POST", PODS, pod(name, meta, spec, container));
}

/* -- (a), (b): forging a promise at creation -- */

static const char *const promise_keys[] = {
    KEY_MEM_IDX,    KEY_MEM_DEV,   KEY_MEM_POD,     KEY_MEM_ASSIGNED, KEY_MEM_ASSUME_TIME,
    KEY_ALLOCATION, KEY_CARD_UUID, KEY_CARD_MEMORY, KEY_MEMORY_UNIT};

TEST(a_new_pod_with_a_promise_is_denied)
{
    begin();
    cluster_add_node("n1", "", CARDS(16384));
    /* The case (a) of a pod without a limit, with nodeName and without. */
    denied_pod(REMOVE, ",'annotations':{" FORGED "}", ",'nodeName':'n1'", "");
    denied_pod(REMOVE, ",'annotations':{" FORGED "}", "", "");
    /* The case (b): one unit, and a claim of 999999. */
    denied_pod(REMOVE,
               ",'annotations':{'ALIYUN_COM_GPU_MEM_IDX':'0',"
               "'ALIYUN_COM_GPU_MEM_POD':'999999'}",
               "", LIMIT("aliyun.com/gpu-mem", "1"));
    array_items(p, promise_keys) {
        denied_pod(*p, lib_fmt(",'annotations':{'a':'b','%s':''}", *p), "", "");
    }
    attempt_denied(editor, PROMISES, REMOVE, "POST", PODS,
                   pod("", ",'generateName':'p-','annotations':{" FORGED "}", "", ""));
    const char *applied = pod("p", ",'annotations':{" FORGED "}", "", "");
    attempt_denied(editor, PROMISES, REMOVE, "APPLY",
                   PODS "/p?fieldManager=tenant&force=true", applied);
    attempt_denied(owner, PROMISES, REMOVE, "POST", PODS, applied);
    /* A fake owner and a fake mirror pod. */
    denied_pod(REMOVE,
               ",'annotations':{" FORGED "},'ownerReferences':[{'apiVersion':'apps/v1',"
               "'kind':'DaemonSet','name':'gpushare-device-plugin-ds','uid':'1',"
               "'controller':true}]",
               ",'nodeName':'n1'", "");
    denied_pod(REMOVE, ",'annotations':{'kubernetes.io/config.mirror':'x'," FORGED "}",
               ",'nodeName':'n1'", "");
    /* Keys that differ only by case are not ours: accepted, and without effect. */
    accepted_pod("cases",
                 ",'annotations':{'aliyun_com_gpu_mem_idx':'0','Gpushare/card-uuid':"
                 "'GPU-n1-0'},'labels':{'ALIYUN_COM_GPU_MEM_IDX':'0'}",
                 ",'nodeName':'n1'", "");
    cluster_wait_running("cases");
    cluster_agrees();
    ck_assert_int_eq(extender_promised(&cluster.extender, "n1"), 0);
}

static const char owned[] =
    "{'metadata':{'name':'t'},'spec':{'selector':{'matchLabels':{'t':'t'}},'template':"
    "{'metadata':{'labels':{'t':'t'}%s},'spec':{'containers':[{'name':'c','image':'i'%s}]"
    "%s}}}}";

/* -- the driver's limit -- */

TEST(a_container_that_names_its_own_limit_is_denied)
{
#define ENV(name) ",'env':[{'name':'A','value':'b'},{'name':'" name "','value':'1'}]"
#define OWN_LIMIT "remove the variables NVIDIA_GPU_MEMORY_ from the containers "
#define MEM       LIMIT("aliyun.com/gpu-mem", "1")
    static const char *const names[] = {ENV("NVIDIA_GPU_MEMORY_LIMIT"),
                                        ENV("NVIDIA_GPU_MEMORY_REQUEST")};
    begin();
    array_items(env, names) {
        const char *other =
            lib_fmt(",'initContainers':[{'name':'i','image':'i'%s%s}]", *env, MEM);
        denied_pod(OWN_LIMIT "c: ", "", "", lib_fmt("%s" MEM, *env));
        denied_pod(OWN_LIMIT "c: ", "", "",
                   lib_fmt("%s" LIMIT("aliyun.com/gpu-count", "1"), *env));
        denied_pod(OWN_LIMIT "c: ", "", "",
                   lib_fmt("%s" LIMIT("aliyun.com/gpu-share", "1"), *env));
        denied_pod(OWN_LIMIT "i: ", "", other, "");
        denied_pod(OWN_LIMIT "c, i: ", "", other, lib_fmt("%s" MEM, *env));
    }
    char *template = lib_fmt(owned, "", ENV("NVIDIA_GPU_MEMORY_LIMIT") MEM, "");
    attempt_accepted(editor, "POST", APPS "/deployments", template);
    lib_wait(cluster_events("involvedObject.kind=ReplicaSet", OWN_LIMIT));
    cluster_delete(APPS "/deployments/t");
    /* Whoever asks for nothing of ours, and names that only begin alike. */
    accepted_pod("p1", "", NOBODY, ENV("NVIDIA_GPU_MEMORY_LIMIT"));
    accepted_pod("p2", "", NOBODY, ENV("NVIDIA_GPU_MEMORY") MEM);
    accepted_pod("p3", "", NOBODY, ENV("NVIDIA_VISIBLE_DEVICES") MEM);
}

/* The pods of controllers: the message is in the events of their owner. */
TEST(a_template_with_a_promise_gets_no_pods)
{
    begin();
    cluster_add_node("n1", "", CARDS(16384));
    char *forged = lib_fmt(owned, ",'annotations':{" FORGED "}", "", "");
    attempt_accepted(editor, "POST", APPS "/deployments", forged);
    lib_wait(cluster_events("involvedObject.kind=ReplicaSet", REMOVE));
    attempt_accepted(editor, "POST", APPS "/daemonsets", forged);
    lib_wait(cluster_events("involvedObject.kind=DaemonSet", REMOVE));
    cluster_delete(APPS "/daemonsets/t");
    /* A DaemonSet whose template names the node bypasses kube-scheduler. */
    attempt_accepted(
        editor, "POST", APPS "/daemonsets",
        lib_fmt(owned, "", LIMIT("aliyun.com/gpu-mem", "2"), ",'nodeName':'n1'"));
    lib_wait(cluster_events("involvedObject.kind=DaemonSet", NODE_NAME));
    cluster_delete(APPS "/daemonsets/t");
    ck_assert_uint_eq(json_array_size(cluster_list(PODS)), 0);
    cluster_agrees();
}

TEST(daemonsets_and_deployments_get_their_cards)
{
    begin();
    cluster_add_node("n1", "", CARDS(16384));
    cluster_add_node("n2", "", CARDS(16384));
    char *body = lib_fmt(owned, "", LIMIT("aliyun.com/gpu-mem", "3"), "");
    attempt_accepted(editor, "POST", APPS "/daemonsets", body);
    attempt_accepted(editor, "POST", APPS "/deployments", body);
    lib_wait(extender_promised(&cluster.extender, "n1") +
                     extender_promised(&cluster.extender, "n2") ==
                 9 &&
             extender_promised(&cluster.extender, "n1") >= 3 &&
             extender_promised(&cluster.extender, "n2") >= 3);
    cluster_agrees();
    /* The garbage collector updates the orphans; an eviction deletes a bound pod. */
    cluster_kubectl("-n", "default", "delete", "daemonset", "t", "--cascade=orphan");
    const char *name = lib_str(cluster_list(PODS), "0.metadata.name");
    attempt_accepted(
        editor, "POST", lib_fmt(PODS "/%s/eviction", name),
        lib_fmt("{'apiVersion':'policy/v1','kind':'Eviction','metadata':{'name':'%s'},"
                "'deleteOptions':{'gracePeriodSeconds':0}}",
                name));
    cluster_agrees();
}

/* -- (c): editing a promise -- */

static char *notes_of(const char *name)
{
    return lib_text(cluster_pod(name), "metadata.annotations");
}

static void restart_extender(void)
{
    cluster_stop("gpushare-extender", "TERM");
    cluster_start("gpushare-extender");
    extender_wait_answers(&cluster.extender);
}

/* Each way to write the metadata of a pod. */
static void edit_in_every_way(const struct peer *as)
{
    static const struct {
        const char *how, *to, *body;
    } edits[] = {
        {"MERGE", "", "{'metadata':{'annotations':{'ALIYUN_COM_GPU_MEM_IDX':'1'}}}"},
        {"MERGE", "", "{'metadata':{'annotations':{'ALIYUN_COM_GPU_MEM_IDX':null}}}"},
        {"MERGE", "", "{'metadata':{'annotations':null}}"},
        {"MERGE", "", "{'metadata':{'annotations':{'gpushare/card-memory':'1'}}}"},
        {"MERGE", "", "{'metadata':{'annotations':{'gpushare/card-uuid':'GPU-x'}}}"},
        {"JSON", "", "[{'op':'remove','path':'/metadata/annotations'}]"},
        {"JSON", "",
         "[{'op':'move','from':'/metadata/annotations/gpushare~1card-uuid','path':"
         "'/metadata/annotations/b'}]"},
        {"JSON", "",
         "[{'op':'replace','path':'/metadata/annotations/ALIYUN_COM_GPU_MEM_POD',"
         "'value':'1'}]"},
        {"STRATEGIC", "", "{'metadata':{'annotations':{'$patch':'replace','a':'b'}}}"},
        {"STRATEGIC", "", "{'metadata':{'$patch':'replace','name':'mine'}}"},
        {"APPLY", "?fieldManager=tenant&force=true",
         "{'apiVersion':'v1','kind':'Pod','metadata':{'name':'mine','annotations':{"
         "'ALIYUN_COM_GPU_MEM_IDX':'1'}}}"},
    };
    array_items(edit, edits) {
        attempt_denied(as, PROMISES, LEAVE, edit->how, lib_fmt(PODS "/mine%s", edit->to),
                       edit->body);
    }
}

/* PUT without the annotations, as kubectl replace sends a manifest. */
static void replace(const struct peer *as, const char *subresource)
{
    const json_t *j = cluster_pod("mine");
    json_object_del(lib_at(j, "metadata"), "annotations");
    attempt_denied(as, PROMISES, LEAVE, "PUT", lib_fmt(PODS "/mine%s", subresource),
                   lib_text(j, ""));
}

/* Subresources that ignore metadata may accept the request; then nothing changes. */
static void edit_by_subresource(const char *name, bool writes_metadata)
{
    static const char patch[] =
        "{'metadata':{'annotations':{'ALIYUN_COM_GPU_MEM_IDX':'1'}}}";
    char *path = lib_fmt(PODS "/mine/%s", name);
    const char *before = notes_of("mine");
    cleanup_buf struct buf reply = {0};
    if (writes_metadata)
        attempt_denied(owner, PROMISES, LEAVE, "MERGE", path, patch);
    else
        attempt(owner, "MERGE", path, patch, &reply);
    ck_assert_str_eq(notes_of("mine"), before);
}

TEST(the_promise_of_a_bound_pod_cannot_change)
{
    begin();
    cluster_add_node("n1", "", CARDS(16384, 16384));
    accepted_pod("mine", "", "", LIMIT("aliyun.com/gpu-mem", "12"));
    cluster_wait_running("mine");
    const char *before = notes_of("mine");
    edit_in_every_way(editor);
    edit_in_every_way(owner);
    replace(editor, "");
    replace(owner, "/status");
    edit_by_subresource("status", true);
    edit_by_subresource("ephemeralcontainers", false);
    edit_by_subresource("resize", false);
    /* Other edits are free. */
    attempt_accepted(editor, "MERGE", PODS "/mine",
                     "{'metadata':{'annotations':{'note':'x'},'labels':{'app':'x'}}}");
    attempt_accepted(editor, "MERGE", PODS "/mine",
                     "{'metadata':{'annotations':{'note':null},'labels':null}}");
    ck_assert_str_eq(notes_of("mine"), before);
    /* After a restart the ledger is the same, and no card is overcommitted. */
    restart_extender();
    lib_wait(extender_promised(&cluster.extender, "n1") == 12);
    accepted_pod("beside", "", "", LIMIT("aliyun.com/gpu-mem", "12"));
    cluster_wait_running("beside");
    accepted_pod("over", "", "", LIMIT("aliyun.com/gpu-mem", "8"));
    cluster_wait_refused("over", "on one card");
    cluster_agrees();
}

/* A pending pod gets no promise by an edit, and the bind then writes its own. */
TEST(a_pending_pod_gets_no_promise_by_an_edit)
{
    begin();
    accepted_pod("mine", "", NOBODY, "");
    attempt_denied(editor, PROMISES, LEAVE, "MERGE", PODS "/mine",
                   "{'metadata':{'annotations':{" FORGED "}}}");
    attempt_accepted(editor, "MERGE", PODS "/mine",
                     "{'metadata':{'labels':{'scv/memory':'1','aliyun.com/gpu-count':'1'}"
                     "}}");
}

/* -- labels of a bound pod -- */

/* Binds by the verb of the extender, because no scheduler asks it about labels alone. */
static void bind(const char *name, const char *node)
{
    const json_t *answer = peer_post(
        &cluster.extender.verbs, "/gpushare-scheduler/bind",
        lib_fmt("{\"PodName\":\"%s\",\"PodNamespace\":\"default\",\"PodUID\":\"%s\","
                "\"Node\":\"%s\"}",
                name, lib_str(cluster_pod(name), "metadata.uid"), node));
    ck_assert_at(answer, "Error", "");
}

TEST(the_labels_of_a_bound_pod_cannot_change)
{
    static const struct {
        const char *how, *body;
    } edits[] = {
        {"MERGE", "{'metadata':{'labels':{'scv/memory':'1'}}}"},
        {"MERGE", "{'metadata':{'labels':{'scv/memory':null}}}"},
        {"MERGE", "{'metadata':{'labels':null}}"},
        {"MERGE", "{'metadata':{'labels':{'scv/number':'2'}}}"},
        {"MERGE", "{'metadata':{'labels':{'scv/clock':'2'}}}"},
        {"MERGE", "{'metadata':{'labels':{'aliyun.com/gpu-count':'2'}}}"},
        {"MERGE", "{'metadata':{'annotations':{'aliyun.com/gpu-count':'2'}}}"},
        {"MERGE", "{'metadata':{'annotations':{'gpushare/memory':'1Mi'}}}"},
        {"JSON", "[{'op':'replace','path':'/metadata/labels','value':{}}]"},
        {"STRATEGIC", "{'metadata':{'labels':{'$patch':'replace','a':'b'}}}"},
    };
    begin();
    cluster_add_node("n1", "", CARDS(16384));
    lib_wait(extender_leads(&cluster.extender));
    accepted_pod("mine", ",'labels':{'scv/memory':'9000'}", NOBODY, "");
    bind("mine", "n1");
    cluster_wait_running("mine");
    array_items(edit, edits) {
        attempt_denied(editor, PROMISES, "cannot change once the pod is bound", edit->how,
                       PODS "/mine", edit->body);
        attempt_denied(owner, PROMISES, "cannot change once the pod is bound", edit->how,
                       PODS "/mine/status", edit->body);
    }
    attempt_accepted(editor, "MERGE", PODS "/mine",
                     "{'metadata':{'labels':{'app':'x','scv/priority':'5'}}}");
}

/* -- spec.nodeName -- */

TEST(a_pod_that_asks_for_memory_names_no_node)
{
    static const char fake_owner[] =
        ",'ownerReferences':[{'apiVersion':'apps/v1','kind':'DaemonSet','name':'d',"
        "'uid':'1','controller':true,'blockOwnerDeletion':true}]";
    begin();
    cluster_add_node("n1", "", CARDS(16384));
    denied_pod(NODE_NAME, "", ",'nodeName':'n1'", LIMIT("aliyun.com/gpu-mem", "1"));
    denied_pod(NODE_NAME, "", ",'nodeName':'n1'", LIMIT("aliyun.com/gpu-count", "1"));
    denied_pod(NODE_NAME, "",
               ",'nodeName':'n1','initContainers':[{'name':'d','image':'i'" LIMIT(
                   "aliyun.com/gpu-mem", "1") "}]",
               "");
    denied_pod(NODE_NAME, ",'labels':{'scv/memory':'1000'}", ",'nodeName':'n1'", "");
    denied_pod(NODE_NAME, ",'labels':{'scv/number':'1'}", ",'nodeName':'no-such-node'",
               "");
    denied_pod(NODE_NAME, fake_owner, ",'nodeName':'n1'",
               LIMIT("aliyun.com/gpu-mem", "1"));
    denied_pod(NODE_NAME,
               ",'annotations':{'kubernetes.io/config.mirror':'x','kubernetes.io/"
               "config.source':'file'}",
               ",'nodeName':'n1'", LIMIT("aliyun.com/gpu-mem", "1"));
    /* nodeName is written once, at creation or by a Binding. */
    cleanup_buf struct buf reply = {0};
    accepted_pod("mine", "", NOBODY, LIMIT("aliyun.com/gpu-mem", "1"));
    ck_assert_uint_eq(
        attempt(owner, "MERGE", PODS "/mine", "{'spec':{'nodeName':'n1'}}", &reply), 422);
    /* Pods that do not ask us may name their node. */
    accepted_pod("plain", "", ",'nodeName':'n1'", "");
    accepted_pod("nvidia", "", ",'nodeName':'n1'", LIMIT("nvidia.com/gpu", "1"));
    cluster_agrees();
    ck_assert_int_eq(extender_promised(&cluster.extender, "n1"), 0);
}

/* The kubelet creates mirror pods with the certificate of its node. */
TEST(a_kubelet_creates_its_mirror_pods)
{
    begin();
    cluster_add_node("n1", "", CARDS(16384));
    const char *uid = lib_str(peer_get(&cluster.api, "/api/v1/nodes/n1"), "metadata.uid");
    const struct peer *kubelet =
        attempt_user("kubelet", "/O=system:nodes/CN=system:node:n1");
    static const char form[] =
        ",'annotations':{'kubernetes.io/config.mirror':'x'%s},'ownerReferences':[{"
        "'apiVersion':'v1','kind':'Node','name':'n1','uid':'%s','controller':true}]";
    attempt_accepted(kubelet, "POST", PODS,
                     pod("s-n1", lib_fmt(form, "", uid), ",'nodeName':'n1'",
                         LIMIT("aliyun.com/gpu-mem", "1")));
    attempt_denied(kubelet, PROMISES, REMOVE, "POST", PODS,
                   pod("t-n1", lib_fmt(form, "," FORGED, uid), ",'nodeName':'n1'",
                       LIMIT("aliyun.com/gpu-mem", "1")));
    cluster_wait_running("s-n1");
}

/* -- Bindings -- */

static void denied_binding(const char *meta)
{
    static const char *const paths[] = {PODS "/mine/binding", DEFAULT "/bindings"};
    array_items(path, paths)
        attempt_denied(
            owner, "gpushare-bindings", "gpushare-extender", "POST", *path,
            lib_fmt("{'apiVersion':'v1','kind':'Binding','metadata':{'name':'mine'%s},"
                    "'target':{'apiVersion':'v1','kind':'Node','name':'n1'}}",
                    meta));
}

TEST(a_binding_of_another_client_writes_no_promise)
{
    begin();
    cluster_add_node("n1", "", CARDS(16384));
    accepted_pod("mine", "", NOBODY, "");
    array_items(p, promise_keys) {
        denied_binding(lib_fmt(",'annotations':{'%s':'0'}", *p));
    }
    denied_binding(",'annotations':{'aliyun.com/gpu-count':'1'}");
    denied_binding(",'annotations':{'gpushare/memory':'1Mi'}");
    denied_binding(",'labels':{'aliyun.com/gpu-count':'1'}");
    denied_binding(",'labels':{'scv/memory':'1000'}");
    /* The editor has no right to bind at all. */
    cleanup_buf struct buf reply = {0};
    static const char plain[] =
        "{'apiVersion':'v1','kind':'Binding','metadata':{'name':'mine','annotations':{"
        "'a':'b'}},'target':{'apiVersion':'v1','kind':'Node','name':'n1'}}";
    ck_assert_uint_eq(attempt(editor, "POST", PODS "/mine/binding", plain, &reply), 403);
    attempt_accepted(owner, "POST", PODS "/mine/binding", plain);
    cluster_wait_running("mine");
    cluster_agrees();
    ck_assert_int_eq(extender_promised(&cluster.extender, "n1"), 0);
}

/* -- HAMi's annotations -- */

#define HAMI "gpushare-hami-promises"
#define HAMI_KEYS                                                                        \
    "'hami.io/vgpu-node':'n1','hami.io/vgpu-devices-allocated':'GPU-n1-0,NVIDIA,9,0:;'"

static bool is_denied(const struct peer *as, const char *annotations)
{
    cleanup_buf struct buf reply = {0};
    return attempt(as, "POST", PODS "?dryRun=All",
                   pod("h", lib_fmt(",'annotations':{%s}", annotations), "", ""),
                   &reply) == 403;
}

/* Until the takeover is done, HAMi's accounts write them, and then nobody. */
TEST(only_hami_writes_its_promises)
{
    static const char example[] = "manifests/hami-policy.yaml.example";
    begin();
    const struct peer *hami = attempt_user(
        "hami", "/O=system:masters/CN=system:serviceaccount:kube-system:hami-scheduler");
    cluster_kubectl("apply", "-f", example);
    lib_wait(is_denied(editor, HAMI_KEYS) &&
             is_denied(editor, "'hami.io/vgpu-devices-allocated':''"));
    ck_assert(!is_denied(
        editor, "'hami.io/vgpu-time':'1','hami.io/gpu-scheduler-policy':'spread'"));
    attempt_denied(editor, HAMI, "which only HAMi writes", "POST", PODS,
                   pod("h", ",'annotations':{" HAMI_KEYS "}", "", ""));
    attempt_denied(owner, HAMI, "hami.io/vgpu-node", "POST", PODS,
                   pod("h", ",'annotations':{" HAMI_KEYS "}", "", ""));
    static const char limits[] = LIMIT("nvidia.com/gpumem", "1000");
    attempt_denied(editor, HAMI, "remove spec.nodeName", "POST", PODS,
                   pod("h", "", ",'nodeName':'n1'", limits));
    accepted_pod("h", "", NOBODY, limits);
    attempt_denied(editor, HAMI, "which only HAMi writes", "MERGE", PODS "/h",
                   "{'metadata':{'annotations':{" HAMI_KEYS "}}}");
    attempt_accepted(hami, "MERGE", PODS "/h",
                     "{'metadata':{'annotations':{" HAMI_KEYS "}}}");
    attempt_accepted(editor, "MERGE", PODS "/h",
                     "{'metadata':{'annotations':{'a':'b'}}}");
    attempt_denied(editor, HAMI, "hami.io/vgpu-node", "MERGE", PODS "/h",
                   "{'metadata':{'annotations':{'hami.io/vgpu-node':null}}}");
    attempt_denied(owner, HAMI, "hami.io/vgpu-devices-allocated", "MERGE",
                   PODS "/h/status",
                   "{'metadata':{'annotations':{'hami.io/vgpu-devices-allocated':'x'}}}");
    attempt_denied(
        owner, "gpushare-hami-bindings", "leave these annotations out of the Binding",
        "POST", PODS "/h/binding",
        "{'apiVersion':'v1','kind':'Binding','metadata':{'name':'h','annotations':"
        "{" HAMI_KEYS "}},'target':{'apiVersion':'v1','kind':'Node','name':'n1'}}");
    temp_write(
        lib_dir, "done.yaml",
        lib_swap(
            lib_swap(lib_file(example),
                     "      \"system:serviceaccount:kube-system:hami-scheduler\",\n", ""),
            "      \"system:serviceaccount:kube-system:hami-device-plugin\",\n", ""));
    cluster_kubectl("apply", "-f", lib_path("done.yaml"));
    lib_wait(is_denied(hami, HAMI_KEYS));
    attempt_denied(hami, HAMI, "which only HAMi writes", "MERGE", PODS "/h",
                   "{'metadata':{'annotations':{'hami.io/vgpu-node':'n2'}}}");
    cluster_kubectl("delete", "-f", example);
}

CLUSTER_MAIN(120)
