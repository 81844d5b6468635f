//go:build !linux

package hostedapi

import "os/exec"

// spawner starts processes. Without Linux's parent-death signal, processes that a killed supervisor left behind are
// ended by the next one, which finds them by their pid files.
type spawner struct{}

func newSpawner() *spawner { return &spawner{} }

func (s *spawner) start(command *exec.Cmd) error { return command.Start() }

func (s *spawner) close() {}
