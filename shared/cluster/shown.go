// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

// shown is the content of MEMBERS, the file on the volume that shows the list of servers.
type shown struct {
	Cluster ID `json:"cluster_id"`
	// Epoch is that of the term which wrote it, for people.
	Epoch Epoch `json:"epoch"`
	Membership
	// Sum is the CRC-32C of all that, in hexadecimal: a digit that is wrong could say of a server that it was removed, which is final.
	Sum string `json:"crc32c"`
}

func (v *shown) sum() string {
	text := fmt.Sprintf("%v %d %s", v.Cluster, v.Epoch, v.Text())
	return fmt.Sprintf("%08x", crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
}

// MembersText returns the content of MEMBERS for a list.
func MembersText(id ID, e Epoch, list Membership) string {
	v := shown{Cluster: id, Epoch: e, Membership: list}
	v.Sum = v.sum()
	b, err := json.Marshal(v)
	if err != nil {
		return "" // numbers and texts: it cannot happen
	}
	return string(b)
}

// ParseMembers returns the list in a content of MEMBERS. It returns an error for one that is damaged, or of another cluster.
func ParseMembers(text []byte, id ID) (Membership, error) {
	var v shown
	err := json.Unmarshal(text, &v)
	switch {
	case err != nil:
	case v.Cluster != id:
		err = fmt.Errorf("it is of cluster %s, and CLUSTER of %s", v.Cluster, id)
	case v.Sum != v.sum():
		err = errors.New("its checksum is wrong")
	default:
		err = v.Validate()
	}
	if err != nil {
		return Membership{}, err
	}
	return v.Membership, nil
}
