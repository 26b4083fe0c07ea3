// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// frame is a frame as Next returns it.
type frame struct {
	kind    Kind
	payload []byte
}

// all reads frames until an error, which it returns.
func all(r *Reader) (got []frame, err error) {
	for {
		kind, payload, _, err := r.Next()
		if err != nil {
			return got, err
		}
		got = append(got, frame{kind, bytes.Clone(payload)})
	}
}

func TestFramesOfAllLengths(t *testing.T) {
	var stream []byte
	var want []frame
	for n := range 3 * bufferSize {
		payload := bytes.Repeat([]byte{byte(n)}, n)
		stream = Append(stream, Kind(n%7), payload)
		want = append(want, frame{Kind(n % 7), payload})
	}
	for name, r := range map[string]io.Reader{
		"whole":          bytes.NewReader(stream),
		"byte by byte":   iotest.OneByteReader(bytes.NewReader(stream)),
		"in halves":      iotest.HalfReader(bytes.NewReader(stream)),
		"end with bytes": iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		got, err := all(NewReader(r, 4*bufferSize))
		if !errors.Is(err, io.EOF) || len(got) != len(want) {
			t.Fatalf("%s: %d frames, %v", name, len(got), err)
		}
		for i, f := range got {
			if f.kind != want[i].kind || !bytes.Equal(f.payload, want[i].payload) {
				t.Fatalf("%s: frame %d is of kind %d and %d bytes", name, i, f.kind, len(f.payload))
			}
		}
	}
}

// What a caller keeps of a frame that it owns is not overwritten by the next.
func TestOwnedPayloadsStay(t *testing.T) {
	long := bytes.Repeat([]byte("a"), bufferSize)
	stream := Append(Append(nil, Message, long), Message, bytes.Repeat([]byte("b"), bufferSize))
	r := NewReader(bytes.NewReader(stream), 1<<20)
	_, kept, own, err := r.Next()
	if err != nil || !own {
		t.Fatal(own, err)
	}
	if _, _, _, err := r.Next(); err != nil || !bytes.Equal(kept, long) {
		t.Errorf("%v, kept %q", err, kept)
	}
}

func TestTornAndHostileFrames(t *testing.T) {
	whole := Append(nil, Message, make([]byte, 2*bufferSize))
	for n := 1; n < len(whole); n += 97 {
		if _, err := all(NewReader(bytes.NewReader(whole[:n]), 1<<20)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
	if _, err := all(NewReader(bytes.NewReader(whole), 2*bufferSize-1)); !errors.Is(err, ErrTooLong) {
		t.Errorf("longer than is taken: %v", err)
	}
	huge := binary.BigEndian.AppendUint32(nil, 1<<32-1)
	if _, err := all(NewReader(bytes.NewReader(append(huge, 2)), 1<<20)); !errors.Is(err, ErrTooLong) {
		t.Errorf("the longest there is: %v", err)
	}
}

// A frame that is announced and does not come takes no more memory than what has come.
func TestAnnouncedFramesTakeNoMemory(t *testing.T) {
	announced := binary.BigEndian.AppendUint32(nil, 1<<30)
	r := NewReader(bytes.NewReader(append(announced, 2, 'x')), 1<<30)
	n := testing.AllocsPerRun(1, func() { _, _, _, _ = r.Next() })
	if n > 4 {
		t.Errorf("%v allocations", n)
	}
}

func TestPreface(t *testing.T) {
	r := NewReader(iotest.OneByteReader(bytes.NewReader(Append([]byte(Preface), Ping, []byte("p")))), 10)
	if err := r.Skip(Preface); err != nil {
		t.Fatal(err)
	}
	if kind, payload, _, err := r.Next(); kind != Ping || string(payload) != "p" || err != nil {
		t.Error(kind, payload, err)
	}
	if err := NewReader(bytes.NewReader([]byte("GET / HTTP/1.1")), 10).Skip(Preface); err == nil {
		t.Error("HTTP was taken for a client")
	}
}

// However the bytes arrive, the frames are the same, and none is longer than the limit.
func FuzzReader(f *testing.F) {
	f.Add(Append(Append(nil, Settings, []byte("x")), Message, make([]byte, 2*bufferSize)), uint8(3))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 2}, uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		const limit = 1 << 16
		whole, err := all(NewReader(bytes.NewReader(stream), limit))
		pieces, perr := all(NewReader(&steps{stream, int(step) + 1}, limit))
		if len(whole) != len(pieces) || errors.Is(err, io.EOF) != errors.Is(perr, io.EOF) {
			t.Fatalf("%d frames and %v, in pieces %d and %v", len(whole), err, len(pieces), perr)
		}
		used := 0
		for i, x := range whole {
			if x.kind != pieces[i].kind || !bytes.Equal(x.payload, pieces[i].payload) || len(x.payload) > limit {
				t.Fatalf("frame %d differs", i)
			}
			used += HeaderSize + len(x.payload)
		}
		if used > len(stream) || errors.Is(err, io.EOF) && used != len(stream) {
			t.Fatalf("%d bytes of %d became frames", used, len(stream))
		}
	})
}

// steps gives n bytes with each Read.
type steps struct {
	b []byte
	n int
}

func (s *steps) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.b[:min(s.n, len(s.b))])
	s.b = s.b[n:]
	return n, nil
}

func BenchmarkReader(b *testing.B) {
	for name, size := range map[string]int{"small": 100, "long": 20000} {
		b.Run(name, func(b *testing.B) {
			one := Append(nil, Message, make([]byte, size))
			src := bytes.NewReader(nil)
			r := NewReader(src, 1<<20)
			b.ReportAllocs()
			for b.Loop() {
				src.Reset(one)
				if _, _, _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
