//go:build !linux

package tofu

import "os/exec"

// interruptWithParent does nothing: only Linux can signal a process when its parent dies.
func interruptWithParent(*exec.Cmd) {}
