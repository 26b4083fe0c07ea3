// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// TestSignThatRisesIsOfAProcessOnTheVolume: a sign that was read twice proves nothing, it may
// have come with a copy of the volume; one that rises does, also between those of another process.
func TestSignThatRisesIsOfAProcessOnTheVolume(t *testing.T) {
	s := signs{}
	for i, x := range []struct {
		nonce, count uint64
		proves       bool
	}{
		{7, 100, false},
		{7, 100, false},
		{7, 101, true},
		{8, 1, false},
		{7, 101, false},
		{8, 3, true},
		{7, 102, true},
		{7, 100, false}, // what an old cache holds
		{7, 102, false},
	} {
		if got := s.rises(volume.Process{Nonce: x.nonce, Count: x.count}); got != x.proves {
			t.Errorf("row %d: proves %v, want %v", i, got, x.proves)
		}
	}
	for nonce := range uint64(1000) {
		s.rises(volume.Process{Nonce: nonce, Count: 1})
	}
	if len(s) > maxSigns {
		t.Errorf("%d processes are remembered", len(s))
	}
}

// TestWhatIsToldOfStrangersIsPlainText: names hold anything, and pings carry only UTF-8.
func TestWhatIsToldOfStrangersIsPlainText(t *testing.T) {
	odd := "/mnt/\x1b[2J\xff" + strings.Repeat("é", 1000)
	said := about(&Options{Path: odd})
	if !utf8.ValidString(said) || len(said) > 2*maxAbout || strings.ContainsRune(said, '\x1b') {
		t.Errorf("this process says of itself %q", said)
	}
	var n Node
	told := n.strangerText(election.Stranger{ID: 2, About: odd, From: "10.0.0.9:7"})
	for _, want := range []string{"SERVER ID 2", "/mnt/?[2J", "10.0.0.9:7", "stop it"} {
		if !strings.Contains(told, want) {
			t.Errorf("%q is not in %q", want, told)
		}
	}
	if strings.ContainsRune(told, '\x1b') {
		t.Errorf("told: %q", told)
	}
}
