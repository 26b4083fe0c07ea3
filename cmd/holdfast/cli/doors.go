// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net"
	"strconv"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/text"
	"github.com/holdfast-lock/holdfast/shared/frontend/ws"
)

// doorKind is a kind of front end without an address in CLUSTER, which is off by default.
type doorKind struct {
	name   string // for people
	flag   string // the flag with its address
	offset int    // added to a server's gRPC port it is the port that dev uses
	url    string // its URL, with %s for the address
	make   func(*serverFlags) func(*httpapi.Door, zerolog.Logger) serve.Front
}

func doorKinds() []doorKind {
	return []doorKind{
		{"WebSocket", "ws-listen", 300, "ws://%s" + ws.Path, func(f *serverFlags) func(*httpapi.Door, zerolog.Logger) serve.Front {
			return func(d *httpapi.Door, log zerolog.Logger) serve.Front {
				return ws.New(d, ws.Options{Log: log, Origins: f.wsOrigins})
			}
		}},
		{"text", "text-listen", 400, "%s", func(*serverFlags) func(*httpapi.Door, zerolog.Logger) serve.Front {
			return func(d *httpapi.Door, log zerolog.Logger) serve.Front { return text.New(d, log) }
		}},
	}
}

// doorFlags adds the flags with the addresses of further front ends.
func doorFlags(fl *pflag.FlagSet, f *serverFlags) {
	kinds := doorKinds()
	f.doors = make([]string, len(kinds))
	for i, k := range kinds {
		fl.StringVar(&f.doors[i], k.flag, "", fmt.Sprintf("serve %s on this HOST:PORT (default: not at all)", k.name))
	}
	originFlag(fl, f)
}

// originFlag adds --ws-origin, which server and dev have.
func originFlag(fl *pflag.FlagSet, f *serverFlags) {
	fl.StringArrayVar(&f.wsOrigins, "ws-origin", nil, "let pages of this origin connect over WebSocket, such as https://*.example.com (may be repeated)")
}

// listening returns the further front ends that have an address.
func (f *serverFlags) listening() (all []serve.Door, err error) {
	for _, o := range f.wsOrigins {
		if err := ws.CheckOrigin(o); err != nil {
			return nil, usagef("--ws-origin: %v", err)
		}
	}
	for i, k := range doorKinds() {
		addr := f.doors[i]
		if addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, usagef("--%s %q: use HOST:PORT", k.flag, addr)
		}
		all = append(all, serve.Door{Name: k.name, Addr: addr, New: k.make(f)})
	}
	return all, nil
}

// devDoor is a further front end of a server that dev runs.
type devDoor struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	addr string
	flag string
}

// devDoors returns the further front ends of the server with this gRPC port.
func devDoors(host string, port int) (all []devDoor) {
	for _, k := range doorKinds() {
		addr := net.JoinHostPort(host, strconv.Itoa(port+k.offset))
		all = append(all, devDoor{Name: k.name, URL: fmt.Sprintf(k.url, addr), addr: addr, flag: "--" + k.flag + "=" + addr})
	}
	return all
}

// lastOffset is the distance from a server's gRPC port to the highest port that dev gives it.
func lastOffset() int {
	last := defaultPeerPort - defaultGRPCPort
	for _, k := range doorKinds() {
		last = max(last, k.offset)
	}
	return last
}
