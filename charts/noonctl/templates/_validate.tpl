{{/*
Checks that values.schema.json cannot express, or not with a clear message. All errors are
reported together.
*/}}
{{- define "noonctl.validate" -}}
{{- $wrong := list -}}
{{- $v := .Values -}}

{{- $modes := list -}}
{{- if $v.cron.schedule }}{{ $modes = append $modes "cron.schedule" }}{{ end -}}
{{- if $v.cron.crontab }}{{ $modes = append $modes "cron.crontab" }}{{ end -}}
{{- if $v.elect.enabled }}{{ $modes = append $modes "elect.enabled" }}{{ end -}}
{{- if and $v.cron.crontab (or $v.command $v.name) -}}
{{- $wrong = append $wrong "cron.crontab is given; then command and name must be empty, because each line of the file has its own" -}}
{{- end -}}
{{- if include "noonctl.runs" . -}}
{{- if ne (len $modes) 1 -}}
{{- $wrong = append $wrong (printf "of cron.schedule, cron.crontab and elect.enabled, %s; with a command there must be exactly one" (include "noonlock.given" $modes)) -}}
{{- end -}}
{{- if not $v.image.repository -}}
{{- $wrong = append $wrong "image.repository is empty; it must name the image that contains the command" -}}
{{- else if not (or $v.image.tag $v.image.digest) -}}
{{- $wrong = append $wrong "image.tag and image.digest are empty; one of them must be set" -}}
{{- end -}}
{{- else if or $modes (not $v.serve.enabled) -}}
{{- $wrong = append $wrong "command is empty; it must be a program and its arguments, such as [python, nightly.py]. A page alone and cron.crontab need none, without cron.schedule and elect.enabled" -}}
{{- end -}}
{{- if and $v.serve.enabled (not $v.serve.existingSecret) -}}
{{- $wrong = append $wrong "serve.enabled is true; then serve.existingSecret must name the Secret with the password of the page" -}}
{{- end -}}

{{- if eq (empty $v.redis.url) (empty $v.redis.existingSecret) -}}
{{- $wrong = append $wrong (printf "of redis.url and redis.existingSecret, %s; there must be exactly one" (empty $v.redis.url | ternary "none is given" "both are given")) -}}
{{- end -}}
{{- if and (not $v.redis.url) $v.redis.auth.existingSecret -}}
{{- $wrong = append $wrong "redis.auth.existingSecret is given; it is only for redis.url" -}}
{{- end -}}
{{- if not (or (include "noonctl.runs" .) $v.prefix) -}}
{{- $wrong = append $wrong "prefix is empty; a page without a command needs the prefix of what it shows, such as noonlock:default/reports, the default of the release reports" -}}
{{- end -}}

{{- $wrong = append $wrong (include "noonlock.wrongLease" (list "cron.ttl" $v.cron.ttl)) -}}
{{- $wrong = append $wrong (include "noonlock.wrongLease" (list "elect.lease" $v.elect.lease)) -}}
{{- if and $v.cron.runTimeout (le (include "noonlock.nanoseconds" $v.cron.runTimeout | int64) 0) -}}
{{- $wrong = append $wrong (printf "cron.runTimeout is %q; it must be a duration such as 1h30m, or empty for no limit" $v.cron.runTimeout) -}}
{{- end -}}
{{- $least := add $v.cron.drainSeconds $v.cron.killAfterSeconds 10 | int -}}
{{- if and (or $v.cron.schedule $v.cron.crontab) (lt (int $v.terminationGracePeriodSeconds) $least) -}}
{{- $wrong = append $wrong (printf "terminationGracePeriodSeconds is %d; it must be at least cron.drainSeconds + cron.killAfterSeconds + 10, %d, or a pod is killed before its run is recorded" (int $v.terminationGracePeriodSeconds) $least) -}}
{{- end -}}

{{- $own := list "redis" "redis-ca" "redis-cert" "redis-key" "time-zone" "run-timeout" "max-attempts" "catch-up" "ttl" "drain" "kill-after" "lease" "identity" "metrics" "prefix" "file" "pod-label" (ternary "revision" "" (ne $v.cron.crontab "")) -}}
{{- range $i, $flag := $v.flags -}}
{{- if has (regexFind "^--[a-z-]+" $flag | trimPrefix "--") $own -}}
{{- $wrong = append $wrong (printf "flags[%d] is %q, which the chart sets; use its value" $i $flag) -}}
{{- end -}}
{{- end -}}
{{- if and $v.elect.podLabel (not $v.elect.enabled) -}}
{{- $wrong = append $wrong "elect.podLabel is given; it is only for elect.enabled" -}}
{{- end -}}
{{- range $i, $variable := $v.env -}}
{{- if or (eq $variable.name "POD_NAME") (hasPrefix "NOONLOCK_" $variable.name) -}}
{{- $wrong = append $wrong (printf "env[%d].name is %s, which the chart or noonctl sets; use another name" $i $variable.name) -}}
{{- end -}}
{{- end -}}
{{- $own := dict "context" . "containers" (list "noonctl" "command") "volumes" (list "noonctl" "tmp" "crontab" "redis-tls")
  "mountPaths" (list "/noonlock" "/tmp" "/etc/noonctl/cron" "/etc/noonctl/redis") "annotations" (list "kubectl.kubernetes.io/default-container")
  "several" (and $v.elect.enabled (not $v.serve.enabled)) -}}
{{- include "noonlock.refuse" (concat (include "noonlock.wrong" $own | fromJsonArray) $wrong) -}}
{{- end -}}
