#!/usr/bin/env bash
# Checks the charts and the manifests of the examples without a cluster:
#   - helm lint, and the suites of helm-unittest;
#   - that each set of values renders the same again, also in an upgrade;
#   - each rendered object, and the manifests of the examples, against the API schemas of Kubernetes
#     and the Prometheus operator;
#   - the alerts and the dashboard with the code of Prometheus, by day only after a change;
#   - that a parent chart can install both charts, and charts/lottery under a condition;
#   - that both charts have the same helpers and definitions, and that a packaged chart renders the same;
#   - that the READMEs match the values, and that the chart accepts their commands.
# After a failed check, the others still run. The schemas come from Go modules; nothing else
# is downloaded.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

kubernetes=v1.34.4
operator=v0.85.0

export GOWORK=off GOTOOLCHAIN=local GOFLAGS="${GOFLAGS:-} -buildvcs=false"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

# shellcheck source=scripts/since.sh
. scripts/since.sh
failed=()
check() {
	echo "== $*"
	"$@" || failed+=("$*")
}

tool() {
	bash scripts/chart-tool.sh "$@"
}
for name in helm helm-unittest helm-docs kubectl-validate; do
	tool --path "$name" >/dev/null || { echo "$name cannot be built"; exit 1; }
done

lottery=charts/lottery/tests
first_try=(--values "$lottery/first-try.yaml")
bundled=(--values "$lottery/bundled.yaml")
everything=("${bundled[@]}"
	--set "networkPolicy.enabled=true,monitoring.serviceMonitor.enabled=true,monitoring.rules.enabled=true,monitoring.dashboard.enabled=true"
	--set "nodeSelector.disk=ssd,podAnnotations.a=b,podLabels.a=b,commonLabels.a=b,deploymentAnnotations.a=b,service.annotations.a=b"
	--set "imagePullSecrets[0].name=s,serviceAccount.annotations.a=b,priorityClassName=high,tolerations[0].operator=Exists"
	--set "env[0].name=A,env[0].value=b,envFrom[0].secretRef.name=s,extraVolumes[0].name=v,extraVolumes[0].emptyDir.medium=Memory"
	--set "extraVolumeMounts[0].name=v,extraVolumeMounts[0].mountPath=/v,strategy.type=Recreate"
	--set "initContainers[0].name=i,initContainers[0].image=i,initContainers[0].restartPolicy=Always,extraContainers[0].name=e,extraContainers[0].image=e"
	--set "dnsPolicy=None,dnsConfig.nameservers[0]=10.0.0.10,hostAliases[0].ip=10.0.0.1,hostAliases[0].hostnames[0]=redis,runtimeClassName=gvisor"
	--set "resources=null,redis.storage.storageClass=-,global.imageRegistry=example.com,global.imagePullSecrets[0]=s"
	--set "monitoring.serviceMonitor.namespace=monitoring,monitoring.serviceMonitor.scrapeTimeout=10s"
	--set "monitoring.serviceMonitor.relabelings[0].targetLabel=a,monitoring.serviceMonitor.metricRelabelings[0].action=labeldrop")
production=(--values "$lottery/production.yaml"
	--set "redis.tls.ca.configMap=roots,redis.tls.client.existingSecret=me,database.tls.ca.existingSecret=roots"
	--set "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key=metadata.name"
	--set "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].operator=In"
	--set "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].values[0]=a"
	--set "topologySpreadConstraints[0].topologyKey=rack,topologySpreadConstraints[0].maxSkew=1,topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule")

urls=(--values "$lottery/urls.yaml")
argocd=(--values "$scratch/argocd.values")
flux=(--values "$scratch/flux.values")

noonctl=charts/noonctl/tests
cron=(--values "$noonctl/cron.yaml")
elect=(--values "$noonctl/elect.yaml" --set "redis.auth.existingSecret=p,redis.auth.username=me,deploymentAnnotations.a=b,strategy.type=Recreate"
	--set "extraContainers[0].name=e,extraContainers[0].image=e,runtimeClassName=gvisor,dnsPolicy=None,dnsConfig.nameservers[0]=10.0.0.10"
	--set "hostAliases[0].ip=10.0.0.1,hostAliases[0].hostnames[0]=redis,monitoring.podMonitor.scrapeTimeout=10s"
	--set "serve.enabled=true,serve.existingSecret=page,serve.allowActions=true,monitoring.podMonitor.enabled=true,monitoring.rules.enabled=true,networkPolicy.enabled=true"
	--set "redis.url=rediss://redis,redis.tls.ca.configMap=roots,redis.tls.client.existingSecret=me,flags[0]=--min-replicas=1"
	--set "nodeSelector.disk=ssd,podAnnotations.a=b,podLabels.a=b,commonLabels.a=b,imagePullSecrets[0].name=s,serviceAccount.annotations.a=b"
	--set "priorityClassName=high,tolerations[0].operator=Exists,env[0].name=A,env[0].value=b,envFrom[0].secretRef.name=s,resources=null"
	--set "extraVolumes[0].name=v,extraVolumes[0].emptyDir.medium=Memory,extraVolumeMounts[0].name=v,extraVolumeMounts[0].mountPath=/v"
	--set "initContainers[0].name=i,initContainers[0].image=i,elect.podLabel=leader=yes,serve.operatorHeader=X-User,serve.resources=null,noonctl.resources=null")
