//go:build !linux

package postgres

import "syscall"

// setUserTimeout does nothing: the timeouts of the system apply.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
