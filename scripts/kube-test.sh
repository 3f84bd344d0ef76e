#!/usr/bin/env bash
# Tests the chart, the lottery and an election on a Kubernetes cluster, several at a time:
#   - a first try with a noon per second, with the longest name of a release and the user of OpenShift, during the
#     drain of its node, a kill, an upgrade and a rollback. Then Redis is stopped for a while;
#   - certificates for Redis;
#   - traffic to the leader of examples/leader and examples/sidecar, while it is deleted and killed;
#   - commands with charts/noonctl, while their pods are killed and deleted;
#   - with NOONLOCK_NIGHTLY=1, Sentinel, while the primary's pod is killed.
# The test creates and deletes its own namespaces and takes about four minutes.
#
# It needs kubectl and a cluster with a node of this machine's architecture that can run
# privileged pods (for the kills).
#
#   KUBE_LOAD='kind load image-archive' scripts/kube-test.sh
#
# environment:
#   KUBECONFIG          the cluster, as for kubectl
#   KUBE_LOAD           the command that loads an OCI archive into the nodes; the file
#                       is appended to it. Examples: 'kind load image-archive',
#                       'k3d image import', 'sudo ctr -n k8s.io images import'
#   KUBE_REDIS_IMAGE    name and tag of the bundled Redis (default: the chart's)
#   KUBE_BUSYBOX_IMAGE  name and tag of busybox (default: that of examples/sidecar)
#   KUBE_STORAGE_CLASS  for the volumes (default: the cluster's)
#   KUBE_OUTAGE         how long Redis is stopped (default and least 1m, because an idle
#                       replica sends a request only every 30 s, and its metrics must show
#                       the outage)
#   KUBE_RUN            the tests to run, as for go test -run (default: all)
#   KUBE_EXEC           a command that runs the test, such as
#                       'nsenter --net=/run/netns/kube' (default: none)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ -n ${KUBE_LOAD:-} ]] || {
	echo "kube-test.sh: KUBE_LOAD is not set; it must be a command that loads an image archive, such as 'kind load image-archive'" >&2
	exit 2
}
command -v kubectl >/dev/null || { echo "kube-test.sh: there is no kubectl" >&2; exit 2; }
read -ra load <<<"$KUBE_LOAD"
read -ra prefix <<<"${KUBE_EXEC:-}"
"${prefix[@]}" kubectl get nodes >/dev/null 2>&1 || {
	echo "kube-test.sh: no cluster answers; KUBECONFIG must name one, as for kubectl get nodes" >&2
	exit 2
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

architecture=$(env GOTOOLCHAIN=local go env GOARCH)
export IMAGE_PLATFORMS="linux/$architecture"

for program in lottery leader noonctl; do
	IMAGE_NAME=noonlock.local/$program:kube-test bash scripts/image.sh "$program" "$scratch/$program.tar"
	"${load[@]}" "$scratch/$program.tar"
done

KUBE_HELM=$(bash scripts/chart-tool.sh --path helm)
export KUBE_HELM
(cd test/kube && go test -c -tags kube -o "$scratch/kube.test" .)
cd test/kube # the test reads the chart by a relative path

# run_tests [PATTERN] runs the tests that match, or all.
run_tests() {
	"${prefix[@]}" "$scratch/kube.test" -test.v -test.count=1 -test.timeout 30m -test.parallel 5 ${1:+-test.run="$1"} | tee "$scratch/said"
}

# A test that fails runs once more, as in test.sh, and is named.
if ! run_tests "${KUBE_RUN:-}"; then
	failed=$(sed -n 's/^--- FAIL: \([A-Za-z0-9_]*\) .*/\1/p' "$scratch/said" | paste -sd'|')
	[[ -n $failed ]] || exit 1
	echo "failed, and runs once more: $failed"
	run_tests "^($failed)\$"
fi
