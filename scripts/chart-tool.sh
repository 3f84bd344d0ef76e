#!/usr/bin/env bash
# Runs a pinned tool: chart-tool.sh TOOL ARGUMENTS... The tools are helm, helm-unittest, helm-docs,
# kubectl-validate, cyclonedx-gomod and actionlint. With --path TOOL it prints the path of the tool. The first run builds the tool from its Go module, which takes minutes. The binary
# is kept outside the clone.
set -euo pipefail

kubernetes=34 # the minor version that helm assumes without a cluster
only_path=
if [[ ${1:-} == --path ]]; then
	only_path=yes
	shift
fi
tool=${1:?name a tool, such as helm}
shift
case $tool in
helm) version=v3.22.0 package=helm.sh/helm/v3/cmd/helm ;;
helm-unittest) version=v1.1.2 package=github.com/helm-unittest/helm-unittest/cmd/helm-unittest ;;
helm-docs) version=v1.14.2 package=github.com/norwoodj/helm-docs/cmd/helm-docs ;;
kubectl-validate) version=v0.0.4 package=sigs.k8s.io/kubectl-validate ;;
cyclonedx-gomod) version=v1.10.0 package=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod ;;
actionlint) version=v1.7.12 package=github.com/rhysd/actionlint/cmd/actionlint ;;
*)
	echo "chart-tool.sh: the tool is \"$tool\"; it must be helm, helm-unittest, helm-docs, kubectl-validate, cyclonedx-gomod or actionlint" >&2
	exit 2
	;;
esac
folder=${XDG_CACHE_HOME:-$HOME/.cache}/noonlock/bin/$tool-$version-$(go env GOVERSION)

# Without these flags, helm assumes Kubernetes 1.20.
helm=helm.sh/helm/v3
flags="-s -w"
for place in pkg/chartutil pkg/lint/rules; do
	flags+=" -X $helm/$place.k8sVersionMajor=1 -X $helm/$place.k8sVersionMinor=$kubernetes"
done

# built ARGUMENTS... builds the tool from a new module with these requirements.
built() {
	local scratch
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' RETURN
	cd "$scratch"
	go mod init built
	go mod edit -go=1.26 -require="${package%/cmd/*}@$version" "$@"
	printf '//go:build tools\n\npackage built\n\nimport _ "%s"\n' "$package" >tools.go
	go mod tidy
	go build -trimpath -ldflags "$flags" -o "$folder/" "$package"
}

if [[ ! -x $folder/$tool ]]; then
	echo "building $tool $version; this takes a few minutes, once" >&2
	export GOWORK=off GOFLAGS='' CGO_ENABLED=0
	mkdir -p "$folder"
	case $tool in
	# The go.mod of helm-unittest has a replace directive, which `go install` rejects.
	helm-unittest)
		(built -require="$helm@v3.22.0" \
			-replace=github.com/vmware-labs/yaml-jsonpath@v0.3.2=github.com/helm-unittest/yaml-jsonpath@v0.4.0) >&2
		;;
	*) GOBIN=$folder go install -trimpath -ldflags "$flags" "$package@$version" >&2 ;;
	esac
fi
if [[ -n $only_path ]]; then
	echo "$folder/$tool"
else
	exec "$folder/$tool" "$@"
fi
