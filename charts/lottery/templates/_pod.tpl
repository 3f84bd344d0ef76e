{{/* What the serving pods and the pod of `helm test` have in common. */}}

{{/* The restricted Pod Security Standard. */}}
{{- define "lottery.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "lottery.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Settings that `serve` and `verify` both have. */}}
{{- define "lottery.env" -}}
- name: LOTTERY_REDIS
  valueFrom:
    secretKeyRef:
      name: {{ ternary (include "lottery.redis.fullname" .) .Values.redis.existingSecret .Values.redis.enabled | quote }}
      key: {{ ternary "url" .Values.redis.secretKey .Values.redis.enabled | quote }}
- name: LOTTERY_DATABASE
{{- if .Values.database.sqlite.enabled }}
  value: sqlite:/var/lib/lottery/lottery.db
{{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.existingSecret | quote }}
      key: {{ .Values.database.secretKey | quote }}
{{- end }}
- name: LOTTERY_SCHEDULE
  value: {{ .Values.lottery.schedule | quote }}
- name: LOTTERY_TIME_ZONE
  value: {{ .Values.lottery.timeZone | quote }}
- name: LOTTERY_WINNERS
  value: {{ .Values.lottery.winners | int | quote }}
{{- end -}}

{{- define "lottery.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.database.sqlite.enabled }}
# All pods that open the SQLite file run on one node.
affinity:
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "lottery.selector" (list . "replica") | nindent 12 }}
{{- end }}
{{- end -}}
