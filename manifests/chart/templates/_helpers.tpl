{{/* Shared parts of the templates. A part for one program takes
     (dict "root" $ "of" VALUES), where VALUES are the values of that program. */}}

{{/* kube-scheduler's policy, the Go programs and roles refer to these names and labels, so they
     are the same in every release and in manifests/*.yaml. */}}
{{- define "gpushare.labels" -}}
app: gpushare
component: {{ . }}
{{- end }}

{{/* Labels of workloads, their pods, and Services: (list $ COMPONENT). Selectors use the two above,
     which never change. */}}
{{- define "gpushare.objectLabels" -}}
{{- $component := index . 1 }}
{{- include "gpushare.labels" $component }}
app.kubernetes.io/name: gpushare
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ $component }}
app.kubernetes.io/part-of: gpushare
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

{{/* What the cluster is: the value, or what is certain: OpenShift and the distributions of Rancher
     by their API and version, kubeadm by its ConfigMap, and a control plane that is not the
     administrator's by its version or because it has no Node. Found once: the nodes can be many.
     Distributions such as k0s show no control plane Node either, but there the administrator's
     kube-scheduler may call the extender, through the node port of an earlier release or on the
     host network: an upgrade must not take that away. Nor must it take away the kube-scheduler
     that this release has installed on a managed control plane. */}}
{{- define "gpushare.platform" -}}
{{- $version := .Capabilities.KubeVersion.Version }}
{{- if not (hasKey .Values "platformFound") }}
{{- $found := .Values.platform }}
{{- if $found }}
{{- else if .Capabilities.APIVersions.Has "config.openshift.io/v1" }}{{ $found = "openshift" }}
{{- else if contains "+k3s" $version }}{{ $found = "k3s" }}
{{- else if contains "+rke2" $version }}{{ $found = "rke2" }}
{{- else if regexMatch "-(eks-|gke[.])" $version }}{{ $found = "managed" }}
{{- else if lookup "v1" "ConfigMap" "kube-system" "kubeadm-config" }}{{ $found = "kubeadm" }}
{{- else if and (not (kindIs "bool" .Values.scheduler.enabled)) (eq .Release.Name (dig "metadata" "annotations" "meta.helm.sh/release-name" "" (lookup "apps/v1" "Deployment" .Release.Namespace "gpushare-scheduler"))) }}{{ $found = "managed" }}
{{- else if or .Values.extender.hostNetwork (eq (dig "spec" "type" "" (lookup "v1" "Service" .Release.Namespace "gpushare-schd-extender")) "NodePort") }}{{ $found = "kubeadm" }}
{{- else }}
{{- range (lookup "v1" "Node" "" "").items }}
{{- $labels := .metadata.labels | default dict }}
{{- if or (hasKey $labels "node-role.kubernetes.io/control-plane") (hasKey $labels "node-role.kubernetes.io/master") }}
{{- $found = "kubeadm" }}
{{- else if not $found }}{{ $found = "managed" }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set .Values "platformFound" ($found | default "kubeadm") }}
{{- $_ := set .Values "platformSource" (ternary "set by the value platform" (ternary "found out; the value platform sets another one" "assumed; the value platform sets another one" (ne $found "")) (ne .Values.platform "")) }}
{{- end }}
{{- .Values.platformFound }}
{{- end }}

{{/* "true" where nobody can configure the cluster's kube-scheduler to call an extender: managed
     control planes, and OpenShift, whose operator writes the configuration. */}}
{{- define "gpushare.fixedScheduler" -}}
{{- if has (include "gpushare.platform" .) (list "managed" "openshift") }}true{{ end }}
{{- end }}

{{/* "true", or "" where the chart has no kube-scheduler of its own. */}}
{{- define "gpushare.ownScheduler" -}}
{{- $on := .Values.scheduler.enabled }}
{{- if kindIs "bool" $on }}{{ if $on }}true{{ end }}
{{- else if and .Values.extender.enabled (include "gpushare.fixedScheduler" .) }}true{{ end }}
{{- end }}

{{- define "gpushare.serviceType" -}}
{{- $e := .Values.extender }}
{{- if $e.hostNetwork }}ClusterIP
{{- else if $e.service.type }}{{ $e.service.type }}
{{- else if include "gpushare.fixedScheduler" . }}ClusterIP
{{- else }}NodePort{{ end }}
{{- end }}

{{/* Node affinity of the extender. */}}
{{- define "gpushare.extenderNodes" -}}
{{- $on := .Values.extender.onControlPlane }}
requiredDuringSchedulingIgnoredDuringExecution:
  nodeSelectorTerms:
  {{- if ternary $on (not (include "gpushare.fixedScheduler" .)) (kindIs "bool" $on) }}
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
{{- if and (eq (include "gpushare.platform" .root) "openshift") (not (hasKey $security "seLinuxOptions")) }}
{{- $_ := set $security "seLinuxOptions" (dict "type" "spc_t") }}
{{- end }}
{{- if eq .root.Values.gpuNodes.nvml "host" }}
{{- $security = merge (dict "privileged" true) (omit $security "allowPrivilegeEscalation" "capabilities" "seccompProfile") }}
{{- end }}
{{- toYaml $security }}
{{- end }}

{{/* RuntimeClass of a DaemonSet, or "". k3s and RKE2 create the class nvidia, whether or not a node has
     NVIDIA's runtime, and do not make that runtime the default. */}}
{{- define "gpushare.nodeRuntimeClass" -}}
{{- $all := .root.Values.gpuNodes }}
{{- $set := .of.runtimeClassName | default $all.runtimeClassName | default "" }}
{{- if eq $set "none" }}
{{- else if $set }}{{ $set }}
{{- else if and (has (include "gpushare.platform" .root) (list "k3s" "rke2")) (eq $all.nvml "runtime") (lookup "node.k8s.io/v1" "RuntimeClass" "" "nvidia") }}nvidia
{{- end }}
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
  {{- include "gpushare.objectLabels" (list .root .component) | nindent 2 }}
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
{{- $version := regexFind "^[0-9]+[.][0-9]+[.][0-9]+" (semver .Capabilities.KubeVersion.Version).String }}
{{- include "gpushare.imageName" (dict "image" $i "registry" $i.registry "tag" (printf "v%s" $version)) }}
{{- end }}

{{/* "true" where the extender makes kube-scheduler restart for a new CA: it reads the Secret, and
     without the admission policy its right to patch the Deployment would be one to run any pod. */}}
{{- define "gpushare.restartsScheduler" -}}
{{- $e := .Values.extender }}
{{- if and (include "gpushare.ownScheduler" .) (include "gpushare.https" .) (not $e.insecure) (not $e.tls.secretName) .Values.admissionPolicies }}true{{ end }}
{{- end }}

{{/* The CAs of the extender as the cluster has them; "" before the first installation. */}}
{{- define "gpushare.schedulerCA" -}}
{{- if include "gpushare.https" . }}
{{- $secret := lookup "v1" "Secret" .Release.Namespace (.Values.scheduler.tlsSecretName | default "gpushare-scheduler-tls") }}
{{- get ($secret.data | default dict) "ca.crt" | b64dec }}
{{- end }}
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

{{/* The API version of MutatingAdmissionPolicy; "" where the API server has none. */}}
{{- define "gpushare.mutatingPolicies" -}}
{{- range list "v1" "v1beta1" }}
{{- $api := printf "admissionregistration.k8s.io/%s" . }}
{{- if $.Capabilities.APIVersions.Has (printf "%s/MutatingAdmissionPolicy" $api) }}{{ $api }}{{ break }}{{ end }}
{{- end }}
{{- end }}
