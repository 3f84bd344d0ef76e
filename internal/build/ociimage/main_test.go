package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// program makes a directory with a program in it. mode and time vary between calls.
func program(t *testing.T, content string, mode fs.FileMode, when time.Time) string {
	t.Helper()
	folder := t.TempDir()
	write(t, filepath.Join(folder, "lottery"), content, mode)
	write(t, filepath.Join(folder, "etc", "lottery", "list"), "x", mode&0o666)
	must(t, os.Chtimes(filepath.Join(folder, "lottery"), when, when))
	return folder
}

func write(t *testing.T, file, content string, mode fs.FileMode) {
	t.Helper()
	must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), mode), os.Chmod(file, mode)))
}

func imageOf(t *testing.T, platforms ...string) (archive []byte, printed string) {
	t.Helper()
	output := filepath.Join(t.TempDir(), "image.tar")
	var out strings.Builder
	err := run(append([]string{
		"--output", output, "--name", "noonlock.local/lottery:dev", "--entrypoint", "/lottery",
		"--label", "org.opencontainers.image.version=dev", "--label", "a=b=c",
	}, platforms...), &out)
	must(t, err)
	archive, err = os.ReadFile(output)
	must(t, err)
	return archive, strings.ReplaceAll(out.String(), output, "FILE")
}

// The image must not depend on the time, owner or permissions of the source files.
func TestSameFilesGiveTheSameBytes(t *testing.T) {
	t.Parallel()
	then := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	one, printed := imageOf(t, "linux/amd64="+program(t, "amd", 0o755, then), "linux/arm64="+program(t, "arm", 0o755, then))
	two, again := imageOf(t, "linux/amd64="+program(t, "amd", 0o700, time.Now()), "linux/arm64="+program(t, "arm", 0o711, time.Now()))
	if !bytes.Equal(one, two) || printed != again {
		t.Errorf("two builds differ:\n%s\n%s", printed, again)
	}
	three, _ := imageOf(t, "linux/amd64="+program(t, "amd!", 0o755, then), "linux/arm64="+program(t, "arm", 0o755, then))
	if bytes.Equal(one, three) {
		t.Error("another program gives the same bytes")
	}
}

func files(t *testing.T, r io.Reader) (map[string][]byte, map[string]*tar.Header) {
	t.Helper()
	contents, headers := map[string][]byte{}, map[string]*tar.Header{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return contents, headers
		}
		must(t, err)
		content, err := io.ReadAll(archive)
		must(t, err)
		contents[h.Name], headers[h.Name] = content, h
	}
}

// blob returns a blob and checks its digest and size.
func blob(t *testing.T, contents map[string][]byte, d v1.Descriptor) []byte {
	t.Helper()
	content := contents["blobs/sha256/"+d.Digest.Encoded()]
	if digest.FromBytes(content) != d.Digest || int64(len(content)) != d.Size {
		t.Fatalf("the blob %s does not match its descriptor", d.Digest)
	}
	return content
}

func decode[T any](t *testing.T, content []byte) T {
	t.Helper()
	var v T
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	must(t, decoder.Decode(&v))
	return v
}

