//go:build !linux

package machine

import "errors"

// Subcommands of the program that runs machines.
const (
	launchCommand = "launch"
	outermost     = "outermost"
)

// Main returns an error: machines need Linux.
func Main([]string) error { return Check() }

// Check returns an error: machines need Linux.
func Check() error { return errors.New("they need Linux") }
