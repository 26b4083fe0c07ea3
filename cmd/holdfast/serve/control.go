// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// controlName is a Unix socket in the data directory, by which this user, and root, have the settings read anew. A request is
	// the line reload, its answer a Reloaded in JSON. What is asked does no harm however often or late: the server reads its
	// own file.
	controlName = "control"
	// controlWait bounds one request.
	controlWait = 10 * time.Second
	reloadLine  = "reload\n"
)

// Reloaded says what became of a reload.
type Reloaded struct {
	// Changed are the names of the settings that count now.
	Changed []string `json:"changed"`
	// Restart are those that were changed and count after a restart of the server only.
	Restart []string `json:"config_pending_restart"`
	// Error is why nothing was changed; "" = it was.
	Error string `json:"error,omitempty"`
}

// ErrNoControl means that no server takes requests by a data directory.
var ErrNoControl = errors.New("no server takes requests by its data directory")

// controlPause is for how long no request is taken after one could not be.
const controlPause = 100 * time.Millisecond

// takeRequests takes requests by the data directory, if this process holds its lock. What goes wrong is logged: a server does its
// work without.
func (p *process) takeRequests(opt *Options) {
	if opt.Reload == nil || p.locked == nil || p.control != nil {
		return
	}
	l, err := listenIn(opt.DataDir)
	if err != nil {
		opt.Log.Warn().Err(err).Msg("holdfast config reload does not reach this server: send it SIGHUP")
		return
	}
	p.control = l
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // such as no descriptor
				<-time.After(controlPause)
				continue
			}
			answer(c, opt.Reload) // one after the other
		}
	}()
}

// listenIn listens on the socket in a directory whose lock is held: what is there is of a process that has ended.
func listenIn(dir string) (net.Listener, error) {
	path, done, err := short(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // by a path that is gone then
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// short returns a path of the socket that is short enough for one, until done is called.
func short(dir string) (path string, done func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(fmt.Sprintf("/proc/self/fd/%d", d.Fd()), controlName), func() { d.Close() }, nil //nolint:errcheck // it was read only
}

func answer(c net.Conn, reload func() Reloaded) {
	defer c.Close()                                // what was not sent, the caller misses
	_ = c.SetDeadline(time.Now().Add(controlWait)) // a silent caller must not keep others out
	line, err := bufio.NewReaderSize(c, 16).ReadSlice('\n')
	if err != nil || string(line) != reloadLine {
		return
	}
	_ = json.NewEncoder(c).Encode(reload())
}

// AskReload has the server that uses a data directory on this host read its settings anew. It returns ErrNoControl if there is
// none.
func AskReload(ctx context.Context, dir string) (r Reloaded, err error) {
	path, done, err := short(dir)
	if err != nil {
		return r, err
	}
	defer done()
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return r, fmt.Errorf("%w %s", ErrNoControl, dir)
	case err != nil:
		return r, err
	}
	defer c.Close() //nolint:errcheck // it was read
	_ = c.SetDeadline(time.Now().Add(controlWait))
	if _, err := c.Write([]byte(reloadLine)); err != nil {
		return r, err
	}
	if err := json.NewDecoder(c).Decode(&r); err != nil {
		return r, fmt.Errorf("the server has not answered, see its log: %w", err)
	}
	return r, nil
}
