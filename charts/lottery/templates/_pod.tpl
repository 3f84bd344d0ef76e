{{/* The affinity of pods that use the database. Takes (list context affinity). */}}
{{- define "lottery.affinity" -}}
{{- $affinity := index . 1 | default dict -}}
{{- with index . 0 -}}
{{- if include "lottery.sqlite" . -}}
{{- /* All pods that open the SQLite file run on one node. */ -}}
{{- $labels := include "noonlock.selector" (list . "replica") | fromYaml -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) -}}
{{- $affinity = merge (dict "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term))) $affinity -}}
{{- end -}}
{{- end -}}
{{- with $affinity -}}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Settings of the containers that run the lottery. */}}
{{- define "lottery.container" -}}
image: {{ include "noonlock.image" (list . .Values.image) | quote }}
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

{{/* Variables that `serve` and `verify` both have. */}}
{{- define "lottery.env" -}}
{{- include "noonlock.redis" (list . "LOTTERY") }}
{{- if include "lottery.redis.bundled" . }}
- name: LOTTERY_REDIS
  value: redis://{{ include "lottery.redis.fullname" . }}:6379/0
{{- end }}
- name: LOTTERY_DATABASE
{{- if include "lottery.sqlite" . }}
  value: sqlite:/var/lib/lottery/lottery.db
{{- else if .Values.database.url }}
  value: {{ .Values.database.url | quote }}
{{- with .Values.database.auth }}
{{- if .existingSecret }}
{{- include "noonlock.password" (list "LOTTERY_DATABASE_PASSWORD" .existingSecret .passwordKey) }}
{{- end }}
{{- end }}
{{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.existingSecret | quote }}
      key: {{ .Values.database.secretKey | quote }}
{{- end }}
{{- range $server := list "redis" "database" }}
{{- include "noonlock.certificateEnv" (list (index $.Values $server).tls (printf "LOTTERY_%s" (upper $server)) (printf "/etc/lottery-tls/%s" $server)) }}
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
{{- if .Values.lottery.statusz }}
- name: LOTTERY_STATUSZ
  value: "true"
{{- with .Values.lottery.statuszHosts }}
- name: LOTTERY_STATUSZ_HOST
  value: {{ join " " . | quote }}
{{- end }}
{{- end }}
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
{{- include "noonlock.certificateMount" (list (index $.Values $server).tls (printf "%s-tls" $server) (printf "/etc/lottery-tls/%s" $server)) }}
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
    claimName: {{ include "noonlock.fullname" . }}
{{- end }}
{{- range $server := list "redis" "database" }}
{{- include "noonlock.certificateVolume" (list (index $.Values $server).tls (printf "%s-tls" $server)) }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
