{{/* Checks that the schema cannot express: values that contradict each other. */}}

{{/* Options and variables that the chart sets from its values: a second setting would contradict them.
     "mine" maps each to the reason that the error gives. */}}
{{- define "gpushare.checkExtra" -}}
{{- $at := .at }}
{{- $mine := .mine }}
{{- range .of.extraArgs }}
{{- $option := regexFind "^--[a-z0-9-]+" . }}
{{- with get $mine $option }}
{{- fail (printf "%s.extraArgs: %s is not allowed: %s" $at $option .) }}
{{- end }}
{{- end }}
{{- range $name := list "app" "component" "name" "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/part-of" }}
{{- if hasKey ($.of.podLabels | default dict) $name }}
{{- fail (printf "%s.podLabels: %s is not allowed: the chart sets this label" $at $name) }}
{{- end }}
{{- end }}
{{- range $env := .of.extraEnv }}
{{- with get $mine $env.name }}
{{- fail (printf "%s.extraEnv: %s is not allowed: %s" $at $env.name .) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpushare.checkExtender" -}}
{{- $e := .Values.extender }}
{{- $tls := $e.tls }}
{{- $loopback := include "gpushare.onLoopback" . }}
{{- $https := include "gpushare.https" . }}
{{- if and $e.hostNetwork (include "gpushare.openshift" .) }}
{{- fail "extender.hostNetwork: on OpenShift the constraint nonroot-v2 of the extender forbids the host network; set extender.hostNetwork to false" }}
{{- end }}
{{- if and (not $tls.secretName) (or $tls.clientNames $tls.serverName) }}
{{- fail "extender.tls: clientNames and serverName require extender.tls.secretName" }}
{{- end }}
{{- if and $tls.certManager.enabled (or $tls.secretName $e.insecure) }}
{{- fail "extender.tls.certManager.enabled: extender.tls.secretName and extender.insecure use no certificate of cert-manager; set only one of the three" }}
{{- end }}
{{- if and $tls.certManager.issuerRef (not $tls.certManager.enabled) }}
{{- fail "extender.tls.certManager.issuerRef: it has no effect without extender.tls.certManager.enabled; set it to true" }}
{{- end }}
{{- if and $loopback (or $tls.secretName $tls.certManager.enabled) }}
{{- fail "extender.hostNetwork: one replica listens on 127.0.0.1 without certificates; leave extender.tls empty, or set extender.replicas to the number of control plane nodes" }}
{{- end }}
{{- if and $loopback (or $e.apiService.enabled .Values.monitoring.podMonitors.enabled) }}
{{- fail "extender.hostNetwork: one replica listens on 127.0.0.1, where neither the API server (extender.apiService) nor Prometheus (monitoring.podMonitors) reaches it" }}
{{- end }}
{{- if and $e.apiService.enabled (not $https) }}
{{- fail "extender.apiService.enabled: the API server requires HTTPS; set extender.insecure to false" }}
{{- end }}
{{- if and $e.apiService.enabled (ne .Release.Namespace "kube-system") }}
{{- fail "extender.apiService.enabled: the extender mounts the ConfigMap extension-apiserver-authentication, which is in kube-system; use helm -n kube-system" }}
{{- end }}
{{- if and $tls.secretName (gt (int $e.replicas) 1) (not $tls.serverName) }}
{{- fail "extender.tls.serverName: all replicas share one certificate, which does not contain their addresses; set a name that is in tls.crt" }}
{{- end }}
{{- if and $tls.clientNames (gt (int $e.replicas) 1) (not (has $tls.serverName $tls.clientNames)) }}
{{- fail "extender.tls.clientNames: replicas forward binds to each other with tls.crt; add the name in extender.tls.serverName" }}
{{- end }}
{{- if and $e.apiService.enabled (not $e.apiService.caBundle) (not $tls.certManager.enabled) }}
{{- fail "extender.apiService.caBundle: without it the API server trusts only public CAs, which issue no certificates for names in .svc" }}
{{- end }}
{{- if and $tls.secretName .Values.monitoring.podMonitors.enabled (not $tls.serverName) }}
{{- fail "extender.tls.serverName: Prometheus scrapes pods by their address, which is not in the certificate; set a name that is in tls.crt" }}
{{- end }}
{{- if and $e.allPods (lt (int $e.replicas) 2) }}
{{- fail "extender.allPods: while its only replica is replaced, no pod of the cluster is bound, not even that of the next replica; set extender.replicas to 2 or more" }}
{{- end }}
{{- if has "--hami-values" ($e.extraArgs | default list) }}
{{- fail "extender.extraArgs: --hami-values has no value, which the chart gives to gpushare-node, too; write it in the same element, as in --hami-values=defaultCores=5" }}
{{- end }}
{{- $taken := dict
    "--memory-unit" "set memoryUnit instead" "--log-level" "set extender.logLevel instead"
    "--node-score" "set extender.nodeScore instead" "--filter-answer" "set extender.filterAnswer instead" "--events" "set extender.events instead"
    "--metrics-detail" "set extender.metricsDetail instead"
    "--drain-timeout" "set extender.drainSeconds instead"
    "--preempt-after" "set extender.preemption instead" "--requests-of" "set requestsOf instead"
    "--drain-delay" "the chart matches it with the readiness probe"
    "--port" "the Service and the probes use a fixed port" "--observe-port" "the probes and the alert rules use a fixed port"
    "--listen" "probes connect to the address of the pod" "--advertise" "the chart sets the address of the pod"
    "--lease-namespace" "the roles name the Lease gpushare-extender of the namespace of the release"
    "--tls-cert" "set extender.tls.secretName instead" "--tls-key" "set extender.tls.secretName instead"
    "--client-ca" "set extender.tls.secretName instead" "--insecure" "set extender.insecure instead" "--client-name" "set extender.tls.clientNames instead"
    "--replica-ca" "set extender.tls.serverName instead" "--replica-name" "set extender.tls.serverName instead"
    "--scheduler-deployment" "the chart sets it where its role and policy exist"
    "--pod-webhook" "the chart sets it where its role and policy exist"
    "--pod-scheduler" "set podDefaults instead" "--pod-runtime-class" "set podDefaults instead"
    "--await-pod-defaults" "it is for a Job of the chart"
    "--requestheader-client-ca" "set extender.apiService instead"
    "--requestheader-allowed-names" "set extender.apiService.allowedNames instead"
    "PORT" "the Service and the probes use a fixed port" "LOG_LEVEL" "set extender.logLevel instead"
    "POD_IP" "the chart sets the address of the pod"
    "DRAIN_DELAY" "the chart matches it with the readiness probe" }}
{{- include "gpushare.checkExtra" (dict "of" $e "at" "extender" "mine" $taken) }}
{{- end }}

{{- define "gpushare.checkNodes" -}}
{{- $taken := dict
    "--memory-unit" "set memoryUnit instead" "--node-name" "the chart sets the name of the node"
    "--port" "the probes and the alert rules use a fixed port" "--listen" "probes connect to the address of the pod"
    "--podresources-socket" "set kubeletDir instead" "--plugin-dir" "set kubeletDir instead"
    "--state-file" "set devicePlugin.stateDir instead"
    "--on-overuse" "set scvAgent.overuse instead" "--on-unpromised" "set scvAgent.overuse instead"
    "--overuse-grace" "set scvAgent.overuse instead"
    "--overuse-tolerance" "set scvAgent.overuse instead" "--overuse-always" "set scvAgent.overuse instead"
    "--xid-ignore" "set gpuNodes.xidIgnore instead" "--xid-fatal" "set gpuNodes.xidFatal instead"
    "--set-limits" "set gpuNodes.setLimits instead" "--requests-of" "set gpuNodes.dialect instead"
    "--hami-values" "set extender.extraArgs instead"
    "--isolation" "set devicePlugin.isolation instead" "--mps-dir" "set mps.dir instead"
    "PORT" "the probes use a fixed port" "NODE_NAME" "the chart sets the name of the node" }}
{{- range $at := list "scvAgent" "devicePlugin" }}
{{- $level := printf "set %s.logLevel instead" $at }}
{{- $mine := merge (dict "--log-level" $level "LOG_LEVEL" $level) $taken }}
{{- include "gpushare.checkExtra" (dict "of" (get $.Values $at) "at" $at "mine" $mine) }}
{{- end }}
{{- $dialect := .Values.gpuNodes.dialect }}
{{- if and $dialect (not .Values.requestsOf) }}
{{- fail (printf "gpuNodes.dialect: no scheduler would know what nvidia.com/gpu means on these nodes; set requestsOf to %s" $dialect) }}
{{- end }}
{{- if and $dialect (not (include "gpushare.oneNodeProgram" .)) }}
{{- fail "gpuNodes.dialect: scvAgent publishes what devicePlugin serves, which takes one DaemonSet; enable both, with the same values" }}
{{- end }}
{{- if and .Values.mps.enabled (ne .Values.devicePlugin.isolation "mps") }}
{{- fail "mps.enabled: no container would use the MPS daemon; set devicePlugin.isolation to mps" }}
{{- end }}
{{- if and .Values.mps.enabled (not .Values.mps.image) }}
{{- fail "mps.image: it has no default; set an image that contains nvidia-cuda-mps-control" }}
{{- end }}
{{- end }}

{{- define "gpushare.checkScheduler" -}}
{{- $s := .Values.scheduler }}
{{- $tls := .Values.extender.tls }}
{{- if include "gpushare.ownScheduler" . }}
{{- if semverCompare "<1.25.0-0" .Capabilities.KubeVersion.Version }}
{{- fail (printf "scheduler.enabled: the configuration of the chart's kube-scheduler requires Kubernetes 1.25, and the cluster has %s; set scheduler.enabled to false" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- $helm := semver .Capabilities.HelmVersion.Version }}
{{- /* The client library of helm: 3.19 has that of 1.34, as 4.0. Nothing in .Capabilities tells it
     from the same version in --kube-version. */}}
{{- $assumed := printf "v1.%d.0" (add $helm.Minor (ternary 15 34 (eq (int $helm.Major) 3))) }}
{{- if and (not (or $s.image.tag $s.image.digest)) (eq .Capabilities.KubeVersion.Version $assumed) (not (include "gpushare.seesCluster" .)) }}
{{- fail (printf "scheduler.image.tag: helm sees no cluster, and %s is the Kubernetes that it assumes without --kube-version; set scheduler.image.tag to the version of the API server, which may be %s, or use helm template --kube-version with another one" $assumed $assumed) }}
{{- end }}
{{- $tag := last (splitList ":" (include "gpushare.schedulerImage" .)) }}
{{- if and (not $s.image.digest) (or (not $s.image.tag) (eq $s.image.registry "registry.k8s.io")) (not (regexMatch "^v1[.][0-9]+[.][0-9]{1,2}(-(alpha|beta|rc)[.][0-9]+)?$" $tag)) }}
{{- fail (printf "scheduler.image.tag: Kubernetes has no image kube-scheduler:%s; set the tag of a release, such as v1.35.0. AKS counts long-term patches from 100 on: set the tag of the last release there, such as v1.30.14" $tag) }}
{{- end }}
{{- if include "gpushare.onLoopback" . }}
{{- fail "scheduler.enabled: with extender.hostNetwork one replica listens on 127.0.0.1, where no other pod reaches it; set extender.hostNetwork to false, or scheduler.enabled to false for the kube-scheduler of that node" }}
{{- end }}
{{- if and $tls.secretName (not $s.tlsSecretName) (include "gpushare.https" .) }}
{{- fail "scheduler.tlsSecretName: with extender.tls.secretName nobody makes a client certificate; set the Secret that has one, with ca.crt, tls.crt and tls.key" }}
{{- end }}
{{- end }}
{{- if and $s.tlsSecretName (not $tls.secretName) }}
{{- fail "scheduler.tlsSecretName: it has no effect without extender.tls.secretName, because the extender makes the certificate" }}
{{- end }}
{{- if and $s.secondName (not (include "gpushare.ownScheduler" .)) }}
{{- fail "scheduler.secondName: the chart installs no kube-scheduler; set scheduler.enabled to true, or add a profile to your kube-scheduler's configuration" }}
{{- end }}
{{- $taken := dict
    "--config" "the chart makes the configuration" "--secure-port" "the probes use a fixed port"
    "--bind-address" "probes connect to the address of the pod"
    "--leader-elect" "the chart makes the configuration" }}
{{- include "gpushare.checkExtra" (dict "of" $s "at" "scheduler" "mine" $taken) }}
{{- end }}

{{/* Units of bound pods cannot change: their limits would mean other amounts. */}}
{{- define "gpushare.checkUnit" -}}
{{- $unit := printf "--memory-unit=%s" .Values.memoryUnit }}
{{- $installed := list (lookup "apps/v1" "Deployment" .Release.Namespace "gpushare-schd-extender") (lookup "apps/v1" "DaemonSet" .Release.Namespace "gpushare-device-plugin-ds") (lookup "apps/v1" "DaemonSet" .Release.Namespace "scv-agent") }}
{{- range $of := $installed }}
{{- range (dig "spec" "template" "spec" "containers" list $of) }}
{{- range $arg := .args }}
{{- if and (hasPrefix "--memory-unit=" $arg) (ne $arg $unit) }}
{{- range (lookup "v1" "Pod" "" "").items }}
{{- if and (hasKey (.metadata.annotations | default dict) "ALIYUN_COM_GPU_MEM_IDX") (not (has (dig "status" "phase" "" .) (list "Succeeded" "Failed"))) }}
{{- fail (printf "memoryUnit: pod %s/%s has a promise, and %s is installed; delete all pods with GPU memory before the unit changes" .metadata.namespace .metadata.name $arg) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What an upgrade would take away from what is installed. */}}
{{- define "gpushare.checkUpgrade" -}}
{{- $ns := .Release.Namespace }}
{{- $e := .Values.extender }}
{{- $was := lookup "apps/v1" "Deployment" $ns "gpushare-schd-extender" }}
{{- if and $e.enabled (gt (int $e.replicas) 1) }}
{{- range (dig "spec" "template" "spec" "containers" list $was) }}
{{- if not (has "gpushare-extender" (.command | default list)) }}
{{- fail "extender.replicas: the installed extender uses no Lease, so it must stop before the new one starts; set extender.replicas to 1, and raise it with the next helm upgrade" }}
{{- end }}
{{- end }}
{{- end }}
{{- $service := lookup "v1" "Service" $ns "gpushare-schd-extender" }}
{{- if and (include "gpushare.ownScheduler" .) (not $e.service.type) (eq (dig "spec" "type" "" $service) "NodePort") (not (lookup "apps/v1" "Deployment" $ns "gpushare-scheduler")) }}
{{- fail "scheduler.enabled: the kube-scheduler of this cluster may call the extender through its node port, which would go; set scheduler.enabled to false to keep that way, or extender.service.type to NodePort (both kube-schedulers) or ClusterIP (after scripts/install --undo)" }}
{{- end }}
{{- range $at, $name := dict "scvAgent" "scv-agent" "devicePlugin" "gpushare-device-plugin-ds" }}
{{- $of := get $.Values $at }}
{{- $class := dig "spec" "template" "spec" "runtimeClassName" "" (lookup "apps/v1" "DaemonSet" $ns $name) }}
{{- if and $of.enabled $class (not (or $of.runtimeClassName $.Values.gpuNodes.runtimeClassName)) }}
{{- fail (printf "gpuNodes.runtimeClassName: DaemonSet %s has RuntimeClass %s; set gpuNodes.runtimeClassName to it, or to none" $name $class) }}
{{- end }}
{{- $wanted := include "gpushare.nodeRuntimeClass" (dict "root" $ "of" $of) }}
{{- if and $of.enabled $wanted (include "gpushare.seesCluster" $) (not (lookup "node.k8s.io/v1" "RuntimeClass" "" $wanted)) }}
{{- fail (printf "gpuNodes.runtimeClassName: this cluster has no RuntimeClass %s; create it (NVIDIA's GPU Operator does), or set gpuNodes.runtimeClassName to none" $wanted) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Every map, and what is new since 1.0: `helm upgrade --reuse-values` takes the values of the older
     chart, which lack it. Without networkPolicy and monitoring, 1.0 rendered everything else. */}}
{{- define "gpushare.checkReuse" -}}
{{- $monitoring := ternary (list "monitoring.podMonitors" "monitoring.dashboards" "monitoring.rules") list (hasKey .Values "monitoring") }}
{{- range $path := concat $monitoring (list "image" "crd" "nodeLeaseNamespace" "podDefaults" "inspectRoles" "gpuNodes"
    "extender.image" "extender.pdb" "extender.preemption" "extender.service" "extender.tls.certManager"
    "extender.apiService" "extender.serviceAccount" "extender.leaseSeconds"
    "gpuNodes.xidIgnore" "gpuNodes.xidFatal" "gpuNodes.setLimits" "gpuNodes.dialect" "requestsOf" "takeover"
    "takeoverAccounts" "scheduler.secondName"
    "scheduler.image" "scheduler.serviceAccount" "scvAgent.image" "scvAgent.overuse" "scvAgent.serviceAccount"
    "devicePlugin.image" "devicePlugin.serviceAccount" "mps" "helmTest") }}
{{- $at := $.Values }}
{{- range $key := splitList "." $path }}
{{- if not (hasKey $at $key) }}
{{- fail (printf "%s: the values lack it, as with helm upgrade --reuse-values, which leaves out what is new in a chart; use helm upgrade --reset-then-reuse-values" $path) }}
{{- end }}
{{- $at = get $at $key }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpushare.checks" -}}
{{- include "gpushare.checkReuse" . }}
{{- $binding := lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" "gpushare-schd-extender" }}
{{- range $binding.subjects }}
{{- if and $.Values.extender.enabled (ne .namespace $.Release.Namespace) }}
{{- fail (printf "namespace %q: an extender is installed in namespace %q, and two of them would promise the same memory twice; remove that one first, or use helm -n %s" $.Release.Namespace .namespace .namespace) }}
{{- end }}
{{- end }}
{{- if and .Values.admissionPolicies (semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "admissionPolicies: ValidatingAdmissionPolicy requires Kubernetes 1.30, and the cluster has %s; set admissionPolicies to false, but then every user who may create or patch pods can forge promises" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- if and .Values.exemptAccounts (not .Values.admissionPolicies) }}
{{- fail "exemptAccounts: without admissionPolicies every account may write promises; set admissionPolicies to true" }}
{{- end }}
{{- if and .Values.takeover (not .Values.requestsOf) }}
{{- fail "takeover: without requestsOf no pods are taken over" }}
{{- end }}
{{- include "gpushare.checkUnit" . }}
{{- include "gpushare.checkUpgrade" . }}
{{- include "gpushare.checkExtender" . }}
{{- include "gpushare.checkNodes" . }}
{{- include "gpushare.checkScheduler" . }}
{{- end }}
