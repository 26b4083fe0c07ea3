// SPDX-License-Identifier: Apache-2.0

//go:build linux

package secrets_test

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/secrets"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// made makes a volume whose secrets are in a directory, "" = on it, and returns its path.
func made(t *testing.T, dir string) string {
	t.Helper()
	path := t.TempDir()
	f, err := osfs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	_, err = volume.InitWith(f, cluster.Members{{ID: 1, Client: "h:1", Peer: "h:2"}}, rand.Reader, func(c volume.Cluster) error {
		if dir == "" {
			return volume.OfferSigning(f, rand.Reader)
		}
		if err := secrets.Begin(f, c.ID, dir); err != nil {
			return err
		}
		return volume.OfferSigning(f, rand.Reader)
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOpen: a directory counts only if it is for its owner alone and of the cluster; nothing is made where it is not.
func TestOpen(t *testing.T) {
	own, other := filepath.Join(t.TempDir(), "own"), filepath.Join(t.TempDir(), "other")
	elsewhere, onVolume := made(t, own), made(t, "")
	made(t, other)
	open, file, foreign := filepath.Join(t.TempDir(), "open"), filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "foreign")
	for name, from := range map[string]string{open: own, foreign: own} {
		if err := os.CopyFS(name, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(open, 0o710), os.Chmod(foreign, 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	chowned := os.Chown(foreign, 4321, -1) == nil // only root may
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		volume, dir string
		err         error
		says        string
	}{
		"its own":                      {elsewhere, own, nil, ""},
		"none":                         {elsewhere, "", nil, ""},
		"on the volume":                {onVolume, "", nil, ""},
		"on the volume, and named":     {onVolume, own, secrets.ErrOnVolume, "leave"},
		"another cluster's":            {elsewhere, other, volume.ErrOtherSecrets, "it is of cluster"},
		"an empty one":                 {elsewhere, empty, volume.ErrOtherSecrets, "it has no file cluster"},
		"one that is missing":          {elsewhere, own + "x", secrets.ErrNoSecrets, "copy it"},
		"a relative path":              {elsewhere, "own", secrets.ErrNoSecrets, "absolute"},
		"a file":                       {elsewhere, file, secrets.ErrNoSecrets, "no directory"},
		"one that others may read":     {elsewhere, open, secrets.ErrNoSecrets, "chmod -R go= " + open},
		"one of somebody else":         {elsewhere, foreign, secrets.ErrNoSecrets, "belongs to user 4321"},
		"what is no volume, and named": {empty, own, volume.ErrNoCluster, ""},
	} {
		if x.dir == foreign && !chowned {
			continue
		}
		f, err := secrets.Open(x.volume, x.dir)
		if !errors.Is(err, x.err) || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v, want %v", name, err, x.err)
		}
		if err != nil {
			continue
		}
		if _, err := volume.ReadSigningKeys(f); errors.Is(err, volume.ErrSecretsElsewhere) != (name == "none") || err != nil && name != "none" {
			t.Errorf("%s: the keys: %v", name, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if x, err := os.ReadDir(empty); err != nil || len(x) > 0 {
		t.Errorf("a directory that was refused has %v, %v", x, err)
	}
	if info, err := os.Lstat(filepath.Join(elsewhere, "secrets")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("on the volume: %v, %v", info, err)
	}
}

// TestFilesOfOthers: a file in the directory counts only if it is of this user, or root, and nobody else may read it: whoever put another
// one there could sign what servers take. That holds for files that come later, too.
func TestFilesOfOthers(t *testing.T) {
	const key = "secrets/signing.key"
	for name, x := range map[string]struct {
		spoil func(path string) error
		says  string
	}{
		"of another user":        {func(path string) error { return os.Chown(path, 4321, -1) }, "belongs to user 4321"},
		"that others may read":   {func(path string) error { return os.Chmod(path, 0o640) }, "has mode 640; type: chmod go= "},
		"that others may write":  {func(path string) error { return os.Chmod(path, 0o602) }, "has mode 602"},
		"of root, for root only": {func(path string) error { return os.Chown(path, 0, -1) }, ""},
	} {
		if strings.Contains(name, "of ") && os.Geteuid() != 0 {
			continue // only root can give a file away
		}
		dir := filepath.Join(t.TempDir(), "own")
		volumeDir := made(t, dir)
		before, err := secrets.Open(volumeDir, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.spoil(filepath.Join(dir, filepath.Base(key))); err != nil {
			t.Fatal(err)
		}
		f, err := secrets.Open(volumeDir, dir)
		if err == nil {
			err = f.Close()
		}
		if wrong := x.says != ""; errors.Is(err, secrets.ErrNoSecrets) != wrong || errors.Is(err, osfs.ErrNotPrivate) != wrong || wrong && !strings.Contains(err.Error(), x.says) {
			t.Errorf("a file %s: %v", name, err)
		}
		_, err = before.Open(key, vfs.FlagRead) // by a server that runs
		if errors.Is(err, osfs.ErrNotPrivate) != (x.says != "") {
			t.Errorf("a file that became one %s: %v", name, err)
		}
		if err := before.Close(); err != nil {
			t.Error(err)
		}
	}
}
