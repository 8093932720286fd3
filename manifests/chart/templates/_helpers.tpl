{{/* Shared parts of the templates. A part for one program takes
     (dict "root" $ "of" VALUES), where VALUES are the values of that program. */}}

{{/* kube-scheduler's policy, the Go programs and roles refer to these names and labels, so they
     are the same in every release and in manifests/*.yaml. */}}
{{- define "gpushare.labels" -}}
app: gpushare
component: {{ . }}
{{- end }}

{{/* Labels of every object, which change with the version of the chart. */}}
{{- define "gpushare.chartLabels" -}}
app.kubernetes.io/name: gpushare
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: gpushare
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels of pods: (list $ COMPONENT). Selectors use the first two, which never change. */}}
{{- define "gpushare.podLabels" -}}
{{- $component := index . 1 }}
{{- include "gpushare.labels" $component }}
app.kubernetes.io/name: gpushare
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ $component }}
app.kubernetes.io/part-of: gpushare
{{- end }}

{{/* Labels of workloads and Services: (list $ COMPONENT). */}}
{{- define "gpushare.objectLabels" -}}
{{- include "gpushare.labels" (index . 1) }}
app.kubernetes.io/component: {{ index . 1 }}
{{ include "gpushare.chartLabels" (index . 0) }}
{{- end }}

{{/* Spreads the replicas of a Deployment with these labels over nodes and zones, without keeping one pending. */}}
{{- define "gpushare.spread" -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "gpushare.labels" $ | nindent 6 }}
{{- end }}
{{- end }}

{{/* (dict "image" VALUES "registry" PREFIX "tag" DEFAULT): a digest precedes a tag. */}}
{{- define "gpushare.imageName" -}}
{{- $i := .image -}}
{{- with .registry }}{{ . }}/{{ end }}{{ $i.repository }}
{{- if $i.digest }}@{{ $i.digest }}{{ else }}:{{ $i.tag | default .tag }}{{ end }}
{{- end }}

{{- define "gpushare.image" -}}
{{- $v := .root.Values.image }}
{{- include "gpushare.imageName" (dict "image" .of.image "registry" $v.registry "tag" ($v.tag | default .root.Chart.AppVersion)) }}
{{- end }}

