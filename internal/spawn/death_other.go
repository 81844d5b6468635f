//go:build !linux

package spawn

import "syscall"

func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
