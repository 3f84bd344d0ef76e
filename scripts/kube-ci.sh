#!/usr/bin/env bash
# Brings up a real one-node Kubernetes without Docker, runs scripts/kube-test.sh on it
# with a Redis packed from this machine's redis-server, and takes it down again.
#
# The cluster is that of a folder beside the clone, shared/kube. Where that is
# missing this says so, and fails with NOONLOCK_REQUIRE_SERVERS=1.
#
# environment:
#   NOONLOCK_KUBE_RIG  the folder with the cluster's scripts (default ../shared/kube);
#                      none skips all of this, whatever is required
#   KUBE_HOME          where it is built and runs (default ~/.cache/noonlock/kube)
#   KUBE_KEEP=1        use a cluster that runs already, and leave it running
#   KUBE_OUTAGE        how long Redis is away (default 2m)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rig=${NOONLOCK_KUBE_RIG:-../shared/kube}
export KUBE_HOME=${KUBE_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/noonlock/kube}
export KUBE_OUTAGE=${KUBE_OUTAGE:-2m}

# left_out REASON: that is what was not tested.
left_out() {
	echo "NOT TESTED on this machine: Kubernetes: $1"
	if [[ ${NOONLOCK_REQUIRE_SERVERS:-} == 1 ]]; then
		echo "and NOONLOCK_REQUIRE_SERVERS=1 allows nothing to be left out"
		exit 1
	fi
	exit 0
}

[[ $rig != none ]] || { echo "NOT TESTED: Kubernetes, as NOONLOCK_KUBE_RIG is none"; exit 0; }
[[ -x $rig/up.sh ]] || left_out "there is no cluster in $rig"
((EUID == 0)) || left_out "a cluster needs root"
rig=$(cd "$rig" && pwd)

mkdir -p "$KUBE_HOME"
exec 9>"$KUBE_HOME/lock"
flock -n 9 || { echo "kube-ci.sh: another run uses $KUBE_HOME"; exit 1; }

missing=()
for program in containerd runc etcd iptables nft conntrack socat ip openssl redis-server; do
	PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null || missing+=("$program")
done
if ((${#missing[@]} > 0)); then
	echo "installing what a cluster needs, as ${missing[*]} is missing"
	env DEBIAN_FRONTEND=noninteractive "$rig/deps.sh" >"$KUBE_HOME/deps.log" 2>&1 9>&- || { tail -n 15 "$KUBE_HOME/deps.log"; exit 1; }
fi

# shellcheck source=/dev/null
. "$rig/env.sh"
for program in kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet kube-proxy; do
	[[ -x $BIN/$program ]] || absent=yes
done
[[ -z ${absent:-} && -f $IMG/pause.tar ]] || { echo "building Kubernetes, which takes over ten minutes once"; "$rig/build.sh" all; }
[[ -f $IMG/coredns.tar ]] || "$rig/build.sh" dns

scratch=$(mktemp -d)
# The test's volumes are folders of this machine.
volumes=$KUBE_HOME/volumes
running=
for program in kubelet kube-apiserver; do
	[[ ! -s $RUN/$program.pid ]] || ! alive "$(cat "$RUN/$program.pid")" || running=yes
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
	echo "kube-ci.sh: a cluster runs already in $KUBE_HOME; stop it with $rig/down.sh, or set KUBE_KEEP=1 to use it"
	exit 1
fi
trap finish EXIT
trap 'exit 130' INT TERM HUP

# What outlives this script must not hold its lock.
[[ -n $running ]] || "$rig/up.sh" 9>&- || { tail -n 20 "$LOG"/kubelet.log "$LOG"/kube-apiserver.log; exit 1; }
k apply -f "$rig/manifests/coredns.yaml"
k -n kube-system rollout status deployment/coredns --timeout=120s

# redis-server with the libraries that it is linked to, as an image.
root=$scratch/redis
redis=$(command -v redis-server)
mkdir -p "$root/usr/bin"
cp -L "$redis" "$root/usr/bin/redis-server"
ldd "$redis" | grep -o '/[^ ]*' | while read -r library; do
	mkdir -p "$root$(dirname "$library")"
	cp -L "$library" "$root$library"
done
(cd internal/ociimage && go run -buildvcs=false . --output "$scratch/redis.tar" --name noonlock.local/redis:kube-ci \
	--entrypoint /usr/bin/redis-server "linux/$(go env GOARCH)=$root")
ctr -a "$CTRD_SOCK" -n k8s.io images import "$scratch/redis.tar"

rm -rf "$volumes"
for n in 1 2; do
	mkdir -p "$volumes/$n"
	chmod 777 "$volumes/$n" # the kubelet gives a hostPath to no group
	k apply -f - <<Y
apiVersion: v1
kind: PersistentVolume
metadata: {name: noonlock-ci-$n, labels: {noonlock: kube-ci}}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: noonlock-ci
  hostPath: {path: "$volumes/$n"}
Y
done

export KUBE_LOAD="ctr -a $CTRD_SOCK -n k8s.io images import"
export KUBE_REDIS_IMAGE=noonlock.local/redis:kube-ci KUBE_STORAGE_CLASS=noonlock-ci
export KUBE_EXEC="nsenter --net=/run/netns/$NETNS"
bash scripts/kube-test.sh 9>&-
