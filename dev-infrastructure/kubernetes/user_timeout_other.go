//go:build !linux

package kubernetes

import (
	"net"
	"time"
)

// setUserTimeout changes nothing: clusters need Linux.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
