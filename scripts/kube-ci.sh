#!/usr/bin/env bash
# Starts a Kubernetes cluster with one node and without Docker, runs scripts/kube-test.sh on
# it, and stops it. Redis and busybox are images built from the programs of this machine.
#
# The folder shared/kube beside the clone contains the scripts that start the cluster. If it
# is missing, nothing is tested; with NOONLOCK_REQUIRE_SERVERS=1, this script fails.
#
# environment:
#   NOONLOCK_KUBE_RIG  the folder with the cluster's scripts (default ../shared/kube);
#                      none skips the cluster, even if servers are required
#   KUBE_HOME          where the cluster is built and runs (default ~/.cache/noonlock/kube)
#   KUBE_KEEP=1        use a running cluster, and do not stop it
#   KUBE_RUN           the tests to run, as for go test -run (default: all)
#   KUBE_OUTAGE        how long Redis is stopped (default 1m; 4m with NOONLOCK_NIGHTLY=1)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rig=${NOONLOCK_KUBE_RIG:-../shared/kube}
export KUBE_HOME=${KUBE_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/noonlock/kube}
export KUBE_OUTAGE=${KUBE_OUTAGE:-${NOONLOCK_NIGHTLY:+4m}}

# skip REASON ends the script without a test.
skip() {
	echo "NOT TESTED on this machine: Kubernetes: $1"
	if [[ ${NOONLOCK_REQUIRE_SERVERS:-} == 1 ]]; then
		echo "NOONLOCK_REQUIRE_SERVERS=1 requires this test"
		exit 1
	fi
	exit 0
}

[[ $rig != none ]] || { echo "NOT TESTED: Kubernetes, because NOONLOCK_KUBE_RIG is none"; exit 0; }
[[ -x $rig/up.sh ]] || skip "there is no $rig/up.sh"
((EUID == 0)) || skip "a cluster needs root"
rig=$(cd "$rig" && pwd)

mkdir -p "$KUBE_HOME"
exec 9>"$KUBE_HOME/lock"
flock -n 9 || { echo "kube-ci.sh: another run uses $KUBE_HOME"; exit 1; }

missing=()
for program in containerd runc etcd iptables nft conntrack socat ip openssl redis-server redis-cli; do
	PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null || missing+=("$program")
done
if ((${#missing[@]} > 0)); then
	echo "installing packages for the cluster; missing programs: ${missing[*]}"
	env DEBIAN_FRONTEND=noninteractive "$rig/deps.sh" >"$KUBE_HOME/deps.log" 2>&1 9>&- || { tail -n 15 "$KUBE_HOME/deps.log"; exit 1; }
fi
if ! command -v busybox >/dev/null; then
	{ export DEBIAN_FRONTEND=noninteractive; apt-get update -q && apt-get install -y -q --no-install-recommends busybox-static; } >"$KUBE_HOME/deps.log" 2>&1 9>&- || { tail -n 15 "$KUBE_HOME/deps.log"; exit 1; }
fi

# shellcheck source=/dev/null
. "$rig/env.sh"
for program in kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet kube-proxy; do
	[[ -x $BIN/$program ]] || absent=yes
done
[[ -z ${absent:-} && -f $IMG/pause.tar ]] || { echo "building Kubernetes, which takes over ten minutes once"; "$rig/build.sh" all; }
[[ -f $IMG/coredns.tar ]] || "$rig/build.sh" dns

scratch=$(mktemp -d)
# The test's volumes are folders of this machine, without a StorageClass.
volumes=$KUBE_HOME/volumes
running=
# A file of a run that was killed may name the id of another process by now.
for file in "$RUN"/*.pid; do
	[[ -e $file ]] || continue
	program=$(basename "$file" .pid)
	if alive "$(cat "$file")" && [[ $(ps -o comm= -p "$(cat "$file")") == "${program:0:15}" ]]; then
		running=yes
	else
		rm "$file"
	fi
done

finish() {
	local result=$?
	trap - EXIT
	if [[ -n $running ]]; then
		k delete pv -l noonlock=kube-ci --wait=false >/dev/null 2>&1 || true
	else
		"$rig/down.sh" -wipe 9>&- >"$KUBE_HOME/down.log" 2>&1 || tail -n 5 "$KUBE_HOME/down.log"
	fi
	rm -rf "$scratch" "$volumes"
	exit "$result"
}

if [[ -n $running && ${KUBE_KEEP:-} != 1 ]]; then
	echo "kube-ci.sh: a cluster is already running in $KUBE_HOME; stop it with $rig/down.sh, or set KUBE_KEEP=1 to use it"
	exit 1
fi
trap finish EXIT
trap 'exit 130' INT TERM HUP

# 9>&-: the processes of the cluster must not inherit the lock.
# -wipe: a run that was killed leaves objects, and volumes that are in use.
[[ -n $running ]] || "$rig/down.sh" -wipe 9>&- >"$KUBE_HOME/down.log" 2>&1
[[ -n $running ]] || "$rig/up.sh" 9>&- || { tail -n 20 "$LOG"/kubelet.log "$LOG"/kube-apiserver.log; exit 1; }
k apply -f "$rig/manifests/coredns.yaml"
k -n kube-system rollout status deployment/coredns --timeout=120s

# pack IMAGE PROGRAM NAME...: adds a program of this machine to the files of an image, under these
# names, and its shared libraries. Images contain no links.
pack() {
	local root=$scratch/$1 program name
	program=$(command -v "$2")
	mkdir -p "$root/usr/bin"
	for name in "${@:3}"; do
		cp -L "$program" "$root/usr/bin/$name"
	done
	# ldd fails for a static program.
	(ldd "$program" || true) | (grep -o '/[^ ]*' || true) | while read -r library; do
		mkdir -p "$root$(dirname "$library")"
		cp -L "$library" "$root$library"
	done
}

# load IMAGE ENTRYPOINT: builds the image and loads it into the node.
load() {
	(cd internal/build/ociimage && go run -buildvcs=false . --output "$scratch/$1.tar" --name "noonlock.local/$1:kube-ci" \
		--entrypoint "$2" "linux/$(go env GOARCH)=$scratch/$1")
	ctr -a "$CTRD_SOCK" -n k8s.io images import "$scratch/$1.tar"
}

pack redis redis-server redis-server
pack redis redis-cli redis-cli
load redis /usr/bin/redis-server
pack busybox busybox sh grep httpd sleep timeout tr wget # what the tests and examples/sidecar use
load busybox /usr/bin/sh

rm -rf "$volumes"
for n in {1..8}; do
	mkdir -p "$volumes/$n"
	chmod 777 "$volumes/$n" # fsGroup does not apply to a hostPath
	k apply -f - <<Y
apiVersion: v1
kind: PersistentVolume
metadata: {name: noonlock-ci-$n, labels: {noonlock: kube-ci}}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: "$volumes/$n"}
Y
done

export KUBE_LOAD="ctr -a $CTRD_SOCK -n k8s.io images import"
export KUBE_REDIS_IMAGE=noonlock.local/redis:kube-ci KUBE_BUSYBOX_IMAGE=noonlock.local/busybox:kube-ci
export KUBE_EXEC="nsenter --net=/run/netns/$NETNS"
bash scripts/kube-test.sh 9>&-
