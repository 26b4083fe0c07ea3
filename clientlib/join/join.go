// SPDX-License-Identifier: Apache-2.0

// Package join is how a client gets to know the servers of a cluster: their addresses, and by what it recognizes them.
// An endpoint is
//
//	/mnt/share/holdfast                        the volume as this machine has it: addresses are in its CLUSTER, and
//	                                           the certificate of its authority is ca.crt. No ca.crt: plain text
//	holdfast://h1:7601,h2:7601/?pin=PIN        a join string, as holdfast join prints it: TLS
//	https://h1:7601,h2:7601                    addresses of servers that have certificates from outside: TLS
//	h1:7601                                    an address: plain text
//
// A path begins with "/", "./" or "../". A pin is the SHA-256 of the authority's public key (its
// SubjectPublicKeyInfo in DER), in base64url without padding: 43 characters. It is no secret.
//
// A client believes a server whose certificate is signed by that authority and has the name CLUSTERID.holdfast. So it
// does not matter by which name or address a server is reached. With https://, it believes one with a certificate for the name
// that it dials, of an authority that this machine trusts, as browsers do; such a server has not proved of which cluster it is.
package join

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// outside begins addresses of servers with certificates from outside.
	outside = "https://"

	scheme = "holdfast://"
	query  = "/?pin="
	// nameSuffix ends the name that all servers of a cluster have in their certificates.
	nameSuffix = ".holdfast"
	// maxServers and maxText bound a join string; the second is in bytes.
	maxServers = 64
	maxText    = 16 << 10
)

// ServerName returns the name that all servers of a cluster have in their certificates.
func ServerName(clusterID string) string { return clusterID + nameSuffix }

// Pin returns the pin of an authority's certificate.
func Pin(ca *x509.Certificate) string {
	sum := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Text returns the join string of servers at these addresses.
func Text(addresses []string, pin string) string {
	return scheme + strings.Join(addresses, ",") + query + pin
}

// Parse reads a join string. It takes only what Text returns, so that nothing in it can be overlooked.
func Parse(text string) (addresses []string, pin string, err error) {
	bad := func(why string) ([]string, string, error) {
		return nil, "", fmt.Errorf("join string %.100q: %s: copy all of what holdfast join prints, such as %sh1:7601,h2:7601%sPIN", text, why, scheme, query)
	}
	rest, ok := strings.CutPrefix(text, scheme)
	if !ok || len(text) > maxText {
		return bad("it does not begin with " + scheme + ", or is too long")
	}
	list, pin, ok := strings.Cut(rest, query)
	if !ok {
		return bad("it has no pin")
	}
	if b, err := base64.RawURLEncoding.Strict().DecodeString(pin); err != nil || len(b) != sha256.Size || len(pin) != base64.RawURLEncoding.EncodedLen(sha256.Size) {
		return bad("its pin is no pin of 43 characters")
	}
	addresses = strings.Split(list, ",")
	if len(addresses) > maxServers {
		return bad("it has too many servers")
	}
	for _, a := range addresses {
		if !isAddress(a) {
			return bad(fmt.Sprintf("%q is no HOST:PORT", a))
		}
	}
	return addresses, pin, nil
}

func isAddress(a string) bool {
	host, port, err := net.SplitHostPort(a)
	return err == nil && host != "" && isPort(port) && !strings.ContainsAny(host, "/?@# \t\r\n%")
}

// parseOutside reads addresses of servers with certificates from outside: each endpoint is such a list.
func parseOutside(endpoints []string) (addresses []string, err error) {
	for _, e := range endpoints {
		for a := range strings.SplitSeq(e, ",") {
			a = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(a), outside), "/")
			if !isAddress(a) {
				return nil, fmt.Errorf("endpoint %.100q: %q is no HOST:PORT: use %sh1:7601,h2:7601", e, a, outside)
			}
			addresses = append(addresses, a)
		}
	}
	if len(addresses) > maxServers {
		return nil, fmt.Errorf("%d endpoints: use %d at most", len(addresses), maxServers)
	}
	return addresses, nil
}

func isOutside(text string) bool { return strings.HasPrefix(text, outside) }

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// Whole reports whether a text is one endpoint that stands for all servers, so that the commas in it separate nothing:
// a path, a join string, or addresses that begin with https://.
func Whole(text string) bool {
	return strings.HasPrefix(text, scheme) || isOutside(text) || IsPath(text)
}