{{/* "true" on OpenShift, "" elsewhere. */}}
{{- define "gpushare.openshift" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}true{{ end }}
{{- end }}

{{/* "true", or "" in `helm template` and Argo CD, whose objects are the same: this decides refusals and
     hooks alone. */}}
{{- define "gpushare.seesCluster" -}}
{{- if lookup "v1" "Namespace" "" "kube-system" }}true{{ end }}
{{- end }}

{{/* "true", or "" where the chart has no kube-scheduler of its own. (0.1 had "" as the default.) */}}
{{- define "gpushare.ownScheduler" -}}
{{- if and .Values.extender.enabled (ne (toString .Values.scheduler.enabled) "false") }}true{{ end }}
{{- end }}

{{- define "gpushare.serviceType" -}}
{{- $e := .Values.extender }}
{{- if $e.hostNetwork }}ClusterIP
{{- else if $e.service.type }}{{ $e.service.type }}
{{- else if include "gpushare.ownScheduler" . }}ClusterIP
{{- else }}NodePort{{ end }}
{{- end }}

{{/* Node affinity of the extender. */}}
{{- define "gpushare.extenderNodes" -}}
{{- $on := .Values.extender.onControlPlane }}
requiredDuringSchedulingIgnoredDuringExecution:
  nodeSelectorTerms:
  {{- if ternary $on (not (include "gpushare.ownScheduler" .)) (kindIs "bool" $on) }}
  # Beside kube-scheduler. The second term is the name of the label up to Kubernetes 1.23: newer
  # API servers warn about it, but older clusters have no node with the first.
  - matchExpressions:
    - {key: node-role.kubernetes.io/control-plane, operator: Exists}
  - matchExpressions:
    - {key: node-role.kubernetes.io/master, operator: Exists}
  {{- else }}
  - matchExpressions:
    - {key: kubernetes.io/os, operator: In, values: [linux]}
  {{- end }}
{{- end }}

{{/* Where kube-scheduler is on the same node as the only replica: no certificate is needed. */}}
{{- define "gpushare.onLoopback" -}}
{{- if and .Values.extender.hostNetwork (eq (int .Values.extender.replicas) 1) }}true{{ end }}
{{- end }}

{{/* "https", or "" for plain HTTP. */}}
{{- define "gpushare.https" -}}
{{- $e := .Values.extender }}
{{- if and (not (include "gpushare.onLoopback" .)) (or (not $e.insecure) $e.tls.secretName) }}https{{ end }}
{{- end }}

{{/* Node affinity of the DaemonSets: the label of GPU Feature Discovery, unless an administrator
     leaves the node out, or an administrator's label. */}}
{{- define "gpushare.gpuNodes" -}}
requiredDuringSchedulingIgnoredDuringExecution:
  nodeSelectorTerms:
  - matchExpressions:
    - {key: nvidia.com/gpu.present, operator: In, values: ["true"]}
    - {key: gpushare, operator: NotIn, values: ["false"]}
  - matchExpressions:
    - {key: gpushare, operator: In, values: ["true"]}
{{- end }}

{{/* Security context of a DaemonSet's container. With OpenShift's default type of SELinux it could
     not use the sockets of the kubelet. Without NVIDIA's runtime only a privileged one may open
     device nodes of cards. */}}
{{- define "gpushare.nodeSecurity" -}}
{{- $security := deepCopy (.of.securityContext | default dict) }}
{{- if and (include "gpushare.openshift" .root) (not (hasKey $security "seLinuxOptions")) }}
{{- $_ := set $security "seLinuxOptions" (dict "type" "spc_t") }}
{{- end }}
{{- if eq .root.Values.gpuNodes.nvml "host" }}
{{- $security = merge (dict "privileged" true) (omit $security "allowPrivilegeEscalation" "capabilities" "seccompProfile") }}
{{- end }}
{{- toYaml $security }}
{{- end }}

{{/* RuntimeClass of a DaemonSet, or "". */}}
{{- define "gpushare.nodeRuntimeClass" -}}
{{- $set := .of.runtimeClassName | default .root.Values.gpuNodes.runtimeClassName | default "none" }}
{{- if ne $set "none" }}{{ $set }}{{ end }}
{{- end }}

{{/* Fields of the pod spec that both DaemonSets share. */}}
{{- define "gpushare.nodePod" -}}
{{- $all := .root.Values.gpuNodes -}}
{{- with .of.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- $selector := .of.nodeSelector | default $all.nodeSelector }}
{{- $affinity := deepCopy (.of.affinity | default dict) }}
{{- if not (or $selector (hasKey $affinity "nodeAffinity")) }}
{{- $_ := set $affinity "nodeAffinity" (include "gpushare.gpuNodes" . | fromYaml) }}
{{- end }}
{{- with $selector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations | default $all.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with $affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "gpushare.nodeRuntimeClass" . }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .of.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Environment variables of both DaemonSets: all cards, but only the driver libraries that NVML
     needs, none for compute. extraEnv overrides the NVIDIA variables. */}}
{{- define "gpushare.nodeEnv" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- {name: LOG_LEVEL, value: {{ .of.logLevel | default .root.Values.logLevel }}}
{{- $own := dict }}
{{- range .of.extraEnv }}{{ $_ := set $own .name true }}{{ end }}
{{- if not (hasKey $own "NVIDIA_VISIBLE_DEVICES") }}
- {name: NVIDIA_VISIBLE_DEVICES, value: {{ eq .root.Values.gpuNodes.nvml "host" | ternary "void" "all" }}}
{{- end }}
{{- if not (hasKey $own "NVIDIA_DRIVER_CAPABILITIES") }}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}
{{- end }}
{{- with .of.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A root of the driver that a mount of the host's /usr does not show; or nothing. */}}
{{- define "gpushare.ownDriverRoot" -}}
{{- regexMatch "^/(usr)?(/|$)" .Values.gpuNodes.driverRoot | ternary "" .Values.gpuNodes.driverRoot }}
{{- end }}

{{- define "gpushare.podMeta" -}}
labels:
  {{- include "gpushare.podLabels" (list .root .component) | nindent 2 }}
  {{- with .more }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .of.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .of.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "gpushare.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "gpushare.chartLabels" .root | nindent 4 }}
  {{- with .of.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "gpushare.configmapsRule" -}}
# The ConfigMaps unhealthy-gpu-<node> list excluded cards. There is one for each node, so their
# names cannot be listed here.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, watch]
{{- end }}

{{/* Binds the ClusterRole or Role "name" (kind; namespace for a Role) to the ServiceAccount of
     the same name. */}}
{{- define "gpushare.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "gpushare.chartLabels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* -- the chart's own kube-scheduler -- */}}

{{/* The version of the API server without what the vendor appended: v1.33.5-eks-113cf36 is v1.33.5. */}}
{{- define "gpushare.schedulerImage" -}}
{{- $i := .Values.scheduler.image }}
{{- $v := semver .Capabilities.KubeVersion.Version }}
{{- include "gpushare.imageName" (dict "image" $i "registry" $i.registry "tag" (printf "v%d.%d.%d" $v.Major $v.Minor $v.Patch)) }}
{{- end }}

{{/* "true" where the extender makes kube-scheduler restart for a new CA: it reads the Secret, and
     without the admission policy its right to patch the Deployment would be one to run any pod. */}}
{{- define "gpushare.restartsScheduler" -}}
{{- $e := .Values.extender }}
{{- if and (include "gpushare.ownScheduler" .) (include "gpushare.https" .) (not $e.insecure) (not $e.tls.secretName) .Values.admissionPolicies }}true{{ end }}
{{- end }}

{{- define "gpushare.schedulerConfig" -}}
{{- $e := .Values.extender }}
{{- $https := include "gpushare.https" . }}
{{- $host := printf "gpushare-schd-extender.%s.svc" .Release.Namespace }}
{{- $address := $e.service.clusterIP | default $host }}
{{- if contains ":" $address }}{{ $address = printf "[%s]" $address }}{{ end -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: gpushare-scheduler
  resourceNamespace: {{ .Release.Namespace }}
{{- with .Values.scheduler.percentageOfNodesToScore }}
percentageOfNodesToScore: {{ . }}
{{- end }}
profiles:
- schedulerName: gpushare-scheduler
extenders:
- urlPrefix: {{ ternary "https" "http" (ne $https "") }}://{{ $address }}:12345/gpushare-scheduler
  filterVerb: filter
  preemptVerb: preempt
  prioritizeVerb: prioritize
  weight: {{ ternary 21 3 $e.allPods }}
  bindVerb: bind
  {{- if $https }}
  enableHTTPS: true
  tlsConfig:
    caFile: /etc/kubernetes/gpushare/ca.crt
    certFile: /etc/kubernetes/gpushare/client.crt
    keyFile: /etc/kubernetes/gpushare/client.key
    serverName: {{ $e.tls.serverName | default $host }}
  {{- end }}
  httpTimeout: 30s
  nodeCacheCapable: true
  {{- if not $e.allPods }}
  managedResources:
  - name: aliyun.com/gpu-mem
    ignoredByScheduler: false
  - name: aliyun.com/gpu-count
    ignoredByScheduler: false
  - name: aliyun.com/gpu-core.percentage
    ignoredByScheduler: false
  {{- end }}
  ignorable: false
{{- end }}

{{/* -- what pods get that leave it empty -- */}}

{{/* What sets it: the API version of MutatingAdmissionPolicy (served by default from 1.36 on), or
     "webhook"; "" where there is nothing to set, or nothing that can. */}}
{{- define "gpushare.podDefaults" -}}
{{- $d := .Values.podDefaults }}
{{- $tls := .Values.extender.tls }}
{{- $version := .Capabilities.KubeVersion.Version }}
{{- $api := "" }}
{{- range list "v1beta1" "v1" }}
{{- $is := printf "admissionregistration.k8s.io/%s" . }}
{{- if $.Capabilities.APIVersions.Has (printf "%s/MutatingAdmissionPolicy" $is) }}{{ $api = $is }}{{ end }}
{{- end }}
{{- if semverCompare ">=1.36.0-0" $version }}{{ $api = "admissionregistration.k8s.io/v1" }}{{ end }}
{{- if not (or $d.runtimeClassName (and $d.schedulerName (include "gpushare.ownScheduler" .))) }}
{{- else if and $api (not $d.webhook) }}{{ $api }}
{{- else if and .Values.extender.enabled .Values.admissionPolicies (include "gpushare.https" .) (or $d.caBundle (not (or $tls.secretName .Values.extender.insecure))) (semverCompare ">=1.30.0-0" $version) }}webhook{{ end }}
{{- end }}

{{- define "gpushare.podDefaultsArgs" -}}
- --pod-scheduler={{ if and .Values.podDefaults.schedulerName (include "gpushare.ownScheduler" .) }}gpushare-scheduler{{ end }}
- --pod-runtime-class={{ .Values.podDefaults.runtimeClassName }}
{{- end }}

{{/* Which pods. */}}
{{- define "gpushare.podConditions" -}}
{{- $keys := "['aliyun.com/gpu-mem', 'aliyun.com/gpu-count', 'aliyun.com/gpu-core.percentage']" }}
{{- /* Of a container c. A variable of the policy would not be visible in matchConditions. */}}
{{- $asks := printf "has(c.resources) && ((has(c.resources.limits) && c.resources.limits.exists(k, k in %s)) || (has(c.resources.requests) && c.resources.requests.exists(k, k in %s)))" $keys $keys -}}
# Mirror pods, and others that no scheduler sees.
- name: names-no-node
  expression: >-
    !has(object.spec.nodeName) || object.spec.nodeName == ''
- name: requests-gpu-memory
  expression: >-
    object.spec.containers.exists(c, {{ $asks }}) ||
    (has(object.spec.initContainers) && object.spec.initContainers.exists(c, {{ $asks }}))
    {{- if .Values.extender.allPods }} ||
    (has(object.metadata.labels) && object.metadata.labels.exists(k, k in
    ['scv/number', 'scv/memory', 'scv/clock']))
    {{- end }}
{{- end }}
