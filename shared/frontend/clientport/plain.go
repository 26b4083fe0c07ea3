// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// RequireTLS has the port refuse plain text from now on, except from this host: what does not leave a machine needs no
// TLS against the network, and tools on it no certificate. Connections that are open go on.
func (p *Port) RequireTLS() { p.required.Store(true) }

var errPlain = errors.New("TLS is required here: use the path of the volume or the string that holdfast join prints as the endpoint, https:// with ca.crt of the volume, or TLS in gRPC")

const (
	// byeWait bounds how long a client that is refused may take to read why, and byeBytes what is still taken from it.
	byeWait  = time.Second
	byeBytes = 64 << 10
	// Of HTTP/2: types of frames, the length of what a client says first, and that of a frame's head.
	headersFrame, settingsFrame = 1, 4
	http2Preface, http2Head     = 24, 9
)

// refusesPlain reports whether the port takes no plain text on a connection.
func (p *Port) refusesPlain(c net.Conn) bool {
	if !p.required.Load() {
		return false
	}
	if serving.ThroughGateway(c.RemoteAddr()) {
		return true
	}
	switch a := serving.PlainAddr(c.RemoteAddr()).(type) {
	case *net.TCPAddr:
		return !a.IP.IsLoopback()
	case *net.UnixAddr:
		return false
	default:
		return true
	}
}

// turnAway tells a client in its own words why it is refused. Its connection is to be closed. What is read of served is
// what the client says.
func turnAway(c, served net.Conn, class Class, x denial) error {
	_ = c.SetDeadline(time.Now().Add(byeWait))
	said := io.LimitReader(served, byeBytes)
	var err error
	if class == GRPC {
		err = x.refuseCall(c, said)
	} else {
		_, err = c.Write(x.farewell(class))
	}
	if err == nil {
		hangUp(c, said)
	}
	return x.why
}

// denial is why a client is refused, and how that is said.
type denial struct {
	why    error
	status pb.Status
	grpc   codes.Code
	line   string // of the line protocol, without its end
}

// inPlain refuses plain text.
func inPlain(why error) denial {
	return denial{why, pb.Status_STATUS_INVALID_ARGUMENT, codes.Unauthenticated, "DENIED: " + why.Error()}
}

// hangUp ends this side of a connection whose client has been told why. What was not read when a connection is closed has it
// reset, and what was told is lost: so what the client said is read, until said or the connection's deadline ends.
func hangUp(c net.Conn, said io.Reader) {
	if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, said)
	}
}

// refuseCall answers the first call of a client over gRPC.
func (x denial) refuseCall(c io.Writer, said io.Reader) error {
	if _, err := c.Write([]byte{0, 0, 0, settingsFrame, 0, 0, 0, 0, 0}); err != nil {
		return err
	}
	skip := int64(http2Preface)
	for {
		if _, err := io.CopyN(io.Discard, said, skip); err != nil {
			return err
		}
		var head [http2Head]byte
		if _, err := io.ReadFull(said, head[:]); err != nil {
			return err
		}
		if skip = int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2]); head[3] != headersFrame {
			continue
		}
		fields := []byte{0x88} // the status 200
		for _, f := range [][2]string{{"content-type", "application/grpc"}, {"grpc-status", strconv.Itoa(int(x.grpc))}, {"grpc-message", x.why.Error()}} {
			fields = append(fields, 0) // a name and a value come, which nobody need remember
			fields = append(appendLength(fields, len(f[0])), f[0]...)
			fields = append(appendLength(fields, len(f[1])), f[1]...)
		}
		const endOfAll = 0x5 // of the fields, and of the stream
		b := append([]byte{0, byte(len(fields) >> 8), byte(len(fields)), headersFrame, endOfAll}, head[5:]...)
		_, err := c.Write(append(b, fields...))
		return err
	}
}

// appendLength appends the length of a text as HPACK has it (RFC 7541, 5.1): seven bits, then groups of seven.
func appendLength(b []byte, n int) []byte {
	if n < 127 {
		return append(b, byte(n))
	}
	return binary.AppendUvarint(append(b, 127), uint64(n-127))
}

// farewell is how a front end would say it.
func (x denial) farewell(class Class) []byte {
	why := x.why.Error()
	switch class {
	case HTTP:
		status := wire.FromStatus(x.status)
		code := wire.HTTPCode(status)
		body := `{"status":"` + status.String() + `","message":` + strconv.Quote(why) + "}\n"
		return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", code, http.StatusText(code), len(body), body)
	case Sessions:
		end, err := proto.Marshal(&pb.SessionResponse{End: &pb.ErrorDetail{Status: x.status, Message: why}})
		if err != nil {
			return nil // the text is UTF-8
		}
		return frames.Append(nil, frames.Message, end)
	default:
		return []byte(x.line + "\n")
	}
}
