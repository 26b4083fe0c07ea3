// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/auditdir"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/inspect"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// walkFiles records the size of every file below dir.
func (k *fsck) walkFiles(dir string) {
	entries, err := k.fs.ReadDir(dir)
	if err != nil {
		k.error("directory-missing", dir, "type: mkdir DIR/"+dir, "%v", err)
		return
	}
	for _, x := range entries {
		p := dir + "/" + x.Name
		if x.Type == vfs.TypeDir {
			k.walkFiles(p)
			continue
		}
		if info, err := k.fs.Lstat(p); err == nil {
			k.sizes[cluster.FileName(strings.TrimPrefix(p, layout.FilesDir+"/"))] = info.Size
		}
	}
}

// protected compares each bound file with the table, the receipts and every append
// in the log, and reports files that are not bound.
func (k *fsck) protected() {
	table := k.adoption.Table
	checks := inspect.NewFileChecks(k.fs, table, k.deep.redo, k.adoption.Redo)
	for name, f := range table.Files() {
		k.report.Files++
		p := volume.ProtectedPath(name)
		if f.Quarantined {
			k.warn("file-quarantined", p, adviceRotate, "quarantined: %s", f.Reason)
			continue
		}
		k.opt.Progress(p)
		c := checks[name]
		c.SizeBefore = k.sizes[name]
		problem, err := c.Run(k.ctx)
		k.report.Bytes += c.Compared
		switch {
		case err != nil:
			k.error("file-unreadable", p, "see that it can be read", "%v", err)
		case problem != nil:
			k.add(Finding{Severity: SeverityError, Code: problem.Code, Path: p, Offset: problem.Offset, LSN: problem.LSN, Problem: problem.Text, Advice: adviceRotate})
		case c.Pending.Bytes > 0:
			k.pending(p, c.Pending)
		}
	}
	if err := k.indexed(checks); err != nil {
		k.warn("index-unreadable", layout.IndexDir, "see that it can be read, or remove it: what it tells is lost then", "%v", err)
	}
	for name := range k.sizes {
		if _, ok := table.File(name); !ok {
			k.info("file-unbound", volume.ProtectedPath(name), "to protect it, bind it with adopt_existing", "not bound to a lock")
		}
	}
}

// pending reports bytes that are in the log and not in a file. If no primary is running, a
// power loss or a kill explains them, and nothing is lost. A running primary writes them before the next pass.
func (k *fsck) pending(path string, lacks inspect.Pending) {
	f := Finding{
		Severity: SeverityInfo, Code: fileBehind, Path: path, Offset: lacks.From, LSN: lacks.LSN, Pending: lacks.Bytes,
		Problem: fmt.Sprintf("pending: %d committed bytes are in the log and not in the file yet", lacks.Bytes),
		Advice:  "nothing is lost: the next primary writes them; start the servers if none run",
	}
	if k.serving {
		f.Severity, f.Code = SeverityWarning, fileLags
		f.Problem = fmt.Sprintf("%d committed bytes are not in the file, and that does not change: it was cut, or its primary cannot write it", lacks.Bytes)
		f.Advice = "see that it can be written, and hand the primary role over (holdfast handover): the next primary writes them from the log"
	}
	k.add(f)
}

// viewState is a view as it was read.
type viewState struct {
	name string
	head checkpoint.Head
	err  error
}

func (k *fsck) readViews() {
	for _, name := range []string{layout.StateName, layout.RequestsName} {
		head, err := checkpoint.ReadView(k.fs, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a young volume
		}
		k.views = append(k.views, viewState{name, head, err})
	}
}

// checkViews compares the views with the log. A wrong view only misleads people, but
// a view that is ahead of the log shows that records are lost.
func (k *fsck) checkViews() {
	const advice = "the primary writes it again within seconds"
	for _, v := range k.views {
		switch {
		case v.err != nil:
			k.warn("view-damaged", v.name, advice, "%v", v.err)
		case v.head.Cluster != k.v.Cluster().ID:
			k.warn("view-foreign", v.name, advice, "it is of cluster %s", v.head.Cluster)
		case k.epochs[len(k.epochs)-1].Unknown(): // it may be that one's
		case v.head.LSN > k.adoption.End.LSN || v.head.Epoch > k.epochs[len(k.epochs)-1].Epoch:
			k.add(Finding{
				Severity: SeverityError, Code: "view-ahead", Path: v.name, LSN: v.head.LSN, Advice: adviceRecover,
				Problem: fmt.Sprintf("it shows LSN %d of epoch %d, the log ends at LSN %d: an older state was restored", v.head.LSN, v.head.Epoch, k.adoption.End.LSN),
			})
		}
	}
}

