{{/*
What charts/lottery and charts/noonctl have in common. Both charts have a copy of this file: a symbolic
link breaks when a chart is copied, and a dependency must be built before an installation.
scripts/chart-test.sh compares the copies.
*/}}

{{- define "noonlock.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end -}}

{{/* The name of the objects. A release name has at most 53 characters. */}}
{{- define "noonlock.fullname" -}}
{{- $name := include "noonlock.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The first part of all keys and channels on Redis. */}}
{{- define "noonlock.prefix" -}}
{{ .Values.prefix | default (printf "noonlock:%s/%s" .Release.Namespace .Release.Name) }}
{{- end -}}

{{- define "noonlock.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "noonlock.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* The labels that select the pods. They must never change. Takes (list context component). */}}
{{- define "noonlock.selector" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: {{ include "noonlock.name" $ }}
app.kubernetes.io/instance: {{ $.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/*
The labels of the pods of a template. Without the versions of the chart and the program, a new
version of the chart alone replaces no pod. Takes (list context component labels…). The last ones
win.
*/}}
{{- define "noonlock.podLabels" -}}
{{- $ := index . 0 -}}
{{- $labels := dict -}}
{{- range prepend (slice . 2) $.Values.commonLabels -}}
{{- $labels = mergeOverwrite $labels (. | default dict) -}}
{{- end -}}
{{ include "noonlock.selector" . }}
{{- with $labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels of an object, with the same arguments. */}}
{{- define "noonlock.labels" -}}
{{- $ := index . 0 -}}
{{ include "noonlock.podLabels" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The name of an image, in the registry for all charts if there is one. Takes (list context image). */}}
{{- define "noonlock.image" -}}
{{- $ := index . 0 -}}
{{- $image := index . 1 -}}
{{- $repository := $image.repository -}}
{{- with ($.Values.global | default dict).imageRegistry -}}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") -}}
{{- end -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Settings of all pods. */}}
{{- define "noonlock.pod" -}}
serviceAccountName: {{ include "noonlock.serviceAccount" . | quote }}
enableServiceLinks: false
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $secrets := list }}
{{- range concat ((.Values.global | default dict).imagePullSecrets | default list) (.Values.imagePullSecrets | default list) }}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- with uniq $secrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* How the replicas are spread. All of them run, even with too few nodes or zones. */}}
{{- define "noonlock.spread" -}}
{{- $selector := dict "matchLabels" (include "noonlock.selector" (list . "replica") | fromYaml) -}}
{{- $constraints := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $constraints = append $constraints (hasKey . "labelSelector" | ternary . (set (deepCopy .) "labelSelector" $selector)) -}}
{{- else -}}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" -}}
{{- /* The pods of each rollout are spread separately. */ -}}
{{- $constraints = append $constraints (dict "topologyKey" . "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" $selector "matchLabelKeys" (list "pod-template-hash")) -}}
{{- end -}}
{{- end -}}
topologySpreadConstraints:
  {{- toYaml $constraints | nindent 2 }}
{{- end -}}

{{/* What the notes say about an upgrade that separates old and new pods. Takes (list context changes). */}}
{{- define "noonlock.recreate" -}}
{{- if ne (dig "type" "" ((index . 0).Values.strategy | default dict)) "Recreate" -}}
During an upgrade that changes the {{ index . 1 }}, old and new pods would work at the same time. Let all old
pods end first: --set strategy.type=Recreate
{{- end -}}
{{- end -}}

{{/* The part of a Deployment's spec before its template. */}}
{{- define "noonlock.deployment" -}}
replicas: {{ .Values.replicaCount | int }}
revisionHistoryLimit: {{ .Values.revisionHistoryLimit | int }}
selector:
  matchLabels:
    {{- include "noonlock.selector" (list . "replica") | nindent 4 }}
strategy:
  {{- with .Values.strategy }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  type: RollingUpdate
  rollingUpdate:
    maxSurge: 1
    # Without an unavailable pod, a rollout stops if a quota allows no additional one.
    maxUnavailable: {{ ternary 1 0 (gt (int .Values.replicaCount) 1) }}
  {{- end }}
{{- end -}}

{{/* The probes of a port. Redis does not affect /livez, so its outage restarts no pod. Takes (list context port). */}}
{{- define "noonlock.probes" -}}
{{- $probes := dict -}}
{{- range $probe, $path := dict "startupProbe" "/livez" "livenessProbe" "/livez" "readinessProbe" "/readyz" -}}
{{- $times := index (index $ 0).Values $probe | default dict -}}
{{- $probes = set $probes $probe (merge (dict "httpGet" (dict "path" $path "port" (index $ 1))) $times) -}}
{{- end -}}
{{- toYaml $probes -}}
{{- end -}}

{{/* A variable from a Secret, if the key is set. Takes (list variable secret key). */}}
{{- define "noonlock.password" -}}
{{- if index . 2 }}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 | quote }}
      key: {{ index . 2 | quote }}
{{- end }}
{{- end -}}

{{/* Variables for the Redis of the values. Takes (list context PROGRAM). */}}
{{- define "noonlock.redis" -}}
{{- $program := index . 1 -}}
{{- with index . 0 -}}
- name: {{ $program }}_PREFIX
  value: {{ include "noonlock.prefix" . | quote }}
{{- if .Values.redis.existingSecret }}
{{- include "noonlock.password" (list (printf "%s_REDIS" $program) .Values.redis.existingSecret .Values.redis.secretKey) }}
{{- else if .Values.redis.url }}
- name: {{ $program }}_REDIS
  value: {{ .Values.redis.url | quote }}
{{- end }}
{{- with .Values.redis.auth }}
{{- if .existingSecret }}
{{- include "noonlock.password" (list (printf "%s_REDIS_PASSWORD" $program) .existingSecret .passwordKey) }}
{{- include "noonlock.password" (list (printf "%s_REDIS_SENTINEL_PASSWORD" $program) .existingSecret .sentinelPasswordKey) }}
{{- with .username }}
- name: {{ $program }}_REDIS_USERNAME
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The Secrets and ConfigMaps with the certificates for a server, as sources of a volume. */}}
{{- define "noonlock.certificates" -}}
{{- $sources := list -}}
{{- $authorities := list (dict "key" .ca.file "path" "ca.crt") -}}
{{- with .ca.existingSecret }}{{ $sources = append $sources (dict "secret" (dict "name" . "items" $authorities)) }}{{ end -}}
{{- with .ca.configMap }}{{ $sources = append $sources (dict "configMap" (dict "name" . "items" $authorities)) }}{{ end -}}
{{- $pair := list (dict "key" .client.certFile "path" "tls.crt") (dict "key" .client.keyFile "path" "tls.key") -}}
{{- with .client.existingSecret }}{{ $sources = append $sources (dict "secret" (dict "name" . "items" $pair)) }}{{ end -}}
{{- with $sources }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* Variables for the certificates for a server. Takes (list tls VARIABLE folder). */}}
{{- define "noonlock.certificateEnv" -}}
{{- $variable := index . 1 -}}
{{- $folder := index . 2 -}}
{{- with index . 0 -}}
{{- if or .ca.existingSecret .ca.configMap }}
- name: {{ $variable }}_CA
  value: {{ $folder }}/ca.crt
{{- end }}
{{- if .client.existingSecret }}
- name: {{ $variable }}_CERT
  value: {{ $folder }}/tls.crt
