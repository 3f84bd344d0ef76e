// Ociimage packs directories into a container image with an empty base, without Docker and
// without access to a registry:
//
//	ociimage --output lottery.tar --name noonlock.local/lottery:dev --entrypoint /lottery \
//		linux/amd64=build/amd64 linux/arm64=build/arm64
//
// The output is an OCI image layout in a tar file. Each platform has one layer: the files of its directory, the folder
// etc beside this source file, /tmp, and Mozilla's certificates of public authorities in the version that go.mod pins.
// Container tools show the labels from the configuration of each platform. Registries read them from the annotations.
//
// The same files and the same version of Go produce the same bytes.
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
	"testing/fstest"
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
		img, err := build(folder, *entrypoint, platform, labels)
		if err != nil {
			return fmt.Errorf("%s: %w", platformName, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: plain{img}, Descriptor: v1.Descriptor{Platform: platform}})
	}
	index = mutate.Annotations(index, labels).(v1.ImageIndex)
	l, err := layout.Write(scratch, empty.Index)
	if err != nil {
		return err
	}
	// containerd reads the image's name from the first annotation. Other tools read its tag from the second.
	annotations := map[string]string{"io.containerd.image.name": tag.Name(), "org.opencontainers.image.ref.name": tag.TagStr()}
	if err := l.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return err
	}
	packed, err := pack(fstest.MapFS{}, os.DirFS(scratch))
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

// build returns the image of one platform, with the files of folder.
func build(folder, entrypoint string, platform *v1.Platform, labels map[string]string) (v1.Image, error) {
	var authorities bytes.Buffer
	var err error
	for authority := range bundle.Roots() {
		if authority.Constraint == nil { // a PEM file cannot express a constraint
			err = errors.Join(err, pem.Encode(&authorities, &pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate}))
		}
	}
	root := fstest.MapFS{
		"tmp":                               {Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		"etc/ssl":                           {Mode: fs.ModeDir | 0o755},
		"etc/ssl/certs":                     {Mode: fs.ModeDir | 0o755},
		"etc/ssl/certs/ca-certificates.crt": {Data: authorities.Bytes(), Mode: 0o644},
	}
	if program, err := os.Stat(filepath.Join(folder, entrypoint)); err != nil || !program.Mode().IsRegular() || program.Mode()&0o100 == 0 || entrypoint[0] != '/' {
		return nil, fmt.Errorf("--entrypoint is %q; it must be an executable file in %s, with an absolute path", entrypoint, folder)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		files, err := pack(root, etcFiles, os.DirFS(folder))
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

// pack adds directories to files, and returns them as a tar file without times and owners. Modes depend only on the
// executable bit.
func pack(files fstest.MapFS, folders ...fs.FS) ([]byte, error) {
	var out bytes.Buffer
	var err error
	for _, from := range folders {
		err = errors.Join(err, fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || name == "." {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			file := &fstest.MapFile{Mode: d.Type() | 0o644}
			if d.IsDir() || info.Mode()&0o100 != 0 {
				file.Mode |= 0o111
			}
			if d.Type().IsRegular() {
				file.Data, err = fs.ReadFile(from, name)
			} else if !d.IsDir() {
				err = fmt.Errorf("%s is a %s; it must be a regular file or a directory", name, d.Type())
			}
			files[name] = file
			return err
		}))
	}
	w := tar.NewWriter(&out)
	err = errors.Join(err, w.AddFS(files), w.Close())
	return out.Bytes(), err
}
