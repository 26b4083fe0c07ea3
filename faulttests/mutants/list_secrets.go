// SPDX-License-Identifier: Apache-2.0

package mutants

// secretsMutants break what keeps secrets off a volume, and copies of them apart.
var secretsMutants = []Mutant{
	{
		Name: "secrets-of-any-cluster", Also: "",
		Rule: "a directory of secrets is of the volume's cluster (package volume, CheckSecrets)",
		Edits: []Edit{
			{"shared/volume/secrets.go", `	case text != id.String():`, `	case text == "":`},
		},
		By: unit("shared/volume", "^TestSecretsElsewhere$"), Dies: `check another cluster's: <nil>`,
	},
	{
		Name: "old-copy-makes-signing-keys", Also: "",
		Rule: "a copy of the secrets that is behind makes no further signing key (package volume, RotateSigning)",
		Edits: []Edit{
			{"shared/volume/signing.go", `	if err := SecretsBehind(fsys); err != nil {
		return k, err
	}
`, ``},
		},
		By: unit("shared/volume", "^TestSecretsElsewhere$"), Dies: `rotate its signing key: <nil>`,
	},
	{
		Name: "two-authorities-of-a-number", Also: "",
		Rule: "an authority of the same number is another one if its certificate is (package volume, SecretsBehind)",
		Edits: []Edit{
			{"shared/volume/secrets.go", `n == own.Number && !bytes.Equal(`, `n == 0 && !bytes.Equal(`},
		},
		By: unit("shared/volume", "^TestSecretsElsewhere$"), Dies: `the other one of two: <nil>`,
	},
	{
		Name: "secrets-not-up-to-date", Also: "",
		Rule: "a copy of the secrets lacks the authority that ca.crt is of if that is a later one (package volume, SecretsBehind)",
		Edits: []Edit{
			{"shared/volume/secrets.go", `n > own.Number || n`, `n > own.Number+1 || n`},
		},
		By: unit("shared/volume", "^TestSecretsElsewhere$"), Dies: `a copy without the authority: <nil>`,
	},
	{
		Name: "exposed-directory-of-secrets", Also: "",
		Rule: "a directory of secrets into which others may look is refused (package secrets, private)",
		Edits: []Edit{
			{"cmd/holdfast/secrets/secrets.go", `	case info.Mode()&0o077 != 0:`, `	case info.Mode()&0o077 == 0o077:`},
		},
		By: unit("cmd/holdfast/secrets", "^TestOpen$"), Dies: `one that others may read: <nil>`,
	},
}