// checkMembers compares MEMBERS with the list of servers in the log. Who reads an old one claims in vain at most.
func (k *fsck) checkMembers() {
	log, advice := k.adoption.Table.MembersOr(k.v.Cluster().Servers), "the primary writes it again within seconds"
	if !k.serving {
		advice = fmt.Sprintf("the next primary writes it again. Where a server cannot start for want of it, type: echo '%s' > DIR/%s", cluster.MembersText(k.v.Cluster().ID, k.report.Epoch, log), layout.MembersName)
	}
	switch {
	case k.listErr != nil:
		k.warn("members-damaged", layout.MembersName, advice, "%v", k.listErr)
	case k.epochs[len(k.epochs)-1].Unknown(): // it may be that one's
	case k.members.Version > log.Version:
		k.error("members-ahead", layout.MembersName, adviceRecover, "it shows version %d of the list of servers, the log has version %d: an older state was restored", k.members.Version, log.Version)
	case k.members.Version < log.Version:
		k.info("members-behind", layout.MembersName, advice, "it shows version %d of the list of servers, the log has version %d", k.members.Version, log.Version)
	case k.members.Text() != log.Text():
		k.warn("members-differ", layout.MembersName, advice, "it shows version %d of the list of servers with another content than the log has", k.members.Version)
	}
}

// checkCell compares CLUSTER with what the log says that this cell of a site owns. No server takes over a log of another cell.
func (k *fsck) checkCell() {
	c := k.v.Cluster()
	if err := c.FitsCell(k.adoption.Table); err != nil {
		k.error("cell-differs", layout.ClusterName, "put the files of this volume back, from a backup of it", "%v", err)
	}
}

// knows reports whether a server was ever listed, as far as CLUSTER, MEMBERS and the log tell.
func (k *fsck) knows(id cluster.ServerID) bool {
	if _, first := k.v.Cluster().Servers.Find(id); first {
		return true
	}
	lists := []cluster.Membership{k.members}
	if k.adoption != nil {
		lists = append(lists, k.adoption.Table.MembersOr(k.v.Cluster().Servers))
	}
	return slices.ContainsFunc(lists, func(list cluster.Membership) bool {
		_, listed := list.Servers.Find(id)
		return listed || list.Version > 1 && list.Removed(id)
	})
}

// checkHistory compares the end of the history with that of the log.
func (k *fsck) checkHistory() {
	for _, w := range k.witnesses {
		if w.Odd > 0 {
			k.warn("history-damaged", w.Path, adviceLeave, "%d lines near its end are damaged, and count for nothing", w.Odd)
		}
		if w.LSN > k.adoption.End.LSN && !k.epochs[len(k.epochs)-1].Unknown() { // else it may be that one's
			k.add(Finding{
				Severity: SeverityError, Code: "history-ahead", Path: w.Path, LSN: w.LSN, Advice: adviceRecover,
				Problem: fmt.Sprintf("it tells of LSN %d, the log ends at LSN %d: an older state was restored", w.LSN, k.adoption.End.LSN),
			})
		}
	}
}

// names reports files that do not belong on a volume, and files that other users may write.
func (k *fsck) names() {
	open := map[string]int{} // names that others may write to, by their first directory
	known := map[string]func(string, vfs.Entry) string{
		".": rootName, layout.EpochsDir: epochName, layout.ServersDir: k.serverName, layout.HistoryDir: anyName, layout.FilesDir: fileName,
	}
	k.checkAuthority()
	k.checkRules()
	k.checkLogin()
	k.checkAudit()
	for _, dir := range []string{".", layout.EpochsDir, layout.ServersDir, layout.HistoryDir, layout.FilesDir} {
		k.nameTree(dir, known[dir], open)
	}
	for _, e := range k.epochs {
		k.nameTree(layout.EpochDir(e.Epoch), inEpochName, open)
	}
	for top, n := range open {
		k.warn("writable", top, "type: chmod -R go-w DIR/"+top+"   (who can write to it can break it)", "%d names may be written by others than their owner", n)
	}
}