- name: {{ $variable }}_KEY
  value: {{ $folder }}/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{/* The mount and the volume of these certificates. Both take (list tls name folder). */}}
{{- define "noonlock.certificateMount" -}}
{{- if include "noonlock.certificates" (index . 0) }}
- name: {{ index . 1 }}
  mountPath: {{ index . 2 }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "noonlock.certificateVolume" -}}
{{- $name := index . 1 -}}
{{- with include "noonlock.certificates" (index . 0) }}
- name: {{ $name }}
  projected:
    sources:
      {{- . | nindent 6 }}
{{- end }}
{{- end -}}

{{/* A PodDisruptionBudget. */}}
{{- define "noonlock.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "noonlock.fullname" . }}
  labels:
    {{- include "noonlock.labels" (list . "replica") | nindent 4 }}
spec:
  maxUnavailable: {{ .Values.podDisruptionBudget.maxUnavailable }}
  # While Redis is unavailable, no pod is ready. Nodes can still be drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "noonlock.selector" (list . "replica") | nindent 6 }}
{{- end -}}

{{/* A NetworkPolicy; more rules of egress may follow. Takes (list context port component…). */}}
{{- define "noonlock.networkPolicy" -}}
{{- $ := index . 0 -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "noonlock.fullname" $ }}
  labels:
    {{- include "noonlock.labels" (list $ "replica") | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: {{ include "noonlock.name" $ }}
      app.kubernetes.io/instance: {{ $.Release.Name | quote }}
    matchExpressions:
      - {key: app.kubernetes.io/component, operator: In, values: [{{ slice . 2 | join ", " }}]}
  policyTypes: [Ingress, Egress]
  ingress:
    - ports: [{port: {{ index . 1 }}}]
      from:
        {{- toYaml ($.Values.networkPolicy.metricsFrom | default (list (dict "namespaceSelector" dict))) | nindent 8 }}
  egress:
    {{- with $.Values.networkPolicy.dnsPorts }}
    - ports:
        {{- range . }}
        - {port: {{ . | int }}, protocol: UDP}
        - {port: {{ . | int }}, protocol: TCP}
        {{- end }}
    {{- end }}
    {{- with $.Values.networkPolicy.egressPorts }}
    - ports:
        {{- range . }}
        - port: {{ . | int }}
        {{- end }}
    {{- end }}
{{- end -}}

{{/* A monitor without its endpoints, whose fields are noonlock.scrape. Takes (list context values). */}}
{{- define "noonlock.monitor" -}}
{{- $ := index . 0 -}}
metadata:
  name: {{ include "noonlock.fullname" $ }}
  {{- with (index . 1).namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "noonlock.labels" (list $ "replica" (index . 1).labels) | nindent 4 }}
spec:
  {{- if (index . 1).namespace }}
  namespaceSelector:
    matchNames: [{{ $.Release.Namespace | quote }}]
  {{- end }}
  selector:
    matchLabels:
      {{- include "noonlock.selector" (list $ "replica") | nindent 6 }}
{{- end -}}

{{- define "noonlock.scrape" -}}
path: /metrics
interval: {{ .interval }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
An expression that is true if a counter has increased in the last 15 minutes. The function
increase does not see increases before the first scrape of a process. For a process younger
than 15 minutes, the whole value therefore counts. The age of the process decides, not that of
its series, because all series are new after an outage of Prometheus.
Takes (list target label counter).
*/}}
{{- define "noonlock.counted" -}}
{{- $by := printf "sum by (%s)" (list "namespace" "job" (index . 1) | compact | join ", ") -}}
{{- $counter := index . 2 -}}
{{ $by }} (increase({{ $counter }}[15m])) > 0 or {{ $by }} ({{ $counter }} and on (namespace, job, pod, instance) (time() - process_start_time_seconds{ {{- index . 0 -}} } < 900)) > 0
{{- end -}}

{{/*
An expression that is true if pods are up, and none of them reaches Redis. The offset is measured
with the first answer of Redis, so a pod without an answer since its start has an offset of exactly 0.
The last part is true only if Prometheus scrapes kube-state-metrics. Takes (list context target).
*/}}
{{- define "noonlock.cannotClaim" -}}
{{- $target := index . 1 -}}
{{- with index . 0 -}}
count by (namespace, job) (up{ {{- $target -}} } == 1)
<= count by (namespace, job) ((
sum by (namespace, job, pod, instance) (increase(noonlock_script_errors_total{ {{- $target -}} }[5m])) > 0
or sum by (namespace, job, pod, instance) (noonlock_job_clock_offset_seconds{ {{- $target -}} } == 0)
) and on (namespace, job, pod, instance) (up{ {{- $target -}} } == 1))
or max by (namespace, deployment) (kube_deployment_status_replicas_ready{ {{- printf `namespace=%q,deployment=%q` .Release.Namespace (include "noonlock.fullname" .) -}} }) == 0
{{- end -}}
{{- end -}}

{{/* The length of a duration, parsed as in the program; 0 if it is invalid. */}}
{{- define "noonlock.nanoseconds" -}}
{{- $start := toDate "2006-01-02" "1970-01-01" -}}
{{- sub (dateModify . $start).UnixNano $start.UnixNano -}}
{{- end -}}

{{/* A duration of Prometheus, above 0. */}}
{{- define "noonlock.isPrometheusDuration" -}}
{{- if and (regexMatch "[1-9]" .) (regexMatch "^([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$" .) -}}yes{{- end -}}
{{- end -}}

{{/* Whether a URL contains a user or a password. It must not be shown then. */}}
{{- define "noonlock.hasPassword" -}}
{{- if or (contains "@" .) (regexMatch "[?&]([a-z_]*password|sentinel_username)=" .) -}}yes{{- end -}}
{{- end -}}

{{- define "noonlock.given" -}}
{{- if . -}}{{ join " and " . }} {{ if eq (len .) 1 }}is{{ else }}are{{ end }} given{{- else -}}none is given{{- end -}}
{{- end -}}

{{/* Text if a value is not the TTL of a lease. Takes (list name value). */}}
{{- define "noonlock.wrongLease" -}}
{{- $lease := include "noonlock.nanoseconds" (index . 1) | int64 -}}
{{- if or (lt $lease 100000000) (gt $lease 86400000000000) (mod $lease 1000000) -}}
{{ index . 0 }} is {{ index . 1 | quote }}; it must be a duration in whole milliseconds from 100ms to 24h, such as 10s
{{- end -}}
{{- end -}}

{{/* Text if the NetworkPolicy blocks a port of a URL. Takes (list context name URL port), the last one for hosts without one. */}}
{{- define "noonlock.wrongPort" -}}
{{- $policy := (index . 0).Values.networkPolicy -}}
{{- $open := list -}}
{{- range $policy.egressPorts }}{{ $open = append $open (toString .) }}{{ end -}}
{{- $name := index . 1 -}}
{{- $port := index . 3 -}}
{{- $blocked := list -}}
{{- range $host := regexFind "//[^/?#]*" (index . 2) | splitList "," -}}
{{- $blocked = append $blocked (regexFind ":[0-9]+$" $host | trimPrefix ":" | default $port) -}}
{{- end -}}
{{- range $port := $open }}{{ $blocked = without $blocked $port }}{{ end -}}
{{- with uniq $blocked -}}
{{- if $policy.enabled -}}
{{ $name }} has the port {{ join " and " . }}, which networkPolicy blocks; networkPolicy.egressPorts must contain it
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The errors of the values that both charts have, as a list in JSON. Takes a dict: the context, the
names of the chart's own containers, volumes, mountPaths and annotations, the label maps, and whether several
URLs are allowed.
*/}}
{{- define "noonlock.wrong" -}}
{{- $own := . -}}
{{- $wrong := list -}}
{{- $v := .context.Values -}}
{{- if not $v.enabled -}}
{{- $wrong = append $wrong "enabled is false; only a parent chart uses it, as the condition of its dependency on this chart" -}}
{{- end -}}
{{- $fullname := include "noonlock.fullname" .context -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $fullname) -}}
{{- $wrong = append $wrong (printf "the objects would have the name %q; the name of a Service must consist of lower-case letters, digits and dashes, and must begin with a letter: set fullnameOverride" $fullname) -}}
{{- end -}}

