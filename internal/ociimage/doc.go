// Ociimage packs folders into a container image on an empty base, without Docker and
// without asking any registry:
//
//	ociimage --output lottery.tar --name noonlock.local/lottery:dev --entrypoint /lottery \
//		linux/amd64=build/amd64 linux/arm64=build/arm64
//
// The output is an OCI image layout in a tar file: one index over a manifest for each
// platform, as `ctr images import`, `kind load image-archive`, `k3d image import` and
// `skopeo copy oci-archive:…` read it. Each platform is one layer: the files of its
// folder, and what a static program misses on an empty base: /etc/passwd and
// /etc/group with the user it runs as, /tmp, and the certificates of the public
// authorities in /etc/ssl/certs/ca-certificates.crt.
//
// The same files give the same bytes: times are 1970, owners are root, names are
// sorted, and the certificates are those of Mozilla as pinned in this module's go.mod,
// not those of the machine. Compression is Go's, so another version of Go may give
// another digest.
//
// It is a module of its own, so that no user of the library gets its dependencies.
package main
