// Ociimage packs directories into a container image with an empty base, without Docker and
// without access to a registry:
//
//	ociimage --output lottery.tar --name noonlock.local/lottery:dev --entrypoint /lottery \
//		linux/amd64=build/amd64 linux/arm64=build/arm64
//
// The output is an OCI image layout in a tar file: an index with one manifest per platform,
// as `ctr images import`, `kind load image-archive`, `k3d image import` and
// `skopeo copy oci-archive:…` read it. Each platform has one layer. It contains the files
// of the platform's directory, and what a static program needs on an empty base:
// /etc/passwd and /etc/group with its user, /tmp, and the certificates of public
// authorities in /etc/ssl/certs/ca-certificates.crt.
//
// Labels are in the configuration of each platform, where container tools show them, and are
// annotations of the manifests and the index, where registries read them.
//
// The same files produce the same bytes. Times are 1970, owners are root, and names are
// sorted. The certificates are Mozilla's in the version that go.mod pins, not those of the
// machine. Compression is Go's, so another version of Go may produce another digest.
//
// Ociimage is a separate module, so users of the library do not get its dependencies.
package main
