{{/* Settings of all pods: the replicas, the pod of `helm test`, and the bundled Redis. */}}
{{- define "lottery.pod" -}}
serviceAccountName: {{ include "lottery.serviceAccount" . | quote }}
automountServiceAccountToken: false
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

{{/* The affinity of pods that use the database. Takes (list context affinity). */}}
{{- define "lottery.affinity" -}}
{{- $affinity := index . 1 | default dict -}}
{{- with index . 0 -}}
{{- if include "lottery.sqlite" . -}}
{{- /* All pods that open the SQLite file run on one node. */ -}}
{{- $labels := include "lottery.selector" (list . "replica") | fromYaml -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) -}}
{{- $affinity = merge (dict "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term))) $affinity -}}
{{- end -}}
{{- end -}}
{{- with $affinity -}}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* How the replicas are spread. All of them run, even with too few nodes or zones. */}}
{{- define "lottery.spread" -}}
{{- $selector := dict "matchLabels" (include "lottery.selector" (list . "replica") | fromYaml) -}}
{{- $constraints := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $constraints = append $constraints (hasKey . "labelSelector" | ternary . (set (deepCopy .) "labelSelector" $selector)) -}}
{{- end -}}
{{- if not (or .Values.topologySpreadConstraints (include "lottery.sqlite" .)) -}}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" -}}
{{- /* The pods of each rollout are spread separately. */ -}}
{{- $constraints = append $constraints (dict "topologyKey" . "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" $selector "matchLabelKeys" (list "pod-template-hash")) -}}
{{- end -}}
{{- end -}}
{{- with $constraints -}}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Settings of the containers that run the lottery. */}}
{{- define "lottery.container" -}}
image: {{ include "lottery.image" (list . .Values.image) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A variable from a Secret, if the key is set. Takes (list variable secret key). */}}
{{- define "lottery.password" -}}
{{- if index . 2 }}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 | quote }}
      key: {{ index . 2 | quote }}
{{- end }}
{{- end -}}

{{/* Variables that `serve` and `verify` both have. */}}
{{- define "lottery.env" -}}
- name: LOTTERY_REDIS
{{- if include "lottery.redis.bundled" . }}
  value: redis://{{ include "lottery.redis.fullname" . }}:6379/0
{{- else if .Values.redis.url }}
  value: {{ .Values.redis.url | quote }}
{{- with .Values.redis.auth }}
{{- if .existingSecret }}
{{- include "lottery.password" (list "LOTTERY_REDIS_PASSWORD" .existingSecret .passwordKey) }}
{{- include "lottery.password" (list "LOTTERY_REDIS_SENTINEL_PASSWORD" .existingSecret .sentinelPasswordKey) }}
{{- with .username }}
- name: LOTTERY_REDIS_USERNAME
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.redis.existingSecret | quote }}
      key: {{ .Values.redis.secretKey | quote }}
{{- end }}
- name: LOTTERY_DATABASE
{{- if include "lottery.sqlite" . }}
  value: sqlite:/var/lib/lottery/lottery.db
{{- else if .Values.database.url }}
  value: {{ .Values.database.url | quote }}
{{- with .Values.database.auth }}
{{- if .existingSecret }}
{{- include "lottery.password" (list "LOTTERY_DATABASE_PASSWORD" .existingSecret .passwordKey) }}
{{- end }}
{{- end }}
{{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.existingSecret | quote }}
      key: {{ .Values.database.secretKey | quote }}
{{- end }}
{{- range $server := list "redis" "database" }}
{{- $tls := (index $.Values $server).tls }}
{{- if or $tls.ca.existingSecret $tls.ca.configMap }}
- name: LOTTERY_{{ upper $server }}_CA
  value: /etc/lottery-tls/{{ $server }}/ca.crt
{{- end }}
{{- if $tls.client.existingSecret }}
- name: LOTTERY_{{ upper $server }}_CERT
  value: /etc/lottery-tls/{{ $server }}/tls.crt
- name: LOTTERY_{{ upper $server }}_KEY
  value: /etc/lottery-tls/{{ $server }}/tls.key
{{- end }}
{{- end }}
- name: LOTTERY_SCHEDULE
  value: {{ .Values.lottery.schedule | quote }}
- name: LOTTERY_TIME_ZONE
  value: {{ .Values.lottery.timeZone | quote }}
- name: LOTTERY_WINNERS
  value: {{ .Values.lottery.winners | int | quote }}
{{- end -}}

{{/* Variables that only `serve` has. */}}
{{- define "lottery.serveEnv" -}}
- name: LOTTERY_IDENTITY
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: LOTTERY_ENTRANTS
  value: {{ printf "/etc/lottery/%s" .Values.entrants.file | quote }}
- name: LOTTERY_LEASE
  value: {{ .Values.lottery.lease | quote }}
- name: LOTTERY_DRAIN
  value: {{ printf "%ds" (int .Values.lottery.drainSeconds) | quote }}
- name: LOTTERY_HTTP
  value: ":8080"
- name: LOTTERY_LOG_FORMAT
  value: {{ .Values.lottery.logFormat }}
{{- if .Values.lottery.statusz }}
- name: LOTTERY_STATUSZ
  value: "on"
{{- with .Values.lottery.statuszHosts }}
- name: LOTTERY_STATUSZ_HOST
  value: {{ join " " . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The Secrets and ConfigMaps with the certificates for a server, as sources of a volume. */}}
{{- define "lottery.certificates" -}}
{{- $sources := list -}}
{{- $authorities := list (dict "key" .ca.file "path" "ca.crt") -}}
{{- with .ca.existingSecret }}{{ $sources = append $sources (dict "secret" (dict "name" . "items" $authorities)) }}{{ end -}}
{{- with .ca.configMap }}{{ $sources = append $sources (dict "configMap" (dict "name" . "items" $authorities)) }}{{ end -}}
{{- $pair := list (dict "key" .client.certFile "path" "tls.crt") (dict "key" .client.keyFile "path" "tls.key") -}}
{{- with .client.existingSecret }}{{ $sources = append $sources (dict "secret" (dict "name" . "items" $pair)) }}{{ end -}}
{{- with $sources }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* Mounts and volumes that `serve` and `verify` both have. */}}
{{- define "lottery.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- if include "lottery.sqlite" . }}
- name: database
  mountPath: /var/lib/lottery
{{- end }}
{{- range $server := list "redis" "database" }}
{{- if include "lottery.certificates" (index $.Values $server).tls }}
- name: {{ $server }}-tls
  mountPath: /etc/lottery-tls/{{ $server }}
  readOnly: true
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "lottery.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- if include "lottery.sqlite" . }}
- name: database
  persistentVolumeClaim:
    claimName: {{ include "lottery.fullname" . }}
{{- end }}
{{- range $server := list "redis" "database" }}
{{- with include "lottery.certificates" (index $.Values $server).tls }}
- name: {{ $server }}-tls
  projected:
    sources:
      {{- . | nindent 6 }}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
