// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"io"
)

// clientSetting is a setting of clients, and where it is from.
type clientSetting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// showClient shows which servers commands on this host ask, and with which credential. It shows no credential.
func (a *app) showClient(outputGiven bool) error {
	if a.clientErr != nil {
		return usagef("%v", a.clientErr)
	}
	all := []clientSetting{
		a.clientSetting("endpoints", a.endpoints, "HOLDFAST_ENDPOINTS", defaultEndpoints),
		a.clientSetting("ca", a.ca, "HOLDFAST_CA", ""),
		a.keySetting(),
		a.clientSetting("cert", a.cert, envCert, ""),
		a.clientSetting("cert-key", a.certKey, envCertKey, ""),
		{"output", a.format, "default"},
	}
	if all[1].Value != "" && a.authority() == "" {
		all[1] = clientSetting{"ca", "", "none: that of a file is for the endpoints of files"}
	}
	switch out := &all[len(all)-1]; {
	case outputGiven:
		out.Origin = "--output"
	case a.client.Output != "":
		out.Origin = a.client.From["output"]
	}
	return a.print(struct {
		Settings []clientSetting `json:"settings"`
	}{all}, func(w io.Writer) {
		table(w, func(row func(...any)) {
			row("NAME", "VALUE", "FROM")
			for _, x := range all {
				row(x.Name, cmp.Or(x.Value, "-"), x.Origin)
			}
		})
	})
}

// clientSetting returns the value that counts, of a flag, a variable, a file or the default.
func (a *app) clientSetting(key, flag, variable, def string) clientSetting {
	switch {
	case flag != "":
		return clientSetting{key, flag, "--" + key}
	case a.Getenv(variable) != "":
		return clientSetting{key, a.Getenv(variable), variable}
	case a.client.Get(key) != "":
		return clientSetting{key, a.client.Get(key), a.client.From[key]}
	}
	return clientSetting{key, def, "default"}
}

// keySetting returns the file with the credential, in the order of credential.FromEnvironment.
func (a *app) keySetting() clientSetting {
	const name = "key-file"
	if a.Getenv("HOLDFAST_KEY") != "" {
		return clientSetting{name, "", "HOLDFAST_KEY, which is not shown"}
	}
	x := a.clientSetting(name, "", "HOLDFAST_KEY_FILE", "")
	if dir := a.Getenv("CREDENTIALS_DIRECTORY"); dir != "" && x.Origin != "HOLDFAST_KEY_FILE" {
		return clientSetting{name, dir + "/holdfast.key", "CREDENTIALS_DIRECTORY, if it is there"}
	}
	return x
}
