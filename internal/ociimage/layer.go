package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// An entry is a file or directory of a layer.
type entry struct {
	mode    fs.FileMode
	content []byte
}

// layer returns the files of a platform's directory and of the base. Keys are paths
// without a leading slash.
func layer(folder string, u user) (map[string]entry, error) {
	entries, err := base(u)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == folder {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			if _, there := entries[name]; !there {
				entries[name] = entry{mode: fs.ModeDir | 0o755}
			}
			return nil
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is a %s; it must be a regular file or a directory", file, info.Mode().Type())
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		// The mode depends only on the executable bit, not on the umask.
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		entries[name] = entry{mode: mode, content: content}
		return nil
	})
	return entries, err
}

// base returns the system files that a static program needs.
func base(u user) (map[string]entry, error) {
	roots, err := authorities()
	if err != nil {
		return nil, err
	}
	text := func(format string, args ...any) entry {
		return entry{mode: 0o644, content: fmt.Appendf(nil, format, args...)}
	}
	folder := entry{mode: fs.ModeDir | 0o755}
	return map[string]entry{
		"etc":                               folder,
		"etc/ssl":                           folder,
		"etc/ssl/certs":                     folder,
		"etc/ssl/certs/ca-certificates.crt": {mode: 0o644, content: roots},

		"etc/passwd": text("root:x:0:0:root:/:/sbin/nologin\n%s:x:%d:%d:%[1]s:/tmp:/sbin/nologin\n", u.name, u.uid, u.gid),
		"etc/group":  text("root:x:0:\n%s:x:%d:\n", u.name, u.gid),
		"tmp":        {mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}, nil
}

// authorities returns the certificates as a PEM file. It omits those with constraints,
// which the file cannot express.
func authorities() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// epoch is the time of all files in an image.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

// archive returns a tar file of the entries, sorted by name.
func archive(entries map[string]entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		header := &tar.Header{
			Name: path.Clean(name), Typeflag: tar.TypeReg, Size: int64(len(e.content)),
			Mode: int64(e.mode.Perm()), ModTime: epoch(), Format: tar.FormatUSTAR,
		}
		if e.mode.IsDir() {
			header.Name, header.Typeflag = header.Name+"/", tar.TypeDir
		}
		if e.mode&fs.ModeSticky != 0 {
			header.Mode |= 0o1000
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out) // the header contains neither a file name nor a time
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
