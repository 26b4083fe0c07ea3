// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net"

	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/serve"
	"github.com/holdfast-lock/holdfast/shared/frontend/origins"
)

// oldListenFlags are flags with which a server had a port for WebSocket, and one for lines of text. They go with the
// next version.
func oldListenFlags() []string { return []string{"ws-listen", "text-listen"} }

// listenFlags adds the flags that say where a server listens for clients, and which web pages it admits.
func listenFlags(fl *pflag.FlagSet, f *serverFlags) {
	fl.StringVar(&f.listen, "listen", "", "listen for clients on this HOST:PORT instead of their address in CLUSTER, which other servers and clients go on using")
	fl.StringVar(&f.socket, "unix", "", "also listen on a Unix socket at this path, such as /run/holdfast/holdfast.sock: users of this host are known by it")
	fl.StringVar(&f.tlsCert, "tls-cert", "", "a PEM file with a certificate for clients, and those of its authorities, beside the one that the volume's own authority signs; it is read again every 10 s")
	fl.StringVar(&f.tlsKey, "tls-key", "", "a PEM file with the key of --tls-cert")
	fl.StringVar(&f.clientCA, "client-ca", "", "a PEM file with authorities: a client that shows a certificate of one is cert:NAME, its first URI, else DNS name, else common name")
	fl.IntVar(&f.perAddress, "max-connections-per-address", serve.ConnectionsPerAddress, "how many connections of clients one address may have; give more where a load balancer speaks for many. This host has no such bound")
	names := oldListenFlags()
	f.also = make([]string, len(names))
	for i, name := range names {
		fl.StringVar(&f.also[i], name, "", "deprecated: also listen for clients, of all kinds, on this HOST:PORT")
		if err := fl.MarkHidden(name); err != nil {
			panic(err) // it was added just now
		}
	}
	fl.StringVar(&f.tlsMin, "tls-min", tls13, "the oldest version of TLS that clients may speak: 1.3, or 1.2 for those that know no other")
	fl.StringSliceVar(&f.names, "names", nil, "further names and addresses by which clients reach this server, for its certificate, such as that of a load balancer")
	originFlag(fl, f)
}

// originFlag adds --web-origins, which server and dev have.
func originFlag(fl *pflag.FlagSet, f *serverFlags) {
	fl.StringSliceVar(&f.origins, "web-origins", nil, "let web pages of these origins use this server, such as https://*.example.com (may be repeated)")
	fl.StringArrayVar(&f.wsOrigins, "ws-origin", nil, "the older name of --web-origins")
	if err := fl.MarkHidden("ws-origin"); err != nil {
		panic(err) // it was added just now
	}
}

// listening checks where the server is to listen for clients. It returns the addresses beside the first, and warnings
// for the log.
func (f *serverFlags) listening() (also, warnings []string, err error) {
	f.origins = append(f.origins, f.wsOrigins...)
	for _, o := range f.origins {
		if err := origins.Check(o); err != nil {
			return nil, nil, usagef("--web-origins: %v", err)
		}
	}
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return nil, nil, usagef("--tls-cert and --tls-key: give both, or none")
	}
	if f.perAddress < 1 {
		return nil, nil, usagef("--max-connections-per-address %d: use 1 or more", f.perAddress)
	}
	if err := checkListen("listen", f.listen); err != nil {
		return nil, nil, err
	}
	for i, name := range oldListenFlags() {
		addr := f.also[i]
		if err := checkListen(name, addr); err != nil {
			return nil, nil, err
		}
		if addr != "" {
			also = append(also, addr)
			warnings = append(warnings, fmt.Sprintf("--%s is deprecated, and the next version refuses it: the address for clients serves WebSocket and lines of text, too; let clients use that, and leave the flag out", name))
		}
	}
	return also, warnings, nil
}

func checkListen(flag, addr string) error {
	if addr == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return usagef("--%s %q: use HOST:PORT", flag, addr)
	}
	return nil
}