// Split takes a list of endpoints apart, as people write it: one that stands for all servers, or addresses with commas or spaces
// between.
func Split(list string) []string {
	if list = strings.TrimSpace(list); Whole(list) {
		return []string{list}
	}
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// IsPath reports whether a text is an endpoint that is the path of a volume.
func IsPath(text string) bool {
	return strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../")
}

// SiteDirectory returns the directory of the site of which endpoints are the path, or of which they are the path of a volume below it; "" if
// they are neither.
func SiteDirectory(endpoints []string) string {
	if len(endpoints) != 1 || !IsPath(endpoints[0]) {
		return ""
	}
	if _, err := os.Stat(filepath.Join(endpoints[0], siteFile)); err == nil {
		return endpoints[0]
	}
	dir := filepath.Join(endpoints[0], "..", "..")
	b, err := os.ReadFile(filepath.Join(dir, siteFile))
	var s struct {
		Cells []struct {
			Path string `json:"path"`
		} `json:"cells"`
	}
	if err != nil || json.Unmarshal(b, &s) != nil {
		return ""
	}
	for _, c := range s.Cells {
		if filepath.Join(dir, c.Path) != filepath.Clean(endpoints[0]) {
			continue
		}
		if !IsPath(dir) { // Join took the dot that makes it an endpoint
			dir = "./" + dir
		}
		return dir
	}
	return ""
}

// IsSite reports whether endpoints are the directory of a site of several volumes.
func IsSite(endpoints []string) bool {
	dir := SiteDirectory(endpoints)
	return dir != "" && dir == endpoints[0]
}

// Resolve returns the addresses of servers, and by what a client recognizes them; nil = by nothing, in plain text.
func Resolve(endpoints []string) (addresses []string, t *Trust, err error) {
	if !slices.ContainsFunc(endpoints, Whole) {
		return endpoints, nil, nil
	}
	e := endpoints[0]
	switch {
	case !slices.ContainsFunc(endpoints, func(e string) bool { return !isOutside(e) }): // all of them
		addresses, err := parseOutside(endpoints)
		return addresses, &Trust{outside: true}, err
	case len(endpoints) > 1:
		return nil, nil, fmt.Errorf("endpoints %q: a path or a join string stands for all servers, so give it alone, and %s with every address or with none", endpoints, outside)
	case strings.HasPrefix(e, scheme):
		addresses, pin, err := Parse(e)
		return addresses, &Trust{pin: pin}, err
	default:
		return fromVolume(e)
	}
}

// The names on a volume that clients read.
const (
	clusterFile     = "CLUSTER"
	membersFile     = "MEMBERS"
	certificateFile = "ca.crt"
	// siteFile is in the directory above several volumes.
	siteFile = "SITE"
)

// fromVolume reads a volume's directory.
func fromVolume(dir string) (addresses []string, t *Trust, err error) {
	b, err := os.ReadFile(filepath.Join(dir, clusterFile))
	if err != nil && IsSite([]string{dir}) {
		return nil, nil, fmt.Errorf("endpoint %s: this is a site of several volumes: name the one that has the lock, as in %s/cells/0; holdfast site status %s --lock NAME says which", dir, dir, dir)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("endpoint %s: no volume is there: %w: is the share mounted?", dir, err)
	}
	id, servers, err := parseCluster(b)
	if err != nil {
		return nil, nil, fmt.Errorf("endpoint %s: %s: %w", dir, clusterFile, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, membersFile)); err == nil {
		servers = membersNow(b, id, servers)
	}
	t = &Trust{path: filepath.Join(dir, certificateFile), file: true, name: ServerName(id.String())}
	return clientsOf(servers), t, t.load()
}

// ClusterID returns that of the cluster whose volume is in a directory.
func ClusterID(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, clusterFile))
	if err != nil {
		return "", err
	}
	id, _, err := parseCluster(b)
	return id.String(), err
}

// parseCluster returns a cluster's ID and the servers with which it began.
func parseCluster(b []byte) (cluster.ID, cluster.Members, error) {
	var c struct {
		ID      cluster.ID      `json:"cluster_id"`
		Servers cluster.Members `json:"servers"`
	}
	err := json.Unmarshal(b, &c)
	if err == nil {
		err = c.Servers.Validate()
	}
	return c.ID, c.Servers, err
}

// membersNow returns the servers that MEMBERS has, which shows the list of servers where that has changed. What is of another cluster, or
// damaged, is as if it were missing: it may be old, too, and servers name the primary.
func membersNow(b []byte, id cluster.ID, first cluster.Members) cluster.Members {
	if list, err := cluster.ParseMembers(b, id); err == nil {
		return list.Servers
	}
	return first
}

// clientsOf returns the addresses for clients of the members, without those that only join.
func clientsOf(servers cluster.Members) (addresses []string) {
	for _, m := range servers.Voters() {
		addresses = append(addresses, m.Client)
	}
	return addresses
}

// InRoot returns the cluster whose volume an open directory is, its servers, and by what a client recognizes them, whatever the path
// of the directory leads to by now. It returns an error if the volume has no authority.
func InRoot(r *os.Root) (id string, addresses []string, t *Trust, err error) {
	var made cluster.ID
	var servers cluster.Members
	b, err := r.ReadFile(clusterFile)
	if err == nil {
		made, servers, err = parseCluster(b)
	}
	if err != nil {
		return "", nil, nil, fmt.Errorf("%s: %w", clusterFile, err)
	}
	if b, err := r.ReadFile(membersFile); err == nil {
		servers = membersNow(b, made, servers)
	}
	if b, err = r.ReadFile(certificateFile); err != nil {
		return "", nil, nil, fmt.Errorf("the certificate of the cluster's authority (holdfast secure offer makes one): %w", err)
	}
	ca, err := ParseCertificate(b)
	if err != nil {
		return "", nil, nil, fmt.Errorf("%s: %w", certificateFile, err)
	}
	return made.String(), clientsOf(servers), WithCertificate(ca, made.String()), nil
}

// ParseCertificate reads the certificate of an authority, in PEM.
func ParseCertificate(text []byte) (*x509.Certificate, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("this is not one certificate in PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if !c.IsCA {
		return nil, errors.New("this certificate is not that of an authority")
	}
	return c, nil
}
