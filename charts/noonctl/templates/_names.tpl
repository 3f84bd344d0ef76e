{{- define "noonctl.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end -}}

{{/* The name of the objects. A release name has at most 53 characters. */}}
{{- define "noonctl.fullname" -}}
{{- $name := include "noonctl.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of the page's objects. */}}
{{- define "noonctl.page" -}}
{{ include "noonctl.fullname" . | trunc 58 | trimSuffix "-" }}-page
{{- end -}}

{{- define "noonctl.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "noonctl.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* The labels that select the pods. They must never change. Takes (list context component). */}}
{{- define "noonctl.selector" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: {{ include "noonctl.name" $ }}
app.kubernetes.io/instance: {{ $.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/*
The labels of the pods of a template. Without the versions of the chart and the program, a new
version of the chart alone replaces no pod. Takes (list context component labels…). The last ones
win.
*/}}
{{- define "noonctl.podLabels" -}}
{{- $ := index . 0 -}}
{{- $labels := dict -}}
{{- range prepend (slice . 2) $.Values.commonLabels -}}
{{- $labels = mergeOverwrite $labels (. | default dict) -}}
{{- end -}}
{{ include "noonctl.selector" . }}
{{- with $labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels of an object, with the same arguments. */}}
{{- define "noonctl.labels" -}}
{{- $ := index . 0 -}}
{{ include "noonctl.podLabels" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The name of an image, in the registry for all charts if there is one. Takes (list context image). */}}
{{- define "noonctl.image" -}}
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
