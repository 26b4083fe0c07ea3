// SPDX-License-Identifier: Apache-2.0

// Agent runs inside a virtual machine and executes the test's requests over HTTP: POST /run runs
// the body as a shell command, GET /file?path= reads a file.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Reply is the result of a command.
type Reply struct {
	Code   int    `json:"code"` // -1: it was killed, or could not be run
	Output string `json:"output"`
}

func main() {
	http.HandleFunc("POST /run", run)
	http.HandleFunc("GET /file", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, r.URL.Query().Get("path"))
	})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}

func run(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// The command ends with the request. Processes that it leaves in the background continue.
	cmd := exec.CommandContext(r.Context(), "/bin/sh", "-c", string(body))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 200 * time.Millisecond
	out, err := cmd.CombinedOutput()
	a := Reply{Code: -1, Output: string(out)}
	if cmd.ProcessState != nil {
		a.Code = cmd.ProcessState.ExitCode()
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) && a.Code < 0 {
		a.Output += err.Error()
	}
	if err := json.NewEncoder(w).Encode(a); err != nil {
		log.Print(err)
	}
}