// The test follows the descriptors of the archive as a reader of the OCI format does.
func TestLayout(t *testing.T) {
	t.Parallel()
	archive, printed := imageOf(t, "linux/amd64="+program(t, "amd", 0o755, time.Now()), "linux/arm64="+program(t, "arm", 0o755, time.Now()))
	if !bytes.HasSuffix(archive, make([]byte, 1024)) {
		t.Error("the archive has no end")
	}
	contents, _ := files(t, bytes.NewReader(archive))
	if l := decode[v1.ImageLayout](t, contents["oci-layout"]); l.Version != "1.0.0" {
		t.Errorf("the layout's version is %q", l.Version)
	}
	entrance := decode[v1.Index](t, contents["index.json"])
	if len(entrance.Manifests) != 1 || entrance.Manifests[0].Annotations["io.containerd.image.name"] != "noonlock.local/lottery:dev" ||
		entrance.Manifests[0].Annotations[v1.AnnotationRefName] != "dev" {
		t.Fatalf("index.json is %s", contents["index.json"])
	}
	if !strings.Contains(printed, entrance.Manifests[0].Digest.String()) {
		t.Errorf("the printed digest is not that of the archive: %s", printed)
	}
	index := decode[v1.Index](t, blob(t, contents, entrance.Manifests[0]))
	labels := map[string]string{v1.AnnotationVersion: "dev", "a": "b=c"}
	if !maps.Equal(index.Annotations, labels) {
		t.Errorf("the index has the annotations %v", index.Annotations)
	}
	if len(index.Manifests) != 2 {
		t.Fatalf("the index has %d manifests", len(index.Manifests))
	}
	for i, architecture := range []string{"amd64", "arm64"} {
		if p := index.Manifests[i].Platform; p.OS != "linux" || p.Architecture != architecture {
			t.Errorf("platform %d is %+v", i, p)
		}
		manifest := decode[v1.Manifest](t, blob(t, contents, index.Manifests[i]))
		config := decode[v1.Image](t, blob(t, contents, manifest.Config))
		if config.Config.User != "65532:65532" || config.Architecture != architecture || config.Config.Entrypoint[0] != "/lottery" {
			t.Errorf("the configuration is %+v", config)
		}
		if !maps.Equal(config.Config.Labels, labels) || !maps.Equal(manifest.Annotations, labels) {
			t.Errorf("the labels are %v, and annotations %v", config.Config.Labels, manifest.Annotations)
		}
		unpacked, err := gzip.NewReader(bytes.NewReader(blob(t, contents, manifest.Layers[0])))
		must(t, err)
		layer, err := io.ReadAll(unpacked)
		must(t, err)
		if digest.FromBytes(layer) != config.RootFS.DiffIDs[0] {
			t.Error("the layer does not match the configuration")
		}
		inside, headers := files(t, bytes.NewReader(layer))
		if string(inside["lottery"]) != architecture[:3] || headers["lottery"].Mode != 0o755 || headers["etc/lottery/list"].Mode != 0o644 ||
			headers["tmp/"].Mode != 0o1777 || !strings.Contains(string(inside["etc/passwd"]), "nonroot:x:65532:65532:") {
			t.Errorf("the layer has %v", headers)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(inside["etc/ssl/certs/ca-certificates.crt"]) {
			t.Error("the layer has no certificates")
		}
		for name, h := range headers {
			if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 || h.Uname != "" {
				t.Errorf("%s is of %d:%d %q at %v", name, h.Uid, h.Gid, h.Uname, h.ModTime)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	folder := program(t, "amd", 0o755, time.Now())
	linked := program(t, "amd", 0o755, time.Now())
	must(t, os.Symlink("lottery", filepath.Join(linked, "link")))
	good := map[string]string{"--output": filepath.Join(t.TempDir(), "x.tar"), "--name": "noonlock.local/lottery:dev", "--entrypoint": "/lottery", "--label": "a=b"}
	for want, c := range map[string]struct{ flag, value, platform string }{
		"--name is \"lottery\"":         {"--name", "lottery", "linux/amd64=" + folder},
		"--entrypoint is \"lottery\"":   {"--entrypoint", "lottery", "linux/amd64=" + folder},
		"--entrypoint is \"/other\"":    {"--entrypoint", "/other", "linux/amd64=" + folder},
		"it must be KEY=VALUE":          {"--label", "version", "linux/amd64=" + folder},
		"platform argument is \"amd64=": {"--name", good["--name"], "amd64=" + folder},
		"is a L---------":               {"--name", good["--name"], "linux/amd64=" + linked},
	} {
		var args []string
		for flag, value := range good {
			if flag == c.flag {
				value = c.value
			}
			args = append(args, flag, value)
		}
		if err := run(append(args, c.platform), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q in it", args, err, want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
