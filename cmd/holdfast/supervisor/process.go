// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// parentEnv tells a server that it has a supervisor: the process ID of that.
const parentEnv = "HOLDFAST_SUPERVISOR"

// Supervises reports whether the parent of this process is a supervisor. Such a server ends by one signal, and takes no notice of a second
// one: a service manager may signal all processes of a service, and the supervisor passes that on, too. Who is in a hurry kills it.
func Supervises(getenv func(string) string) bool {
	return getenv(parentEnv) == strconv.Itoa(os.Getppid())
}

// environment returns that of a server, which tells its supervisor at notify that it is ready, and as often as the service manager's watchdog wants
// it, that it lives. The service manager itself hears the process that it started, and no other.
func environment(of []string, notify string) []string {
	of = slices.DeleteFunc(slices.Clone(of), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"NOTIFY_SOCKET", "WATCHDOG_PID", parentEnv}, name)
	})
	return append(of, "NOTIFY_SOCKET="+notify, parentEnv+"="+strconv.Itoa(os.Getpid()))
}

type process struct {
	cmd    *exec.Cmd
	notify *net.UnixConn
	log    zerolog.Logger
	// silence is how long the server may say nothing once it is ready; 0 = for ever.
	silence time.Duration
}

// silenceAgain is how long a silent server has beyond that: this process may have been kept from hearing it.
const silenceAgain = 2 * time.Second

// abortWait is how long a stuck server has to write down where it is stuck, and to end.
const abortWait = 5 * time.Second

// process starts the server of a cell.
func (o *Options) process(k cluster.CellID, ready func()) (server, error) {
	silence, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		o.Log.Warn().Err(err).Msg("servers that are stuck are not noticed")
	}
	// The system chooses the name. Whoever else writes there can make a server look ready, which decides nothing.
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("start the server of %v: %w", k, err)
	}
	args := o.Command(k)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stderr = environment(os.Environ(), notify.LocalAddr().String()), o.Output
	// A group of its own: Ctrl-C comes to this process alone, which passes it on; and no server outlives a supervisor that was killed.
	// (The signal comes with the death of the thread that forked, and Go ends no threads while none is locked.)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		notify.Close() //nolint:errcheck // nobody writes there
		return nil, fmt.Errorf("start the server of %v: %w", k, err)
	}
	p := &process{cmd, notify, o.Log.With().Uint32("cell", uint32(k)).Logger(), silence}
	go p.listen(ready)
	return p, nil
}

// listen calls ready when the server says that it is, until the socket is closed. One that is ready and is silent for too long after that is
// stuck. It is made to write down where and to end, and killed if it does not: so the service manager would do.
func (p *process) listen(ready func()) {
	b, again, aborted := make([]byte, 4096), false, false
	for {
		n, err := p.notify.Read(b)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && aborted:
			p.Signal(syscall.SIGKILL)
			return
		case errors.Is(err, os.ErrDeadlineExceeded) && again:
			p.log.Error().Dur("silence", p.silence).Msg("the server of a cell is stuck, and is ended")
			p.Signal(syscall.SIGABRT)
			aborted = true
			p.notify.SetReadDeadline(time.Now().Add(abortWait)) //nolint:errcheck // Read would say so
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			again = true
			p.notify.SetReadDeadline(time.Now().Add(silenceAgain)) //nolint:errcheck // Read would say so
			continue
		case err != nil:
			return
		case aborted: // it is too late
			continue
		}
		said := strings.Split(string(b[:n]), "\n")
		again = false
		switch {
		case slices.Contains(said, daemon.SdNotifyStopping):
			p.notify.SetReadDeadline(time.Time{}) //nolint:errcheck // as above
			p.silence = 0
		case p.silence > 0 && (slices.Contains(said, daemon.SdNotifyReady) || slices.Contains(said, daemon.SdNotifyWatchdog)):
			p.notify.SetReadDeadline(time.Now().Add(p.silence)) //nolint:errcheck // as above
		}
		if slices.Contains(said, daemon.SdNotifyReady) {
			ready()
		}
	}
}

// Signal implements server.
func (p *process) Signal(sig os.Signal) {
	p.cmd.Process.Signal(sig) //nolint:errcheck // it has ended
}

// Wait implements server.
func (p *process) Wait() (code int, how string) {
	p.cmd.Wait()     //nolint:errcheck // the state of the process says more
	p.notify.Close() //nolint:errcheck // nobody writes there any more
	return p.cmd.ProcessState.ExitCode(), p.cmd.ProcessState.String()
}