crontab=(--set "image.repository=a,image.tag=b,redis.existingSecret=redis,cron.crontab=a @daily true")
page=(--values "$noonctl/page.yaml")

# examine CHART SETS...: what holds for each chart, with these sets of values.
examine() {
	chart=$1
	shift
	check tool helm-unittest --strict "$chart"
	for set in "$@"; do
		declare -n values=$set
		check tool helm lint --strict "$chart" "${values[@]}"
		check render "$set.yaml" "${values[@]}"
	done
	check packaged "$1"
	check stable "$@"
	check documented
	check commands
}

# render FILE ARGUMENTS...
render() {
	local file=$1
	shift
	tool helm template demo "$chart" --namespace here "$@" >"$scratch/$file"
}

# below KEY: prints the YAML below a key in the README of the chart.
below() {
	awk -v key="$1:" '
		found { match($0, /^ */); if (NF && RLENGTH <= depth) exit; print substr($0, depth + 1) }
		!found && $1 == key { found = 1; match($0, /^ */); depth = RLENGTH }
	' "$chart/README.md"
}

# stable SETS...: the chart depends only on its values. Each set renders the same again, in an
# upgrade and at another time.
stable() {
	local set result=0
	for set in "$@"; do
		local -n values=$set
		render "$set.again" --is-upgrade "${values[@]}" && diff -u "$scratch/$set.yaml" "$scratch/$set.again" || result=1
	done
	! find "$chart/templates" -type f -exec sed 's/"[^"]*"//g' {} + | grep -E '\{\{-? *[^-/ }][^}]*(lookup|uuidv4|rand[A-Z]|gen[A-Z]|\bnow\b)' || result=1
	return $result
}

