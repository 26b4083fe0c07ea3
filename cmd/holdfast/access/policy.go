// SPDX-License-Identifier: Apache-2.0

package access

import "fmt"

// The policies.
const (
	Team   = "team"
	Strict = "strict"
	Open   = "open"
)

const policyHead = `# Access rules: who may do what with which locks and protected files. They only ever allow.
# Who has the volume's secrets, as the servers' user, may do everything whatever stands here.
#
# who:   user:alice, service:ci, group:astro, user:* for all of a kind, "*" for everybody with
#        a credential, "anonymous" for those without one too
# may:   acquire (hold a lock, and wait for it), read (see locks, files and history),
#        append (write protected files), break (take a lock from its holder)
# locks: names; * for anything between two slashes, ** at the end for all that follows,
#        {name} for the caller's own name
# files: the same for protected files; without it, the patterns of locks
#
# Change it with: holdfast access edit --volume DIR

# Who may do everything:
#[[admin]]
#who = ["group:admins"]

# How much callers may have and how fast they may ask, each by itself (who), or all together below a prefix:
#[[quota]]
#who = ["service:*"]
#limits = { locks = 10000, waiters = 1000, requests_per_s = 5000 }

`

const teamText = `# Everybody with a credential may use every lock.
[[rule]]
who = ["*"]
may = ["acquire", "read", "append"]
locks = ["**"]
`

const strictText = `# Users and services have a part of their own. user:ci and service:ci have different ones.
[[rule]]
who = ["user:*"]
may = ["acquire", "read", "append", "break"]
locks = ["home/{name}/**"]

[[rule]]
who = ["service:*"]
may = ["acquire", "read", "append", "break"]
locks = ["service/{name}/**"]

# A part that a group shares:
#[[rule]]
#who = ["group:astro"]
#may = ["acquire", "read", "append"]
#locks = ["astro/**"]
`

const openText = `# Everybody who reaches a server may use every lock.
[[rule]]
who = ["anonymous"]
may = ["acquire", "read", "append", "break"]
locks = ["**"]
`

// Policy returns the text of the first version of the rules by this policy.
func Policy(name string) ([]byte, error) {
	switch name {
	case Team:
		return []byte(policyHead + teamText), nil
	case Strict:
		return []byte(policyHead + strictText), nil
	case Open:
		return []byte(policyHead + openText), nil
	}
	return nil, fmt.Errorf("policy %q: use %s, %s or %s", name, Team, Strict, Open)
}