// checkAuthority looks at what clients know the servers by. Who runs fsck may have no access to the secrets.
func (k *fsck) checkAuthority() {
	const offer = "type: holdfast secure offer --volume DIR"
	if elsewhere, err := volume.SecretsElsewhere(k.fs); err == nil && elsewhere {
		k.info("secrets-elsewhere", layout.SecretsDir, "to look at them, too, add --secrets DIR on the host of a server", "the secrets are not on the volume")
		return
	}
	if err := volume.SecretsBehind(k.fs); errors.Is(err, volume.ErrSecretsBehind) {
		k.warn("secrets-behind", layout.SecretsDir, "copy the files of that directory from the host on which they were made last", "%v", err)
		return
	}
	a, err := volume.ReadAuthority(k.fs)
	public, publicErr := vfs.ReadFile(k.fs, layout.AuthorityName, vfs.FlagRead)
	switch {
	case errors.Is(err, volume.ErrNoAuthority) && publicErr == nil:
		k.error("authority-key-missing", layout.AuthorityName, "restore "+layout.SecretsDir+" from a backup, or remove this file and "+offer, "clients trust it, and no server can have a certificate of it")
	case errors.Is(err, volume.ErrNoAuthority), errors.Is(err, fs.ErrPermission):
	case errors.Is(err, volume.ErrExposed):
		k.warn("secret-exposed", layout.SecretsDir, "type: chmod -R go= DIR/"+layout.SecretsDir, "%v", err)
	case err != nil:
		k.error("authority-damaged", layout.SecretsDir, "restore it from a backup", "%v", err)
	case errors.Is(publicErr, fs.ErrNotExist):
		k.warn("authority-unfinished", layout.AuthorityName, offer, "it is not there, and its key is: a holdfast secure offer was interrupted")
	case publicErr == nil && len(public) > 0 && bytes.Contains(a.Vouchers, public):
		k.warn("authority-unfinished", layout.AuthorityName, "type: holdfast secure rotate ca --volume DIR", "it is the certificate of an earlier authority: a rotation is under way, or was interrupted")
	case publicErr != nil || !bytes.Equal(public, a.Certificate):
		k.error("authority-differs", layout.AuthorityName, "remove it and "+offer, "it is not the certificate of the volume's authority: clients refuse the servers")
	}
	k.checkSigning(offer, errors.Is(err, volume.ErrExposed))
	k.nameSecrets(offer)
}

// checkSigning looks at the keys with which servers sign. exposed is true if it was said that others may read secrets.
func (k *fsck) checkSigning(offer string, exposed bool) {
	keys, err := volume.ReadSigningKeys(k.fs)
	public, publicErr := volume.ReadPublicKeys(k.fs)
	switch {
	case errors.Is(err, volume.ErrNoSigningKey) && publicErr == nil:
		k.error("signing-key-missing", layout.SigningPublicName, "restore "+layout.SecretsDir+" from a backup, or remove this file and "+offer, "it is public, and no server can sign with it")
	case errors.Is(err, volume.ErrNoSigningKey), errors.Is(err, fs.ErrPermission):
	case errors.Is(err, volume.ErrExposed) && exposed:
	case errors.Is(err, volume.ErrExposed):
		k.warn("secret-exposed", layout.SecretsDir, "type: chmod -R go= DIR/"+layout.SecretsDir, "%v", err)
	case err != nil:
		k.error("signing-damaged", layout.SecretsDir, "restore it from a backup", "%v", err)
	case errors.Is(publicErr, volume.ErrNoSigningKey):
		k.warn("signing-unfinished", layout.SigningPublicName, offer, "it is not there, and its keys are: a holdfast secure offer was interrupted")
	case publicErr != nil || !bytes.Equal(public, volume.PublicKeys(keys)):
		k.error("signing-differs", layout.SigningPublicName, "remove it and "+offer, "it has not the public keys of this volume")
	}
}

