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
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: gpushare
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* Labels of pods: (list $ COMPONENT). Selectors use the first two, which never change. */}}
{{- define "gpushare.podLabels" -}}
{{- $component := index . 1 }}
{{- include "gpushare.labels" $component }}
app.kubernetes.io/name: gpushare
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
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

{{/* Where the kube-scheduler of a node finds the extender. */}}
{{- define "gpushare.address" -}}
{{- $s := .Values.extender.service }}
{{- if .Values.extender.hostNetwork }}127.0.0.1:12345
{{- else if eq (include "gpushare.serviceType" .) "NodePort" }}127.0.0.1:{{ $s.nodePort }}
{{- else if contains ":" ($s.clusterIP | default "") }}[{{ $s.clusterIP }}]:12345
{{- else }}{{ $s.clusterIP | default "CLUSTER-IP" }}:12345
{{- end }}
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

{{/* Where the extender's pods may run: (dict "root" $ "affinity" AFFINITY). */}}
{{- define "gpushare.extenderPlace" -}}
{{- $e := .root.Values.extender }}
{{- $affinity := deepCopy .affinity }}
{{- if not (hasKey $affinity "nodeAffinity") }}
{{- $_ := set $affinity "nodeAffinity" (include "gpushare.extenderNodes" .root | fromYaml) }}
{{- end }}
{{- with $e.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
affinity: {{- toYaml $affinity | nindent 2 }}
{{- with $e.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* Of a pod that runs once, where a replica of the extender could. It may share a node with one. */}}
{{- define "gpushare.extenderPlaceOnce" -}}
{{- include "gpushare.extenderPlace" (dict "root" . "affinity" (omit (.Values.extender.affinity | default dict) "podAntiAffinity")) | trim }}
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

{{/* -- scv-agent and the device plugin, modes of gpushare-node -- */}}

{{/* "true" if an item of the first list has the KEY of another item of the second: (list A B KEY). */}}
{{- define "gpushare.differ" -}}
{{- $key := index . 2 }}
{{- range $a := index . 0 }}
{{- range $b := index $ 1 }}
{{- if and (eq (toString (get $a $key)) (toString (get $b $key))) (ne (toJson $a) (toJson $b)) }}true{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Items with name and value of a map. */}}
{{- define "gpushare.items" -}}
items:
{{- range $k, $v := . }}
- {name: {{ $k | quote }}, value: {{ $v | quote }}}
{{- end }}
{{- end }}

{{/* The settings of one program that would be settings of the other, too: options that both have,
     and variables that both read. */}}
{{- define "gpushare.common" -}}
{{- range .extraArgs }}
{{- if regexMatch "^--(config|context|gpu-source|healthy-after|kubeconfig|late-after|limit-dir|sampler-limit|unhealthy-after|unified-memory|xid-hold)(=|$)" . }}{{ toJson . }}{{ end }}
{{- end }}
{{- range .extraEnv }}
{{- if regexMatch "^(HOME|KUBERNETES_SERVICE_.*|NVIDIA_.*)$" .name }}{{ toJson . }}{{ end }}
{{- end }}
{{- end }}

{{/* "true" where one DaemonSet is both; "" where only one is enabled, or where they differ in what
     one pod cannot have twice. Then each is a DaemonSet of its own, as in 1.0. */}}
{{- define "gpushare.oneNodeProgram" -}}
{{- $a := .Values.scvAgent }}
{{- $p := .Values.devicePlugin }}
{{- $split := not (and $a.enabled $p.enabled) }}
{{- if ne (include "gpushare.common" $a) (include "gpushare.common" $p) }}{{ $split = true }}{{ end }}
{{- range list "gpushare.nodePod" "gpushare.image" "gpushare.nodeSecurity" }}
{{- if ne (include . (dict "root" $ "of" $a)) (include . (dict "root" $ "of" $p)) }}{{ $split = true }}{{ end }}
{{- end }}
{{- if ne (toJson ($a.serviceAccount.annotations | default dict)) (toJson ($p.serviceAccount.annotations | default dict)) }}{{ $split = true }}{{ end }}
{{- range list "podAnnotations" "podLabels" }}
{{- $of := include "gpushare.items" (get $a . | default dict) | fromYaml }}
{{- $with := include "gpushare.items" (get $p . | default dict) | fromYaml }}
{{- if include "gpushare.differ" (list $of.items $with.items "name") }}{{ $split = true }}{{ end }}
{{- end }}
{{- /* The host's root of the one is not that of the other. */}}
{{- range concat ($a.extraArgs | default list) ($p.extraArgs | default list) }}
{{- if hasPrefix "--host-root" . }}{{ $split = true }}{{ end }}
{{- end }}
{{- /* What the chart mounts for the other. */}}
{{- $volumes := list }}
{{- range list "device-plugins" "pod-resources" "state" "host-dev" "host-usr" "host-cdi" "host-driver-root" "cdi" "container-names" "cgroups" }}
{{- $volumes = append $volumes (dict "name" . "of" "the chart") }}
{{- end }}
{{- $mounts := list }}
{{- range list "/var/lib/kubelet/device-plugins" $p.stateDir "/host/dev" "/host/usr" "/host/etc/cdi" "/var/run/cdi" "/host/var/log/containers" "/sys/fs/cgroup" (printf "/host%s" (include "gpushare.ownDriverRoot" .)) }}
{{- $mounts = append $mounts (dict "mountPath" . "of" "the chart") }}
{{- end }}
{{- range list (list "extraEnv" "name" list) (list "extraVolumes" "name" $volumes) (list "extraVolumeMounts" "mountPath" $mounts) }}
{{- if include "gpushare.differ" (list (get $a (index . 0) | default list) (concat (get $p (index . 0) | default list) (index . 2)) (index . 1)) }}{{ $split = true }}{{ end }}
{{- end }}
{{- if not (include "gpushare.readsContainers" .) }}{{ $split = true }}{{ end }}
{{- if not $split }}true{{ end }}
{{- end }}

{{/* "true" if values of 1.0 have not taken what the device plugin mounts since: names of containers, and
     cgroups. */}}
{{- define "gpushare.readsContainers" -}}
{{- $reads := true }}
{{- range .Values.devicePlugin.extraVolumes }}
{{- if has .name (list "container-names" "cgroups") }}{{ $reads = false }}{{ end }}
{{- end }}
{{- range .Values.devicePlugin.extraVolumeMounts }}
{{- if has .mountPath (list "/host/var/log/containers" "/sys/fs/cgroup") }}{{ $reads = false }}{{ end }}
{{- end }}
{{- if $reads }}true{{ end }}
{{- end }}

{{/* A quantity in thousandths, such as 1500 of 1.5. */}}
{{- define "gpushare.thousandths" -}}
{{- $suffix := regexFind "(m|[kMGTPE]|[KMGTPE]i)$" . }}
{{- $scale := get (dict "m" 1 "" 1000 "k" 1e6 "M" 1e9 "G" 1e12 "T" 1e15 "P" 1e18 "E" 1e21 "Ki" 1024e3 "Mi" 1048576e3 "Gi" 1073741824e3 "Ti" 1099511627776e3 "Pi" 1125899906842624e3 "Ei" 1152921504606846976e3) $suffix }}
{{- mulf (trimSuffix $suffix . | float64) $scale | ceil | int64 }}
{{- end }}

{{- define "gpushare.sum" -}}
{{- $sum := add (include "gpushare.thousandths" (toString (index . 0))) (include "gpushare.thousandths" (toString (index . 1))) }}
{{- $whole := div $sum 1000 }}
{{- if mod $sum 1000 }}{{ $sum }}m
{{- else if and $whole (not (mod $whole 1048576)) }}{{ div $whole 1048576 }}Mi
{{- else if and $whole (not (mod $whole 1024)) }}{{ div $whole 1024 }}Ki
{{- else }}{{ $whole }}
{{- end }}
{{- end }}

{{/* Requests and limits of both: (list A B). Where one has no limit, both have none. */}}
{{- define "gpushare.sumResources" -}}
{{- $a := index . 0 | default dict }}
{{- $b := index . 1 | default dict }}
{{- $sums := dict }}
{{- range $part := list "requests" "limits" }}
{{- $of := get $a $part | default dict }}
{{- $with := get $b $part | default dict }}
{{- $each := dict }}
{{- range $name := keys $of $with | uniq }}
{{- if and (hasKey $of $name) (hasKey $with $name) }}
{{- $_ := set $each $name (include "gpushare.sum" (list (get $of $name) (get $with $name))) }}
{{- else if eq $part "requests" }}
{{- $_ := set $each $name (get (merge (dict) $of $with) $name | toString) }}
{{- end }}
{{- end }}
{{- if $each }}{{ $_ := set $sums $part $each }}{{ end }}
{{- end }}
{{- with concat ($a.claims | default list) ($b.claims | default list) | uniq }}{{ $_ := set $sums "claims" . }}{{ end }}
{{- toYaml $sums }}
{{- end }}

{{/* The values of the program that is both. */}}
{{- define "gpushare.nodeProgram" -}}
{{- $a := .Values.scvAgent }}
{{- $of := deepCopy .Values.devicePlugin }}
{{- range list "podAnnotations" "podLabels" }}
{{- $_ := set $of . (merge (dict) (get $of . | default dict) (get $a . | default dict)) }}
{{- end }}
{{- range list "extraArgs" "extraEnv" "extraVolumes" "extraVolumeMounts" }}
{{- $_ := set $of . (concat (get $a . | default list) (get $of . | default list) | uniq) }}
{{- end }}
{{- $_ := set $of "resources" (include "gpushare.sumResources" (list $a.resources $of.resources) | fromYaml) }}
{{- range list "error" "warn" "info" "debug" }}
{{- if has . (list ($a.logLevel | default $.Values.logLevel) ($of.logLevel | default $.Values.logLevel)) }}{{ $_ := set $of "logLevel" . }}{{ end }}
{{- end }}
{{- toYaml $of }}
{{- end }}

{{- define "gpushare.publishRules" -}}
# The Scv of the node. No delete is needed: the Node owns the Scv, so garbage collection deletes it
# with the Node.
- apiGroups: [core.run-linux.com]
  resources: [scvs]
  verbs: [list, watch, create, patch]
{{- end }}

{{/* The Leases and the evictions of an account: (dict "root" $ "name" ACCOUNT). */}}
{{- define "gpushare.publishRoles" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: nvidia-gpu-scheduler-node-lease
  labels: {{- include "gpushare.chartLabels" .root | nindent 4 }}
rules:
# The heartbeat Lease.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create, patch]
---
{{ include "gpushare.binding" (merge (dict "kind" "Role" "namespace" "nvidia-gpu-scheduler-node-lease") .) }}
{{- $o := .root.Values.scvAgent.overuse }}
{{- if has "evict" (list $o.action $o.unpromised) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: scv-agent-overuse
  labels: {{- include "gpushare.chartLabels" .root | nindent 4 }}
rules:
# Evicts pods that use more memory of a card than they were promised. The API server respects
# PodDisruptionBudgets. RBAC cannot limit it to the pods of one node.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: scv-agent-overuse
  labels: {{- include "gpushare.chartLabels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: scv-agent-overuse
subjects:
- kind: ServiceAccount
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
{{- end }}
{{- end }}

{{- define "gpushare.nodeArgs" -}}
{{- with .Values.gpuNodes.unifiedMemory }}
- --unified-memory={{ . }}
{{- end }}
{{- with .Values.gpuNodes.xidIgnore }}
- --xid-ignore={{ . }}
{{- end }}
{{- with .Values.gpuNodes.xidFatal }}
- --xid-fatal={{ . }}
{{- end }}
{{- end }}

{{/* Layout preemption. */}}
{{- define "gpushare.preemption" -}}
{{- if or .Values.extender.preemption.enabled .Values.requestsOf }}true{{ end }}
{{- end }}

{{/* HAMi's limits besides nvidia.com/gpu. */}}
{{- define "gpushare.hamiKeys" -}}
{{- if .Values.requestsOf }}nvidia.com/gpumem nvidia.com/gpumem-percentage nvidia.com/gpucores{{ end }}
{{- end }}

{{/* What no node offers, so that kube-scheduler must not count it: these, and one that means something to
     HAMi's library alone. */}}
{{- define "gpushare.hamiIgnored" -}}
{{- with include "gpushare.hamiKeys" . }}{{ . }} nvidia.com/priority{{ end }}
{{- end }}

{{/* The limits that the extender promises, (list $), as a list of CEL; and others, where they may be
     HAMi's: (list $ NAME). */}}
{{- define "gpushare.promised" -}}
{{- $root := first . }}
{{- $names := list "aliyun.com/gpu-mem" "aliyun.com/gpu-count" "aliyun.com/gpu-share" }}
{{- with include "gpushare.hamiKeys" $root }}{{ $names = concat $names (splitList " " .) (rest $) }}{{ end -}}
['{{ join "', '" $names }}']
{{- end }}

{{- define "gpushare.publishArgs" -}}
{{- $o := .Values.scvAgent.overuse }}
{{- if ne $o.action "event" }}
- --on-overuse={{ $o.action }}
{{- end }}
{{- if ne $o.unpromised "none" }}
- --on-unpromised={{ $o.unpromised }}
{{- end }}
{{- with $o.grace }}
- --overuse-grace={{ . }}
{{- end }}
{{- with $o.tolerance }}
- --overuse-tolerance={{ . }}
{{- end }}
{{- if $o.always }}
- --overuse-always
{{- end }}
{{- end }}

{{/* Security context of a container that publishes. */}}
{{- define "gpushare.publishSecurity" -}}
{{- $security := include "gpushare.nodeSecurity" . | fromYaml }}
{{- $o := .root.Values.scvAgent.overuse }}
{{- if has "kill" (list $o.action $o.unpromised) }}
{{- /* Kills processes of other users. */}}
{{- $security = mergeOverwrite $security (dict "capabilities" (dict "add" (list "KILL"))) }}
{{- end }}
{{- with $security }}{{ toYaml . }}{{ end }}
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

{{/* Labels and annotations of a pod of `helm test`: what keeps other containers out of the pods of
     a program keeps them out of this one, which could not end beside them. */}}
{{- define "gpushare.testMeta" -}}
labels:
  {{- include "gpushare.objectLabels" (list .root "gpushare-test") | nindent 2 }}
  {{- with .of.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  {{- with .of.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "gpushare.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "gpushare.chartLabels" .root | nindent 4 }}
  {{- with .of.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* "true" where HAMi's requests are understood. */}}
{{- define "gpushare.hami" -}}
{{- if has "hami" (splitList "," (toString .Values.requestsOf)) }}true{{ end }}
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
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "gpushare.chartLabels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
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
  resourceNamespace: {{ .Release.Namespace | toYaml }}
{{- with .Values.scheduler.percentageOfNodesToScore }}
percentageOfNodesToScore: {{ . }}
{{- end }}
profiles:
{{- range $name := prepend (compact (list .Values.scheduler.secondName)) "gpushare-scheduler" }}
- schedulerName: {{ $name }}
  {{- if and $e.allPods $.Values.requestsOf }}
  # Without managedResources, which would leave out other pods.
  pluginConfig:
  - name: NodeResourcesFit
    args: {ignoredResources: [{{ include "gpushare.hamiIgnored" $ | replace " " ", " }}]}
  {{- end }}
{{- end }}
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
    serverName: {{ $e.tls.serverName | default $host | toYaml }}
  {{- end }}
  {{- /* Never below 15s: a bind of a gang's member is held for up to 10 s. */}}
  httpTimeout: 30s
  nodeCacheCapable: true
  {{- if not $e.allPods }}
  managedResources:
  - name: aliyun.com/gpu-mem
    ignoredByScheduler: false
  - name: aliyun.com/gpu-count
    ignoredByScheduler: false
  - name: aliyun.com/gpu-share
    ignoredByScheduler: false
  - name: aliyun.com/gpu-core.percentage
    ignoredByScheduler: false
  {{- if .Values.requestsOf }}
  - name: nvidia.com/gpu
    ignoredByScheduler: false
  {{- range splitList " " (include "gpushare.hamiIgnored" .) }}
  - name: {{ . }}
    ignoredByScheduler: true
  {{- end }}
  {{- end }}
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
{{- if not (or $d.runtimeClassName .Values.requestsOf (and $d.schedulerName (include "gpushare.ownScheduler" .))) }}
{{- else if and $api (not $d.webhook) }}{{ $api }}
{{- else if and .Values.extender.enabled .Values.admissionPolicies (include "gpushare.https" .) (or $d.caBundle (not (or $tls.secretName .Values.extender.insecure))) (semverCompare ">=1.30.0-0" $version) }}webhook{{ end }}
{{- end }}

{{- define "gpushare.podDefaultsArgs" -}}
- --pod-scheduler={{ if and .Values.podDefaults.schedulerName (include "gpushare.ownScheduler" .) }}gpushare-scheduler{{ end }}
- --pod-runtime-class={{ .Values.podDefaults.runtimeClassName }}
{{- end }}

{{/* Which pods. */}}
{{- define "gpushare.podConditions" -}}
{{- $names := list "aliyun.com/gpu-mem" "aliyun.com/gpu-count" "aliyun.com/gpu-share" "aliyun.com/gpu-core.percentage" }}
{{- with include "gpushare.hamiKeys" . }}{{ $names = concat $names (list "nvidia.com/gpu") (splitList " " .) }}{{ end }}
{{- $keys := printf "['%s']" (join "', '" $names) }}
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