{{- $urls := regexSplit "\\s+" (trim $v.redis.url) -1 -}}
{{- if and (gt (len $urls) 1) (or (not .several) (not (has (len $urls) (list 3 5 7 9)))) -}}
{{- $wrong = append $wrong (printf "redis.url has %d URLs; it must have one, or with elect.enabled and without the page those of 3, 5, 7 or 9 independent servers" (len $urls)) -}}
{{- end -}}
{{- range $url := compact $urls -}}
{{- if include "noonlock.hasPassword" $url -}}
{{- $wrong = append $wrong "redis.url contains a user or a password; these must be in redis.auth" -}}
{{- else if not (regexMatch "^rediss?(\\+sentinel|\\+cluster)?://[^/?#]" $url) -}}
{{- $wrong = append $wrong (printf "redis.url is %q; it must begin with redis://, redis+sentinel:// or redis+cluster://, or with rediss in place of redis, and name a host" $url) -}}
{{- else if and (regexMatch "^rediss?\\+sentinel:" $url) (not (regexMatch "[?&]master=[^&]" $url)) -}}
{{- $wrong = append $wrong (printf "redis.url is %q; with Sentinel it must have the parameter master" $url) -}}
{{- else -}}
{{- $wrong = append $wrong (include "noonlock.wrongPort" (list $own.context "redis.url" $url (ternary "26379" "6379" (contains "+sentinel:" $url)))) -}}
{{- end -}}
{{- if and (include "noonlock.certificates" $v.redis.tls) (not (hasPrefix "rediss" $url)) -}}
{{- $wrong = append $wrong "redis.tls names certificates; then redis.url must begin with rediss" -}}
{{- end -}}
{{- if and $v.redis.auth.sentinelPasswordKey (not (regexMatch "^rediss?\\+sentinel:" $url)) -}}
{{- $wrong = append $wrong "redis.auth.sentinelPasswordKey is given; then redis.url must begin with redis+sentinel or rediss+sentinel" -}}
{{- end -}}
{{- end -}}
{{- if and $v.redis.auth.existingSecret $v.redis.existingSecret -}}
{{- $wrong = append $wrong "redis.auth.existingSecret and redis.existingSecret are given; with the URL in a Secret, its passwords must be there, too" -}}
{{- end -}}
{{- if and $v.redis.auth.username (not (and $v.redis.auth.existingSecret $v.redis.auth.passwordKey)) -}}
{{- $wrong = append $wrong "redis.auth.username is given; then redis.auth.existingSecret and redis.auth.passwordKey must name its password" -}}
{{- end -}}
{{- if and $v.redis.auth.sentinelPasswordKey (not $v.redis.auth.existingSecret) -}}
{{- $wrong = append $wrong "redis.auth.sentinelPasswordKey is given; then redis.auth.existingSecret must be, too" -}}
{{- end -}}
{{- range $server := list "redis" "database" -}}
{{- with ((index $v $server) | default dict).tls -}}
{{- if and .ca.existingSecret .ca.configMap -}}
{{- $wrong = append $wrong (printf "of %s.tls.ca.existingSecret and %s.tls.ca.configMap, both are given; there must be at most one" $server $server) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- range $kind := list "serviceMonitor" "podMonitor" -}}
{{- with index $v.monitoring $kind -}}
{{- if not (include "noonlock.isPrometheusDuration" .interval) -}}
{{- $wrong = append $wrong (printf "monitoring.%s.interval is %q; it must be a duration such as 30s or 1m30s" $kind .interval) -}}
{{- end -}}
{{- if and .scrapeTimeout (not (include "noonlock.isPrometheusDuration" .scrapeTimeout)) -}}
{{- $wrong = append $wrong (printf "monitoring.%s.scrapeTimeout is %q; it must be a duration such as 10s, or empty for that of Prometheus" $kind .scrapeTimeout) -}}
{{- else if gt (include "noonlock.nanoseconds" .scrapeTimeout | int64) (include "noonlock.nanoseconds" .interval | int64) -}}
{{- $wrong = append $wrong (printf "monitoring.%s.scrapeTimeout is %q; it must be at most the interval, %s" $kind .scrapeTimeout .interval) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.dnsPolicy "None") (not (dig "nameservers" list ($v.dnsConfig | default dict))) -}}
{{- $wrong = append $wrong "dnsPolicy is None; then dnsConfig.nameservers must name a server" -}}
{{- end -}}