// nameSecrets reports files in secrets/ that do not belong there. Who may not look there is told nothing.
func (k *fsck) nameSecrets(offer string) {
	entries, _ := k.fs.ReadDir(layout.SecretsDir)
	for _, x := range entries {
		p := layout.SecretsDir + "/" + x.Name
		if strings.HasSuffix(x.Name, layout.TmpSuffix) {
			k.info("leftover", p, offer, "left by a process that ended in the middle of something")
			continue
		}
		_, signing := volume.ParseSigningName(x.Name)
		if _, authority := volume.ParseAuthorityName(x.Name); !signing && !authority && x.Name != layout.SecretsClusterName {
			k.info("unknown-name", p, "nothing reads it; move it away if it is not yours", "not a name of Holdfast's")
		}
	}
}

// checkRules looks at the versions of the access rules, but not into them. Who runs fsck may have no access to them.
func (k *fsck) checkRules() {
	all, err := volume.RulesVersions(k.fs)
	for _, n := range all {
		switch _, err := volume.ReadRules(k.fs, n); {
		case errors.Is(err, volume.ErrExposed):
			k.warn("rules-exposed", volume.RulesPath(n), "type: chmod -R go= DIR/"+layout.AccessDir+"   (and look at what is in it)", "%v", err)
		case errors.Is(err, volume.ErrBadRules):
			k.error("rules-damaged", volume.RulesPath(n), "publish good rules: holdfast access set FILE --volume DIR", "%v", err)
		case err != nil && !errors.Is(err, fs.ErrPermission):
			k.error("rules-unread", volume.RulesPath(n), "find out why it cannot be read", "%v", err)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		k.error("rules-unread", layout.AccessDir, "find out why it cannot be read", "%v", err)
	}
	entries, _ := k.fs.ReadDir(layout.AccessDir)
	for _, x := range entries {
		p := layout.AccessDir + "/" + x.Name
		if strings.HasSuffix(x.Name, layout.TmpSuffix) {
			k.info("leftover", p, "type: rm DIR/"+p, "left by a process that ended in the middle of something")
		} else if _, ok := layout.ParseRules(x.Name); !ok {
			k.info("unknown-name", p, "nothing reads it; move it away if it is not yours", "not a name of Holdfast's")
		}
	}
}

// loginMode is the mode of login/: nobody but the owner sees or moves what others made in it.
const loginMode = 0o1733

// checkLogin looks at login/, and not into it: what is in it is removed by servers.
func (k *fsck) checkLogin() {
	info, err := k.fs.Lstat(layout.LoginDir)
	if err != nil || info.Type == vfs.TypeDir && info.Mode == loginMode {
		return
	}
	k.warn("login-mode", layout.LoginDir, "type: holdfast access logins --volume DIR", "it has mode %o, and not %o as a directory: servers take no logins", info.Mode, loginMode)
}

// checkAudit looks at the names and modes of the audit, which is of people and hosts. Who runs fsck may have no access to it.
func (k *fsck) checkAudit() {
	info, err := k.fs.Lstat(layout.AuditDir)
	if err != nil {
		return // there is none before a server begins
	}
	exposed := info.Mode&0o077 != 0
	entries, _ := k.fs.ReadDir(layout.AuditDir)
	for _, x := range entries {
		p := layout.AuditDir + "/" + x.Name
		if _, ok := auditdir.Parse(x.Name); !ok || x.Type != vfs.TypeFile {
			k.info("unknown-name", p, "nothing reads it; move it away if it is not yours", "not a name of Holdfast's")
		} else if info, err := k.fs.Lstat(p); err == nil && info.Mode&0o077 != 0 {
			exposed = true
		}
	}
	if exposed {
		k.warn("audit-exposed", layout.AuditDir, "type: chmod -R go= DIR/"+layout.AuditDir, "others than the owner may read or write the audit, or what is in it")
	}
}

func (k *fsck) nameTree(dir string, judge func(string, vfs.Entry) string, open map[string]int) {
	entries, err := k.fs.ReadDir(dir)
	if err != nil {
		if dir != layout.FilesDir && !strings.HasPrefix(dir, layout.EpochsDir) { // those were missed before
			k.error("directory-missing", dir, "type: mkdir DIR/"+dir, "%v", err)
		}
		return
	}
	for _, x := range entries {
		p := path.Join(dir, x.Name)
		info, err := k.fs.Lstat(p)
		if err != nil {
			continue // it was removed meanwhile
		}
		if info.Mode&0o022 != 0 && info.Type != vfs.TypeOther && p != layout.LoginDir {
			top, _, _ := strings.Cut(p, "/")
			open[top]++
		}
		switch what := judge(dir, x); {
		case x.Type == vfs.TypeOther:
			k.warn("special-file", p, "find out what it is and move it away", "neither a file nor a directory")
		case what == unknownName:
			k.info("unknown-name", p, "nothing reads it; move it away if it is not yours", "not a name of Holdfast's")
		case what != "":
			k.info("leftover", p, what, "left by a process that ended in the middle of something")
		}
		if x.Type == vfs.TypeDir && dir == layout.FilesDir {
			k.nameTree(p, judge, open)
		}
	}
}

// A judge returns "" for a name that belongs there, unknownName, or the advice for a leftover.
const unknownName = "unknown"

func anyName(string, vfs.Entry) string { return "" }

// fileName accepts every name: protected reports the files that are not bound.
func fileName(string, vfs.Entry) string { return "" }

func rootName(_ string, x vfs.Entry) string {
	switch x.Name {
	case layout.ClusterName, layout.EpochsDir, layout.FilesDir, layout.HistoryDir, layout.IndexDir, layout.ServersDir, layout.SecretsDir, layout.AccessDir, layout.LoginDir, layout.AuditDir, layout.AuthorityName, layout.SigningPublicName, layout.StateName, layout.RequestsName, layout.MembersName, "lost+found":
		return ""
	}
	for _, view := range []string{layout.StateName, layout.RequestsName, layout.MembersName} {
		if strings.HasPrefix(x.Name, "."+view) {
			return "a temporary of a view; the primary removes it"
		}
	}
	return unknownName
}

func epochName(_ string, x vfs.Entry) string {
	if _, ok := layout.ParseEpoch(x.Name); ok && x.Type == vfs.TypeDir {
		return ""
	}
	return unknownName
}

func inEpochName(_ string, x vfs.Entry) string {
	_, segment := wal.ParseSegmentName(x.Name)
	_, checkpoint := layout.ParseCheckpoint(x.Name)
	switch {
	case x.Name == layout.FenceName, x.Name == layout.ClaimName, x.Name == layout.FencedName, x.Name == wal.NextName, segment, checkpoint:
		return ""
	case strings.HasPrefix(x.Name, layout.CheckpointPrefix) && strings.HasSuffix(x.Name, layout.TmpSuffix):
		return "a checkpoint that was not finished; a later primary removes it"
	}
	return unknownName
}

// serverName is the judge for servers/: guards, reserves, probes, canaries, signs of life, keys and claims of members.
func (k *fsck) serverName(_ string, x vfs.Entry) string {
	switch {
	case strings.HasPrefix(x.Name, layout.InitPrefix), strings.HasPrefix(x.Name, layout.RecoverPrefix):
		return "an init or a recovery that did not finish; type: rm -r DIR/" + layout.ServersDir + "/" + x.Name
	case x.Name == layout.TLSRequiredName, x.Name == layout.ClientTLSRequiredName:
		return ""
	}
	name := strings.TrimPrefix(x.Name, ".") // renameio's temporary of the probe
	id, rest, ok := layout.ParseServerName(name)
	if !ok || !k.knows(id) {
		return unknownName
	}
	_, key := volume.ParseKeyName(rest)
	switch {
	case name != x.Name, strings.HasSuffix(rest, layout.TrashSuffix):
		return "its server removes it when it starts again"
	case strings.HasSuffix(rest, layout.ClaimSuffix):
		if !k.report.Running {
			return "a prepared claim; its server removes it when it starts again"
		}
		return ""
	case rest == "lock", rest == "reserve", rest == "probe", rest == layout.CanarySuffix, rest == layout.ProcessSuffix, key:
		return ""
	}
	return unknownName
}
