{{/* Shared parts of the templates. A part for one program takes
     (dict "root" $ "of" VALUES), where VALUES are the values of that program. */}}

{{/* kube-scheduler's policy, the Go programs and roles refer to these names and labels, so they
     are the same in every release and in manifests/*.yaml. */}}
{{- define "gpushare.labels" -}}
app: gpushare
component: {{ . }}
{{- end }}

{{- define "gpushare.image" -}}
{{- $i := .of.image -}}
{{- $name := $i.repository -}}
{{- with .root.Values.image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if $i.digest }}{{ $name }}@{{ $i.digest }}
{{- else }}{{ $name }}:{{ $i.tag | default .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}
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

{{/* Fields of the pod spec that both DaemonSets share. */}}
{{- define "gpushare.nodePod" -}}
{{- $all := .root.Values.gpuNodes -}}
{{- with .of.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .of.nodeSelector | default $all.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations | default $all.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .of.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.runtimeClassName | default $all.runtimeClassName }}
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

{{/* The securityContext "security" of a container that opens device nodes of cards. */}}
{{- define "gpushare.nodeSecurity" -}}
{{- $security := .security | default dict }}
{{- if eq .root.Values.gpuNodes.nvml "host" }}
{{- $security = merge (dict "privileged" true) (omit $security "allowPrivilegeEscalation" "capabilities" "seccompProfile") }}
{{- end }}
{{- with $security }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "gpushare.podMeta" -}}
labels:
  {{- include "gpushare.labels" .component | nindent 2 }}
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