{{/* A duplicate key is invalid YAML, and users must not change these keys. */}}
{{- $maps := dict "podAnnotations" $v.podAnnotations "commonLabels" $v.commonLabels "podLabels" $v.podLabels -}}
{{- range $name, $part := $v.monitoring }}{{ $maps = set $maps (printf "monitoring.%s.labels" $name) $part.labels }}{{ end -}}
{{- $keys := list "helm.sh/chart" -}}
{{- range $key := list "name" "instance" "component" "version" "managed-by" }}{{ $keys = append $keys (printf "app.kubernetes.io/%s" $key) }}{{ end -}}
{{- range $where, $of := $maps -}}
{{- range $key, $_ := $of -}}
{{- if has $key (eq $where "podAnnotations" | ternary $own.annotations $keys) -}}
{{- $wrong = append $wrong (printf "%s has %s, which is the chart's own; leave it out" $where $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $where, $names := dict "initContainers" .containers "extraContainers" .containers "extraVolumes" .volumes -}}
{{- range $i, $item := index $v $where -}}
{{- if has $item.name $names -}}
{{- $wrong = append $wrong (printf "%s[%d].name is %q, which is the chart's own; use another name" $where $i $item.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $i, $mount := $v.extraVolumeMounts -}}
{{- if has (clean $mount.mountPath) $own.mountPaths -}}
{{- $wrong = append $wrong (printf "extraVolumeMounts[%d].mountPath is %q, which is the chart's own; use another path" $i $mount.mountPath) -}}
{{- end -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end -}}

{{/* Refuses the values if there are errors. Takes a list of them, in which empty ones count for nothing. */}}
{{- define "noonlock.refuse" -}}
{{- with compact . | uniq -}}
{{- fail (printf "\n\nThese values are refused:\n  * %s\n" (join "\n  * " .)) -}}
{{- end -}}
{{- end -}}
