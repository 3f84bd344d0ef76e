package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

// An image is the input of pack.
type image struct {
	name       string // including registry and tag
	entrypoint string
	labels     map[string]string
	user       user
	platforms  []platform
}

// A platform is one platform of the image and the directory with its files.
type platform struct {
	v1.Platform
	folder string
}

// A user is the account that runs the program. It is not root. Its numbers are the same
// everywhere, so that volumes can be made accessible to it.
type user struct {
	name     string
	uid, gid int
}

func nonroot() user { return user{name: "nonroot", uid: 65532, gid: 65532} }

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("ociimage", flag.ContinueOnError)
	output := flags.String("output", "", "tar `file` to write")
	name := flags.String("name", "", "`name` of the image with registry and tag, such as noonlock.local/lottery:dev")
	entrypoint := flags.String("entrypoint", "", "absolute `path` in the image of the program to start")
	labels := map[string]string{}
	flags.Func("label", "`KEY=VALUE` of a label of the image; may be repeated", func(text string) error {
		key, value, _ := strings.Cut(text, "=")
		if key == "" || value == "" {
			return errors.New("it must be KEY=VALUE")
		}
		labels[key] = value
		return nil
	})
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	img, err := parse(*name, *entrypoint, flags.Args())
	if err != nil {
		return err
	}
	img.labels = labels
	if *output == "" {
		return errors.New("--output is empty; it must be the path of the tar file to write")
	}
	archive, digests, err := img.pack()
	if err != nil {
		return err
	}
	if err := os.WriteFile(*output, archive, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s  %s  %d bytes\n", img.name, *output, len(archive))
	for _, d := range digests {
		fmt.Fprintf(out, "  %-12s %s\n", d.of, d.digest)
	}
	return nil
}

// The registry is required, since tools resolve a name without one at Docker Hub.
var fullName = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]+)?(/[a-z0-9]+([._-][a-z0-9]+)*)+:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

func parse(name, entrypoint string, platforms []string) (image, error) {
	img := image{name: name, entrypoint: entrypoint, user: nonroot()}
	switch {
	case !fullName.MatchString(name):
		return img, fmt.Errorf("--name is %q; it must be an image's name with registry and tag, such as noonlock.local/lottery:dev", name)
	case !path.IsAbs(entrypoint) || path.Clean(entrypoint) != entrypoint:
		return img, fmt.Errorf("--entrypoint is %q; it must be an absolute path in the image, such as /lottery", entrypoint)
	case len(platforms) == 0:
		return img, errors.New("there is no platform argument; at least one is required, such as linux/amd64=build/amd64")
	}
	seen := map[string]bool{}
	for _, text := range platforms {
		of, folder, _ := strings.Cut(text, "=")
		system, architecture, _ := strings.Cut(of, "/")
		if system == "" || architecture == "" || folder == "" || strings.Contains(architecture, "/") {
			return img, fmt.Errorf("platform argument is %q; it must be OS/ARCHITECTURE=DIRECTORY, such as linux/amd64=build/amd64", text)
		}
		if seen[of] {
			return img, fmt.Errorf("platform %s is given twice; it must be given once", of)
		}
		seen[of] = true
		img.platforms = append(img.platforms, platform{v1.Platform{OS: system, Architecture: architecture}, folder})
	}
	return img, nil
}
