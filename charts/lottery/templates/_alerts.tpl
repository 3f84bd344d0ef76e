{{/*
An expression that is true if a counter has increased in the last 15 minutes. The function
increase does not see increases before the first scrape of a process. For a process younger
than 15 minutes, the whole value therefore counts. The age of the process decides, not that of
its series, because all series are new after an outage of Prometheus.
Takes (list target label counter).
*/}}
{{- define "lottery.counted" -}}
{{- $by := printf "sum by (%s)" (list "namespace" "job" (index . 1) | compact | join ", ") -}}
{{- $counter := index . 2 -}}
{{ $by }} (increase({{ $counter }}[15m])) > 0 or {{ $by }} ({{ $counter }} and on (namespace, job, pod, instance) (time() - process_start_time_seconds{ {{- index . 0 -}} } < 900)) > 0
{{- end -}}
