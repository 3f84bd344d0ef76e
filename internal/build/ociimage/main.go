// Ociimage packs directories into a container image with an empty base, without Docker and
// without access to a registry:
//
//	ociimage --output lottery.tar --name noonlock.local/lottery:dev --entrypoint /lottery \
//		linux/amd64=build/amd64 linux/arm64=build/arm64
//
// The output is an OCI image layout in a tar file: an index with one manifest per platform. Each
// platform has one layer: the files of its directory, the folder etc beside this source file, /tmp, and
// the certificates of public authorities. Container tools show the labels from the configuration of each
// platform. Registries read them from the annotations of the manifests and the index.
//
// The same files produce the same bytes. Times are 1970, owners are root, and names are sorted. The
// certificates are Mozilla's in the version that go.mod pins, not the machine's. Compression is
// Go's, so another version of Go may produce another digest.
//
// Ociimage is a separate module, so users of the library do not get its dependencies.
package main

import (
	"archive/tar"
	"bytes"
	"embed"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

//go:embed etc
var etcFiles embed.FS

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("ociimage", flag.ContinueOnError)
	output := flags.String("output", "", "tar `file` to write")
	imageName := flags.String("name", "", "`name` of the image with registry and tag, such as noonlock.local/lottery:dev")
	entrypoint := flags.String("entrypoint", "", "absolute `path` in the image of the program to start")
	labels := map[string]string{}
	flags.Func("label", "`KEY=VALUE` of a label of the image; may be repeated", func(text string) error {
		key, value, _ := strings.Cut(text, "=")
		if labels[key] = value; key == "" || value == "" {
			return errors.New("it must be KEY=VALUE")
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	tag, err := name.NewTag(*imageName, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("--name is %q; it must be such as noonlock.local/lottery:dev: %w", *imageName, err)
	}
	scratch, err := os.MkdirTemp("", "ociimage-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	var index v1.ImageIndex = empty.Index
	for _, argument := range flags.Args() {
		platformName, folder, _ := strings.Cut(argument, "=")
		platform, err := v1.ParsePlatform(platformName)
		if err != nil || platform.Architecture == "" || folder == "" {
			return fmt.Errorf("platform argument is %q; it must be OS/ARCHITECTURE=DIRECTORY, such as linux/amd64=build/amd64", argument)
		}
		img, err := build(filepath.Join(scratch, platform.Architecture), folder, *entrypoint, platform, labels)
		if err != nil {
			return fmt.Errorf("%s: %w", platformName, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: plain{img}, Descriptor: v1.Descriptor{Platform: platform}})
	}
	index = mutate.Annotations(index, labels).(v1.ImageIndex)
	l, err := layout.Write(filepath.Join(scratch, "layout"), empty.Index)
	if err != nil {
		return err
	}
	// containerd reads the image's name from the first annotation. Other tools read its tag from the second.
	annotations := map[string]string{"io.containerd.image.name": tag.Name(), "org.opencontainers.image.ref.name": tag.TagStr()}
	if err := l.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return err
	}
	packed, err := pack(filepath.Join(scratch, "layout"))
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	fmt.Fprintf(out, "%s  %s\n  %s\n", tag, *output, digest)
	return errors.Join(err, os.WriteFile(*output, packed, 0o644))
}

// A plain image has no artifact type in the index: Skopeo 1.9 drops the field artifactType, which changes the digest.
type plain struct{ v1.Image }

// ArtifactType returns the empty type.
func (plain) ArtifactType() (string, error) { return "", nil }

// build returns the image of one platform, with the files of folder. It collects all files in root, a new directory.
func build(root, folder, entrypoint string, platform *v1.Platform, labels map[string]string) (v1.Image, error) {
	var authorities bytes.Buffer
	var err error
	for authority := range bundle.Roots() {
		if authority.Constraint == nil { // a PEM file cannot express a constraint
			err = errors.Join(err, pem.Encode(&authorities, &pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate}))
		}
	}
	certificates := filepath.Join(root, "etc/ssl/certs")
	if err := errors.Join(err, os.CopyFS(root, etcFiles), os.CopyFS(root, os.DirFS(folder)), os.MkdirAll(certificates, 0o755),
		os.WriteFile(filepath.Join(certificates, "ca-certificates.crt"), authorities.Bytes(), 0o644), os.MkdirAll(filepath.Join(root, "tmp"), 0o755)); err != nil {
		return nil, err
	}
	if program, err := os.Stat(filepath.Join(root, entrypoint)); err != nil || !program.Mode().IsRegular() || program.Mode()&0o100 == 0 || entrypoint[0] != '/' {
		return nil, fmt.Errorf("--entrypoint is %q; it must be an executable file in %s, with an absolute path", entrypoint, folder)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		files, err := pack(root)
		return io.NopCloser(bytes.NewReader(files)), err
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: time.Unix(0, 0).UTC()}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			// A number, since with runAsNonRoot a kubelet cannot check whether a name is root. See etc/passwd.
			User: "65532:65532", Entrypoint: []string{entrypoint}, WorkingDir: "/", Labels: labels,
			Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp"},
		},
	})
	if err != nil {
		return nil, err
	}
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "internal/build/ociimage"}})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(img, labels).(v1.Image), nil
}

// pack returns a tar file of a directory. The mode of tmp is 1777. Other modes depend only on the executable bit.
func pack(folder string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == folder {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		header := &tar.Header{Name: filepath.ToSlash(file[len(folder)+1:]), Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		var content []byte
		switch {
		case header.Name == "tmp":
			header.Name, header.Mode = "tmp/", 0o1777
		case d.IsDir():
			header.Name, header.Mode = header.Name+"/", 0o755
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is a %s; it must be a regular file or a directory", header.Name, info.Mode().Type())
		default:
			header.Size = info.Size()
			if info.Mode()&0o100 != 0 {
				header.Mode = 0o755
			}
			if content, err = os.ReadFile(file); err != nil {
				return err
			}
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}
