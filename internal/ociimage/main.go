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

// image is what to pack.
type image struct {
	name       string // with registry and tag
	entrypoint string
	user       user
	platforms  []platform
}

// platform is one of the image's platforms, and the folder with its files.
type platform struct {
	v1.Platform
	folder string
}

// user is who the program runs as: not root, and the same number everywhere, so that
// volumes can be given to it.
type user struct {
	name     string
	uid, gid int
}

func nonroot() user { return user{name: "nonroot", uid: 65532, gid: 65532} }

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("ociimage", flag.ContinueOnError)
	output := flags.String("output", "", "the tar file to write")
	name := flags.String("name", "", "the image's name with registry and tag, such as noonlock.local/lottery:dev")
	entrypoint := flags.String("entrypoint", "", "the program to start, an absolute path in the image")
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
	if *output == "" {
		return errors.New("--output is missing; it must name the tar file to write")
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

// A name without a registry would be looked up at Docker Hub by whoever reads it.
var fullName = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]+)?(/[a-z0-9]+([._-][a-z0-9]+)*)+:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

func parse(name, entrypoint string, platforms []string) (image, error) {
	img := image{name: name, entrypoint: entrypoint, user: nonroot()}
	switch {
	case !fullName.MatchString(name):
		return img, fmt.Errorf("--name is %q; it must be an image's name with registry and tag, such as noonlock.local/lottery:dev", name)
	case !path.IsAbs(entrypoint) || path.Clean(entrypoint) != entrypoint:
		return img, fmt.Errorf("--entrypoint is %q; it must be an absolute path in the image, such as /lottery", entrypoint)
	case len(platforms) == 0:
		return img, errors.New("no platform is given; there must be one at least, such as linux/amd64=FOLDER")
	}
	seen := map[string]bool{}
	for _, text := range platforms {
		of, folder, _ := strings.Cut(text, "=")
		system, architecture, _ := strings.Cut(of, "/")
		if system == "" || architecture == "" || folder == "" || strings.Contains(architecture, "/") {
			return img, fmt.Errorf("the platform is %q; it must be OS/ARCHITECTURE=FOLDER, such as linux/amd64=build/amd64", text)
		}
		if seen[of] {
			return img, fmt.Errorf("the platform %s is given twice; once is enough", of)
		}
		seen[of] = true
		img.platforms = append(img.platforms, platform{v1.Platform{OS: system, Architecture: architecture}, folder})
	}
	return img, nil
}
