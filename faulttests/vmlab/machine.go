// SPDX-License-Identifier: Apache-2.0

//go:build linux

package vmlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Machine is one virtual machine, which may be off.
type Machine struct {
	Name string
	IP   string // on the network that is tested

	role    string
	control string   // its address on the network of the test
	memory  int      // MiB
	disks   []string // files, with options of QEMU for them
	args    string   // more of the kernel's command line
	image   Image
	dir     string
	cmd     *exec.Cmd // nil while it is off
	client  http.Client
}

// Boot switches the machine on. Await waits until it is up.
func (m *Machine) Boot() error {
	if m.cmd != nil {
		return fmt.Errorf("%s runs already", m.Name)
	}
	console, err := os.OpenFile(filepath.Join(m.dir, m.Name+".console"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer console.Close() //nolint:errcheck // QEMU has its own descriptor
	cmd := exec.Command("qemu-system-x86_64", m.arguments()...)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	m.cmd = cmd
	return nil
}

// arguments of QEMU. What of the kernel's command line looks odd makes an emulated machine
// faster: it needs no protection, and the emulated clock of the processor is steady.
func (m *Machine) arguments() []string {
	line := strings.Join([]string{
		"console=ttyS0 panic=1 quiet mitigations=off nopti no5lvl nosmap nosmep tsc=reliable random.trust_cpu=on",
		"vm.name=" + m.Name, "vm.ip=" + m.IP, "vm.control=" + m.control, "vm.role=" + m.role, m.args,
	}, " ")
	last := m.IP[strings.LastIndexByte(m.IP, '.')+1:]
	all := []string{
		"-accel", "tcg,thread=multi,tb-size=256", "-machine", "q35,hpet=off", "-cpu", "max,-la57,-smap,-smep,-pku,-umip", "-smp", "1",
		"-m", fmt.Sprint(m.memory), "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio",
		"-kernel", m.image.Kernel, "-initrd", m.image.Initrd, "-append", line, "-device", "virtio-rng-pci",
	}
	for i, net := range []string{"vm", "ctl"} {
		all = append(all,
			"-netdev", fmt.Sprintf("tap,id=n%d,ifname=%s%s,script=no,downscript=no", i, net, m.Name),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=52:54:00:77:%02d:%s,romfile=,addr=0x%d", i, i, hex(last), 4+i),
		)
	}
	for i, disk := range m.disks {
		all = append(all, "-drive", fmt.Sprintf("if=none,id=d%d,file=%s,format=raw,cache=writeback", i, disk), "-device", fmt.Sprintf("virtio-blk-pci,drive=d%d,addr=0x%d", i, 6+i))
	}
	return all
}

// hex is the last byte of an address as one of a MAC: that it looks the same is enough.
func hex(last string) string { return fmt.Sprintf("%02s", last[max(0, len(last)-2):]) }

// On reports whether the machine is switched on, frozen or not.
func (m *Machine) On() bool { return m.cmd != nil }

// PowerOff ends the machine like a power failure. Data that it wrote to its disks is kept.
func (m *Machine) PowerOff() {
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill() // it may have ended by itself
	_ = m.cmd.Wait()         // it was killed
	m.cmd = nil
	m.client.CloseIdleConnections()
}

// Freeze stops the machine; Thaw continues it, with clocks that have advanced meanwhile.
func (m *Machine) Freeze() error { return m.signal(syscall.SIGSTOP) }

// Thaw ends a Freeze.
func (m *Machine) Thaw() error { return m.signal(syscall.SIGCONT) }

func (m *Machine) signal(s syscall.Signal) error {
	if m.cmd == nil {
		return fmt.Errorf("%s is off", m.Name)
	}
	return m.cmd.Process.Signal(s)
}

// Link cuts the machine off from the network that is tested, or connects it again. The machine
// gets no sign of that but silence.
func (m *Machine) Link(up bool) error {
	state := "down"
	if up {
		state = "up"
	}
	return shell(m.dir, fmt.Sprintf("ip link set vm%s %s", m.Name, state))
}

// Await waits until the machine has booted and the services of its role have started.
func (m *Machine) Await(ctx context.Context) error {
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		out, err := m.Run(try, "cat /run/up")
		cancel()
		if err == nil && strings.TrimSpace(out) == "ok" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not come up, see its console: %w", m.Name, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// CommandError is the error of a command that failed inside a machine.
type CommandError struct {
	Machine, Command, Output string
	Code                     int
}

// Error returns the command and its output.
func (e *CommandError) Error() string {
	return fmt.Sprintf("%s: %s: exit code %d: %s", e.Machine, e.Command, e.Code, strings.TrimSpace(e.Output))
}

// Run runs a shell command in the machine and returns what it printed. It is killed when ctx ends.
func (m *Machine) Run(ctx context.Context, command string) (string, error) {
	body, err := m.ask(ctx, http.MethodPost, "/run", strings.NewReader(command))
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", m.Name, command, err)
	}
	var a struct {
		Code   int    `json:"code"`
		Output string `json:"output"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return "", fmt.Errorf("%s: %s: %w", m.Name, command, err)
	}
	if a.Code != 0 {
		return a.Output, &CommandError{m.Name, command, a.Output, a.Code}
	}
	return a.Output, nil
}

// Get reads a file in the machine.
func (m *Machine) Get(ctx context.Context, path string) ([]byte, error) {
	b, err := m.ask(ctx, http.MethodGet, "/file?path="+url.QueryEscape(path), nil)
	if err != nil {
		return nil, fmt.Errorf("%s: read %s: %w", m.Name, path, err)
	}
	return b, nil
}

func (m *Machine) ask(ctx context.Context, method, path string, body io.Reader) (b []byte, err error) {
	q, err := http.NewRequestWithContext(ctx, method, "http://"+m.control+":7"+path, body)
	if err != nil {
		return nil, err
	}
	r, err := m.client.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Body.Close()) }()
	if b, err = io.ReadAll(r.Body); err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", r.Status, b)
	}
	return b, err
}
