{{/*
Whether a counter has counted something in the last 15 minutes. increase does not see
what was counted before a process was first scraped: of one that is younger than that,
everything counts. (That it is new to Prometheus would not do: so is everything after
Prometheus was away.) Takes (list target label counter).
*/}}
{{- define "lottery.counted" -}}
{{- $by := printf "sum by (%s)" (list "namespace" "job" (index . 1) | compact | join ", ") -}}
{{- $counter := index . 2 -}}
{{ $by }} (increase({{ $counter }}[15m])) > 0 or {{ $by }} ({{ $counter }} and on (namespace, job, pod, instance) (time() - process_start_time_seconds{ {{- index . 0 -}} } < 900)) > 0
{{- end -}}
