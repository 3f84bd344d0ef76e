package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// packed is a part of the image and its digest.
type packed struct {
	of     string // "index" or a platform
	digest digest.Digest
}

// layout collects an OCI image layout.
type layout map[string]entry

// add stores a blob and returns its descriptor.
func (l layout) add(mediaType string, content []byte) v1.Descriptor {
	d := digest.FromBytes(content)
	l["blobs/"+d.Algorithm().String()+"/"+d.Encoded()] = entry{mode: 0o644, content: content}
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(content))}
}

func (l layout) addJSON(mediaType string, value any) (v1.Descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return l.add(mediaType, content), nil
}

// pack returns the tar file of the image and its digests.
func (img image) pack() ([]byte, []packed, error) {
	folder := entry{mode: fs.ModeDir | 0o755}
	l := layout{"blobs": folder, "blobs/sha256": folder}
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Annotations: img.labels}
	var digests []packed
	for _, p := range img.platforms {
		manifest, err := img.packPlatform(l, p)
		if err != nil {
			return nil, nil, fmt.Errorf("%s/%s: %w", p.OS, p.Architecture, err)
		}
		index.Manifests = append(index.Manifests, manifest)
		digests = append(digests, packed{p.OS + "/" + p.Architecture, manifest.Digest})
	}
	top, err := l.addJSON(v1.MediaTypeImageIndex, index)
	if err != nil {
		return nil, nil, err
	}
	digests = append([]packed{{"index", top.Digest}}, digests...)
	// containerd reads the image's name from the first, other tools its tag from the second.
	top.Annotations = map[string]string{
		"io.containerd.image.name": img.name,
		v1.AnnotationRefName:       img.name[strings.LastIndex(img.name, ":")+1:],
	}
	entrance := v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex,
		Manifests: []v1.Descriptor{top},
	}
	for name, value := range map[string]any{
		v1.ImageIndexFile:  entrance,
		v1.ImageLayoutFile: v1.ImageLayout{Version: v1.ImageLayoutVersion},
	} {
		content, err := json.Marshal(value)
		if err != nil {
			return nil, nil, err
		}
		l[name] = entry{mode: 0o644, content: content}
	}
	out, err := archive(l)
	return out, digests, err
}

// packPlatform adds the layer, the configuration and the manifest of one platform.
func (img image) packPlatform(l layout, p platform) (v1.Descriptor, error) {
	entries, err := layer(p.folder, img.user)
	if err != nil {
		return v1.Descriptor{}, err
	}
	if e := entries[strings.TrimPrefix(img.entrypoint, "/")]; e.mode != 0o755 {
		return v1.Descriptor{}, fmt.Errorf("--entrypoint is %q; it must be an executable file in %s", img.entrypoint, p.folder)
	}
	files, err := archive(entries)
	if err != nil {
		return v1.Descriptor{}, err
	}
	smaller, err := compress(files)
	if err != nil {
		return v1.Descriptor{}, err
	}
	created := epoch()
	config, err := l.addJSON(v1.MediaTypeImageConfig, v1.Image{
		Created: &created, Platform: p.Platform,
		Config: v1.ImageConfig{
			// A number, since with runAsNonRoot a kubelet cannot check whether a name is root.
			User:       fmt.Sprintf("%d:%d", img.user.uid, img.user.gid),
			Entrypoint: []string{img.entrypoint},
			Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp"},
			WorkingDir: "/",
			Labels:     img.labels,
		},
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(files)}},
		History: []v1.History{{Created: &created, CreatedBy: "internal/ociimage"}},
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := l.addJSON(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: config, Layers: []v1.Descriptor{l.add(v1.MediaTypeImageLayerGzip, smaller)},
		Annotations: img.labels,
	})
	manifest.Platform = &p.Platform
	return manifest, err
}
