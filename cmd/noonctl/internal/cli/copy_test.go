//go:build unix

package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

func TestCopyTo(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for range 2 { // an init container may run again
		if got := run(t.Context(), "", "copy-to", folder); got.code != 0 || got.out+got.errOut != "" {
			t.Fatalf("%+v", got)
		}
	}
	cmd := exec.Command(filepath.Join(folder, "noonctl"), "--version")
	cmd.Env = append(os.Environ(), programVariable+"=yes")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "noonctl version ") {
		t.Errorf("the copy says %q, %v", out, err)
	}
	entries, err := os.ReadDir(folder)
	testenv.Must(t, err)
	if got := run(t.Context(), "", "copy-to", folder+"/none"); got.code != 1 || !strings.Contains(got.errOut, folder) {
		t.Errorf("to a folder that does not exist: %+v", got)
	}
	if len(entries) != 1 {
		t.Errorf("the folder has %v; want only noonctl", entries)
	}
}
