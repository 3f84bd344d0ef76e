{{/*
Checks that values.schema.json cannot express, or not with a clear message. All errors are
reported together.
*/}}
{{- define "noonctl.validate" -}}
{{- $wrong := list -}}
{{- $v := .Values -}}

{{- if not $v.enabled -}}
{{- $wrong = append $wrong "enabled is false; only a parent chart uses it, as the condition of its dependency on this chart" -}}
{{- end -}}
{{- $fullname := include "noonctl.fullname" . -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $fullname) -}}
{{- $wrong = append $wrong (printf "the objects would have the name %q; the name of a Service must consist of lower-case letters, digits and dashes, and must begin with a letter: set fullnameOverride" $fullname) -}}
{{- end -}}

{{- $modes := list -}}
{{- if $v.cron.schedule }}{{ $modes = append $modes "cron.schedule" }}{{ end -}}
{{- if $v.elect.enabled }}{{ $modes = append $modes "elect.enabled" }}{{ end -}}
{{- if $v.command -}}
{{- if ne (len $modes) 1 -}}
{{- $wrong = append $wrong (printf "of cron.schedule and elect.enabled, %s; with a command there must be exactly one" (ternary "both are given" "none is given" (gt (len $modes) 1))) -}}
{{- end -}}
{{- if not $v.image.repository -}}
{{- $wrong = append $wrong "image.repository is empty; it must name the image that contains the command" -}}
{{- else if not (or $v.image.tag $v.image.digest) -}}
{{- $wrong = append $wrong "image.tag and image.digest are empty; one of them must be set" -}}
{{- end -}}
{{- else if or $modes (not $v.serve.enabled) -}}
{{- $wrong = append $wrong "command is empty; it must be a program and its arguments, such as [python, nightly.py]. Only a page alone needs none, with serve.enabled and neither cron.schedule nor elect.enabled" -}}
{{- end -}}
{{- if and $v.serve.enabled (not $v.serve.existingSecret) -}}
{{- $wrong = append $wrong "serve.enabled is true; then serve.existingSecret must name the Secret with the password of the page" -}}
{{- end -}}

{{- if eq (empty $v.redis.url) (empty $v.redis.existingSecret) -}}
{{- $wrong = append $wrong (printf "of redis.url and redis.existingSecret, %s; there must be exactly one" (empty $v.redis.url | ternary "none is given" "both are given")) -}}
{{- else if $v.redis.url -}}
{{- if or (contains "@" $v.redis.url) (regexMatch "[?&]([a-z_]*password|sentinel_username)=" $v.redis.url) -}}
{{- $wrong = append $wrong "redis.url contains a user or a password; put the whole URL in a Secret, and name it in redis.existingSecret" -}}
{{- else if not (regexMatch "^rediss?(\\+sentinel|\\+cluster)?://[^/?#]" $v.redis.url) -}}
{{- $wrong = append $wrong (printf "redis.url is %q; it must begin with redis://, redis+sentinel:// or redis+cluster://, or with rediss in place of redis, and name a host" $v.redis.url) -}}
{{- else if and (include "noonctl.certificates" .) (not (hasPrefix "rediss" $v.redis.url)) -}}
{{- $wrong = append $wrong "redis.tls names certificates; then redis.url must begin with rediss" -}}
{{- end -}}
{{- end -}}
{{- if and $v.redis.tls.ca.existingSecret $v.redis.tls.ca.configMap -}}
{{- $wrong = append $wrong "of redis.tls.ca.existingSecret and redis.tls.ca.configMap, both are given; there must be at most one" -}}
{{- end -}}

{{- range $field, $least := dict "cron.ttl" "1s" "cron.runTimeout" "" "elect.lease" "1s" -}}
{{- $part := split "." $field -}}
{{- $value := index $v $part._0 $part._1 -}}
{{- if and (or $value $least) (not (regexMatch "^([0-9]+(\\.[0-9]+)?(h|m|s|ms))+$" $value)) -}}
{{- $wrong = append $wrong (printf "%s is %q; it must be a duration such as 10s or 1h30m" $field $value) -}}
{{- end -}}
{{- end -}}
{{- $least := add $v.cron.drainSeconds $v.cron.killAfterSeconds 10 | int -}}
{{- if and $v.cron.schedule (lt (int $v.terminationGracePeriodSeconds) $least) -}}
{{- $wrong = append $wrong (printf "terminationGracePeriodSeconds is %d; it must be at least cron.drainSeconds + cron.killAfterSeconds + 10, %d, or a pod is killed before its run is recorded" (int $v.terminationGracePeriodSeconds) $least) -}}
{{- end -}}

{{- $own := list "redis" "redis-ca" "redis-cert" "redis-key" "time-zone" "run-timeout" "max-attempts" "catch-up" "ttl" "drain" "kill-after" "lease" "identity" "metrics" -}}
{{- range $i, $flag := $v.flags -}}
{{- if has (regexFind "^--[a-z-]+" $flag | trimPrefix "--") $own -}}
{{- $wrong = append $wrong (printf "flags[%d] is %q, which the chart sets; use its value" $i $flag) -}}
{{- end -}}
{{- end -}}
{{- range $i, $variable := $v.env -}}
{{- if or (eq $variable.name "POD_NAME") (hasPrefix "NOONLOCK_" $variable.name) -}}
{{- $wrong = append $wrong (printf "env[%d].name is %s, which the chart or noonctl sets; use another name" $i $variable.name) -}}
{{- end -}}
{{- end -}}
{{- range $where, $names := dict "initContainers" (list "noonctl" "command") "extraVolumes" (list "noonctl" "tmp" "redis-tls") -}}
{{- range $i, $item := index $v $where -}}
{{- if has $item.name $names -}}
{{- $wrong = append $wrong (printf "%s[%d].name is %q, which is the chart's own; use another name" $where $i $item.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $i, $mount := $v.extraVolumeMounts -}}
{{- if has (clean $mount.mountPath) (list "/noonlock" "/tmp" "/etc/noonctl/redis") -}}
{{- $wrong = append $wrong (printf "extraVolumeMounts[%d].mountPath is %q, which is the chart's own; use another path" $i $mount.mountPath) -}}
{{- end -}}
{{- end -}}
{{- $own := list "helm.sh/chart" -}}
{{- range $key := list "name" "instance" "component" "version" "managed-by" }}{{ $own = append $own (printf "app.kubernetes.io/%s" $key) }}{{ end -}}
{{- range $where, $labels := dict "commonLabels" $v.commonLabels "podLabels" $v.podLabels "metrics.podMonitor.labels" $v.metrics.podMonitor.labels -}}
{{- range $key, $_ := $labels -}}
{{- if has $key $own -}}
{{- $wrong = append $wrong (printf "%s has %s, which is the chart's own; leave it out" $where $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if hasKey ($v.podAnnotations | default dict) "kubectl.kubernetes.io/default-container" -}}
{{- $wrong = append $wrong "podAnnotations has kubectl.kubernetes.io/default-container, which is the chart's own; leave it out" -}}
{{- end -}}

{{- if $wrong -}}
{{- fail (printf "\n\nThese values are refused:\n  * %s\n" (join "\n  * " $wrong)) -}}
{{- end -}}
{{- end -}}