# packaged SET: the archive of the chart renders what the folder does.
packaged() {
	local -n values=$1
	rm -rf "$scratch/package" && tool helm package "$chart" --destination "$scratch/package" >/dev/null &&
		tool helm template demo "$scratch"/package/*.tgz --namespace here "${values[@]}" | diff -u "$scratch/$1.yaml" -
}

# same: both charts have the same helpers and the same definitions of values.
same() {
	diff -u charts/{lottery,noonctl}/templates/_noonlock.tpl &&
		diff -u <(sed -n '/^  "definitions"/,$p' charts/lottery/values.schema.json) <(sed -n '/^  "definitions"/,$p' charts/noonctl/values.schema.json)
}

# refused: an upgrade without values does not become a first try.
refused() {
	! render empty.yaml --is-upgrade 2>"$scratch/said" || { echo "an empty values file is accepted"; return 1; }
	grep -q 'neither Redis nor a database is given' "$scratch/said" || { cat "$scratch/said"; return 1; }
}

module() {
	go mod download -json "$1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'
}

# schemas: puts the schemas of Kubernetes and the operator where kubectl-validate looks for them.
schemas() {
	local api crds file name
	api=$(module "k8s.io/kubernetes@$kubernetes")/api/openapi-spec/v3
	crds=$(module "github.com/prometheus-operator/prometheus-operator@$operator")/example/prometheus-operator-crd
	mkdir -p "$scratch/crds" && cp "$crds"/monitoring.coreos.com_{servicemonitors,podmonitors,prometheusrules}.yaml "$scratch/crds" || return 1
	for file in "$api"/api{s__*,}__v*_openapi.json; do # for example apis__apps__v1_openapi.json
		name=$(basename "$file" _openapi.json)
		install -Dm 644 "$file" "$scratch/schemas/${name//__//}.json" || return 1
	done
}

# valid FILES...: the version is one that the tool has; those of $scratch/schemas replace its schemas.
valid() {
	tool kubectl-validate --version 1.30 --local-schemas "$scratch/schemas" --local-crds "$scratch/crds" "$@"
}

# invalid OLD NEW: if NEW replaces OLD, an object must not be valid.
invalid() {
	sed "s/$1/$2/" "$scratch/everything.yaml" >"$scratch/broken.yaml"
	! cmp -s "$scratch/everything.yaml" "$scratch/broken.yaml" || { echo "there is no $1 to misspell"; return 1; }
	! valid "$scratch/broken.yaml" >"$scratch/said" || { cat "$scratch/said"; return 1; }
}

# limited: the longest allowed list of entrants is accepted, and one more byte is an error.
limited() {
	{ printf 'id,eligible\n' && head -c 899988 /dev/zero | tr '\0' x; } >"$scratch/longest.csv"
	{ cat "$scratch/longest.csv" && printf x; } >"$scratch/longer.csv"
	render longest.yaml "${first_try[@]}" --set-file "entrants.inline=$scratch/longest.csv" || return 1
	! render longer.yaml "${first_try[@]}" --set-file "entrants.inline=$scratch/longer.csv" 2>"$scratch/said" || return 1
	grep -q 'entrants.inline has 900001 bytes; it must have at most 900000' "$scratch/said" || { cat "$scratch/said"; return 1; }
}

# conditional: a parent chart installs this chart if, and only if, its condition is true.
conditional() {
	local parent=$scratch/parent
	mkdir -p "$parent/charts" && cp -r charts/{lottery,noonctl} "$parent/charts/" || return 1
	printf '%s\n' 'apiVersion: v2' 'name: parent' 'version: 1.0.0' 'dependencies:' \
		'  - {name: lottery, version: 0.1.0, condition: lottery.enabled}' '  - {name: noonctl, version: 0.1.0}' >"$parent/Chart.yaml"
	printf '%s\n' 'global: {imageRegistry: example.com}' 'lottery:' '  enabled: true' '  podSecurityContext: {runAsUser: null}' '  service: null' >"$parent/values.yaml"
	{ sed 's/^/  /' "$chart/tests/first-try.yaml" && printf 'noonctl:\n  podSecurityContext: {runAsUser: null}\n' && sed 's/^/  /' "$noonctl/cron.yaml"; } >>"$parent/values.yaml"
	tool helm template demo "$parent" >"$scratch/parent.yaml" && valid "$scratch/parent.yaml" || return 1
	! grep -q runAsUser "$scratch/parent.yaml" || { echo "null in the values of a parent chart does not remove runAsUser"; return 1; }
	tool helm template demo "$parent" --set lottery.enabled=false >"$scratch/none.yaml" || return 1
	! grep -q ': lottery$' "$scratch/none.yaml" || { echo "lottery.enabled=false installs objects"; return 1; }
}

# sampled: without values, the chart installs the example's list of entrants.
sampled() {
	diff -u examples/lottery/entrants.csv "$chart/files/entrants.csv"
}

documented() {
	local copy=$scratch/$chart
	mkdir -p "$copy" && cp -r "$chart/." "$copy" && tool helm-docs --log-level warning --chart-search-root "$copy" &&
		diff -u "$chart/README.md" "$copy/README.md"
}

# commands: the chart accepts each helm command of its README. --reuse-values adds to the one before.
commands() {
	local line words set=() result=1
	while read -r line; do
		eval "words=(${line/--values values.yaml/--values $noonctl/cron.yaml})"
		[[ $line == *" --reset-then-reuse-values "* ]] || set=()
		set+=("${words[@]:4}")
		render commands.yaml "${set[@]/#--reset-then-reuse-values/--is-upgrade}" || { echo "README.md: $line"; return 1; }
		result=0
	done < <(sed ':a; /\\$/ { N; s/\\\n//; ba }' "$chart/README.md" | grep -E '^    helm (install|upgrade) ')
	return $result
}

# shown: the README of charts/noonctl shows values that were examined.
shown() {
	[[ $(<"$chart/README.md") == *"$(sed 's/^/    /' "$noonctl/cron.yaml")"* ]] || { echo "README.md does not show tests/cron.yaml"; return 1; }
}

# alerts: by day, they are checked only after a change, as the code of Prometheus takes a minute to build.
alerts() {
	! changed charts test/kube/alerts || (cd test/kube/alerts && go vet ./... && HELM=$(bash ../../../scripts/chart-tool.sh --path helm) go test -count=1 ./...)
}

examine charts/noonctl cron elect crontab page
check shown
chart=charts/lottery
below valuesObject >"$scratch/argocd.values"
below values >"$scratch/flux.values"
examine charts/lottery first_try bundled everything production urls argocd flux
check refused
check same
check schemas
check valid "$scratch"/*.yaml
check valid examples/*/kubernetes.yaml
check invalid periodSeconds periodSecond
check invalid publishNotReadyAddresses publishUnreadyAddresses
check invalid 'interval: 30s' 'intervall: 30s'
check invalid 'for: 2m' 'for: two'
check limited
check sampled
check conditional
check alerts

if ((${#failed[@]} > 0)); then
	printf 'chart-test failed: %s\n' "${failed[@]}"
	exit 1
fi
