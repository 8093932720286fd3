{{/* What the schema cannot say: values that do not go together. */}}

{{/* Options and variables that values stand for; given twice, one of them would be wrong. */}}
{{- define "gpushare.checkExtra" -}}
{{- $at := .at }}
{{- $mine := .mine }}
{{- range .of.extraArgs }}
{{- $option := regexFind "^--[a-z0-9-]+" . }}
{{- with get $mine $option }}
{{- fail (printf "%s.extraArgs: not %s, which is for %s" $at $option .) }}
{{- end }}
{{- end }}
{{- range $name := list "app" "component" "name" }}
{{- if hasKey ($.of.podLabels | default dict) $name }}
{{- fail (printf "%s.podLabels: not %s, by which its pods are found" $at $name) }}
{{- end }}
{{- end }}
{{- range .of.extraEnv }}
{{- with get $mine .name }}
{{- fail (printf "%s.extraEnv: not %s" $at .) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpushare.checkExtender" -}}
{{- $e := .Values.extender }}
{{- $tls := $e.tls }}
{{- if and $e.pdb.enabled (eq (int $e.replicas) 1) }}
{{- fail "extender.pdb.enabled: with one replica it would only stand in the way of a drain; set extender.replicas to 2 or more" }}
{{- end }}
{{- if not $tls.secretName }}
{{- if or $tls.clientCA $tls.clientNames $tls.serverName }}
{{- fail "extender.tls: clientCA, clientNames and serverName say nothing without secretName" }}
{{- end }}
{{- if $e.apiService.enabled }}
{{- fail "extender.apiService.enabled: the API server speaks HTTPS alone; set extender.tls.secretName" }}
{{- end }}
{{- end }}
{{- if and $tls.clientNames (not $tls.clientCA) }}
{{- fail "extender.tls.clientNames: names of clients are only looked at with extender.tls.clientCA" }}
{{- end }}
{{- if and $tls.secretName (gt (int $e.replicas) 1) (not $tls.serverName) }}
{{- fail "extender.tls.serverName: several replicas share one certificate, which cannot name the address of each; set a name that is in it" }}
{{- end }}
{{- if and $tls.clientNames (gt (int $e.replicas) 1) (not (has $tls.serverName $tls.clientNames)) }}
{{- fail "extender.tls.clientNames: replicas hand binds on to each other with tls.crt; extender.tls.serverName has to be among the names" }}
{{- end }}
{{- if and $e.apiService.enabled (not $e.apiService.caBundle) }}
{{- fail "extender.apiService.caBundle: without it the API server believes only public authorities, which sign no name in .svc" }}
{{- end }}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.controlPlane) }}
{{- fail "networkPolicy.controlPlane: without addresses not even kube-scheduler could reach the extender" }}
{{- end }}
{{- if and $tls.secretName .Values.monitoring.podMonitors.enabled (not $tls.serverName) }}
{{- fail "extender.tls.serverName: Prometheus scrapes pods by their address, which is not in the certificate; set a name that is in it" }}
{{- end }}
{{- $taken := dict
    "--memory-unit" "memoryUnit" "--log-level" "extender.logLevel" "--node-score" "extender.nodeScore"
    "--events" "extender.events" "--metrics-detail" "extender.metricsDetail"
    "--drain-timeout" "extender.drainSeconds" "--drain-delay" "the chart, whose probes it goes with"
    "--port" "the chart: Service and probes know the port" "--observe-port" "the chart: probes and rules know the port"
    "--listen" "the chart: probes come to the pod's address" "--advertise" "the chart, which gives the pod's address"
    "--lease-namespace" "the chart: roles and people know the Lease as kube-system/gpushare-extender"
    "--tls-cert" "extender.tls.secretName" "--tls-key" "extender.tls.secretName"
    "--client-ca" "extender.tls.clientCA" "--client-name" "extender.tls.clientNames"
    "--replica-ca" "extender.tls.serverName" "--replica-name" "extender.tls.serverName"
    "--requestheader-client-ca" "extender.apiService" "--requestheader-allowed-names" "extender.apiService.allowedNames"
    "PORT" "PORT: Service and probes know the port" "LOG_LEVEL" "LOG_LEVEL, which is for extender.logLevel"
    "POD_IP" "POD_IP: it must be the pod's address"
    "DRAIN_DELAY" "DRAIN_DELAY, which goes with the probes of the chart" }}
{{- include "gpushare.checkExtra" (dict "of" $e "at" "extender" "mine" $taken) }}
{{- end }}

{{- define "gpushare.checkNodes" -}}
{{- $taken := dict
    "--memory-unit" "memoryUnit" "--node-name" "the chart, which gives the name of the node"
    "--port" "the chart: probes and rules know the port" "--listen" "the chart: probes come to the pod's address"
    "--podresources-socket" "kubeletDir" "--plugin-dir" "kubeletDir" "--state-file" "devicePlugin.stateDir"
    "--isolation" "devicePlugin.isolation" "--mps-dir" "mps.dir"
    "--lease-namespace" "the chart: roles know the namespace of the heartbeats"
    "PORT" "PORT: probes know the port" "NODE_NAME" "NODE_NAME: it must be the name of the node" }}
{{- range $at := list "scvAgent" "devicePlugin" }}
{{- $mine := merge (dict "--log-level" (printf "%s.logLevel" $at) "LOG_LEVEL" (printf "LOG_LEVEL, which is for %s.logLevel" $at)) $taken }}
{{- include "gpushare.checkExtra" (dict "of" (get $.Values $at) "at" $at "mine" $mine) }}
{{- end }}
{{- if and .Values.mps.enabled (ne .Values.devicePlugin.isolation "mps") }}
{{- fail "mps.enabled: nobody would use the daemon; set devicePlugin.isolation to mps" }}
{{- end }}
{{- if and .Values.mps.enabled (not .Values.mps.image) }}
{{- fail "mps.image: there is no image of NVIDIA's that could stand here; name one with nvidia-cuda-mps-control" }}
{{- end }}
{{- end }}

{{- define "gpushare.checks" -}}
{{- if ne .Release.Namespace "kube-system" }}
{{- fail (printf "namespace %q: gpushare's objects are known by their names in kube-system, and two extenders in one cluster would give out the same cards; use helm -n kube-system" .Release.Namespace) }}
{{- end }}
{{- if and .Values.admissionPolicies (or .Values.scvAgent.enabled .Values.devicePlugin.enabled) (semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "admissionPolicies: Kubernetes %s has none, they came with 1.30; set admissionPolicies to false" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- include "gpushare.checkExtender" . }}
{{- include "gpushare.checkNodes" . }}
{{- end }}
