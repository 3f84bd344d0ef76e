{{- define "lottery.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end -}}

{{/* The name of the objects. A release name has at most 53 characters. */}}
{{- define "lottery.fullname" -}}
{{- $name := include "lottery.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/*
The name of the bundled Redis, at most 52 characters: Kubernetes adds a dash and a hash of 10
characters, and uses the result as a label, which has at most 63. The hash in a shortened name
keeps apart the objects of two releases with the same beginning.
*/}}
{{- define "lottery.redis.fullname" -}}
{{- $name := include "lottery.fullname" . -}}
{{- if gt (len $name) 46 -}}
{{- $name = printf "%s-%s" ($name | trunc 37 | trimSuffix "-") ($name | sha256sum | trunc 8) -}}
{{- end -}}
{{- $name }}-redis
{{- end -}}

{{/* Text if the release has its own Redis. */}}
{{- define "lottery.redis.bundled" -}}
{{- if or .Values.redis.enabled .Values.firstTry -}}yes{{- end -}}
{{- end -}}

{{/* Text if the database is a SQLite file. */}}
{{- define "lottery.sqlite" -}}
{{- if or .Values.database.sqlite.enabled .Values.firstTry -}}yes{{- end -}}
{{- end -}}

{{/* The list of entrants, if it is not in an existing ConfigMap or volume. */}}
{{- define "lottery.entrants" -}}
{{- if .Values.entrants.inline -}}
{{- .Values.entrants.inline -}}
{{- else if and .Values.firstTry (not .Values.entrants.configMap) (not .Values.entrants.claim) -}}
{{- .Files.Get "files/entrants.csv" -}}
{{- end -}}
{{- end -}}

{{- define "lottery.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "lottery.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* The labels that select the pods. They must never change. Takes (list context component). */}}
{{- define "lottery.selector" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: {{ include "lottery.name" $ }}
app.kubernetes.io/instance: {{ $.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/*
The labels of the pods of a template. Without the versions of the chart and the program, a new
version of the chart alone replaces no pod. Takes (list context component labels…). The last ones
win.
*/}}
{{- define "lottery.podLabels" -}}
{{- $ := index . 0 -}}
{{- $labels := dict -}}
{{- range prepend (slice . 2) $.Values.commonLabels -}}
{{- $labels = mergeOverwrite $labels (. | default dict) -}}
{{- end -}}
{{ include "lottery.selector" . }}
{{- with $labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels of an object, with the same arguments. */}}
{{- define "lottery.labels" -}}
{{- $ := index . 0 -}}
{{ include "lottery.podLabels" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The name of an image, in the registry for all charts if there is one. Takes (list context image). */}}
{{- define "lottery.image" -}}
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
